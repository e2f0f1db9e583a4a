//! Frames that are kept until they are acknowledged: the window, and what leaves when.

use zerocopy::FromZeros;

use super::checksum::{Checksum, sum_span};
use super::header::{HEADER, Header, MOVED, PREFIX, Prefix, TAG, head_check};
use super::numbers::distance;
use super::path::{Path, State};
use super::window::Window;
use super::{Link, lane_of};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::rail::COPIED;
use crate::rail::{
    Cookie, Endpoint, FullRail, Grant, HEAD, LINKED_HEAD, Lane, Origin, SendError, Sent, Shape, Ticket, UnackedFrame,
};

/// Bytes kept before each slot's room: the first ones of the frame, as the rail below gets them.
pub(super) const HEAD_ROOM: usize = 64;

/// The body is the caller's: it is told when it is read no more.
const IN_PLACE: u8 = 1;
/// The rail below reads it.
pub(super) const READING: u8 = 2;
/// It left more than once.
pub(super) const RESENT: u8 = 4;
/// Acknowledged, or migrated: waits for the reading to end, then to be told.
const OVER: u8 = 8;
/// In the list of those under way.
const UNDER_WAY: u8 = 16;
/// In the list of those that wait.
const WAITS: u8 = 32;
/// It left at least once.
pub(super) const LEFT: u8 = 64;

/// A frame that is kept. Its first bytes are in the slot's head, at [`HEADER`].
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Kept {
    pub number: u64,
    /// The how-manieth frame it was when it left last, and when that was.
    pub left: u64,
    pub left_at: u64,
    /// The same as `left` before it left again because nothing was heard, which says nothing of its way: it may have come by then.
    /// 0: it did not.
    pub sure: u64,
    /// All of it behind its own header.
    body: Span,
    cookie: u64,
    pub path: u32,
    previous: u32,
    next: u32,
    /// Bytes as the rail below counts them.
    len: u32,
    body_check: u32,
    /// Room of its own for a long frame, plus one.
    long: u32,
    pub flags: u8,
    lane: u8,
    /// As the rail below gets it.
    tag: u8,
    own_tag: u8,
    header: u8,
    origin_link: u8,
    origin_number: u32,
}

impl Kept {
    pub const fn is_control(&self) -> bool {
        self.lane == Lane::Control as u8
    }
}

/// Stands for the slot of a frame that left by a third link: its number was given to nothing that will come.
pub(super) const VOID: u32 = u32::MAX;
/// The same of one that left by a second link, which the peer has by that one, or has yet to get.
pub(super) const AWAY: u32 = u32::MAX - 1;

/// Kept frames in an order; slots plus one.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub fn push(&mut self, pool: &mut Pool<'_, Kept>, slot: u32) {
        let name = slot.wrapping_add(1);
        match pool.at_mut(self.tail.wrapping_sub(1)) {
            Some(last) if self.tail != 0 => last.next = name,
            _ => self.head = name,
        }
        if let Some(kept) = pool.at_mut(slot) {
            (kept.previous, kept.next) = (self.tail, 0);
        }
        self.tail = name;
    }

    pub fn remove(&mut self, pool: &mut Pool<'_, Kept>, slot: u32) {
        let Some(kept) = pool.at(slot) else { return };
        let (previous, next) = (kept.previous, kept.next);
        match pool.at_mut(previous.wrapping_sub(1)) {
            Some(kept) if previous != 0 => kept.next = next,
            _ => self.head = next,
        }
        match pool.at_mut(next.wrapping_sub(1)) {
            Some(kept) if next != 0 => kept.previous = previous,
            _ => self.tail = previous,
        }
    }

    pub fn first(&self) -> Option<u32> {
        self.head.checked_sub(1)
    }

    pub fn last(&self) -> Option<u32> {
        self.tail.checked_sub(1)
    }

    pub const fn is_empty(&self) -> bool {
        self.head == 0
    }
}

