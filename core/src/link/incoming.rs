//! Frames that arrive: each is handed up once, and counts as received when its body has passed its check.

use core::cell::Cell;

use zerocopy::{FromBytes, FromZeros};

use super::Link;
use super::checksum::{Checksum, sum_span};
use super::header::{HEADER, Header, MOVED, PREFIX, Prefix, TAG, head_check};
use super::numbers::{distance, widen, widen_word};
use super::path::State;
use crate::convertor::{Span, transfer};
use crate::pool::Handle;
use crate::rail::{COPIED, Claim, Cookie, Delivery, Endpoint, Event, Frame, FrameId, FullRail, HEAD, Origin, Peer};

/// Longest frame that is handed over whole although the rail below counts it as longer than a head: what is behind.
pub(super) const TAIL: usize = HEADER + PREFIX;

/// Where a frame stands that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Stage {
    /// The reader has it, and the rail below.
    Held,
    /// The reader has it; it must come once more before there is more of it than its first bytes.
    HeldInPart,
    /// The rail below writes it to its sink.
    Coming,
    /// The rail below writes it to the scratch.
    InScratch,
    /// It has to wait for the scratch.
    ForScratch,
    /// Its sink is known, and it must come once more.
    Awaited,
    /// It is short, and the rail below writes its last bytes to the record's own memory.
    Tail,
    /// All of it is in its sink; the reader is to be told.
    Done,
}

/// A frame that has arrived and is not finished.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Coming {
    number: u64,
    raw: u64,
    sink: Span,
    skip: u64,
    cookie: u64,
    path: u32,
    /// Bytes as the rail below counts them.
    len: u32,
    body_check: u32,
    stage: Stage,
    moved: bool,
    /// Its number was passed over: the bit for those of which there is a record is another's by now, or nobody's.
    passed: bool,
    tag: u8,
    origin_link: u8,
    origin_number: u32,
    head: [u8; HEAD],
}

impl Coming {
    /// Bytes of the link's own before the frame's.
    fn before(&self) -> usize {
        if self.moved { HEADER + PREFIX } else { HEADER }
    }

    /// Bytes of the frame.
    fn own(&self) -> u64 {
        (self.len as u64).saturating_sub(self.before() as u64)
    }

    /// Of those, the ones that are in `head`.
    fn in_head(&self) -> u64 {
        (HEAD as u64).saturating_sub(self.before() as u64)
    }

    fn origin(&self) -> Origin {
        Origin { link: self.origin_link, number: self.origin_number }
    }
}

/// How far a held body has been summed: bytes, and their sum; [`BAD`] where the sum was wrong.
pub(super) type Progress = Cell<u64>;
const BAD: u64 = u64::MAX;

