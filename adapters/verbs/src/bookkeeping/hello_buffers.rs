//! Buffers for hellos that leave, and where those go that have not left yet. Pure.

use std::sync::Arc;

/// All of them. `D` is what names a destination to the device, which may look at it until it tells that the hello has left: so
/// that stays, also when its peer is forgotten.
#[derive(Debug)]
pub(crate) struct Outbox<D> {
    free: Vec<u32>,
    /// By buffer.
    under_way: Vec<Option<Arc<D>>>,
}

impl<D> Outbox<D> {
    pub fn new(count: u32) -> Self {
        Self { free: (0..count).rev().collect(), under_way: (0..count).map(|_| None).collect() }
    }

    /// A buffer that is free.
    pub fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The device got the [next](Self::next).
    pub fn posted(&mut self, to: &Arc<D>) {
        if let Some(buffer) = self.free.pop()
            && let Some(under_way) = self.under_way.get_mut(buffer as usize)
        {
            *under_way = Some(Arc::clone(to));
        }
    }

    /// The device is done with a buffer.
    pub fn done(&mut self, buffer: u32) {
        if self.under_way.get_mut(buffer as usize).and_then(Option::take).is_some() {
            self.free.push(buffer);
        }
    }

    /// The device is done with all of them.
    pub const fn is_idle(&self) -> bool {
        self.free.len() == self.under_way.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_stays_until_the_last_hello_to_it_has_left() {
        let mut outbox = Outbox::new(3);
        let peers = Arc::new("a way");
        let (way, other) = (Arc::downgrade(&peers), Arc::new("another one"));
        let buffers = [&peers, &other, &peers].map(|to| {
            let buffer = outbox.next().unwrap();
            outbox.posted(to);
            buffer
        });
        assert_eq!((buffers, outbox.next()), ([0, 1, 2], None));
        drop(peers); // it is forgotten
        outbox.done(2);
        outbox.done(1);
        assert!(way.upgrade().is_some() && !outbox.is_idle());
        outbox.done(0);
        assert!(way.upgrade().is_none() && outbox.is_idle());
    }

    #[test]
    fn nothing_is_free_twice() {
        let mut outbox = Outbox::new(1);
        outbox.posted(&Arc::new(()));
        for unknown in [0, 0, 1, u32::MAX] {
            outbox.done(unknown);
        }
        outbox.posted(&Arc::new(()));
        assert_eq!(outbox.next(), None);
    }
}
