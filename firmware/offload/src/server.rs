//! A server: it takes the commands of one host, and answers with completions.

mod frames;
mod host_regions;
mod one_sided;

use core::fmt;

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Source, Tag};
use towline_core::pml::{self, Config, Envelope, PARAMS, Pml, Rails, Refusal, Request, Sending, Unreceived};
use towline_core::rail::{Attributes, Liveness, Lost, Peer, Rail, Unreachable};
use towline_core::time::Instant;
use towline_window::command::{ANY, BadCommand, Body, Command, Mode, PIPELINES};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::device::Device;
use towline_window::ring::Pushed;

use crate::announcement::Announcement;
use crate::cards;
use crate::failures::{
    announcer_of, of_announcement, of_communicator, of_lost, of_refusal, of_unreachable, peer_of_failure, result_of,
};
use crate::host_memory::HostTables;
use crate::keys::Sum;
use crate::one_sided_tables::{Accesses, Registrations};
use crate::tables::{Communicators, Messages, Operation, Operations};

/// Most commands that one call of [`Server::poll`] takes, so that a host cannot keep the device from its other work.
const COMMANDS: u32 = 16;
/// Communicators beside those of [`Limits`]: the one with context [`PIPELINES`].
const RESERVED: u32 = 1;
/// Bytes of the longest card of a device.
const CARD: usize = 1024;

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The limits of the engine.
    pub engine: Config,
    /// Most communicators.
    pub communicators: u32,
    /// Most messages that matched probes have taken out and that are not received.
    pub messages: u32,
}

/// A server cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetUpError {
    /// The memory is too small.
    OutOfMemory,
    /// The engine refuses its limits or rails.
    Engine(pml::SetUpError),
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("the memory is too small for the tables: give it Server::bytes"),
            Self::Engine(why) => why.fmt(f),
        }
    }
}

impl core::error::Error for SetUpError {}

impl From<OutOfMemory> for SetUpError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<pml::SetUpError> for SetUpError {
    fn from(why: pml::SetUpError) -> Self {
        Self::Engine(why)
    }
}

/// How many of each thing a server keeps for its session.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InUse {
    /// Sends and receives in progress.
    pub operations: usize,
    /// Communicators.
    pub communicators: usize,
    /// Messages that probes took out.
    pub messages: usize,
    /// Peers.
    pub peers: usize,
    /// Requests, envelopes and payload units of the engine.
    pub pools: [u32; 3],
    /// Registrations of memory.
    pub registrations: usize,
    /// Puts, gets and atomics in progress.
    pub accesses: usize,
    /// Registrations, one-sided operations and answers to peers of the engine.
    pub one_sided: [u32; 3],
    /// Host regions, and bodies of operations there.
    pub host: [usize; 2],
}

/// The server of one host. It is used by one thread at a time.
#[derive(Debug)]
pub struct Server<'m, 'w, R> {
    mtl: Mtl<'m, R>,
    device: Device<'w>,
    operations: Operations<'m>,
    communicators: Communicators<'m>,
    messages: Messages<'m>,
    /// The most communicators, without that of pipelines.
    limit: u32,
    /// The communicator with context [`PIPELINES`], if there is one.
    pipelines: Option<u32>,
    peers: u32,
    /// The sum of the card by which each peer was added.
    added: &'m mut [Option<Sum>],
    losses: frames::Losses<'m>,
    announcement: Announcement<'m>,
    registrations: Registrations<'m>,
    accesses: Accesses<'m>,
    /// The most puts, gets and atomics in progress.
    one_sided: u32,
    /// `None`: the device does not reach memory of the host outside the window.
    host: Option<HostTables<'m>>,
    /// A completion for which there was no room yet.
    waiting: Option<Completion>,
    /// The command that has deleted a peer. It completes after the operations with the peer.
    deleting: Option<u64>,
}

/// The parts of a server in memory from an arena.
struct Tables<'m, R> {
    mtl: Mtl<'m, R>,
    operations: Operations<'m>,
    communicators: Communicators<'m>,
    messages: Messages<'m>,
    added: &'m mut [Option<Sum>],
    losses: frames::Losses<'m>,
    announcement: Announcement<'m>,
    registrations: Registrations<'m>,
    accesses: Accesses<'m>,
}

