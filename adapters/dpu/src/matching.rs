//! The device as the matcher of an engine's communicators ([`Offload`]).
//!
//! The device has posted receives and unexpected messages, as long as its tables and its memory have room. If a receive or
//! a send finds no room, the host takes the posted receives over (`takeover.rs`), until the last of them has matched.
//!
//! Messages of ordinary memory are copied to the device's buffers, unless they are long and the device reaches them. So a short standard send is complete when it was copied. Sends
//! take at most half of the operations and three eighths of the memory, and users a quarter, so that a message that is received
//! finds room. A message that is too long for that goes in pieces (`pieces.rs`).

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustc_hash::FxHashMap;
use towline_core::convertor::Span;
use towline_core::pml::matching::ANY;
use towline_core::pml::offload::{Delivered, DeviceFailure, Ended, Found, Offload, Operation};
use towline_core::pml::{self, Mode, Request as EngineRequest, Sending};
use towline_core::rail;
use towline_window::completion::{self, Done};

use crate::errors::{Failure, Refusal};
use crate::heap::taken;
use crate::members::Members;
use crate::owners::Owners;
use crate::patience::Patience;
use crate::peers::Peers;
use crate::pipeline::{Limits, Pipeline, Want, announcement_of, length_of};
use crate::takeover::{Next, Posted, Taken as TakenMessage, Takeover};
use crate::transport::{Buffer, Comm, Message, Request, Status, Taken, Transport};
use crate::unreceived::Unreceived;
use crate::window_operations::Windows;

/// How many polls after a probe that found nothing are busy.
const PROBING: u8 = 4;
/// How long a process that ends waits for sends that the device still has.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Bytes of the longest standard send that is complete when it was copied. Whether the receiver takes a longer one is of interest to
/// its sender.
const SHORT: u64 = 1024;

/// What the engine waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// A send that was complete for its caller when it was copied.
    Nobody {
        /// The receiver.
        peer: u32,
    },
    /// A message that nobody receives. It is received into no memory, so that its sender learns of the receive.
    Dropped,
    /// A send.
    Send {
        /// The engine's request.
        request: EngineRequest,
        /// The receiver.
        peer: u32,
    },
    /// A receive.
    Receive(Posted),
    /// A receive of a message that was taken out.
    ReceiveTaken(Posted),
    /// The announcement of a message that goes in pieces.
    Announcement {
        /// The engine's request.
        request: EngineRequest,
        /// The message's number at this host.
        key: u64,
        /// The receiver.
        peer: u32,
    },
    /// The send of what this host asks for.
    WantSent {
        /// The sender of the message.
        peer: u32,
    },
    /// The receive of what the receiver of such a message asks for.
    Want {
        /// The message's number at this host.
        key: u64,
    },
    /// The send of a piece.
    PieceSent {
        /// The message's number at this host.
        key: u64,
        /// The receiver.
        peer: u32,
    },
    /// The receive of a piece.
    PieceReceived {
        /// The message's number at this host.
        key: u64,
        /// What was asked for.
        want: Want,
    },
}

/// How a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// As a whole, with so many bytes of the buffers for its copy.
    Whole(u64),
    /// In pieces.
    Pieces,
}

/// A send that waits for room.
#[derive(Debug)]
pub(crate) struct HeldSend {
    pub operation: Operation,
    pub mode: Mode,
    pub data: Span,
}

/// A device that matches the messages of an engine. It is used by one thread at a time. When it is dropped, it waits for a few
/// seconds until the device has sent what it was given.
#[derive(Debug)]
pub struct Matching {
    pub(crate) transport: Transport,
    /// The peers that the device knows.
    pub(crate) peers: Peers,
    /// The communicators of the device.
    pub(crate) members: FxHashMap<u32, Members>,
    /// The operations that the device has.
    pub(crate) owners: Owners<Owner>,
    /// The number of this process among the peers, once it is known.
    pub(crate) own: Option<u32>,
    /// Messages in pieces.
    pub(crate) pipeline: Pipeline,
    /// Bytes of the device's memory that sends have.
    send_bytes: u64,
    /// Sends that the device has.
    sends: u32,
    /// Sends that wait for room, in their order.
    pub(crate) held: VecDeque<HeldSend>,
    pub(crate) takeover: Takeover,
    /// The device keeps ready sends that find no receive.
    keeps_ready: bool,
    /// Operations whose end the engine does not know yet.
    ended: VecDeque<Ended>,
    /// How many more polls are busy, since a probe found nothing and the caller may ask again.
    probing: u8,
    /// Bytes of the device's memory that users have.
    pub(crate) buffer_bytes: u64,
    /// Communicators that are deleted when no send waits for them any more, and no receive from any rank is in progress.
    closing: Vec<u32>,
    /// All messages go by the rails. The device is given no more sends, and no receives but for messages that it has.
    pub(crate) has_left: bool,
    /// After that: all messages of other devices have arrived, or are lost.
    pub(crate) has_all_messages: bool,
    /// The device does not reach the device of some peer.
    pub(crate) is_cut_off: bool,
    /// The device had no message for the receives that the host has taken over, when it was asked last.
    pub(crate) is_matched: bool,
    /// The failure of the device was handled: receives whose messages it had have ended.
    has_ended: bool,
    /// The device may have no message any more.
    pub(crate) may_be_drained: bool,
    /// Numbers of communicators that were made after the device had failed.
    next_comm: u32,
    /// Whether windows may use the device.
    pub(crate) windows_allowed: bool,
    pub(crate) windows: Windows,
    pub(crate) unreceived: Unreceived,
}

