//! Numbers that nothing will come with by the link that gave them out.
//!
//! A frame that moves to another link leaves its number behind, which the peer takes for received when the frame has arrived
//! and claims it ([`Failover::claim`](crate::rail::Failover::claim)). Until then the peer waits for the number, and when as many were given
//! out after it as the window has, the link takes nothing more. There are two ways to stand still so for ever.
//!
//! A frame may move once more, from a link that carried it for another: it still names the first one as its origin, and nobody
//! would ever claim the number that it had on the second. Such a number is void.
//!
//! Or the link that carries it dies as well, while the one that it was given to first is back: the only one that could bring it
//! has no number for it. So the peer passes over numbers whose frames are away, and remembers them, as many as a window has, until
//! they are claimed. That is enough for two links of the same window, the other of which has no more of them. Where others hold
//! two windows of one's frames, and die, it waits for one of them to come back, or for its peer's end.
//!
//! Whoever waits for a number of either kind is told so: when the link comes back, and with each acknowledgement that ends there.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::state::Link;

use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, ACK_WORDS, Ack, Kind};
use super::in_flight::{AWAY, VOID};
use super::numbers::distance;
use super::path::State;
use crate::rail::FullRail;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Has a peer that waits for a number in vain told so, as often as anything that is said again. To be called when the peer has
    /// said what it waits for.
    pub(super) fn see_voids(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state == State::Up && !path.voids) else {
            return;
        };
        let (waits, now) = (path.first, self.now);
        let due = path.repeated_at.saturating_add(if path.repeated_at == 0 { 0 } else { self.after_refusals(0) });
        if waits == path.next || self.window(at, waits).is_some() {
            return;
        }
        let due = due.max(now);
        if let Some(path) = self.paths.get_mut(at as usize) {
            (path.voids, path.repeated_at) = (true, due);
        }
        self.ack_at(at, due);
    }

    /// Tells which numbers are void, and which frames are away, of those that are not acknowledged. Whether that left.
    pub(super) fn tell_voids(&mut self, at: u32) -> bool {
        if !self.tell_gone(at, Kind::Void, VOID) || !self.tell_gone(at, Kind::Away, AWAY) {
            return false;
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.voids = false;
        }
        true
    }

    /// Tells which numbers have this entry in the window.
    fn tell_gone(&mut self, at: u32, kind: Kind, entry: u32) -> bool {
        // One that is down since is told when it is up again.
        let Some(path) = self.paths.get(at as usize).filter(|path| path.raw_known) else { return true };
        let (first, seed, base) = (path.first, path.seeds[0], path.base);
        let span = path.next.wrapping_sub(first).min(ACK_SPAN);
        let (mut gone, mut words) = ([0u64; ACK_WORDS], 0);
        for behind in 0..span {
            if self.window_mut(at, first.wrapping_add(behind)).is_some_and(|found| *found == entry)
                && let Some(word) = gone.get_mut((behind >> 6) as usize)
            {
                *word |= 1 << (behind & 63);
                words = (behind >> 6).wrapping_add(1);
            }
        }
        let told = Ack { kind: kind as u8, words: words as u8, from: U16::new(first as u16), came: gone.map(U64::new) };
        let bytes = told.as_bytes().get(..ACK.wrapping_add(words as usize * 8)).unwrap_or(&[]);
        // The number goes into the check as a whole: a late one is not about what has the same low half-word.
        words == 0 || self.send_checked(at, seed, first, (first as u16, false, base), bytes)
    }

    /// The peer says which of its numbers nothing will come with, and whether their frames are away: they count as received, and
    /// those are remembered. What is here of one is finished, or taken over by whoever brings the frame.
    pub(super) fn on_gone(&mut self, at: u32, from: u64, words: &[u64], away: bool) {
        let mut any = false;
        for (index, word) in words.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let number = from.wrapping_add(index as u64 * 64).wrapping_add(u64::from(bits.trailing_zeros()));
                bits &= bits.wrapping_sub(1);
                let behind = self.paths.get(at as usize).map_or(-1, |path| distance(number, path.base));
                let known = (0..i64::from(self.config.window)).contains(&behind);
                if !known || self.received_bits(at).has(number) || (away && !self.remember_away(at, number)) {
                    continue;
                }
                if self.busy_bits(at).has(number) {
                    self.pass_record(at, number);
                }
                self.mark(at, number);
                any = true;
            }
        }
        if any {
            self.ack_now(at);
        }
    }

    /// Whether there was room.
    fn remember_away(&mut self, at: u32, number: u64) -> bool {
        let Some(path) = self.paths.get_mut(at as usize) else { return false };
        let place = (at as usize).wrapping_mul(self.config.window as usize).wrapping_add(path.away.into());
        if u32::from(path.away) >= self.config.window {
            return false;
        }
        path.away = path.away.wrapping_add(1);
        self.away.get_mut(place).map(|entry| *entry = number as u32).is_some()
    }

    pub(super) fn is_away(&self, at: u32, number: u64) -> bool {
        self.place_away(at, number).is_some()
    }

    /// A frame that was away is here.
    #[cold]
    pub(super) fn not_away(&mut self, at: u32, number: u64) {
        let Some(place) = self.place_away(at, number) else { return };
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.away = path.away.wrapping_sub(1);
        let start = (at as usize).wrapping_mul(self.config.window as usize);
        let last = start.wrapping_add(path.away.into());
        if last < self.away.len() && place < self.away.len() {
            self.away.swap(place, last);
        }
    }

    fn place_away(&self, at: u32, number: u64) -> Option<usize> {
        let count = usize::from(self.paths.get(at as usize)?.away);
        let start = (at as usize).wrapping_mul(self.config.window as usize);
        let entries = self.away.get(start..start.wrapping_add(count))?;
        entries.iter().position(|entry| *entry == number as u32).map(|place| start.wrapping_add(place))
    }
}
