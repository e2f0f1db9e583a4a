//! Queue pairs of ended connections, until the device has released all their resources.
//!
//! Each of these queue pairs is in its error state, so it moves no data any more. But the device may still hold a shared receive
//! buffer that a frame was about to fill, and gives it back only while the queue pair exists. The device reports when it holds no
//! such buffer any more. Some devices, such as Soft-RoCE in older kernels, give the buffer back soon and report nothing.

use towline_core::time::{Duration, Instant};

use super::send_queue::SendQueue;
use super::send_resources::SendResources;

/// Time until the first check whether a queue pair can be destroyed. Later checks have growing intervals, up to [`LONGEST_WAIT`].
const FIRST_CHECK: Duration = Duration::from_millis(1);
/// Time after which a queue pair is destroyed in any case. By then the device holds no buffer, even if it did not report that.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The queue pairs that are to be destroyed.
#[derive(Debug)]
pub(crate) struct ClosingQueuePairs<P> {
    pairs: Vec<Closing<P>>,
    check_at: Option<Instant>,
}

#[derive(Debug)]
struct Closing<P> {
    pair: P,
    number: u32,
    send_queue: SendQueue,
    since: Instant,
    /// Whether the device has reported that it holds no receive buffer for this queue pair.
    is_empty: bool,
}

impl<P> ClosingQueuePairs<P> {
    pub const fn new() -> Self {
        Self { pairs: Vec::new(), check_at: None }
    }

    /// When to call [`destroy_ready`](Self::destroy_ready).
    #[inline]
    pub const fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Adds a queue pair that was moved to its error state; `number` is its number.
    pub fn add(&mut self, pair: P, number: u32, send_queue: SendQueue, now: Instant) {
        self.pairs.push(Closing { pair, number, send_queue, since: now, is_empty: false });
        let check_at = now + FIRST_CHECK;
        self.check_at = Some(self.check_at.map_or(check_at, |at| at.min(check_at)));
    }

