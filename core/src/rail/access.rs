//! What may be done to registered memory.

use bitflags::bitflags;

bitflags! {
    /// Rights of a registration, with the values of `btl.h` (CONTRACTS B24). What is not granted is refused where the
    /// memory lies.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// It may be what a local get or fetching atomic writes to.
        const LOCAL_WRITE = 0x1;
        /// Peers may get from it.
        const REMOTE_READ = 0x2;
        /// Peers may put into it.
        const REMOTE_WRITE = 0x4;
        /// Peers may use atomics on it.
        const REMOTE_ATOMIC = 0x8;
        /// All of these.
        const ANY = 0xf;
        /// It is memory of an accelerator: a rail's device reaches it, where there is one that does, and whatever else peers ask of it is denied.
        const ACCELERATOR = 0x10000;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Access {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Access({=u32:#x})", self.bits());
    }
}
