//! The device as the matcher of an engine's communicators ([`Offload`]).
//!
//! The device has posted receives and unexpected messages, as long as its tables and its memory have room. If a receive finds no
//! room, the host takes the posted receives over (`takeover.rs`), until the last of them has matched.
//!
//! Messages of ordinary memory are copied to the device's buffers. So a short standard send is complete when it was copied. Sends
//! take at most half of the operations and of the memory, so that receives always find the other half.

use std::collections::{HashMap, HashSet, VecDeque};

use towline_core::convertor::Span;
use towline_core::pml::matching::ANY;
use towline_core::pml::offload::{Delivered, DeviceFailure, Ended, Found, Offload, Operation};
use towline_core::pml::{self, Mode, Request as EngineRequest, Sending};
use towline_core::rail::Peer;
use towline_window::completion;

use crate::errors::{Failure, Refusal};
use crate::takeover::{Next, Posted, Takeover};
use crate::transport::{Comm, Request, Status, Transport};

/// How long a process that ends waits for sends that the device still has.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Bytes of the longest standard send that is complete when it was copied. Whether the receiver takes a longer one is of interest to
/// its sender.
const SHORT: u64 = 1024;

/// What the engine waits for.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A send that was complete for its caller when it was copied.
    Nobody,
    /// A send.
    Send(EngineRequest),
    /// A receive.
    Receive(Posted),
}

/// A send that waits for room.
#[derive(Debug)]
struct HeldSend {
    operation: Operation,
    mode: Mode,
    data: Span,
}

/// A device that matches the messages of an engine. It is used by one thread at a time. When it is dropped, it waits for a few
/// seconds until the device has sent what it was given.
#[derive(Debug)]
pub struct Matching {
    transport: Transport,
    /// The peers that the device knows.
    peers: HashSet<u32>,
    /// The peer of each rank, for each communicator of the device.
    members: HashMap<u32, Box<[u32]>>,
    /// The operations that the device has.
    owners: HashMap<Request, Owner>,
    /// Bytes of the device's memory that sends have.
    send_bytes: u64,
    /// Sends that the device has.
    sends: u32,
    /// Sends that wait for room, in their order.
    held: VecDeque<HeldSend>,
    takeover: Takeover,
    /// Operations whose end the engine does not know yet.
    ended: VecDeque<Ended>,
    /// A probe found nothing, and the caller may ask again.
    probing: bool,
}

impl Matching {
    /// A device without peers.
    pub fn new(mut transport: Transport) -> Self {
        transport.list_ended();
        Self {
            transport,
            peers: HashSet::new(),
            members: HashMap::new(),
            owners: HashMap::new(),
            send_bytes: 0,
            sends: 0,
            held: VecDeque::new(),
            takeover: Takeover::default(),
            ended: VecDeque::new(),
            probing: false,
        }
    }

    /// The transport below.
    pub const fn transport(&mut self) -> &mut Transport {
        &mut self.transport
    }

    /// Name and version of the device's firmware.
    pub fn firmware(&self) -> &str {
        self.transport.card_of_window().map_or("", |card| card.description())
    }