    /// Notes that the device has completed the work request `work` of a queue pair, so that its resource is free.
    pub fn flushed(&mut self, number: u32, work: u32, resources: &mut SendResources) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.number == number) {
            pair.send_queue.complete(work, resources);
        }
    }

    /// Removes a queue pair, with its send queue.
    pub fn take(&mut self, number: u32) -> Option<(P, SendQueue)> {
        let at = self.pairs.iter().position(|pair| pair.number == number)?;
        let Closing { pair, send_queue, .. } = self.pairs.swap_remove(at);
        Some((pair, send_queue))
    }

    /// The send queue of a queue pair.
    pub fn send_queue(&self, number: u32) -> Option<&SendQueue> {
        self.pairs.iter().find(|pair| pair.number == number).map(|pair| &pair.send_queue)
    }

    /// Notes that the device holds no receive buffer any more for a queue pair.
    pub fn set_empty(&mut self, number: u32) {
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.number == number) {
            pair.is_empty = true;
        }
    }

    /// Destroys the queue pairs whose resources the device has released. `destroy` returns whether it succeeded. If not, the
    /// device may still read the send buffers of that queue pair, so they are not used again.
    pub fn destroy_ready(&mut self, now: Instant, resources: &mut SendResources, mut destroy: impl FnMut(P) -> bool) {
        let ready = |pair: &mut Closing<P>| pair.is_empty || now.since(pair.since) >= LONGEST_WAIT;
        for mut pair in self.pairs.extract_if(.., ready) {
            if destroy(pair.pair) {
                pair.send_queue.clear(resources);
            }
        }
        let next = |pair: &Closing<P>| now + now.since(pair.since).max(FIRST_CHECK);
        self.check_at = self.pairs.iter().map(next).min();
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::Lane;

    use super::*;
    use crate::bookkeeping::resource::{Buffer, Resource};

    const START: Instant = Instant::from_nanos(1 << 40);

    /// Buffers, all of which are in the send queues of two queue pairs.
    fn two() -> (SendResources, ClosingQueuePairs<u32>) {
        let (mut resources, mut closing) = (SendResources::new(8, 4, 0, 0), ClosingQueuePairs::new());
        for number in [70, 80] {
            let mut send_queue = SendQueue::new(8);
            for _ in 0..2 {
                let buffer = resources.next(Lane::Bulk).unwrap();
                assert!(resources.take(buffer));
                send_queue.push(Resource::Buffer(buffer), false);
            }
            closing.add(number, number, send_queue, START);
        }
        (resources, closing)
    }

    /// How many bulk buffers are free.
    fn free(resources: &mut SendResources) -> usize {
        let next = || resources.next(Lane::Bulk).filter(|buffer| resources.take(*buffer));
        let taken: Vec<Buffer> = std::iter::from_fn(next).collect();
        taken.iter().for_each(|buffer| resources.give_back(Resource::Buffer(*buffer)));
        taken.len()
    }

    #[test]
    fn a_queue_pair_is_destroyed_when_the_device_reports_that_it_is_empty() {
        let (mut resources, mut closing) = two();
        let at = closing.check_at().unwrap();
        let mut destroyed = vec![];
        closing.destroy_ready(at, &mut resources, |number| {
            destroyed.push(number);
            true
        });
        assert_eq!((&destroyed[..], free(&mut resources)), (&[][..], 0), "not before");
        closing.set_empty(80);
        closing.set_empty(90);
        closing.destroy_ready(at, &mut resources, |number| {
            destroyed.push(number);
            true
        });
        assert_eq!((&destroyed[..], free(&mut resources)), (&[80][..], 2));
    }

    #[test]
    fn where_the_device_reports_nothing_the_wait_ends() {
        let (mut resources, mut closing) = two();
        let (mut destroyed, mut checks) = (vec![], 0);
        while let Some(at) = closing.check_at() {
            assert!(destroyed.is_empty());
            closing.destroy_ready(at, &mut resources, |number| {
                destroyed.push((number, at));
                true
            });
            checks += 1;
        }
        let numbers: Vec<u32> = destroyed.iter().map(|(number, _)| *number).collect();
        assert_eq!((numbers, free(&mut resources)), (vec![70, 80], 4));
        assert!(destroyed.iter().all(|(_, at)| at.since(START) >= LONGEST_WAIT), "too early: {destroyed:?}");
        assert!(checks < 15, "{checks} checks");
    }

    #[test]
    fn flushed_buffers_are_free_at_once() {
        let (mut resources, mut closing) = two();
        closing.flushed(70, 0, &mut resources);
        assert_eq!(free(&mut resources), 1);
        closing.flushed(75, 0, &mut resources);
        assert_eq!(free(&mut resources), 1, "of another queue pair");
        closing.set_empty(70);
        closing.destroy_ready(START, &mut resources, |_| true);
        assert_eq!(free(&mut resources), 2, "the other one, and none twice");
    }

    #[test]
    fn a_queue_pair_that_was_taken_out_is_not_destroyed_later() {
        let (mut resources, mut closing) = two();
        assert_eq!(closing.send_queue(80).map(SendQueue::len), Some(2));
        let (number, mut send_queue) = closing.take(80).unwrap();
        let taken = (closing.send_queue(80).is_none(), closing.take(80).is_none());
        assert_eq!((number, send_queue.len(), taken), (80, 2, (true, true)));
        closing.set_empty(80);
        closing.destroy_ready(START, &mut resources, |_| panic!("the other one is not empty"));
        send_queue.clear(&mut resources);
        assert_eq!(free(&mut resources), 2);
    }

    #[test]
    fn buffers_that_the_device_may_still_read_are_not_free() {
        let (mut resources, mut closing) = two();
        closing.set_empty(70);
        closing.destroy_ready(START, &mut resources, |_| false);
        assert_eq!(free(&mut resources), 0);
    }
}
