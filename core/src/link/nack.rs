//! Negative acknowledgements (nacks): the receiver asks for frames by their numbers. It asks for frames that are missing among
//! unread ones, and, when there is room again, for frames that it refused.
//!
//! A frame that the reader keeps unread is not acknowledged. So its sender gets no acknowledgement that proves the loss of an
//! earlier frame. Therefore the receiver sends a nack in two cases: when an unread frame arrives again, a nack with the missing
//! numbers; and when there is room again after refusals, a nack with as many numbers as there is room for. If a nack is lost,
//! the time-outs of the sender remain.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, ACK_WORDS, Ack, Kind, NACKS};
use super::in_flight::{READING, SENT};
use super::numbers::distance;
use super::path::ConnState;
use super::state::Link;
use crate::rail::FullRail;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// How many more frames of a peer may be pending.
    pub(super) fn room_for(&self, at: u32) -> u32 {
        let most = self.attributes.frames_kept.saturating_add(self.config.deliveries / 2).max(1);
        let taken = self.peers.paths.get(at as usize).map_or(u32::MAX, |path| path.receive.pending);
        let free = self.receive.pending.capacity().saturating_sub(self.receive.pending.used());
        most.saturating_sub(taken).min(free)
    }

    /// A frame of a peer is refused for lack of room. A nack is due, since a frame that already has a record, and must arrive
    /// again, may be missing.
    pub(super) fn refuse(&mut self, at: u32) {
        self.counters.no_room = self.counters.no_room.wrapping_add(1);
        self.offer_room_later(at);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.nack = true;
        }
        self.ack_duplicate(at);
    }

    fn offer_room_later(&mut self, at: u32) {
        if NACKS
            && let Some(path) = self.peers.paths.get_mut(at as usize)
            && !path.listed.refused
        {
            path.listed.refused = true;
            self.receive.refused.push(at);
        }
    }

    /// There is room for a frame. Schedules a nack to the next peer whose frame was refused and that may use the room.
    pub(super) fn offer_room(&mut self) {
        if !NACKS {
            return;
        }
        for _ in 0..self.receive.refused.len() {
            let Some(at) = self.receive.refused.pop() else { return };
            if self.room_for(at) == 0 {
                self.receive.refused.push(at);
                continue;
            }
            if let Some(path) = self.peers.paths.get_mut(at as usize) {
                (path.listed.refused, path.due.nack) = (false, true);
            }
            return self.ack_at(at, self.clock.now);
        }
    }

    /// Asks for as many missing frames as there is room for. Returns `false` if the rail below had no room for the nack.
    pub(super) fn send_nack(&mut self, at: u32) -> bool {
        let (missing, all) = self.missing(at);
        let words = missing.iter().rposition(|word| *word != 0).map_or(0, |last| last.wrapping_add(1));
        let Some(path) = self.peers.paths.get(at as usize) else { return true };
        let (seed, base, duplicates) = (path.session.seeds[0], path.receive.base, path.due.duplicates);
        let nack = Ack {
            kind: Kind::Nack as u8,
            words: words as u8,
            from: U16::new(base as u16),
            bits: missing.map(U64::new),
        };
        let bytes = nack.as_bytes().get(..ACK.wrapping_add(words.wrapping_mul(8))).unwrap_or(&[]);
        if words != 0 && !self.send_control(at, seed, (duplicates, false, base), bytes) {
            return false;
        }
        if !all {
            self.offer_room_later(at);
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.nack = false;
        }
        true
    }

    /// The numbers to ask for, from the first missing one on: those that already have a record, and the lowest others, as many
    /// as there is room for. The flag is `true` if these are all missing numbers.
    fn missing(&mut self, at: u32) -> ([u64; ACK_WORDS], bool) {
        let mut asked = [0; ACK_WORDS];
        let mut room = self.room_for(at);
        let Some(path) = self.peers.paths.get(at as usize) else { return (asked, true) };
        let (base, end) = (path.receive.base, path.receive.seen());
        let mut all = distance(end, base) <= ACK_SPAN as i64;
        for (index, word) in asked.iter_mut().enumerate() {
            let start = base.wrapping_add(index as u64 * 64);
            let Ok(left @ 1..) = u64::try_from(distance(end, start)) else { break };
            let mask = if left >= 64 { u64::MAX } else { (1u64 << (left & 63)).wrapping_sub(1) };
            let mut missing = !(self.received_bits(at).word(start) | self.pending_bits(at).word(start)) & mask;
            while missing != 0 && room != 0 {
                *word |= missing & missing.wrapping_neg();
                missing &= missing.wrapping_sub(1);
                room = room.wrapping_sub(1);
            }
            all &= missing == 0;
        }
        for number in self.awaited(at) {
            let behind = distance(number, base);
            let word = usize::try_from(behind >> 6).ok().and_then(|index| asked.get_mut(index));
            if let Some(word) = word {
                *word |= 1 << (behind & 63);
            }
        }
        (asked, all)
    }

    /// The peer asks for frames that it does not have, and for which it has room. It may also have frames that are not
    /// acknowledged. A frame whose last transmission may still be on its way is not sent, and the congestion window limits the
    /// number of frames.
    pub(super) fn on_nack(&mut self, at: u32, from: u64, words: &[u64]) {
        if !NACKS {
            return;
        }
        let path = self.peers.paths.get(at as usize).filter(|path| path.session.state == ConnState::Up);
        let Some(path) = path else { return };
        let (first, next) = (path.send.first, path.send.next);
        let trip = match path.estimator.least() {
            0 => self.config.initial_timeout.as_nanos(),
            least => least,
        };
        let since = self.clock.now.saturating_sub(trip);
        let mut room = path.congestion.allowed().saturating_sub(self.in_flight_since(path, since));
        let mut any = false;
        for (index, word) in words.iter().enumerate() {
            let start = from.wrapping_add(index as u64 * 64);
            let mut bits = *word;
            while bits != 0 && room != 0 {
                let number = start.wrapping_add(u64::from(bits.trailing_zeros()));
                bits &= bits.wrapping_sub(1);
                let known = distance(number, first) >= 0 && distance(number, next) < 0;
                if known && self.retransmit_missing(at, number, since) {
                    (room, any) = (room.wrapping_sub(1), true);
                }
            }
        }
        if any && let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.congestion.on_answer();
        }
        self.set_timer(at);
    }

    /// Sends a frame again that the peer asks for, if it was last sent before the time `before`. Returns whether it was sent.
    fn retransmit_missing(&mut self, at: u32, number: u64, before: u64) -> bool {
        let Some(slot) = self.window_slot(at, number) else { return false };
        let Some(frame) = self.send.frames.at_mut(slot) else { return false };
        if frame.flags & READING != 0 || frame.flags & SENT != 0 && frame.sent_at > before {
            return false;
        }
        frame.before_probe = 0;
        self.transmit_or_queue(slot)
    }
}
