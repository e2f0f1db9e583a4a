//! Where rings, log and buffers are.

use core::fmt;

use crate::header::{HEADER, MAX_SLOTS, at};
use crate::memory::{LINE, Memory, OutOfBounds};
use crate::ring::SLOT;

/// Where rings, log and buffers are. All offsets are bytes from the begin of the window, and multiples of 64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Layout {
    /// Slots of the ring of commands, a power of two.
    pub command_slots: u32,
    /// Slots of the ring of completions, a power of two.
    pub completion_slots: u32,
    /// Where the ring of commands begins.
    pub commands: u64,
    /// Where the ring of completions begins.
    pub completions: u64,
    /// Where the buffers begin.
    pub buffers: u64,
    /// Bytes of the buffers.
    pub buffer_bytes: u64,
    /// Where the log begins. Nothing is there if it has no bytes.
    pub log: u64,
    /// Bytes of the log: a power of two of at least [`LOG_BYTES_MIN`], or 0.
    pub log_bytes: u32,
}

/// The fewest bytes of a log.
pub const LOG_BYTES_MIN: u32 = 64;
/// The most bytes of a log.
pub const LOG_BYTES_MAX: u32 = 1 << 30;

/// A layout does not fit its window, or is not what the specification allows.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BadLayout;

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the layout of the window is not valid: rings need a power of two of slots, a log a power of two of bytes, and all \
             must fit into the window",
        )
    }
}

impl core::error::Error for BadLayout {}

towline_core::debug_as_display!(BadLayout);

impl Layout {
    /// Rings of these sizes behind the header, and buffers in the rest of a window.
    ///
    /// # Errors
    /// [`BadLayout`] if a number of slots is not a power of two of at most [`MAX_SLOTS`], or if the window is too small.
    pub fn plan(window: usize, command_slots: u32, completion_slots: u32) -> Result<Self, BadLayout> {
        let commands = HEADER as u64;
        let completions = commands + u64::from(command_slots) * SLOT as u64;
        let buffers = completions + u64::from(completion_slots) * SLOT as u64;
        let buffer_bytes = (window as u64).checked_sub(buffers).ok_or(BadLayout)?;
        let layout = Self {
            command_slots,
            completion_slots,
            commands,
            completions,
            buffers,
            buffer_bytes,
            log: 0,
            log_bytes: 0,
        };
        layout.check(window)?;
        Ok(layout)
    }

    /// The same with a log of that many bytes, which takes them from the begin of the buffers.
    ///
    /// # Errors
    /// [`BadLayout`] if this is no number of bytes of a log, or if the buffers are too small.
    pub fn with_log(self, bytes: u32) -> Result<Self, BadLayout> {
        let buffer_bytes = self.buffer_bytes.checked_sub(bytes.into()).ok_or(BadLayout)?;
        let buffers = self.buffers.saturating_add(bytes.into());
        let layout = Self { log: self.buffers, log_bytes: bytes, buffers, buffer_bytes, ..self };
        if layout.has_valid_log() { Ok(layout) } else { Err(BadLayout) }
    }

    const fn has_valid_log(&self) -> bool {
        let bytes = self.log_bytes;
        bytes == 0 || (bytes.is_power_of_two() && bytes >= LOG_BYTES_MIN && bytes <= LOG_BYTES_MAX)
    }

    /// Checks a layout from the other side.
    ///
    /// # Errors
    /// [`BadLayout`] if a part is outside the window or inside the header, if parts overlap, or if a number is not allowed.
    pub fn check(&self, window: usize) -> Result<(), BadLayout> {
        let slots = [self.command_slots, self.completion_slots];
        if slots.iter().any(|slots| !slots.is_power_of_two() || *slots > MAX_SLOTS) || !self.has_valid_log() {
            return Err(BadLayout);
        }
        let completion_bytes = u64::from(self.completion_slots) * SLOT as u64;
        // A log of no bytes is nowhere.
        let log = if self.log_bytes == 0 { self.completions.saturating_add(completion_bytes) } else { self.log };
        let parts = [
            (self.commands, u64::from(self.command_slots) * SLOT as u64),
            (self.completions, completion_bytes),
            (log, self.log_bytes.into()),
            (self.buffers, self.buffer_bytes),
        ];
        let mut end = HEADER as u64;
        for (at, bytes) in parts {
            if at < end || !at.is_multiple_of(LINE as u64) {
                return Err(BadLayout);
            }
            end = at.checked_add(bytes).ok_or(BadLayout)?;
        }
        if end > window as u64 { Err(BadLayout) } else { Ok(()) }
    }

    /// The layout that a header has. It is not checked.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the window has no header.
    pub fn read(memory: &Memory<'_>) -> Result<Self, OutOfBounds> {
        let word = |at| {
            let mut bytes = [0; 4];
            memory.read(at, &mut bytes).map(|()| u32::from_le_bytes(bytes))
        };
        let long = |at| {
            let mut bytes = [0; 8];
            memory.read(at, &mut bytes).map(|()| u64::from_le_bytes(bytes))
        };
        Ok(Self {
            command_slots: word(at::COMMAND_SLOTS)?,
            completion_slots: word(at::COMPLETION_SLOTS)?,
            commands: long(at::COMMANDS)?,
            completions: long(at::COMPLETIONS)?,
            buffers: long(at::BUFFERS)?,
            buffer_bytes: long(at::BUFFER_BYTES)?,
            log: long(at::LOG)?,
            log_bytes: word(at::LOG_BYTES)?,
        })
    }

    /// Writes it to a header.
    ///
    /// # Errors
    /// [`OutOfBounds`] if the window has no header.
    pub fn write(&self, memory: &Memory<'_>) -> Result<(), OutOfBounds> {
        memory.write(at::COMMAND_SLOTS, &self.command_slots.to_le_bytes())?;
        memory.write(at::COMPLETION_SLOTS, &self.completion_slots.to_le_bytes())?;
        memory.write(at::COMMANDS, &self.commands.to_le_bytes())?;
        memory.write(at::COMPLETIONS, &self.completions.to_le_bytes())?;
        memory.write(at::BUFFERS, &self.buffers.to_le_bytes())?;
        memory.write(at::BUFFER_BYTES, &self.buffer_bytes.to_le_bytes())?;
        memory.write(at::LOG, &self.log.to_le_bytes())?;
        memory.write(at::LOG_BYTES, &self.log_bytes.to_le_bytes())
    }
}