impl<'m, 'w, R: Rails> Server<'m, 'w, R> {
    /// The memory of a server's tables, in bytes.
    pub const fn bytes(limits: &Limits, rails: &[&Attributes]) -> usize {
        Mtl::<'m, R>::bytes(&limits.engine, limits.communicators.saturating_add(RESERVED), rails)
            .saturating_add(Pml::<'m, R>::arrivals_bytes(limits.engine.peers))
            .saturating_add(Operations::bytes(limits.engine.requests))
            .saturating_add(Communicators::bytes(limits.communicators.saturating_add(RESERVED), limits.engine.peers))
            .saturating_add(Messages::bytes(limits.messages))
            .saturating_add(Arena::cost::<Option<Sum>>(limits.engine.peers as usize))
            .saturating_add(frames::Losses::bytes(limits.engine.peers))
            .saturating_add(Announcement::BYTES)
            .saturating_add(Registrations::bytes(limits.engine.rma.regions))
            .saturating_add(Accesses::bytes(limits.engine.rma.operations))
    }

    /// A server of the host of this window, with tables from `arena`.
    ///
    /// # Errors
    /// [`SetUpError`], and the device's end, by which the caller may tell the host.
    #[expect(clippy::result_large_err, reason = "there is no heap, and it is called once")]
    pub fn new(
        limits: &Limits,
        arena: &mut Arena<'m>,
        rails: R,
        device: Device<'w>,
    ) -> Result<Self, (SetUpError, Device<'w>)> {
        match Self::tables(limits, arena, rails) {
            Ok(tables) => Ok(Self {
                mtl: tables.mtl,
                device,
                operations: tables.operations,
                communicators: tables.communicators,
                messages: tables.messages,
                limit: limits.communicators,
                pipelines: None,
                peers: limits.engine.peers,
                added: tables.added,
                losses: tables.losses,
                announcement: tables.announcement,
                registrations: tables.registrations,
                accesses: tables.accesses,
                one_sided: limits.engine.rma.operations,
                host: None,
                waiting: None,
                deleting: None,
            }),
            Err(why) => Err((why, device)),
        }
    }

    fn tables(limits: &Limits, arena: &mut Arena<'m>, rails: R) -> Result<Tables<'m, R>, SetUpError> {
        let communicators = limits.communicators.saturating_add(RESERVED);
        let mut mtl = Mtl::new(limits.engine, communicators, arena, rails)?;
        mtl.pml().count_arrivals(arena)?;
        Ok(Tables {
            mtl,
            operations: Operations::new(arena, limits.engine.requests)?,
            communicators: Communicators::new(arena, communicators, limits.engine.peers)?,
            messages: Messages::new(arena, limits.messages)?,
            added: arena.filled(limits.engine.peers as usize, None)?,
            losses: frames::Losses::new(arena, limits.engine.peers)?,
            announcement: Announcement::new(arena)?,
            registrations: Registrations::new(arena, limits.engine.rma.regions)?,
            accesses: Accesses::new(arena, limits.engine.rma.operations)?,
        })
    }

    /// The transport.
    pub const fn transport(&self) -> &Mtl<'m, R> {
        &self.mtl
    }

    /// The device's end of the window.
    pub const fn device(&self) -> &Device<'w> {
        &self.device
    }

