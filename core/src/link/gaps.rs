//! Gaps: numbers that a link gave to a frame, and with which no frame will arrive on that link.
//!
//! A frame that migrates to another link no longer uses its number. The peer counts the number as received when the frame has
//! arrived by the other link and is claimed ([`Failover::claim`](crate::rail::Failover::claim)). Until then the peer waits for
//! the number. When a whole window of numbers was given out after it, the link accepts no frames. In two cases it would never
//! make progress again.
//!
//! First, a frame may migrate again, from a link that carried it for another one. The frame still names the first link as its
//! origin, so no claim would ever name its number on the second link. Such a number is a gap.
//!
//! Second, the link that carries the frame may go down as well, while the first link is up again. Then only the first link
//! could bring the frame, but it has no free number for it. So the peer skips the numbers of migrated frames: it remembers up
//! to one window of them until they are claimed. That is enough for two links of equal windows, since the other link cannot
//! hold more frames. If several other links hold two windows of frames of one link, and all of them go down, that link waits
//! until one of them is up again, or until the peer is lost.
//!
//! The sender reports both kinds of numbers to the peer: when the link comes up, and after each acknowledgement that stops at
//! such a number.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U64};

use super::checksum::Checksum;
use super::header::{ACK, ACK_SPAN, ACK_WORDS, Ack, Kind, MIGRATION};
use super::in_flight::{GAP, MIGRATED_ENTRY};
use super::numbers::distance;
use super::path::{ConnState, Path};
use super::paths::start;
use super::state::Link;
use crate::rail::FullRail;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// If the peer waits for the number of a gap, schedules a report of the gaps, at most once per delay of an acknowledgement.
    /// To be called after each acknowledgement, which says for which number the peer waits.
    pub(super) fn check_gaps(&mut self, at: u32) {
        if !MIGRATION {
            return;
        }
        let free = |path: &&Path| path.session.state == ConnState::Up && !path.due.gaps;
        let Some(path) = self.peers.paths.get(at as usize).filter(free) else { return };
        let (waits, now) = (path.send.first, self.clock.now);
        let pause = if path.due.repeated_at == 0 { 0 } else { self.retry_delay(0) };
        let due = path.due.repeated_at.saturating_add(pause);
        if waits == path.send.next || self.window_slot(at, waits).is_some() {
            return;
        }
        let due = due.max(now);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            (path.due.gaps, path.due.repeated_at) = (true, due);
        }
        self.ack_at(at, due);
    }

    /// Reports to the peer which unacknowledged numbers are gaps, and which have migrated. Returns whether the report was sent.
    pub(super) fn send_gaps(&mut self, at: u32) -> bool {
        let sent = MIGRATION
            && self.send_gap_numbers(at, Kind::Gaps, GAP)
            && self.send_gap_numbers(at, Kind::Migrated, MIGRATED_ENTRY);
        if sent && let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.gaps = false;
        }
        sent
    }

    /// Reports to the peer which numbers have this entry in the send window.
    fn send_gap_numbers(&mut self, at: u32, kind: Kind, entry: u32) -> bool {
        // A peer whose link went down meanwhile gets the report when the link is up again.
        let Some(path) = self.peers.paths.get(at as usize).filter(|path| path.below.known) else { return true };
        let (first, seed, base) = (path.send.first, path.session.seeds[0], path.receive.base);
        let span = path.send.next.wrapping_sub(first).min(ACK_SPAN);
        let (mut gaps, mut words) = ([0u64; ACK_WORDS], 0);
        for behind in 0..span {
            if self.window_entry_mut(at, first.wrapping_add(behind)).is_some_and(|found| *found == entry)
                && let Some(word) = gaps.get_mut((behind >> 6) as usize)
            {
                *word |= 1 << (behind & 63);
                words = (behind >> 6).wrapping_add(1);
            }
        }
        let told = Ack { kind: kind as u8, words: words as u8, from: U16::new(first as u16), bits: gaps.map(U64::new) };
        let bytes = told.as_bytes().get(..ACK.wrapping_add(words as usize * 8)).unwrap_or(&[]);
        // The check covers the full number, so a late report fails it, although other numbers now have the same low half-words.
        words == 0 || self.send_control_checked(at, seed, first, (first as u16, false, base), bytes)
    }

    /// The peer reports numbers with which no frame will arrive. They count as received. `migrated`: their frames arrive by
    /// another link, so the numbers are remembered. If a delivery of such a frame is pending here, it goes on, or the link that
    /// brings the frame takes it over.
    pub(super) fn on_gaps(&mut self, at: u32, from: u64, words: &[u64], migrated: bool) {
        if !MIGRATION {
            return;
        }
        let mut any = false;
        for (index, word) in words.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let number = from.wrapping_add(index as u64 * 64).wrapping_add(u64::from(bits.trailing_zeros()));
                bits &= bits.wrapping_sub(1);
                let behind = self.peers.paths.get(at as usize).map_or(-1, |path| distance(number, path.receive.base));
                let known = (0..i64::from(self.config.window)).contains(&behind);
                if !known || self.received_bits(at).has(number) || (migrated && !self.remember_migrated(at, number)) {
                    continue;
                }
                if self.pending_bits(at).has(number) {
                    self.skip_record(at, number);
                }
                self.mark(at, number);
                any = true;
            }
        }
        if any {
            self.ack_now(at);
        }
    }

    /// Remembers the number of a migrated frame. Returns whether there was room.
    fn remember_migrated(&mut self, at: u32, number: u64) -> bool {
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return false };
        let count = path.receive.migrated;
        let place = start(at, self.config.window as usize).wrapping_add(count.into());
        if u32::from(count) >= self.config.window {
            return false;
        }
        path.receive.migrated = count.wrapping_add(1);
        self.receive.migrated.get_mut(place).map(|entry| *entry = number as u32).is_some()
    }

    /// Whether the frame with this number has migrated, and has not arrived.
    pub(super) fn is_migrated(&self, at: u32, number: u64) -> bool {
        self.migrated_place(at, number).is_some()
    }

    /// A migrated frame has arrived.
    #[cold]
    pub(super) fn forget_migrated(&mut self, at: u32, number: u64) {
        let Some(place) = self.migrated_place(at, number) else { return };
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.receive.migrated = path.receive.migrated.wrapping_sub(1);
        let start = start(at, self.config.window as usize);
        let last = start.wrapping_add(path.receive.migrated.into());
        if last < self.receive.migrated.len() && place < self.receive.migrated.len() {
            self.receive.migrated.swap(place, last);
        }
    }

    fn migrated_place(&self, at: u32, number: u64) -> Option<usize> {
        let count = usize::from(self.peers.paths.get(at as usize)?.receive.migrated);
        let start = start(at, self.config.window as usize);
        let entries = self.receive.migrated.get(start..start.wrapping_add(count))?;
        entries.iter().position(|entry| *entry == number as u32).map(|place| start.wrapping_add(place))
    }
}
