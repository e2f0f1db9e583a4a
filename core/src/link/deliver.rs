//! How the body of a frame gets into the memory of its reader, and is checked.

use super::checksum::{Checksum, sum_span};
use super::pending_delivery::{BAD, Coming, Stage, TAIL, Verdict};
use super::state::Link;
use crate::convertor::{Span, transfer};
use crate::pool::Handle;
use crate::rail::{COPIED, Cookie, Delivery, Event, FrameId, FullRail, HEAD};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A body is where it belongs.
    pub(super) fn tell(&mut self, slot: u32) {
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
    pub(super) fn finish(&mut self, handle: Handle) {
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

    pub(super) fn restart_sum(&mut self, handle: Handle) {
        if let Some(progress) = self.progress.get(handle.slot() as usize) {
            progress.set(0);
        }
    }

    /// Sums as much of a held body as is in.
    pub(super) fn look(&self, handle: Handle, coming: &Coming) -> Verdict {
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
    pub(super) fn fill(&mut self, handle: Handle) -> Delivery {
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

    pub(super) fn stage(&mut self, handle: Handle, stage: Stage) {
        if let Some(coming) = self.coming.get_mut(handle) {
            coming.stage = stage;
        }
    }

    /// All of a body that can be is in its sink.
    pub(super) fn check_sink(&mut self, handle: Handle) -> Delivery {
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
    pub(super) fn await_again(&mut self, handle: Handle) -> Delivery {
        self.stage(handle, Stage::Awaited);
        if let Some(coming) = self.coming.get(handle) {
            self.bad_body(coming.path);
        }
        Delivery::Pending
    }

    pub(super) fn bad_body(&mut self, at: u32) {
        self.counters.bad_bodies = self.counters.bad_bodies.wrapping_add(1);
        self.ack_repeated(at);
    }

    /// A sink that does not take all of a body which is not all in yet: it goes to the scratch first.
    #[cold]
    pub(super) fn fill_by_scratch(&mut self, handle: Handle) -> Delivery {
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
    pub(super) fn take_from_scratch(&mut self, handle: Handle) -> Delivery {
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
    pub(super) fn fetch_tail(&mut self, handle: Handle) -> Option<Event> {
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

    pub(super) fn take_tail(&mut self, handle: Handle) -> Option<Event> {
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
}
