//! Events that were not handed to the engine yet, in order: received frames and lost peers.

use std::collections::VecDeque;

use towline_core::rail::{Lost, Peer};

/// An event that was not handed to the engine yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingEvent {
    Frame(ReceivedFrame),
    Lost { endpoint: u32, peer: Peer, why: Lost },
}

/// A received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedFrame {
    pub endpoint: u32,
    /// Index of the receive buffer that it is in.
    pub buffer: u32,
    /// Its length in bytes.
    pub len: u32,
    /// The immediate data that came with it; a message without immediate data is not a frame.
    pub immediate: Option<u32>,
    /// Whether it came by the peer's current connection.
    pub is_current: bool,
}

/// The queue of these events.
#[derive(Default, Debug)]
pub(crate) struct PendingEvents {
    queue: VecDeque<PendingEvent>,
}

impl PendingEvents {
    /// An empty queue with room for `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self { queue: VecDeque::with_capacity(frames as usize) }
    }

    /// Makes room for `count` events in all.
    pub fn reserve(&mut self, count: usize) {
        self.queue.reserve(count.saturating_sub(self.queue.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub fn push(&mut self, event: PendingEvent) {
        self.queue.push_back(event);
    }

    /// The next event, which stays in the queue.
    #[inline]
    pub fn first(&self) -> Option<PendingEvent> {
        self.queue.front().copied()
    }

    #[inline]
    pub fn remove_first(&mut self) {
        self.queue.pop_front();
    }

    /// Notes that the connection by which frames of a peer came has ended: these frames prove nothing about the next connection.
    pub fn connection_ended(&mut self, endpoint: u32) {
        for event in &mut self.queue {
            if let PendingEvent::Frame(frame) = event
                && frame.endpoint == endpoint
            {
                frame.is_current = false;
            }
        }
    }

    /// Drops the events of a peer; calls `buffers` with the receive buffer of each of its frames.
    pub fn forget(&mut self, endpoint: u32, mut buffers: impl FnMut(u32)) {
        self.queue.retain(|event| {
            let (PendingEvent::Frame(ReceivedFrame { endpoint: of, .. }) | PendingEvent::Lost { endpoint: of, .. }) =
                event;
            if *of == endpoint
                && let PendingEvent::Frame(frame) = event
            {
                buffers(frame.buffer);
            }
            *of != endpoint
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(endpoint: u32, buffer: u32) -> PendingEvent {
        PendingEvent::Frame(ReceivedFrame { endpoint, buffer, len: 1, immediate: Some(0), is_current: true })
    }

    fn all(events: &mut PendingEvents) -> Vec<PendingEvent> {
        let next = || events.first().inspect(|_| events.remove_first());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn frames_of_an_ended_connection_prove_nothing_about_the_next() {
        let mut events = PendingEvents::new(4);
        [frame(0, 10), frame(1, 11)].into_iter().for_each(|event| events.push(event));
        events.connection_ended(1);
        events.push(frame(1, 12));
        let current = |event| matches!(event, PendingEvent::Frame(ReceivedFrame { is_current: true, .. }));
        assert_eq!(all(&mut events).into_iter().map(current).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn a_forgotten_peer_leaves_nothing_but_buffers() {
        let mut events = PendingEvents::new(4);
        let lost = |endpoint| PendingEvent::Lost { endpoint, peer: Peer(endpoint), why: Lost::Broken };
        let queued = [frame(0, 10), frame(1, 11), lost(1), frame(1, 12), lost(0)];
        queued.into_iter().for_each(|event| events.push(event));
        let mut buffers = vec![];
        events.forget(1, |buffer| buffers.push(buffer));
        assert_eq!(buffers, [11, 12]);
        assert_eq!(all(&mut events), [frame(0, 10), lost(0)]);
    }
}
