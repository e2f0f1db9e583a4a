//! The matching transport.

use super::communicator::{Comm, Group};
use super::errors::CommError;
use super::rejoins::Rejoins;
use super::source::{Source, Tag};
use super::state::CommState;
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::{
    Config, Counters, EnableError, Envelope, Failure, Message, Mode, PARAMS, Pml, Rails, Refusal, Request, Sending,
    SetUpError, Status,
};
use crate::pool::{Handle, Pool};
use crate::rail::{Endpoint, Peer, Unreachable};
use crate::time::Instant;

/// Limits of the transport (CONTRACTS M16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Attributes {
    /// The largest context. The smallest is 0.
    pub max_context: u32,
    /// The largest tag that [`Tag::Any`] takes. The smallest is 0.
    pub max_tag: u32,
    /// Bytes that a caller keeps for each request: those of the word of [`Request::to_bits`].
    pub request_bytes: usize,
}

/// The matching transport: the engine ([`Pml`]) with communicators. It is used by one thread at a time, and may move between
/// threads.
#[derive(Debug)]
pub struct Mtl<'m, R> {
    pml: Pml<'m, R>,
    comms: Pool<'m, CommState<'m>>,
    recent: RecentComm,
    rejoins: Rejoins<'m>,
}

/// The communicator that was looked up last. Most programs use one for long.
#[derive(Clone, Copy, Debug)]
struct RecentComm {
    /// [`Handle::word`] of its handle.
    word: u64,
    context: u32,
    /// The number of ranks that are the peers of the same number.
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
        let rejoins = Arena::cost::<u32>(config.peers as usize);
        config.bytes(rails).saturating_add(Pool::<CommState<'m>>::cost(communicators)).saturating_add(rejoins)
    }

    /// Makes a transport over `rails`, with tables cut from `arena`. It is local: nothing is sent before a peer is added (M2).
    ///
    /// # Errors
    /// [`SetUpError`] if the arena has less than [`Mtl::bytes`] left, or if a limit is too small.
    pub fn new(config: Config, communicators: u32, arena: &mut Arena<'m>, rails: R) -> Result<Self, SetUpError> {
        let rejoins = Rejoins { all: 0, last: arena.table(config.peers as usize)? };
        let (pml, comms) = (Pml::new(config, arena, rails)?, Pool::new(arena, communicators)?);
        Ok(Self { pml, comms, recent: RecentComm::NONE, rejoins })
    }

    /// Ends the transport, whether it ever had peers or not (M4). It forgets the peers, undoes the preparations of the rails, and
    /// returns the rails, which the caller closes. Requests and messages end with it: their memory is not accessed any more.
    pub fn finalize(self) -> R {
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
        self.report_failures(); // else a failure that was not reported yet would be forgotten
        let lost = self.pml.is_lost(peer);
        self.pml.add_peer(peer, params, reach)?;
        self.restore(peer, lost);
        Ok(())
    }

    /// A peer was added. `lost`: another one was lost at its place.
    fn restore(&mut self, peer: Peer, lost: bool) {
        if lost {
            self.note_return(peer);
        }
        let rejoined = self.rejoins.of(peer);
        for slot in 0..self.comms.capacity() {
            let misses = |state: &&mut CommState<'_>| state.misses(peer) && !state.excludes(rejoined);
            if let Some(state) = self.comms.at_mut(slot).filter(misses) {
                // Its failure may have covered that of another member, which has not rejoined.
                let pml = &self.pml;
                let other = state.members().find(|other| *other != peer && pml.is_failed(*other));
                state.restore(peer, other);
            }
        }
    }

    /// The next peer at the place of a lost one is another.
    fn note_return(&mut self, peer: Peer) {
        self.recent = RecentComm::NONE;
        self.rejoins.note(peer);
    }

