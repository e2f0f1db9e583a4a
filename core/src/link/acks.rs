//! Acknowledgements: those that this side sends, and those that arrive.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::ack_parts::{MOST_WINDOW, WORDS};
use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, Ack, HEADER, Header, Kind, MIGRATION, NACKS, TAG, head_check};
use super::numbers::distance;
use super::path::Path;
use super::paths::SEVERAL;
use super::state::Link;
use crate::convertor::{Span, copy_slice};
use crate::rail::{Cookie, FullRail, HEAD, Lane, SendError, Shape};

/// How many acknowledgements cover the largest window.
const MOST_PARTS: u64 = (MOST_WINDOW as u64).div_ceil(ACK_SPAN);

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Processes an acknowledgement of all numbers before `ack`, and of those from `from` on whose bits are set. `all`: the
    /// other numbers have not arrived. Returns `false` if it acknowledges frames that were never sent. Then it is only counted.
    pub(super) fn take_ack(&mut self, at: u32, ack: u64, from: u64, words: &[u64], all: bool) -> bool {
        let Some(path) = self.peers.paths.get(at as usize) else { return false };
        let highest = words.iter().enumerate().rev().find(|(_, word)| **word != 0);
        let end = highest.map_or(ack, |(index, word)| {
            from.wrapping_add(index as u64 * 64).wrapping_add(64u64.wrapping_sub(word.leading_zeros().into()))
        });
        if distance(ack, path.send.next) > 0 || distance(end, path.send.next) > 0 {
            self.counters.invalid_acks = self.counters.invalid_acks.wrapping_add(1);
            return false;
        }
        self.on_ack(at, ack, from, words, all);
        true
    }

    /// Schedules an acknowledgement after the usual delay.
    pub(super) fn ack_later(&mut self, at: u32) {
        let due = self.clock.now.wrapping_add(self.config.ack_delay.as_nanos());
        self.ack_at(at, due);
    }

    /// Sends an acknowledgement now, or as soon as the rail below has room.
    pub(super) fn ack_now(&mut self, at: u32) {
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.frames = path.due.frames.max(self.config.ack_every);
        }
        if !self.send_ack(at, Kind::Ack) {
            self.ack_at(at, self.clock.now);
        }
    }

    /// A frame has arrived that is no news, and that a peer may repeat forever. An acknowledgement is due at once, but at most
    /// once per delay of an acknowledgement, since each one costs a search of all awaited frames.
    pub(super) fn ack_duplicate(&mut self, at: u32) {
        let (now, delay) = (self.clock.now, self.retry_delay(0));
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        let due = path.due.repeated_at.wrapping_add(if path.due.repeated_at > now { 0 } else { delay });
        path.due.repeated_at = due.max(now);
        if due <= now {
            return self.ack_now(at);
        }
        path.due.frames = path.due.frames.max(1);
        self.ack_at(at, due);
    }

    /// Schedules the due control frames for the time `due`, or earlier if they already were.
    pub(super) fn ack_at(&mut self, at: u32, due: u64) {
        self.work.acks.set(at, due);
    }

    /// Sends the control frames that are due.
    pub(super) fn send_acks(&mut self) {
        for _ in 0..16 {
            let Some((at, due)) = self.work.acks.next() else { return };
            let owes = self.peers.paths.get(at as usize).is_some_and(Path::is_anything_due);
            if owes && due > self.clock.now {
                return;
            }
            self.work.acks.remove(at);
            let refused = owes && !self.send_due(at);
            let times = self.peers.paths.get(at as usize).map_or(0, |path| path.due.refusals);
            if SEVERAL && let Some(path) = self.peers.paths.get_mut(at as usize) {
                path.due.refusals = if refused { times.saturating_add(1) } else { 0 };
            }
            if refused {
                self.ack_at(at, self.clock.now.wrapping_add(self.retry_delay(times)));
            }
        }
    }

    /// Sends the control frames to one peer that are due. Returns whether the rail below had room for all of them.
    fn send_due(&mut self, at: u32) -> bool {
        if self.peers.paths.get(at as usize).is_some_and(|path| path.due.hello) && !self.send_hello(at) {
            return false;
        }
        if MIGRATION && self.peers.paths.get(at as usize).is_some_and(|path| path.due.gaps) && !self.send_gaps(at) {
            return false;
        }
        let is_ack_due = self.peers.paths.get(at as usize).is_some_and(|path| path.due.is_ack_due());
        !is_ack_due || self.send_ack(at, Kind::Ack)
    }

    /// Sends an acknowledgement, or another control frame that begins with one. Returns whether it was sent. For a large window
    /// it takes several frames. The one with the lowest numbers is sent last, since it completes the acknowledgement.
    pub(super) fn send_ack(&mut self, at: u32, kind: Kind) -> bool {
        let Some(path) = self.peers.paths.get(at as usize) else { return true };
        if !path.session.is_established() || !path.below.known {
            return true; // the peer could not check the frame, or the rail below does not reach the peer
        }
        if NACKS && path.due.nack && kind == Kind::Ack && !self.send_nack(at) {
            return false;
        }
        let Some(path) = self.peers.paths.get(at as usize) else { return true };
        let span = if path.receive.has_holes() { path.receive.top.wrapping_sub(path.receive.base) } else { 0 };
        let parts = if MOST_PARTS > 1 && kind == Kind::Ack { span.div_ceil(ACK_SPAN).clamp(1, MOST_PARTS) } else { 1 };
        (0..parts).rev().all(|part| self.send_part(at, kind, part.wrapping_mul(ACK_SPAN), span))
    }

    /// Sends the part of an acknowledgement that begins `part` numbers after the first missing one. The whole acknowledgement
    /// covers `span` numbers.
    fn send_part(&mut self, at: u32, kind: Kind, part: u64, span: u64) -> bool {
        let Some(path) = self.peers.paths.get(at as usize) else { return true };
        let (seed, base) = (path.session.seeds[0], path.receive.base);
        let (duplicates, probe) = (path.due.duplicates, path.liveness.last_probe);
        let from = base.wrapping_add(part);
        let left = span.saturating_sub(part);
        let words = if WORDS == 1 { u64::from(left != 0) } else { left.div_ceil(64).min(WORDS as u64) };
        let answer = if part == 0 && kind == Kind::Ack { path.due.probe_answer.checked_sub(1) } else { None };
        let mut ack = Ack { kind: kind as u8, words: words as u8, from: U16::new(from as u16), ..Ack::new_zeroed() };
        let bits = self.received_bits(at);
        for (index, word) in ack.bits.iter_mut().take(words as usize).take(WORDS).enumerate() {
            // Beyond the highest number, the ring of bits starts again.
            let start = index as u64 * 64;
            let most = left.saturating_sub(start);
            let mask = if most >= 64 { u64::MAX } else { (1u64 << (most & 63)).wrapping_sub(1) };
            *word = U64::new(bits.word(from.wrapping_add(start)) & mask);
        }
        let number = match (kind, answer) {
            (Kind::Probe, _) => probe,
            (_, Some(answered)) => answered as u16,
            _ => duplicates,
        };
        let bytes = ack.as_bytes().get(..ACK.wrapping_add(words as usize * 8)).unwrap_or(&[]);
        if !self.send_control(at, seed, (number, answer.is_some(), base), bytes) {
            return false;
        }
        if part != 0 {
            return true;
        }
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return true };
        path.due.frames = 0;
        if kind == Kind::Ack {
            path.due.probe_answer = 0;
            self.counters.acks_sent = self.counters.acks_sent.wrapping_add(1);
        }
        true
    }

    /// Sends a control frame. `told` has the number in its header, whether that number answers a probe, and the
    /// acknowledgement. Returns whether the frame was sent.
    pub(super) fn send_control(&mut self, at: u32, seed: u32, told: (u16, bool, u64), bytes: &[u8]) -> bool {
        self.send_control_checked(at, seed, 0, told, bytes)
    }

    /// As [`send_control`](Self::send_control); the check also covers the full number `whole`.
    pub(super) fn send_control_checked(
        &mut self,
        at: u32,
        seed: u32,
        whole: u64,
        told: (u16, bool, u64),
        bytes: &[u8],
    ) -> bool {
        let (number, answers, ack) = told;
        let Some(path) = self.peers.paths.get(at as usize) else { return true };
        let len = HEADER.wrapping_add(bytes.len()).min(HEAD);
        let mut frame = [0; HEAD];
        let mut header = Header { number: number.into(), ack: (ack as u16).into(), ..Header::new_zeroed() };
        header.body_check.set(answers.into());
        let put = |frame: &mut [u8; HEAD], header: &Header| {
            copy_slice(frame, header.as_bytes());
        };
        put(&mut frame, &header);
        copy_slice(frame.get_mut(HEADER..).unwrap_or_default(), bytes);
        let head = frame.get(..len).unwrap_or(&frame);
        let check = head_check(&self.checksum, seed, TAG, len as u32, [whole, ack], head);
        header.head_check.set(check);
        put(&mut frame, &header);
        let head = frame.get(..len).unwrap_or(&frame);
        let shape = Shape { tag: TAG, lane: Lane::Control, header: len as u8, len: len as u32 };
        // SAFETY: there is no body.
        match unsafe { self.below.send(path.below.endpoint, shape, head, Span::EMPTY, Cookie(0)) } {
            Ok(_) => true,
            Err(SendError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                false
            }
            Err(_) => true, // the rail below will report that the peer is lost
        }
    }
}
