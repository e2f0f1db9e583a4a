//! What is told of frames that came, and what is heard of those that left.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, ACK_WORDS, Ack, HEADER, Header, Kind, TAG, head_check};
use super::numbers::distance;
use super::path::State;
use super::state::Link;
use crate::convertor::Span;
use crate::rail::{Cookie, FullRail, HEAD, Lane, SendError, Shape};

/// Acks for the largest window.
const MOST_PARTS: u64 = 1024u64.div_ceil(ACK_SPAN);

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Takes an acknowledgement for what it is worth: of numbers before `ack`, and of those from `from` on whose bits are
    /// set. `all`: what is not told of has not come. Whether it was worth anything.
    pub(super) fn take_ack(&mut self, at: u32, ack: u64, from: u64, words: &[u64], all: bool) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return false };
        let highest = words.iter().enumerate().rev().find(|(_, word)| **word != 0);
        let end = highest.map_or(ack, |(index, word)| {
            from.wrapping_add(index as u64 * 64).wrapping_add(64u64.wrapping_sub(word.leading_zeros().into()))
        });
        if distance(ack, path.next) > 0 || distance(end, path.next) > 0 {
            self.counters.absurd_acks = self.counters.absurd_acks.wrapping_add(1);
            return false;
        }
        self.on_ack(at, ack, from, words, all);
        true
    }

    /// An acknowledgement is due, at the latest, after the usual delay.
    pub(super) fn ack_later(&mut self, at: u32) {
        let due = self.now.saturating_add(self.config.ack_delay.as_nanos());
        self.ack_at(at, due);
    }

    /// An acknowledgement is due.
    pub(super) fn ack_now(&mut self, at: u32) {
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.owed = path.owed.max(self.config.ack_every);
        }
        if !self.send_ack(at, Kind::Ack) {
            self.ack_at(at, self.now);
        }
    }

    /// Something came that tells nothing new, and may come for ever: an acknowledgement is due at once, but only one in the usual
    /// delay. Each costs a look at all that is awaited, and a peer that repeats a frame is not to be answered more often.
    pub(super) fn ack_repeated(&mut self, at: u32) {
        let (now, delay) = (self.now, self.after_refusals(0));
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        let due = path.repeated_at.saturating_add(if path.repeated_at > now { 0 } else { delay });
        path.repeated_at = due.max(now);
        if due <= now {
            return self.ack_now(at);
        }
        path.owed = path.owed.max(1);
        self.ack_at(at, due);
    }

    /// An acknowledgement is due at this time, if it was not to be earlier.
    pub(super) fn ack_at(&mut self, at: u32, due: u64) {
        self.acks.set(at, due);
    }

    /// Whether something that came is to be told of.
    fn owes_ack(&self, at: u32) -> bool {
        self.paths
            .get(at as usize)
            .is_some_and(|path| path.state != State::Free && (path.tells() || path.voids || path.greets))
    }

    /// Sends acknowledgements that are due.
    pub(super) fn send_acks(&mut self) {
        for _ in 0..16 {
            let Some((at, due)) = self.acks.next() else { return };
            let owes = self.owes_ack(at);
            if owes && due > self.now {
                return;
            }
            self.acks.remove(at);
            let refused = owes && !self.send_owed(at);
            let times = self.paths.get(at as usize).map_or(0, |path| path.ack_refused);
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.ack_refused = if refused { times.saturating_add(1) } else { 0 };
            }
            if refused {
                self.ack_at(at, self.now.saturating_add(self.after_refusals(times)));
            }
        }
    }

    fn send_owed(&mut self, at: u32) -> bool {
        if self.paths.get(at as usize).is_some_and(|path| path.greets) && !self.hello(at) {
            return false;
        }
        if self.paths.get(at as usize).is_some_and(|path| path.voids) && !self.tell_voids(at) {
            return false;
        }
        self.paths.get(at as usize).is_none_or(|path| !path.tells()) || self.send_ack(at, Kind::Ack)
    }

    /// Sends a frame of the link's own that tells what came. Whether it left. Of a large window it takes several: the one with
    /// the lowest numbers goes last, since the peer draws its conclusions from that.
    pub(super) fn send_ack(&mut self, at: u32, kind: Kind) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return true };
        if !path.met() || !path.raw_known {
            return true; // nobody could tell what is meant
        }
        if path.wants && kind == Kind::Ack && !self.ask_for_wanted(at) {
            return false;
        }
        let Some(path) = self.paths.get(at as usize) else { return true };
        let span = if path.has_holes() { path.top.wrapping_sub(path.base) } else { 0 };
        let parts = if kind == Kind::Ack { span.div_ceil(ACK_SPAN).clamp(1, MOST_PARTS) } else { 1 };
        (0..parts).rev().all(|part| self.send_part(at, kind, part.wrapping_mul(ACK_SPAN), span))
    }

    fn send_part(&mut self, at: u32, kind: Kind, part: u64, span: u64) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return true };
        let (seed, base, doubles, probe) = (path.seeds[0], path.base, path.doubles, path.probe);
        let from = base.wrapping_add(part);
        let left = span.saturating_sub(part);
        let words = left.div_ceil(64).min(ACK_WORDS as u64);
        let answer = if part == 0 && kind == Kind::Ack { path.answer.checked_sub(1) } else { None };
        let mut ack = Ack { kind: kind as u8, words: words as u8, from: U16::new(from as u16), ..Ack::new_zeroed() };
        let bits = self.received_bits(at);
        for (index, word) in ack.came.iter_mut().take(words as usize).enumerate() {
            // Beyond the highest number, the ring of bits begins anew.
            let start = index as u64 * 64;
            let most = left.saturating_sub(start);
            let mask = if most >= 64 { u64::MAX } else { (1u64 << (most & 63)).wrapping_sub(1) };
            *word = U64::new(bits.word(from.wrapping_add(start)) & mask);
        }
        let number = match (kind, answer) {
            (Kind::Probe, _) => probe,
            (_, Some(answered)) => answered as u16,
            _ => doubles,
        };
        let bytes = ack.as_bytes().get(..ACK.wrapping_add(words as usize * 8)).unwrap_or(&[]);
        if !self.send_own(at, seed, (number, answer.is_some(), base), bytes) {
            return false;
        }
        if part != 0 {
            return true;
        }
        let Some(path) = self.paths.get_mut(at as usize) else { return true };
        path.owed = 0;
        if kind == Kind::Ack {
            path.answer = 0;
            self.counters.acks_sent = self.counters.acks_sent.wrapping_add(1);
        }
        true
    }

    /// Sends a frame of the link's own: with a number, whether that answers a probe, and an acknowledgement. Whether it left.
    pub(super) fn send_own(&mut self, at: u32, seed: u32, told: (u16, bool, u64), bytes: &[u8]) -> bool {
        self.send_checked(at, seed, 0, told, bytes)
    }

    /// The same with a number that the check goes over as a whole.
    pub(super) fn send_checked(
        &mut self,
        at: u32,
        seed: u32,
        whole: u64,
        told: (u16, bool, u64),
        bytes: &[u8],
    ) -> bool {
        let (number, answers, ack) = told;
        let Some(path) = self.paths.get(at as usize) else { return true };
        let len = HEADER.wrapping_add(bytes.len()).min(HEAD);
        let mut frame = [0; HEAD];
        let mut header = Header { number: number.into(), ack: (ack as u16).into(), ..Header::new_zeroed() };
        header.body_check.set(answers.into());
        let put = |frame: &mut [u8; HEAD], header: &Header| {
            frame.iter_mut().zip(header.as_bytes().iter().chain(bytes)).for_each(|(to, from)| *to = *from);
        };
        put(&mut frame, &header);
        let told = frame.get(..len).unwrap_or(&frame);
        let check = head_check(&self.sums, seed, TAG, len as u32, [whole, ack], told);
        header.head_check.set(check);
        put(&mut frame, &header);
        let told = frame.get(..len).unwrap_or(&frame);
        let shape = Shape { tag: TAG, lane: Lane::Control, header: len as u8, len: len as u32 };
        // SAFETY: there is no body.
        match unsafe { self.raw.send(path.raw, shape, told, Span::EMPTY, Cookie(0)) } {
            Ok(_) => true,
            Err(SendError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                false
            }
            Err(_) => true, // the loss of the peer will be reported
        }
    }
}
