//! Tables beside the requests: the thread or task that waits for a request, and the buffers of operations that were dropped.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::task::Waker;

use crate::waiting::notify::Notifier;
use crate::waiting::reactor::AwaitedByTask;

/// The action for each request when it completes, by the bits of the request.
#[derive(Default)]
pub(crate) struct PendingTable {
    pub entries: HashMap<u64, Pending>,
    /// Dropped sends that have failed; wraps.
    pub failed_sends: u64,
    /// Buffers among them whose operation ends by itself.
    pub dropped: u32,
}

/// The action for one request when it completes.
pub(crate) enum Pending {
    /// Wake a task that runs in our own executor, or whose operations a progress thread completes.
    Waker(Waker),
    /// Wake a task of another executor. Its waker is with the reactor.
    Task(AwaitedByTask),
    /// Notify a thread that waits.
    Thread(Notifier),
    /// Free memory.
    Buffer(DetachedBuffer),
    /// Free memory that windows do not use any more. Its key is [`WINDOWS`], which stands for no request.
    Windows(Vec<DetachedBuffer>),
}

/// The key of [`Pending::Windows`]: no request has such bits.
const WINDOWS: u64 = u64::MAX;

impl PendingTable {
    /// Frees the buffer of a dropped window, when the engine is not in use: that runs code of users.
    pub fn free_later(&mut self, buffer: DetachedBuffer) {
        match self.entries.entry(WINDOWS).or_insert_with(|| Pending::Windows(Vec::new())) {
            Pending::Windows(buffers) => buffers.push(buffer),
            _ => unreachable!("the key stands for no request"),
        }
    }

    /// A buffer that was given to [`free_later`](Self::free_later).
    pub fn next_to_free(&mut self) -> Option<DetachedBuffer> {
        let Some(Pending::Windows(buffers)) = self.entries.get_mut(&WINDOWS) else { return None };
        let buffer = buffers.pop();
        if buffers.is_empty() {
            self.entries.remove(&WINDOWS);
        }
        buffer
    }
}

/// What a task's registration replaced. The caller drops it without the lock, since that runs code of users.
pub(crate) struct FormerEntry {
    pub _waker: Option<Waker>,
    pub _entry: Option<Pending>,
}

/// The action for a request that is complete.
pub(crate) enum Completed {
    Wake(Waker),
    Notify(Notifier),
    Free(DetachedBuffer),
}

impl Completed {
    /// Takes the action. Runs code of users.
    pub fn run(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Notify(notifier) => notifier.notify(),
            Self::Free(buffer) => drop(buffer),
        }
    }
}

/// A buffer on the heap whose operation was dropped while the engine used the buffer.
pub(crate) struct DetachedBuffer {
    buffer: NonNull<()>,
    free: unsafe fn(NonNull<()>),
    /// The operation ends without a further call by this context. Others are sends to this context itself.
    pub ends_by_itself: bool,
}

impl DetachedBuffer {
    /// Takes ownership of a buffer.
    ///
    /// # Safety
    /// `buffer` came from a box, and nothing else frees it.
    pub unsafe fn new<B>(buffer: NonNull<B>, ends_by_itself: bool) -> Self {
        /// # Safety
        /// As for `DetachedBuffer::new`, and nothing uses the buffer any more.
        unsafe fn free<B>(buffer: NonNull<()>) {
            // SAFETY: `new` stored the address of a boxed `B` beside the function for `B`.
            drop(unsafe { Box::from_raw(buffer.cast::<B>().as_ptr()) });
        }
        Self { buffer: buffer.cast(), free: free::<B>, ends_by_itself }
    }
}

impl Drop for DetachedBuffer {
    fn drop(&mut self) {
        // SAFETY: a detached buffer is dropped when its request is complete, or with the engine, whose rails are dropped before.
        unsafe { (self.free)(self.buffer) }
    }
}