impl Matching {
    /// A device without peers.
    pub fn new(mut transport: Transport) -> Self {
        transport.list_ended();
        Self {
            pipeline: Pipeline::new(&mut transport),
            own: None,
            transport,
            peers: Peers::default(),
            members: FxHashMap::default(),
            owners: Owners::default(),
            send_bytes: 0,
            sends: 0,
            held: VecDeque::new(),
            takeover: Takeover::default(),
            keeps_ready: false,
            ended: VecDeque::new(),
            probing: 0,
            buffer_bytes: 0,
            closing: Vec::new(),
            has_left: false,
            has_all_messages: false,
            is_cut_off: false,
            is_matched: false,
            has_ended: false,
            may_be_drained: false,
            next_comm: ANY,
            windows_allowed: true,
            windows: Windows::default(),
            unreceived: Unreceived::default(),
        }
    }

    /// Whether windows may use the device. They may, unless this is called.
    pub const fn allow_windows(&mut self, allowed: bool) {
        self.windows_allowed = allowed;
    }

    /// The transport below.
    pub const fn transport(&mut self) -> &mut Transport {
        &mut self.transport
    }

    /// Which device it is: its window, its firmware and the version of its window.
    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// The descriptor that is readable once the device has woken this process. `None` if it cannot do that.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.transport.bell()
    }

    /// Adds a peer by the [card](Self::card) of its host, or by that of its device: then it gets no message that its device has too little
    /// room for.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn add_peer(&mut self, peer: u32, card: &[u8]) -> Result<(), Refusal> {
        if self.peers.contains(peer) {
            self.transport.lose_peer(peer)?; // it is a new process in the place of the former one
            self.note_lost(peer);
        }
        let (card, limits) = Limits::split(card);
        self.transport.add_peer(peer, card)?;
        self.peers.add(peer, limits);
        Ok(())
    }

    /// The device has lost or forgotten a peer.
    fn note_lost(&mut self, peer: u32) {
        self.take_ended(); // announcements of the peer
        self.lose_pieces(peer);
        self.may_be_drained = true; // its last messages may have been those of this peer
    }

    /// Whether the device knows a peer.
    pub fn has_peer(&self, peer: u32) -> bool {
        self.peers.contains(peer)
    }

    /// Whether all messages go by the rails, since a device has failed.
    pub const fn has_left_device(&self) -> bool {
        self.has_left
    }

    /// Whether the host has taken the posted receives over.
    pub fn has_taken_over(&self) -> bool {
        self.takeover.is_active()
    }

    /// How often the host has taken the posted receives over. It wraps.
    pub const fn takeovers(&self) -> u32 {
        self.takeover.count()
    }

    /// Takes memory of the device for a user: at most a quarter of it for all of them.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn buffer(&mut self, bytes: u64) -> Result<Buffer, Refusal> {
        if self.buffer_bytes.saturating_add(taken(bytes)) > self.transport.most_bytes() / 4 {
            return Err(Refusal::Busy);
        }
        let buffer = self.transport.buffer(bytes)?;
        self.buffer_bytes += taken(bytes);
        Ok(buffer)
    }

    /// Returns such memory.
    pub fn free(&mut self, buffer: Buffer) {
        self.buffer_bytes = self.buffer_bytes.saturating_sub(taken(buffer.len()));
        self.transport.free(buffer);
    }

    /// Bytes of the device's memory that the copy of a message takes.
    fn copied(&self, data: &Span) -> u64 {
        let is_outside = self.transport.body_of(data).is_some() || self.transport.copies_to_process(data.len());
        if is_outside { 0 } else { taken(data.len()) }
    }

    /// How a message goes to a peer: in pieces, or as a whole, with so many bytes for its copy.
    ///
    /// # Errors
    /// [`pml::Refusal::TooLong`].
    fn way(&self, peer: u32, data: &Span) -> Result<Way, pml::Refusal> {
        let copied = self.copied(data);
        let fits = copied <= self.transport.most_bytes() / 8 * 3;
        if self.goes_in_pieces(peer, data.len(), fits) {
            return Ok(Way::Pieces);
        }
        if fits { Ok(Way::Whole(copied)) } else { Err(pml::Refusal::TooLong) }
    }

    /// Whether the device may have a send now whose copy takes so many bytes. Sends, the memory of users and one message that is
    /// received have room beside each other.
    fn has_room_for_send(&self, copied: u64) -> bool {
        let most = self.transport.most_bytes() / 8 * 3;
        let sends = self.sends + self.pipeline.asking();
        sends < self.transport.most_operations().div_ceil(2) && self.send_bytes + copied <= most
    }

    /// Gives a send to the device. `None`: there is no room now.
    ///
    /// # Safety
    /// As [`Offload::isend`].
    unsafe fn give_send(&mut self, send: &HeldSend) -> Result<Option<Sending>, pml::Refusal> {
        let HeldSend { operation, mode, data } = send;
        let Operation { comm, rank, peer, tag, .. } = *operation;
        let way = self.way(peer, data)?;
        let copied = if let Way::Whole(copied) = way { copied } else { 0 };
        if !self.has_room_for_send(copied) {
            return Ok(None);
        }
        if way == Way::Pieces {
            return self.announce(send);
        }
        let is_standard = matches!(mode, Mode::Standard | Mode::Buffered);
        // The copy is complete for the caller at once. The device has it until it needs no further work.
        let is_copy = copied != 0 && is_standard && data.len() <= SHORT;
        let mode = if is_copy { Mode::Complete } else { *mode };
        // SAFETY: passed on from the caller.
        let mut begun = unsafe { self.transport.isend(Comm(comm), rank, tag, mode, *data) };
        if begun == Err(Refusal::Busy) && !self.takeover.is_active() {
            // Posted receives have all the room. They must not keep the send, for which their messages may wait.
            self.take_over();
            // SAFETY: passed on from the caller.
            begun = unsafe { self.transport.isend(Comm(comm), rank, tag, mode, *data) };
        }
        let request = match begun {
            Ok(request) => request,
            Err(Refusal::Busy) => return Ok(None),
            Err(why) => return Err(refusal(why)),
        };
        self.note_given(peer);
        self.send_bytes += copied;
        if is_copy {
            self.owners.add(request.0, Owner::Nobody { peer });
            return Ok(Some(Sending::Complete));
        }
        self.owners.add(request.0, Owner::Send { request: operation.request, peer });
        Ok(Some(Sending::Pending(operation.request)))
    }

    /// The device has one more send, to this peer.
    pub(crate) fn note_given(&mut self, peer: u32) {
        self.sends += 1;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.given = peer.given.wrapping_add(1);
        }
    }

    /// The device has one more send of this host's own, to this peer. No receive of the engine takes it.
    pub(crate) fn note_given_own(&mut self, peer: u32) {
        self.note_given(peer);
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.refused = peer.refused.wrapping_add(1);
        }
    }

    /// The device has the copy of a send with so many bytes.
    pub(crate) const fn note_copied(&mut self, bytes: u64) {
        self.send_bytes += taken(bytes);
    }

    /// Something finds no room on the device: posted receives give theirs up. Returns whether there were some.
    pub(crate) fn make_room(&mut self) -> bool {
        let has_posted = || self.owners.iter().any(|(_, owner)| matches!(owner, Owner::Receive(_)));
        let can = !self.takeover.is_active() && has_posted();
        if can {
            self.take_over();
        }
        can
    }

    /// Gives sends that wait to the device, as far as there is room.
    fn give_held(&mut self) {
        while let Some(send) = self.held.pop_front() {
            // SAFETY: the caller of the send vouches for its memory until its end.
            match unsafe { self.give_send(&send) } {
                Ok(None) => return self.held.push_front(send),
                Ok(Some(Sending::Complete)) => {
                    self.end(Ended { request: send.operation.request, outcome: Ok(Delivered::default()) });
                }
                Ok(Some(Sending::Pending(_))) => {}
                Err(pml::Refusal::TooLong) => self.fail(send.operation.request, DeviceFailure::TooLong),
                Err(_) => self.fail(send.operation.request, DeviceFailure::Device),
            }
        }
    }

    pub(crate) fn fail(&mut self, request: EngineRequest, why: DeviceFailure) {
        self.end(Ended { request, outcome: Err(why) });
    }

    pub(crate) fn end(&mut self, ended: Ended) {
        self.ended.push_back(ended);
    }

    /// Gives a receive to the device.
    ///
    /// # Safety
    /// As [`Offload::irecv`].
    unsafe fn give_receive(&mut self, posted: Posted) -> Result<(), Refusal> {
        let comm = Comm(posted.comm);
        // SAFETY: passed on from the caller.
        let request = unsafe { self.transport.irecv(comm, posted.source(), posted.tag(), posted.sink) }?;
        self.owners.add(request.0, Owner::Receive(posted));
        Ok(())
    }

    /// The device has no room for one more receive or send, so the host takes over those that have not matched, in their order. Those that
    /// have matched meanwhile go on. The last one is taken back first, so that no message finds a later receive of the device when an
    /// earlier one is with the host already.
    pub(crate) fn take_over(&mut self) {
        let mut receives: Vec<(Request, Posted)> = Vec::new();
        for (cookie, owner) in self.owners.iter() {
            if let Owner::Receive(posted) = owner {
                receives.push((Request(cookie), *posted));
            }
        }
        if !receives.is_empty() {
            self.keep_ready(true);
        }
        receives.sort_unstable_by_key(|(_, posted)| std::cmp::Reverse(posted.number));
        let mut taken = Vec::new();
        for (request, posted) in receives {
            if self.transport.cancel(request) == Ok(true) {
                self.owners.remove(request.0);
                self.transport.forget(request);
                taken.push(posted);
            }
        }
        taken.reverse();
        self.takeover.begin(taken);
    }

    /// Tells the device whether the host has posted receives that the device does not have. An older firmware does not know that, and refuses
    /// the ready sends of these receives. A device that has failed needs no news.
    fn keep_ready(&mut self, keep: bool) {
        if self.keeps_ready != keep {
            self.keeps_ready = keep;
            let _ = self.transport.keep_ready(keep);
        }
    }

    /// Finds messages for the receives that the host has taken over.
    /// Returns whether the device has no message for any of the others.
    fn match_taken_over(&mut self) -> bool {
        loop {
            let next = match self.takeover.next(&mut self.transport, !self.has_left) {
                Ok(Some(next)) => next,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let (posted, message) = match next {
                Next::Message(posted, message) => (posted, message),
                Next::Failed(posted, why) => {
                    let why = self.failure_of(Failure::Operation(why), posted.peer);
                    self.fail(posted.request, why);
                    continue;
                }
            };
            let (sender, is_taken) = (self.sender(&posted, message.rank), message.message.is_some());
            let held = self.receive_taken(posted, message);
            if is_taken || held.is_none() {
                self.note_taken(sender);
            }
            if let Some((posted, message)) = held {
                match message.message {
                    Some(_) => self.takeover.wait_again(posted, message),
                    None => self.takeover.post_again(posted),
                }
                return false;
            }
        }
    }

    /// Receives messages that were taken out, as far as there is room.
    fn receive_waiting(&mut self) {
        while let Some((posted, message)) = self.takeover.next_waiting() {
            if let Some((posted, message)) = self.receive_taken(posted, message) {
                return self.takeover.wait_again(posted, message);
            }
        }
    }

    /// Receives a message that was found. Returns both if there is no room now.
    fn receive_taken(&mut self, posted: Posted, message: TakenMessage) -> Option<(Posted, TakenMessage)> {
        let is_announced = announcement_of(message.len).is_some();
        let copied = posted.sink.len().min(message.len);
        let fits = self.transport.body_of(&posted.sink).is_some()
            || self.transport.copies_to_process(copied)
            || copied <= self.transport.most_bytes();
        let (sink, owner) = match (is_announced, fits) {
            (true, _) => (Span::EMPTY, Owner::ReceiveTaken(posted)), // it has no bytes
            (false, true) => (posted.sink, Owner::ReceiveTaken(posted)),
            (false, false) => (Span::EMPTY, Owner::Dropped),
        };
        let TakenMessage { rank, tag, len, .. } = message;
        let begun = match &message.message {
            // SAFETY: the caller of the receive vouches for its memory until its end.
            Some(message) => unsafe { self.transport.imrecv_part(message, sink, len) },
            // SAFETY: the same. The device has no posted receive that could get the message.
            None => unsafe { self.transport.irecv_found(Comm(posted.comm), (rank, tag), sink, len) },
        };
        match begun {
            Ok(request) => {
                self.owners.add(request.0, owner);
                if !is_announced && !fits {
                    self.fail(posted.request, DeviceFailure::TooLong);
                }
            }
            Err(Refusal::Busy) => return Some((posted, message)),
            Err(_) => self.fail(posted.request, DeviceFailure::Device),
        }
        None
    }

    /// Finds a message of the device. `None` also if its sender is lost, which the engine tells.
    pub(crate) fn find(&mut self, comm: u32, source: u32, tag: u32, take: bool) -> Result<Option<Done>, pml::Refusal> {
        match self.transport.probe_words(comm, source, tag, take) {
            Ok(Some(found)) => {
                if take {
                    self.note_taken(self.peer_of(comm, found.rank));
                }
                Ok(Some(found))
            }
            Ok(None) => Ok(None),
            Err(Refusal::Device(completion::Failure::PeerFailed | completion::Failure::PeerFinished)) => Ok(None),
            Err(Refusal::Device(completion::Failure::Unreachable)) => {
                self.is_cut_off = true;
                Ok(None)
            }
            Err(why) => Err(refusal(why)),
        }
    }

    /// A message of a peer was taken out of the device's queue, or received.
    #[inline]
    pub(crate) fn note_taken(&mut self, peer: u32) {
        self.may_be_drained = true;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.taken = peer.taken.wrapping_add(1);
        }
    }

    /// A send has ended: whether the peer's device has its message, or may get it.
    /// `is_own`: no receive of the engine takes it.
    fn note_sent(&mut self, peer: u32, outcome: &Result<Status, Failure>, is_own: bool) {
        let Some(peer) = self.peers.get_mut(peer) else { return };
        match outcome {
            Ok(_) | Err(Failure::Device(_) | Failure::NoRequest) => {}
            Err(Failure::Operation(why)) => match why {
                completion::Failure::NotReady | completion::Failure::Refused => {
                    peer.refused = peer.refused.wrapping_add(u32::from(!is_own));
                }
                completion::Failure::Unreachable => (peer.is_unreachable, self.is_cut_off) = (true, true),
                // The peer's device has the begin of a message that was cut short.
                completion::Failure::PeerFailed
                | completion::Failure::PeerFinished
                | completion::Failure::BadMemory => {}
                _ => {
                    peer.given = peer.given.wrapping_sub(1); // nothing has left
                    peer.refused = peer.refused.wrapping_sub(u32::from(is_own));
                }
            },
        }
    }

    /// A receive of a rank has ended.
    fn note_received(&mut self, posted: &Posted, failed: u32, outcome: &Result<Status, Failure>) {
        match outcome {
            Ok(status) => self.note_taken(self.sender(posted, status.rank)),
            // The message was taken, and is lost.
            Err(Failure::Operation(completion::Failure::BadMemory | completion::Failure::Aborted)) => {
                self.note_taken(self.sender(posted, failed));
            }
            Err(Failure::Operation(completion::Failure::Unreachable)) => {
                self.note_unreachable(self.sender(posted, failed));
            }
            Err(_) => {}
        }
    }

    /// The device of a peer does not answer.
    pub(crate) fn note_unreachable(&mut self, peer: u32) {
        self.is_cut_off = true;
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.is_unreachable = true;
        }
    }

    /// Makes progress if no end is known, and returns the next one.
    #[inline(never)]
    fn next_of_any_kind(&mut self) -> Option<Ended> {
        if self.ended.is_empty() {
            self.progress();
            self.probing = self.probing.saturating_sub(1);
        }
        self.ended.pop_front()
    }

    /// The next receive that has got all of its message.
    #[inline]
    fn next_received(&mut self) -> Option<Ended> {
        // With whether its message was counted as taken already.
        let owners = &self.owners;
        let owner = |Request(cookie)| match owners.get(cookie)? {
            Owner::Receive(posted) => Some((posted, false)),
            Owner::ReceiveTaken(posted) => Some((posted, true)),
            _ => None,
        };
        let ((posted, is_counted), Request(cookie), status) = self.transport.next_received(owner)?;
        let (request, peer) = (posted.request, self.sender(posted, status.rank));
        self.owners.forget(cookie);
        if !is_counted {
            self.note_taken(peer);
        }
        Some(Ended { request, outcome: Ok(delivered(&status, peer)) })
    }

    /// Passes on what the device has ended.
    pub(crate) fn take_ended(&mut self) {
        while let Some(request) = self.transport.next_ended() {
            let Taken { bytes, failed, value, outcome } = self.transport.take(request);
            let Some(owner) = self.owners.remove(request.0) else { continue };
            match owner {
                Owner::Nobody { peer }
                | Owner::WantSent { peer }
                | Owner::Send { peer, .. }
                | Owner::Announcement { peer, .. }
                | Owner::PieceSent { peer, .. } => {
                    self.sends -= 1;
                    self.send_bytes -= bytes;
                    let is_own = matches!(owner, Owner::WantSent { .. } | Owner::PieceSent { .. });
                    self.note_sent(peer, &outcome, is_own);
                }
                Owner::Receive(posted) => self.note_received(&posted, failed, &outcome),
                _ => {}
            }
            // The value of an announcement is the peer that has sent it.
            let announced = outcome.as_ref().ok().and_then(|status| Some((*status, announcement_of(status.received)?)));
            match owner {
                Owner::Nobody { .. } | Owner::WantSent { .. } => {}
                Owner::Send { request, peer } => {
                    let outcome = outcome.map(|_| Delivered::default()).map_err(|why| self.failure_of(why, peer));
                    self.end(Ended { request, outcome });
                }
                Owner::Announcement { key, peer, .. } => self.notice_ended(key, peer, outcome),
                Owner::PieceSent { key, peer } => self.piece_sent(request.0, key, peer, outcome),
                Owner::Want { key } => self.want_came(key, outcome),
                Owner::PieceReceived { key, want } => self.piece_came(request.0, key, want, outcome),
                Owner::Dropped => {
                    if let Some((status, announced)) = announced {
                        self.receive_in_pieces(None, value, &status, announced);
                    }
                }
                Owner::Receive(posted) | Owner::ReceiveTaken(posted) => match (announced, outcome) {
                    (Some((status, announced)), _) => {
                        self.receive_in_pieces(Some(&posted), value, &status, announced);
                    }
                    (None, Ok(status)) => {
                        let outcome = Ok(delivered(&status, self.sender(&posted, status.rank)));
                        self.end(Ended { request: posted.request, outcome });
                    }
                    (None, Err(why)) => {
                        let why = self.failure_of(why, self.sender(&posted, failed));
                        self.fail(posted.request, why);
                    }
                },
            }
        }
    }

    /// Why an operation has failed. `source`: the other side, or any.
    pub(crate) fn failure_of(&self, why: Failure, source: u32) -> DeviceFailure {
        let peer = self.peers.get(source);
        let is_cut_off = peer.is_some_and(|peer| peer.is_cut_off() || (self.has_left && !peer.is_gone));
        match why {
            Failure::Operation(completion::Failure::Cancelled) => DeviceFailure::Cancelled,
            // This process has told its device to forget that of the peer, whose process may live.
            Failure::Operation(completion::Failure::PeerFailed) if is_cut_off => DeviceFailure::Device,
            Failure::Operation(completion::Failure::PeerFailed) => DeviceFailure::PeerFailed(source),
            Failure::Operation(completion::Failure::PeerFinished) => DeviceFailure::PeerClosed(source),
            Failure::Operation(completion::Failure::NotReady) => DeviceFailure::NotReady,
            Failure::Operation(completion::Failure::Refused) => DeviceFailure::NoCommunicator,
            Failure::Operation(completion::Failure::BadMemory) => DeviceFailure::BadMemory,
            Failure::Operation(completion::Failure::Aborted) => DeviceFailure::Aborted(source),
            Failure::Operation(_) | Failure::Device(_) | Failure::NoRequest => DeviceFailure::Device,
        }
    }

    /// The peer whose message a receive has got. `rank`: its rank, as the device says. It matters only if the receive is from any rank.
    #[inline]
    fn sender(&self, posted: &Posted, rank: u32) -> u32 {
        if posted.peer == ANY { self.peer_of(posted.comm, rank) } else { posted.peer }
    }

    pub(crate) fn peer_of(&self, comm: u32, rank: u32) -> u32 {
        self.members.get(&comm).and_then(|members| members.peers.get(rank as usize)).copied().unwrap_or(ANY)
    }

    /// Makes progress.
    pub(crate) fn progress(&mut self) {
        self.transport.progress();
        self.take_ended();
        self.take_accesses();
        if self.transport.lost().is_some() {
            if !self.has_ended {
                self.has_ended = true;
                self.fail_waiting();
                self.fail_pieces();
                self.note_own_failure();
            }
            return;
        }
        if !self.pipeline.is_idle() {
            self.move_pieces();
        }
        if !self.held.is_empty() {
            self.give_held();
        }
        self.is_matched = true;
        if self.takeover.is_active() {
            self.receive_waiting();
            self.is_matched = self.match_taken_over();
            self.is_cut_off |= self.takeover.is_cut_off;
        }
        if self.keeps_ready && !self.has_left && !self.takeover.is_active() {
            self.keep_ready(false);
        }
        if !self.closing.is_empty() {
            self.close();
        }
        self.look_for_unreceived();
    }

    /// Deletes communicators for which no send waits any more.
    fn close(&mut self) {
        for comm in std::mem::take(&mut self.closing) {
            if self.is_held(comm) || self.receives_from_any(comm) {
                self.closing.push(comm);
            } else {
                self.delete(comm);
            }
        }
    }

    /// Whether sends in a communicator wait for room.
    fn is_held(&self, comm: u32) -> bool {
        self.held.iter().any(|send| send.operation.comm == comm)
    }

    /// Whether receives from any rank of a communicator are in progress. The device knows the ranks of their senders only until it has deleted
    /// the communicator, and without them it is not known whose messages were received.
    fn receives_from_any(&self, comm: u32) -> bool {
        self.owners.iter().any(|(_, owner)| match owner {
            Owner::Receive(posted) | Owner::ReceiveTaken(posted) => posted.comm == comm && posted.peer == ANY,
            _ => false,
        })
    }

    /// Deletes a communicator.
    fn delete(&mut self, comm: u32) {
        // A device that has failed has forgotten it anyway.
        let _ = self.transport.del_comm(Comm(comm));
        self.may_be_drained = true; // it may have had the last messages
        self.take_ended();
        let members = self.members.remove(&comm);
        members.into_iter().for_each(|members| self.unreceived.note_deleted(members));
    }

    /// Takes back the receives in a communicator that have not matched.
    fn cancel_receives(&mut self, comm: u32) {
        let receives = self.owners.iter().filter_map(|(cookie, owner)| match owner {
            Owner::Receive(posted) if posted.comm == comm => Some((Request(cookie), posted.request)),
            _ => None,
        });
        for (request, receive) in receives.collect::<Vec<_>>() {
            if self.transport.cancel(request) == Ok(true) {
                self.owners.remove(request.0);
                self.transport.forget(request);
                self.fail(receive, DeviceFailure::Cancelled);
            }
        }
    }

    /// Ends receives whose messages were in the device, which has failed. Sends that it was not given, and receives without a message, go
    /// by the rails.
    fn fail_waiting(&mut self) {
        for request in self.takeover.end_waiting() {
            self.fail(request, DeviceFailure::Device);
        }
    }
}

