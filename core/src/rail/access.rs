//! The rights of registered memory.

use bitflags::bitflags;

bitflags! {
    /// The rights of a registration, with the values of `btl.h` (CONTRACTS B24). The side that has the memory refuses an
    /// operation without the right to it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// A local get or fetching atomic may write to the memory.
        const LOCAL_WRITE = 0x1;
        /// Peers may get from the memory.
        const REMOTE_READ = 0x2;
        /// Peers may put into the memory.
        const REMOTE_WRITE = 0x4;
        /// Peers may use atomics on the memory.
        const REMOTE_ATOMIC = 0x8;
        /// All rights.
        const ANY = 0xf;
        /// The memory is an accelerator's. The device of a rail may reach it; all other operations of peers on it are refused.
        const ACCELERATOR = 0x10000;
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for Access {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "Access({=u32:#x})", self.bits());
    }
}
