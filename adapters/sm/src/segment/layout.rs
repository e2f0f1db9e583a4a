//! Where things stand in a segment, counted in words of 8 bytes. Version 1.
//!
//! Both kinds begin with the same line about their maker. A board goes on with the word its owner sleeps on, the doorbell
//! and its bits, each on a pair of lines of its own (processors fetch lines by twos). A ring goes on with whom it is for, its
//! size, and the receiver's credit; its slots begin at the second page.

/// Bytes of a page, and of a ring segment's head.
pub const PAGE: usize = 4096;
/// What the first word of a finished segment says: "towline" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"towline\x01");

/// Marks a segment as complete; written last.
pub const MAGIC_AT: usize = 0;
/// The maker's process id.
pub const PID: usize = 1;
/// When the maker's process started, in clock ticks since boot.
pub const BORN: usize = 2;
/// The namespace in which the process id means anything.
pub const PID_SPACE: usize = 3;
/// A random number that tells this incarnation of the maker from others.
pub const NONCE: usize = 4;

/// Board: how many ranks the doorbell has bits for.
pub const RANKS: usize = 5;
/// Board: 1 where its owner makes others pass a barrier before it sleeps.
pub const BARRIER: usize = 6;
/// Board: 1 once its owner closed, 2 where it was in trouble then.
pub const CLOSED: usize = 7;
/// Board: the word its owner sleeps on.
pub const SLEEP: usize = 16;
/// Board: the bell.
pub const BELL: usize = 32;
/// Board: the doorbell's bits, two for each rank: its ring for short frames, its ring for long ones.
pub const BITS: usize = 48;

/// Ring: bytes of its slots.
pub const RING_BYTES: usize = 5;
/// Ring: its longest frame.
pub const LIMIT: usize = 6;
/// Ring: the incarnation of the receiver that it is for.
pub const TO_NONCE: usize = 16;
/// Ring: the receiver's process id.
pub const TO_PID: usize = 17;
/// Ring: when the receiver's process started.
pub const TO_BORN: usize = 18;
/// Ring: where in the sender's memory its pledge is; 0 where it lends nothing.
pub const PLEDGE_AT: usize = 19;
/// Ring: what the pledge says at first.
pub const PLEDGE: usize = 20;
/// Ring: whether the receiver can read the sender's memory, see [`single`](crate::single_copy::sender).
pub const READABLE: usize = 24;
/// Ring: the receiver's credit.
pub const CREDIT: usize = 32;

/// Words of the doorbell's bits for `ranks` ranks.
pub const fn bit_words(ranks: u32) -> usize {
    (ranks as usize * 2).div_ceil(64)
}

/// Bytes of a board for `ranks` ranks.
pub const fn board_bytes(ranks: u32) -> usize {
    ((BITS + bit_words(ranks)) * 8).next_multiple_of(PAGE)
}
