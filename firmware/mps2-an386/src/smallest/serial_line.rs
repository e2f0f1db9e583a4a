//! The second UART, as a driver with the traits of `embedded-io`. Received bytes come by an interrupt into a ring.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};

use cortex_m::interrupt::InterruptNumber;
use cortex_m::peripheral::NVIC;
use critical_section::Mutex;
use embedded_io::{ErrorKind, ErrorType, Read, ReadReady, Write, WriteReady};
use heapless::Deque;

use crate::uart::{Uart, receiver};

const UART: Uart = Uart::at(0x4000_5000);
/// Bytes of the ring: those that arrive within 0.8 ms at the fastest rate of the UART, 1.5 million bits per second.
const CAPACITY: usize = 128;

/// What the interrupt has received.
struct Received {
    bytes: Deque<u8, CAPACITY>,
    /// A byte waits in the UART, since the ring was full.
    waits: bool,
    /// Bytes were lost, since the UART was full, too.
    overrun: bool,
}

impl Received {
    /// Takes the byte that has arrived, if there is room.
    fn take(&mut self) {
        self.overrun |= UART.take_overrun();
        self.waits = self.bytes.is_full();
        if !self.waits
            && let Some(byte) = UART.received()
        {
            self.waits = self.bytes.push_back(byte).is_err();
        }
    }
}

static RECEIVED: Mutex<RefCell<Received>> =
    Mutex::new(RefCell::new(Received { bytes: Deque::new(), waits: false, overrun: false }));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls `work` with what was received, inside a critical section. `None` if it is in use, which cannot be.
fn received<T>(work: impl FnOnce(&mut Received) -> T) -> Option<T> {
    critical_section::with(|section| {
        RECEIVED.borrow(section).try_borrow_mut().ok().map(|mut received| work(&mut received))
    })
}

/// The receive interrupt of the UART.
#[derive(Clone, Copy)]
pub struct Interrupt;

// SAFETY: the number is that of the interrupt "UART 1 receive" of this board, and never changes.
unsafe impl InterruptNumber for Interrupt {
    fn number(self) -> u16 {
        2
    }
}

impl Interrupt {
    /// Moves the byte that has arrived to the ring.
    pub fn handle() {
        UART.clear_interrupt();
        received(Received::take);
    }
}

/// The driver.
#[derive(Debug)]
pub struct SerialLine(());

impl SerialLine {
    /// The driver. The second call and all later ones return `None`.
    pub fn take() -> Option<Self> {
        if TAKEN.swap(true, Ordering::AcqRel) {
            return None;
        }
        UART.start(receiver::ENABLE);
        // SAFETY: the handler and the driver share the ring by critical sections only.
        unsafe { NVIC::unmask(Interrupt) };
        Some(Self(()))
    }
}

impl ErrorType for SerialLine {
    type Error = ErrorKind;
}

impl ReadReady for SerialLine {
    fn read_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(received(|received| received.overrun || !received.bytes.is_empty()).unwrap_or_default())
    }
}

impl Read for SerialLine {
    /// Waits for a byte, as the trait demands. Fails if bytes were lost since the last call.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, ErrorKind> {
        while !into.is_empty() && !self.read_ready()? {}
        received(|received| {
            if core::mem::take(&mut received.overrun) {
                return Err(ErrorKind::Other);
            }
            let mut count = 0;
            for to in into {
                let Some(byte) = received.bytes.pop_front() else { break };
                *to = byte;
                count += 1;
            }
            if received.waits {
                received.take();
            }
            Ok(count)
        })
        .unwrap_or(Ok(0))
    }
}

impl WriteReady for SerialLine {
    fn write_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(UART.has_room())
    }
}

impl Write for SerialLine {
    /// Waits until there is room for the first byte, as the trait demands, and writes no more than fits.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        if let Some(first) = bytes.first() {
            UART.put(*first);
        }
        let mut count = bytes.len().min(1);
        for byte in bytes.iter().skip(1).take_while(|_| UART.has_room()) {
            UART.put(*byte);
            count += 1;
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        while !UART.has_room() {}
        Ok(())
    }
}
