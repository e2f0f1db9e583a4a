//! Moves messages that are longer than a device has room for. The sender announces such a message, and the device matches the announcement
//! as it does other messages. Then the receiver asks for one piece after the other, and the sender sends it. Both are messages of the
//! devices, in a communicator of their own. The receiver asks when it has given its device a buffer for the piece, so a piece that was sent
//! goes on by the devices alone.

use std::collections::VecDeque;

use towline_core::convertor::Span;
use towline_core::pml::offload::{Delivered, DeviceFailure, Ended, Operation};
use towline_core::pml::{self, Mode, Sending};
use towline_window::command::PIPELINES;
use towline_window::completion;

use crate::errors::{Failure, Refusal};
use crate::matching::{HeldSend, Matching, Owner, refusal};
use crate::pipeline::{Direction, Incoming, Limits, MOST, Outgoing, PIECE, WANT, Want, announced};
use crate::takeover::Posted;
use crate::transport::{Comm, Source, Status, Tag};

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
    pub(crate) fn announce(&mut self, send: &HeldSend) -> Result<Option<Sending>, pml::Refusal> {
        let HeldSend { operation, mode, data } = *send;
        if self.pipeline.is_abandoned() {
            return Err(pml::Refusal::DeviceFailed);
        }
        // The host has the receive of such a message if that is as long as the message, and the device does not know it.
        let mode = if mode == Mode::Ready { Mode::Synchronous } else { mode };
        let Some(number) = self.pipeline.next_number() else { return Ok(None) };
        let length = announced(number, data.len());
        let Operation { request, comm, rank, peer, tag } = operation;
        let mut begun = self.transport.announce(Comm(comm), rank, tag, mode, length);
        if begun == Err(Refusal::Busy) && !self.takeover.is_active() {
            self.take_over(); // as in `give_send`
            begun = self.transport.announce(Comm(comm), rank, tag, mode, length);
        }
        let announcement = match begun {
            Ok(announcement) => announcement,
            Err(Refusal::Busy) => return Ok(None),
            Err(why) => return Err(refusal(why)),
        };
        let key = self.pipeline.next_key();
        self.owners.add(announcement.0, Owner::Announcement { request, key, peer });
        self.note_given(peer);
        self.pipeline.sends.push(Outgoing {
            key,
            number,
            request,
            peer,
            data,
            is_matched: false,
            want: None,
            asking: None,
            is_cancelled: false,
            wants: VecDeque::new(),
            sends: 1,
            outcome: None,
            is_told: false,
        });
        Ok(Some(Sending::Pending(request)))
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
            unsaid: VecDeque::new(),
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
    pub(crate) fn notice_ended(&mut self, key: u64, peer: u32, outcome: Result<Status, Failure>) {
        let outcome = outcome.map_err(|why| self.failure_of(why, peer));
        if let Some(send) = self.pipeline.sends.iter_mut().find(|send| send.key == key) {
            send.sends -= 1;
            send.is_matched |= outcome.is_ok();
            if let Err(why) = outcome {
                send.outcome.get_or_insert(Err(why));
            }
        }
    }

    /// A piece was sent.
    pub(crate) fn piece_sent(&mut self, cookie: u64, key: u64, peer: u32, outcome: Result<Status, Failure>) {
        if let Some(buffer) = self.pipeline.buffer_of(cookie) {
            self.pipeline.return_buffer(&mut self.transport, buffer);
        }
        self.notice_ended(key, peer, outcome);
    }

    /// The receiver of a message has asked for more of it, or wants no more.
    pub(crate) fn want_came(&mut self, key: u64, outcome: Result<Status, Failure>) {
        let Some(place) = self.pipeline.sends.iter().position(|send| send.key == key) else { return };
        let Outgoing { peer, data, .. } = self.pipeline.sends[place];
        let outcome = outcome.map_err(|why| self.failed(why, peer)).map(|status| {
            let mut bytes = [[0; WANT / 2]; 2];
            let want = self.pipeline.sends[place].want.as_ref();
            let is_whole = status.received == WANT as u64
                && want.is_some_and(|want| self.transport.copy(want, 0, bytes.as_flattened_mut()));
            is_whole.then(|| Want::decode(bytes))
        });
        let is_possible = |want: &Want| {
            want.bytes <= self.pipeline.piece && want.at.checked_add(want.bytes).is_some_and(|end| end <= data.len())
        };
        let outcome = outcome.map(|want| want.filter(is_possible));
        if outcome == Ok(None) {
            self.violated(peer);
        }
        let send = &mut self.pipeline.sends[place];
        send.asking = None;
        let end = match outcome {
            Ok(Some(Want { bytes: 0, .. })) => Ok(()),
            Ok(Some(want)) => return send.wants.push_back(want),
            Ok(None) => Err(DeviceFailure::PeerFailed(peer)),
            Err(why) => Err(why),
        };
        send.outcome.get_or_insert(end);
    }

    /// A piece has come.
    pub(crate) fn piece_came(&mut self, cookie: u64, key: u64, want: Want, outcome: Result<Status, Failure>) {
        let Some(buffer) = self.pipeline.buffer_of(cookie) else { return };
        if let Some(place) = self.pipeline.receives.iter().position(|receive| receive.key == key) {
            let peer = self.pipeline.receives[place].peer;
            let is_whole = outcome.as_ref().is_ok_and(|status| status.received == want.bytes);
            let failure = match outcome {
                Ok(_) => DeviceFailure::PeerFailed(peer),
                Err(why) => self.failed(why, peer),
            };
            let is_end = matches!(failure, DeviceFailure::PeerClosed(_) | DeviceFailure::Device);
            if !is_whole && !is_end {
                self.violated(peer); // it sends no more pieces, or another length
            }
            let receive = &mut self.pipeline.receives[place];
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
                receive.outcome.get_or_insert(Err(failure));
            }
        }
        self.pipeline.return_buffer(&mut self.transport, buffer);
    }

    /// Why an operation of pieces has failed.
    fn failed(&mut self, why: Failure, peer: u32) -> DeviceFailure {
        if why == Failure::Operation(completion::Failure::Unreachable) {
            self.note_unreachable(peer);
        }
        self.failure_of(why, peer)
    }

    /// Moves all messages on.
    pub(crate) fn move_pieces(&mut self) {
        for place in 0..self.pipeline.sends.len() {
            self.move_send(place);
        }
        self.pipeline.sends.retain(|send| !send.is_told || send.asking.is_some());
        for place in 0..self.pipeline.receives.len() {
            self.move_receive(place);
        }
        let has_ended = |receive: &mut Incoming| receive.outcome.is_some() && receive.receives == 0;
        let ended: Vec<_> = self.pipeline.receives.extract_if(.., has_ended).collect();
        for Incoming { request, delivered, outcome, .. } in ended {
            if let (Some(request), Some(outcome)) = (request, outcome) {
                self.end(Ended { request, outcome: outcome.map(|()| delivered) });
            }
        }
    }

    /// Sends what the receiver of a message has asked for, takes its next want, and ends the message if it is over.
    fn move_send(&mut self, place: usize) {
        let Outgoing { peer, .. } = self.pipeline.sends[place];
        if let Some(why) = self.attempt(Self::send_pieces, place, peer) {
            self.pipeline.sends[place].outcome.get_or_insert(Err(why));
        }
        if self.pipeline.sends[place].can_ask()
            && let Some(why) = self.attempt(Self::ask_for_want, place, peer)
        {
            self.pipeline.sends[place].outcome = Some(Err(why));
        }
        let send = &mut self.pipeline.sends[place];
        let Some(outcome) = send.outcome else { return };
        match send.asking {
            // It ends in any case, at the latest with its peer.
            Some(asking) if !std::mem::replace(&mut send.is_cancelled, true) => drop(self.transport.cancel(asking)),
            Some(_) => {}
            None => send.want.take().into_iter().for_each(|want| self.transport.free(want)),
        }
        let send = &mut self.pipeline.sends[place];
        if send.sends == 0 && !std::mem::replace(&mut send.is_told, true) {
            let request = send.request;
            self.end(Ended { request, outcome: outcome.map(|()| Delivered::default()) });
        }
    }

    /// Gives the device a buffer for the next want of the receiver.
    fn ask_for_want(&mut self, place: usize) -> Result<(), Refusal> {
        let comm = self.pipelines()?;
        let Self { pipeline, transport, owners, .. } = self;
        let send = &mut pipeline.sends[place];
        let want = match send.want.take() {
            Some(want) => want,
            None => transport.buffer(WANT as u64)?,
        };
        let begun = transport.irecv_buffer(comm, Source::Rank(send.peer), Tag::Is(send.number.into()), &want);
        send.want = Some(want);
        let asking = begun?;
        owners.add(asking.0, Owner::Want { key: send.key });
        send.asking = Some(asking);
        Ok(())
    }

    /// Sends pieces as far as there are buffers.
    fn send_pieces(&mut self, place: usize) -> Result<(), Refusal> {
        let Some(comm) = self.pipeline.comm else { return Ok(()) }; // no want has come
        while let Some(send) = self.pipeline.sends.get(place)
            && let (None, Some(want)) = (send.outcome, send.wants.front().copied())
        {
            let (key, peer, data, has) = (send.key, send.peer, send.data, send.sends);
            let tag = PIECE | u32::from(send.number);
            self.transport.admit()?; // before bytes are copied
            let Some(buffer) = self.pipeline.take_buffer(&mut self.transport, has, Direction::Send)? else { break };
            let to = self.transport.address_of(&buffer);
            // SAFETY: the buffer has that many bytes and is not in use, and the caller of the send vouches for the data.
            unsafe { data.window(want.at, want.bytes).pack(to.as_ptr(), want.bytes as usize) };
            match self.transport.isend_buffer(comm, peer, tag, Mode::Complete, &buffer, want.bytes) {
                Ok(request) => {
                    self.note_given_own(peer);
                    self.owners.add(request.0, Owner::PieceSent { key, peer });
                    self.pipeline.busy.push((request.0, buffer));
                    let send = &mut self.pipeline.sends[place];
                    send.sends += 1;
                    send.wants.pop_front();
                }
                Err(why) => {
                    self.pipeline.return_buffer(&mut self.transport, buffer);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Gives the device buffers for the next pieces of a message, and asks the sender for them.
    fn move_receive(&mut self, place: usize) {
        if self.pipeline.receives[place].outcome.is_some() {
            return;
        }
        let peer = self.pipeline.receives[place].peer;
        if let Some(why) = self.attempt(Self::ask_for_pieces, place, peer) {
            self.pipeline.receives[place].outcome = Some(Err(why));
        }
    }

    fn ask_for_pieces(&mut self, place: usize) -> Result<(), Refusal> {
        let comm = self.pipelines()?;
        let Incoming { key, number, peer, .. } = self.pipeline.receives[place];
        let limits = self.peers.get(peer).and_then(|peer| peer.limits);
        let piece = limits.map_or(0, |limits| u64::from(limits.piece)).min(self.pipeline.piece);
        loop {
            let Incoming { wanted, asked, receives, .. } = self.pipeline.receives[place];
            if asked >= wanted || piece == 0 {
                break;
            }
            let buffer = self.pipeline.take_buffer(&mut self.transport, receives, Direction::Receive)?;
            let Some(buffer) = buffer else { break };
            let want = Want { at: asked, bytes: piece.min(wanted - asked) };
            let tag = Tag::Is(PIECE | u32::from(number));
            match self.transport.irecv_buffer(comm, Source::Rank(peer), tag, &buffer) {
                Ok(request) => {
                    self.owners.add(request.0, Owner::PieceReceived { key, want });
                    self.pipeline.busy.push((request.0, buffer));
                    let receive = &mut self.pipeline.receives[place];
                    receive.receives += 1;
                    receive.asked += want.bytes;
                    receive.unsaid.push_back(want);
                }
                Err(why) => {
                    self.pipeline.return_buffer(&mut self.transport, buffer);
                    return Err(why);
                }
            }
        }
        while let Some(want) = self.pipeline.receives[place].unsaid.front().copied() {
            let request = self.transport.isend_bytes(comm, peer, number.into(), &want.encode())?;
            self.note_given_own(peer);
            self.note_copied(WANT as u64);
            self.owners.add(request.0, Owner::WantSent { peer });
            let receive = &mut self.pipeline.receives[place];
            receive.unsaid.pop_front();
            if want.bytes == 0 {
                receive.outcome = Some(Ok(()));
            }
        }
        Ok(())
    }

    /// Takes a step of the message at a place. If there is no room for it, posted receives give theirs up: their messages may be sent
    /// after this one. Returns why the message ends. `None`: it goes on, or there is no room now.
    fn attempt(
        &mut self,
        step: fn(&mut Self, usize) -> Result<(), Refusal>,
        place: usize,
        peer: u32,
    ) -> Option<DeviceFailure> {
        let is_full = |why| matches!(why, Refusal::Busy | Refusal::Device(completion::Failure::Full));
        let mut taken = step(self, place);
        if taken.is_err_and(is_full) && self.make_room() {
            taken = step(self, place);
        }
        match taken {
            Ok(()) => None,
            Err(why) if is_full(why) => None,
            Err(Refusal::Device(why)) => Some(self.failure_of(Failure::Operation(why), peer)),
            Err(_) => Some(DeviceFailure::Device),
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
