//! The header of the window: its words, and where rings and buffers are.

use core::fmt;

use crate::memory::{Memory, OutOfBounds};
use crate::ring::SLOT;

/// Bytes of a line. Words that different sides write are in different lines.
pub const LINE: usize = 64;
/// Bytes of the header.
pub const HEADER: usize = 512;
/// The first 8 bytes of a window.
pub const MAGIC: [u8; 8] = *b"TOWLINEW";
/// The version of the layout: a major number in the upper 16 bits, and a minor number. Sides with different major numbers do not
/// work together.
pub const VERSION: u32 = 1 << 16;
/// Bytes of the device's description, a text that ends with zeros.
pub const DESCRIPTION: usize = 64;
/// The most slots of a ring.
pub const MAX_SLOTS: u32 = 1 << 16;

/// Offsets of the words, and who writes them.
pub mod at {
    /// Device, before it is ready: [`MAGIC`](super::MAGIC).
    pub const MAGIC: u64 = 0;
    /// Device, before it is ready: [`VERSION`](super::VERSION).
    pub const VERSION: u64 = 8;
    /// Device, before it is ready: a number that is another one after each start.
    pub const BOOT: u64 = 12;
    /// Device, before it is ready: the number of slots of the ring of commands.
    pub const COMMAND_SLOTS: u64 = 16;
    /// Device, before it is ready: the number of slots of the ring of completions.
    pub const COMPLETION_SLOTS: u64 = 20;
    /// Device, before it is ready, 8 bytes: where the ring of commands begins.
    pub const COMMANDS: u64 = 24;
    /// Device, before it is ready, 8 bytes: where the ring of completions begins.
    pub const COMPLETIONS: u64 = 32;
    /// Device, before it is ready, 8 bytes: where the buffers begin.
    pub const BUFFERS: u64 = 40;
    /// Device, before it is ready, 8 bytes: the size of the buffers.
    pub const BUFFER_BYTES: u64 = 48;
    /// Device, before it is ready: its description.
    pub const DESCRIPTION: u64 = 64;
    /// Device: its state.
    pub const STATE: u64 = 128;
    /// Device: the session of the host that it serves, or 0.
    pub const SESSION: u64 = 132;
    /// Device: a counter that grows while the firmware runs.
    pub const HEARTBEAT: u64 = 136;
    /// Device: why it failed.
    pub const FAULT: u64 = 140;
    /// Host: the session that it asks for, or 0.
    pub const WANTED: u64 = 192;
    /// Device: its position in the ring of commands.
    pub const COMMANDS_TAKEN: u64 = 256;
    /// Host: its position in the ring of completions.
    pub const COMPLETIONS_TAKEN: u64 = 320;
}

/// The state of the device, in [`at::STATE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum State {
    /// It has not written the header yet.
    Starting = 0,
    /// It serves a host, or waits for one.
    Ready = 1,
    /// It has ended, and says why in [`at::FAULT`].
    Failed = 2,
}

/// Where rings and buffers are. All offsets are bytes from the begin of the window, and multiples of 64.
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
}

/// A layout does not fit its window, or is not what the specification allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct BadLayout;

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the layout of the window is not valid: rings need a power of two of slots and must fit into the window",
        )
    }
}

impl core::error::Error for BadLayout {}

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
        let layout = Self { command_slots, completion_slots, commands, completions, buffers, buffer_bytes };
        layout.check(window)?;
        Ok(layout)
    }

    /// Checks a layout from the other side.
    ///
    /// # Errors
    /// [`BadLayout`] if a part is outside the window or inside the header, if parts overlap, or if a number is not allowed.
    pub fn check(&self, window: usize) -> Result<(), BadLayout> {
        let slots = [self.command_slots, self.completion_slots];
        if slots.iter().any(|slots| !slots.is_power_of_two() || *slots > MAX_SLOTS) {
            return Err(BadLayout);
        }
        let parts = [
            (self.commands, u64::from(self.command_slots) * SLOT as u64),
            (self.completions, u64::from(self.completion_slots) * SLOT as u64),
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
        memory.write(at::BUFFER_BYTES, &self.buffer_bytes.to_le_bytes())
    }
}

/// A ring in a window.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct Ring<'w> {
    words: &'w [crate::atomics::AtomicU32],
    taken: &'w crate::atomics::AtomicU32,
    slots: u32,
}

#[cfg(not(loom))]
impl<'w> Ring<'w> {
    /// The ring of `slots` slots at an offset, whose reader's position is the word at `taken`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a part of it is outside the window, or `at` is not a multiple of 64.
    pub fn new(memory: &Memory<'w>, at: u64, slots: u32, taken: u64) -> Result<Self, OutOfBounds> {
        let begin = memory.range(at, u64::from(slots) * SLOT as u64)?;
        if !at.is_multiple_of(LINE as u64) {
            return Err(OutOfBounds);
        }
        // SAFETY: the range is inside the window, at a multiple of 64, and is valid for the lifetime. This side accesses it as
        // atomics only.
        let words = unsafe { core::slice::from_raw_parts(begin.as_ptr().cast(), slots as usize * (SLOT / 4)) };
        Ok(Self { words, taken: memory.word(taken)?, slots })
    }
}

#[cfg(not(loom))]
impl crate::ring::Slots for Ring<'_> {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn word(&self, position: u32, word: usize) -> Option<&crate::atomics::AtomicU32> {
        let slot = position & self.slots.wrapping_sub(1);
        self.words.get((slot as usize).wrapping_mul(SLOT / 4).wrapping_add(word))
    }

    fn taken(&self) -> &crate::atomics::AtomicU32 {
        self.taken
    }
}
