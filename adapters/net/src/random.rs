//! Random bytes of the operating system, fit for cryptography (`getrandom(2)`).

use std::io;

/// Fills `bytes` with random bytes.
///
/// # Errors
/// The system's error, where it has no random bytes to give.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// Random bytes for a nonce or a challenge.
///
/// # Errors
/// As [`fill`].
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// The instance number of a new rail. No other rail has the same number, not even an earlier one of the same rank.
///
/// # Errors
/// As [`fill`].
pub fn instance() -> io::Result<u64> {
    bytes().map(u64::from_le_bytes)
}
