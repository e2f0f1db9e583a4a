//! Atomic operations on words: their flags, the bits that say which operations a rail has, and the operations themselves.
//!
//! [`apply_atomic`](crate::rail::apply_atomic) performs them on memory of this process.

use bitflags::bitflags;

bitflags! {
    /// The type of a word, with the values of `btl.h` (CONTRACTS B22).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AtomicFlags: u32 {
        /// The word has 32 bits, not 64.
        const BITS_32 = 0x1;
        /// The word is a floating-point number.
        const FLOAT = 0x2;
    }
}

bitflags! {
    /// The atomics that a rail has, with the values of `btl.h` (CONTRACTS B22).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AtomicSupport: u32 {
        /// [`AtomicOp::Add`].
        const ADD = 0x0000_0001;
        /// [`AtomicOp::And`].
        const AND = 0x0000_0200;
        /// [`AtomicOp::Or`].
        const OR = 0x0000_0400;
        /// [`AtomicOp::Xor`].
        const XOR = 0x0000_0800;
        /// [`AtomicOp::LogicalAnd`].
        const LAND = 0x0000_1000;
        /// [`AtomicOp::LogicalOr`].
        const LOR = 0x0000_2000;
        /// [`AtomicOp::LogicalXor`].
        const LXOR = 0x0000_4000;
        /// [`AtomicOp::Swap`].
        const SWAP = 0x0001_0000;
        /// [`AtomicOp::Min`].
        const MIN = 0x0010_0000;
        /// [`AtomicOp::Max`].
        const MAX = 0x0020_0000;
        /// Words of 32 bits.
        const BITS_32 = 0x0100_0000;
        /// Floating-point numbers.
        const FLOAT = 0x0200_0000;
        /// Compare and swap.
        const CSWAP = 0x1000_0000;
        /// The atomics agree with those of the target's processor.
        const GLOB = 0x2000_0000;
    }
}

impl AtomicFlags {
    /// The size of the word in bytes, which is also its alignment.
    pub const fn word_bytes(self) -> u64 {
        if self.contains(Self::BITS_32) { 4 } else { 8 }
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for AtomicFlags {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "AtomicFlags({=u32:#x})", self.bits());
    }
}

#[cfg(feature = "defmt")]
impl defmt::Format for AtomicSupport {
    fn format(&self, f: defmt::Formatter<'_>) {
        defmt::write!(f, "AtomicSupport({=u32:#x})", self.bits());
    }
}

/// The operation of an atomic on a word, with the values of `btl.h` (CONTRACTS B21). Integers are signed where that matters
/// ([`Min`](Self::Min), [`Max`](Self::Max)); sums wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum AtomicOp {
    /// The sum of both.
    Add = 0x01,
    /// The bits that are set in both; not for floating-point numbers.
    And = 0x11,
    /// The bits that are set in either; not for floating-point numbers.
    Or = 0x12,
    /// The bits that are set in exactly one; not for floating-point numbers.
    Xor = 0x14,
    /// 1 if neither is 0, else 0.
    LogicalAnd = 0x15,
    /// 1 if at least one is not 0, else 0.
    LogicalOr = 0x16,
    /// 1 if exactly one is not 0, else 0.
    LogicalXor = 0x17,
    /// The operand.
    Swap = 0x1a,
    /// The lesser one. If one floating-point value is NaN, the other one.
    Min = 0x20,
    /// The greater one. If one floating-point value is NaN, the other one.
    Max = 0x21,
}

impl AtomicOp {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::Add,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::Swap,
        Self::Min,
        Self::Max,
    ];

    /// The operation with that value.
    pub fn of(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == value)
    }

    /// Whether the operation is defined for words of this type.
    pub const fn takes(self, flags: AtomicFlags) -> bool {
        !(flags.contains(AtomicFlags::FLOAT) && matches!(self, Self::And | Self::Or | Self::Xor))
    }
}

/// An atomic on a word of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Atomic {
    /// The word and the operand make the new word.
    Op(AtomicOp, u64),
    /// If the word is equal to the first value, bit by bit, it becomes the second one.
    CompareSwap(u64, u64),
}

/// The first of the [`Atomic::parts`] of compare and swap, in the place of an [`AtomicOp`].
const COMPARE_SWAP: u8 = 0;

impl Atomic {
    /// The parts as plain data: the operation, its operand, and the word to compare with (0 if there is none).
    pub(crate) const fn parts(self) -> (u8, u64, u64) {
        match self {
            Self::Op(op, operand) => (op as u8, operand, 0),
            Self::CompareSwap(is, becomes) => (COMPARE_SWAP, becomes, is),
        }
    }

    /// An atomic from its [`parts`](Self::parts), which come from a peer that may be hostile. `None`: there is no such atomic.
    pub(crate) fn of_parts((which, operand, compare): (u8, u64, Option<u64>)) -> Option<Self> {
        if which == COMPARE_SWAP {
            return compare.map(|compare| Self::CompareSwap(compare, operand));
        }
        AtomicOp::of(which).map(|op| Self::Op(op, operand))
    }

    /// The bit which says that a rail has this atomic.
    pub const fn support(self) -> AtomicSupport {
        match self {
            Self::CompareSwap(..) => AtomicSupport::CSWAP,
            Self::Op(op, _) => match op {
                AtomicOp::Add => AtomicSupport::ADD,
                AtomicOp::And => AtomicSupport::AND,
                AtomicOp::Or => AtomicSupport::OR,
                AtomicOp::Xor => AtomicSupport::XOR,
                AtomicOp::LogicalAnd => AtomicSupport::LAND,
                AtomicOp::LogicalOr => AtomicSupport::LOR,
                AtomicOp::LogicalXor => AtomicSupport::LXOR,
                AtomicOp::Swap => AtomicSupport::SWAP,
                AtomicOp::Min => AtomicSupport::MIN,
                AtomicOp::Max => AtomicSupport::MAX,
            },
        }
    }

    /// Whether the atomic is defined for words of this type. Compare and swap compares bits, so floating-point numbers have no
    /// variant of their own.
    pub const fn takes(self, flags: AtomicFlags) -> bool {
        match self {
            Self::Op(op, _) => op.takes(flags),
            Self::CompareSwap(..) => !flags.contains(AtomicFlags::FLOAT),
        }
    }
}

/// The atomics of the emulation by active messages.
pub const EMULATED: AtomicSupport = if cfg!(target_has_atomic = "64") {
    AtomicSupport::all()
} else {
    AtomicSupport::all().difference(AtomicSupport::GLOB)
};
