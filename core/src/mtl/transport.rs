//! The matching transport: sends, receives and probes on the ranks of communicators, and what happens to communicators when
//! members fail or are replaced.

use super::communicator::{Comm, Group};
use super::errors::CommError;
use super::fallback_state::FallbackState;
use super::rejoins::{RECOVERY, Rejoins};
use super::source::{Source, Tag};
use super::state::CommState;
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::{
    Config, Counters, EnableError, Envelope, Failure, InProgress, Message, Mode, PARAMS, Pml, Rails, Refusal, Request,
    Sending, SetUpError, Status, Unreceived,
};
use crate::pool::{Handle, Pool};
use crate::rail::{Endpoint, Lost, Peer, Unreachable};
use crate::rma::Operation;
use crate::time::Instant;

/// Limits of the transport (promise M16 of CONTRACTS.md): see [`Mtl::ATTRIBUTES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Attributes {
    /// The largest context. The smallest is 0.
    pub max_context: u32,
    /// The largest tag that [`Tag::Any`] accepts. The smallest is 0.
    pub max_tag: u32,
    /// Bytes that a caller stores for each request: the size of the word that [`Request::to_bits`] returns.
    pub request_bytes: usize,
}

/// The matching transport: the engine ([`Pml`]) with communicators. It is used by one thread at a time, and may move between
/// threads.
#[derive(Debug)]
pub struct Mtl<'m, R> {
    pub(super) pml: Pml<'m, R>,
    pub(super) comms: Pool<'m, CommState<'m>>,
    recent: RecentComm,
    pub(super) rejoins: Rejoins<'m>,
    pub(super) fallback: FallbackState,
}

/// The communicator that was looked up last. Most programs use one communicator many times in a row.
#[derive(Clone, Copy, Debug)]
struct RecentComm {
    /// [`Handle::word`] of its handle.
    word: u64,
    context: u32,
    /// The number of ranks for which rank r is peer r: 0 with a table, and if a member may have been replaced.
    world: u32,
}

impl RecentComm {
    const NONE: Self = Self { word: Handle::NONE.word(), context: 0, world: 0 };
}

impl<'m, R: Rails> Mtl<'m, R> {
    /// The transport's limits.
    pub const ATTRIBUTES: Attributes =
        Attributes { max_context: u32::MAX, max_tag: 0x7fff_ffff, request_bytes: size_of::<u64>() };

