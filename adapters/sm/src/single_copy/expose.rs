//! The sending side of single copy: exposing memory to one peer.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use towline_core::rail::{REMOTE_BUFFER_BYTES, RemoteBuffer};

use super::lock;
use crate::atomics::{Ordering, fence};

/// The state for exposing memory to one peer.
#[derive(Debug)]
pub struct Exposure {
    /// The epoch word. The peer reads it from our memory, so it must not move.
    epoch: Box<AtomicU64>,
    /// How often the epoch word has changed.
    generation: u64,
    /// Whether memory was exposed since the epoch word changed last.
    is_used: bool,
    /// Holds the lock on the ring's file as long as it is open.
    lock: Option<File>,
}

impl Exposure {
    /// Locks a ring's file, and makes an epoch word. `None` where the file cannot be locked.
    pub fn new(path: &Path) -> Option<Self> {
        let lock = lock::acquire(path)?;
        let epoch = Box::new(AtomicU64::new(crate::host::nonce()));
        Some(Self { epoch, generation: 0, is_used: false, lock: Some(lock) })
    }

    /// Address and value of the epoch word, for the ring.
    pub fn epoch(&self) -> (u64, u64) {
        (std::ptr::from_ref(&*self.epoch).addr() as u64, self.epoch.load(Ordering::Relaxed))
    }

    /// Closes the locked file, once the receiver has looked. Returns whether it was open.
    pub fn unlock(&mut self) -> bool {
        self.lock.take().is_some()
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether memory was exposed since the last [`revoke`](Self::revoke).
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Ends the exposure of all memory so far: a read that is not over yet will be void.
    pub fn revoke(&mut self) {
        self.is_used = false;
        self.generation = self.generation.wrapping_add(1);
        self.epoch.fetch_add(1, Ordering::Relaxed);
        // The next use of the memory comes after this.
        fence(Ordering::SeqCst);
    }

    /// Exposes the memory at `address`.
    pub fn expose(&mut self, address: u64) -> RemoteBuffer {
        self.is_used = true;
        let mut buffer = [0; REMOTE_BUFFER_BYTES];
        let fields = address.to_le_bytes().into_iter().chain(self.generation.to_le_bytes());
        buffer.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        RemoteBuffer(buffer)
    }
}

impl Drop for Exposure {
    fn drop(&mut self) {
        // Freed memory keeps its content, so the epoch word must not keep a valid value.
        self.epoch.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}