    /// Adds peers, all or none (M5): `params(peer)` and `reach(peer, i, rail)` as in [`Pml::add_peer`].
    ///
    /// # Errors
    /// The first peer that cannot be reached, and why. The peers before it are forgotten again.
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
    }

    /// Enables or disables a rail: see [`Pml::enable_rail`].
    ///
    /// # Errors
    /// As [`Pml::enable_rail`].
    pub fn enable_rail(&mut self, index: usize, on: bool) -> Result<(), EnableError> {
        self.pml.enable_rail(index, on)
    }

    /// Makes a communicator of a context that all its members use. This process is its rank `rank`. Messages for it that have
    /// arrived already are kept for it (M15).
    ///
    /// Its members are the present peers. A member that is lost and then [added](Self::add_peer) again is another process, which is
    /// not in the communicator. In this communicator, sends to it and receives from it end with an error, and so does a receive
    /// from any source, until the failure is [acknowledged](Self::acknowledge).
    ///
    /// # Errors
    /// [`CommError`]: nothing is kept then.
    pub fn add_comm(&mut self, context: u32, group: Group<'m>, rank: u32) -> Result<Comm, CommError> {
        self.add(CommState::new(context, group, rank, Some(self.rejoins.all))?)
    }

    /// The same for a communicator that each process makes at its start, even a process that replaces a lost one: its ranks are
    /// whichever peers are at their places.
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
        self.comms.take(state).map(Comm).map_err(|_| CommError::Full)
    }

    /// Deletes a communicator. Its messages that were not received are dropped and their senders told. Its posted receives are
    /// cancelled.
    pub fn del_comm(&mut self, comm: Comm) {
        self.recent = RecentComm::NONE;
        if let Some(state) = self.comms.free(comm.0) {
            self.pml.purge(state.context);
        }
    }

    /// This process's rank in a communicator.
    pub fn rank(&self, comm: Comm) -> Option<u32> {
        self.comms.get(comm.0).map(|state| state.rank)
    }

    /// The rank of a peer in a communicator, as for the peer of a [`Status`].
    pub fn rank_of(&self, comm: Comm, peer: Peer) -> Option<u32> {
        self.comms.get(comm.0)?.rank_of(peer)
    }

    /// Sends to rank `dest`. See [`Pml::isend`].
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
        let Some((context, peer)) = self.find(comm, dest) else { return Err(self.refusal(comm, Source::Rank(dest))) };
        if tag == ANY {
            return Err(Refusal::Invalid);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.pml.isend(Peer(peer), context, tag, mode, data) }
    }

    /// Receives. See [`Pml::irecv`].
    ///
    /// A receive from any source that finds no message ends with [`Failure::PeerFailed`] while the failure of a member is not
    /// [acknowledged](Self::acknowledge).
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// As [`Pml::irecv`].
    // Always inlined: a call costs more than the function itself, since span and request would go through memory, stored in parts
    // and loaded whole.
    #[inline(always)]
    pub unsafe fn irecv(&mut self, comm: Comm, source: Source, tag: Tag, sink: Span) -> Result<Request, Refusal> {
        let Some(pattern) = self.pattern(comm, source, tag) else {
            // SAFETY: passed on from the caller.
            return unsafe { self.irecv_from_excluded(comm, source, tag, sink) };
        };
        // SAFETY: passed on from the caller.
        let request = unsafe { self.pml.irecv(pattern, sink) }?;
        if pattern.source == ANY {
            self.interrupt_among_failed(comm, request);
        }
        Ok(request)
    }

    /// Ends a receive from any source whose message has not arrived, if a member failed.
    #[inline(never)]
    fn interrupt_among_failed(&mut self, comm: Comm, request: Request) {
        if let Some(state) = self.comms.get(comm.0)
            && let Some(failed) = state.failed()
        {
            let back = state.excludes(self.rejoins.of(failed));
            self.pml.interrupt(request, failed, back);
        }
    }

    /// A receive from a rank that is not in the communicator. If the rank's peer was lost, the receive ends as one from a lost peer
    /// does, since a send at the same time does so, too.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    #[cold]
    #[inline(never)]
    unsafe fn irecv_from_excluded(
        &mut self,
        comm: Comm,
        source: Source,
        tag: Tag,
        sink: Span,
    ) -> Result<Request, Refusal> {
        let state = self.comms.get(comm.0).ok_or(Refusal::Invalid)?;
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

    /// Why there is no such rank.
    #[cold]
    fn refusal(&self, comm: Comm, rank: Source) -> Refusal {
        self.excluded(comm, rank).map_or(Refusal::Invalid, Refusal::Restarted)
    }

    /// Sends, and returns when the memory may be reused. `idle` is called between steps: it waits as the caller likes, and returns
    /// the time.
    ///
    /// # Errors
    /// A [`Refusal`] if nothing was begun, else the [`Failure`] with which the send ended.
    ///
    /// # Safety
    /// `idle` does not unwind: the engine would keep an address of `data` beyond its borrow.
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

    /// Receives, and returns when the message is there.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// `idle` does not unwind: the engine would keep an address of `sink` beyond its borrow.
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

    /// Makes progress until a request is over.
    ///
    /// # Errors
    /// The [`Failure`] with which it ended.
    pub fn wait(&mut self, request: Request, mut idle: impl FnMut() -> Instant) -> Result<Status, Failure> {
        loop {
            if let Some(outcome) = self.pml.test(request) {
                return outcome;
            }
            let now = idle();
            self.progress(now);
        }
    }

    /// Finds a message and does not take it, as `MPI_Iprobe` does: the message found stays the first for its receive.
    pub fn iprobe(&mut self, comm: Comm, source: Source, tag: Tag) -> Option<Envelope> {
        let pattern = self.pattern(comm, source, tag)?;
        self.pml.iprobe(pattern)
    }

    /// Takes a message out of the queues, for [`imrecv`](Self::imrecv) alone. See [`Pml::improbe`].
    ///
    /// # Errors
    /// [`Refusal::Busy`] if there is a message and no request for it. [`Refusal::Invalid`] if there is no such communicator, rank
    /// or tag. [`Refusal::Restarted`] as its docs say.
    pub fn improbe(&mut self, comm: Comm, source: Source, tag: Tag) -> Result<Option<(Message, Envelope)>, Refusal> {
        let pattern = self.pattern(comm, source, tag).ok_or_else(|| self.refusal(comm, source))?;
        self.pml.improbe(pattern)
    }

    /// Receives a message that was taken. See [`Pml::imrecv`].
    ///
    /// # Errors
    /// The refusal with the message, which stays taken.
    ///
    /// # Safety
    /// As [`Pml::imrecv`].
    pub unsafe fn imrecv(&mut self, message: Message, sink: Span) -> Result<Request, (Refusal, Message)> {
        // SAFETY: passed on from the caller.
        unsafe { self.pml.imrecv(message, sink) }
    }

    /// Cancels a receive that has not matched. See [`Pml::cancel`].
    pub fn cancel(&mut self, request: Request) -> bool {
        self.pml.cancel(request)
    }

    /// The outcome of a request, once it is over. See [`Pml::test`].
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        self.pml.test(request)
    }

    /// Handles arrived frames and sends waiting frames. See [`Pml::progress`].
    #[inline(always)]
    pub fn progress(&mut self, now: Instant) -> u32 {
        let events = self.pml.progress(now);
        if self.pml.has_failure_to_report() {
            self.report_failures();
        }
        events
    }

    /// Reports failures of peers: receives from any source end if a member of their communicator failed, since their message may
    /// have been to come from it.
    #[cold]
    #[inline(never)]
    fn report_failures(&mut self) {
        while let Some(peer) = self.pml.next_failed() {
            for slot in 0..self.comms.capacity() {
                let Some(state) = self.comms.at_mut(slot).filter(|state| state.rank_of(peer).is_some()) else {
                    continue;
                };
                state.fail(peer);
                self.pml.interrupt_all(state.context, peer);
            }
        }
    }

    /// The peer because of which no message may come from `source`, now or ever: a receive or a probe that finds no message now
    /// would never complete.
    ///
    /// - For a rank: its peer, if it was lost, even if it has rejoined since the communicator was made.
    /// - For any source: a member that failed, until that is [acknowledged](Self::acknowledge).
    ///
    /// A peer that ended normally has not failed.
    pub fn failed(&self, comm: Comm, source: Source) -> Option<Peer> {
        let state = self.comms.get(comm.0)?;
        match source {
            Source::Rank(rank) => {
                let gone = |peer: &Peer| self.pml.is_lost(*peer) || state.excludes(self.rejoins.of(*peer));
                state.peer(rank).filter(gone)
            }
            Source::Any => state.failed(),
        }
    }

    /// The member of a communicator that failed last, acknowledged or not, unless it has rejoined as a member. A collective
    /// operation of all members cannot come to an end.
    pub fn broken(&self, comm: Comm) -> Option<Peer> {
        self.comms.get(comm.0)?.broken()
    }

    /// Acknowledges the failures of members so far, as `MPIX_Comm_failure_ack` does: receives from any source wait for the other
    /// members from now on. A later failure ends them again, once.
    pub fn acknowledge(&mut self, comm: Comm) {
        if let Some(state) = self.comms.get_mut(comm.0) {
            state.acknowledge();
        }
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

    /// The same if it is not the communicator that was looked up last, or not a world.
    #[inline(never)]
    fn find_again(&mut self, comm: Comm, rank: u32) -> Option<(u32, u32)> {
        let state = self.comms.get(comm.0)?;
        let aged = state.is_aged(self.rejoins.all);
        let world = if aged { 0 } else { state.world() };
        self.recent = RecentComm { word: comm.0.word(), context: state.context, world };
        let peer = state.peer(rank)?;
        (!aged || !state.excludes(self.rejoins.of(peer))).then_some((state.context, peer.0))
    }

    #[inline]
    fn pattern(&mut self, comm: Comm, source: Source, tag: Tag) -> Option<Pattern> {
        let (context, source) = match source {
            Source::Rank(rank) => self.find(comm, rank)?,
            Source::Any => (self.comms.get(comm.0)?.context, ANY),
        };
        Some(Pattern { context, source, tag: tag.word()? })
    }
}
