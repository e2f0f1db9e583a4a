//! The transport: sessions, peers, communicators and messages. `one_sided.rs` has the rest of its calls.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::Duration;

use towline_core::convertor::Span;
pub use towline_core::mtl::{Mode, Source, Tag};
use towline_window::command::{ANY, Body, Command};
use towline_window::completion::{self, Completion, Done};
use towline_window::doorbell::Doorbell;
use towline_window::host::{AttachError, Attaching, Card, DeviceError, Host};
use towline_window::memory::Memory;
use towline_window::ring::Pushed;

use crate::doorbell;
use crate::errors::{Failure, Lost, OpenError, Refusal};
use crate::heap::{Heap, NoRoom, Part};
use crate::mapping::Mapping;
use crate::operations::{Accessed, Copied, Kind, Operation, Operations, Sink};
use crate::pages::Pages;
use crate::patience::Patience;
use crate::remotes::Remotes;

/// Polls between two looks at the device's state.
const CHECK_EVERY: u32 = 256;
/// The first version of the window with announcements.
const ANNOUNCEMENTS_SINCE: u32 = 1 << 16 | 4;
/// Bytes for what commands that are waited for bring or return: a card, or the peers of a communicator.
const STAGING: u64 = 4096;
/// Bytes of the shortest message that the device reads or writes where it lies, if it reaches the memory. A shorter one takes longer that
/// way, and its copy takes the host some microseconds only (core/DECISIONS.md).
const DIRECT: u64 = 64 << 10;

/// Times of a transport.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a device may take to become ready, and to answer its host.
    pub open_within: Duration,
    /// A device whose heartbeat does not change for this time, or that does not answer a command that completes at once, has failed. A time in
    /// which this process does not look, for example since it is stopped, counts for a quarter of it at most.
    pub silent_for: Duration,
    /// Bytes of the shortest message that the device reads or writes where it lies, if it [reaches](Transport::reach_memory) it.
    pub direct_from: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { open_within: Duration::from_secs(10), silent_for: Duration::from_secs(5), direct_from: DIRECT }
    }
}

/// A communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Comm(pub(crate) u32);

/// A send or receive in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request(pub(crate) u64);

/// A message that a matched probe took out. Only [`Transport::imrecv`] receives it.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "a message that is never received keeps its place in the device"]
pub struct Message(pub(crate) u32);

/// The outcome of a receive, or what a probe found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The rank of the sender.
    pub rank: u32,
    /// The tag.
    pub tag: u32,
    /// Bytes of the message.
    pub received: u64,
    /// Bytes that were written. Fewer than `received` if the memory was too small.
    pub delivered: u64,
}

impl From<Done> for Status {
    #[inline]
    fn from(done: Done) -> Self {
        Self { rank: done.rank, tag: done.tag, received: done.received, delivered: done.delivered }
    }
}

/// An operation that has ended.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Bytes of the buffers that the copy of a send had.
    pub bytes: u64,
    /// If it has failed: the rank of the peer that is the reason, or any.
    pub failed: u32,
    /// The value of its completion.
    pub value: u32,
    /// Its outcome.
    pub outcome: Result<Status, Failure>,
}

/// Memory in the buffers of a device. The device reads and writes messages there without a copy by the host. It is the caller's until
/// it is [returned](Transport::free). The end of its transport ends it, too. Other transports refuse it.
#[derive(Debug)]
#[must_use = "buffers that are not returned stay in use until the session ends"]
pub struct Buffer {
    part: Part,
    /// The session of its transport.
    session: u32,
}

impl Buffer {
    /// Its size in bytes.
    pub const fn len(&self) -> u64 {
        self.part.body.bytes
    }

    /// Whether it has no byte.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The transport over one device. It is used by one thread at a time. When it is dropped, the device forgets its operations, peers
/// and communicators.
#[derive(Debug)]
pub struct Transport {
    /// `None` only while it is dropped.
    host: Option<Host<'static>>,
    session: u32,
    heap: Heap,
    /// A part for commands that are waited for. There is one such command at a time.
    staging: Part,
    operations: Operations,
    /// The keys of memory of peers.
    remotes: Remotes,
    /// The host region with all memory of this process, if the device reaches it.
    region: Option<u32>,
    lost: Option<Lost>,
    options: Options,
    /// The last heartbeat that was seen, and the wait for another one.
    heartbeat: (u32, Patience),
    polls: u32,
    /// How the device is woken and wakes this process. `None` if it has no doorbell, or one that this process cannot use: then the device
    /// does not sleep during the session.
    bells: Option<Bells>,
    /// Where the window is: its file, and where it begins there.
    place: (PathBuf, u64),
    /// The end of this transport is a failure of this process for its peers.
    fails_at_end: bool,
    /// Dropped after the host's end, which uses its memory.
    mapping: Mapping,
}

#[derive(Debug)]
struct Bells {
    device: doorbell::Doorbell,
    host: doorbell::HostBell,
}

impl Bells {
    fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self { device: doorbell::Doorbell::open(path)?, host: doorbell::HostBell::open(path)? })
    }
}

