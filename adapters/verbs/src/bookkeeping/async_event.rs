//! Asynchronous events of a device: those that belong to no work request.

/// An asynchronous event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AsyncEvent {
    /// The device holds no shared receive buffer any more for the queue pair of this number, which is in its error state.
    LastReceiveReached(u32),
    /// The queue pair of this number has failed, for example because its peer has asked for memory that it may not access.
    QueuePairFailed(u32),
    /// The rail cannot be used any more, for this reason.
    Fatal(&'static str),
    /// Another event, by its number. The rail ignores it, and notices failures that come with it in other ways.
    Other(u32),
}

impl AsyncEvent {
    /// Whether an event concerns a queue pair, by its number among `enum ibv_event_type`.
    pub const fn is_of_queue_pair(number: u32) -> bool {
        matches!(number, 1..=3 | 16)
    }

    /// The event of this number; `queue_pair` is the number of the queue pair that it concerns, if any.
    pub const fn of(number: u32, queue_pair: u32) -> Self {
        match number {
            1..=3 => Self::QueuePairFailed(queue_pair),
            16 => Self::LastReceiveReached(queue_pair),
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
    fn each_fatal_event_has_a_reason_of_its_own() {
        let reason = |number| match AsyncEvent::of(number, 7) {
            AsyncEvent::Fatal(why) => Some(why),
            _ => None,
        };
        let fatal: Vec<u32> = (0..40).filter(|number| reason(*number).is_some()).collect();
        assert_eq!(fatal, [0, 8, 14]);
        for (number, word) in [(0, "completion"), (8, "device"), (14, "receive")] {
            assert!(reason(number).is_some_and(|why| why.contains(word)), "{number}");
        }
        assert_eq!(AsyncEvent::of(10, 7), AsyncEvent::Other(10), "a port that is down may come back");
        let of_queue_pair: Vec<u32> = (0..40).filter(|number| AsyncEvent::is_of_queue_pair(*number)).collect();
        assert_eq!(of_queue_pair, [1, 2, 3, 16]);
        assert_eq!(
            [1, 2, 3, 16].map(|number| AsyncEvent::of(number, 7)),
            [
                AsyncEvent::QueuePairFailed(7),
                AsyncEvent::QueuePairFailed(7),
                AsyncEvent::QueuePairFailed(7),
                AsyncEvent::LastReceiveReached(7)
            ]
        );
    }
}
