//! The sleep word: the protocol between a receiver that goes to sleep and a sender that has just published a message. The
//! receiver pays for it, not the sender.
//!
//! The receiver writes its sleep word, *then* looks for messages. The sender writes its message, *then* looks at the sleep
//! word. If neither look could see the other side's write, the message would stay unseen, so each side needs a full barrier
//! between its write and its look. A full barrier in the sender would cost more than half of the message rate. The sender
//! therefore has only a compiler fence, and the receiver calls `membarrier(2)`, which makes every running thread of every
//! registered process pass a full barrier before it returns. The sender's thread passes that barrier at one of two times.
//! Either it is before the sender's look, which then finds the sleep word; or it is after the sender's write, which the
//! receiver's look, made after the call, then finds. Where the kernel has no such call, or a process could not register for
//! it, the sender executes a full fence itself.

use crate::atomics::{AtomicU32, Ordering, fence, light_fence};

/// Value of the sleep word of a receiver that polls.
pub const AWAKE: u32 = 0;
/// Value of the sleep word of a receiver that sleeps, or is about to, on a futex at the word itself.
pub const ON_FUTEX: u32 = 1;
/// Value of the sleep word of a receiver that sleeps on a file descriptor.
pub const ON_FD: u32 = 2;

/// Announces sleep of kind `how`; `heavy_barrier` is the receiver's barrier. The caller looks for messages afterwards, and
/// only then sleeps.
pub fn announce(word: &AtomicU32, how: u32, heavy_barrier: impl FnOnce()) {
    // An exchange, not a store, so that it comes after any claim that met an earlier announcement.
    word.swap(how, Ordering::AcqRel);
    heavy_barrier();
}

/// Withdraws the announcement.
pub fn withdraw(word: &AtomicU32) {
    word.swap(AWAKE, Ordering::AcqRel);
}

/// Announces the sleep `how` again, for a receiver whose claimed sleep could not be ended. If the receiver is awake by now, senders
/// try to wake it in vain until it withdraws.
pub fn restore(word: &AtomicU32, how: u32) {
    // Nothing follows from a failure: the receiver has announced another sleep, or another sender has restored this one.
    let _ = word.compare_exchange(AWAKE, how, Ordering::AcqRel, Ordering::Relaxed);
}

/// Whether the receiver may sleep; to be called after each publication. It executes no fence; see the [module](self).
#[inline]
pub fn may_sleep(word: &AtomicU32) -> bool {
    light_fence();
    word.load(Ordering::Relaxed) != AWAKE
}

/// Claims the task of waking the receiver that sleeps on `word`, so that one sender alone wakes it. Returns the kind of sleep
/// if the caller has to wake it. `full_fence`: the receiver does not execute its heavy barrier, or not for this process, so
/// this side executes a full fence too.
pub fn claim(word: &AtomicU32, full_fence: bool) -> Option<u32> {
    if full_fence {
        fence(Ordering::SeqCst);
    }
    if word.load(Ordering::Relaxed) == AWAKE {
        return None;
    }
    match word.swap(AWAKE, Ordering::AcqRel) {
        AWAKE => None,
        how => Some(how),
    }
}
