//! Moves messages that are longer than a device has room for. The sender announces such a message, and the device matches the announcement
//! as it does other messages. Then the receiver asks for one piece after the other, and the sender sends it. Both are messages of the
//! devices, in a communicator of their own. The receiver asks when it has given its device a buffer for the piece, so each piece goes
//! on by the devices alone, and no buffer waits for another host.

use towline_core::convertor::Span;
use towline_core::pml::offload::{Delivered, DeviceFailure, Ended};
use towline_core::pml::{self, Mode, Sending};
use towline_window::command::PIPELINES;

use crate::errors::{Failure, Refusal};
use crate::matching::{HeldSend, Matching, Owner};
use crate::pipeline::{Incoming, Limits, MOST, Outgoing, PIECE, WANT, Want, announced};
use crate::takeover::Posted;
use crate::transport::{Comm, Request, Source, Status, Tag};

/// One of so many operations of the device may be an announcement.
const SHARE: u32 = 8;

impl Matching {
    /// The card of this host: that of its device, and what the host has room for.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn card(&mut self) -> Result<Vec<u8>, Refusal> {
        let card = self.transport.card()?;
        Ok(Limits { whole: self.most_whole(), piece: self.pipeline.piece as u32 }.behind(card))
    }

    /// The longest message that this host can receive in one piece.
    fn most_whole(&self) -> u64 {
        if self.transport.reaches_memory() { u64::MAX } else { self.transport.most_bytes() / 16 * 5 }
    }

    /// Whether a message to a peer goes in pieces.
    pub(crate) fn goes_in_pieces(&self, peer: u32, len: u64, fits: bool) -> bool {
        let limits = self.peers.get(peer).and_then(|peer| peer.limits);
        let has_room = |limits: &Limits| fits && len <= limits.whole;
        self.pipeline.piece != 0 && len <= MOST && limits.is_some_and(|limits| !has_room(&limits))
    }

    /// The communicator of pieces.
    fn pipelines(&mut self) -> Result<Comm, Refusal> {
        if let Some(comm) = self.pipeline.comm {
            return Ok(comm);
        }
        // Its ranks are all peers of the device.
        let comm = self.transport.add_lasting_comm(PIPELINES, 0, self.own.ok_or(Refusal::Invalid)?)?;
        self.pipeline.comm = Some(comm);
        Ok(comm)
    }

    /// Announces a message. `None`: there is no room now.
    ///
    /// # Safety
    /// As `Offload::isend`.
    pub(crate) unsafe fn announce(&mut self, send: &HeldSend, peer: u32) -> Result<Option<Sending>, pml::Refusal> {
        let HeldSend { operation, mode, data } = *send;
        let most = (self.transport.most_operations() / SHARE).max(1) as usize;
        if self.pipeline.sends.len() >= most {
            return Ok(None);
        }
        let comm = self.pipelines().map_err(crate::matching::refusal)?;
        let want = match self.transport.buffer(WANT as u64) {
            Ok(want) => want,
            Err(Refusal::Busy) => return Ok(None),
            Err(why) => return Err(crate::matching::refusal(why)),
        };
        let (key, number) = (self.pipeline.next_key(), self.pipeline.next_number());
        // The receiver may ask as soon as it has the announcement.
        let begun = self.transport.irecv_buffer(comm, Source::Rank(peer), Tag::Is(number.into()), &want);
        let begun = begun.and_then(|asking| {
            let length = announced(number, data.len());
            match self.transport.announce(Comm(operation.comm), operation.rank, operation.tag, mode, length) {
                Ok(request) => Ok((asking, request)),
                Err(why) => {
                    self.take_back(asking, peer);
                    Err(why)
                }
            }
        });
        let (asking, request) = match begun {
            Ok(begun) => begun,
            Err(why) => {
                self.transport.free(want);
                return if why == Refusal::Busy { Ok(None) } else { Err(crate::matching::refusal(why)) };
            }
        };
        self.owners.add(asking.0, Owner::Want { key });
        self.owners.add(request.0, Owner::Announcement { request: operation.request, key, peer });
        self.note_given(peer);
        self.pipeline.sends.push(Outgoing {
            key,
            number,
            request: operation.request,
            peer,
            data,
            want,
            asking: Some(asking),
            wants: std::collections::VecDeque::new(),
            sends: 1,
            outcome: None,
        });
        Ok(Some(Sending::Pending(operation.request)))
    }

    /// Ends the receive of a want, which may have come.
    fn take_back(&mut self, asking: Request, peer: u32) {
        let _ = self.transport.cancel(asking); // a device that has failed has ended it
        self.transport.settle(asking);
        self.owners.remove(asking.0);
        if matches!(self.transport.test(asking), Some(Ok(_))) {
            self.note_taken(peer);
        }
    }

    /// A receive has got an announcement. `posted`: the receive, or `None` if nobody receives the message.
    pub(crate) fn receive_in_pieces(
        &mut self,
        posted: Option<&Posted>,
        peer: u32,
        status: &Status,
        (number, received): (u16, u64),
    ) {
        let posted = posted.filter(|_| !self.pipeline.is_abandoned());
        let sink = posted.map_or(Span::EMPTY, |posted| posted.sink);
        let mut incoming = Incoming {
            key: self.pipeline.next_key(),
            number,
            request: posted.map(|posted| posted.request),
            peer,
            delivered: Delivered { peer, tag: status.tag, received },
            sink,
            wanted: sink.len().min(received),
            asked: 0,
            arrived: 0,
            unsaid: std::collections::VecDeque::new(),
            receives: 0,
            outcome: None,
        };
        if incoming.wanted == 0 {
            incoming.unsaid.push_back(Want { at: 0, bytes: 0 });
        }
        let limits = self.peers.get(peer).and_then(|peer| peer.limits);
        if limits.is_none() || self.pipeline.piece == 0 {
            self.violated(peer); // it does not know what this host has room for
            incoming.outcome = Some(Err(DeviceFailure::PeerFailed(peer)));
        }
        self.pipeline.receives.push(incoming);
    }

    /// A peer is lost. Another process may get its number, to which the messages have no relation.
    pub(crate) fn lose_pieces(&mut self, peer: u32) {
        let lost = Err(DeviceFailure::PeerFailed(peer));
        for send in self.pipeline.sends.iter_mut().filter(|send| send.peer == peer) {
            send.outcome.get_or_insert(lost);
        }
        for receive in self.pipeline.receives.iter_mut().filter(|receive| receive.peer == peer) {
            receive.outcome.get_or_insert(lost);
        }
    }

    /// A peer does not keep to the protocol.
    fn violated(&mut self, peer: u32) {
        let _ = self.transport.lose_peer(peer); // a device that has failed has forgotten it
    }

    /// The device has matched the announcement of a message, or the send has failed.
    pub(crate) fn announcement_ended(&mut self, key: u64, peer: u32, outcome: Result<Status, Failure>) {
        let failure = outcome.err().map(|why| self.failure_of(why, peer));
        if let Some(send) = self.pipeline.sends.iter_mut().find(|send| send.key == key) {
            send.sends -= 1;
            if let Some(why) = failure {
                send.outcome.get_or_insert(Err(why));
            }
        }
    }

    /// A piece was sent.
    pub(crate) fn piece_sent(&mut self, cookie: u64, key: u64, peer: u32, outcome: Result<Status, Failure>) {
        if let Some(buffer) = self.pipeline.buffer_of(cookie) {
            self.pipeline.outgoing.push(buffer);
        }
        self.announcement_ended(key, peer, outcome);
    }

    /// The receiver of a message has asked for more of it, or wants no more.
    pub(crate) fn want_came(&mut self, key: u64, outcome: Result<Status, Failure>) {
        let Some(place) = self.pipeline.sends.iter().position(|send| send.key == key) else { return };
        let (peer, len) = (self.pipeline.sends[place].peer, self.pipeline.sends[place].data.len());
        let want = outcome.map_err(|why| self.failure_of(why, peer)).map(|status| {
            self.note_taken(peer);
            let mut bytes = [0; WANT];
            let is_whole =
                status.received == WANT as u64 && self.transport.copy(&self.pipeline.sends[place].want, 0, &mut bytes);
            is_whole.then(|| Want::decode(bytes))
        });
        let is_possible = |want: &Want| {
            want.bytes <= self.pipeline.piece && want.at.checked_add(want.bytes).is_some_and(|end| end <= len)
        };
        let want = want.map(|want| want.filter(is_possible));
        if want == Ok(None) {
            self.violated(peer);
        }
        let send = &mut self.pipeline.sends[place];
        send.asking = None;
        match want {
            Ok(Some(Want { bytes: 0, .. })) => drop(send.outcome.get_or_insert(Ok(()))),
            Ok(Some(want)) => send.wants.push_back(want),
            Ok(None) => drop(send.outcome.get_or_insert(Err(DeviceFailure::PeerFailed(peer)))),
            Err(why) => drop(send.outcome.get_or_insert(Err(why))),
        }
    }

    /// A piece has come.
    pub(crate) fn piece_came(&mut self, cookie: u64, key: u64, want: Want, outcome: Result<Status, Failure>) {
        let Some(buffer) = self.pipeline.buffer_of(cookie) else { return };
        let place = self.pipeline.receives.iter().position(|receive| receive.key == key);
        let peer = place.map(|place| self.pipeline.receives[place].peer);
        if let (Ok(_), Some(peer)) = (&outcome, peer) {
            self.note_taken(peer);
        }
        let is_whole = outcome.as_ref().is_ok_and(|status| status.received == want.bytes);
        let failure = outcome.err().map(|why| self.failure_of(why, peer.unwrap_or(u32::MAX)));
        if let (Some(peer), false, None) = (peer, is_whole, failure) {
            self.violated(peer);
        }
        if let Some(receive) = place.and_then(|place| self.pipeline.receives.get_mut(place)) {
            receive.receives -= 1;
            if is_whole {
                let from = self.transport.address_of(&buffer);
                // SAFETY: the buffer has at least that many bytes, the device has written them, and the caller of the receive vouches for
                // its memory.
                unsafe { receive.sink.window(want.at, want.bytes).unpack(from.as_ptr(), want.bytes as usize) };
                receive.arrived += want.bytes;
                if receive.arrived == receive.wanted {
                    receive.unsaid.push_back(Want { at: receive.wanted, bytes: 0 });
                }
            } else {
                receive.outcome.get_or_insert(Err(failure.unwrap_or(DeviceFailure::PeerFailed(receive.peer))));
            }
        }
        self.pipeline.incoming.push(buffer);
    }

    /// Moves all messages on.
    pub(crate) fn move_pieces(&mut self) {
        let mut sends = std::mem::take(&mut self.pipeline.sends);
        sends.iter_mut().for_each(|send| self.move_send(send));
        let (ended, sends): (Vec<_>, Vec<_>) =
            sends.into_iter().partition(|send| send.outcome.is_some() && send.sends == 0);
        self.pipeline.sends = sends;
        for send in ended {
            self.end_outgoing(send);
        }
        let mut receives = std::mem::take(&mut self.pipeline.receives);
        receives.iter_mut().for_each(|receive| self.move_receive(receive));
        let has_ended = |receive: &Incoming| receive.outcome.is_some() && receive.receives == 0;
        let (ended, receives): (Vec<_>, Vec<_>) = receives.into_iter().partition(has_ended);
        self.pipeline.receives = receives;
        for Incoming { request, delivered, outcome, .. } in ended {
            if let (Some(request), Some(outcome)) = (request, outcome) {
                self.end(Ended { request, outcome: outcome.map(|()| delivered) });
            }
        }
    }

    fn end_outgoing(&mut self, send: Outgoing) {
        if let Some(asking) = send.asking {
            self.take_back(asking, send.peer);
        }
        self.transport.free(send.want);
        let outcome = send.outcome.unwrap_or(Ok(())).map(|()| Delivered::default());
        self.end(Ended { request: send.request, outcome });
    }

    /// Sends what the receiver has asked for, as far as there are buffers, and takes its next want.
    fn move_send(&mut self, send: &mut Outgoing) {
        let Some(comm) = self.pipeline.comm else { return };
        while send.outcome.is_none()
            && let Some(want) = send.wants.front().copied()
            && let Some(buffer) = self.pipeline.outgoing.pop()
        {
            let to = self.transport.address_of(&buffer);
            // SAFETY: the buffer has that many bytes and is not in use, and the caller of the send vouches for the data.
            unsafe { send.data.window(want.at, want.bytes).pack(to.as_ptr(), want.bytes as usize) };
            let tag = PIECE | u32::from(send.number);
            match self.transport.isend_buffer(comm, send.peer, tag, Mode::Complete, &buffer, want.bytes) {
                Ok(request) => {
                    self.note_given(send.peer);
                    self.owners.add(request.0, Owner::PieceSent { key: send.key, peer: send.peer });
                    self.pipeline.busy.push((request.0, buffer));
                    send.sends += 1;
                    send.wants.pop_front();
                }
                Err(why) => {
                    self.pipeline.outgoing.push(buffer);
                    send.outcome = self.refused(why, send.peer).map(Err);
                    break;
                }
            }
        }
        if send.outcome.is_none() && send.asking.is_none() && send.wants.len() < 2 {
            match self.transport.irecv_buffer(comm, Source::Rank(send.peer), Tag::Is(send.number.into()), &send.want) {
                Ok(asking) => {
                    self.owners.add(asking.0, Owner::Want { key: send.key });
                    send.asking = Some(asking);
                }
                Err(why) => send.outcome = self.refused(why, send.peer).map(Err),
            }
        }
    }

    /// Gives the device buffers for the next pieces, and asks the sender for them.
    fn move_receive(&mut self, receive: &mut Incoming) {
        if receive.outcome.is_some() {
            return;
        }
        let comm = match self.pipelines() {
            Ok(comm) => comm,
            Err(why) => return receive.outcome = self.refused(why, receive.peer).map(Err),
        };
        let limits = self.peers.get(receive.peer).and_then(|peer| peer.limits);
        let piece = limits.map_or(0, |limits| u64::from(limits.piece)).min(self.pipeline.piece);
        while receive.asked < receive.wanted
            && let Some(buffer) = self.pipeline.incoming.pop()
        {
            let want = Want { at: receive.asked, bytes: piece.min(receive.wanted - receive.asked) };
            let tag = Tag::Is(PIECE | u32::from(receive.number));
            match self.transport.irecv_buffer(comm, Source::Rank(receive.peer), tag, &buffer) {
                Ok(request) => {
                    self.owners.add(request.0, Owner::PieceReceived { key: receive.key, want });
                    self.pipeline.busy.push((request.0, buffer));
                    receive.receives += 1;
                    receive.asked += want.bytes;
                    receive.unsaid.push_back(want);
                }
                Err(why) => {
                    self.pipeline.incoming.push(buffer);
                    receive.outcome = self.refused(why, receive.peer).map(Err);
                    break;
                }
            }
        }
        while receive.outcome.is_none()
            && let Some(want) = receive.unsaid.front()
        {
            match self.transport.isend_bytes(comm, receive.peer, receive.number.into(), &want.encode()) {
                Ok(request) => {
                    self.note_given(receive.peer);
                    self.note_copied(crate::pipeline::WANT as u64);
                    self.owners.add(request.0, Owner::Nobody { peer: receive.peer });
                    if want.bytes == 0 {
                        receive.outcome = Some(Ok(()));
                    }
                    receive.unsaid.pop_front();
                }
                Err(why) => {
                    receive.outcome = self.refused(why, receive.peer).map(Err);
                    break;
                }
            }
        }
    }

    /// Why a message ends whose operation was refused. `None`: there is no room now. Posted receives give theirs up.
    fn refused(&mut self, why: Refusal, peer: u32) -> Option<DeviceFailure> {
        match why {
            Refusal::Busy | Refusal::Device(towline_window::completion::Failure::Full) => {
                if !self.takeover.is_active() && self.has_posted() {
                    self.take_over();
                }
                None
            }
            Refusal::Device(why) => Some(self.failure_of(Failure::Operation(why), peer)),
            _ => Some(DeviceFailure::Device),
        }
    }

    /// Ends all messages, since the device has failed.
    pub(crate) fn fail_pieces(&mut self) {
        for send in &mut self.pipeline.sends {
            send.outcome.get_or_insert(Err(DeviceFailure::Device));
        }
        for receive in &mut self.pipeline.receives {
            receive.outcome.get_or_insert(Err(DeviceFailure::Device));
        }
        self.move_pieces();
    }
}
