//! Atomic operations on words: which there are, and what each does.
//!
//! They are done by the processor's own atomics wherever it has them, so that they are consistent with what the target's
//! threads do to the same words.

use bitflags::bitflags;

bitflags! {
    /// How a word is understood, with the values of `btl.h` (CONTRACTS B22).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AtomicFlags: u32 {
        /// The word has 32 bits, not 64.
        const BITS_32 = 0x1;
        /// The word is a floating-point number.
        const FLOAT = 0x2;
    }
}

bitflags! {
    /// Atomics that work, with the values of `btl.h` (CONTRACTS B22).
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
        /// Consistent with the processor's own atomics at the target.
        const GLOB = 0x2000_0000;
    }
}

impl AtomicFlags {
    /// Bytes of the word, which is aligned to as many.
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

/// What an atomic does to a word, with the values of `btl.h` (CONTRACTS B21). Integers are signed where that matters
/// ([`Min`](Self::Min), [`Max`](Self::Max)); sums wrap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum AtomicOp {
    /// The sum.
    Add = 0x01,
    /// Bits of both; not for floating-point numbers.
    And = 0x11,
    /// Bits of either; not for floating-point numbers.
    Or = 0x12,
    /// Bits of one; not for floating-point numbers.
    Xor = 0x14,
    /// 1 where neither is 0, else 0.
    LogicalAnd = 0x15,
    /// 1 where one of them is not 0, else 0.
    LogicalOr = 0x16,
    /// 1 where exactly one of them is not 0, else 0.
    LogicalXor = 0x17,
    /// The operand.
    Swap = 0x1a,
    /// The lesser. Of floating-point numbers, the one that is a number.
    Min = 0x20,
    /// The greater. Of floating-point numbers, the one that is a number.
    Max = 0x21,
}

impl AtomicOp {
    /// All that there are.
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

    /// The one with that value.
    pub fn of(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u8 == value)
    }

    /// Whether it makes sense for such words.
    pub const fn takes(self, flags: AtomicFlags) -> bool {
        !(flags.contains(AtomicFlags::FLOAT) && matches!(self, Self::And | Self::Or | Self::Xor))
    }
}

/// What is done to a word of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Atomic {
    /// The word and the operand make the new word.
    Op(AtomicOp, u64),
    /// Where the word is the first of these, bit by bit, it becomes the second.
    CompareSwap(u64, u64),
}

/// What [`Atomic::parts`] has for compare and swap, in the place of an [`AtomicOp`].
const COMPARE_SWAP: u8 = 0;

impl Atomic {
    /// Which it is, its operand, and the word to compare with where there is one: plain data.
    pub(crate) const fn parts(self) -> (u8, u64, u64) {
        match self {
            Self::Op(op, operand) => (op as u8, operand, 0),
            Self::CompareSwap(is, becomes) => (COMPARE_SWAP, becomes, is),
        }
    }

    /// From its [`parts`](Self::parts), which may come from anywhere, with the word to compare with where one came.
    pub(crate) fn of_parts((which, operand, compare): (u8, u64, Option<u64>)) -> Option<Self> {
        if which == COMPARE_SWAP {
            return compare.map(|compare| Self::CompareSwap(compare, operand));
        }
        AtomicOp::of(which).map(|op| Self::Op(op, operand))
    }

    /// The bit that says that a rail has it.
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

    /// Whether it makes sense for such words. Compare and swap compares bits, so floating-point numbers have none of their
    /// own.
    pub const fn takes(self, flags: AtomicFlags) -> bool {
        match self {
            Self::Op(op, _) => op.takes(flags),
            Self::CompareSwap(..) => !flags.contains(AtomicFlags::FLOAT),
        }
    }

    /// What a word becomes; of a word of 32 bits, the lower half counts.
    pub fn of_word(self, word: u64, flags: AtomicFlags) -> u64 {
        match self {
            Self::CompareSwap(is, becomes) => {
                let counts = if flags.contains(AtomicFlags::BITS_32) { u64::from(u32::MAX) } else { u64::MAX };
                if (word ^ is) & counts == 0 { becomes & counts } else { word }
            }
            Self::Op(op, operand) => match (flags.contains(AtomicFlags::FLOAT), flags.contains(AtomicFlags::BITS_32)) {
                (false, false) => integer(op, word.cast_signed(), operand.cast_signed()).cast_unsigned(),
                (false, true) => {
                    let (word, operand) = ((word as u32).cast_signed(), (operand as u32).cast_signed());
                    u64::from(integer(op, word.into(), operand.into()) as u32)
                }
                (true, false) => float_64(op, word, operand),
                (true, true) => float_32(op, word as u32, operand as u32).into(),
            },
        }
    }
}

