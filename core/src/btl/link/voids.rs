//! Numbers that nothing will come with.
//!
//! A frame that moves to another link leaves its number behind, which the peer takes for received when the frame has arrived
//! and claims it ([`Rail::claim`](crate::btl::Rail::claim)). A frame may move once more, from a link that carried it for another:
//! it still names the first one as its origin, and nobody would ever claim the number that it had on the second. The peer waits
//! for it then, and when as many numbers as the window has were given out after it, the link stands still for ever. So such a
//! number is void, and whoever waits for it is told so: when the link comes back, and with each acknowledgement that ends there.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::Link;
use super::acks::ACK_SPAN;
use super::checksum::Checksum;
use super::header::{ACK, ACK_WORDS, Ack, Kind};
use super::numbers::distance;
use super::outgoing::VOID;
use super::path::State;
use crate::btl::Rail;

impl<R: Rail, C: Checksum> Link<'_, R, C> {
    /// Has a peer that waits for a void number told so, as often as anything that is said again. To be called when the peer has
    /// said what it waits for.
    pub(super) fn see_voids(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state == State::Up && !path.voids) else {
            return;
        };
        let (waits, now) = (path.first, self.now);
        let due = path.repeated_at.saturating_add(if path.repeated_at == 0 { 0 } else { self.after_refusals(0) });
        if waits == path.next || !self.is_void(at, waits) {
            return;
        }
        let due = due.max(now);
        if let Some(path) = self.paths.get_mut(at as usize) {
            (path.voids, path.repeated_at) = (true, due);
        }
        self.ack_at(at, due);
    }

    fn is_void(&mut self, at: u32, number: u64) -> bool {
        self.window_mut(at, number).is_some_and(|entry| *entry == VOID)
    }

    /// Tells which numbers are void, of those that are not acknowledged. Whether that left.
    pub(super) fn tell_voids(&mut self, at: u32) -> bool {
        // One that is down since is told when it is up again.
        let Some(path) = self.paths.get(at as usize).filter(|path| path.raw_known) else { return true };
        let (first, seed, base) = (path.first, path.seeds[0], path.base);
        let span = path.next.wrapping_sub(first).min(ACK_SPAN);
        let (mut came, mut words) = ([0u64; ACK_WORDS], 0);
        for behind in 0..span {
            if self.is_void(at, first.wrapping_add(behind))
                && let Some(word) = came.get_mut((behind >> 6) as usize)
            {
                *word |= 1 << (behind & 63);
                words = (behind >> 6).wrapping_add(1);
            }
        }
        let told =
            Ack { kind: Kind::Void as u8, words: words as u8, from: U16::new(first as u16), came: came.map(U64::new) };
        let bytes = told.as_bytes().get(..ACK.wrapping_add(words as usize * 8)).unwrap_or(&[]);
        // The number goes into the check as a whole: a late one voids nothing that has the same low half-word.
        if words != 0 && !self.send_checked(at, seed, first, (first as u16, false, base), bytes) {
            return false;
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.voids = false;
        }
        true
    }

    /// The peer says which of its numbers are void: they count as received. Not those of which a part is here; whoever moves such
    /// a frame takes that over.
    pub(super) fn on_voids(&mut self, at: u32, from: u64, words: &[u64]) {
        let mut any = false;
        for (index, word) in words.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let number = from.wrapping_add(index as u64 * 64).wrapping_add(u64::from(bits.trailing_zeros()));
                bits &= bits.wrapping_sub(1);
                let behind = self.paths.get(at as usize).map_or(-1, |path| distance(number, path.base));
                let known = (0..i64::from(self.config.window)).contains(&behind);
                if known && !self.received_bits(at).has(number) && !self.busy_bits(at).has(number) {
                    self.mark(at, number);
                    any = true;
                }
            }
        }
        if any {
            self.ack_now(at);
        }
    }
}
