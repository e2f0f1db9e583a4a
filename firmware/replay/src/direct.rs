//! Contexts that call the matching transport of the core, over any rails.

use core::fmt;
use core::marker::PhantomData;

use offload::failures::{of_communicator, of_refusal, result_of};
use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Source, Tag};
use towline_core::pml::{self, Envelope, Message, Rails, Request, Sending};
use towline_core::time::Instant;
use towline_window::command::{ANY, Mode};
use towline_window::completion::{Done, Failure};

use crate::contexts::{Contexts, Place};
use crate::replay::NAMES;

/// What is known of an operation. One that was over at once is a send, or was refused: it has no more to tell, so the table stays
/// small.
#[derive(Debug)]
enum State {
    Unknown,
    Running { at: u32, request: Request, comm: Comm, is_send: bool },
    Over(Result<(), Failure>),
    Taken { at: u32, message: Message, comm: Comm },
}

/// Contexts over the rails `R`, which are driven by one thread. Context c is at index c.
pub struct Direct<'s, 'm, R, F> {
    sides: &'s mut [Mtl<'m, R>],
    states: &'m mut [State],
    /// For the tables of communicators.
    arena: Arena<'m>,
    memory: *mut u8,
    bytes: usize,
    /// The time at each call of progress.
    now: F,
    lifetime: PhantomData<&'s mut [u8]>,
}

impl<R, F> fmt::Debug for Direct<'_, '_, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("contexts", &self.sides.len()).finish_non_exhaustive()
    }
}

impl<'s, 'm, R: Rails, F: FnMut() -> Instant> Direct<'s, 'm, R, F> {
    /// The memory of the tables, in bytes, if the trace makes up to `tables` communicators of named peers.
    pub const fn bytes(tables: usize) -> usize {
        let each = Arena::cost::<u32>(crate::step::RANKS);
        Arena::cost::<State>(NAMES as usize).saturating_add(each.saturating_mul(tables))
    }

    /// These contexts, which know each other, with tables from `arena`, and with `memory` for messages. `now` returns the time.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        sides: &'s mut [Mtl<'m, R>],
        memory: &'s mut [u8],
        mut arena: Arena<'m>,
        now: F,
    ) -> Result<Self, OutOfMemory> {
        let states = arena.each(NAMES as usize, |_, _| Ok(State::Unknown))?;
        let (bytes, memory) = (memory.len(), memory.as_mut_ptr());
        Ok(Self { sides, states, arena, memory, bytes, now, lifetime: PhantomData })
    }

    /// The contexts.
    pub const fn sides(&mut self) -> &mut [Mtl<'m, R>] {
        self.sides
    }

    fn side(&mut self, at: u32) -> Option<&mut Mtl<'m, R>> {
        self.sides.get_mut(at as usize)
    }

    /// A context, and a communicator of it.
    fn find(&mut self, at: u32, context: u32) -> Result<(&mut Mtl<'m, R>, Comm), Failure> {
        let side = self.side(at).ok_or(Failure::NoSuchThing)?;
        let comm = side.comm_of(context).ok_or(Failure::NoSuchThing)?;
        Ok((side, comm))
    }

    /// The memory of a place.
    fn span(&self, place: Place) -> Option<Span> {
        let end = place.at.checked_add(place.bytes)?;
        // SAFETY: the place is in the memory, which belongs to this object.
        let begin = || unsafe { self.memory.add(place.at) };
        (end <= self.bytes).then(|| Span::contiguous(begin(), place.bytes))
    }

    fn note(&mut self, name: u32, state: State) {
        if let Some(entry) = self.states.get_mut(name as usize) {
            *entry = state;
        }
    }

    fn over(&mut self, name: u32, result: Result<State, Failure>) {
        self.note(name, result.unwrap_or_else(|why| State::Over(Err(why))));
    }

    fn begin_send(
        &mut self,
        at: u32,
        (context, dest, tag, mode): (u32, u32, u32, Mode),
        place: Place,
    ) -> Result<State, Failure> {
        let span = self.span(place).ok_or(Failure::OutOfBounds)?;
        let mode = match mode {
            Mode::Standard => pml::Mode::Standard,
            Mode::Synchronous => pml::Mode::Synchronous,
            Mode::Complete => pml::Mode::Complete,
            Mode::Ready => pml::Mode::Ready,
        };
        let (side, comm) = self.find(at, context)?;
        // SAFETY: the place belongs to this operation until its outcome is taken, and the memory outlives this object. Nothing makes
        // progress after this object ends.
        match unsafe { side.isend(comm, dest, tag, mode, span) } {
            Ok(Sending::Complete) => Ok(State::Over(Ok(()))),
            Ok(Sending::Pending(request)) => Ok(State::Running { at, request, comm, is_send: true }),
            Err(refusal) => Err(of_refusal(&refusal)),
        }
    }

    fn begin_receive(
        &mut self,
        at: u32,
        (context, source, tag): (u32, u32, u32),
        place: Place,
    ) -> Result<State, Failure> {
        let span = self.span(place).ok_or(Failure::OutOfBounds)?;
        let (side, comm) = self.find(at, context)?;
        // SAFETY: as in `begin_send`.
        let begun = unsafe { side.irecv(comm, source_of(source), tag_of(tag), span) };
        let request = begun.map_err(|refusal| of_refusal(&refusal))?;
        Ok(State::Running { at, request, comm, is_send: false })
    }

    fn begin_taken(&mut self, taken: u32, place: Place) -> Result<State, Failure> {
        let span = self.span(place).ok_or(Failure::OutOfBounds)?;
        let entry = self.states.get_mut(taken as usize).ok_or(Failure::NoSuchThing)?;
        let State::Taken { at, message, comm } = core::mem::replace(entry, State::Unknown) else {
            return Err(Failure::NoSuchThing);
        };
        let side = self.side(at).ok_or(Failure::NoSuchThing)?;
        // SAFETY: as in `begin_send`.
        match unsafe { side.imrecv(message, span) } {
            Ok(request) => Ok(State::Running { at, request, comm, is_send: false }),
            Err((refusal, message)) => {
                self.note(taken, State::Taken { at, message, comm });
                Err(of_refusal(&refusal))
            }
        }
    }
}

