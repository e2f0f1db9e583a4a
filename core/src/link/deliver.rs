//! The delivery of a body: how it gets into its sink, and how its checksum is tested.

use super::checksum::{Checksum, sum_span};
use super::path::DownReason;
use super::pending_delivery::{BAD, PARTIAL, PendingDelivery, REPEATS, Stage, TAIL, Verdict};
use super::state::Link;
use crate::convertor::{Span, copy_slice, transfer};
use crate::pool::Handle;
use crate::rail::{COPIED, Cookie, Delivery, Event, FrameId, FullRail, HEAD, LATER};

/// How many bytes of a body are read at a time for its checksum.
const PIECE: usize = if PARTIAL { 256 } else { 64 };

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A body is in its sink. Queues the report to the user.
    pub(super) fn queue_delivered(&mut self, slot: u32) {
        if let Some(pending) = self.receive.pending.at_mut(slot) {
            pending.stage = Stage::Done;
            self.receive.filled.push(slot);
        }
    }

    /// The next delivery whose end has to be reported to the user.
    pub(super) fn next_delivered(&mut self) -> Option<Cookie> {
        if !REPEATS {
            return None;
        }
        while let Some(slot) = self.receive.filled.pop() {
            let (Some(handle), Some(pending)) = (self.receive.pending.handle(slot), self.receive.pending.at(slot))
            else {
                continue;
            };
            let cookie = Cookie(pending.cookie);
            self.finish_delivery(handle);
            return Some(cookie);
        }
        None
    }

    /// Frees the record of a frame that is received or given up.
    pub(super) fn finish_delivery(&mut self, handle: Handle) {
        let Some(pending) = self.receive.pending.free(handle) else { return };
        if !pending.skipped {
            self.pending_bits(pending.path).clear(pending.number);
        }
        if let Some(path) = self.peers.paths.get_mut(pending.path as usize) {
            path.receive.pending = path.receive.pending.wrapping_sub(1);
        }
        self.offer_room();
    }

    /// The numbers of frames that have a record and must arrive again.
    pub(super) fn awaited(&self, at: u32) -> impl Iterator<Item = u64> {
        let pending = &self.receive.pending;
        let must_arrive = move |frame: &&PendingDelivery| {
            frame.path == at && matches!(frame.stage, Stage::Awaited | Stage::HeldInPart) && !frame.skipped
        };
        (0..pending.touched()).filter_map(|slot| pending.at(slot)).filter(must_arrive).map(|frame| frame.number)
    }

    /// How many frames the reader holds.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let pending = &self.receive.pending;
        let held = |frame: &&PendingDelivery| matches!(frame.stage, Stage::Held | Stage::HeldInPart);
        (0..pending.touched()).filter_map(|slot| pending.at(slot)).filter(held).count()
    }

    pub(super) fn restart_sum(&mut self, handle: Handle) {
        if PARTIAL && let Some(progress) = self.receive.progress.get(handle.slot() as usize) {
            progress.set(0);
        }
    }

    /// Continues the checksum of a held body over the bytes that have arrived. When all have arrived, compares it.
    fn check_body(&self, handle: Handle, pending: &PendingDelivery) -> Verdict {
        if !PARTIAL {
            return Verdict::Good; // it was compared when the frame arrived
        }
        let Some(progress) = self.receive.progress.get(handle.slot() as usize) else { return Verdict::Open };
        if !self.checks_body(pending) {
            return Verdict::Good;
        }
        if progress.get() == BAD {
            return Verdict::Bad;
        }
        let (done, sum) = self.sum_held(pending, (progress.get() >> 32) as u32, progress.get() as u32);
        progress.set(u64::from(done) << 32 | u64::from(sum));
        if done < pending.body() {
            return Verdict::Open;
        }
        if sum == pending.body_check {
            return Verdict::Good;
        }
        progress.set(BAD);
        Verdict::Bad
    }

    /// Whether the body of a frame that arrives is right, if the rail below has all bytes of each frame that it hands up. Otherwise that
    /// is found when the body is read.
    pub(super) fn arrives_right(&self, pending: &PendingDelivery) -> bool {
        PARTIAL || !self.checks_body(pending) || self.sum_held(pending, 0, 0) == (pending.body(), pending.body_check)
    }

    /// Whether a body has a checksum.
    fn checks_body(&self, pending: &PendingDelivery) -> bool {
        self.peers.paths.get(pending.path as usize).is_some_and(|path| path.session.checks_bodies)
    }

    /// Adds the bytes from `done` on of a body that the rail below holds to a checksum, as far as they have arrived. Returns where they
    /// end, and the checksum.
    fn sum_held(&self, pending: &PendingDelivery, mut done: u32, mut sum: u32) -> (u32, u32) {
        let body = pending.body();
        let mut piece = [0; PIECE];
        while done < body {
            let want = (body.wrapping_sub(done) as usize).min(piece.len());
            let Some(piece) = piece.get_mut(..want) else { break };
            let count = self.below.read(FrameId(pending.raw), HEAD.wrapping_add(done as usize), piece).min(want);
            let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { break };
            sum = self.checksum.sum(sum, read);
            done = done.wrapping_add(count as u32);
        }
        (done, sum)
    }

    /// Copies bytes of a held frame, from `at` on. Returns how many there were.
    pub(super) fn read_held(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let handle = Handle::from_bits(frame.0);
        let held = |pending: &&PendingDelivery| matches!(pending.stage, Stage::Held | Stage::HeldInPart);
        let Some(pending) = self.receive.pending.get(handle).filter(held) else { return 0 };
        let (before, own) = (pending.before(), pending.own() as usize);
        let want = own.saturating_sub(at).min(into.len());
        let head = pending.head.get(before.saturating_add(at)..).unwrap_or(&[]);
        let from_head = copy_slice(into.get_mut(..want).unwrap_or_default(), head);
        if from_head == want || (REPEATS && pending.stage == Stage::HeldInPart) {
            return from_head;
        }
        match self.check_body(handle, pending) {
            Verdict::Good => {
                let Some(rest) = into.get_mut(from_head..want) else { return from_head };
                let from = before.saturating_add(at).saturating_add(from_head);
                from_head.saturating_add(self.below.read(FrameId(pending.raw), from, rest).min(rest.len()))
            }
            Verdict::Bad => {
                self.receive.bad_body_found.set(true);
                from_head
            }
            Verdict::Open => from_head,
        }
    }

    /// Releases the held frames whose bodies a read has found to be bad. They have to arrive once more.
    pub(super) fn release_bad_bodies(&mut self) {
        if !PARTIAL || !self.receive.bad_body_found.replace(false) {
            return;
        }
        for slot in 0..self.receive.pending.touched() {
            let held = |pending: &&mut PendingDelivery| pending.stage == Stage::Held;
            let Some(pending) = self.receive.pending.at_mut(slot).filter(held) else { continue };
            if self.receive.progress.get(slot as usize).is_some_and(|progress| progress.get() == BAD) {
                pending.stage = Stage::HeldInPart;
                let (at, raw) = (pending.path, pending.raw);
                self.below.release(FrameId(raw));
                self.on_bad_body(at);
            }
        }
    }

    /// The reader wants a frame's bytes from `skip` on in `sink`.
    pub(super) fn deliver_held(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let handle = Handle::from_bits(frame.0);
        let Some(pending) = self.receive.pending.get_mut(handle) else { return Delivery::Done };
        (pending.skip, pending.sink, pending.cookie) = ((skip as u64).min(pending.own()), sink, cookie.0);
        match pending.stage {
            Stage::Held => {}
            Stage::HeldInPart if REPEATS => {
                pending.stage = Stage::Awaited;
                return Delivery::Pending;
            }
            _ => return Delivery::Done, // it was asked for already
        }
        let delivery = self.fill(handle);
        if delivery == Delivery::Done {
            self.finish_delivery(handle);
        }
        delivery
    }

    /// The reader does not want the rest of a frame.
    pub(super) fn release_held(&mut self, frame: FrameId) {
        let handle = Handle::from_bits(frame.0);
        let Some(pending) = self.receive.pending.get(handle).copied() else { return };
        match pending.stage {
            Stage::Held => self.below.release(FrameId(pending.raw)),
            Stage::HeldInPart => {}
            _ => return,
        }
        self.mark_received(pending.path, pending.number, LATER && pending.own() > COPIED);
        self.finish_delivery(handle);
    }

    /// Copies a frame that the rail below holds to its sink. If this returns `Done`, the frame counts as received.
    pub(super) fn fill(&mut self, handle: Handle) -> Delivery {
        let Some(pending) = self.receive.pending.get(handle).copied() else { return Delivery::Done };
        if PARTIAL && !is_checked_in_sink(&pending) {
            match self.check_body(handle, &pending) {
                Verdict::Good => {}
                Verdict::Open => return self.fill_through_scratch(handle),
                Verdict::Bad => {
                    self.below.release(FrameId(pending.raw));
                    return self.await_retransmission(handle);
                }
            }
        }
        let skip = pending.before().saturating_add(pending.skip as usize);
        self.set_stage(handle, Stage::ToSink);
        let (raw, cookie) = (FrameId(pending.raw), Cookie(handle.to_bits()));
        // SAFETY: the reader keeps the sink writable until the completion, which the rail below reports to this link with the
        // handle.
        let delivery = unsafe { self.below.deliver(raw, skip, pending.sink, cookie) };
        match delivery {
            Delivery::Done => self.check_sink(handle),
            Delivery::Pending if PARTIAL => Delivery::Pending,
            Delivery::Pending => {
                // Such a rail is not for this build. After this it does not access the sink any more.
                self.set_down(pending.path, DownReason::Broken);
                Delivery::Pending
            }
        }
    }

    fn set_stage(&mut self, handle: Handle, stage: Stage) {
        if let Some(pending) = self.receive.pending.get_mut(handle) {
            pending.stage = stage;
        }
    }

    /// The rail below has written the body to its sink. Checks the body there.
    fn check_sink(&mut self, handle: Handle) -> Delivery {
        let Some(pending) = self.receive.pending.get(handle).copied() else { return Delivery::Done };
        let (own, in_head) = (pending.own(), pending.in_head());
        // All other bodies were checked before.
        if PARTIAL && self.checks_body(&pending) && is_checked_in_sink(&pending) {
            let body = pending.sink.window(in_head.saturating_sub(pending.skip), own.saturating_sub(in_head));
            // SAFETY: the reader does not access the sink until its completion, and the rail below is done with it.
            if unsafe { sum_span(&self.checksum, 0, &body) } != pending.body_check {
                return self.await_retransmission(handle);
            }
        }
        self.mark_received(pending.path, pending.number, LATER && own > COPIED);
        Delivery::Done
    }

    /// The checksum of a body was wrong. The frame must arrive once more.
    fn await_retransmission(&mut self, handle: Handle) -> Delivery {
        self.set_stage(handle, Stage::Awaited);
        if let Some(pending) = self.receive.pending.get(handle) {
            self.on_bad_body(pending.path);
        }
        Delivery::Pending
    }

    /// The checksum of a body was wrong.
    pub(super) fn on_bad_body(&mut self, at: u32) {
        self.counters.bad_bodies = self.counters.bad_bodies.wrapping_add(1);
        self.ack_duplicate(at);
    }

    /// Copies a body to the scratch memory first, since it has not arrived completely, and its sink does not take all of it or is not read. So
    /// the checksum cannot be tested in the sink.
    #[cold]
    fn fill_through_scratch(&mut self, handle: Handle) -> Delivery {
        if self.receive.scratch_of != Handle::NONE {
            self.set_stage(handle, Stage::WaitsForScratch);
            return Delivery::Pending;
        }
        let Some(pending) = self.receive.pending.get(handle).copied() else { return Delivery::Done };
        let body = pending.len.saturating_sub(HEAD as u32) as usize;
        if body > self.receive.scratch.each() {
            // No frame of the rail below is so long, so the length is wrong.
            self.below.release(FrameId(pending.raw));
            return self.await_retransmission(handle);
        }
        self.receive.scratch_of = handle;
        self.set_stage(handle, Stage::ToScratch);
        let sink = Span::contiguous(self.receive.scratch.at(0), body);
        // SAFETY: the scratch has at least `body` bytes, and is kept for this frame until the rail below is done.
        match unsafe { self.below.deliver(FrameId(pending.raw), HEAD, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.take_from_scratch(handle),
            Delivery::Pending => Delivery::Pending,
        }
    }

    /// The body is in the scratch.
    #[cold]
    fn take_from_scratch(&mut self, handle: Handle) -> Delivery {
        self.receive.scratch_of = Handle::NONE;
        let Some(pending) = self.receive.pending.get(handle).copied() else { return Delivery::Done };
        let body = Span::contiguous(self.receive.scratch.at(0), pending.len.saturating_sub(HEAD as u32) as usize);
        // SAFETY: the rail below has written the scratch, and is done.
        if unsafe { sum_span(&self.checksum, 0, &body) } != pending.body_check {
            return self.await_retransmission(handle);
        }
        let head = pending.head.get(pending.before().saturating_add(pending.skip as usize)..).unwrap_or(&[]);
        // SAFETY: the reader keeps the sink writable; the head is a copy of this function's own.
        let done = unsafe { pending.sink.unpack(head.as_ptr(), head.len()) } as u64;
        let body = body.window(pending.skip.saturating_sub(pending.in_head()), u64::MAX);
        // SAFETY: as above; the scratch is this link's own.
        unsafe { transfer(body, pending.sink.window(done, u64::MAX)) };
        self.mark_received(pending.path, pending.number, true);
        Delivery::Done
    }

    /// Gives the scratch to the next delivery that waits for it.
    #[cold]
    fn next_for_scratch(&mut self) {
        if !PARTIAL {
            return;
        }
        for slot in 0..self.receive.pending.touched() {
            if self.receive.scratch_of != Handle::NONE {
                return;
            }
            if self.receive.pending.at(slot).is_some_and(|pending| pending.stage == Stage::WaitsForScratch)
                && let Some(handle) = self.receive.pending.handle(slot)
                && self.fill(handle) == Delivery::Done
            {
                self.queue_delivered(slot);
            }
        }
    }

    /// Asks the rail below to write the last bytes of a short frame, which have not arrived, to the record's memory.
    pub(super) fn fetch_tail(&mut self, handle: Handle) -> Option<Event> {
        let pending = self.receive.pending.get(handle).copied()?;
        self.set_stage(handle, Stage::Tail);
        let count = (pending.len as usize).saturating_sub(HEAD).min(TAIL);
        let sink = Span::contiguous(self.receive.tails.at(handle.slot()), count);
        // SAFETY: the sink is the record's own memory, which nothing else uses until the rail below is done.
        match unsafe { self.below.deliver(FrameId(pending.raw), HEAD, sink, Cookie(handle.to_bits())) } {
            Delivery::Done => self.take_tail(handle),
            Delivery::Pending => None,
        }
    }

    /// The last bytes of a short frame have arrived.
    fn take_tail(&mut self, handle: Handle) -> Option<Event> {
        let pending = self.receive.pending.get(handle).copied()?;
        let mut tail = [0; TAIL];
        let count = (pending.len as usize).saturating_sub(HEAD).min(TAIL);
        // SAFETY: the rail below has written `count` bytes of the record's own memory.
        unsafe { core::ptr::copy_nonoverlapping(self.receive.tails.at(handle.slot()), tail.as_mut_ptr(), count) };
        let tail = tail.get(..count)?;
        self.finish_delivery(handle);
        let path = self.peers.paths.get(pending.path as usize)?;
        if path.session.checks_bodies && self.checksum.sum(0, tail) != pending.body_check {
            self.on_bad_body(pending.path);
            return None;
        }
        self.mark_received(pending.path, pending.number, false);
        Some(self.event(&pending, FrameId(0), tail))
    }

    /// The rail below has written a body to the sink that it was given.
    pub(super) fn on_below_delivered(&mut self, cookie: Cookie) -> Option<Event> {
        if !PARTIAL {
            return None;
        }
        let handle = Handle::from_bits(cookie.0);
        let stage = self.receive.pending.get(handle)?.stage;
        let delivery = match stage {
            Stage::ToSink => self.check_sink(handle),
            Stage::ToScratch => {
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
        let cookie = Cookie(self.receive.pending.get(handle)?.cookie);
        self.finish_delivery(handle);
        Some(Event::Delivered(cookie))
    }

    /// The rail below has deleted the peer: it has dropped the frames that it held, and no longer writes to any sink.
    pub(super) fn lose_pending(&mut self, at: u32) {
        if !REPEATS {
            return self.drop_pending(at); // the link does not come up again
        }
        for slot in 0..self.receive.pending.touched() {
            let Some(handle) = self.receive.pending.handle(slot) else { continue };
            let Some(pending) = self.receive.pending.at_mut(slot).filter(|pending| pending.path == at) else {
                continue;
            };
            match pending.stage {
                Stage::Held => pending.stage = Stage::HeldInPart,
                Stage::ToSink | Stage::WaitsForScratch => pending.stage = Stage::Awaited,
                Stage::ToScratch => {
                    pending.stage = Stage::Awaited;
                    self.receive.scratch_of = Handle::NONE;
                }
                Stage::Tail => self.finish_delivery(handle),
                Stage::HeldInPart | Stage::Awaited | Stage::Done => {}
            }
        }
        self.next_for_scratch();
    }

    /// Forgets all frames of a peer.
    pub(super) fn drop_pending(&mut self, at: u32) {
        for slot in 0..self.receive.pending.touched() {
            if self.receive.pending.at(slot).is_some_and(|pending| pending.path == at)
                && let Some(handle) = self.receive.pending.handle(slot)
            {
                if PARTIAL && handle == self.receive.scratch_of {
                    self.receive.scratch_of = Handle::NONE;
                }
                self.finish_delivery(handle);
            }
        }
        if REPEATS {
            let pending = &self.receive.pending;
            self.receive.filled.retain(|slot| pending.at(slot).is_some());
        }
        self.received_bits(at).0.fill(0);
        self.pending_bits(at).0.fill(0);
        self.next_for_scratch();
    }
}

/// Whether the checksum of the body is tested in the sink, which takes all bytes of the body. A sink whose copies may fail is not
/// read.
fn is_checked_in_sink(pending: &PendingDelivery) -> bool {
    pending.sink.failures().is_none()
        && pending.skip <= pending.in_head()
        && pending.sink.len() >= pending.own().saturating_sub(pending.skip)
}