impl Offload for Matching {
    fn add_comm(
        &mut self,
        context: u32,
        members: &mut dyn Iterator<Item = rail::Peer>,
        rank: u32,
        lasting: bool,
    ) -> Result<Option<u32>, pml::Refusal> {
        let members = Members { context, peers: members.map(|peer| peer.0).collect() };
        self.own = self.own.or_else(|| members.peers.get(rank as usize).copied());
        if !members.peers.iter().all(|peer| self.peers.contains(*peer)) {
            return Ok(None);
        }
        if self.has_left && self.transport.lost().is_some() {
            self.next_comm -= 1; // far from the numbers of devices
            self.members.insert(self.next_comm, members);
            return Ok(Some(self.next_comm));
        }
        let is_same = |comm: &u32| self.members.get(comm).is_some_and(|closing| closing.context == context);
        if let Some(place) = self.closing.iter().position(is_same)
            && !self.is_held(self.closing[place])
        {
            // Its number is in use again, so nothing is waited for.
            let comm = self.closing.swap_remove(place);
            self.delete(comm);
        }
        let is_world = (0..).zip(&members.peers).all(|(rank, peer)| rank == *peer);
        let comm = match lasting && is_world {
            true => self.transport.add_lasting_comm(context, members.peers.len() as u32, rank),
            false => self.transport.add_comm(context, &members.peers, rank),
        };
        let comm = comm.map_err(refusal)?;
        self.unreceived.deleted.retain(|deleted| deleted.context != members.context);
        self.members.insert(comm.0, members);
        Ok(Some(comm.0))
    }

