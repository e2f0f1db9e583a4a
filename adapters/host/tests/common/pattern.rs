//! The contents of messages: a pattern of which the receiver can check each byte.

pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8).collect()
}
