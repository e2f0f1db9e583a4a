//! The log in the memory of a window, and the device's end of it.

use crate::atomics::{AtomicU32, Ordering};
use crate::header::at;
use crate::layout::Layout;
use crate::log::{Bytes, LogWriter};
use crate::memory::{Memory, OutOfBounds};

/// The log of a window.
#[derive(Clone, Copy, Debug)]
pub struct Log<'w> {
    memory: Memory<'w>,
    at: u64,
    length: u32,
    written: &'w AtomicU32,
    taken: &'w AtomicU32,
    lost: &'w AtomicU32,
}

impl<'w> Log<'w> {
    /// The log of a window with this layout, which was checked. `None` if it has none.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the window has no header, or the log is outside of it.
    pub fn new(memory: &Memory<'w>, layout: &Layout) -> Result<Option<Self>, OutOfBounds> {
        memory.range(layout.log, layout.log_bytes.into())?;
        let log = Self {
            memory: *memory,
            at: layout.log,
            length: layout.log_bytes,
            written: memory.word(at::LOG_WRITTEN)?,
            taken: memory.word(at::LOG_TAKEN)?,
            lost: memory.word(at::LOG_LOST)?,
        };
        Ok((layout.log_bytes != 0).then_some(log))
    }

    /// Frames that found no room since the start of the device, modulo 2^32.
    pub fn lost(&self) -> u32 {
        u32::from_le(self.lost.load(Ordering::Relaxed))
    }
}

impl Bytes for Log<'_> {
    fn length(&self) -> u32 {
        self.length
    }

    fn write(&self, at: u32, bytes: &[u8]) {
        // The place is inside the log, and the log inside the window.
        let _ = self.memory.write(self.at.saturating_add(at.into()), bytes);
    }

    fn read(&self, at: u32, into: &mut [u8]) {
        let _ = self.memory.read(self.at.saturating_add(at.into()), into);
    }

    fn written(&self) -> &AtomicU32 {
        self.written
    }

    fn taken(&self) -> &AtomicU32 {
        self.taken
    }
}

/// The device's end of the log. It is used by one thread at a time.
#[derive(Debug)]
pub struct DeviceLog<'w> {
    log: Log<'w>,
    writer: LogWriter,
    lost: u32,
}

impl<'w> DeviceLog<'w> {
    /// The end of an empty log.
    pub fn new(log: Log<'w>) -> Self {
        Self { writer: LogWriter::new(&log), log, lost: 0 }
    }

    /// Writes bytes of the present frame. The host sees them after its end.
    pub fn append(&mut self, bytes: &[u8]) {
        self.writer.append(&self.log, bytes);
    }

    /// Ends the present frame. Returns whether there was room for it; otherwise it is lost as a whole, and counted.
    pub fn end(&mut self) -> bool {
        let is_whole = self.writer.end(&self.log);
        if !is_whole {
            self.count_lost(1);
        }
        is_whole
    }

    /// Counts frames that were lost elsewhere.
    pub fn count_lost(&mut self, frames: u32) {
        self.lost = self.lost.wrapping_add(frames);
        self.log.lost.store(self.lost.to_le(), Ordering::Relaxed);
    }
}