    fn del_comm(&mut self, comm: u32) {
        for request in self.takeover.delete(comm) {
            self.fail(request, DeviceFailure::Cancelled);
        }
        if self.receives_from_any(comm) {
            self.cancel_receives(comm);
        }
        self.closing.push(comm);
        self.close();
    }

    fn del_peer(&mut self, peer: rail::Peer) {
        if self.peers.remove(peer.0) {
            let _ = self.transport.del_peer(peer.0); // a device that has failed has forgotten it
            self.note_lost(peer.0);
        }
    }

    fn lose_peer(&mut self, peer: rail::Peer) {
        if self.peers.contains(peer.0) {
            let _ = self.transport.lose_peer(peer.0); // the same
            self.note_lost(peer.0);
        }
    }

    fn acknowledge(&mut self, comm: u32) {
        let _ = self.transport.acknowledge(Comm(comm)); // the same
    }

    unsafe fn isend(&mut self, operation: &Operation, mode: Mode, data: Span) -> Result<Sending, pml::Refusal> {
        let send = HeldSend { operation: *operation, mode, data };
        if self.held.is_empty() {
            // SAFETY: passed on from the caller.
            if let Some(sending) = unsafe { self.give_send(&send) }? {
                return Ok(sending);
            }
        } else {
            self.way(operation.peer, &data)?; // a message that is too long is refused now
        }
        self.held.push_back(send);
        Ok(Sending::Pending(operation.request))
    }