    /// Most bytes that a transport with `communicators` communicators over rails with these attributes takes from an arena.
    pub const fn bytes(config: &Config, communicators: u32, rails: &[&crate::rail::Attributes]) -> usize {
        let rejoins = Rejoins::cost(config.peers);
        config.bytes(rails).saturating_add(Pool::<CommState<'m>>::cost(communicators)).saturating_add(rejoins)
    }

    /// Makes a transport over `rails`, with tables cut from `arena`. The call is local: nothing is sent before a peer is added
    /// (M2).
    ///
    /// # Errors
    /// [`SetUpError`] if the arena has less than [`Mtl::bytes`] left, or if a limit is too small.
    pub fn new(config: Config, communicators: u32, arena: &mut Arena<'m>, rails: R) -> Result<Self, SetUpError> {
        let rejoins = Rejoins::new(arena, config.peers)?;
        let (pml, comms) = (Pml::new(config, arena, rails)?, Pool::new(arena, communicators)?);
        Ok(Self { pml, comms, recent: RecentComm::NONE, rejoins, fallback: FallbackState::NONE })
    }

    /// Ends the transport, whether it ever had peers or not (M4). It forgets the peers, releases the requests that rails have
    /// prepared, and returns the rails, which the caller closes. All requests and messages end: their memory is not accessed any
    /// more.
    pub fn finalize(mut self) -> R {
        if let Some(device) = self.pml.offload() {
            device.abandon();
        }
        self.pml.finalize()
    }

    /// The parameters of this engine that peers need: see [`Pml::params`].
    pub fn params(&self) -> [u8; PARAMS] {
        self.pml.params()
    }

    /// Adds a peer: see [`Pml::add_peer`].
    ///
    /// # Errors
    /// As [`Pml::add_peer`].
    pub fn add_peer(
        &mut self,
        peer: Peer,
        params: &[u8],
        reach: impl FnMut(usize, &mut R::Rail) -> Result<Endpoint, Unreachable>,
    ) -> Result<(), Unreachable> {
        self.report_failures(); // first: the engine forgets an unreported failure when it adds the peer
        let lost = self.pml.is_lost(peer);
        self.pml.add_peer(peer, params, reach)?;
        self.restore(peer, lost);
        Ok(())
    }

    /// Handles that a peer was added. `lost`: the peer that had this number before was lost.
    fn restore(&mut self, peer: Peer, lost: bool) {
        if lost {
            self.note_return(peer);
        }
        if !RECOVERY {
            return;
        }
        let rejoined = self.rejoins.of(peer);
        for slot in 0..self.comms.capacity() {
            let misses = |state: &&mut CommState<'_>| state.misses(peer) && !state.excludes(rejoined);
            if let Some(state) = self.comms.at_mut(slot).filter(misses) {
                // The communicator stores one failed member only. Another member may have failed as well and not rejoined.
                let pml = &self.pml;
                let other = state.members().find(|other| *other != peer && pml.is_failed(*other));
                state.restore(peer, other);
            }
        }
    }

    /// Notes that a lost peer was forgotten or replaced: the next peer with its number is another process.
    fn note_return(&mut self, peer: Peer) {
        self.recent = RecentComm::NONE;
        if RECOVERY {
            self.rejoins.note(peer);
        }
    }

    /// Adds peers, all or none (M5): `params(peer)` and `reach(peer, i, rail)` as in [`Pml::add_peer`].
    ///
    /// # Errors
    /// The first peer that cannot be reached, and the reason. The peers that were added before it are forgotten again.
    pub fn add_peers<'p>(
        &mut self,
        peers: &[Peer],
        mut params: impl FnMut(Peer) -> &'p [u8],
        mut reach: impl FnMut(Peer, usize, &mut R::Rail) -> Result<Endpoint, Unreachable>,
    ) -> Result<(), (Peer, Unreachable)> {
        self.report_failures();
        for (index, peer) in peers.iter().enumerate() {
            let lost = self.pml.is_lost(*peer);
            if let Err(why) = self.pml.add_peer(*peer, params(*peer), |rail, r| reach(*peer, rail, r)) {
                for added in peers.iter().take(index) {
                    self.pml.del_peer(*added);
                }
                return Err((*peer, why));
            }
            self.restore(*peer, lost);
        }
        Ok(())
    }

    /// Forgets a peer: see [`Pml::del_peer`].
    pub fn del_peer(&mut self, peer: Peer) {
        if self.pml.is_lost(peer) {
            self.note_return(peer);
        }
        self.pml.del_peer(peer);
        if let Some(device) = self.pml.offload() {
            device.del_peer(peer);
        }
    }

    /// Enables or disables a rail: see [`Pml::enable_rail`].
    ///
    /// # Errors
    /// As [`Pml::enable_rail`].
    pub fn enable_rail(&mut self, index: usize, on: bool) -> Result<(), EnableError> {
        self.pml.enable_rail(index, on)
    }

    /// Makes a communicator. All its members use the same `context`, and this process is rank `rank` in it. Messages for the
    /// communicator that have arrived already are kept for it (M15).
    ///
    /// The members are the present peers. A member that is lost and then [added](Self::add_peer) again is another process, which
    /// is not in the communicator. In this communicator, sends to it and receives from it end with an error, and so does a
    /// receive from any source, until the failure is [acknowledged](Self::acknowledge).
    ///
    /// # Errors
    /// [`CommError`]: nothing has changed then.
    pub fn add_comm(&mut self, context: u32, group: Group<'m>, rank: u32) -> Result<Comm, CommError> {
        self.add(CommState::new(context, group, rank, Some(self.rejoins.all()))?)
    }