/// What a look at a body says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    /// It is not all in.
    Open,
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A frame of the rail below.
    pub(super) fn on_frame(&mut self, frame: &Frame) -> Option<Event> {
        self.holds = !frame.is_whole();
        let event = self.take_frame(frame);
        if core::mem::take(&mut self.holds) {
            self.raw.release(frame.id);
        }
        event
    }

    /// As above; the frame is given back unless `holds` is cleared.
    fn take_frame(&mut self, frame: &Frame) -> Option<Event> {
        let at = frame.from.0;
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state != State::Free) else {
            self.counters.early = self.counters.early.wrapping_add(1);
            return None;
        };
        let count = (frame.len as usize).min(HEAD);
        let head = frame.head.get(..count).filter(|_| usize::from(frame.valid) >= count);
        let Some((head, (header, rest))) = head.and_then(|head| Some((head, Header::read_from_prefix(head).ok()?)))
        else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        if frame.tag == TAG {
            self.on_own(at, frame.len, &header, head, rest);
            return None;
        }
        if !path.met() {
            self.counters.early = self.counters.early.wrapping_add(1);
            return None;
        }
        let number = widen(header.number.get(), path.base);
        let moved = frame.tag == MOVED;
        let ack = if moved { 0 } else { widen(header.ack.get(), path.first) };
        let check = head_check(&self.sums, path.seeds[1], frame.tag, frame.len, [number, ack], head);
        if check != header.head_check.get() {
            self.counters.bad_heads = self.counters.bad_heads.wrapping_add(1);
            return None;
        }
        self.heard(at);
        if !moved {
            self.take_ack(at, ack, 0, &[], false);
            self.see_voids(at);
        }
        let path = self.paths.get(at as usize)?;
        let behind = distance(number, path.base);
        if behind >= i64::from(self.config.window) {
            self.counters.beyond = self.counters.beyond.wrapping_add(1);
            return None;
        }
        if self.is_passed(at, number) {
            self.double(at);
            return None;
        }
        if self.busy_bits(at).has(number) {
            self.once_more(at, number, frame);
            return None;
        }
        self.see(at, number);
        self.new_frame(at, number, &header, frame, rest)
    }

    fn see(&mut self, at: u32, number: u64) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && distance(number, path.seen()) >= 0
        {
            path.seen = number.wrapping_add(1) as u16;
        }
    }

    /// A frame that did not come before.
    fn new_frame(&mut self, at: u32, number: u64, header: &Header, frame: &Frame, rest: &[u8]) -> Option<Event> {
        let moved = frame.tag == MOVED;
        let mut coming = Coming {
            number,
            raw: frame.id.0,
            path: at,
            len: frame.len,
            body_check: header.body_check.get(),
            moved,
            tag: frame.tag,
            head: frame.head,
            ..Coming::new_zeroed()
        };
        if moved {
            let Ok((prefix, _)) = Prefix::read_from_prefix(rest) else {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
                return None;
            };
            let origin = prefix.origin(header);
            (coming.tag, coming.origin_link, coming.origin_number) = (prefix.tag, origin.link, origin.number);
        }
        if frame.is_whole() {
            self.receive(at, number, false);
            return Some(self.event(&coming, FrameId(0), &[]));
        }
        let own = coming.own();
        if own <= HEAD as u64 {
            let mut tail = [0; TAIL];
            let want = (frame.len as usize).saturating_sub(HEAD).min(TAIL);
            let tail = tail.get_mut(..want)?;
            if self.raw.read(frame.id, HEAD, tail) == want {
                let sums = self.paths.get(at as usize)?.sums;
                if sums && self.sums.sum(0, tail) != coming.body_check {
                    self.bad_body(at);
                    return None;
                }
                self.receive(at, number, false);
                return Some(self.event(&coming, FrameId(0), tail));
            }
        }
        let room = self.room_for(at) != 0;
        let Some((handle, place)) = (if room { self.coming.take_used() } else { None }) else {
            self.refuse(at);
            return None;
        };
        *place = coming;
        self.holds = false;
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.coming = path.coming.wrapping_add(1);
        }
        self.busy_bits(at).set(number);
        self.restart_sum(handle);
        if own <= HEAD as u64 {
            return self.fetch_tail(handle);
        }
        Some(self.event(&coming, FrameId(handle.to_bits()), &[]))
    }

    /// What the reader gets of a frame, whose bytes behind a head are `tail`.
    fn event(&mut self, coming: &Coming, id: FrameId, tail: &[u8]) -> Event {
        let (before, own) = (coming.before(), coming.own());
        let mut head = [0; HEAD];
        let from = coming.head.get(before..).unwrap_or(&[]).iter().chain(tail);
        let mut valid = 0u8;
        for (to, from) in head.iter_mut().zip(from).take(own.min(HEAD as u64) as usize) {
            *to = *from;
            valid = valid.wrapping_add(1);
        }
        let from = Peer(self.paths.get(coming.path as usize).map_or(u32::MAX, |path| path.peer));
        let frame = Frame { id, from, tag: coming.tag, valid, len: own as u32, head };
        if coming.moved { Event::Migrated(coming.origin(), frame) } else { Event::Frame(frame) }
    }

    /// A frame that is under way here has come again.
    fn once_more(&mut self, at: u32, number: u64, frame: &Frame) {
        let found = self.record_of(at, number);
        let Some((slot, handle)) = found.and_then(|slot| Some((slot, self.coming.handle(slot)?))) else { return };
        let Some(coming) = self.coming.at_mut(slot) else { return };
        let wanted = matches!(coming.stage, Stage::Awaited | Stage::HeldInPart);
        if !wanted || coming.len != frame.len {
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.wants = true;
            }
            return self.double(at);
        }
        coming.raw = frame.id.0;
        self.holds = false;
        self.restart_sum(handle);
        if self.coming.at(slot).is_some_and(|coming| coming.stage == Stage::HeldInPart) {
            if let Some(coming) = self.coming.at_mut(slot) {
                coming.stage = Stage::Held;
            }
        } else if self.fill(handle) == Delivery::Done {
            self.tell(slot);
        }
    }

    /// A body is where it belongs.
    fn tell(&mut self, slot: u32) {
        if let Some(coming) = self.coming.at_mut(slot) {
            coming.stage = Stage::Done;
            self.filled.push(slot);
        }
    }

    /// Deliveries that the reader is to be told of.
    pub(super) fn next_filled(&mut self) -> Option<Cookie> {
        while let Some(slot) = self.filled.pop() {
            let (Some(handle), Some(coming)) = (self.coming.handle(slot), self.coming.at(slot)) else { continue };
            let cookie = Cookie(coming.cookie);
            self.finish(handle);
            return Some(cookie);
        }
        None
    }

    /// The record of a frame that is received, or given up, is free again.
    fn finish(&mut self, handle: Handle) {
        let Some(coming) = self.coming.free(handle) else { return };
        if !coming.passed {
            self.busy_bits(coming.path).clear(coming.number);
        }
        if let Some(path) = self.paths.get_mut(coming.path as usize) {
            path.coming = path.coming.wrapping_sub(1);
        }
        self.offer_room();
    }

    /// Numbers of frames that have a record and must come again.
    pub(super) fn awaited(&self, at: u32) -> impl Iterator<Item = u64> {
        let must_come = move |coming: &&Coming| {
            coming.path == at && matches!(coming.stage, Stage::Awaited | Stage::HeldInPart) && !coming.passed
        };
        (0..self.coming.touched()).filter_map(|slot| self.coming.at(slot)).filter(must_come).map(|coming| coming.number)
    }

    /// Frames that the reader has, and has not said what is to become of.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let held = |coming: &Coming| matches!(coming.stage, Stage::Held | Stage::HeldInPart);
        (0..self.coming.touched()).filter_map(|slot| self.coming.at(slot)).filter(|coming| held(coming)).count()
    }

    fn restart_sum(&mut self, handle: Handle) {
        if let Some(progress) = self.progress.get(handle.slot() as usize) {
            progress.set(0);
        }
    }

    /// Sums as much of a held body as is in.
    fn look(&self, handle: Handle, coming: &Coming) -> Verdict {
        let sums = self.paths.get(coming.path as usize).is_some_and(|path| path.sums);
        let Some(progress) = self.progress.get(handle.slot() as usize) else { return Verdict::Open };
        if !sums {
            return Verdict::Good;
        }
        if progress.get() == BAD {
            return Verdict::Bad;
        }
        let body = coming.len.saturating_sub(HEAD as u32);
        let (mut done, mut sum) = ((progress.get() >> 32) as u32, progress.get() as u32);
        let mut piece = [0; 256];
        while done < body {
            let want = (body.wrapping_sub(done) as usize).min(piece.len());
            let Some(piece) = piece.get_mut(..want) else { break };
            let count = self.raw.read(FrameId(coming.raw), HEAD.wrapping_add(done as usize), piece).min(want);
            let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { break };
            sum = self.sums.sum(sum, read);
            done = done.wrapping_add(count as u32);
        }
        progress.set(u64::from(done) << 32 | u64::from(sum));
        if done < body {
            return Verdict::Open;
        }
        if sum == coming.body_check {
            return Verdict::Good;
        }
        progress.set(BAD);
        Verdict::Bad
    }

    /// Bytes of a held frame.
    pub(super) fn read_held(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let handle = Handle::from_bits(frame.0);
        let held = |coming: &&Coming| matches!(coming.stage, Stage::Held | Stage::HeldInPart);
        let Some(coming) = self.coming.get(handle).filter(held) else { return 0 };
        let (before, own) = (coming.before(), coming.own() as usize);
        let want = own.saturating_sub(at).min(into.len());
        let head = coming.head.get(before.saturating_add(at)..).unwrap_or(&[]);
        let from_head = head.len().min(want);
        into.iter_mut().zip(head).take(from_head).for_each(|(to, from)| *to = *from);
        if from_head == want || coming.stage == Stage::HeldInPart {
            return from_head;
        }
        match self.look(handle, coming) {
            Verdict::Good => {
                let Some(rest) = into.get_mut(from_head..want) else { return from_head };
                let from = before.saturating_add(at).saturating_add(from_head);
                from_head.saturating_add(self.raw.read(FrameId(coming.raw), from, rest).min(rest.len()))
            }
            Verdict::Bad => {
                self.spoilt.set(true);
                from_head
            }
            Verdict::Open => from_head,
        }
    }

    /// Held frames whose bodies were found bad by a look are given back, to come once more.
    pub(super) fn give_back_spoilt(&mut self) {
        if !self.spoilt.replace(false) {
            return;
        }
        for slot in 0..self.coming.touched() {
            let Some(coming) = self.coming.at_mut(slot).filter(|coming| coming.stage == Stage::Held) else { continue };
            if self.progress.get(slot as usize).is_some_and(|progress| progress.get() == BAD) {
                coming.stage = Stage::HeldInPart;
                let (at, raw) = (coming.path, coming.raw);
                self.raw.release(FrameId(raw));
                self.bad_body(at);
            }
        }
    }

    /// The reader wants a frame's bytes from `skip` on in `sink`.
    pub(super) fn deliver_held(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let handle = Handle::from_bits(frame.0);
        let Some(coming) = self.coming.get_mut(handle) else { return Delivery::Done };
        (coming.skip, coming.sink, coming.cookie) = ((skip as u64).min(coming.own()), sink, cookie.0);
        match coming.stage {
            Stage::Held => {}
            Stage::HeldInPart => {
                coming.stage = Stage::Awaited;
                return Delivery::Pending;
            }
            _ => return Delivery::Done, // it was asked for already
        }
        let delivery = self.fill(handle);
        if delivery == Delivery::Done {
            self.finish(handle);
        }
        delivery
    }

    /// The reader does not want the rest of a frame.
    pub(super) fn release_held(&mut self, frame: FrameId) {
        let handle = Handle::from_bits(frame.0);
        let Some(coming) = self.coming.get(handle).copied() else { return };
        match coming.stage {
            Stage::Held => self.raw.release(FrameId(coming.raw)),
            Stage::HeldInPart => {}
            _ => return,
        }
        self.receive(coming.path, coming.number, coming.own() > COPIED);
        self.finish(handle);
    }

    /// Takes a frame that the rail below holds to its sink. Where it answers `Done`, it counts as received.
    fn fill(&mut self, handle: Handle) -> Delivery {
        let Some(coming) = self.coming.get(handle).copied() else { return Delivery::Done };
        let (own, in_head) = (coming.own(), coming.in_head());
        let fits = coming.skip <= in_head && coming.sink.len() >= own.saturating_sub(coming.skip);
        if !fits {
            match self.look(handle, &coming) {
                Verdict::Good => {}
                Verdict::Bad => {
                    self.raw.release(FrameId(coming.raw));
                    return self.await_again(handle);
                }
                Verdict::Open => return self.fill_by_scratch(handle),
            }
        }
        let skip = coming.before().saturating_add(coming.skip as usize);
        self.stage(handle, Stage::Coming);
        // SAFETY: the reader keeps the sink writable until it is told; the rail below tells this link by the handle.
        let delivery = unsafe { self.raw.deliver(FrameId(coming.raw), skip, coming.sink, Cookie(handle.to_bits())) };
        match delivery {
            Delivery::Done => self.check_sink(handle),
            Delivery::Pending => Delivery::Pending,
        }
    }

    fn stage(&mut self, handle: Handle, stage: Stage) {
        if let Some(coming) = self.coming.get_mut(handle) {
            coming.stage = stage;
        }
    }

    /// All of a body that can be is in its sink.
    fn check_sink(&mut self, handle: Handle) -> Delivery {
        let Some(coming) = self.coming.get(handle).copied() else { return Delivery::Done };
        let sums = self.paths.get(coming.path as usize).is_some_and(|path| path.sums);
        let (own, in_head) = (coming.own(), coming.in_head());
        let fits = coming.skip <= in_head && coming.sink.len() >= own.saturating_sub(coming.skip);
        // What did not fit was looked at before.
        if sums && fits {
            let body = coming.sink.window(in_head.saturating_sub(coming.skip), own.saturating_sub(in_head));
            // SAFETY: the reader leaves the sink alone until it is told, and the rail below is done with it.
            if unsafe { sum_span(&self.sums, 0, &body) } != coming.body_check {
                return self.await_again(handle);
            }
        }
        self.receive(coming.path, coming.number, own > COPIED);
        Delivery::Done
    }

    /// A body was bad.
    fn await_again(&mut self, handle: Handle) -> Delivery {
        self.stage(handle, Stage::Awaited);
        if let Some(coming) = self.coming.get(handle) {
            self.bad_body(coming.path);
        }
        Delivery::Pending
    }

    fn bad_body(&mut self, at: u32) {
        self.counters.bad_bodies = self.counters.bad_bodies.wrapping_add(1);
        self.ack_repeated(at);
    }

    /// A sink that does not take all of a body which is not all in yet: it goes to the scratch first.
    #[cold]
    fn fill_by_scratch(&mut self, handle: Handle) -> Delivery {
        if self.scratch_of != Handle::NONE {
            self.stage(handle, Stage::ForScratch);
            return Delivery::Pending;
        }
        let Some(coming) = self.coming.get(handle).copied() else { return Delivery::Done };
        let body = coming.len.saturating_sub(HEAD as u32) as usize;
        if body > self.scratch.each() {
            // Longer than any frame of this rail: it is not to be had.
            self.raw.release(FrameId(coming.raw));
            return self.await_again(handle);
        }
        self.scratch_of = handle;
        self.stage(handle, Stage::InScratch);
        let sink = Span::contiguous(self.scratch.at(0), body);
        // SAFETY: the scratch is as long, and kept for this frame until the rail below is done.
        match unsafe { self.raw.deliver(FrameId(coming.raw), HEAD, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.take_from_scratch(handle),
            Delivery::Pending => Delivery::Pending,
        }
    }

    #[cold]
    fn take_from_scratch(&mut self, handle: Handle) -> Delivery {
        self.scratch_of = Handle::NONE;
        let Some(coming) = self.coming.get(handle).copied() else { return Delivery::Done };
        let body = Span::contiguous(self.scratch.at(0), coming.len.saturating_sub(HEAD as u32) as usize);
        // SAFETY: the rail below has written it, and is done.
        if unsafe { sum_span(&self.sums, 0, &body) } != coming.body_check {
            return self.await_again(handle);
        }
        let head = coming.head.get(coming.before().saturating_add(coming.skip as usize)..).unwrap_or(&[]);
        // SAFETY: the reader keeps the sink writable; the head is a copy of this function's own.
        let done = unsafe { coming.sink.unpack(head.as_ptr(), head.len()) } as u64;
        let body = body.window(coming.skip.saturating_sub(coming.in_head()), u64::MAX);
        // SAFETY: as above; the scratch is this link's own.
        unsafe { transfer(body, coming.sink.window(done, u64::MAX)) };
        self.receive(coming.path, coming.number, true);
        Delivery::Done
    }

    /// Whoever waits for the scratch gets it.
    #[cold]
    pub(super) fn next_for_scratch(&mut self) {
        for slot in 0..self.coming.touched() {
            if self.scratch_of != Handle::NONE {
                return;
            }
            if self.coming.at(slot).is_some_and(|coming| coming.stage == Stage::ForScratch)
                && let Some(handle) = self.coming.handle(slot)
                && self.fill(handle) == Delivery::Done
            {
                self.tell(slot);
            }
        }
    }

    /// A short frame whose last bytes are not in.
    fn fetch_tail(&mut self, handle: Handle) -> Option<Event> {
        let coming = self.coming.get(handle).copied()?;
        self.stage(handle, Stage::Tail);
        let count = (coming.len as usize).saturating_sub(HEAD).min(TAIL);
        let sink = Span::contiguous(self.tails.at(handle.slot()), count);
        // SAFETY: the record's own memory, which nothing else uses until the rail below is done.
        match unsafe { self.raw.deliver(FrameId(coming.raw), HEAD, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.take_tail(handle),
            Delivery::Pending => None,
        }
    }

    fn take_tail(&mut self, handle: Handle) -> Option<Event> {
        let coming = self.coming.get(handle).copied()?;
        let mut tail = [0; TAIL];
        let count = (coming.len as usize).saturating_sub(HEAD).min(TAIL);
        // SAFETY: as many bytes of the record's own memory were written.
        unsafe { core::ptr::copy_nonoverlapping(self.tails.at(handle.slot()), tail.as_mut_ptr(), count) };
        let tail = tail.get(..count)?;
        self.finish(handle);
        let path = self.paths.get(coming.path as usize)?;
        if path.sums && self.sums.sum(0, tail) != coming.body_check {
            self.bad_body(coming.path);
            return None;
        }
        self.receive(coming.path, coming.number, false);
        Some(self.event(&coming, FrameId(0), tail))
    }

    /// The rail below has put a body where it was told to.
    pub(super) fn on_raw_delivered(&mut self, cookie: Cookie) -> Option<Event> {
        let handle = Handle::from_bits(cookie.0);
        let stage = self.coming.get(handle)?.stage;
        let delivery = match stage {
            Stage::Coming => self.check_sink(handle),
            Stage::InScratch => {
                let delivery = self.take_from_scratch(handle);
                self.next_for_scratch();
                delivery
            }
            Stage::Tail => return self.take_tail(handle),
            _ => return None,
        };
        if delivery == Delivery::Pending {
            return None;
        }
        let cookie = Cookie(self.coming.get(handle)?.cookie);
        self.finish(handle);
        Some(Event::Delivered(cookie))
    }

    /// A frame counts as received; its sender is told soon.
    fn receive(&mut self, at: u32, number: u64, long: bool) {
        self.counters.received = self.counters.received.wrapping_add(1);
        if self.paths.get(at as usize).is_some_and(|path| path.away != 0) && self.is_passed(at, number) {
            self.not_away(at, number);
        }
        let news = self.mark(at, number);
        let every = self.config.ack_every;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.owed = path.owed.wrapping_add(1);
        // A long body stays where it is until it is acknowledged, and whoever waits for that must not depend on further calls
        // here: the reader may have all it wanted, and compute. Nor does it wait where something is lost, or found.
        if long || news || path.owed >= every {
            self.ack_now(at);
        } else {
            self.ack_later(at);
        }
    }

    /// Whether a number counts as received.
    fn is_passed(&mut self, at: u32, number: u64) -> bool {
        let before = self.paths.get(at as usize).is_some_and(|path| distance(number, path.base) < 0);
        before || self.received_bits(at).has(number)
    }

    /// Whether there is a new gap before this one, or it fills one.
    pub(super) fn mark(&mut self, at: u32, number: u64) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return false };
        let (mut base, mut top) = (path.base, path.top);
        if distance(number, base) < 0 {
            return false; // it was passed over
        }
        let news = distance(number, top) > 0 || (path.has_holes() && number == base);
        if distance(number, top) >= 0 {
            top = number.wrapping_add(1);
        }
        let mut bits = self.received_bits(at);
        bits.set(number);
        while base != top && bits.has(base) {
            bits.clear(base);
            base = base.wrapping_add(1);
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            (path.base, path.top) = (base, top);
        }
        news
    }

    fn double(&mut self, at: u32) {
        self.counters.doubles = self.counters.doubles.wrapping_add(1);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.doubles = path.doubles.wrapping_add(1);
        }
        self.ack_repeated(at);
    }

    /// The rail below has forgotten the peer: frames that it held are gone, and it writes to no sink any more.
    pub(super) fn lose_coming(&mut self, at: u32) {
        for slot in 0..self.coming.touched() {
            let Some(handle) = self.coming.handle(slot) else { continue };
            let Some(coming) = self.coming.at_mut(slot).filter(|coming| coming.path == at) else { continue };
            match coming.stage {
                Stage::Held => coming.stage = Stage::HeldInPart,
                Stage::Coming | Stage::ForScratch => coming.stage = Stage::Awaited,
                Stage::InScratch => {
                    coming.stage = Stage::Awaited;
                    self.scratch_of = Handle::NONE;
                }
                Stage::Tail => self.finish(handle),
                Stage::HeldInPart | Stage::Awaited | Stage::Done => {}
            }
        }
        self.next_for_scratch();
    }

    /// Forgets all that comes from a peer.
    pub(super) fn drop_coming(&mut self, at: u32) {
        for slot in 0..self.coming.touched() {
            if self.coming.at(slot).is_some_and(|coming| coming.path == at)
                && let Some(handle) = self.coming.handle(slot)
            {
                if handle == self.scratch_of {
                    self.scratch_of = Handle::NONE;
                }
                self.finish(handle);
            }
        }
        let coming = &self.coming;
        self.filled.retain(|slot| coming.at(slot).is_some());
        self.received_bits(at).0.fill(0);
        self.busy_bits(at).0.fill(0);
        self.next_for_scratch();
    }

    /// What is known here of a frame that another link has brought.
    pub(super) fn claim_of(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let at = from.0;
        let path = self.paths.get(at as usize).filter(|path| path.state != State::Free && path.met())?;
        let own = (path.their_link == origin.link).then(|| widen_word(origin.number, path.base));
        let own = own.and_then(|number| self.claim_own(at, number));
        let claim = match own {
            Some(Claim::Awaited { .. }) => own,
            // It may have moved here, also back to the link that it was given to first.
            _ => self.claim_moved(at, origin).or(own),
        };
        self.counters.claims = self.counters.claims.wrapping_add(u64::from(claim.is_some()));
        claim
    }

    fn claim_moved(&mut self, at: u32, origin: Origin) -> Option<Claim> {
        // One that the reader has just got, perhaps that about which it asks, says nothing.
        let waits = |stage| !matches!(stage, Stage::Held | Stage::HeldInPart | Stage::Done);
        let of =
            |coming: &Coming| coming.path == at && coming.moved && coming.origin() == origin && waits(coming.stage);
        let slot = (0..self.coming.touched()).find(|slot| self.coming.at(*slot).is_some_and(of))?;
        // Whether it has come before is for the link to tell that it was given to first, not for one that carried it.
        self.claim_record(slot).filter(|claim| matches!(claim, Claim::Awaited { .. }))
    }

    fn claim_own(&mut self, at: u32, number: u64) -> Option<Claim> {
        let path = self.paths.get(at as usize)?;
        let behind = distance(number, path.base);
        if behind >= i64::from(self.config.window) {
            return None; // it cannot have been sent
        }
        let passed = self.is_passed(at, number);
        if passed && !self.is_away(at, number) {
            return Some(Claim::Duplicate);
        }
        let begun = passed || self.busy_bits(at).has(number);
        if let Some(slot) = if begun { self.record_of(at, number) } else { None } {
            return self.claim_record(slot);
        }
        self.receive(at, number, false);
        Some(Claim::New)
    }

    fn record_of(&self, at: u32, number: u64) -> Option<u32> {
        let of = |coming: &Coming| coming.path == at && coming.number == number;
        (0..self.coming.touched()).find(|slot| self.coming.at(*slot).is_some_and(of))
    }

    /// A number is passed over of which a part is here: the record goes on without it.
    pub(super) fn pass_record(&mut self, at: u32, number: u64) {
        if let Some(coming) = self.record_of(at, number).and_then(|slot| self.coming.at_mut(slot)) {
            coming.passed = true;
        }
        self.busy_bits(at).clear(number);
    }

    /// Hands a delivery over to whoever asks.
    fn claim_record(&mut self, slot: u32) -> Option<Claim> {
        let handle = self.coming.handle(slot)?;
        let mut coming = self.coming.at(slot).copied()?;
        if matches!(coming.stage, Stage::Coming | Stage::InScratch | Stage::Tail) {
            // The rail below may write to the sink until it forgets the peer.
            self.start_over_below(coming.path);
            match self.coming.get(handle) {
                Some(after) => coming = *after,
                None => {
                    // A short one, of which nobody has heard.
                    self.receive(coming.path, coming.number, false);
                    return Some(Claim::New);
                }
            }
        }
        let claim = match coming.stage {
            Stage::Awaited | Stage::ForScratch => {
                if coming.stage == Stage::ForScratch {
                    self.raw.release(FrameId(coming.raw));
                }
                Claim::Awaited { skip: coming.skip as usize, sink: coming.sink, cookie: Cookie(coming.cookie) }
            }
            // All of it has come; or the reader has it, which is not to ask then.
            _ => return Some(Claim::Duplicate),
        };
        self.receive(coming.path, coming.number, false);
        self.finish(handle);
        Some(claim)
    }
}
