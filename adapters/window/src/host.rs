//! The host's end of the window.

use core::fmt;

use crate::atomics::Ordering;
use crate::command::Command;
use crate::completion::{BadCompletion, Completion, Done};
use crate::doorbell::{Doorbell, Ringer, Sleeper};
use crate::fault::Fault;
use crate::header::{DESCRIPTION, MAGIC, State, VERSION, at};
use crate::layout::{BadLayout, Layout};
use crate::memory::{Memory, OutOfBounds};
use crate::placed_ring::Ring;
use crate::ring::{Pushed, Reader, Violation, Writer};

/// A device cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AttachError {
    /// It has not written its header yet, or the memory is not a window of a device.
    NotReady,
    /// Its firmware has failed, and tells why.
    Failed(Fault),
    /// Its layout has another major version: host and firmware are not of one release.
    Version(u32),
    /// It describes a layout that is not valid.
    Layout(BadLayout),
    /// It serves another host.
    Busy,
    /// Session 0 is not a session.
    Session,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => {
                f.write_str("the device is not ready: its firmware does not run, or the memory is not its window")
            }
            Self::Failed(why) => write!(f, "the firmware of the device has failed with {why}: reset the device"),
            Self::Version(version) => write!(
                f,
                "the window of the device has version {}.{}, and this host knows {}.{}: update the older of both",
                version >> 16,
                version & 0xffff,
                VERSION >> 16,
                VERSION & 0xffff
            ),
            Self::Layout(why) => write!(f, "the device has written a wrong header: {why}"),
            Self::Busy => f.write_str("the device serves another host"),
            Self::Session => f.write_str("session 0 is not a session: choose a random number"),
        }
    }
}

impl core::error::Error for AttachError {}

towline_core::debug_as_display!(AttachError);

/// The device does not work any more.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum DeviceError {
    /// Its firmware has failed, and tells why.
    Failed(Fault),
    /// Its firmware has started again, and has forgotten this session.
    Restarted,
    /// It has ended the session.
    Ended,
    /// It violated the protocol of the window.
    Violation,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => write!(f, "the firmware of the device has failed with {why}"),
            Self::Restarted => f.write_str("the firmware of the device has started again"),
            Self::Ended => f.write_str("the device has ended the session of this host"),
            Self::Violation => f.write_str("the device has written values to its window that it may not write"),
        }
    }
}

impl core::error::Error for DeviceError {}

towline_core::debug_as_display!(DeviceError);

impl From<Violation> for DeviceError {
    fn from(_: Violation) -> Self {
        Self::Violation
    }
}

impl From<BadCompletion> for DeviceError {
    fn from(_: BadCompletion) -> Self {
        Self::Violation
    }
}

impl From<OutOfBounds> for DeviceError {
    fn from(_: OutOfBounds) -> Self {
        Self::Violation
    }
}

/// What a device says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Card {
    /// The version of the layout.
    pub version: u32,
    /// The number of this start.
    pub boot: u32,
    /// The most sends and receives that may be in progress.
    pub operations: u32,
    /// The most puts, gets and atomics that may be in progress. 0 if the device has no one-sided operations: its firmware is older
    /// than version 1.1 of the layout, or was built without them.
    pub one_sided: u32,
    /// Where rings, log and buffers are.
    pub layout: Layout,
    /// How the device is woken.
    pub doorbell: Doorbell,
    description: [u8; DESCRIPTION],
}

impl Card {
    /// Reads and checks the header of a window.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn read(memory: &Memory<'_>) -> Result<Self, AttachError> {
        let not_ready = |_| AttachError::NotReady;
        if state_of(memory)? != State::Ready as u32 {
            return Err(AttachError::Failed(Fault::read(memory).map_err(not_ready)?));
        }
        let word = |at| {
            let mut bytes = [0; 4];
            memory.read(at, &mut bytes).map(|()| u32::from_le_bytes(bytes)).map_err(not_ready)
        };
        let (version, layout) = layout_of(memory)?;
        let mut description = [0; DESCRIPTION];
        memory.read(at::DESCRIPTION, &mut description).map_err(not_ready)?;
        let one_sided = if version & 0xffff == 0 { 0 } else { word(at::ONE_SIDED)? };
        let doorbell = if version & 0xffff < 3 { Doorbell::None } else { Doorbell::of(word(at::DOORBELL)?) };
        let (boot, operations) = (word(at::BOOT)?, word(at::OPERATIONS)?);
        Ok(Self { version, boot, operations, one_sided, layout, doorbell, description })
    }

    /// Name and version of the firmware: the text up to the first zero, or up to the first byte that is not text.
    pub fn description(&self) -> &str {
        let end = self.description.iter().position(|byte| *byte == 0).unwrap_or(DESCRIPTION);
        let text = self.description.get(..end).unwrap_or_default();
        match core::str::from_utf8(text) {
            Ok(text) => text,
            Err(error) => {
                text.get(..error.valid_up_to()).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
            }
        }
    }
}