    /// As [`add_comm`](Self::add_comm), for a communicator that each process makes at its start, including a process that
    /// replaces a lost one: a rank is always the peer that has its place now.
    ///
    /// # Errors
    /// As [`add_comm`](Self::add_comm).
    pub fn add_lasting_comm(&mut self, context: u32, group: Group<'m>, rank: u32) -> Result<Comm, CommError> {
        self.add(CommState::new(context, group, rank, None)?)
    }

    fn add(&mut self, state: CommState<'m>) -> Result<Comm, CommError> {
        let context = state.context;
        for slot in 0..self.comms.capacity() {
            if self.comms.at(slot).is_some_and(|other| other.context == context) {
                return Err(CommError::ContextTaken);
            }
        }
        let comm = self.comms.take(state).map(Comm).map_err(|_| CommError::Full)?;
        self.offload_comm(comm)?;
        Ok(comm)
    }

    /// How many more communicators can be made.
    pub const fn free_comms(&self) -> u32 {
        self.comms.capacity().saturating_sub(self.comms.used())
    }

    /// Deletes a communicator. Messages that no receive has taken are dropped, and senders that wait for their match are told.
    /// Posted receives are cancelled. A communicator that was deleted before is ignored.
    pub fn del_comm(&mut self, comm: Comm) {
        self.recent = RecentComm::NONE;
        if let Some(state) = self.comms.free(comm.0) {
            self.pml.purge(state.context);
            if let Some((number, device)) = state.on_device().zip(self.pml.offload()) {
                device.del_comm(number);
            }
        }
    }

    /// Deletes all communicators, as [`del_comm`](Self::del_comm) does.
    pub fn del_comms(&mut self) {
        for slot in 0..self.comms.capacity() {
            if let Some(handle) = self.comms.handle(slot) {
                self.del_comm(Comm(handle));
            }
        }
    }

    /// This process's rank in a communicator. `None` if the communicator was deleted.
    pub fn rank(&self, comm: Comm) -> Option<u32> {
        self.comms.get(comm.0).map(|state| state.rank)
    }

    /// The rank of a peer in a communicator, for example of the peer in a [`Status`]. `None` if the peer has no rank there, or if
    /// the communicator was deleted. Constant time for [`Group::World`]. For a [`Group::Table`] logarithmic time if its peers
    /// ascend, as in most communicators of MPI, and a search through the table otherwise.
    pub fn rank_of(&self, comm: Comm, peer: Peer) -> Option<u32> {
        self.comms.get(comm.0)?.rank_of(peer)
    }

    /// Begins to send `data` to rank `dest`. See [`Pml::isend`].
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// As [`Pml::isend`].
    #[inline]
    pub unsafe fn isend(
        &mut self,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: Span,
    ) -> Result<Sending, Refusal> {
        let Some((context, peer)) = self.find(comm, dest) else {
            let parts = data.parts(); // otherwise the fast path would store the span for this call, even when it is not made
            // SAFETY: passed on from the caller.
            return unsafe { self.isend_offloaded(comm, dest, tag, mode, parts) };
        };
        if tag == ANY {
            return Err(Refusal::Invalid);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.pml.isend(Peer(peer), context, tag, mode, data) }
    }

