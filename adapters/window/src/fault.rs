//! What a firmware says of its end.

use core::fmt;

use crate::atomics::Ordering;
use crate::header::{MAGIC, State, at};
use crate::memory::{Memory, OutOfBounds};

/// Why a firmware has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Fault {
    /// A number of the firmware's choice.
    pub number: u32,
    /// The exception of the processor, if that was the reason.
    pub exception: Option<Exception>,
}

/// An exception of a processor. The numbers are those of its registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Exception {
    /// What happened, as the processor tells it. It is not 0.
    pub cause: u64,
    /// The address of the instruction.
    pub instruction: u64,
    /// The address that was accessed, if the cause has one.
    pub address: u64,
}

impl Fault {
    /// The end of a firmware without an exception.
    pub const fn of(number: u32) -> Self {
        Self { number, exception: None }
    }

    /// Reads what the firmware has written before it changed its state.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub(crate) fn read(memory: &Memory<'_>) -> Result<Self, OutOfBounds> {
        let number = u32::from_le(memory.word(at::FAULT)?.load(Ordering::Relaxed));
        let number_at = |place| {
            let mut bytes = [0; 8];
            memory.read(place, &mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        let (cause, instruction) = (number_at(at::CAUSE)?, number_at(at::INSTRUCTION)?);
        let address = number_at(at::ADDRESS)?;
        let exception = (cause != 0).then_some(Exception { cause, instruction, address });
        Ok(Self { number, exception })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.number)?;
        let Some(Exception { cause, instruction, address }) = self.exception else { return Ok(()) };
        write!(f, ", by exception {cause:#x} of the instruction at {instruction:#x}, address {address:#x}")
    }
}

/// Tells the host that the firmware ends. It may be called by the handler of an exception: it takes no lock, and uses nothing but the
/// window. A memory that is no window of a device is left as it is.
///
/// # Errors
/// [`OutOfBounds`]: the memory is smaller than a header.
pub fn report(memory: &Memory<'_>, fault: &Fault) -> Result<(), OutOfBounds> {
    let mut magic = [0; MAGIC.len()];
    memory.read(at::MAGIC, &mut magic)?;
    if magic != MAGIC {
        return Ok(());
    }
    let exception = fault.exception.unwrap_or_default();
    memory.write(at::CAUSE, &exception.cause.to_le_bytes())?;
    memory.write(at::INSTRUCTION, &exception.instruction.to_le_bytes())?;
    memory.write(at::ADDRESS, &exception.address.to_le_bytes())?;
    memory.word(at::FAULT)?.store(fault.number.to_le(), Ordering::Relaxed);
    memory.word(at::STATE)?.store((State::Failed as u32).to_le(), Ordering::Release);
    Ok(())
}