fn integer(op: AtomicOp, word: i64, operand: i64) -> i64 {
    match op {
        AtomicOp::Add => word.wrapping_add(operand),
        AtomicOp::And => word & operand,
        AtomicOp::Or => word | operand,
        AtomicOp::Xor => word ^ operand,
        AtomicOp::LogicalAnd => i64::from(word != 0 && operand != 0),
        AtomicOp::LogicalOr => i64::from(word != 0 || operand != 0),
        AtomicOp::LogicalXor => i64::from((word != 0) != (operand != 0)),
        AtomicOp::Swap => operand,
        AtomicOp::Min => word.min(operand),
        AtomicOp::Max => word.max(operand),
    }
}

macro_rules! float {
    ($name:ident, $bits:ty, $float:ty) => {
        /// Takes and gives bits, which a swap keeps as they are.
        fn $name(op: AtomicOp, bits: $bits, operand_bits: $bits) -> $bits {
            let (word, operand) = (<$float>::from_bits(bits), <$float>::from_bits(operand_bits));
            let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
            let result: $float = match op {
                AtomicOp::Add => word + operand,
                AtomicOp::LogicalAnd => truth(word != 0.0 && operand != 0.0),
                AtomicOp::LogicalOr => truth(word != 0.0 || operand != 0.0),
                AtomicOp::LogicalXor => truth((word != 0.0) != (operand != 0.0)),
                AtomicOp::Min => word.min(operand),
                AtomicOp::Max => word.max(operand),
                AtomicOp::Swap => return operand_bits,
                AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => return bits, // see `AtomicOp::takes`
            };
            result.to_bits()
        }
    };
}

float!(float_32, u32, f32);
float!(float_64, u64, f64);

/// Does it to the word at `at`, and returns what the word was: an atomic of the processor, for targets that are asked
/// to, and for rails that reach the word themselves.
///
/// # Safety
/// `at` is valid for reads and writes of a word, aligned to its size, and no one accesses it meanwhile but by atomics
/// of the same size.
pub unsafe fn apply(at: *mut u8, atomic: Atomic, flags: AtomicFlags) -> u64 {
    if flags.contains(AtomicFlags::BITS_32) {
        // SAFETY: passed on from the caller.
        let old = unsafe { word_32(at.cast(), |word| atomic.of_word(word.into(), flags) as u32) };
        return old.into();
    }
    // SAFETY: passed on from the caller.
    unsafe { word_64(at.cast(), |word| atomic.of_word(word, flags)) }
}

macro_rules! word {
    ($name:ident, $word:ty, $atomic:ident, $bits:literal) => {
        /// # Safety
        /// As [`apply`].
        #[cfg(target_has_atomic = $bits)]
        unsafe fn $name(at: *mut $word, becomes: impl Fn($word) -> $word) -> $word {
            use core::sync::atomic::{Ordering, $atomic};
            // SAFETY: the caller vouches for the word.
            let word = unsafe { $atomic::from_ptr(at) };
            let mut old = word.load(Ordering::Relaxed);
            while let Err(is) = word.compare_exchange_weak(old, becomes(old), Ordering::AcqRel, Ordering::Acquire) {
                old = is;
            }
            old
        }

        // Without atomics of that size there are no other threads that could use them: consistent among peers only.
        /// # Safety
        /// As [`apply`].
        #[cfg(not(target_has_atomic = $bits))]
        unsafe fn $name(at: *mut $word, becomes: impl Fn($word) -> $word) -> $word {
            // SAFETY: the caller vouches for the word.
            let old = unsafe { at.read_volatile() };
            // SAFETY: the same.
            unsafe { at.write_volatile(becomes(old)) };
            old
        }
    };
}

word!(word_32, u32, AtomicU32, "32");
word!(word_64, u64, AtomicU64, "64");

/// What an emulation by active messages can do.
pub const EMULATED: AtomicSupport = if cfg!(target_has_atomic = "64") {
    AtomicSupport::all()
} else {
    AtomicSupport::all().difference(AtomicSupport::GLOB)
};