    /// Adds a peer by the card of its device.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add_peer(&mut self, peer: u32, card: &[u8]) -> Result<(), Refusal> {
        if self.peers.contains(&peer) {
            self.transport.lose_peer(peer)?; // it is a new process in the place of the former one
        }
        self.transport.add_peer(peer, card)?;
        self.peers.insert(peer);
        Ok(())
    }

    /// Whether the device knows a peer.
    pub fn has_peer(&self, peer: u32) -> bool {
        self.peers.contains(&peer)
    }

    /// Whether the host has taken the posted receives over.
    pub fn has_taken_over(&self) -> bool {
        self.takeover.is_active()
    }

    /// How often the host has taken the posted receives over. It wraps.
    pub const fn takeovers(&self) -> u32 {
        self.takeover.count()
    }

    /// Whether the device may have a send of so many bytes now.
    fn has_room_for_send(&self, bytes: u64) -> Result<bool, pml::Refusal> {
        let most = self.transport.most_bytes() / 2;
        if bytes > most {
            return Err(pml::Refusal::TooLong);
        }
        Ok(self.sends < self.transport.most_operations().div_ceil(2) && self.send_bytes + bytes <= most)
    }

    /// Gives a send to the device. `false`: there is no room now.
    ///
    /// # Safety
    /// As [`Offload::isend`].
    unsafe fn give_send(&mut self, send: &HeldSend) -> Result<Option<Sending>, pml::Refusal> {
        let HeldSend { operation, mode, data } = send;
        let in_place = self.transport.body_of(data);
        let copied = if in_place.is_some() { 0 } else { data.len() };
        if !self.has_room_for_send(copied)? {
            return Ok(None);
        }
        let is_standard = matches!(mode, Mode::Standard | Mode::Buffered);
        // The copy is complete for the caller at once. The device has it until it needs no further work.
        let is_copy = in_place.is_none() && is_standard && data.len() <= SHORT;
        let mode = if is_copy { Mode::Complete } else { *mode };
        // SAFETY: passed on from the caller.
        let begun = unsafe { self.transport.isend(Comm(operation.comm), operation.rank, operation.tag, mode, *data) };
        let request = match begun {
            Ok(request) => request,
            Err(Refusal::Busy) => return Ok(None),
            Err(why) => return Err(refusal(why)),
        };
        self.sends += 1;
        self.send_bytes += copied;
        if is_copy {
            self.owners.insert(request, Owner::Nobody);
            return Ok(Some(Sending::Complete));
        }
        self.owners.insert(request, Owner::Send(operation.request));
        Ok(Some(Sending::Pending(operation.request)))
    }

    /// Gives sends that wait to the device, as far as there is room.
    fn give_held(&mut self) {
        while let Some(send) = self.held.pop_front() {
            // SAFETY: the caller of the send vouches for its memory until its end.
            match unsafe { self.give_send(&send) } {
                Ok(None) => return self.held.push_front(send),
                Ok(Some(Sending::Complete)) => {
                    self.ended.push_back(Ended { request: send.operation.request, outcome: Ok(Delivered::default()) });
                }
                Ok(Some(Sending::Pending(_))) => {}
                Err(_) => self.fail(send.operation.request, DeviceFailure::Device),
            }
        }
    }

    fn fail(&mut self, request: EngineRequest, why: DeviceFailure) {
        self.ended.push_back(Ended { request, outcome: Err(why) });
    }

    /// Gives a receive to the device.
    ///
    /// # Safety
    /// As [`Offload::irecv`].
    unsafe fn give_receive(&mut self, posted: Posted) -> Result<(), Refusal> {
        let comm = Comm(posted.comm);
        // SAFETY: passed on from the caller.
        let request = unsafe { self.transport.irecv(comm, posted.source(), posted.tag(), posted.sink) }?;
        self.owners.insert(request, Owner::Receive(posted));
        Ok(())
    }

    /// The device has no room for one more receive, so the host takes over those that have not matched, in their order. Those that
    /// have matched meanwhile go on.
    fn take_over(&mut self) {
        let mut receives: Vec<(Request, Posted)> = Vec::new();
        for (request, owner) in &self.owners {
            if let Owner::Receive(posted) = owner {
                receives.push((*request, *posted));
            }
        }
        // The device lists them in the order in which they were posted: the numbers of requests grow.
        receives.sort_unstable_by_key(|(_, posted)| posted.number);
        let mut taken = Vec::new();
        for (request, posted) in receives {
            if self.transport.cancel(request) == Ok(true) {
                self.owners.remove(&request);
                self.transport.forget(request);
                taken.push(posted);
            }
        }
        self.takeover.begin(taken);
    }

    /// Finds messages for the receives that the host has taken over.
    fn match_taken_over(&mut self) {
        while let Some(next) = self.takeover.next(&mut self.transport) {
            let (posted, message) = match next {
                Next::Message(posted, message) => (posted, message),
                Next::Failed(posted, why) => {
                    let source = posted.source_rank().map_or(ANY, |rank| self.peer_of(posted.comm, rank));
                    self.fail(posted.request, failure_of(Failure::Operation(why), source));
                    continue;
                }
            };
            // SAFETY: the caller of the receive vouches for its memory until its end.
            match unsafe { self.transport.imrecv_part(&message.message, posted.sink, message.len) } {
                Ok(request) => {
                    let _: Option<Owner> = self.owners.insert(request, Owner::Receive(posted));
                }
                Err(Refusal::Busy) => return self.takeover.wait(posted, message),
                Err(_) => self.fail(posted.request, DeviceFailure::Device),
            }
        }
    }

    /// Passes on what the device has ended.
    fn take_ended(&mut self) {
        while let Some(request) = self.transport.next_ended() {
            let (bytes, outcome) = self.transport.take(request);
            let Some(owner) = self.owners.remove(&request) else { continue };
            let (request, outcome) = match owner {
                Owner::Nobody | Owner::Send(_) => {
                    self.sends -= 1;
                    self.send_bytes -= bytes;
                    let Owner::Send(request) = owner else { continue };
                    (request, outcome.map(|_| Delivered::default()).map_err(|why| failure_of(why, ANY)))
                }
                Owner::Receive(posted) => {
                    let peer = |rank: u32| self.peer_of(posted.comm, rank);
                    let source = posted.source_rank().map_or(ANY, peer);
                    (posted.request, outcome.map(|status| delivered(&status, peer)).map_err(|why| failure_of(why, source)))
                }
            };
            self.ended.push_back(Ended { request, outcome });
        }
    }

    fn peer_of(&self, comm: u32, rank: u32) -> u32 {
        self.members.get(&comm).and_then(|members| members.get(rank as usize)).copied().unwrap_or(ANY)
    }

    /// Makes progress.
    fn progress(&mut self) {
        self.transport.progress();
        self.take_ended();
        if self.transport.lost().is_some() {
            return self.fail_waiting();
        }
        if !self.held.is_empty() {
            self.give_held();
        }
        if self.takeover.is_active() {
            self.match_taken_over();
        }
    }

    /// Ends what waits in the host, since the device has failed.
    fn fail_waiting(&mut self) {
        for send in std::mem::take(&mut self.held) {
            self.fail(send.operation.request, DeviceFailure::Device);
        }
        for request in self.takeover.end() {
            self.fail(request, DeviceFailure::Device);
        }
    }
}