/// The state of a device that has written its header.
pub(crate) fn state_of(memory: &Memory<'_>) -> Result<u32, AttachError> {
    let not_ready = |_| AttachError::NotReady;
    let state = u32::from_le(memory.word(at::STATE).map_err(not_ready)?.load(Ordering::Acquire));
    let mut magic = [0; MAGIC.len()];
    memory.read(at::MAGIC, &mut magic).map_err(not_ready)?;
    if magic != MAGIC || state == State::Starting as u32 { Err(AttachError::NotReady) } else { Ok(state) }
}

/// The version and the layout of such a device, which are checked.
pub(crate) fn layout_of(memory: &Memory<'_>) -> Result<(u32, Layout), AttachError> {
    let not_ready = |_| AttachError::NotReady;
    let mut version = [0; 4];
    memory.read(at::VERSION, &mut version).map_err(not_ready)?;
    let version = u32::from_le_bytes(version);
    if version >> 16 != VERSION >> 16 {
        return Err(AttachError::Version(version));
    }
    let mut layout = Layout::read(memory).map_err(not_ready)?;
    if version & 0xffff < 3 {
        (layout.log, layout.log_bytes) = (0, 0); // the words were reserved
    }
    layout.check(memory.bytes()).map_err(AttachError::Layout)?;
    Ok((version, layout))
}

/// Takes back the wish for a session, if the window still has it.
fn withdraw(memory: &Memory<'_>, session: u32) {
    if let Ok(wanted) = memory.word(at::WANTED) {
        // Another session is not this host's.
        let _ = wanted.compare_exchange(session.to_le(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Ends the session of a host that has died. The caller knows that no living host uses the device.
pub fn end_abandoned(memory: &Memory<'_>) {
    if let Ok(wanted) = memory.word(at::WANTED) {
        wanted.store(0, Ordering::Release);
    }
}

/// A host that has asked for a session, and waits for the device. Dropping it takes the wish back.
#[derive(Debug)]
pub struct Attaching<'w> {
    /// `None` after [`poll`](Self::poll) has returned it.
    host: Option<Host<'w>>,
}

impl<'w> Attaching<'w> {
    /// Asks the device of a window for a session. `session` is a random number that is not 0. The device never sleeps during a session
    /// whose host does not ring.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn new(memory: Memory<'w>, session: u32) -> Result<Self, AttachError> {
        Self::ask(memory, session, false)
    }

    /// As [`new`](Self::new), for a host that rings the doorbell when [`Host::must_ring`] says so, and after this call, whatever it
    /// returns.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn with_doorbell(memory: Memory<'w>, session: u32) -> Result<Self, AttachError> {
        Self::ask(memory, session, true)
    }

    fn ask(memory: Memory<'w>, session: u32, rings: bool) -> Result<Self, AttachError> {
        let card = Card::read(&memory)?;
        if session == 0 {
            return Err(AttachError::Session);
        }
        let layout = card.layout;
        let not_ready = |_| AttachError::NotReady;
        let wanted = memory.word(at::WANTED).map_err(not_ready)?;
        if wanted.load(Ordering::Acquire) != 0 {
            return Err(AttachError::Busy);
        }
        let host = Host {
            memory,
            card,
            commands: Ring::new(&memory, layout.commands, layout.command_slots, at::COMMANDS_TAKEN)
                .map_err(not_ready)?,
            completions: Ring::new(&memory, layout.completions, layout.completion_slots, at::COMPLETIONS_TAKEN)
                .map_err(not_ready)?,
            writer: Writer::new(),
            reader: Reader::new(),
            session,
            sleeper: Sleeper::new(),
            ringer: Ringer::new(),
            has_news: false,
        };
        if wanted.compare_exchange(0, session.to_le(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Err(AttachError::Busy);
        }
        // Only the host that the window wants writes these words. A device that does not see them yet polls for a moment longer.
        memory.word(at::HOST_SLEEPS).map_err(not_ready)?.store(0, Ordering::Relaxed);
        let rings = if rings { session } else { 0 };
        memory.word(at::RINGS).map_err(not_ready)?.store(rings.to_le(), Ordering::Relaxed);
        Ok(Self { host: Some(host) })
    }

    /// The host's end, once, when the device serves the session. `None` before and after that. The caller calls this until it has
    /// the host's end, or until it has waited too long.
    pub fn poll(&mut self) -> Option<Host<'w>> {
        let host = self.host.as_ref()?;
        let serves = u32::from_le(host.memory.word(at::SESSION).ok()?.load(Ordering::Acquire));
        // A device that has started again meanwhile may have another layout. Then the session never begins.
        (serves == host.session && Card::read(&host.memory) == Ok(host.card)).then(|| self.host.take())?
    }
}

impl Drop for Attaching<'_> {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            withdraw(&host.memory, host.session);
        }
    }
}

