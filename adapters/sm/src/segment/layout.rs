//! The layout of a segment, counted in words of 8 bytes. Version 2.
//!
//! Both kinds of segment begin with the same cache line about their maker. A control segment continues with the word that its
//! owner sleeps on, the doorbell and its bits, each on a pair of cache lines of its own (processors fetch lines by twos), and ends
//! with the departures. A ring continues with its receiver's identity, its size, and the receiver's credit; its slots begin at the
//! second page.

/// Bytes of a page, and of a ring segment's header.
pub const PAGE: usize = 4096;
/// Value of the first word of a finished segment: "towline" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"towline\x02");

/// Marks a segment as complete; written last.
pub const MAGIC_AT: usize = 0;
/// The maker's process id.
pub const PID: usize = 1;
/// Start time of the maker's process, in clock ticks since boot.
pub const START_TIME: usize = 2;
/// Inode of the namespace in which the process id is valid.
pub const PID_NAMESPACE: usize = 3;
/// A random number that tells this incarnation of the maker from others.
pub const NONCE: usize = 4;

/// Control segment: for how many ranks the doorbell has bits.
pub const RANKS: usize = 5;
/// Control segment: 1 where its owner makes other processes pass a barrier before it sleeps.
pub const BARRIER: usize = 6;
/// Control segment: 1 once its owner has closed, 2 where its owner was panicking then.
pub const CLOSED: usize = 7;
/// Control segment: the word its owner sleeps on.
pub const SLEEP: usize = 16;
/// Control segment: the doorbell's counter.
pub const DOORBELL: usize = 32;
/// Control segment: the doorbell's bits, two for each rank: its ring for short frames, its ring for long messages.
pub const DOORBELL_BITS: usize = 48;

/// Ring: bytes of its slots.
pub const RING_BYTES: usize = 5;
/// Ring: bytes of its longest frame.
pub const LIMIT: usize = 6;
/// Ring: the incarnation of its receiver.
pub const TO_NONCE: usize = 16;
/// Ring: the receiver's process id.
pub const TO_PID: usize = 17;
/// Ring: start time of the receiver's process.
pub const TO_START_TIME: usize = 18;
/// Ring: address of the epoch word in the sender's memory; 0 where the sender exposes no memory.
pub const EPOCH_ADDRESS: usize = 19;
/// Ring: the first value of the epoch word.
pub const FIRST_EPOCH: usize = 20;
/// Ring: whether the receiver can read the sender's memory, see [`probe`](crate::single_copy::probe).
pub const PROBE: usize = 24;
/// Ring: the receiver's credit.
pub const CREDIT: usize = 32;

/// In the departures of a control segment: its owner sends no more frames to the rank by shared memory.
pub const LEFT: u64 = 1;
/// In the departures of a control segment: its owner takes the rank for lost.
pub const GIVEN_UP: u64 = 2;

/// Word of a control segment at which the departures begin, two bits for each rank: [`LEFT`] and [`GIVEN_UP`]. A rank that is to
/// look at its bits is told so by the doorbell, as for a ring for short frames. So bits for an earlier process of the rank, whose
/// doorbell was another one, mean nothing.
pub const fn departures(ranks: u32) -> usize {
    DOORBELL_BITS + doorbell_words(ranks)
}

/// Words of the doorbell's bits for `ranks` ranks.
pub const fn doorbell_words(ranks: u32) -> usize {
    (ranks as usize * 2).div_ceil(64)
}

/// Bytes of a control segment for `ranks` ranks.
pub const fn control_bytes(ranks: u32) -> usize {
    ((departures(ranks) + doorbell_words(ranks)) * 8).next_multiple_of(PAGE)
}