    /// Begins to receive a message into `sink`. See [`Pml::irecv`].
    ///
    /// A receive from any source that finds no message ends with [`Failure::PeerFailed`] while the failure of a member is not
    /// [acknowledged](Self::acknowledge).
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// As [`Pml::irecv`].
    // Always inlined: a call costs more than the function itself. Span and request would go through memory, where they are stored
    // in parts and loaded whole.
    #[inline(always)]
    pub unsafe fn irecv(&mut self, comm: Comm, source: Source, tag: Tag, sink: Span) -> Result<Request, Refusal> {
        let Some(pattern) = self.pattern(comm, source, tag) else {
            // SAFETY: passed on from the caller.
            return unsafe { self.irecv_elsewhere(comm, source, tag, sink) };
        };
        // SAFETY: passed on from the caller.
        let request = unsafe { self.pml.irecv(pattern, sink) }?;
        if pattern.source == ANY {
            self.interrupt_among_failed(comm, request);
        }
        Ok(request)
    }

    /// Ends a receive from any source whose message has not arrived, if the failure of a member is not acknowledged. If no other
    /// member is left, the receive ends with the next progress, which may bring a message of this process to itself.
    #[inline(never)]
    pub(super) fn interrupt_among_failed(&mut self, comm: Comm, request: Request) {
        if !RECOVERY {
            if let Some(gone) = self.pml.keeps_away() {
                self.pml.interrupt(request, gone, false);
            }
        } else if let Some(state) = self.comms.get(comm.0)
            && let Some(failed) = state.failed()
        {
            let back = state.excludes(self.rejoins.of(failed));
            self.pml.interrupt(request, failed, back);
        } else if let Some(state) = self.comms.get(comm.0)
            && let Some(last) = self.last_of_others(state)
        {
            self.pml.note_failed(last);
        }
    }

    /// A member that ended normally, if all members beside this process have ended or failed. So nothing can come from any source.
    fn last_of_others(&self, state: &CommState<'m>) -> Option<Peer> {
        if !self.pml.has_lost_any() {
            return None;
        }
        let own = state.peer(state.rank);
        let mut others = state.members().filter(|peer| Some(*peer) != own).peekable();
        let closed = |peer: Peer| self.pml.why_lost(peer) == Some(Lost::Closed);
        others.peek()?;
        others
            .try_fold(None, |last, peer| self.pml.is_lost(peer).then(|| if closed(peer) { Some(peer) } else { last }))?
    }

    /// A receive that the device has, or a receive from a rank that is not in the communicator any more. If its peer was replaced,
    /// the receive is begun and ends with a failure, as a receive from a lost peer does.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    #[cold]
    #[inline(never)]
    unsafe fn irecv_elsewhere(&mut self, comm: Comm, source: Source, tag: Tag, sink: Span) -> Result<Request, Refusal> {
        let state = self.comms.get(comm.0).ok_or(Refusal::Invalid)?;
        if state.offloaded().is_some() && self.excluded(comm, source).is_none() {
            // SAFETY: passed on from the caller.
            return unsafe { self.irecv_offloaded(comm, source, tag, sink) };
        }
        let Some(peer) = self.excluded(comm, source) else { return Err(Refusal::Invalid) };
        let tag = tag.word().ok_or(Refusal::Invalid)?;
        let pattern = Pattern { context: state.context, source: peer.0, tag };
        // SAFETY: passed on from the caller.
        let request = unsafe { self.pml.irecv(pattern, sink) }?;
        self.pml.interrupt(request, peer, true);
        Ok(request)
    }

    /// The peer of a rank that was lost since the communicator was made and has rejoined: it is another process, which is not in
    /// the communicator.
    pub fn excluded(&self, comm: Comm, rank: Source) -> Option<Peer> {
        let (state, Source::Rank(rank)) = (self.comms.get(comm.0)?, rank) else { return None };
        state.peer(rank).filter(|peer| state.excludes(self.rejoins.of(*peer)))
    }

    /// The refusal for a rank that is not in the communicator.
    #[cold]
    pub(super) fn refusal(&self, comm: Comm, rank: Source) -> Refusal {
        self.excluded(comm, rank).map_or(Refusal::Invalid, Refusal::Restarted)
    }

