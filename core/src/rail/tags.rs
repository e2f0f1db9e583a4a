//! Active-message tags: which layer a frame belongs to. The values are on the wire, the same everywhere (CONTRACTS B7).
//!
//! The upper three bits name a framework, and the lower five bits are the framework's own. (A comment of `btl.h` gives 0xD0 as
//! the mask of the upper three bits, which is wrong. The tags of `btl.h` use all three bits, and so does [`FRAMEWORK_MASK`].)

/// The bits that name a framework.
pub const FRAMEWORK_MASK: u8 = 0xe0;
/// The bits that are a framework's own.
pub const PRIVATE_MASK: u8 = !FRAMEWORK_MASK;

/// The BTL layer's own frames over all rails, such as those of emulated puts and gets.
pub const BTL_BASE: u8 = 0x10;
/// The first tag of the BTLs themselves.
pub const BTL: u8 = 0x20;
/// Private to InfiniBand.
pub const IB: u8 = BTL;
/// Private to uDAPL.
pub const UDAPL: u8 = BTL + 1;
/// Private to shared memory with CUDA.
pub const SMCUDA: u8 = BTL + 2;
/// Private to shared memory.
pub const SM: u8 = BTL + 3;
/// Reliable broadcast of failures.
pub const FT_RBCAST: u8 = 0x30;
/// Agreement on failures.
pub const FT_AGREE: u8 = 0x31;
/// The first tag of message passing.
pub const PML: u8 = 0x40;
/// The first tag of one-sided communication.
pub const OSC_RDMA: u8 = 0x60;
/// The first tag that is free for users.
pub const USR: u8 = 0x80;
/// One more than the highest tag: not a tag.
pub const MAX: u8 = 255;

/// The framework of a tag: its upper three bits, in place.
pub const fn framework(tag: u8) -> u8 {
    tag & FRAMEWORK_MASK
}

/// The framework's own part of a tag.
pub const fn private(tag: u8) -> u8 {
    tag & PRIVATE_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b7_tags_have_the_contracts_values() {
        assert_eq!((BTL_BASE, BTL, PML, OSC_RDMA, USR, MAX), (0x10, 0x20, 0x40, 0x60, 0x80, 255));
        assert_eq!((FT_RBCAST, FT_AGREE), (0x30, 0x31));
        assert_eq!((IB, UDAPL, SMCUDA, SM), (0x20, 0x21, 0x22, 0x23));
        assert_eq!((framework(0x7f), private(0x7f)), (OSC_RDMA, 0x1f));
        assert_eq!((framework(FT_AGREE), private(FT_AGREE)), (BTL, 0x11));
    }
}
