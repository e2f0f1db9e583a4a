//! Message bytes that can be checked: each message has bytes of its own.

/// Fills bytes with the pattern of a message. Any part of it differs from the same part of another message's pattern.
pub fn pattern(name: u64, bytes: &mut [u8]) {
    let mut word = name.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03;
    for chunk in bytes.chunks_mut(8) {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = mixed ^ (mixed >> 29);
        chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
    }
}

/// The first `len` bytes of a [`pattern`].
pub fn patterned(name: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    pattern(name, &mut bytes);
    bytes
}
