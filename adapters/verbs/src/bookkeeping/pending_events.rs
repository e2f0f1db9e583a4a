//! What came and was not handed over yet, in order. Pure.

use std::collections::VecDeque;

use towline_core::rail::{Lost, Peer};

/// What came from a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    Frame(Came),
    Lost { endpoint: u32, peer: Peer, why: Lost },
}

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    pub endpoint: u32,
    /// The receive buffer that it is in.
    pub buffer: u32,
    pub len: u32,
    /// The word that came with it: none came with what was no frame.
    pub word: Option<u32>,
    /// It came by the connection that there is now.
    pub is_new: bool,
}

/// All of it.
#[derive(Default, Debug)]
pub(crate) struct Arrivals {
    queue: VecDeque<Arrival>,
}

impl Arrivals {
    pub fn new(frames: u32) -> Self {
        Self { queue: VecDeque::with_capacity(frames as usize) }
    }

    /// Makes room for so many.
    pub fn reserve(&mut self, count: usize) {
        self.queue.reserve(count.saturating_sub(self.queue.len()));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    #[inline]
    pub fn push(&mut self, arrival: Arrival) {
        self.queue.push_back(arrival);
    }

    /// The next, which stays.
    #[inline]
    pub fn first(&self) -> Option<Arrival> {
        self.queue.front().copied()
    }

    #[inline]
    pub fn remove_first(&mut self) {
        self.queue.pop_front();
    }

    /// The connection that frames of a peer came by is no more: they say nothing of the next one.
    pub fn grow_old(&mut self, endpoint: u32) {
        for arrival in &mut self.queue {
            if let Arrival::Frame(came) = arrival
                && came.endpoint == endpoint
            {
                came.is_new = false;
            }
        }
    }

    /// Forgets what came from a peer, and tells in which buffers.
    pub fn forget(&mut self, endpoint: u32, mut buffers: impl FnMut(u32)) {
        self.queue.retain(|arrival| {
            let (Arrival::Frame(Came { endpoint: of, .. }) | Arrival::Lost { endpoint: of, .. }) = arrival;
            if *of == endpoint
                && let Arrival::Frame(came) = arrival
            {
                buffers(came.buffer);
            }
            *of != endpoint
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(endpoint: u32, buffer: u32) -> Arrival {
        Arrival::Frame(Came { endpoint, buffer, len: 1, word: Some(0), is_new: true })
    }

    fn all(arrivals: &mut Arrivals) -> Vec<Arrival> {
        let next = || arrivals.first().inspect(|_| arrivals.remove_first());
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn frames_of_an_old_connection_say_nothing_of_the_next() {
        let mut arrivals = Arrivals::new(4);
        [frame(0, 10), frame(1, 11)].into_iter().for_each(|arrival| arrivals.push(arrival));
        arrivals.grow_old(1);
        arrivals.push(frame(1, 12));
        let new = |arrival| matches!(arrival, Arrival::Frame(Came { is_new: true, .. }));
        assert_eq!(all(&mut arrivals).into_iter().map(new).collect::<Vec<_>>(), [true, false, true]);
    }

    #[test]
    fn who_is_forgotten_leaves_nothing_but_buffers() {
        let mut arrivals = Arrivals::new(4);
        let lost = |endpoint| Arrival::Lost { endpoint, peer: Peer(endpoint), why: Lost::Broken };
        let came = [frame(0, 10), frame(1, 11), lost(1), frame(1, 12), lost(0)];
        came.into_iter().for_each(|arrival| arrivals.push(arrival));
        let mut buffers = vec![];
        arrivals.forget(1, |buffer| buffers.push(buffer));
        assert_eq!(buffers, [11, 12]);
        assert_eq!(all(&mut arrivals), [frame(0, 10), lost(0)]);
    }
}
