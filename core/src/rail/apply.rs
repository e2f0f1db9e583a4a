//! The effect of each atomic on a word, in memory of this process.

use super::atomics::{Atomic, AtomicFlags, AtomicOp};

impl Atomic {
    /// The new value of a word. A word of 32 bits is in the lower half.
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
        /// Takes and returns bits. A swap keeps them as they are.
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

/// Performs an atomic on the word at `at`, by an atomic of the processor, and returns the old word. Targets of emulated atomics
/// use it, and rails that map the peer's memory. So both agree with atomics of the target's threads on the same word. On a
/// processor without atomics of that size, the word is read and written without one: no other thread can use atomics there.
///
/// # Safety
/// `at` is valid for reads and writes of a word, aligned to its size, and accessed meanwhile only by atomics of the same size.
pub unsafe fn apply_atomic(at: *mut u8, atomic: Atomic, flags: AtomicFlags) -> u64 {
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
        /// As [`apply_atomic`].
        #[cfg(target_has_atomic = $bits)]
        unsafe fn $name(at: *mut $word, becomes: impl Fn($word) -> $word) -> $word {
            use core::sync::atomic::{Ordering, $atomic};
            // SAFETY: the caller guarantees that the word is valid.
            let word = unsafe { $atomic::from_ptr(at) };
            let mut old = word.load(Ordering::Relaxed);
            while let Err(is) = word.compare_exchange_weak(old, becomes(old), Ordering::AcqRel, Ordering::Acquire) {
                old = is;
            }
            old
        }

        // Without atomics of that size there are no other threads that could use them. The emulated atomics of peers agree with
        // each other.
        /// # Safety
        /// As [`apply_atomic`].
        #[cfg(not(target_has_atomic = $bits))]
        unsafe fn $name(at: *mut $word, becomes: impl Fn($word) -> $word) -> $word {
            // SAFETY: the caller guarantees that the word is valid.
            let old = unsafe { at.read_volatile() };
            // SAFETY: as above.
            unsafe { at.write_volatile(becomes(old)) };
            old
        }
    };
}

word!(word_32, u32, AtomicU32, "32");
word!(word_64, u64, AtomicU64, "64");