    /// The same, for a program that sleeps.
    pub const fn device_mut(&mut self) -> &mut Device<'w> {
        &mut self.device
    }

    /// Prepares for a sleep. `true`: there is nothing to do before a frame arrives at an interface, the host writes to the window, or the
    /// time of [`poll_at`](Self::poll_at) has come.
    pub fn arm(&mut self) -> bool {
        self.mtl.pml().arm()
    }

    /// The time by which [`poll`](Self::poll) must be called, even if there is no work. `None`: there is no such time.
    pub fn poll_at(&mut self) -> Option<Instant> {
        self.mtl.pml().poll_at()
    }

    /// What the server keeps for its session: nothing after the end of a session.
    pub fn in_use(&mut self) -> InUse {
        InUse {
            operations: self.operations.count(),
            communicators: self.communicators.count(),
            messages: self.messages.count(),
            peers: self.added.iter().flatten().count(),
            pools: self.mtl.pml().used(),
            registrations: self.registrations.count(),
            accesses: self.accesses.count(),
            one_sided: self.mtl.pml().rma_used().map(|[used, _]| used),
            host: self.host.as_ref().map_or([0; 2], HostTables::count),
        }
    }

    /// Takes commands, moves messages, and writes completions. Returns the number of events: 0 if there was nothing to do.
    ///
    /// If the host violates the protocol of the window, its session ends.
    pub fn poll(&mut self, now: Instant) -> u32 {
        // The window has a header, so its words can be read and written.
        let _ = self.device.beat();
        if let Ok(Some(session)) = self.device.wanted() {
            self.end_session(session);
        }
        let mut events = self.mtl.progress(now);
        self.tell_losses();
        match self.serve() {
            Some(served) => events = events.saturating_add(served),
            None => self.end_session(0),
        }
        events
    }

    /// Takes commands and writes completions while there is room. Returns how many, or `None` if the host violated the protocol.
    fn serve(&mut self) -> Option<u32> {
        let mut events: u32 = 0;
        if self.device.session() == 0 {
            return Some(0);
        }
        if !self.flush()? {
            return Some(events);
        }
        while let Some(request) = self.mtl.pml().next_completed() {
            events = events.saturating_add(1);
            self.complete(request);
            if !self.flush()? {
                return Some(events);
            }
        }
        if self.has_one_sided() {
            while let Some(finished) = self.mtl.pml().next_finished() {
                events = events.saturating_add(1);
                self.waiting = self.finished(&finished);
                if !self.flush()? {
                    return Some(events);
                }
            }
            while let Some(completion) = self.finish_deregistration() {
                events = events.saturating_add(1);
                self.waiting = Some(completion);
                if !self.flush()? {
                    return Some(events);
                }
            }
        }
        if let Some(cookie) = self.deleting.take() {
            events = events.saturating_add(1);
            self.waiting = Some(Completion::new(cookie, Ok(Done::default())));
            if !self.flush()? {
                return Some(events);
            }
        }
        for _ in 0..COMMANDS {
            let Some((cookie, command)) = self.device.take() else { break };
            events = events.saturating_add(1);
            let failed = command.as_ref().ok().and_then(one_sided::peer_of).unwrap_or(ANY);
            let result = match command {
                Ok(command) => self.execute(cookie, command),
                Err(BadCommand::Malformed) => Some(Err(Failure::Malformed)),
                Err(BadCommand::Unknown(_)) => Some(Err(Failure::Unknown)),
            };
            self.waiting = result.map(|result| Completion { cookie, result, failed });
            if !self.flush()? || self.deleting.is_some() {
                break;
            }
        }
        Some(events)
    }

    /// Writes the completion that waits for room. Returns whether there is none left, or `None` if the host violated the protocol.
    fn flush(&mut self) -> Option<bool> {
        let Some(completion) = &self.waiting else { return Some(true) };
        match self.device.complete(completion).ok()? {
            Pushed::Done => {
                self.waiting = None;
                Some(true)
            }
            Pushed::Full => Some(false),
        }
    }

    /// Takes the outcome of a request.
    fn complete(&mut self, request: Request) {
        let Some(outcome) = self.mtl.test(request) else { return };
        let Some(operation) = self.operations.remove(request) else { return };
        let is_bad = self.end_body(operation.place);
        if operation.session != self.device.session() {
            return;
        }
        let Some(comm) = operation.comm else {
            self.waiting = Some(self.frame_ended(&operation, outcome));
            return;
        };
        // Of all sends without a place, only announcements have memory that cannot be read.
        let outcome = of_announcement(outcome, operation.is_send && operation.place.is_none());
        let announcer = announcer_of(&outcome).filter(|_| !operation.is_send);
        let failed = peer_of_failure(&outcome).and_then(|peer| self.mtl.rank_of(comm, peer));
        let lost = match &outcome {
            Err(pml::Failure::PeerFailed(peer)) => self.mtl.why_lost(*peer),
            _ => None,
        };
        let mut result = result_of(outcome, lost, |status| self.mtl.rank_of(comm, status.peer));
        let mut failed = failed.unwrap_or(ANY);
        if let (Some(announcer), Ok(done)) = (announcer, &mut result) {
            done.value = announcer.0;
        }
        if let (true, Ok(done)) = (is_bad, &result) {
            failed = if operation.is_send { ANY } else { done.rank };
            result = Err(Failure::BadMemory);
        }
        if let (true, Ok(done)) = (operation.is_send, &mut result) {
            *done = Done::default();
        }
        self.waiting = Some(Completion { cookie: operation.cookie, result, failed });
    }

    /// Executes a command. Returns its result if it is over.
    fn execute(&mut self, cookie: u64, command: Command) -> Option<Result<Done, Failure>> {
        let result = match command {
            Command::Send { comm, dest, tag, mode, body } => self.send(cookie, comm, dest, tag, mode, body),
            Command::Announce { comm, dest, tag, mode, length } => self.announce(cookie, comm, dest, tag, mode, length),
            Command::Receive { comm, source, tag, body } => self.receive(cookie, comm, source, tag, body),
            Command::Probe { comm, source, tag, take } => self.probe(comm, source, tag, take).map(Some),
            Command::ReceiveMatched { message, body } => self.receive_matched(cookie, message, body),
            Command::Cancel { cookie } => self.cancel(cookie).map(Some),
            Command::AddPeer { peer, card } => self.add_peer(peer, card).map(Some),
            Command::DeletePeer { peer } => {
                self.del_peer(peer);
                self.deleting = Some(cookie);
                Ok(None)
            }
            Command::AddCommunicator { context, rank, size, peers } => {
                self.add_communicator(context, rank, size, peers).map(Some)
            }
            Command::DeleteCommunicator { comm } => {
                let deleted = self.communicators.remove(comm).ok_or(Failure::NoSuchThing);
                self.pipelines = self.pipelines.filter(|pipelines| *pipelines != comm);
                deleted.map(|comm| {
                    self.mtl.del_comm(comm);
                    Some(Done::default())
                })
            }
            Command::Publish { into } => self.publish(into).map(Some),
            Command::LosePeer { peer } => self.lose_peer(peer).map(Some),
            Command::Acknowledge { comm } => {
                let comm = self.communicators.get(comm).ok_or(Failure::NoSuchThing);
                comm.map(|comm| {
                    self.mtl.acknowledge(comm);
                    Some(Done::default())
                })
            }
            Command::KeepReady { keep } => {
                self.mtl.pml().keep_ready(keep);
                Ok(Some(Done::default()))
            }
            Command::Count { peer } => self.count(peer).map(Some),
            Command::SendFrame { peer, tag, body } => self.send_frame(cookie, peer, tag, body),
            Command::ReceiveFrame { body } => self.receive_frame(cookie, body),
            Command::RegisterHost { memory, description, bytes } => {
                self.register_host(memory, description, bytes).map(Some)
            }
            Command::DeregisterHost { region } => self.deregister_host(region).map(Some),
            _ if !self.has_one_sided() => Err(Failure::Unknown),
            Command::Register { access, only, memory, key } => self.register(access, only, memory, key).map(Some),
            Command::Deregister { registration } => self.deregister(cookie, registration),
            Command::Put { to, body } => self.put(cookie, to, body),
            Command::Get { from, body } => self.get(cookie, from, body),
            Command::Atomic { at, atomic, flags } => self.atomic(cookie, at, atomic, flags),
            _ => Err(Failure::Unknown),
        };
        result.transpose()
    }

    /// The memory of a body, which is in the buffers of the window.
    fn memory_of(&self, body: Body) -> Result<(*mut u8, usize), Failure> {
        let layout = self.device.layout();
        let end = body.at.checked_add(body.bytes).ok_or(Failure::OutOfBounds)?;
        let is_buffer = body.at >= layout.buffers && end <= layout.buffers.saturating_add(layout.buffer_bytes);
        if body.region != 0 || (body.bytes != 0 && !is_buffer) {
            return Err(Failure::OutOfBounds);
        }
        if body.bytes == 0 {
            return Ok((core::ptr::null_mut(), 0));
        }
        let begin = self.device.memory().range(body.at, body.bytes).map_err(|_| Failure::OutOfBounds)?;
        Ok((begin.as_ptr(), body.bytes as usize))
    }

    fn span_of(&self, body: Body) -> Result<Span, Failure> {
        let (base, bytes) = self.memory_of(body)?;
        Ok(if bytes == 0 { Span::of(&[]) } else { Span::contiguous(base, bytes) })
    }

    fn send(
        &mut self,
        cookie: u64,
        number: u32,
        dest: u32,
        tag: u32,
        mode: Mode,
        body: Body,
    ) -> Result<Option<Done>, Failure> {
        let comm = self.communicators.get(number).ok_or(Failure::NoSuchThing)?;
        let (span, place) = self.begin_body(body)?;
        self.begin_send(cookie, comm, dest, tag, mode, span, place)
    }

    fn announce(
        &mut self,
        cookie: u64,
        number: u32,
        dest: u32,
        tag: u32,
        mode: Mode,
        length: u64,
    ) -> Result<Option<Done>, Failure> {
        let comm = self.communicators.get(number).ok_or(Failure::NoSuchThing)?;
        self.begin_send(cookie, comm, dest, tag, mode, self.announcement.body(length), None)
    }

    #[expect(clippy::too_many_arguments, reason = "the arguments of a command, and its body")]
    fn begin_send(
        &mut self,
        cookie: u64,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        span: Span,
        place: Option<u32>,
    ) -> Result<Option<Done>, Failure> {
        let mode = match mode {
            Mode::Standard => pml::Mode::Standard,
            Mode::Synchronous => pml::Mode::Synchronous,
            Mode::Complete => pml::Mode::Complete,
            Mode::Ready => pml::Mode::Ready,
        };
        // SAFETY: the memory is in the window, which outlives the transport, or is reached by copies that may fail. A host that changes
        // it meanwhile, against the specification, harms its own message: other bytes arrive, or none that fit the checksum of a link.
        match unsafe { self.mtl.isend(comm, dest, tag, mode, span) } {
            Ok(Sending::Complete) if self.end_body(place) => Err(Failure::BadMemory),
            Ok(Sending::Complete) => Ok(Some(Done::default())),
            Ok(Sending::Pending(request)) => {
                self.begin(request, cookie, Some(comm), true, place);
                Ok(None)
            }
            Err(refusal) => {
                self.end_body(place);
                Err(self.refused(&refusal))
            }
        }
    }

    /// The failure of a send that was refused.
    fn refused(&self, refusal: &Refusal) -> Failure {
        match refusal {
            Refusal::PeerFailed(peer) => of_lost(self.mtl.why_lost(*peer)),
            refusal => of_refusal(refusal),
        }
    }

    fn receive(
        &mut self,
        cookie: u64,
        number: u32,
        source: u32,
        tag: u32,
        body: Body,
    ) -> Result<Option<Done>, Failure> {
        let comm = self.communicators.get(number).ok_or(Failure::NoSuchThing)?;
        let (span, place) = self.begin_body(body)?;
        // SAFETY: the memory is in the window, which outlives the transport, and has no Rust references, or is reached by copies.
        match unsafe { self.mtl.irecv(comm, source_of(source), tag_of(tag), span) } {
            Ok(request) => {
                self.begin(request, cookie, Some(comm), false, place);
                Ok(None)
            }
            Err(refusal) => {
                self.end_body(place);
                Err(of_refusal(&refusal))
            }
        }
    }

    fn receive_matched(&mut self, cookie: u64, number: u32, body: Body) -> Result<Option<Done>, Failure> {
        let (span, place) = self.begin_body(body)?;
        let Some((message, comm)) = self.messages.take(number) else {
            self.end_body(place);
            return Err(Failure::NoSuchThing);
        };
        // SAFETY: as in `receive`.
        match unsafe { self.mtl.imrecv(message, span) } {
            Ok(request) => {
                self.begin(request, cookie, Some(comm), false, place);
                Ok(None)
            }
            Err((refusal, message)) => {
                self.end_body(place);
                // Without a free request the host may try again. In all other cases the message is gone.
                if refusal == Refusal::Busy {
                    self.messages.put(number, message, comm);
                }
                Err(of_refusal(&refusal))
            }
        }
    }

    /// Notes an operation in progress: that of a frame, if there is no communicator. `place`: that of a body in a host region.
    fn begin(&mut self, request: Request, cookie: u64, comm: Option<Comm>, is_send: bool, place: Option<u32>) {
        let session = self.device.session();
        self.operations.add(Operation { request, cookie, comm, is_send, lost: None, session, place });
        self.mtl.pml().notify(request);
    }

    fn probe(&mut self, number: u32, source: u32, tag: u32, take: bool) -> Result<Done, Failure> {
        let comm = self.communicators.get(number).ok_or(Failure::NoSuchThing)?;
        let (source, tag) = (source_of(source), tag_of(tag));
        if let Source::Rank(rank) = source
            && self.mtl.peer_of(comm, rank).is_none()
        {
            return Err(Failure::NoSuchThing);
        }
        let (envelope, value) = if take {
            let place = self.messages.free().ok_or(Failure::Full)?;
            let found = self.mtl.improbe(comm, source, tag).map_err(|refusal| of_refusal(&refusal))?;
            let (message, envelope) = found.ok_or_else(|| self.nothing(comm, source))?;
            self.messages.put(place, message, comm);
            (envelope, place)
        } else {
            let found = self.mtl.iprobe(comm, source, tag);
            (found.ok_or_else(|| self.nothing(comm, source))?, 0)
        };
        let Envelope { peer, tag, len } = envelope;
        Ok(Done { rank: self.mtl.rank_of(comm, peer).unwrap_or(ANY), tag, received: len, value, ..Done::default() })
    }

    /// Why a probe found nothing.
    fn nothing(&self, comm: Comm, source: Source) -> Failure {
        match self.mtl.failed(comm, source) {
            None => Failure::NotFound,
            Some(peer) => of_lost(self.mtl.why_lost(peer)),
        }
    }

    fn cancel(&mut self, cookie: u64) -> Result<Done, Failure> {
        let operation = self.operations.find(self.device.session(), cookie).ok_or(Failure::NoSuchThing)?;
        let cancelled = if operation.is_send {
            self.mtl.cancel_send(operation.request)
        } else {
            self.mtl.cancel(operation.request)
        };
        if cancelled { Ok(Done::default()) } else { Err(Failure::NotFound) }
    }

    fn del_peer(&mut self, peer: u32) {
        self.mtl.del_peer(Peer(peer));
        if let Some(added) = self.added.get_mut(peer as usize) {
            *added = None;
        }
        self.losses.forget(peer);
    }

    /// Whether a peer was added.
    fn knows(&self, peer: u32) -> bool {
        self.added.get(peer as usize).is_some_and(Option::is_some)
    }

    /// The cards of all peers but one that are not lost.
    fn others(&self, peer: u32) -> impl Iterator<Item = Sum> {
        let is_other = move |other: u32| other != peer && self.mtl.why_lost(Peer(other)).is_none();
        (0..).zip(self.added.iter()).filter_map(move |(other, sum)| sum.filter(|_| is_other(other)))
    }

    fn lose_peer(&mut self, peer: u32) -> Result<Done, Failure> {
        if !self.knows(peer) {
            return Err(Failure::NoSuchThing);
        }
        self.mtl.pml().lose_peer(Peer(peer), Lost::Broken);
        Ok(Done::default())
    }

    /// The messages of a peer that have arrived.
    fn count(&self, peer: u32) -> Result<Done, Failure> {
        if !self.knows(peer) {
            return Err(Failure::NoSuchThing);
        }
        let is_left =
            |message: &Unreceived| message.peer == Peer(peer) && !message.taken && message.context != PIPELINES;
        let left = self.mtl.unreceived().filter(is_left).count() as u64;
        Ok(Done { received: left, value: self.mtl.arrived(Peer(peer)), ..Done::default() })
    }

    fn add_peer(&mut self, peer: u32, card: Body) -> Result<Done, Failure> {
        self.memory_of(card)?;
        let added = self.added.get(peer as usize).ok_or(Failure::NoSuchThing)?;
        if added.is_some() && self.mtl.why_lost(Peer(peer)).is_none() {
            return Err(Failure::Malformed);
        }
        let mut bytes = [0; CARD];
        let card_bytes = usize::try_from(card.bytes).ok().and_then(|length| bytes.get_mut(..length));
        let card_bytes = card_bytes.ok_or(Failure::Malformed)?;
        self.device.memory().read(card.at, card_bytes).map_err(|_| Failure::OutOfBounds)?;
        let params = cards::params(card_bytes).ok_or(Failure::Malformed)?;
        let sum = Sum::NONE.with(card_bytes);
        // Two devices with the same address and the same start have the same card. Their messages would have a wrong sender.
        if self.others(peer).any(|other| other == sum) {
            return Err(Failure::Malformed);
        }
        let reach = |index: usize, rail: &mut R::Rail| {
            let card = cards::of_rail(card_bytes, index).ok_or(Unreachable::BadCard)?;
            let endpoint = rail.add_peer(Peer(peer), card)?;
            // A link connects now, and not with the first message. So a receive ends if its sender is lost before that.
            rail.answered_since(endpoint, None);
            Ok(endpoint)
        };
        self.mtl.add_peer(Peer(peer), params, reach).map_err(of_unreachable)?;
        if let Some(added) = self.added.get_mut(peer as usize) {
            *added = Some(sum);
        }
        self.losses.forget(peer);
        Ok(Done::default())
    }

    fn publish(&mut self, into: Body) -> Result<Done, Failure> {
        let length = cards::length(self.mtl.rails());
        let fits = length <= CARD && length as u64 <= into.bytes;
        self.memory_of(into)?;
        if !fits {
            return Err(Failure::OutOfBounds);
        }
        let params: [u8; PARAMS] = self.mtl.params();
        let (memory, mut at) = (self.device.memory(), into.at);
        let written = cards::write(&params, self.mtl.rails(), |piece| {
            memory.write(at, piece).ok()?;
            at = at.saturating_add(piece.len() as u64);
            Some(())
        });
        written.ok_or(Failure::OutOfBounds)?;
        Ok(Done { value: length as u32, ..Done::default() })
    }

    fn add_communicator(&mut self, context: u32, rank: u32, size: u32, peers: Body) -> Result<Done, Failure> {
        self.memory_of(peers)?;
        let is_reserved = context == PIPELINES;
        let size = if is_reserved && size == 0 { self.peers } else { size };
        if context == frames::CONTEXT
            || (is_reserved && self.pipelines.is_some())
            || rank >= size
            || size > self.peers
            || (peers.bytes != 0 && peers.bytes != u64::from(size) * 4)
        {
            return Err(Failure::Malformed);
        }
        let others = self.communicators.count().saturating_sub(usize::from(self.pipelines.is_some()));
        if !is_reserved && others >= self.limit as usize {
            return Err(Failure::Full);
        }
        let (mtl, memory) = (&mut self.mtl, self.device.memory());
        let added = self.communicators.add(|storage, room| {
            if peers.bytes == 0 {
                return mtl.add_lasting_comm(context, Group::World { size }, rank).map_err(of_communicator);
            }
            let group = {
                for index in 0..(size as usize).min(room) {
                    let mut word = [0; 4];
                    let at = peers.at.saturating_add(index as u64 * 4);
                    memory.read(at, &mut word).map_err(|_| Failure::OutOfBounds)?;
                    // SAFETY: the index is below the length of the storage, and no communicator uses the storage.
                    unsafe { storage.add(index).write(u32::from_le_bytes(word)) };
                }
                // SAFETY: the storage has this length, since `size` is at most the number of peers, and lives as long as the
                // engine's memory. It changes only after its communicator was deleted from the transport.
                Group::Table(unsafe { core::slice::from_raw_parts(storage, (size as usize).min(room)) })
            };
            mtl.add_comm(context, group, rank).map_err(of_communicator)
        });
        let number = added.ok_or(Failure::Full)??;
        if is_reserved {
            self.pipelines = Some(number);
        }
        Ok(Done { value: number, ..Done::default() })
    }

    /// Ends everything that the present session has begun, and serves another one.
    fn end_session(&mut self, session: u32) {
        let has_left = self.device.host_has_left();
        // First: memory of the host is not accessed any more when the host learns that its session is over.
        if let Some(host) = &mut self.host {
            host.clear();
        }
        // Requests with a peer end with it, and so do the messages that probes took out. The peers go before the communicators: they
        // learn that this host has failed or ended, and not that it refuses their messages.
        self.messages.clear();
        for peer in 0..self.peers {
            if !self.knows(peer) {
                continue;
            }
            if !has_left {
                // The links tell the peer of a failure, and not of an end: it must not wait for messages of this host.
                self.mtl.pml().lose_peer(Peer(peer), Lost::Broken);
            }
            self.del_peer(peer);
        }
        self.end_frames();
        self.end_one_sided();
        self.mtl.del_comms();
        self.communicators.clear();
        self.pipelines = None;
        self.mtl.pml().keep_ready(false);
        while let Some(request) = self.mtl.pml().next_completed() {
            self.complete(request);
        }
        (self.waiting, self.deleting) = (None, None);
        // The window has a header, so its words can be written.
        let _ = self.device.serve(session);
    }
}

const fn source_of(rank: u32) -> Source {
    if rank == ANY { Source::Any } else { Source::Rank(rank) }
}

const fn tag_of(tag: u32) -> Tag {
    if tag == ANY { Tag::Any } else { Tag::Is(tag) }
}
