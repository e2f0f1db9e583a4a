//! What a device says that belongs to no work. Pure.

/// What it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// It holds no shared receive buffer any more of the queue pair of this number, which is in its error state.
    Empty(u32),
    /// What ends all that a rail does, and why.
    Fatal(&'static str),
    /// Something else: by its number. What fails with it is heard of otherwise.
    Other(u32),
}

impl Event {
    /// One that is not of a queue pair, by its number among `enum ibv_event_type`.
    pub const fn of(number: u32) -> Self {
        match number {
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
        let reason = |number| match Event::of(number) {
            Event::Fatal(why) => Some(why),
            _ => None,
        };
        let fatal: Vec<u32> = (0..40).filter(|number| reason(*number).is_some()).collect();
        assert_eq!(fatal, [0, 8, 14]);
        for (number, word) in [(0, "completion"), (8, "device"), (14, "receive")] {
            assert!(reason(number).is_some_and(|why| why.contains(word)), "{number}");
        }
        assert_eq!(Event::of(10), Event::Other(10), "a port that is down may come back");
    }
}
