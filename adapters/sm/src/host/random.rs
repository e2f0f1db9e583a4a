//! Random numbers.

/// A random number, never 0, that nobody can guess and that is not drawn twice.
pub fn nonce() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) == Ok(8) {
        return u64::from_ne_bytes(bytes) | 1;
    }
    let hasher = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&hasher) | 1
}