    /// Sends, and returns when the memory may be reused. `idle` is called between steps: it waits if the caller wants that, and
    /// returns the present time.
    ///
    /// # Errors
    /// `Err(refusal)` if nothing was begun, `Ok(failure)` if the send has ended with a [`Failure`].
    ///
    /// # Safety
    /// `idle` does not unwind: otherwise the engine would keep the address of `data` beyond its borrow.
    pub unsafe fn send(
        &mut self,
        comm: Comm,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: &[u8],
        idle: impl FnMut() -> Instant,
    ) -> Result<(), Result<Failure, Refusal>> {
        // SAFETY: `data` is borrowed until this returns, which it does only with the outcome.
        match unsafe { self.isend(comm, dest, tag, mode, Span::of(data)) } {
            Ok(Sending::Complete) => Ok(()),
            Ok(Sending::Pending(request)) => self.wait(request, idle).map(|_| ()).map_err(Ok),
            Err(refusal) => Err(Err(refusal)),
        }
    }

    /// Receives, and returns when the message is in `sink`. `idle` is as in [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// `idle` does not unwind: otherwise the engine would keep the address of `sink` beyond its borrow.
    pub unsafe fn recv(
        &mut self,
        comm: Comm,
        source: Source,
        tag: Tag,
        sink: &mut [u8],
        idle: impl FnMut() -> Instant,
    ) -> Result<Status, Result<Failure, Refusal>> {
        let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
        // SAFETY: `sink` is borrowed until this returns, which it does only with the outcome.
        let request = unsafe { self.irecv(comm, source, tag, span) }.map_err(Err)?;
        self.wait(request, idle).map_err(Ok)
    }

    /// Makes progress until a request is over, and takes its outcome. `idle` is as in [`send`](Self::send).
    ///
    /// # Errors
    /// The [`Failure`] with which the request ended.
    pub fn wait(&mut self, request: Request, mut idle: impl FnMut() -> Instant) -> Result<Status, Failure> {
        loop {
            if let Some(outcome) = self.pml.test(request) {
                return outcome;
            }
            let now = idle();
            self.progress(now);
        }
    }

    /// Finds a message and does not take it, as `MPI_Iprobe` does: the next receive with this source and tag gets the message.
    /// `None` if there is none yet, or if there is no such communicator, rank or tag.
    pub fn iprobe(&mut self, comm: Comm, source: Source, tag: Tag) -> Option<Envelope> {
        let Some(pattern) = self.pattern(comm, source, tag) else {
            return self.iprobe_offloaded(comm, source, tag);
        };
        self.pml.iprobe(pattern)
    }

    /// Takes a message out of the queues, for [`imrecv`](Self::imrecv) alone. See [`Pml::improbe`].
    ///
    /// # Errors
    /// [`Refusal::Busy`] if there is a message and no free request for it. [`Refusal::Invalid`] if there is no such communicator,
    /// rank or tag. [`Refusal::Restarted`] if the rank's peer was replaced since the communicator was made.
    pub fn improbe(&mut self, comm: Comm, source: Source, tag: Tag) -> Result<Option<(Message, Envelope)>, Refusal> {
        let Some(pattern) = self.pattern(comm, source, tag) else {
            return self.improbe_offloaded(comm, source, tag);
        };
        self.pml.improbe(pattern)
    }

    /// Receives a message that was taken. See [`Pml::imrecv`].
    ///
    /// # Errors
    /// The refusal and the message, which is still taken and may be received later.
    ///
    /// # Safety
    /// As [`Pml::imrecv`].
    pub unsafe fn imrecv(&mut self, message: Message, sink: Span) -> Result<Request, (Refusal, Message)> {
        if let Some((request, found)) = self.pml.offloaded_message(&message) {
            // SAFETY: passed on from the caller.
            return unsafe { self.imrecv_offloaded(request, &found, message, sink) };
        }
        // SAFETY: passed on from the caller.
        unsafe { self.pml.imrecv(message, sink) }
    }

