//! The host's end of the log.

use crate::atomics::Ordering;
use crate::header::{State, at};
use crate::host::{AttachError, layout_of, state_of};
use crate::log::{LogReader, Taken};
use crate::memory::Memory;
use crate::placed_log::Log;

/// The host's end of the log of a device. It needs no session, and works when the firmware has failed. It is used by one thread at a
/// time, and one process at a time reads a log.
#[derive(Debug)]
pub struct HostLog<'w> {
    memory: Memory<'w>,
    log: Log<'w>,
    reader: LogReader,
    boot: u32,
}

impl<'w> HostLog<'w> {
    /// The log of a device that has started. `None` if it has none.
    ///
    /// # Errors
    /// [`AttachError::NotReady`], [`AttachError::Version`] and [`AttachError::Layout`].
    pub fn open(memory: Memory<'w>) -> Result<Option<Self>, AttachError> {
        state_of(&memory)?;
        let (_, layout) = layout_of(&memory)?;
        let not_ready = |_| AttachError::NotReady;
        let boot = memory.word(at::BOOT).map_err(not_ready)?.load(Ordering::Acquire);
        let log = Log::new(&memory, &layout).map_err(not_ready)?;
        Ok(log.map(|log| Self { memory, log, reader: LogReader::new(&log), boot }))
    }

    /// Copies the next bytes of the log. `None`: the device has started again, or does so now, and its log has to be opened again.
    pub fn read(&mut self, into: &mut [u8]) -> Option<Taken> {
        let word = |at| self.memory.word(at).map(|word| word.load(Ordering::Acquire));
        // The state is read first: a device that starts again says so before it writes another number.
        let is_starting = word(at::STATE) == Ok((State::Starting as u32).to_le());
        if is_starting || word(at::BOOT) != Ok(self.boot) {
            return None;
        }
        Some(self.reader.read(&self.log, into))
    }

    /// Whether the firmware has failed, so that nothing more comes.
    pub fn has_failed(&self) -> bool {
        self.memory.word(at::STATE).is_ok_and(|state| state.load(Ordering::Acquire) == (State::Failed as u32).to_le())
    }

    /// Frames that found no room since the start of the device, modulo 2^32.
    pub fn lost(&self) -> u32 {
        self.log.lost()
    }
}
