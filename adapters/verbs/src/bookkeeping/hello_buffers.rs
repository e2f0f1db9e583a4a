//! The send buffers for hellos, and the destinations of hellos in flight.

use std::sync::Arc;

/// All send buffers for hellos. `D` is the device's handle of a destination. The device may use the handle until it reports
/// that the hello was sent. So the handle stays until then, even if its peer is deleted.
#[derive(Debug)]
pub(crate) struct HelloBuffers<D> {
    free: Vec<u32>,
    /// By buffer: the destination of the hello in it.
    in_flight: Vec<Option<Arc<D>>>,
}

impl<D> HelloBuffers<D> {
    /// `count` buffers, all free.
    pub fn new(count: u32) -> Self {
        Self { free: (0..count).rev().collect(), in_flight: (0..count).map(|_| None).collect() }
    }

    /// The index of a free buffer.
    pub fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Notes that the [next](Self::next) buffer was posted.
    pub fn posted(&mut self, to: &Arc<D>) {
        if let Some(buffer) = self.free.pop()
            && let Some(in_flight) = self.in_flight.get_mut(buffer as usize)
        {
            *in_flight = Some(Arc::clone(to));
        }
    }

    /// Notes that the device has completed a buffer.
    pub fn complete(&mut self, buffer: u32) {
        if self.in_flight.get_mut(buffer as usize).and_then(Option::take).is_some() {
            self.free.push(buffer);
        }
    }

    /// Whether the device has completed all of them.
    pub const fn is_idle(&self) -> bool {
        self.free.len() == self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_stays_until_the_last_hello_to_it_was_sent() {
        let mut buffers = HelloBuffers::new(3);
        let peers = Arc::new("a destination");
        let (handle, other) = (Arc::downgrade(&peers), Arc::new("another one"));
        let posted = [&peers, &other, &peers].map(|to| {
            let buffer = buffers.next().unwrap();
            buffers.posted(to);
            buffer
        });
        assert_eq!((posted, buffers.next()), ([0, 1, 2], None));
        drop(peers); // the peer is deleted
        buffers.complete(2);
        buffers.complete(1);
        assert!(handle.upgrade().is_some() && !buffers.is_idle());
        buffers.complete(0);
        assert!(handle.upgrade().is_none() && buffers.is_idle());
    }

    #[test]
    fn no_buffer_is_free_twice() {
        let mut buffers = HelloBuffers::new(1);
        buffers.posted(&Arc::new(()));
        for unknown in [0, 0, 1, u32::MAX] {
            buffers.complete(unknown);
        }
        buffers.posted(&Arc::new(()));
        assert_eq!(buffers.next(), None);
    }
}