    unsafe fn irecv(&mut self, operation: &Operation, sink: Span) -> Result<(), pml::Refusal> {
        let posted = self.takeover.posted(operation, sink);
        if !self.has_left && !self.takeover.is_active() {
            // SAFETY: passed on from the caller.
            match unsafe { self.give_receive(posted) } {
                Ok(()) => return Ok(()),
                Err(Refusal::Busy | Refusal::TooLong) => self.take_over(),
                Err(why) => return Err(refusal(why)),
            }
        }
        self.keep_ready(true);
        self.takeover.post(posted);
        Ok(())
    }

    fn probe(&mut self, comm: u32, source: u32, tag: u32, take: bool) -> Result<Option<Found>, pml::Refusal> {
        self.progress();
        let found = self.find(comm, source, tag, false)?;
        // A receive that was posted before gets its message first.
        let mut found = found.filter(|found| !self.takeover.has_receive_for(comm, found));
        if take && found.is_some() {
            found = self.find(comm, source, tag, true)?; // the same message, since others come after it
        }
        self.probing = if found.is_none() { PROBING } else { 0 };
        if let (true, Some(found)) = (take, &found)
            && announcement_of(found.received).is_some()
        {
            self.pipeline.taken.insert(found.value, found.received);
        }
        Ok(found.map(|done| {
            let len = length_of(done.received);
            Found { message: done.value, rank: done.rank, tag: done.tag, len }
        }))
    }

