//! Random numbers.

/// A random number that a stranger cannot guess, and that is almost certainly different from all others. Never 0.
pub fn nonce() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) == Ok(8) {
        return u64::from_ne_bytes(bytes) | 1;
    }
    let hasher = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&hasher) | 1
}
