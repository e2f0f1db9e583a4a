//! The device's end of the window.

use core::fmt;

use crate::atomics::{Ordering, fence};
use crate::command::{BadCommand, Command};
use crate::completion::Completion;
use crate::doorbell::{Doorbell, Ringer, Sleeper};
use crate::fault::{self, Fault};
use crate::header::{DESCRIPTION, MAGIC, State, VERSION, at};
use crate::layout::{BadLayout, Layout};
use crate::memory::{Memory, OutOfBounds};
use crate::placed_log::{DeviceLog, Log};
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
    /// How the host wakes the device, and the device the host.
    pub doorbell: Doorbell,
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
    sleeper: Sleeper,
    ringer: Ringer,
    /// Whether a completion was written since the last look at the host's sleep.
    has_news: bool,
    log: Option<DeviceLog<'w>>,
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
        memory.write(at::DOORBELL, &(about.doorbell as u32).to_le_bytes())?;
        layout.write(&memory)?;
        memory.word(at::LOG_LOST)?.store(0, Ordering::Relaxed);
        memory.word(at::DEVICE_SLEEPS)?.store(0, Ordering::Relaxed);
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
            sleeper: Sleeper::new(),
            ringer: Ringer::new(),
            has_news: false,
            log: Log::new(&memory, &layout)?.map(DeviceLog::new),
        };
        // A host that had a session before this start asks for a new one.
        memory.word(at::WANTED)?.store(0, Ordering::Relaxed);
        memory.word(at::LEFT)?.store(0, Ordering::Relaxed);
        memory.word(at::RINGS)?.store(0, Ordering::Relaxed);
        memory.word(at::HOST_SLEEPS)?.store(0, Ordering::Relaxed);
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
        self.ringer = Ringer::new();
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
        self.has_news = true;
        self.writer.push(&self.completions, &completion.encode())
    }

    /// The device's end of the log, once. `None` after that, and if the window has no log.
    pub const fn take_log(&mut self) -> Option<DeviceLog<'w>> {
        self.log.take()
    }

    /// Whether the host rings the doorbell for the present session, or there is none. Otherwise the device must not sleep for long.
    pub fn is_rung(&self) -> bool {
        let rings = self.memory.word(at::RINGS).map(|rings| u32::from_le(rings.load(Ordering::Relaxed)));
        self.session == 0 || rings == Ok(self.session)
    }

    /// Says that the device sleeps. The caller then looks for work by [`wanted`](Self::wanted) and [`take`](Self::take), tries again to
    /// write a completion that found no room, and sleeps only if there is nothing to do.
    pub fn announce_sleep(&mut self) {
        if let Ok(word) = self.memory.word(at::DEVICE_SLEEPS) {
            self.sleeper.announce(word);
        }
    }

    /// Says that the device does not sleep any more. Bells that were rung are taken before the next sleep is announced.
    pub fn awake(&mut self) {
        if self.sleeper.is_announced()
            && let Ok(word) = self.memory.word(at::DEVICE_SLEEPS)
        {
            self.sleeper.awake(word);
        }
    }

    /// Whether the host has to be woken: it sleeps, and a completion was written since the last call. The caller wakes it then.
    pub fn must_ring(&mut self) -> bool {
        let is_news = core::mem::take(&mut self.has_news);
        is_news && self.memory.word(at::HOST_SLEEPS).is_ok_and(|word| self.ringer.must_ring(word))
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
