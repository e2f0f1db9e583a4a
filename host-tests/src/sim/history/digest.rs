//! Digests, which stand for bytes in a history.

use crate::pattern::pattern;

/// A digest of bytes. It changes with a wrong, missing or displaced byte.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    sum
}

/// [`digest`] of the first `len` bytes of message `number`.
pub fn digest_of(number: u32, len: u64, scratch: &mut Vec<u8>) -> u64 {
    scratch.clear();
    scratch.resize(len as usize, 0);
    pattern(number.into(), scratch);
    digest(scratch)
}