    unsafe fn imrecv(&mut self, found: &Found, request: EngineRequest, sink: Span) -> Result<(), pml::Refusal> {
        if self.transport.lost().is_some() {
            return Err(pml::Refusal::DeviceFailed);
        }
        let posted = self.takeover.posted(&Operation { request, comm: ANY, rank: ANY, peer: ANY, tag: ANY }, sink);
        let len = self.pipeline.taken.remove(&found.message).unwrap_or(found.len);
        let message = TakenMessage { message: Some(Message(found.message)), rank: found.rank, tag: found.tag, len };
        if let Some((posted, message)) = self.receive_taken(posted, message) {
            if !self.takeover.is_active() {
                self.take_over(); // posted receives have all the room
            }
            self.takeover.wait(posted, message);
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.transport.abandon_receives();
        self.held.clear();
        let _ = self.takeover.end();
        self.ended.clear();
        self.pipeline.abandon();
        self.windows.abandon();
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
            Owner::Nobody { .. }
            | Owner::Dropped
            | Owner::WantSent { .. }
            | Owner::Want { .. }
            | Owner::PieceSent { .. }
            | Owner::PieceReceived { .. } => false,
            Owner::Send { request: other, .. } | Owner::Announcement { request: other, .. } => *other == request,
            Owner::Receive(posted) | Owner::ReceiveTaken(posted) => posted.request == request,
        };
        let found = self.owners.iter().find(|(_, owner)| is_it(owner)).map(|(cookie, _)| Request(cookie));
        let cancelled = found.filter(|request| self.transport.cancel(*request) == Ok(true));
        cancelled.inspect(|request| self.transport.settle(*request)).is_some()
    }

