//! Frames that are asked for by their numbers: those that are missing where others lie unread, and those that were refused, when
//! there is room.
//!
//! What a reader keeps is not acknowledged, so its sender cannot tell what is missing between: acknowledgements that prove a loss
//! do not come. Who is sent something again that lies here says what does not, and who refused frames says so once
//! there is room, for no more than there is room for. The sender's time-outs stay, for when this is lost.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::state::Link;

use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, ACK_WORDS, Ack, Kind};
use super::in_flight::{LEFT, READING};
use super::numbers::distance;
use super::path::State;
use crate::rail::FullRail;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Frames that may come in from a peer beyond those that do.
    pub(super) fn room_for(&self, at: u32) -> u32 {
        let most = self.attributes.frames_kept.saturating_add(self.config.deliveries / 2).max(1);
        let taken = self.paths.get(at as usize).map_or(u32::MAX, |path| path.coming);
        most.saturating_sub(taken).min(self.coming.capacity().saturating_sub(self.coming.used()))
    }

    /// A frame of a peer was refused for want of room. One that has room of its own, and must come again, may be missing.
    pub(super) fn refuse(&mut self, at: u32) {
        self.counters.shed = self.counters.shed.wrapping_add(1);
        self.tell_of_room_later(at);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.wants = true;
        }
        self.ack_repeated(at);
    }

    fn tell_of_room_later(&mut self, at: u32) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && !path.in_refused
        {
            path.in_refused = true;
            self.refused.push(at);
        }
    }

    /// There is room for a frame: the next peer that was refused one, and may have it, is told.
    pub(super) fn offer_room(&mut self) {
        for _ in 0..self.refused.len() {
            let Some(at) = self.refused.pop() else { return };
            if self.room_for(at) == 0 {
                self.refused.push(at);
                continue;
            }
            if let Some(path) = self.paths.get_mut(at as usize) {
                (path.in_refused, path.wants) = (false, true);
            }
            return self.ack_at(at, self.now);
        }
    }

    /// Asks for what is to come, as far as there is room. Whether that left, or there is nothing to ask for.
    pub(super) fn ask_for_wanted(&mut self, at: u32) -> bool {
        let (wanted, all) = self.wanted(at);
        let words = wanted.iter().rposition(|word| *word != 0).map_or(0, |last| last.wrapping_add(1));
        let Some(path) = self.paths.get(at as usize) else { return true };
        let (seed, base, doubles) = (path.seeds[0], path.base, path.doubles);
        let ask = Ack {
            kind: Kind::Wanted as u8,
            words: words as u8,
            from: U16::new(base as u16),
            came: wanted.map(U64::new),
        };
        let bytes = ask.as_bytes().get(..ACK.wrapping_add(words.wrapping_mul(8))).unwrap_or(&[]);
        if words != 0 && !self.send_own(at, seed, (doubles, false, base), bytes) {
            return false;
        }
        if !all {
            self.tell_of_room_later(at);
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.wants = false;
        }
        true
    }

    /// The numbers that are to come, from the first missing one on: those that have room, and as many others as there is room for,
    /// the lowest ones. Whether that is all that is missing.
    fn wanted(&mut self, at: u32) -> ([u64; ACK_WORDS], bool) {
        let mut wanted = [0; ACK_WORDS];
        let mut room = self.room_for(at);
        let Some(path) = self.paths.get(at as usize) else { return (wanted, true) };
        let (base, end) = (path.base, path.seen());
        let mut all = distance(end, base) <= ACK_SPAN as i64;
        for (index, word) in wanted.iter_mut().enumerate() {
            let start = base.wrapping_add(index as u64 * 64);
            let Ok(left @ 1..) = u64::try_from(distance(end, start)) else { break };
            let mask = if left >= 64 { u64::MAX } else { (1u64 << (left & 63)).wrapping_sub(1) };
            let mut missing = !(self.received_bits(at).word(start) | self.busy_bits(at).word(start)) & mask;
            while missing != 0 && room != 0 {
                *word |= missing & missing.wrapping_neg();
                missing &= missing.wrapping_sub(1);
                room = room.wrapping_sub(1);
            }
            all &= missing == 0;
        }
        for number in self.awaited(at) {
            let behind = distance(number, base);
            let word = usize::try_from(behind >> 6).ok().and_then(|index| wanted.get_mut(index));
            if let Some(word) = word {
                *word |= 1 << (behind & 63);
            }
        }
        (wanted, all)
    }

    /// A peer asks for frames that are not there and for which there is room: of those that it does not ask for, some may be. None
    /// leaves that can still be on its way since it left last, nor more than may be under way.
    pub(super) fn on_wanted(&mut self, at: u32, from: u64, words: &[u64]) {
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state == State::Up) else { return };
        let (first, next) = (path.first, path.next);
        let trip = match path.estimator.least() {
            0 => self.config.initial_timeout.as_nanos(),
            least => least,
        };
        let since = self.now.saturating_sub(trip);
        let mut room = path.congestion.allowed().saturating_sub(self.left_since(path, since));
        let mut any = false;
        for (index, word) in words.iter().enumerate() {
            let start = from.wrapping_add(index as u64 * 64);
            let mut bits = *word;
            while bits != 0 && room != 0 {
                let number = start.wrapping_add(u64::from(bits.trailing_zeros()));
                bits &= bits.wrapping_sub(1);
                let known = distance(number, first) >= 0 && distance(number, next) < 0;
                if known && self.leave_as_wanted(at, number, since) {
                    (room, any) = (room.wrapping_sub(1), true);
                }
            }
        }
        if any && let Some(path) = self.paths.get_mut(at as usize) {
            path.timeouts = 0; // it answers
        }
        self.set_timer(at);
    }

    /// A frame leaves again that a peer asks for, if it left before that time. Whether it does.
    fn leave_as_wanted(&mut self, at: u32, number: u64, before: u64) -> bool {
        let Some(slot) = self.window(at, number) else { return false };
        let Some(kept) = self.kept.at_mut(slot) else { return false };
        if kept.flags & READING != 0 || kept.flags & LEFT != 0 && kept.left_at > before {
            return false;
        }
        kept.sure = 0;
        self.leave_or_wait(slot)
    }
}