/// The host's end. It is used by one thread at a time. Dropping it does not end the session; [`detach`](Self::detach) does.
#[derive(Debug)]
pub struct Host<'w> {
    memory: Memory<'w>,
    card: Card,
    commands: Ring<'w>,
    completions: Ring<'w>,
    writer: Writer,
    reader: Reader,
    session: u32,
    sleeper: Sleeper,
    ringer: Ringer,
    /// Whether something was written for the device since the last look at its sleep.
    has_news: bool,
}

impl<'w> Host<'w> {
    /// The memory of the window.
    pub const fn memory(&self) -> &Memory<'w> {
        &self.memory
    }

    /// What the device says of itself.
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Writes a command. The cookie is a number of the caller's choice, which the completion repeats.
    ///
    /// # Errors
    /// [`DeviceError::Violation`].
    #[inline(always)]
    pub fn command(&mut self, cookie: u64, command: &Command) -> Result<Pushed, DeviceError> {
        self.has_news = true;
        Ok(self.writer.push(&self.commands, &command.encode(cookie))?)
    }

    /// Whether the device has to be woken: it sleeps, and a command was written, or slots for completions were given back, since the
    /// last call. The caller rings the doorbell then. A host that rings calls this after each command and after completions.
    #[inline]
    pub fn must_ring(&mut self) -> bool {
        let is_news = core::mem::take(&mut self.has_news);
        is_news && self.memory.word(at::DEVICE_SLEEPS).is_ok_and(|word| self.ringer.must_ring(word))
    }

    /// Says that the host sleeps until the device rings. Returns whether there is no completion; otherwise the host must not sleep.
    /// The host says by [`awake`](Self::awake) that it does not sleep any more.
    pub fn announce_sleep(&mut self) -> bool {
        let Ok(word) = self.memory.word(at::HOST_SLEEPS) else { return false };
        self.sleeper.announce(word);
        !self.reader.has_next(&self.completions)
    }

    /// Says that the host does not sleep, if it has said that it does. Returns whether it has. Bells that were rung are taken before the
    /// next sleep is announced.
    pub fn awake(&mut self) -> bool {
        let was_asleep = self.sleeper.is_announced();
        if was_asleep && let Ok(word) = self.memory.word(at::HOST_SLEEPS) {
            self.sleeper.awake(word);
        }
        was_asleep
    }

    /// The cookie and the result of the next completion, as those of a receive that has succeeded. It is not taken: [`skip`](Self::skip)
    /// does that if it is one of a receive. Otherwise, and if this returns `None`, [`take`](Self::take) takes it.
    #[inline]
    pub fn peek_received(&self) -> Option<(u64, Done)> {
        Completion::received(self.reader.peek(&self.completions)?)
    }

    /// Takes the completion that [`peek_received`](Self::peek_received) has returned.
    #[inline]
    pub fn skip(&mut self) {
        self.has_news |= self.reader.skip(&self.completions);
    }

    /// Takes the next completion.
    ///
    /// # Errors
    /// [`DeviceError::Violation`].
    pub fn take(&mut self) -> Result<Option<Completion>, DeviceError> {
        match self.reader.pop(&self.completions) {
            Some(entry) => {
                self.has_news |= self.reader.has_given_back(&self.completions);
                Ok(Some(Completion::decode(&entry)?))
            }
            None => Ok(None),
        }
    }

    /// The device's heartbeat, which changes while its firmware runs.
    ///
    /// # Errors
    /// [`DeviceError`] if the device has failed, has started again or has ended the session.
    pub fn check(&self) -> Result<u32, DeviceError> {
        let word = |at| self.memory.word(at).map(|word| u32::from_le(word.load(Ordering::Acquire)));
        let state = word(at::STATE)?;
        if state == State::Failed as u32 {
            return Err(DeviceError::Failed(Fault::read(&self.memory)?));
        }
        if state != State::Ready as u32 || word(at::BOOT)? != self.card.boot {
            return Err(DeviceError::Restarted);
        }
        if word(at::SESSION)? != self.session {
            return Err(DeviceError::Ended);
        }
        Ok(word(at::HEARTBEAT)?)
    }

    /// Gives the device up, which has failed: it ends the session when it runs again, and tells its peers of a failure.
    pub fn give_up(&self) {
        withdraw(&self.memory, self.session);
    }

    /// Ends the session, unless the window has another one by now. The device forgets everything that belongs to it, and tells the
    /// peers that this host has ended. The peers of a host that dies without this call learn that it has failed.
    pub fn detach(self) {
        if let (Ok(left), Ok(wanted)) = (self.memory.word(at::LEFT), self.memory.word(at::WANTED))
            && u32::from_le(wanted.load(Ordering::Relaxed)) == self.session
        {
            // The device reads it after it has found that the session is not wanted any more.
            left.store(self.session.to_le(), Ordering::Relaxed);
        }
        withdraw(&self.memory, self.session);
    }
}
