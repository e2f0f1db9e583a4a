//! Frames that the user of a link gives to it: admission, room, number, first transmission.

use zerocopy::FromZeros;

use super::checksum::{Checksum, sum_span};
use super::header::{HEADER, MOVED, PREFIX, Prefix, TAG};
use super::in_flight::{HEAD_ROOM, IN_PLACE, Kept, Left, List, rest};
use super::path::State;
use super::state::Link;
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::{
    COPIED, Cookie, Endpoint, FullRail, Grant, HEAD, LINKED_HEAD, Lane, Origin, SendError, Sent, Shape, Ticket,
};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Whether a frame may be taken now; sees to that it may be later. One that was `moved` here may have to take the
    /// ferry; tells whether it has.
    pub(super) fn admit(&mut self, to: Endpoint, lane: Lane, tag: u8, moved: bool) -> Result<bool, SendError> {
        let path = self.paths.get(to.0 as usize).ok_or(SendError::Unreachable)?;
        match path.state {
            State::Free | State::Down | State::Closed => return Err(SendError::Unreachable),
            State::Quiet => {
                self.greet(to.0);
                return Err(SendError::Busy);
            }
            State::Greeting => return Err(SendError::Busy),
            State::Up => {}
        }
        if tag == TAG {
            return Err(SendError::TooLong);
        }
        let span = path.next.wrapping_sub(path.first);
        let kept_back = self.config.control_window().min(path.window / 2);
        let (window, slots) = match lane {
            Lane::Control => (path.window, 0),
            _ => (path.window.wrapping_sub(kept_back), self.config.control_slots),
        };
        // Who acknowledges nothing leaves room for others: nobody takes more than is left then. Of so many peers that fall silent
        // at once each holds as much as is free, so that of `slots` one in their number plus one is. Of those that do one after
        // the other each would halve what is left: so each peer that has none yet finds one, as far as a part of the slots goes.
        let ferry = self.config.peers > 1 && self.ferry == Handle::NONE;
        let free = self.kept.capacity().wrapping_sub(self.kept.used()).saturating_sub(ferry.into());
        let without = |holders: u32| self.touched.wrapping_sub(self.free.len()).saturating_sub(holders);
        let full = match lane {
            Lane::Control => {
                let spare = without(self.control_holders).min(self.config.control_slots / 2);
                path.control != 0 && path.control >= free.saturating_sub(spare).div_ceil(2)
            }
            _ => {
                let (own, spare) = (path.data(), without(self.data_holders).min(self.config.slots / 4));
                own != 0 && own >= free.saturating_sub(slots).saturating_sub(spare)
            }
        };
        let full = free <= slots || (self.config.peers > 1 && full);
        let waits = lane != Lane::Control && !path.waiting.iter().all(List::is_empty);
        if span >= u64::from(window)
            || waits
            || (lane != Lane::Control && !path.has_room())
            || (full && !(moved && ferry))
        {
            return Err(SendError::Busy);
        }
        Ok(full)
    }

    pub(super) fn limit(&self, lane: Lane) -> u32 {
        if lane == Lane::Bulk { self.attributes.max_send_size } else { self.attributes.eager_limit }
    }

    /// Room for a frame, which is void if it is not committed.
    pub(super) fn draft(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.forget_draft();
        if shape.len > self.limit(shape.lane) || usize::from(shape.header) > LINKED_HEAD || shape.tag == MOVED {
            return Err(SendError::TooLong);
        }
        self.admit(to, shape.lane, shape.tag, false)?;
        let (handle, kept) = self.kept.take_used().ok_or(SendError::Busy)?;
        *kept = Kept {
            path: to.0,
            len: shape.len.wrapping_add(HEADER as u32),
            lane: shape.lane as u8,
            tag: shape.tag,
            own_tag: shape.tag,
            header: shape.header,
            ..Kept::new_zeroed()
        };
        let head = self.slots.at(handle.slot());
        let room = if shape.len as usize <= HEAD - HEADER {
            head.wrapping_add(HEADER)
        } else if let Some(room) = self.room(handle, shape.len as usize, false) {
            room
        } else {
            self.kept.free(handle);
            return Err(SendError::Busy);
        };
        self.draft = handle;
        let ticket = Ticket { endpoint: to, position: handle.to_bits(), len: shape.len, extra: 0 };
        // SAFETY: the room is as long as the frame: a head, a slot or a long room, each of which was just seen to be long
        // enough; it belongs to this link alone.
        Ok(unsafe { Grant::new(room, shape.len as usize, ticket) })
    }

    /// Room in the slot's own memory, or in a long one.
    pub(super) fn room(&mut self, handle: Handle, len: usize, moved: bool) -> Option<*mut u8> {
        if len.wrapping_add(HEAD_ROOM) <= self.slots.each() {
            return Some(self.slots.at(handle.slot()).wrapping_add(HEAD_ROOM));
        }
        if len > self.long.each() {
            return None;
        }
        // The last is for the frame on the ferry.
        let kept_back = u32::from(self.config.peers > 1);
        if self.ferry != handle && self.long_free.len() <= kept_back {
            if !moved || self.ferry != Handle::NONE {
                return None;
            }
            self.ferry = handle;
        }
        let place = self.long_free.pop()?;
        match self.kept.get_mut(handle) {
            Some(kept) => kept.long = place.wrapping_add(1),
            None => self.long_free.push(place),
        }
        Some(self.long.at(place))
    }

    /// Takes a draft for a frame.
    pub(super) fn commit_draft(&mut self, ticket: Ticket) -> Sent {
        let handle = Handle::from_bits(ticket.position);
        if handle != self.draft || handle == Handle::NONE {
            return Sent::Staged; // of a grant that is void
        }
        self.draft = Handle::NONE;
        let slot = handle.slot();
        let head = self.slots.at(slot);
        let Some(kept) = self.kept.get_mut(handle) else { return Sent::Staged };
        let own = (kept.len as usize).wrapping_sub(HEADER);
        let room = if own <= HEAD - HEADER {
            head.wrapping_add(HEADER)
        } else {
            let room = match kept.long {
                0 => head.wrapping_add(HEAD_ROOM),
                long => self.long.at(long.wrapping_sub(1)),
            };
            // SAFETY: the room is longer than this, and apart from the head, which is as long as HEAD_ROOM.
            unsafe { core::ptr::copy_nonoverlapping(room, head.wrapping_add(HEADER), HEAD - HEADER) };
            room
        };
        let header = usize::from(kept.header).min(own);
        kept.body = Span::contiguous(room.wrapping_add(header), own.wrapping_sub(header));
        self.check_body(handle);
        if self.take(handle) != Left::Yes {
            self.wait(slot);
        }
        Sent::Staged
    }

    /// Takes a frame whose body may stay where it is, if there is a cookie to tell when it is read no more.
    ///
    /// # Safety
    /// As for [`Rail::send`](crate::rail::Rail::send).
    pub(super) unsafe fn give(
        &mut self,
        to: Endpoint,
        origin: Option<Origin>,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        self.forget_draft();
        let own = header.len() as u64 + body.len();
        let longest = self.limit(shape.lane);
        let prefix = if origin.is_some() { PREFIX } else { 0 };
        if own > u64::from(longest) || header.len() > LINKED_HEAD || (origin.is_none() && shape.tag == MOVED) {
            return Err(SendError::TooLong);
        }
        let boards = self.admit(to, shape.lane, shape.tag, origin.is_some())?;
        let (handle, kept) = self.kept.take_used().ok_or(SendError::Busy)?;
        let len = (own as u32).wrapping_add((HEADER + prefix) as u32);
        *kept = Kept {
            path: to.0,
            len,
            lane: shape.lane as u8,
            tag: if origin.is_some() { MOVED } else { shape.tag },
            own_tag: shape.tag,
            header: header.len() as u8,
            cookie: cookie.map_or(0, |cookie| cookie.0),
            ..Kept::new_zeroed()
        };
        if boards {
            self.ferry = handle;
        }
        let head = self.slots.at(handle.slot());
        if let Some(origin) = origin {
            (kept.origin_link, kept.origin_number) = (origin.link, origin.number);
            // SAFETY: the head is longer than this.
            unsafe { head.add(HEADER).cast::<Prefix>().write_unaligned(Prefix::new(origin, shape.tag)) };
        }
        let at = HEADER + prefix;
        // SAFETY: HEADER + PREFIX + LINKED_HEAD bytes fit the head, and no slice reaches it.
        unsafe { core::ptr::copy_nonoverlapping(header.as_ptr(), head.wrapping_add(at), header.len()) };
        let at = at.wrapping_add(header.len());
        // SAFETY: the caller vouches for the body; the head is writable up to HEAD.
        unsafe { body.pack(head.wrapping_add(at), HEAD.saturating_sub(at)) };
        let in_place = cookie.is_some() && body.len() > COPIED;
        kept.body = if in_place {
            kept.flags = IN_PLACE;
            body
        } else if len as usize <= HEAD {
            Span::contiguous(head.wrapping_add(at), body.len() as usize)
        } else {
            let Some(room) = self.room(handle, body.len() as usize, origin.is_some()) else {
                self.free_kept(handle);
                return Err(SendError::Busy);
            };
            // SAFETY: the caller vouches for the body; the room is as long.
            unsafe { body.pack(room, body.len() as usize) };
            match self.kept.get_mut(handle) {
                Some(kept) => kept.body = Span::contiguous(room, body.len() as usize),
                None => return Err(SendError::Busy),
            }
            return self.leave_first(handle, false);
        };
        self.leave_first(handle, in_place)
    }

    pub(super) fn leave_first(&mut self, handle: Handle, in_place: bool) -> Result<Sent, SendError> {
        self.check_body(handle);
        let long = self.kept.get(handle).is_some_and(|kept| kept.body.len() > COPIED);
        let left = self.take(handle);
        match left {
            Left::Yes => return Ok(if in_place { Sent::InPlace } else { Sent::Staged }),
            // To sum a long body anew at each attempt would cost more than to send it. While it waits, nothing else is taken.
            Left::Busy if long => {
                self.wait(handle.slot());
                return Ok(if in_place { Sent::InPlace } else { Sent::Staged });
            }
            Left::Busy | Left::Unreachable => {}
        }
        // It was the last one: its number goes to the next.
        if let Some(kept) = self.kept.get(handle).copied() {
            self.unlink(kept.path, kept.number, kept.is_control());
        }
        self.free_kept(handle);
        Err(if left == Left::Busy { SendError::Busy } else { SendError::Unreachable })
    }

    /// Sums the part of the body that the rail below does not get as its header.
    pub(super) fn check_body(&mut self, handle: Handle) {
        let Some(kept) = self.kept.get_mut(handle) else { return };
        let sums = self.paths.get(kept.path as usize).is_some_and(|path| path.sums);
        if sums && kept.len as usize > HEAD {
            // SAFETY: the body is in a slot of this link, or the caller's, who vouches for it until it is told.
            kept.body_check = unsafe { sum_span(&self.sums, 0, &rest(kept)) };
        }
    }

    /// Gives a frame its number, and sends it if the rail below has room.
    pub(super) fn take(&mut self, handle: Handle) -> Left {
        let slot = handle.slot();
        let Some(kept) = self.kept.get_mut(handle) else { return Left::Busy };
        let at = kept.path;
        let Some(path) = self.paths.get_mut(at as usize) else { return Left::Busy };
        kept.number = path.next;
        path.next = path.next.wrapping_add(1);
        if path.kept == 0 {
            path.oldest = kept.number;
            // One that is probed in vain has no more time for having been given a frame.
            let since = if path.tries == 0 { self.now } else { path.heard_at };
            path.owes_since = path.owes_since.max(1).max(since);
        }
        let (number, control) = (kept.number, kept.is_control());
        self.count(at, control, 1);
        if let Some(entry) = self.window_mut(at, number) {
            *entry = slot.wrapping_add(1);
        }
        self.out_bits(at).clear(number);
        self.leave(slot)
    }

    /// Takes the last number back.
    pub(super) fn unlink(&mut self, at: u32, number: u64, control: bool) {
        if let Some(entry) = self.window_mut(at, number) {
            *entry = 0;
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.next = number;
            if path.kept == 1 {
                path.owes_since = 0;
            }
        }
        self.count(at, control, -1);
    }
}