    /// Cancels a receive that has not matched. See [`Pml::cancel`].
    pub fn cancel(&mut self, request: Request) -> bool {
        self.pml.cancel(request) || self.cancel_offloaded(request, true)
    }

    /// Cancels a send of which nothing has left. See [`Pml::cancel_send`].
    pub fn cancel_send(&mut self, request: Request) -> bool {
        self.pml.cancel_send(request) || self.cancel_offloaded(request, false)
    }

    /// The outcome of a request, once it is over. See [`Pml::test`].
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        self.pml.test(request)
    }

    /// Takes the outcome of a receive that has got all of its message. See [`Pml::take_received`].
    #[inline]
    pub fn take_received(&mut self, request: Request) -> Option<Status> {
        self.pml.take_received(request)
    }

    /// Handles arrived frames and sends waiting frames. See [`Pml::progress`].
    #[inline(always)]
    pub fn progress(&mut self, now: Instant) -> u32 {
        let events = self.pml.progress(now);
        if self.pml.has_failure_to_report() {
            self.report_failures();
        }
        if self.pml.offload().is_some() { events.wrapping_add(self.progress_offload()) } else { events }
    }

    /// Reports losses of peers: receives from any source end if a member of their communicator failed, since their message may
    /// have been to come from it, or if no other member is left.
    #[cold]
    #[inline(never)]
    fn report_failures(&mut self) {
        while let Some(peer) = self.pml.next_failed() {
            let failed = self.pml.is_failed(peer);
            if failed && let Some(device) = self.pml.offload() {
                device.lose_peer(peer);
            }
            if !RECOVERY {
                if let Some(gone) = self.pml.keeps_away() {
                    self.pml.interrupt_any_source(gone);
                }
                continue;
            }
            let rejoined = self.rejoins.of(peer);
            for slot in 0..self.comms.capacity() {
                // A process that has a member's place after a restart is not that member.
                let is_member = |state: &&mut CommState<'_>| state.rank_of(peer).is_some() && !state.excludes(rejoined);
                let Some(state) = self.comms.at_mut(slot).filter(is_member) else { continue };
                let context = state.context;
                if failed {
                    state.fail(peer);
                    self.pml.interrupt_all(context, peer);
                } else if let Some(state) = self.comms.at(slot)
                    && let Some(last) = self.last_of_others(state)
                {
                    self.pml.interrupt_all(context, last);
                }
            }
        }
    }

    /// The peer whose loss or failure may keep all messages from `source` away: a receive or a probe that finds no message now
    /// might never complete.
    ///
    /// - For a rank: its peer, if that was lost, even if another process has its place now.
    /// - For any source: a member that failed, until that is [acknowledged](Self::acknowledge); or a member that ended normally, if
    ///   all members beside this process are lost.
    ///
    /// A peer that ended normally has not failed.
    pub fn failed(&self, comm: Comm, source: Source) -> Option<Peer> {
        let state = self.comms.get(comm.0)?;
        match source {
            Source::Rank(rank) => {
                let gone = |peer: &Peer| self.pml.is_lost(*peer) || state.excludes(self.rejoins.of(*peer));
                state.peer(rank).filter(gone)
            }
            Source::Any => state.failed().or_else(|| self.last_of_others(state)),
        }
    }

    /// The reason why a peer was lost. `None` if it was not lost.
    pub fn why_lost(&self, peer: Peer) -> Option<Lost> {
        self.pml.why_lost(peer)
    }

    /// The member of a communicator that failed last, whether that was acknowledged or not. `None` if no member failed, or if it
    /// has rejoined as a member. If there is such a member, a collective operation of all members cannot complete.
    pub fn broken(&self, comm: Comm) -> Option<Peer> {
        self.comms.get(comm.0)?.broken()
    }

    /// Acknowledges the failures of members so far, as `MPIX_Comm_failure_ack` does: receives from any source wait for the other
    /// members from now on. A later failure ends them again, once.
    pub fn acknowledge(&mut self, comm: Comm) {
        if let Some(state) = self.comms.get_mut(comm.0) {
            state.acknowledge();
            if let Some((number, device)) = state.offloaded().zip(self.pml.offload()) {
                device.acknowledge(number);
            }
        }
    }

    /// The sends and receives in progress. See [`Pml::operations`]. [`comm_of`](Self::comm_of) finds the communicator of each.
    pub fn operations(&self) -> impl Iterator<Item = InProgress> {
        self.pml.operations()
    }

    /// The messages that have arrived, and that no receive has taken. See [`Pml::unreceived`]. A message that arrived before its
    /// communicator was made, or after it was deleted, has a context without a communicator.
    pub fn unreceived(&self) -> impl Iterator<Item = Unreceived> {
        self.pml.unreceived()
    }

    /// The one-sided operations of this side whose end was not reported yet. See [`Pml::one_sided_operations`].
    pub fn one_sided_operations(&self) -> impl Iterator<Item = (Operation, Peer)> {
        self.pml.one_sided_operations()
    }

    /// The number of messages from a peer that have arrived since it was added, modulo 2^32. A message that arrives before an earlier
    /// one is counted with that one.
    pub fn arrived(&self, peer: Peer) -> u32 {
        self.pml.arrived(peer)
    }

    /// The context of a communicator. `None` if it was deleted.
    pub fn context_of(&self, comm: Comm) -> Option<u32> {
        self.comms.get(comm.0).map(|state| state.context)
    }

    /// The communicator with this context, if there is one. A search among all communicators.
    pub fn comm_of(&self, context: u32) -> Option<Comm> {
        let has_context = |slot: &u32| self.comms.at(*slot).is_some_and(|state| state.context == context);
        let slot = (0..self.comms.touched()).find(has_context)?;
        self.comms.handle(slot).map(Comm)
    }

    /// The peer of a rank of a communicator. `None` if there is no such rank, or if the communicator was deleted.
    pub fn peer_of(&self, comm: Comm, rank: u32) -> Option<Peer> {
        self.comms.get(comm.0)?.peer(rank)
    }

    /// Counts of events since set-up.
    pub fn counters(&self) -> &Counters {
        self.pml.counters()
    }

    /// The rails.
    pub fn rails(&self) -> &R {
        self.pml.rails()
    }

    /// The engine below.
    pub fn pml(&mut self) -> &mut Pml<'m, R> {
        &mut self.pml
    }

    /// The context of a communicator, and the peer of a rank in it.
    #[inline(always)]
    fn find(&mut self, comm: Comm, rank: u32) -> Option<(u32, u32)> {
        if comm.0.word() == self.recent.word && rank < self.recent.world {
            return Some((self.recent.context, rank));
        }
        self.find_again(comm, rank)
    }

    /// As [`find`](Self::find), for a communicator that is not the last one, or in which rank r is not always peer r.
    #[inline(never)]
    fn find_again(&mut self, comm: Comm, rank: u32) -> Option<(u32, u32)> {
        let state = self.comms.get(comm.0).filter(|state| state.offloaded().is_none())?;
        let aged = state.is_aged(self.rejoins.all());
        let world = if aged { 0 } else { state.world() };
        self.recent = RecentComm { word: comm.0.word(), context: state.context, world };
        let peer = state.peer(rank)?;
        (!aged || !state.excludes(self.rejoins.of(peer))).then_some((state.context, peer.0))
    }

    /// The pattern of a receive or probe. `None` if there is no such communicator, rank or tag.
    #[inline]
    fn pattern(&mut self, comm: Comm, source: Source, tag: Tag) -> Option<Pattern> {
        let (context, source) = match source {
            Source::Rank(rank) => self.find(comm, rank)?,
            Source::Any => (self.comms.get(comm.0).filter(|state| state.offloaded().is_none())?.context, ANY),
        };
        Some(Pattern { context, source, tag: tag.word()? })
    }
}