/// What a probe found.
fn found<R: Rails>(side: &Mtl<'_, R>, comm: Comm, envelope: &Envelope) -> Done {
    let Envelope { peer, tag, len } = *envelope;
    Done { rank: side.rank_of(comm, peer).unwrap_or(ANY), tag, received: len, ..Done::default() }
}

impl<R: Rails, F: FnMut() -> Instant> Contexts for Direct<'_, '_, R, F> {
    const PATIENCE: u32 = 1_000_000;

    fn progress(&mut self) {
        let now = (self.now)();
        for side in self.sides.iter_mut() {
            side.progress(now);
        }
    }

    fn poll(&mut self, at: u32) {
        let now = (self.now)();
        if let Some(side) = self.side(at) {
            side.progress(now);
        }
    }

    fn join(&mut self, at: u32, context: u32, peers: &[u32]) -> Result<(), Failure> {
        let size = self.sides.len() as u32;
        let (group, rank) = if peers.is_empty() {
            (Group::World { size }, at)
        } else {
            let table = self.arena.table::<u32>(peers.len()).map_err(|_| Failure::Full)?;
            table.iter_mut().zip(peers).for_each(|(entry, peer)| *entry = *peer);
            let rank = peers.iter().position(|peer| *peer == at).ok_or(Failure::Malformed)?;
            (Group::Table(table), rank as u32)
        };
        let side = self.side(at).ok_or(Failure::NoSuchThing)?;
        side.add_comm(context, group, rank).map(|_| ()).map_err(of_communicator)
    }

    fn leave(&mut self, at: u32, context: u32) -> Result<(), Failure> {
        let (side, comm) = self.find(at, context)?;
        side.del_comm(comm);
        Ok(())
    }

    fn send(&mut self, name: u32, at: u32, context: u32, dest: u32, tag: u32, mode: Mode, place: Place) {
        let begun = self.begin_send(at, (context, dest, tag, mode), place);
        self.over(name, begun);
    }

    fn receive(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32, place: Place) {
        let begun = self.begin_receive(at, (context, source, tag), place);
        self.over(name, begun);
    }

    fn probe(&mut self, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let (side, comm) = self.find(at, context)?;
        check_rank(side, comm, source)?;
        let envelope = side.iprobe(comm, source_of(source), tag_of(tag)).ok_or(Failure::NotFound)?;
        Ok(found(side, comm, &envelope))
    }

    fn take(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let (side, comm) = self.find(at, context)?;
        check_rank(side, comm, source)?;
        let taken = side.improbe(comm, source_of(source), tag_of(tag)).map_err(|refusal| of_refusal(&refusal))?;
        let (message, envelope) = taken.ok_or(Failure::NotFound)?;
        let done = found(side, comm, &envelope);
        self.note(name, State::Taken { at, message, comm });
        Ok(done)
    }

    fn receive_taken(&mut self, name: u32, taken: u32, place: Place) {
        let begun = self.begin_taken(taken, place);
        self.over(name, begun);
    }

    fn cancel(&mut self, name: u32) -> bool {
        let Some(State::Running { at, request, is_send, .. }) = self.states.get(name as usize) else { return false };
        let (at, request, is_send) = (*at, *request, *is_send);
        let Some(side) = self.side(at) else { return false };
        if is_send { side.cancel_send(request) } else { side.cancel(request) }
    }

    fn outcome(&mut self, name: u32) -> Option<Result<Done, Failure>> {
        let entry = self.states.get_mut(name as usize)?;
        match entry {
            State::Running { at, request, comm, is_send } => {
                let (side, comm, is_send) = (self.sides.get_mut(*at as usize)?, *comm, *is_send);
                let outcome = side.test(*request)?;
                *entry = State::Unknown;
                let result = result_of(outcome, None, |status| side.rank_of(comm, status.peer));
                Some(if is_send { result.map(|_| Done::default()) } else { result })
            }
            State::Over(result) => {
                let result = result.map(|()| Done::default());
                *entry = State::Unknown;
                Some(result)
            }
            State::Unknown | State::Taken { .. } => None,
        }
    }

    fn write(&mut self, _at: u32, begin: usize, bytes: &[u8]) {
        if begin.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes) {
            // SAFETY: the bytes are in the memory, which belongs to this object, and no operation in progress uses them.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.add(begin), bytes.len()) };
        }
    }

    fn read(&mut self, _at: u32, begin: usize, into: &mut [u8]) {
        if begin.checked_add(into.len()).is_some_and(|end| end <= self.bytes) {
            // SAFETY: as in `write`.
            unsafe { core::ptr::copy_nonoverlapping(self.memory.add(begin), into.as_mut_ptr(), into.len()) };
        }
    }
}

/// Refuses a rank that is not in a communicator.
fn check_rank<R: Rails>(side: &Mtl<'_, R>, comm: Comm, source: u32) -> Result<(), Failure> {
    if source != ANY && side.peer_of(comm, source).is_none() { Err(Failure::NoSuchThing) } else { Ok(()) }
}

const fn source_of(rank: u32) -> Source {
    if rank == ANY { Source::Any } else { Source::Rank(rank) }
}

const fn tag_of(tag: u32) -> Tag {
    if tag == ANY { Tag::Any } else { Tag::Is(tag) }
}
