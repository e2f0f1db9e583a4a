//! The publications of all ranks, as far as this rank knows them.

use towline_core::modex::{Change, Set, SetWriter, Stamp, Watch, entry_size};

use super::job::Job;

impl Job {
    pub(super) fn has_set(&self, rank: u32) -> bool {
        rank == self.rank() || self.sets.get(rank as usize).is_some_and(Option::is_some)
    }

    pub(super) fn missing_sets(&self) -> Vec<u32> {
        (0..self.size()).filter(|rank| !self.has_set(*rank)).collect()
    }

    pub(super) fn has_all_sets(&self) -> bool {
        let own = u32::from(self.sets.get(self.rank() as usize).is_some_and(Option::is_none));
        self.known + own == self.size()
    }

    pub(super) fn encode_own_set(&self) -> Vec<u8> {
        let entries = self.own.iter().map(|own| entry_size(&own.name.component(), own.data.len()));
        let mut bytes = vec![0; Set::HEADER + entries.sum::<usize>()];
        let stamp = Stamp { incarnation: self.incarnation, revision: self.revision };
        let Some(mut writer) = SetWriter::new(&mut bytes, self.rank(), stamp) else { return Vec::new() };
        for own in &self.own {
            // Cannot fail: the buffer was sized for exactly these entries.
            let _ = writer.entry(&own.name.component(), own.revision, &own.data);
        }
        let length = writer.finish();
        bytes.truncate(length);
        bytes
    }

    /// Replaces the stored set of a rank by a newer, checked one, and records the changes that callers watch.
    pub(super) fn store_set(&mut self, rank: u32, bytes: Vec<u8>) {
        let Some(place) = self.sets.get_mut(rank as usize) else { return };
        let old = place.replace(bytes);
        self.known += u32::from(old.is_none());
        let old = old.as_deref().and_then(|set| Set::parse(set).ok());
        let Some(new) = place.as_deref().and_then(|set| Set::parse(set).ok()) else { return };
        for (index, (name, peer)) in (0..).zip(&self.watches) {
            let component = name.component();
            let mark = |set: Option<Set<'_>>| {
                set.and_then(|set| Some((set.stamp().incarnation, set.find(&component)?.revision)))
            };
            let change = Change { watch: Watch::from_bits(index), peer: rank };
            if *peer == rank && mark(old) != mark(Some(new)) && !self.changes.contains(&change) {
                self.changes.push_back(change);
            }
        }
    }
}
