//! Frames that the user gives to the link: admission, memory, number, first transmission.

use zerocopy::FromZeros;

use super::checksum::{Checksum, sum_span};
use super::header::{HEADER, MIGRATED, MIGRATION, PREFIX, Prefix, TAG};
use super::in_flight::{HEAD_ROOM, IN_PLACE, InFlightFrame, Transmit, rest};
use super::path::{ConnState, Path};
use super::state::Link;
use crate::convertor::Span;
use crate::list::List;
use crate::pool::Handle;
use crate::rail::{
    COPIED, Cookie, Endpoint, FullRail, Grant, HEAD, LATER, LINKED_HEAD, Lane, Origin, SendError, Sent, Shape, Ticket,
};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Decides whether the link takes a frame now. Begins the handshake if there was none. `migrated`: the frame migrated here,
    /// and may use the reserve slot. Returns whether the frame has to use it.
    fn admit(&mut self, to: Endpoint, lane: Lane, tag: u8, migrated: bool) -> Result<bool, SendError> {
        let path = self.peers.paths.get(to.0 as usize).ok_or(SendError::Unreachable)?;
        match path.session.state {
            ConnState::Free | ConnState::Down | ConnState::Closed => return Err(SendError::Unreachable),
            ConnState::Idle => {
                self.connect(to.0);
                return Err(SendError::Busy);
            }
            ConnState::Connecting => return Err(SendError::Busy),
            ConnState::Up => {}
        }
        if tag == TAG {
            return Err(SendError::TooLong);
        }
        let reserve_free = self.has_several() && self.send.reserve_slot == Handle::NONE;
        let full = self.is_full(path, lane, reserve_free);
        let waits = lane != Lane::Control && !path.send.queued.iter().all(List::is_empty);
        if !self.window_has_room(path, lane)
            || waits
            || (lane != Lane::Control && !path.has_room())
            || (full && !(migrated && reserve_free))
        {
            return Err(SendError::Busy);
        }
        Ok(full)
    }

    /// Whether a number is free for a frame of this lane.
    fn window_has_room(&self, path: &Path, lane: Lane) -> bool {
        let span = path.send.next.wrapping_sub(path.send.first);
        let kept_back = match lane {
            Lane::Control => 0,
            _ => self.config.control_window().min(path.send.window / 2),
        };
        span < u64::from(path.send.window.wrapping_sub(kept_back))
    }

    /// Whether no slot is free for a frame of this lane to this peer.
    ///
    /// A peer that acknowledges nothing has to leave slots for others. So no peer takes more slots than remain free. If `n`
    /// peers become silent at the same time, each holds as many slots as are free: one part in `n + 1`. If they become silent
    /// one after the other, each would halve the rest. So some slots are kept back, one for each peer that has none.
    fn is_full(&self, path: &Path, lane: Lane, reserve_free: bool) -> bool {
        let slots = if lane == Lane::Control { 0 } else { self.config.control_slots };
        let unused = self.send.frames.capacity().wrapping_sub(self.send.frames.used());
        let free = unused.saturating_sub(reserve_free.into());
        let without = |holders: u32| self.peers.touched.wrapping_sub(self.peers.free.len()).saturating_sub(holders);
        let exceeds_share = || match lane {
            Lane::Control => {
                let spare = without(self.send.control_holders).min(self.config.control_slots / 2);
                let own = path.send.unacked_control;
                own != 0 && own >= free.saturating_sub(spare).div_ceil(2)
            }
            _ => {
                let spare = without(self.send.data_holders).min(self.config.slots / 4);
                let own = path.send.unacked_data();
                own != 0 && own >= free.saturating_sub(slots).saturating_sub(spare)
            }
        };
        free <= slots || (self.has_several() && exceeds_share())
    }

    /// The longest frame of a lane, in bytes.
    fn limit(&self, lane: Lane) -> u32 {
        if lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit }
    }

    /// Reserves memory for a frame. The next call that sends or reserves drops the frame if it is not committed.
    pub(super) fn reserve_frame(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.drop_draft();
        if shape.len > self.limit(shape.lane) || usize::from(shape.header) > LINKED_HEAD || shape.tag == MIGRATED {
            return Err(SendError::TooLong);
        }
        self.admit(to, shape.lane, shape.tag, false)?;
        let (handle, frame) = self.send.frames.take_uncleared().ok_or(SendError::Busy)?;
        *frame = InFlightFrame {
            path: to.0,
            len: shape.len.wrapping_add(HEADER as u32),
            lane: shape.lane as u8,
            tag: shape.tag,
            own_tag: shape.tag,
            header: shape.header,
            ..InFlightFrame::new_zeroed()
        };
        let head = self.send.slots.at(handle.slot());
        let room = if shape.len as usize <= HEAD - HEADER {
            head.wrapping_add(HEADER)
        } else if let Some(room) = self.reserve_room(handle, shape.len as usize, false) {
            room
        } else {
            self.send.frames.free(handle);
            return Err(SendError::Busy);
        };
        self.send.draft = handle;
        let ticket = Ticket { endpoint: to, position: handle.to_bits(), len: shape.len, extra: 0 };
        // SAFETY: the room is a head, a slot or a place for a long grant. The branches above have checked that it is as long as
        // the frame. It belongs to this link alone.
        Ok(unsafe { Grant::new(room, shape.len as usize, ticket) })
    }

    /// Sends the frame that was written to a grant, or queues it.
    pub(super) fn commit_draft(&mut self, ticket: Ticket) -> Sent {
        let handle = Handle::from_bits(ticket.position);
        if handle != self.send.draft || handle == Handle::NONE {
            return Sent::Staged; // the grant is void
        }
        self.send.draft = Handle::NONE;
        let slot = handle.slot();
        let head = self.send.slots.at(slot);
        let Some(frame) = self.send.frames.get_mut(handle) else { return Sent::Staged };
        let own = (frame.len as usize).wrapping_sub(HEADER);
        let room = if own <= HEAD - HEADER {
            head.wrapping_add(HEADER)
        } else {
            let room = match frame.long {
                _ if !LATER => head.wrapping_add(HEAD_ROOM),
                0 => head.wrapping_add(HEAD_ROOM),
                long => self.send.long.at(long.wrapping_sub(1)),
            };
            // SAFETY: the room is longer than the copied part, and does not overlap the head, which has HEAD_ROOM bytes.
            unsafe { core::ptr::copy_nonoverlapping(room, head.wrapping_add(HEADER), HEAD - HEADER) };
            room
        };
        let header = usize::from(frame.header).min(own);
        frame.body = Span::contiguous(room.wrapping_add(header), own.wrapping_sub(header));
        self.sum_body(handle);
        if self.number_and_transmit(handle) != Transmit::Sent {
            self.queue(slot);
        }
        Sent::Staged
    }

    /// Sends a frame, or queues it. With a cookie the body may stay in the caller's memory, until
    /// [`Event::Sent`](crate::rail::Event::Sent) with that cookie.
    ///
    /// # Safety
    /// As for [`Rail::send`](crate::rail::Rail::send).
    pub(super) unsafe fn submit(
        &mut self,
        to: Endpoint,
        origin: Option<Origin>,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        self.drop_draft();
        let own = header.len() as u64 + body.len();
        let longest = self.limit(shape.lane);
        let prefix = if origin.is_some() { PREFIX } else { 0 };
        if own > u64::from(longest) || header.len() > LINKED_HEAD || (origin.is_none() && shape.tag == MIGRATED) {
            return Err(SendError::TooLong);
        }
        let takes_reserve = self.admit(to, shape.lane, shape.tag, origin.is_some())?;
        let (handle, frame) = self.send.frames.take_uncleared().ok_or(SendError::Busy)?;
        let len = (own as u32).wrapping_add((HEADER + prefix) as u32);
        *frame = InFlightFrame {
            path: to.0,
            len,
            lane: shape.lane as u8,
            tag: if origin.is_some() { MIGRATED } else { shape.tag },
            own_tag: shape.tag,
            header: header.len() as u8,
            cookie: cookie.map_or(0, |cookie| cookie.0),
            ..InFlightFrame::new_zeroed()
        };
        if takes_reserve {
            self.send.reserve_slot = handle;
        }
        let head = self.send.slots.at(handle.slot());
        if let Some(origin) = origin {
            (frame.origin_link, frame.origin_number) = (origin.link, origin.number);
            // SAFETY: the head is longer than header and prefix together.
            unsafe { head.add(HEADER).cast::<Prefix>().write_unaligned(Prefix::new(origin, shape.tag)) };
        }
        let at = HEADER + prefix;
        // SAFETY: HEADER + PREFIX + LINKED_HEAD bytes fit the head, and no slice refers to the head.
        unsafe { core::ptr::copy_nonoverlapping(header.as_ptr(), head.wrapping_add(at), header.len()) };
        let at = at.wrapping_add(header.len());
        // SAFETY: the caller guarantees that the body is valid; the head is writable up to HEAD.
        unsafe { body.pack(head.wrapping_add(at), HEAD.saturating_sub(at)) };
        let in_place = LATER && cookie.is_some() && body.len() > COPIED;
        frame.body = if in_place {
            frame.flags = IN_PLACE;
            body
        } else if len as usize <= HEAD {
            Span::contiguous(head.wrapping_add(at), body.len() as usize)
        } else {
            let Some(room) = self.reserve_room(handle, body.len() as usize, origin.is_some()) else {
                self.free_frame(handle);
                return Err(SendError::Busy);
            };
            // SAFETY: the caller guarantees that the body is valid; the room is as long as the body.
            unsafe { body.pack(room, body.len() as usize) };
            match self.send.frames.get_mut(handle) {
                Some(frame) => frame.body = Span::contiguous(room, body.len() as usize),
                None => return Err(SendError::Busy),
            }
            return self.transmit_first(handle, false);
        };
        self.transmit_first(handle, in_place)
    }

    /// Sends a frame for the first time. If the rail below has no room, queues a frame with a long body, and refuses any other.
    fn transmit_first(&mut self, handle: Handle, in_place: bool) -> Result<Sent, SendError> {
        self.sum_body(handle);
        let long = LATER && self.send.frames.get(handle).is_some_and(|frame| frame.body.len() > COPIED);
        let transmit = self.number_and_transmit(handle);
        if !LATER {
            // A frame that has its copy can wait as well as its sender.
            if transmit != Transmit::Sent {
                self.queue(handle.slot());
            }
            return Ok(Sent::Staged);
        }
        match transmit {
            Transmit::Sent => return Ok(if in_place { Sent::InPlace } else { Sent::Staged }),
            // If the link refused a frame with a long body, the caller would try again, and each attempt would compute the
            // checksum again. That would cost more than sending. While the frame waits, the link takes no other data frame to
            // this peer.
            Transmit::Busy if long => {
                self.queue(handle.slot());
                return Ok(if in_place { Sent::InPlace } else { Sent::Staged });
            }
            Transmit::Busy | Transmit::Unreachable => {}
        }
        // No other frame has got a number since. So the next frame gets the number of this one.
        if let Some(frame) = self.send.frames.get(handle).copied() {
            self.withdraw_number(frame.path, frame.number, frame.is_control());
        }
        self.free_frame(handle);
        Err(if transmit == Transmit::Busy { SendError::Busy } else { SendError::Unreachable })
    }

    /// Computes the checksum of the part of the body that the rail below does not get as its header.
    fn sum_body(&mut self, handle: Handle) {
        let Some(frame) = self.send.frames.get_mut(handle) else { return };
        let checks = self.peers.paths.get(frame.path as usize).is_some_and(|path| path.session.checks_bodies);
        if checks && frame.len as usize > HEAD {
            // SAFETY: the body is in a slot of this link, or in the caller's memory, which does not change until the frame's
            // completion.
            frame.body_check = unsafe { sum_span(&self.checksum, 0, &rest(frame)) };
        }
    }

    /// Gives a frame its number, and sends it if the rail below has room.
    fn number_and_transmit(&mut self, handle: Handle) -> Transmit {
        let slot = handle.slot();
        let Some(frame) = self.send.frames.get_mut(handle) else { return Transmit::Busy };
        let at = frame.path;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return Transmit::Busy };
        frame.number = path.send.next;
        path.send.next = path.send.next.wrapping_add(1);
        if path.send.unacked == 0 {
            if MIGRATION {
                path.send.oldest = frame.number;
            }
            // A new frame does not extend the time limit of a peer that does not answer probes.
            let since = if path.liveness.unanswered == 0 { self.clock.now } else { path.liveness.heard_at };
            path.liveness.owes_since = path.liveness.owes_since.max(1).max(since);
        }
        let (number, control) = (frame.number, frame.is_control());
        self.count(at, control, 1);
        if let Some(entry) = self.window_entry_mut(at, number) {
            *entry = slot.wrapping_add(1);
        }
        self.acked_bits(at).clear(number);
        self.transmit(slot)
    }

    /// Takes the last number back.
    fn withdraw_number(&mut self, at: u32, number: u64, control: bool) {
        if let Some(entry) = self.window_entry_mut(at, number) {
            *entry = 0;
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.send.next = number;
            if path.send.unacked == 1 {
                path.liveness.owes_since = 0;
            }
        }
        self.count(at, control, -1);
    }
}