/// Why a frame leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Yes,
    /// The rail below has no room.
    Busy,
    /// It does not reach the peer; that will be reported.
    Unreachable,
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Whether a frame may be taken now; sees to that it may be later. One that was `moved` here may have to take the
    /// ferry; tells whether it has.
    fn admit(&mut self, to: Endpoint, lane: Lane, tag: u8, moved: bool) -> Result<bool, SendError> {
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

    fn limit(&self, lane: Lane) -> u32 {
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
    fn room(&mut self, handle: Handle, len: usize, moved: bool) -> Option<*mut u8> {
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

    pub(super) fn forget_draft(&mut self) {
        let draft = core::mem::replace(&mut self.draft, Handle::NONE);
        if draft != Handle::NONE {
            self.free_kept(draft);
        }
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

    fn leave_first(&mut self, handle: Handle, in_place: bool) -> Result<Sent, SendError> {
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
    fn check_body(&mut self, handle: Handle) {
        let Some(kept) = self.kept.get_mut(handle) else { return };
        let sums = self.paths.get(kept.path as usize).is_some_and(|path| path.sums);
        if sums && kept.len as usize > HEAD {
            // SAFETY: the body is in a slot of this link, or the caller's, who vouches for it until it is told.
            kept.body_check = unsafe { sum_span(&self.sums, 0, &rest(kept)) };
        }
    }

    /// Gives a frame its number, and sends it if the rail below has room.
    fn take(&mut self, handle: Handle) -> Left {
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
    fn unlink(&mut self, at: u32, number: u64, control: bool) {
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

    /// A frame is kept for a peer, or one less is.
    pub(super) fn count(&mut self, at: u32, control: bool, by: i32) {
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        let before = (path.data() != 0, path.control != 0);
        path.kept = path.kept.wrapping_add_signed(by);
        path.control = path.control.wrapping_add_signed(if control { by } else { 0 });
        let after = (path.data() != 0, path.control != 0);
        let change = |holders: u32, before, after| holders.wrapping_add(after).wrapping_sub(before);
        self.data_holders = change(self.data_holders, before.0.into(), after.0.into());
        self.control_holders = change(self.control_holders, before.1.into(), after.1.into());
    }

    /// The window's entry of a number: the slot of the frame, plus one.
    pub(super) fn window_mut(&mut self, at: u32, number: u64) -> Option<&mut u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add((at as usize).wrapping_mul(width));
        self.ring.get_mut(place)
    }

    pub(super) fn window(&self, at: u32, number: u64) -> Option<u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add((at as usize).wrapping_mul(width));
        self.ring.get(place).filter(|entry| **entry < AWAY)?.checked_sub(1)
    }

    /// Sends a kept frame, whatever it was before.
    pub(super) fn leave(&mut self, slot: u32) -> Left {
        let (Some(handle), Some(kept)) = (self.kept.handle(slot), self.kept.at(slot)) else { return Left::Yes };
        let Some(path) = self.paths.get(kept.path as usize) else { return Left::Yes };
        if !path.raw_known {
            return Left::Unreachable;
        }
        // A moved frame acknowledges nothing: the place is for its number on the link that it was given to first.
        let moved = kept.tag == MOVED;
        let (at, raw, ack) = (kept.path, path.raw, if moved { 0 } else { path.base });
        let told = if moved { (kept.origin_number >> 16) as u16 } else { ack as u16 };
        let count = (kept.len as usize).min(HEAD);
        let head = self.slots.at(slot);
        let mut header = Header {
            number: (kept.number as u16).into(),
            ack: told.into(),
            head_check: 0.into(),
            body_check: kept.body_check.into(),
        };
        // SAFETY: the head is as long; nobody else has a reference into it.
        let bytes = unsafe {
            head.cast::<Header>().write_unaligned(header);
            core::slice::from_raw_parts(head, count)
        };
        header.head_check = head_check(&self.sums, path.seeds[0], kept.tag, kept.len, [kept.number, ack], bytes).into();
        // SAFETY: as above; the slice from before is not used any more.
        let bytes = unsafe {
            head.cast::<Header>().write_unaligned(header);
            core::slice::from_raw_parts(head, count)
        };
        let shape = Shape { tag: kept.tag, lane: lane_of(kept.lane), header: count as u8, len: kept.len };
        let body = if kept.len as usize > HEAD { rest(kept) } else { Span::EMPTY };
        let (cookie, summed) = (Cookie(handle.to_bits()), path.sums);
        // SAFETY: the body stays as it is until it is acknowledged and the rail below reads it no more.
        let sent = match unsafe {
            if summed {
                self.raw.send_summed(raw, shape, bytes, body, cookie)
            } else {
                self.raw.send(raw, shape, bytes, body, cookie)
            }
        } {
            Ok(sent) => sent,
            Err(SendError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                return Left::Busy;
            }
            Err(_) => return Left::Unreachable,
        };
        let now = self.now;
        let (Some(kept), Some(path)) = (self.kept.at_mut(slot), self.paths.get_mut(at as usize)) else {
            return Left::Yes;
        };
        if sent == Sent::InPlace {
            kept.flags |= READING;
        }
        if kept.flags & LEFT == 0 {
            self.counters.sent = self.counters.sent.wrapping_add(1);
        } else {
            kept.flags |= RESENT;
            self.counters.resent = self.counters.resent.wrapping_add(1);
        }
        kept.flags |= LEFT | UNDER_WAY;
        path.left = path.left.wrapping_add(1);
        if kept.flags & RESENT != 0 && kept.sure != 0 {
            path.overtaking.excuse(path.left);
        }
        (kept.left, kept.left_at) = (path.left, now);
        path.in_flight = path.in_flight.wrapping_add(1);
        if !moved && !path.has_holes() {
            path.owed = 0; // it went with this
        }
        let first = path.sent.is_empty();
        path.sent.push(&mut self.kept, slot);
        if first {
            self.set_timer(at);
        }
        Left::Yes
    }

    /// Sends a frame again that is kept, or has it wait for room. Whether it left.
    pub(super) fn leave_or_wait(&mut self, slot: u32) -> bool {
        self.take_off(slot);
        let left = self.leave(slot) == Left::Yes;
        if !left {
            self.wait(slot);
        }
        left
    }

    /// Frames under way that left after that time; no more of them are counted than may be.
    pub(super) fn left_since(&self, path: &Path, time: u64) -> u32 {
        let (mut count, mut last) = (0u32, path.sent.last());
        while count < path.congestion.allowed()
            && let Some(kept) = last.and_then(|slot| self.kept.at(slot))
            && kept.left_at > time
        {
            count = count.wrapping_add(1);
            last = kept.previous.checked_sub(1);
        }
        count
    }

    /// Puts a frame at the end of those that are to leave.
    pub(super) fn wait(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        let (at, lane) = (kept.path, usize::from(kept.lane != Lane::Control as u8));
        kept.flags |= WAITS;
        if let Some(path) = self.paths.get_mut(at as usize)
            && let Some(list) = path.waiting.get_mut(lane)
        {
            list.push(&mut self.kept, slot);
            self.work_later(at);
        }
    }

    pub(super) fn take_off(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        let (at, lane, flags) = (kept.path, usize::from(kept.lane != Lane::Control as u8), kept.flags);
        kept.flags &= !(UNDER_WAY | WAITS);
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        if flags & UNDER_WAY != 0 {
            path.sent.remove(&mut self.kept, slot);
            path.in_flight = path.in_flight.wrapping_sub(1);
        } else if flags & WAITS != 0
            && let Some(list) = path.waiting.get_mut(lane)
        {
            list.remove(&mut self.kept, slot);
        }
    }

    /// Sends what has to leave, as far as there is room. Whether something is left for which there is none below.
    pub(super) fn flush(&mut self, at: u32) -> bool {
        for lane in 0..2usize {
            loop {
                let Some(path) = self.paths.get(at as usize) else { return false };
                if path.state != State::Up {
                    return false;
                }
                let Some(slot) = path.waiting.get(lane).and_then(List::first) else { break };
                if lane == 1 && !path.has_room() {
                    return false; // goes on with the next ack
                }
                self.take_off(slot);
                match self.leave(slot) {
                    Left::Yes => {}
                    Left::Busy | Left::Unreachable => {
                        // Back to where it was: the list's order matters little, its lane does.
                        if let Some(kept) = self.kept.at_mut(slot) {
                            kept.flags |= WAITS;
                        }
                        if let Some(list) = self.paths.get_mut(at as usize).and_then(|path| path.waiting.get_mut(lane))
                        {
                            list.push(&mut self.kept, slot);
                        }
                        return true;
                    }
                }
            }
        }
        false
    }

    /// A frame is done with, as soon as the rail below is.
    pub(super) fn over(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        kept.flags |= OVER;
        if kept.flags & READING != 0 {
            return;
        }
        if kept.flags & IN_PLACE != 0 {
            self.done.push(slot);
        } else if let Some(handle) = self.kept.handle(slot) {
            self.free_kept(handle);
        }
    }

    /// The rail below reads a body no more.
    pub(super) fn on_raw_sent(&mut self, cookie: Cookie) {
        let handle = Handle::from_bits(cookie.0);
        let Some(kept) = self.kept.get_mut(handle) else { return };
        if kept.flags & READING == 0 {
            return;
        }
        kept.flags &= !READING;
        if kept.flags & OVER != 0 {
            self.over(handle.slot());
        }
    }

    /// A body that is to be told of.
    pub(super) fn next_done(&mut self) -> Option<Cookie> {
        while let Some(slot) = self.done.pop() {
            let (Some(handle), Some(kept)) = (self.kept.handle(slot), self.kept.at(slot)) else { continue };
            let cookie = Cookie(kept.cookie);
            self.free_kept(handle);
            return Some(cookie);
        }
        None
    }

    fn free_kept(&mut self, handle: Handle) {
        if self.ferry == handle {
            self.ferry = Handle::NONE;
        }
        if let Some(kept) = self.kept.free(handle)
            && let Some(long) = kept.long.checked_sub(1)
        {
            self.long_free.push(long);
        }
    }

    /// The rail below has forgotten the peer: it reads no memory of it any more.
    pub(super) fn unread_all(&mut self, at: u32) {
        for slot in 0..self.kept.touched() {
            let Some(kept) = self.kept.at_mut(slot).filter(|kept| kept.path == at) else { continue };
            let read = kept.flags & READING != 0;
            kept.flags &= !READING;
            if read && kept.flags & OVER != 0 {
                self.over(slot);
            }
        }
    }

    /// Takes all kept frames off the lists: nothing leaves any more.
    pub(super) fn halt(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize) else { return };
        let (mut number, end) = (path.first, path.next);
        while number != end {
            if let Some(slot) = self.window(at, number) {
                self.take_off(slot);
            }
            number = number.wrapping_add(1);
        }
    }

    /// All that is kept leaves again.
    pub(super) fn resume(&mut self, at: u32) {
        let initial = self.config.initial_window;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        (path.timeouts, path.congestion) = (0, Window::new(initial, path.window));
        (path.latest, path.asked_at) = (path.left, 0);
        path.owes_since = if path.kept == 0 { 0 } else { self.now.max(1) };
        let (mut number, end) = (path.first, path.next);
        while number != end {
            if let Some(slot) = self.window(at, number) {
                self.revive(at, slot);
            }
            number = number.wrapping_add(1);
        }
        if self.flush(at) {
            self.work_later(at);
        }
    }

    fn revive(&mut self, at: u32, slot: u32) {
        self.take_off(slot); // one that was committed after the link went down waits already
        if let Some(kept) = self.kept.at_mut(slot) {
            kept.sure = 0;
        }
        if self.kept.at(slot).is_none_or(|kept| kept.flags & READING == 0) {
            return self.wait(slot);
        }
        // The rail below is still at it.
        let now = self.now;
        if let (Some(path), Some(kept)) = (self.paths.get_mut(at as usize), self.kept.at_mut(slot)) {
            kept.flags |= UNDER_WAY;
            path.left = path.left.wrapping_add(1);
            (kept.left, kept.left_at) = (path.left, now);
            path.in_flight = path.in_flight.wrapping_add(1);
            path.sent.push(&mut self.kept, slot);
        }
    }

    /// Forgets all that is kept for a peer.
    pub(super) fn drop_kept(&mut self, at: u32) {
        self.halt(at);
        for slot in 0..self.kept.touched() {
            if self.kept.at(slot).is_none_or(|kept| kept.path != at) {
                continue;
            }
            if let Some(handle) = self.kept.handle(slot) {
                if handle == self.draft {
                    self.draft = Handle::NONE;
                }
                self.free_kept(handle);
            }
        }
        while let Some(path) = self.paths.get(at as usize).filter(|path| path.kept != 0) {
            self.count(at, path.control != 0, -1);
        }
        let kept = &self.kept;
        self.done.retain(|slot| kept.at(slot).is_some());
        let width = self.config.window as usize;
        let start = (at as usize).wrapping_mul(width);
        if let Some(window) = self.ring.get_mut(start..start.wrapping_add(width)) {
            window.fill(0);
        }
    }

    /// The oldest frame that is kept.
    fn oldest(&self, at: u32) -> Option<u32> {
        let path = self.paths.get(at as usize).filter(|path| path.kept != 0)?;
        let start = if distance(path.oldest, path.first) > 0 { path.oldest } else { path.first };
        let mut number = start;
        while number != path.next {
            if let Some(slot) = self.window(at, number) {
                return Some(slot);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// The oldest frame of a link that is down, for another one to carry.
    pub(super) fn orphan_of(&self, to: Endpoint) -> Option<UnackedFrame> {
        let path = self.paths.get(to.0 as usize)?;
        if !matches!(path.state, State::Down | State::Closed) {
            return None;
        }
        let slot = self.oldest(to.0)?;
        let kept = self.kept.at(slot)?;
        let moved = kept.tag == MOVED;
        let origin = self.origin(kept);
        let own = (kept.len as usize).wrapping_sub(HEADER).wrapping_sub(if moved { PREFIX } else { 0 });
        let mut header = [0; LINKED_HEAD];
        let from = self.slots.at(slot).wrapping_add(if moved { HEADER + PREFIX } else { HEADER });
        // SAFETY: a header of up to LINKED_HEAD bytes stands there, in the slot's head.
        unsafe {
            core::ptr::copy_nonoverlapping(from, header.as_mut_ptr(), usize::from(kept.header).min(LINKED_HEAD));
        }
        let shape = Shape { tag: kept.own_tag, lane: lane_of(kept.lane), header: kept.header, len: own as u32 };
        let cookie = (kept.flags & IN_PLACE != 0).then_some(Cookie(kept.cookie));
        Some(UnackedFrame { origin, shape, header, body: kept.body, cookie })
    }

    fn origin(&self, kept: &Kept) -> Origin {
        match kept.tag {
            MOVED => Origin { link: kept.origin_link, number: kept.origin_number },
            _ => Origin { link: self.config.link, number: kept.number as u32 },
        }
    }

    /// A frame has left by another link. Its number stays taken until it is acknowledged: the peer takes it for received when the
    /// frame claims it, or, of one that names another link as its origin, when it is told that the number is void.
    pub(super) fn rehome(&mut self, to: Endpoint, origin: Origin) {
        let at = to.0;
        let Some(slot) = self.oldest(at) else { return };
        let Some(kept) = self.kept.at(slot).copied().filter(|kept| self.origin(kept) == origin) else { return };
        let number = kept.number;
        if let Some(kept) = self.kept.at_mut(slot) {
            kept.flags &= !IN_PLACE; // whoever carries it now tells of its body
        }
        self.take_off(slot);
        if let Some(entry) = self.window_mut(at, number) {
            // One that was moved here has another link's number as its origin, so nobody claims the one that it has here.
            *entry = if kept.tag == MOVED { VOID } else { AWAY };
        }
        self.count(at, kept.is_control(), -1);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.oldest = number.wrapping_add(1);
        }
        self.counters.migrated = self.counters.migrated.wrapping_add(1);
        self.over(slot);
    }
}

/// The part of a frame's body that the rail below does not get as its header.
fn rest(kept: &Kept) -> Span {
    let before = HEADER + usize::from(kept.header) + if kept.tag == MOVED { PREFIX } else { 0 };
    kept.body.window(HEAD.saturating_sub(before) as u64, u64::MAX)
}
