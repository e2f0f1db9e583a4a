//! What a server keeps of a session.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::mtl::Comm;
use towline_core::pml::{Message, Request};
use towline_core::rail::Peer;

use crate::numbers;

/// A send or receive in progress, of a message or of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The request.
    pub request: Request,
    /// The cookie of the command.
    pub cookie: u64,
    /// The communicator. `None` for a frame.
    pub comm: Option<Comm>,
    /// Whether it is a send.
    pub is_send: bool,
    /// The buffer of a frame ends with the news that this peer is lost.
    pub lost: Option<Peer>,
    /// The session that began it.
    pub session: u32,
    /// The place of its body, if that is in a host region.
    pub place: Option<u32>,
}

/// The operations, by the slot of their request.
#[derive(Debug)]
pub struct Operations<'m>(&'m mut [Option<Operation>]);

/// The slot of a request in the engine's pool.
fn slot_of(request: Request) -> usize {
    (request.to_bits() & u64::from(u32::MAX)) as usize
}

impl<'m> Operations<'m> {
    /// The bytes of tables for `requests` requests.
    pub const fn bytes(requests: u32) -> usize {
        Arena::cost::<Option<Operation>>(requests as usize)
    }

    /// No operations, with room for `requests` of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>, requests: u32) -> Result<Self, OutOfMemory> {
        Ok(Self(arena.filled(requests as usize, None)?))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Adds an operation.
    pub fn add(&mut self, operation: Operation) {
        if let Some(entry) = self.0.get_mut(slot_of(operation.request)) {
            *entry = Some(operation);
        }
    }

    /// Removes the operation of a request.
    pub fn remove(&mut self, request: Request) -> Option<Operation> {
        let entry = self.0.get_mut(slot_of(request))?;
        if entry.is_some_and(|operation| operation.request == request) { entry.take() } else { None }
    }

    /// A receive of a frame, in the present session, for which `is_it` holds. A search through the table.
    pub fn frame_buffer(&mut self, session: u32, mut is_it: impl FnMut(&Operation) -> bool) -> Option<&mut Operation> {
        let is_buffer = |operation: &Operation| {
            operation.comm.is_none() && !operation.is_send && operation.lost.is_none() && operation.session == session
        };
        self.0.iter_mut().flatten().find(|operation| is_buffer(operation) && is_it(operation))
    }

    /// The operation with a cookie. A search through the table.
    pub fn find(&self, session: u32, cookie: u64) -> Option<Operation> {
        let is_it = |operation: &&Operation| operation.cookie == cookie && operation.session == session;
        self.0.iter().flatten().find(is_it).copied()
    }
}

/// A communicator, and the storage for the peers of its ranks.
#[derive(Debug)]
struct Place<'m> {
    comm: Option<Comm>,
    /// Counts the uses of this place.
    uses: u16,
    peers: &'m mut [u32],
}

/// The communicators.
#[derive(Debug)]
pub struct Communicators<'m>(&'m mut [Place<'m>]);

impl<'m> Communicators<'m> {
    /// The bytes of tables for `count` communicators of up to `ranks` ranks.
    pub const fn bytes(count: u32, ranks: u32) -> usize {
        let each = Arena::cost::<u32>(ranks as usize);
        Arena::cost::<Place<'m>>(count as usize).saturating_add(each.saturating_mul(count as usize))
    }

    /// No communicators, with room for `count` of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>, count: u32, ranks: u32) -> Result<Self, OutOfMemory> {
        let place = |arena: &mut Arena<'m>, _| Ok(Place { comm: None, uses: 0, peers: arena.table(ranks as usize)? });
        Ok(Self(arena.each(count.min(1 << 16) as usize, place)?))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().filter(|place| place.comm.is_some()).count()
    }

    /// The communicator of a number.
    pub fn get(&self, number: u32) -> Option<Comm> {
        let (at, uses) = numbers::split(number);
        self.0.get(at).filter(|place| place.uses == uses)?.comm
    }

    /// Makes a communicator in a free place: `make` gets the storage for the peers of its ranks. Returns its number, or `None` if
    /// there is no free place.
    pub fn add<E>(&mut self, make: impl FnOnce(*mut u32, usize) -> Result<Comm, E>) -> Option<Result<u32, E>> {
        let (at, place) = (0_u32..).zip(self.0.iter_mut()).find(|(_, place)| place.comm.is_none())?;
        Some(make(place.peers.as_mut_ptr(), place.peers.len()).map(|comm| {
            place.comm = Some(comm);
            place.uses = place.uses.wrapping_add(1);
            numbers::join(at, place.uses)
        }))
    }

    /// Removes a communicator. Its storage is used again by the next one, so the caller deletes it from the transport before it
    /// adds another.
    pub fn remove(&mut self, number: u32) -> Option<Comm> {
        let (at, uses) = numbers::split(number);
        self.0.get_mut(at).filter(|place| place.uses == uses)?.comm.take()
    }

    /// Removes all communicators.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|place| place.comm = None);
    }
}

/// Messages that matched probes took out.
#[derive(Debug)]
pub struct Messages<'m>(&'m mut [Option<(Message, Comm)>]);

impl<'m> Messages<'m> {
    /// The bytes of a table for `count` messages.
    pub const fn bytes(count: u32) -> usize {
        Arena::cost::<Option<(Message, Comm)>>(count as usize)
    }

    /// No messages, with room for `count` of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        Ok(Self(arena.each(count as usize, |_, _| Ok(None))?))
    }

    /// Forgets all messages, which have ended with their peers.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|place| *place = None);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// A free place.
    pub fn free(&self) -> Option<u32> {
        self.0.iter().position(Option::is_none).and_then(|at| u32::try_from(at).ok())
    }

    /// Puts a message into a place.
    pub fn put(&mut self, at: u32, message: Message, comm: Comm) {
        if let Some(place) = self.0.get_mut(at as usize) {
            *place = Some((message, comm));
        }
    }

    /// Takes the message out of a place.
    pub fn take(&mut self, at: u32) -> Option<(Message, Comm)> {
        self.0.get_mut(at as usize)?.take()
    }
}
