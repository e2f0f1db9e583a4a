//! What a device says that belongs to no work. Pure.

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It holds no shared receive buffer any more of the queue pair of this number, which is in its error state.
    Empty(u32),
    /// The queue pair of this number has failed, as it does where its peer has asked for memory that it may not have.
    Failed(u32),
    /// What ends all that a rail does, and why.
    Fatal(&'static str),
    /// Something else: by its number. What fails with it is heard of otherwise.
    Other(u32),
}

impl Event {
    /// Whether one is of a queue pair, by its number among `enum ibv_event_type`.
    pub const fn is_of_pair(number: u32) -> bool {
        matches!(number, 1..=3 | 16)
    }

    /// The one of this number; of a queue pair, of that.
    pub const fn of(number: u32, queue_pair: u32) -> Self {
        match number {
            1..=3 => Self::Failed(queue_pair),
            16 => Self::Empty(queue_pair),
            0 => Self::Fatal("its completion queue has failed"),
            8 => Self::Fatal("the device has failed"),
            14 => Self::Fatal("its queue of receive buffers has failed"),
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_all_has_a_reason_of_its_own() {
        let reason = |number| match Event::of(number, 7) {
            Event::Fatal(why) => Some(why),
            _ => None,
        };
        let fatal: Vec<u32> = (0..40).filter(|number| reason(*number).is_some()).collect();
        assert_eq!(fatal, [0, 8, 14]);
        for (number, word) in [(0, "completion"), (8, "device"), (14, "receive")] {
            assert!(reason(number).is_some_and(|why| why.contains(word)), "{number}");
        }
        assert_eq!(Event::of(10, 7), Event::Other(10), "a port that is down may come back");
        let of_pair: Vec<u32> = (0..40).filter(|number| Event::is_of_pair(*number)).collect();
        assert_eq!(of_pair, [1, 2, 3, 16]);
        assert_eq!(
            [1, 2, 3, 16].map(|number| Event::of(number, 7)),
            [Event::Failed(7), Event::Failed(7), Event::Failed(7), Event::Empty(7)]
        );
    }
}
