//! Who sleeps pays: the handshake between one who goes to sleep and one who just sent.
//!
//! The sleeper writes its word, *then* looks for messages; the sender writes its message, *then* looks at the word. If
//! neither write could be seen by the other's look, the message would lie there unseen: each side needs a full barrier
//! between its write and its look. The sender's would cost more than half the message rate, so it has only a compiler
//! fence, and the sleeper calls `membarrier(2)`, which makes every running thread of every registered process pass a full
//! barrier before it returns. A sender's thread passes it either before its look, which then finds the word; or after
//! its message's write, which the sleeper's look, coming after the call, then finds. Where the kernel has no such call, or a
//! process could not register, the sender is made to fence for itself.

use crate::atomics::{AtomicU32, Ordering, fence, light_fence};

/// The word of one that polls.
pub const AWAKE: u32 = 0;
/// The word of one that sleeps, or is about to, on a futex at the word itself.
pub const ON_FUTEX: u32 = 1;
/// The word of one that sleeps on a file descriptor.
pub const ON_FD: u32 = 2;

/// Announces sleep; `heavy` is the sleeper's barrier. Look for messages afterwards, and only then sleep.
pub fn announce(word: &AtomicU32, how: u32, heavy: impl FnOnce()) {
    // An exchange, not a store, so that it comes after whatever claim met an earlier announcement.
    word.swap(how, Ordering::AcqRel);
    heavy();
}

/// Takes the announcement back.
pub fn withdraw(word: &AtomicU32) {
    word.swap(AWAKE, Ordering::AcqRel);
}

/// After a message was published: whether its reader may sleep. Free of fences; see the [module](self).
#[inline]
pub fn may_sleep(word: &AtomicU32) -> bool {
    light_fence();
    word.load(Ordering::Relaxed) != AWAKE
}

/// Makes sure that whoever sleeps on `word` is woken once: returns how, if it is for the caller to do. `full`: the sleeper
/// does not, or cannot for us, use its heavy barrier, so this side needs one too.
pub fn claim(word: &AtomicU32, full: bool) -> Option<u32> {
    if full {
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