impl Offload for Matching {
    fn add_comm(
        &mut self,
        context: u32,
        members: &mut dyn Iterator<Item = Peer>,
        rank: u32,
    ) -> Result<Option<u32>, pml::Refusal> {
        let members: Box<[u32]> = members.map(|peer| peer.0).collect();
        if !members.iter().all(|peer| self.peers.contains(peer)) {
            return Ok(None);
        }
        let comm = self.transport.add_comm(context, &members, rank).map_err(refusal)?;
        self.members.insert(comm.0, members);
        Ok(Some(comm.0))
    }

    fn del_comm(&mut self, comm: u32) {
        for request in self.takeover.delete(comm, &mut self.transport) {
            self.fail(request, DeviceFailure::Cancelled);
        }
        // A device that has failed has forgotten it anyway.
        let _ = self.transport.del_comm(Comm(comm));
        self.take_ended();
        self.members.remove(&comm);
    }

    fn del_peer(&mut self, peer: Peer) {
        if self.peers.remove(&peer.0) {
            let _ = self.transport.del_peer(peer.0); // as above
        }
    }

    fn lose_peer(&mut self, peer: Peer) {
        if self.peers.contains(&peer.0) {
            let _ = self.transport.lose_peer(peer.0); // as above
        }
    }

    fn acknowledge(&mut self, comm: u32) {
        let _ = self.transport.acknowledge(Comm(comm)); // as above
    }

    unsafe fn isend(&mut self, operation: &Operation, mode: Mode, data: Span) -> Result<Sending, pml::Refusal> {
        let send = HeldSend { operation: *operation, mode, data };
        if self.held.is_empty() {
            // SAFETY: passed on from the caller.
            if let Some(sending) = unsafe { self.give_send(&send) }? {
                return Ok(sending);
            }
        } else {
            self.has_room_for_send(data.len())?; // a message that is too long is refused now
        }
        self.held.push_back(send);
        Ok(Sending::Pending(operation.request))
    }

