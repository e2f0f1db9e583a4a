//! Where what lies in a rail's registered memory. Pure.

use crate::config::Config;
use crate::wire::hello;
use crate::bookkeeping::send_queue::Slot;

/// Bytes before a datagram's own, for the route that it took.
pub(crate) const ROUTE: usize = 40;
/// Hellos that may wait to be looked at.
pub(crate) const HELLOS_IN: u32 = 64;
/// Hellos that may be on their way out.
pub(crate) const HELLOS_OUT: u32 = 16;

/// Buffers of one kind, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    start: usize,
    stride: usize,
    count: u32,
}

impl Row {
    /// Where buffer `index` begins; `None` where there is none.
    #[inline]
    pub const fn at(&self, index: u32) -> Option<usize> {
        if index < self.count { Some(self.start + index as usize * self.stride) } else { None }
    }

    pub const fn count(&self) -> u32 {
        self.count
    }

    #[cfg(test)]
    const fn end(&self) -> usize {
        self.start + self.count as usize * self.stride
    }
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub received: Row,
    pub eager: Row,
    pub bulk: Row,
    pub hellos_in: Row,
    pub hellos_out: Row,
    /// Where what is read to no purpose but that it was read comes to.
    pub read: Row,
    pub bytes: usize,
}

impl Layout {
    /// Where a send buffer is.
    #[inline]
    pub const fn of_slot(&self, slot: Slot) -> Option<usize> {
        match slot {
            Slot::Eager(index) => self.eager.at(index),
            Slot::Bulk(index) => self.bulk.at(index),
            Slot::Marker | Slot::Work(_) | Slot::Lead(_) => None,
        }
    }

    pub const fn of(config: &Config) -> Self {
        let mut bytes = 0;
        let received = row(&mut bytes, config.receive_buffers, config.max_send_size_bytes as usize);
        let eager = row(&mut bytes, config.eager_buffers, config.short_bytes() as usize);
        let bulk = row(&mut bytes, config.bulk_buffers, config.max_send_size_bytes as usize);
        let hellos_in = row(&mut bytes, HELLOS_IN, ROUTE + hello::BYTES);
        let hellos_out = row(&mut bytes, HELLOS_OUT, hello::BYTES);
        let read = row(&mut bytes, 1, 1);
        Self { received, eager, bulk, hellos_in, hellos_out, read, bytes }
    }
}

/// Buffers do not share cache lines.
const fn row(bytes: &mut usize, count: u32, each: usize) -> Row {
    let (start, stride) = (*bytes, each.next_multiple_of(64));
    *bytes += count as usize * stride;
    Row { start, stride, count }
}

#[cfg(test)]
mod tests {
    use towline_tcp::JobKey;

    use super::*;

    #[test]
    fn rows_do_not_overlap_and_buffers_hold_what_they_are_for() {
        let config =
            Config { eager_limit_bytes: 700, max_send_size_bytes: 9000, ..Config::new(1, 0, JobKey::new([0; 32])) };
        let it = Layout::of(&config);
        let rows = [it.received, it.eager, it.bulk, it.hellos_in, it.hellos_out, it.read];
        for pair in rows.windows(2) {
            assert_eq!(pair[0].end(), pair[1].start);
        }
        assert_eq!(it.read.end(), it.bytes);
        for (row, each) in rows.into_iter().zip([9000, 700, 9000, 136, 96, 1]) {
            assert!(row.stride >= each && row.start % 64 == 0);
            assert_eq!(row.at(row.count), None);
            assert_eq!(row.at(row.count - 1), Some(row.end() - row.stride));
        }
    }
}
