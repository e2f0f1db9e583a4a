//! The bytes of a frame while a function of the program has them. The compiler cannot see whether a C function keeps their address, so
//! builds with debug assertions find this out.

/// What the bytes of a frame become after the function that got them, in builds with debug assertions.
#[cfg(debug_assertions)]
const POISON: u8 = 0xdb;

/// Lends the bytes of frames to functions of the program.
#[derive(Default)]
pub(super) struct Lent {
    /// The poisoned copy of the last frame. It stays until the next frame, so that reads of it are defined.
    #[cfg(debug_assertions)]
    last: std::cell::RefCell<Vec<u8>>,
}

impl Lent {
    /// Calls a function with the bytes where they are.
    #[cfg(not(debug_assertions))]
    #[inline]
    pub fn lend(&self, data: &[u8], call: impl FnOnce(&[u8])) {
        call(data);
    }

    /// Calls a function with a copy of the bytes, which is overwritten afterwards. The bytes themselves belong to the rail, and may
    /// stay as they are for a long time.
    #[cfg(debug_assertions)]
    pub fn lend(&self, data: &[u8], call: impl FnOnce(&[u8])) {
        let mut copy = data.to_vec();
        call(&copy);
        copy.fill(POISON);
        self.last.replace(copy);
    }
}
