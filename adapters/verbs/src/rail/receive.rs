//! Received frames: those that wait for the engine, those that it holds, and the buffers that are to be posted again.

use towline_core::rail::FrameId;

use super::queues::Queues;
use crate::bookkeeping::pending_events::PendingEvents;
use crate::device::MAX_POSTS;

/// A frame that the engine holds.
#[derive(Clone, Copy, Debug)]
pub struct HeldFrame {
    pub endpoint: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// The receiving side of a rail.
#[derive(Debug)]
pub struct ReceiveState {
    /// Events that were not handed to the engine yet.
    pub pending: PendingEvents,
    /// By receive buffer: the frame in it, if the engine holds it.
    held: Vec<Option<HeldFrame>>,
    held_count: u32,
    /// Receive buffers that are to be posted again: at most [`MAX_POSTS`].
    to_post: Vec<u32>,
}

impl ReceiveState {
    /// The state for `buffers` receive buffers, all of them posted.
    pub fn new(buffers: u32) -> Self {
        Self {
            pending: PendingEvents::new(buffers),
            held: vec![None; buffers as usize],
            held_count: 0,
            to_post: Vec::with_capacity(MAX_POSTS),
        }
    }

    /// Makes room for the events of `peers` peers.
    pub fn reserve(&mut self, peers: usize) {
        self.pending.reserve(self.held.len() + peers);
    }

    /// How many frames the engine holds.
    pub const fn held_count(&self) -> u32 {
        self.held_count
    }

    /// Notes that the engine holds the frame in a buffer. Returns `None` for an unknown buffer.
    #[inline]
    pub fn hold(&mut self, buffer: u32, frame: HeldFrame) -> Option<()> {
        *self.held.get_mut(buffer as usize)? = Some(frame);
        self.held_count += 1;
        Some(())
    }

    /// The buffer of a frame that the engine holds.
    #[inline]
    pub fn held(&self, frame: FrameId) -> Option<(u32, HeldFrame)> {
        let buffer = u32::try_from(frame.0).ok()?;
        Some((buffer, (*self.held.get(buffer as usize)?)?))
    }

    /// Releases a frame, if the engine holds it.
    #[inline]
    pub fn release(&mut self, frame: FrameId, queues: &Queues) {
        if let Some((buffer, _)) = self.held(frame) {
            self.held[buffer as usize] = None;
            self.held_count -= 1;
            self.post_later(buffer, queues);
        }
    }

    /// Drops all frames of a peer, those that wait and those that the engine holds.
    pub fn forget(&mut self, endpoint: u32, queues: &Queues) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.forget(endpoint, |buffer| self.post_later(buffer, queues));
        self.pending = pending;
        for buffer in 0..self.held.len() {
            if self.held[buffer].is_some_and(|held| held.endpoint == endpoint) {
                self.release(FrameId(buffer as u64), queues);
            }
        }
    }

    /// Notes that the frame in a buffer was processed. The buffer is posted again later, together with others or when there is
    /// nothing else to do, so that the engine does not wait for that before it gets the frame. At most an eighth of the buffers
    /// wait in this way, so the device has most of them.
    #[inline]
    pub fn post_later(&mut self, buffer: u32, queues: &Queues) {
        self.to_post.push(buffer);
        if self.to_post.len() >= MAX_POSTS.min(self.held.len() / 8) {
            self.post_all(queues);
        }
    }

    /// Whether buffers wait to be posted again.
    #[inline]
    pub fn has_to_post(&self) -> bool {
        !self.to_post.is_empty()
    }

    /// Posts all buffers that wait. The device has room for as many buffers as there are, so it refuses none unless it is broken.
    pub fn post_all(&mut self, queues: &Queues) {
        if let Err(why) = queues.post_receives(&self.to_post) {
            log::error!("verbs: receive buffers are lost: {why}");
        }
        self.to_post.clear();
    }
}
