//! What a program has sent, received and accessed by this interface: counters of a context.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    MessagesSent,
    BytesSent,
    MessagesReceived,
    BytesReceived,
    Puts,
    BytesPut,
    Gets,
    BytesGot,
    Atomics,
}

/// The name of each counter, and what it counts.
pub(crate) const TALLIED: [(&str, &str); 9] = [
    ("messages_sent", "Messages that the program has sent, or begun to send."),
    ("bytes_sent", "Bytes of these messages."),
    ("messages_received", "Messages that the program has received, and knows to be complete."),
    ("bytes_received", "Bytes of these messages that were delivered."),
    ("puts", "Puts into windows."),
    ("bytes_put", "Bytes of these puts."),
    ("gets", "Gets from windows that are complete."),
    ("bytes_got", "Bytes of these gets."),
    ("atomics", "Words of windows that the program has changed by atomic operations, or begun to change."),
];

/// The counters of a context, in the order of [`TALLIED`].
pub(crate) struct Tally {
    counts: [AtomicU64; TALLIED.len()],
    /// Several threads count at once.
    is_shared: bool,
}

impl Tally {
    pub fn new(is_shared: bool) -> Self {
        Self { counts: Default::default(), is_shared }
    }

    #[inline]
    pub fn add(&self, what: Counted, number: u64) {
        let count = &self.counts[what as usize];
        if self.is_shared {
            count.fetch_add(number, Ordering::Relaxed);
        } else {
            // One thread alone counts, so an ordinary addition is enough.
            count.store(count.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
        }
    }

    /// One message or operation, and its bytes.
    #[inline]
    pub fn add_with_bytes(&self, what: Counted, of_bytes: Counted, bytes: u64) {
        self.add(what, 1);
        self.add(of_bytes, bytes);
    }

    pub fn values(&self) -> [u64; TALLIED.len()] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_the_name_at_its_place() {
        for is_shared in [false, true] {
            let tally = Tally::new(is_shared);
            tally.add(Counted::Atomics, 3);
            tally.add_with_bytes(Counted::MessagesSent, Counted::BytesSent, 100);
            tally.add_with_bytes(Counted::Gets, Counted::BytesGot, 7);
            let counted = TALLIED.iter().zip(tally.values()).filter(|(_, value)| *value != 0);
            let counted: Vec<_> = counted.map(|((name, _), value)| (*name, value)).collect();
            let expected = [("messages_sent", 1), ("bytes_sent", 100), ("gets", 1), ("bytes_got", 7), ("atomics", 3)];
            assert_eq!(counted, expected);
        }
    }
}
