//! The device's end of the window.

use core::fmt;

use crate::atomics::{Ordering, fence};
use crate::command::{BadCommand, Command};
use crate::completion::Completion;
use crate::fault::{self, Fault};
use crate::header::{DESCRIPTION, MAGIC, State, VERSION, at};
use crate::layout::{BadLayout, Layout};
use crate::memory::{Memory, OutOfBounds};
use crate::placed_ring::Ring;
use crate::ring::{self, Pushed, Reader, Violation, Writer};

/// What the device says of itself.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct About<'a> {
    /// A number that is another one after each start: a random number, or a counter in memory that lasts.
    pub boot: u32,
    /// The most sends and receives that may be in progress.
    pub operations: u32,
    /// The most puts, gets and atomics that may be in progress, or 0 if the firmware has no one-sided operations.
    pub one_sided: u32,
    /// Name and version of the firmware. At most 64 bytes of it are used.
    pub description: &'a str,
}

/// A window cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum StartError {
    /// The layout is not valid for the memory.
    Layout(BadLayout),
    /// The window is too small.
    OutOfBounds,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(why) => why.fmt(f),
            Self::OutOfBounds => OutOfBounds.fmt(f),
        }
    }
}

impl core::error::Error for StartError {}

towline_core::debug_as_display!(StartError);

impl From<BadLayout> for StartError {
    fn from(why: BadLayout) -> Self {
        Self::Layout(why)
    }
}

impl From<OutOfBounds> for StartError {
    fn from(_: OutOfBounds) -> Self {
        Self::OutOfBounds
    }
}

/// The device's end. It is used by one thread at a time.
#[derive(Debug)]
pub struct Device<'w> {
    memory: Memory<'w>,
    layout: Layout,
    commands: Ring<'w>,
    completions: Ring<'w>,
    reader: Reader,
    writer: Writer,
    session: u32,
    /// A session that the device has ended by itself, and that its host still wants.
    ended: u32,
    heartbeat: u32,
}

impl<'w> Device<'w> {
    /// Writes the header, and says that the device is ready.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(memory: Memory<'w>, layout: Layout, about: &About<'_>) -> Result<Self, StartError> {
        layout.check(memory.bytes())?;
        let state = memory.word(at::STATE)?;
        state.store((State::Starting as u32).to_le(), Ordering::Relaxed);
        // A host that sees a part of the new header also sees this state.
        fence(Ordering::Release);
        memory.write(at::MAGIC, &MAGIC)?;
        memory.write(at::VERSION, &VERSION.to_le_bytes())?;
        memory.write(at::BOOT, &about.boot.to_le_bytes())?;
        memory.write(at::OPERATIONS, &about.operations.to_le_bytes())?;
        memory.write(at::ONE_SIDED, &about.one_sided.to_le_bytes())?;
        layout.write(&memory)?;
        let mut description = [0; DESCRIPTION];
        description.iter_mut().zip(about.description.bytes()).for_each(|(to, byte)| *to = byte);
        memory.write(at::DESCRIPTION, &description)?;
        let commands = Ring::new(&memory, layout.commands, layout.command_slots, at::COMMANDS_TAKEN)?;
        let completions = Ring::new(&memory, layout.completions, layout.completion_slots, at::COMPLETIONS_TAKEN)?;
        let mut device = Self {
            memory,
            layout,
            commands,
            completions,
            reader: Reader::new(),
            writer: Writer::new(),
            session: 0,
            ended: 0,
            heartbeat: 0,
        };
        // A host that had a session before this start asks for a new one.
        memory.word(at::WANTED)?.store(0, Ordering::Relaxed);
        memory.word(at::LEFT)?.store(0, Ordering::Relaxed);
        device.serve(0)?;
        state.store((State::Ready as u32).to_le(), Ordering::Release);
        Ok(device)
    }

    /// The memory of the window.
    pub const fn memory(&self) -> &Memory<'w> {
        &self.memory
    }

    /// Where rings and buffers are.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The session that the device serves, or 0.
    pub const fn session(&self) -> u32 {
        self.session
    }

    /// The session that the host wants, if it is another one than the device serves. The caller ends everything that belongs to
    /// the present session, and then calls [`serve`](Self::serve).
    ///
    /// # Errors
    /// [`OutOfBounds`] never happens, since the window has a header.
    pub fn wanted(&mut self) -> Result<Option<u32>, OutOfBounds> {
        let wanted = u32::from_le(self.memory.word(at::WANTED)?.load(Ordering::Acquire));
        if wanted == 0 {
            self.ended = 0;
        }
        let is_news = wanted != self.session && (wanted == 0 || wanted != self.ended);
        Ok(is_news.then_some(wanted))
    }

    /// Whether the host has ended the present session by itself. Otherwise it has died, or the device ends the session.
    pub fn host_has_left(&self) -> bool {
        let left = self.memory.word(at::LEFT).map(|left| u32::from_le(left.load(Ordering::Relaxed)));
        self.session != 0 && left == Ok(self.session)
    }

    /// Empties the rings, and serves a session. Session 0 is that of no host: if the present host still wants its session, it
    /// learns that the session has ended, and does not get it again.
    ///
    /// # Errors
    /// [`OutOfBounds`] never happens, since the window has a header.
    pub fn serve(&mut self, session: u32) -> Result<(), OutOfBounds> {
        ring::clear(&self.commands);
        ring::clear(&self.completions);
        self.reader = Reader::new();
        self.writer = Writer::new();
        if self.session != 0 {
            self.ended = self.session;
        }
        self.session = session;
        self.memory.word(at::SESSION)?.store(session.to_le(), Ordering::Release);
        Ok(())
    }

    /// The next command, with its cookie. Returns `None` if there is none.
    pub fn take(&mut self) -> Option<(u64, Result<Command, BadCommand>)> {
        self.reader.pop(&self.commands).map(|entry| Command::decode(&entry))
    }

    /// Writes a completion.
    ///
    /// # Errors
    /// [`Violation`] of the host.
    pub fn complete(&mut self, completion: &Completion) -> Result<Pushed, Violation> {
        self.writer.push(&self.completions, &completion.encode())
    }

    /// Shows the host that the firmware runs.
    ///
    /// # Errors
    /// [`OutOfBounds`] never happens, since the window has a header.
    pub fn beat(&mut self) -> Result<(), OutOfBounds> {
        self.heartbeat = self.heartbeat.wrapping_add(1);
        self.memory.word(at::HEARTBEAT)?.store(self.heartbeat.to_le(), Ordering::Relaxed);
        Ok(())
    }

    /// Tells the host that the firmware ends, and why, by a number of the firmware's choice.
    ///
    /// # Errors
    /// [`OutOfBounds`] never happens, since the window has a header.
    pub fn fail(self, why: u32) -> Result<(), OutOfBounds> {
        fault::report(&self.memory, &Fault::of(why))
    }
}