impl Transport {
    /// Opens the device of a window, and begins a session. If another process makes the window's file shorter, an access beyond its end
    /// ends this process by a signal.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_at(path, 0, options)
    }

    /// As [`open`](Self::open), for a window that begins at an offset in its file.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_at(path: &Path, offset: u64, options: Options) -> Result<Self, OpenError> {
        let mapping = Mapping::open(path, offset).map_err(|why| OpenError::File(path.into(), why))?;
        if !mapping.lock().map_err(|why| OpenError::File(path.into(), why))? {
            return Err(OpenError::InUse(path.into()));
        }
        if mapping.is_too_small() {
            return Err(OpenError::NoWindow(path.into()));
        }
        // SAFETY: the transport drops the host's end before the mapping.
        let memory = unsafe { mapping.memory() }.ok_or_else(|| OpenError::NoWindow(path.into()))?;
        let mut deadline = Deadline::new(path, options.open_within);
        // The lock says that no living process has a session.
        towline_window::host::end_abandoned(&memory);
        // The device need not be woken for that: the wish for the next session does it.
        let session = getrandom::u32().unwrap_or(1).max(1);
        let (mut attaching, bells) = loop {
            match Self::attach(memory, path, session) {
                Ok(attaching) => break attaching,
                Err(AttachError::NotReady) => deadline.wait().map_err(|_| deadline.attach(AttachError::NotReady))?,
                Err(why) => return Err(deadline.attach(why)),
            }
        };
        let host = loop {
            match attaching.poll() {
                Some(host) => break host,
                None => deadline.wait()?,
            }
        };
        let layout = host.card().layout;
        let mut heap = Heap::new(layout.buffers, layout.buffer_bytes);
        let staging = heap.take(STAGING.min(layout.buffer_bytes / 2)).map_err(|_| OpenError::NoWindow(path.into()))?;
        Ok(Self {
            staging,
            heap,
            operations: Operations::default(),
            remotes: Remotes::default(),
            region: None,
            lost: None,
            options,
            heartbeat: (0, Patience::new(options.silent_for)),
            polls: 0,
            place: (path.into(), offset),
            fails_at_end: false,
            host: Some(host),
            session,
            bells,
            mapping,
        })
    }

    /// Asks for a session.
    fn attach(
        memory: Memory<'static>,
        path: &Path,
        session: u32,
    ) -> Result<(Attaching<'static>, Option<Bells>), AttachError> {
        // A doorbell that this process cannot open is never rung, and the device polls.
        let bells = match Card::read(&memory)?.doorbell {
            Doorbell::Pipes => Bells::open(path).ok(),
            Doorbell::None => None,
        };
        let Some(bells) = bells else { return Ok((Attaching::new(memory, session)?, None)) };
        let attaching = Attaching::with_doorbell(memory, session)?;
        bells.device.ring();
        Ok((attaching, Some(bells)))
    }

    /// What the device says of itself.
    pub fn card_of_window(&self) -> Option<&Card> {
        self.host.as_ref().map(Host::card)
    }

    /// Which device it is, for people: its window, its firmware and the version of its window.
    pub fn describe(&self) -> String {
        let (path, offset) = &self.place;
        let offset = if *offset == 0 { String::new() } else { format!("@{offset}") };
        let (version, firmware) = self.card_of_window().map_or((0, ""), |card| (card.version, card.description()));
        format!("window {}{offset} of version {}.{}: {firmware}", path.display(), version >> 16, version & 0xffff)
    }

    /// Makes the end of this transport a failure of this process for its peers. Otherwise they learn that it has ended.
    pub const fn end_as_failure(&mut self) {
        self.fails_at_end = true;
    }

    /// The card of the device, by which other devices reach it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn card(&mut self) -> Result<Vec<u8>, Refusal> {
        let into = self.staging.body;
        let published = self.call(&Command::Publish { into })?;
        let mut card = vec![0; u64::from(published.value).min(into.bytes) as usize];
        self.read(into.at, &mut card)?;
        Ok(card)
    }

    /// Adds a peer by the card of its device.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add_peer(&mut self, peer: u32, card: &[u8]) -> Result<(), Refusal> {
        let card = self.staged(card)?;
        self.call(&Command::AddPeer { peer, card }).map(drop)
    }

    /// Forgets a peer. Operations with it end.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn del_peer(&mut self, peer: u32) -> Result<(), Refusal> {
        self.call(&Command::DeletePeer { peer }).map(drop)
    }

    /// This process knows that a peer has failed. Operations with it end. It may be added again.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn lose_peer(&mut self, peer: u32) -> Result<(), Refusal> {
        self.call(&Command::LosePeer { peer }).map(drop)
    }

    /// This process knows of the failures of a communicator's members so far: receives from any rank wait for the other members.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn acknowledge(&mut self, comm: Comm) -> Result<(), Refusal> {
        self.call(&Command::Acknowledge { comm: comm.0 }).map(drop)
    }

    /// Says whether the device keeps messages in [`Mode::Ready`] that find no receive, or refuses them, as it does at first. They have to be
    /// kept while there are posted receives that the device does not have.
    ///
    /// # Errors
    /// [`Refusal`]: [`Failure::Unknown`](completion::Failure::Unknown) if the firmware has a window of a version before 1.5.
    pub fn keep_ready(&mut self, keep: bool) -> Result<(), Refusal> {
        self.call(&Command::KeepReady { keep }).map(drop)
    }

    /// The messages of a peer that have arrived: their number since the peer was added, modulo 2^32, and the number of those that are in
    /// the device, neither received nor taken out by a probe.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn count(&mut self, peer: u32) -> Result<(u32, u64), Refusal> {
        self.call(&Command::Count { peer }).map(|done| (done.value, done.received))
    }

    /// Makes a communicator: `peers` are the peers of its ranks, and `rank` is the own one. All members use the same `context`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add_comm(&mut self, context: u32, peers: &[u32], rank: u32) -> Result<Comm, Refusal> {
        let size = u32::try_from(peers.len()).map_err(|_| Refusal::TooLong)?;
        let table: Vec<u8> = peers.iter().flat_map(|peer| peer.to_le_bytes()).collect();
        let peers = self.staged(&table)?;
        self.call(&Command::AddCommunicator { context, rank, size, peers }).map(|done| Comm(done.value))
    }

    /// Makes a communicator of `size` ranks in which rank r is the peer r, also after that was lost and added again.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add_lasting_comm(&mut self, context: u32, size: u32, rank: u32) -> Result<Comm, Refusal> {
        let peers = Body { bytes: 0, ..self.staging.body };
        self.call(&Command::AddCommunicator { context, rank, size, peers }).map(|done| Comm(done.value))
    }

    /// Deletes a communicator.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn del_comm(&mut self, comm: Comm) -> Result<(), Refusal> {
        self.call(&Command::DeleteCommunicator { comm: comm.0 }).map(drop)
    }

    /// Takes memory in the buffers of the device, for messages that are not copied by the host.
    ///
    /// # Errors
    /// [`Refusal::Busy`] or [`Refusal::TooLong`].
    pub fn buffer(&mut self, bytes: u64) -> Result<Buffer, Refusal> {
        let session = self.session;
        self.room(bytes).map(|part| Buffer { part, session })
    }

    /// The address of memory in this process.
    pub fn address_of(&self, buffer: &Buffer) -> NonNull<u8> {
        // SAFETY: the part is inside the mapped window.
        unsafe { self.mapping.base().add(buffer.part.body.at as usize) }
    }

    /// Returns memory. No operation uses it any more. The buffer of another transport is ignored.
    pub fn free(&mut self, buffer: Buffer) {
        if buffer.session == self.session {
            self.heap.free(buffer.part);
        }
    }

    const fn owns(&self, buffer: &Buffer) -> bool {
        buffer.session == self.session
    }

    /// Copies bytes to a buffer from an offset on. Returns whether they fit, and the device has not failed.
    pub fn fill(&mut self, buffer: &Buffer, at: u64, bytes: &[u8]) -> bool {
        let fits = self.owns(buffer) && at.checked_add(bytes.len() as u64).is_some_and(|end| end <= buffer.len());
        let fits = fits && self.lost.is_none(); // the memory may be that of another session
        let memory = self.host.as_ref().map(Host::memory);
        fits && memory.is_some_and(|memory| memory.write(buffer.part.body.at.saturating_add(at), bytes).is_ok())
    }

    /// Copies bytes from a buffer from an offset on. Returns whether there are as many, and the device has not failed.
    pub fn copy(&self, buffer: &Buffer, at: u64, into: &mut [u8]) -> bool {
        let fits = self.owns(buffer) && at.checked_add(into.len() as u64).is_some_and(|end| end <= buffer.len());
        fits && self.lost.is_none() && self.read(buffer.part.body.at.saturating_add(at), into).is_ok()
    }

    /// Begins to send the first `bytes` bytes of a buffer. The buffer must not be filled or returned before the outcome was taken.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn isend_buffer(
        &mut self,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<Request, Refusal> {
        if !self.owns(buffer) {
            return Err(Refusal::Invalid);
        }
        let tag = word_of(Tag::Is(tag))?;
        let body = Body { bytes: bytes.min(buffer.len()), ..buffer.part.body };
        self.begin_message(Kind::Send(None), &Command::Send { comm: comm.0, dest, tag, mode: mode_of(mode), body })
    }

    /// Begins to receive a message into a buffer. The buffer must not be used or returned before the outcome was taken.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn irecv_buffer(&mut self, comm: Comm, source: Source, tag: Tag, buffer: &Buffer) -> Result<Request, Refusal> {
        if !self.owns(buffer) {
            return Err(Refusal::Invalid);
        }
        let body = buffer.part.body;
        let command = Command::Receive { comm: comm.0, source: rank_of(source)?, tag: word_of(tag)?, body };
        self.begin_message(Kind::Receive(Sink { bytes: buffer.len(), copy: None }), &command)
    }

    /// Begins to send any memory of the host: its bytes are copied to the device's buffers now, and may be changed afterwards. A
    /// message that lies in the device's buffers is not copied, and must not be changed before the outcome was taken. The same holds
    /// for a long message in one piece, if the device [reaches](Self::reach_memory) it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory is readable during the call. If the device reaches it, it is readable and unchanged until the outcome was taken.
    pub unsafe fn isend(
        &mut self,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: Span,
    ) -> Result<Request, Refusal> {
        self.admit()?;
        let tag = word_of(Tag::Is(tag))?;
        if let Some(body) = self.body_of(&data) {
            let command = Command::Send { comm: comm.0, dest, tag, mode: mode_of(mode), body };
            return self.begin_message(Kind::Send(None), &command);
        }
        let (copy, body) = self.copy_of(data.len())?;
        // SAFETY: the copy has that many bytes and is not in use for anything else; the caller vouches for the data.
        unsafe { data.pack(self.address_in(&copy), data.len() as usize) };
        let command = Command::Send { comm: comm.0, dest, tag, mode: mode_of(mode), body };
        self.begin_message(Kind::Send(Some(copy)), &command)
    }

    /// Begins to send a few bytes, of which the device gets a copy.
    pub(crate) fn isend_bytes(&mut self, comm: Comm, dest: u32, tag: u32, bytes: &[u8]) -> Result<Request, Refusal> {
        self.admit()?;
        let part = self.room(bytes.len() as u64)?;
        if let Err(why) = self.write_part(part, bytes) {
            self.heap.free(part);
            return Err(why);
        }
        let command = Command::Send { comm: comm.0, dest, tag, mode: mode_of(Mode::Complete), body: part.body };
        self.begin_message(Kind::Send(Some(Copied::Buffer(part))), &command)
    }

    /// Whether the device can send messages that have a length and no bytes.
    pub(crate) fn has_announcements(&self) -> bool {
        self.card_of_window().is_some_and(|card| card.version >= ANNOUNCEMENTS_SINCE)
    }

    /// Begins to send a message that has a length and no bytes: one from
    /// [`ANNOUNCED`](towline_window::command::ANNOUNCED) on. Hosts announce messages by it that they move in pieces.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn announce(&mut self, comm: Comm, dest: u32, tag: u32, mode: Mode, length: u64) -> Result<Request, Refusal> {
        self.admit()?;
        let tag = word_of(Tag::Is(tag))?;
        self.begin_message(
            Kind::Send(None),
            &Command::Announce { comm: comm.0, dest, tag, mode: mode_of(mode), length },
        )
    }

    /// Begins to receive a message into any memory of the host. It is copied there from the device's buffers by
    /// [`progress`](Self::progress), after the device has received it. The device itself writes long memory in one piece, if it
    /// [reaches](Self::reach_memory) it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory is writable, and nothing else accesses it, until the outcome was taken or the transport was dropped.
    #[inline(always)]
    pub unsafe fn irecv(&mut self, comm: Comm, source: Source, tag: Tag, sink: Span) -> Result<Request, Refusal> {
        self.admit()?;
        let (source, tag) = (rank_of(source)?, word_of(tag)?);
        if let Some(body) = self.body_of(&sink) {
            let command = Command::Receive { comm: comm.0, source, tag, body };
            return self.begin_message(Kind::Receive(Sink { bytes: sink.len(), copy: None }), &command);
        }
        let (copy, body) = self.copy_of(sink.len())?;
        let command = Command::Receive { comm: comm.0, source, tag, body };
        self.begin_message(Kind::Receive(Sink { bytes: sink.len(), copy: Some((copy, sink)) }), &command)
    }

    /// Finds a message without receiving it. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn iprobe(&mut self, comm: Comm, source: Source, tag: Tag) -> Result<Option<Status>, Refusal> {
        self.probe(comm, source, tag, false).map(|found| found.map(Status::from))
    }

    /// Takes a message out, for [`imrecv`](Self::imrecv) alone. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn improbe(&mut self, comm: Comm, source: Source, tag: Tag) -> Result<Option<(Message, Status)>, Refusal> {
        self.probe(comm, source, tag, true).map(|found| found.map(|done| (Message(done.value), done.into())))
    }

    fn probe(&mut self, comm: Comm, source: Source, tag: Tag, take: bool) -> Result<Option<Done>, Refusal> {
        self.probe_words(comm.0, rank_of(source)?, word_of(tag)?, take)
    }

    /// Finds a message. Source and tag may be [`ANY`].
    pub(crate) fn probe_words(
        &mut self,
        comm: u32,
        source: u32,
        tag: u32,
        take: bool,
    ) -> Result<Option<Done>, Refusal> {
        let command = Command::Probe { comm, source, tag, take };
        match self.call(&command) {
            Ok(done) => Ok(Some(done)),
            Err(Refusal::Device(completion::Failure::NotFound)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Receives a message that a matched probe took out.
    ///
    /// # Errors
    /// The refusal and the message, which is still taken out.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub unsafe fn imrecv(&mut self, message: Message, sink: Span) -> Result<Request, (Refusal, Message)> {
        // SAFETY: passed on from the caller.
        unsafe { self.imrecv_number(message.0, sink) }.map_err(|refusal| (refusal, message))
    }

    /// As [`imrecv`](Self::imrecv), by the message's number.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub(crate) unsafe fn imrecv_number(&mut self, message: u32, sink: Span) -> Result<Request, Refusal> {
        // SAFETY: passed on from the caller.
        unsafe { self.imrecv_part(&Message(message), sink, sink.len()) }
    }

    /// As [`imrecv`](Self::imrecv), for a message of `len` bytes. The device's buffers need no more room than that.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub(crate) unsafe fn imrecv_part(&mut self, message: &Message, sink: Span, len: u64) -> Result<Request, Refusal> {
        let (body, sink) = self.sink_for(sink, len)?;
        self.begin_message(Kind::Receive(sink), &Command::ReceiveMatched { message: message.0, body })
    }

    /// Begins to receive the first message with this sender and tag, of `len` bytes, which a probe has found. The device's buffers need
    /// no more room than that.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub(crate) unsafe fn irecv_found(
        &mut self,
        comm: Comm,
        (source, tag): (u32, u32),
        sink: Span,
        len: u64,
    ) -> Result<Request, Refusal> {
        let (body, sink) = self.sink_for(sink, len)?;
        self.begin_message(Kind::Receive(sink), &Command::Receive { comm: comm.0, source, tag, body })
    }

    /// Where a message of `len` bytes goes.
    fn sink_for(&mut self, sink: Span, len: u64) -> Result<(Body, Sink), Refusal> {
        self.admit()?;
        let (body, copy) = match self.body_of(&sink) {
            Some(body) => (body, None),
            None => {
                let (copy, body) = self.copy_of(sink.len().min(len))?;
                (body, Some((copy, sink)))
            }
        };
        Ok((body, Sink { bytes: body.bytes, copy }))
    }

    /// Whether the copy of a message of this length lies in memory of this process, since the buffers have too little room for it.
    pub(crate) const fn copies_to_process(&self, len: u64) -> bool {
        self.region.is_some() && len > self.most_bytes() / 16 * 5
    }

    /// Memory for the copy of a message, and where the device finds it.
    #[inline]
    fn copy_of(&mut self, len: u64) -> Result<(Copied, Body), Refusal> {
        let Some(region) = self.region.filter(|_| self.copies_to_process(len)) else {
            let part = self.room(len)?;
            return Ok((Copied::Buffer(part), part.body));
        };
        let bytes = usize::try_from(len).map_err(|_| Refusal::TooLong)?;
        let memory = Pages::new(bytes).ok_or(Refusal::TooLong)?;
        let body = Body { region, at: memory.base().expose_provenance() as u64, bytes: len };
        Ok((Copied::Process(memory), body))
    }

    /// Where the device finds memory: in its buffers, or in that of this process, if it is long and the device reaches it. `None`: it has
    /// to be copied.
    #[inline]
    pub(crate) fn body_of(&self, memory: &Span) -> Option<Body> {
        self.body_in_buffers(memory).or_else(|| {
            let region = self.region.filter(|_| memory.len() >= self.options.direct_from.max(1))?;
            let (address, bytes) = memory.as_contiguous()?;
            Some(Body { region, at: address.expose_provenance() as u64, bytes: bytes as u64 })
        })
    }

    /// Where memory lies in the device's buffers. `None` for other memory.
    #[inline]
    pub(crate) fn body_in_buffers(&self, memory: &Span) -> Option<Body> {
        let (address, bytes) = memory.as_contiguous()?;
        let at = (address.addr() as u64).checked_sub(self.mapping.base().addr().get() as u64)?;
        let bytes = bytes as u64;
        self.heap.contains(at, bytes).then_some(Body { region: 0, at, bytes })
    }

    /// The most sends and receives that the device can have.
    pub(crate) fn most_operations(&self) -> u32 {
        self.host.as_ref().map_or(0, |host| host.card().operations)
    }

    /// The bytes of the longest message of ordinary memory.
    pub(crate) const fn most_bytes(&self) -> u64 {
        self.heap.longest()
    }

    /// From now on [`next_ended`](Self::next_ended) returns the operations that have ended.
    pub(crate) fn list_ended(&mut self) {
        self.operations.list_ended();
    }

    /// The next operation that has ended, and whose outcome is still to be taken.
    pub(crate) fn next_ended(&mut self) -> Option<Request> {
        self.operations.next_ended().map(Request)
    }

    /// The same for puts, gets and atomics.
    pub(crate) fn next_ended_access(&mut self) -> Option<u64> {
        self.operations.next_ended_access()
    }

    /// Whether the outcome of an operation or an access that has ended is still to be taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.operations.has_ended()
    }

    /// Takes the outcome of an operation that has ended.
    pub(crate) fn take(&mut self, request: Request) -> Taken {
        let (bytes, failed) =
            self.operations.get(request.0).map_or((0, ANY), |operation| (operation.copied, operation.failed));
        let outcome = self.outcome(request.0).unwrap_or(Err(Failure::NoRequest));
        let value = outcome.as_ref().map_or(0, |done| done.value);
        Taken { bytes, failed, value, outcome: outcome.map(Status::from) }
    }

    /// The memory of receives in progress is not written any more. The device accesses no memory of this process.
    pub(crate) fn abandon_receives(&mut self) {
        self.operations.abandon_receives();
        self.leave_memory();
    }

    /// Whether the device reaches the memory of this process.
    pub const fn reaches_memory(&self) -> bool {
        self.region.is_some()
    }

    /// All memory of this process is this region.
    pub(crate) const fn use_region(&mut self, region: u32) {
        self.region = Some(region);
    }

    /// Waits until the device does not access the memory of this process any more.
    fn leave_memory(&mut self) {
        if let Some(region) = self.region.take() {
            // A device that has failed has forgotten it.
            let _ = self.call(&Command::DeregisterHost { region });
        }
    }

    /// Waits for the end of an operation that was cancelled.
    pub(crate) fn settle(&mut self, request: Request) {
        let mut patience = Patience::new(self.options.silent_for);
        let lasts = |operation: &Operation| operation.outcome.is_none();
        while self.operations.get(request.0).is_some_and(lasts) && self.lost.is_none() {
            self.pause(Some(&mut patience));
        }
    }

    /// Drops the outcome of an operation that was cancelled.
    pub(crate) fn forget(&mut self, request: Request) {
        self.settle(request);
        self.operations.forget(request.0);
    }

    /// Cancels a send or receive. Returns whether that succeeded. Its outcome has to be taken in either case.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn cancel(&mut self, request: Request) -> Result<bool, Refusal> {
        match self.call(&Command::Cancel { cookie: request.0 }) {
            Ok(_) => Ok(true),
            Err(Refusal::Device(completion::Failure::NotFound | completion::Failure::NoSuchThing)) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// The outcome of a request, once it is over.
    pub fn test(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        self.outcome(request.0).map(|outcome| outcome.map(Status::from))
    }

    /// The outcome of a command, once it is over.
    pub(crate) fn outcome(&mut self, cookie: u64) -> Option<Result<Done, Failure>> {
        if self.operations.get(cookie).is_none() {
            return Some(Err(Failure::NoRequest));
        }
        self.operations.take(cookie)
    }

    /// Waits for a request, and returns its outcome.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn wait(&mut self, request: Request) -> Result<Status, Failure> {
        loop {
            if let Some(outcome) = self.test(request) {
                return outcome;
            }
            if self.progress() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Takes the bells of a sleep that has ended by now: the device may ring late, and nothing else would take that bell.
    pub(crate) fn take_bells(&self) {
        if let Some(bells) = &self.bells {
            bells.host.clear();
        }
    }

    /// Takes completions, and copies received messages to where they go. Messages make progress without it. Returns the number of
    /// completions. It takes at most one ring of them, so it returns whatever the device does.
    pub fn progress(&mut self) -> u32 {
        let mut count = 0;
        if let (Some(bells), Some(host)) = (&self.bells, &mut self.host)
            && host.awake()
        {
            bells.host.clear();
            self.check(); // a device that has failed does not ring
        }
        let most = self.host.as_ref().map_or(0, |host| host.card().layout.completion_slots);
        while count < most
            && let Some(completion) = self.next_completion()
        {
            count += 1;
            self.complete(&completion);
        }
        self.ring_if_asleep(); // it may wait for the slots
        self.polls = self.polls.wrapping_add(1);
        if count == 0 && (self.polls.is_multiple_of(CHECK_EVERY) || self.heartbeat.1.is_half_over()) {
            self.check();
        }
        count
    }

    /// The next completion.
    #[inline(never)]
    fn next_completion(&mut self) -> Option<Completion> {
        if self.lost.is_some() {
            return None; // the window may belong to another session by now
        }
        match self.host.as_mut()?.take() {
            Ok(completion) => completion,
            Err(why) => {
                self.lose(Lost::Device(why));
                None
            }
        }
    }

    /// The next receive that has got all of its message, and what `owner` has for it: nearly all completions are of these. Its outcome is
    /// taken with that. Other completions before it, and those for which `owner` has nothing, are handled as
    /// [`progress`](Self::progress) does, which is called when this returns `None`.
    #[inline]
    pub(crate) fn next_received<T>(&mut self, owner: impl Fn(Request) -> Option<T>) -> Option<(T, Request, Status)> {
        loop {
            if self.lost.is_none()
                && let Some(host) = &mut self.host
                && let Some((cookie, done)) = host.peek_received()
                && let Some(sink) = self.operations.receive_of(cookie)
                && sink.may_have(&done)
                && done.delivered == done.received
                && !matches!(sink.copy, Some((Copied::Process(_), _)))
                && let Some(owner) = owner(Request(cookie))
            {
                host.skip();
                if let Some((Copied::Buffer(part), memory)) = &sink.copy {
                    let from = self.mapping.base().as_ptr();
                    // SAFETY: as in `complete`.
                    unsafe { memory.unpack(from.add(part.body.at as usize), done.delivered as usize) };
                    self.heap.free(*part);
                }
                self.operations.end_message(cookie);
                return Some((owner, Request(cookie), done.into()));
            }
            let completion = self.next_completion()?;
            self.complete(&completion);
        }
    }

    /// Prepares for a sleep on [`bell`](Self::bell). `true`: there is no completion, and the next one makes the descriptor readable. The
    /// next [`progress`](Self::progress) ends that.
    pub fn arm(&mut self) -> bool {
        let host = self.host.as_mut().filter(|_| self.bells.is_some() && self.lost.is_none());
        host.is_some_and(Host::announce_sleep)
    }

    /// The descriptor by which the device wakes this process. `None` if it has no doorbell.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(|bells| bells.host.as_fd())
    }

    /// Whether the device has failed.
    pub const fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// Looks whether the device still works.
    fn check(&mut self) {
        let Some(host) = &self.host else { return };
        let (last, patience) = &mut self.heartbeat;
        let is_over = patience.is_over(); // before the look
        match host.check() {
            Ok(heartbeat) if heartbeat != *last => {
                *last = heartbeat;
                patience.restart();
            }
            Ok(_) if !is_over => {}
            Ok(_) => self.lose(Lost::Silent),
            Err(why) => self.lose(Lost::Device(why)),
        }
    }

    fn lose(&mut self, why: Lost) {
        let why = *self.lost.get_or_insert(why);
        if let Some(host) = &self.host {
            host.give_up();
        }
        self.ring();
        self.operations.fail(why);
    }

    /// Wakes the device if it sleeps, after this end has written something for it.
    #[inline]
    fn ring_if_asleep(&mut self) {
        if let (Some(bells), Some(host)) = (&self.bells, &mut self.host)
            && host.must_ring()
        {
            bells.device.ring();
        }
    }

    /// Wakes the device.
    fn ring(&self) {
        if let Some(bells) = &self.bells {
            bells.device.ring();
        }
    }

    fn complete(&mut self, completion: &Completion) {
        let address = self.mapping.base();
        let Some(operation) = self.operations.complete(completion) else {
            return self.lose(Lost::Device(DeviceError::Violation));
        };
        match std::mem::replace(&mut operation.kind, Kind::Call) {
            Kind::Send(Some(Copied::Buffer(part))) => self.heap.free(part),
            Kind::Receive(sink) => {
                let done = completion.result.unwrap_or_default();
                let is_possible = sink.may_have(&done);
                if !is_possible {
                    operation.outcome = Some(Err(Failure::Device(Lost::Device(DeviceError::Violation))));
                }
                if let Some((copy, memory)) = sink.copy {
                    let delivered = if is_possible { done.delivered as usize } else { 0 };
                    // SAFETY: the copy has that many bytes, and the caller of the receive vouches for the memory.
                    unsafe { memory.unpack(self.address_in(&copy), delivered) };
                    self.drop_copy(copy);
                }
                if !is_possible {
                    self.lose(Lost::Device(DeviceError::Violation));
                }
            }
            Kind::Access(accessed) => {
                if let (Some(part), Some(memory), Ok(_)) = (accessed.part, accessed.into, completion.result) {
                    // SAFETY: the part is in the mapped window, and the caller of the get vouches for the memory.
                    unsafe { memory.unpack(address.as_ptr().add(part.body.at as usize), part.body.bytes as usize) };
                }
                self.end_access(&accessed);
            }
            Kind::Send(Some(Copied::Process(_)) | None) | Kind::Call => {}
        }
    }

    /// Returns what an operation on memory of a peer has used.
    fn end_access(&mut self, accessed: &Accessed) {
        let parts = accessed.part.into_iter().chain(self.remotes.release(accessed.remote));
        parts.for_each(|part| self.heap.free(part));
    }

    /// Whether one more send or receive may begin.
    pub(crate) fn admit(&self) -> Result<(), Refusal> {
        if let Some(why) = self.lost {
            return Err(Refusal::Lost(why));
        }
        let most = self.host.as_ref().map_or(0, |host| host.card().operations);
        if self.operations.pending() < most { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Whether one more put, get or atomic may begin.
    pub(crate) fn admit_access(&self) -> Result<(), Refusal> {
        self.check_one_sided()?;
        let most = self.host.as_ref().map_or(0, |host| host.card().one_sided);
        if self.operations.accesses() < most { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Whether the device has one-sided operations.
    pub(crate) fn check_one_sided(&self) -> Result<(), Refusal> {
        if let Some(why) = self.lost {
            return Err(Refusal::Lost(why));
        }
        match self.host.as_ref().map(Host::card) {
            Some(card) if card.one_sided == 0 => Err(Refusal::NoOneSided(card.version)),
            _ => Ok(()),
        }
    }

    /// Begins to send the first bytes of a buffer to a peer, as a frame.
    pub(crate) fn send_frame(&mut self, peer: u32, tag: u32, buffer: &Buffer, bytes: u64) -> Result<Request, Refusal> {
        let body = Body { bytes: bytes.min(buffer.len()), ..buffer.part.body };
        self.begin_message(Kind::Send(None), &Command::SendFrame { peer, tag, body })
    }

    /// Gives the device a buffer for a frame.
    pub(crate) fn receive_frame(&mut self, buffer: &Buffer) -> Result<Request, Refusal> {
        let body = buffer.part.body;
        self.begin_message(Kind::Receive(Sink { bytes: body.bytes, copy: None }), &Command::ReceiveFrame { body })
    }

    /// Writes the command of a send or receive.
    #[inline(always)]
    fn begin_message(&mut self, kind: Kind, command: &Command) -> Result<Request, Refusal> {
        self.begin(kind, command).map(Request)
    }

    /// Writes the command of an operation, and returns its cookie.
    #[inline(always)]
    pub(crate) fn begin(&mut self, kind: Kind, command: &Command) -> Result<u64, Refusal> {
        let admitted = if matches!(kind, Kind::Access(_)) { self.admit_access() } else { self.admit() };
        let cookie = self.operations.add(kind);
        match admitted.and_then(|()| self.write_in_time(cookie, command)) {
            Ok(()) => Ok(cookie),
            Err(refusal) => Err(self.undo(cookie, refusal)),
        }
    }

    /// Gives back what belongs to an operation whose command was not written.
    #[cold]
    fn undo(&mut self, cookie: u64, refusal: Refusal) -> Refusal {
        match self.operations.undo(cookie).map(|operation| operation.kind) {
            Some(Kind::Send(Some(copy)) | Kind::Receive(Sink { copy: Some((copy, _)), .. })) => self.drop_copy(copy),
            Some(Kind::Access(accessed)) => self.end_access(&accessed),
            _ => {}
        }
        refusal
    }

    /// Writes a command, and waits for a free slot if there is none: the device takes all commands at once. If there is a slot, the clock
    /// is not read.
    #[inline(always)]
    fn write_in_time(&mut self, cookie: u64, command: &Command) -> Result<(), Refusal> {
        self.write(cookie, command).or_else(|refusal| self.write_later(cookie, command, refusal))
    }

    /// Writes a command whose first attempt had this refusal. If that says that there is no free slot, it waits for one.
    #[cold]
    fn write_later(&mut self, cookie: u64, command: &Command, refusal: Refusal) -> Result<(), Refusal> {
        let mut written = Err(refusal);
        let mut patience = Patience::new(self.options.silent_for);
        while written == Err(Refusal::Busy) && self.lost.is_none() {
            self.pause(Some(&mut patience));
            written = self.write(cookie, command);
        }
        written.map_err(|refusal| self.lost.map_or(refusal, Refusal::Lost))
    }

    #[inline(always)]
    fn write(&mut self, cookie: u64, command: &Command) -> Result<(), Refusal> {
        let host = self.host.as_mut().ok_or(Refusal::Lost(Lost::Device(DeviceError::Ended)))?;
        match host.command(cookie, command) {
            Ok(Pushed::Done) => {
                self.ring_if_asleep();
                Ok(())
            }
            Ok(Pushed::Full) => Err(Refusal::Busy),
            Err(why) => {
                self.lose(Lost::Device(why));
                Err(Refusal::Lost(Lost::Device(why)))
            }
        }
    }

    /// Executes a command, and waits for its result. A device that does not answer in time has failed, whether its firmware runs or not.
    pub(crate) fn call(&mut self, command: &Command) -> Result<Done, Refusal> {
        self.call_within(command, true)
    }

    /// Executes a command that waits for peers. The device has failed if its heartbeat stops.
    pub(crate) fn call_at_length(&mut self, command: &Command) -> Result<Done, Refusal> {
        self.call_within(command, false)
    }

    fn call_within(&mut self, command: &Command, is_limited: bool) -> Result<Done, Refusal> {
        if let Some(why) = self.lost {
            return Err(Refusal::Lost(why));
        }
        let cookie = self.operations.add(Kind::Call);
        if let Err(refusal) = self.write_in_time(cookie, command) {
            self.operations.undo(cookie);
            return Err(refusal);
        }
        let mut patience = is_limited.then(|| Patience::new(self.options.silent_for));
        loop {
            match self.operations.take(cookie) {
                Some(Ok(done)) => return Ok(done),
                Some(Err(Failure::Operation(why))) => return Err(Refusal::Device(why)),
                Some(Err(Failure::Device(why))) => return Err(Refusal::Lost(why)),
                Some(Err(Failure::NoRequest)) | None => self.pause(patience.as_mut()),
            }
        }
    }

    /// Makes progress for a command. The caller looks for its result after each call, so the device fails only if it was late before the
    /// last look.
    fn pause(&mut self, patience: Option<&mut Patience>) {
        if patience.is_some_and(Patience::is_over) {
            self.lose(Lost::Silent);
        } else if self.progress() == 0 {
            std::thread::yield_now();
        }
    }

    /// A part of the buffers for what a command that is waited for brings or returns.
    pub(crate) const fn staging(&self) -> Body {
        self.staging.body
    }

    /// The session.
    pub(crate) const fn session(&self) -> u32 {
        self.session
    }

    /// The keys of memory of peers.
    pub(crate) const fn remotes(&mut self) -> &mut Remotes {
        &mut self.remotes
    }

    /// Whether a put, get or atomic is in progress on memory of a peer, or of any peer.
    pub(crate) fn accesses(&self, peer: Option<u32>) -> bool {
        self.operations.accesses_peer(peer)
    }

    /// Where a buffer is.
    pub(crate) const fn body_of_buffer(&self, buffer: &Buffer) -> Result<Body, Refusal> {
        if self.owns(buffer) { Ok(buffer.part.body) } else { Err(Refusal::Invalid) }
    }

    /// Returns a part of the buffers.
    pub(crate) fn give_back(&mut self, part: Part) {
        self.heap.free(part);
    }

    /// Returns the memory of the copy of a message.
    fn drop_copy(&mut self, copy: Copied) {
        if let Copied::Buffer(part) = copy {
            self.heap.free(part);
        }
    }

    /// The address of the copy of a message.
    fn address_in(&self, copy: &Copied) -> *mut u8 {
        match copy {
            Copied::Buffer(part) => self.address(*part),
            Copied::Process(memory) => memory.base(),
        }
    }

    /// Writes to a part of the buffers, which has room for the bytes.
    pub(crate) fn write_part(&self, part: Part, bytes: &[u8]) -> Result<(), Refusal> {
        let written = self.host.as_ref().map(|host| host.memory().write(part.body.at, bytes));
        if written == Some(Ok(())) { Ok(()) } else { Err(Refusal::TooLong) }
    }

    /// Takes a part of the buffers.
    pub(crate) fn room(&mut self, bytes: u64) -> Result<Part, Refusal> {
        self.heap.take(bytes).map_err(|why| match why {
            NoRoom::Now => Refusal::Busy,
            NoRoom::Ever => Refusal::TooLong,
        })
    }

    /// Copies bytes for a command that is waited for.
    pub(crate) fn staged(&mut self, bytes: &[u8]) -> Result<Body, Refusal> {
        if let Some(why) = self.lost {
            return Err(Refusal::Lost(why));
        }
        let body = self.staging.body;
        if bytes.len() as u64 > body.bytes {
            return Err(Refusal::TooLong);
        }
        match self.host.as_ref().map(|host| host.memory().write(body.at, bytes)) {
            Some(Ok(())) => Ok(Body { bytes: bytes.len() as u64, ..body }),
            _ => Err(Refusal::TooLong),
        }
    }

    /// Copies bytes of the window.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refusal> {
        let read = self.host.as_ref().map(|host| host.memory().read(at, into));
        if read == Some(Ok(())) { Ok(()) } else { Err(Refusal::TooLong) }
    }

    /// The address of a part, which is inside the window.
    pub(crate) fn address(&self, part: Part) -> *mut u8 {
        self.mapping.base().as_ptr().wrapping_add(part.body.at as usize)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.leave_memory();
        match self.host.take() {
            // A thread that panics has not ended normally.
            Some(host) if self.fails_at_end || std::thread::panicking() => host.give_up(),
            Some(host) => host.detach(),
            None => {}
        }
        self.ring();
    }
}

/// The time until which a device has to answer.
struct Deadline<'a> {
    path: &'a Path,
    within: Duration,
    patience: Patience,
}

impl<'a> Deadline<'a> {
    fn new(path: &'a Path, within: Duration) -> Self {
        Self { path, within, patience: Patience::new(within) }
    }

    fn attach(&self, why: AttachError) -> OpenError {
        OpenError::Attach(PathBuf::from(self.path), why)
    }

    /// Waits a moment, after a look that was in vain.
    fn wait(&mut self) -> Result<(), OpenError> {
        if self.patience.is_over() {
            return Err(OpenError::Silent(PathBuf::from(self.path), self.within));
        }
        std::thread::yield_now();
        Ok(())
    }
}

const fn mode_of(mode: Mode) -> towline_window::command::Mode {
    match mode {
        Mode::Synchronous => towline_window::command::Mode::Synchronous,
        Mode::Complete => towline_window::command::Mode::Complete,
        Mode::Ready => towline_window::command::Mode::Ready,
        Mode::Standard | Mode::Buffered => towline_window::command::Mode::Standard,
    }
}

const fn rank_of(source: Source) -> Result<u32, Refusal> {
    match source {
        Source::Rank(ANY) => Err(Refusal::Invalid),
        Source::Rank(rank) => Ok(rank),
        Source::Any => Ok(ANY),
    }
}

const fn word_of(tag: Tag) -> Result<u32, Refusal> {
    match tag {
        Tag::Is(ANY) => Err(Refusal::Invalid),
        Tag::Is(tag) => Ok(tag),
        Tag::Any => Ok(ANY),
    }
}