    #[inline]
    fn next_ended(&mut self) -> Option<Ended> {
        if self.ended.is_empty()
            && let Some(received) = self.next_received()
        {
            return Some(received);
        }
        self.next_of_any_kind()
    }

    fn is_busy(&self) -> bool {
        self.probing != 0
            || !self.owners.is_empty()
            || !self.held.is_empty()
            || self.takeover.is_active()
            || self.is_waiting()
            || !self.pipeline.is_idle()
            || self.windows.is_busy()
            || self.unreceived.is_looking()
    }

    fn has_sent_all(&self) -> bool {
        self.sends == 0 && self.held.is_empty() && !self.pipeline.is_sending()
    }

    fn arm(&mut self) -> bool {
        if !self.is_busy() {
            // This sleep is not announced, so a bell that comes now is for an earlier one.
            self.transport.take_bells();
            return true;
        }
        // These need calls of this process. All else ends by a completion.
        let has_to_do = self.probing != 0
            || !self.held.is_empty()
            || self.takeover.is_active()
            || self.is_waiting()
            || self.pipeline.has_work()
            || self.unreceived.is_looking();
        // A call may have taken completions whose operations the engine does not know to have ended.
        !has_to_do && self.ended.is_empty() && !self.transport.has_ended() && self.transport.arm()
    }
}

impl Drop for Matching {
    fn drop(&mut self) {
        // Nobody takes outcomes any more.
        self.transport.abandon_receives();
        self.pipeline.abandon();
        self.windows.abandon();
        let mut patience = Patience::new(DRAIN);
        while !self.has_sent_all() && self.transport.lost().is_none() && !patience.is_over() {
            self.progress();
            std::thread::yield_now();
        }
    }
}

const fn delivered(status: &Status, peer: u32) -> Delivered {
    Delivered { peer, tag: status.tag, received: status.received }
}

pub(crate) const fn refusal(why: Refusal) -> pml::Refusal {
    match why {
        Refusal::Busy | Refusal::Device(completion::Failure::Full) => pml::Refusal::Busy,
        Refusal::TooLong => pml::Refusal::TooLong,
        Refusal::Invalid | Refusal::NoOneSided(_) | Refusal::Device(_) => pml::Refusal::Invalid,
        Refusal::Lost(_) => pml::Refusal::DeviceFailed,
    }
}