    unsafe fn irecv(&mut self, operation: &Operation, sink: Span) -> Result<(), pml::Refusal> {
        let posted = self.takeover.posted(operation, sink);
        if !self.takeover.is_active() {
            // SAFETY: passed on from the caller.
            match unsafe { self.give_receive(posted) } {
                Ok(()) => return Ok(()),
                Err(Refusal::Busy | Refusal::TooLong) => self.take_over(),
                Err(why) => return Err(refusal(why)),
            }
        }
        self.takeover.post(posted);
        Ok(())
    }

    fn probe(&mut self, comm: u32, source: u32, tag: u32, take: bool) -> Result<Option<Found>, pml::Refusal> {
        self.progress(); // a receive that was taken over and posted before gets its message first
        let found = match self.transport.probe_words(comm, source, tag, take) {
            Ok(found) => found,
            Err(Refusal::Device(completion::Failure::PeerFailed | completion::Failure::PeerFinished)) => None,
            Err(why) => return Err(refusal(why)),
        };
        self.probing = found.is_none();
        Ok(found.map(|done| Found { message: done.value, rank: done.rank, tag: done.tag, len: done.received }))
    }

    unsafe fn imrecv(&mut self, message: u32, request: EngineRequest, sink: Span) -> Result<(), pml::Refusal> {
        let posted = self.takeover.posted(&Operation { request, comm: ANY, rank: ANY, tag: ANY }, sink);
        // SAFETY: passed on from the caller.
        let begun = unsafe { self.transport.imrecv_number(message, sink) }.map_err(refusal)?;
        self.owners.insert(begun, Owner::Receive(posted));
        Ok(())
    }

    fn cancel(&mut self, request: EngineRequest) -> bool {
        if let Some(place) = self.held.iter().position(|send| send.operation.request == request) {
            self.held.remove(place);
            self.fail(request, DeviceFailure::Cancelled);
            return true;
        }
        if self.takeover.cancel(request) {
            self.fail(request, DeviceFailure::Cancelled);
            return true;
        }
        let is_it = |owner: &Owner| match owner {
            Owner::Nobody => false,
            Owner::Send(other) => *other == request,
            Owner::Receive(posted) => posted.request == request,
        };
        let found = self.owners.iter().find(|(_, owner)| is_it(owner)).map(|(request, _)| *request);
        let cancelled = found.filter(|request| self.transport.cancel(*request) == Ok(true));
        cancelled.inspect(|request| self.transport.settle(*request)).is_some()
    }

    fn next_ended(&mut self) -> Option<Ended> {
        if self.ended.is_empty() {
            self.progress();
        }
        self.ended.pop_front()
    }

    fn is_busy(&self) -> bool {
        self.probing || !self.owners.is_empty() || !self.held.is_empty() || self.takeover.is_active()
    }
}

impl Drop for Matching {
    fn drop(&mut self) {
        let start = std::time::Instant::now();
        while (self.sends != 0 || !self.held.is_empty()) && self.transport.lost().is_none() && start.elapsed() < DRAIN {
            self.progress();
            std::thread::yield_now();
        }
    }
}

fn delivered(status: &Status, peer: impl Fn(u32) -> u32) -> Delivered {
    Delivered { peer: peer(status.rank), tag: status.tag, received: status.received }
}

/// Why an operation has failed. `source`: the other side, if it is known.
const fn failure_of(why: Failure, source: u32) -> DeviceFailure {
    match why {
        Failure::Operation(completion::Failure::Cancelled) => DeviceFailure::Cancelled,
        Failure::Operation(completion::Failure::PeerFailed | completion::Failure::Unreachable) => {
            DeviceFailure::PeerFailed(source)
        }
        Failure::Operation(completion::Failure::PeerFinished) => DeviceFailure::PeerClosed(source),
        Failure::Operation(completion::Failure::NotReady) => DeviceFailure::NotReady,
        Failure::Operation(completion::Failure::Refused) => DeviceFailure::NoCommunicator,
        Failure::Operation(_) | Failure::Device(_) | Failure::NoRequest => DeviceFailure::Device,
    }
}

const fn refusal(why: Refusal) -> pml::Refusal {
    match why {
        Refusal::Busy | Refusal::Device(completion::Failure::Full) => pml::Refusal::Busy,
        Refusal::TooLong => pml::Refusal::TooLong,
        Refusal::Invalid | Refusal::Device(_) => pml::Refusal::Invalid,
        Refusal::Lost(_) => pml::Refusal::DeviceFailed,
    }
}
