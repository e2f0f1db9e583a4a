//! The words of atomic operations.

use towline_core::rma::{AtomicFlags, AtomicOp};

/// The types of words that the atomic operations of a [`Window`](crate::Window) work on: integers and floating-point numbers of
/// 32 and 64 bits. Words are in the byte order of the processor. The trait is sealed.
///
/// Signed and floating-point words have a minimum and a maximum; bit operations are for integers.
///
/// ```
/// use towline::{AtomicOp, Error};
///
/// let world = towline::init()?;
/// let window = world.window(8)?;
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Min, -5i32)?, 0);
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Swap, 0.5f32)?.to_bits(), (-5i32) as u32);
/// let none = Error::NoSuchOperation { operation: "Xor", word: "f64" };
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Xor, 1f64), Err(none));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Word: sealed::Word + Copy {}

mod sealed {
    use towline_core::rma::{AtomicFlags, AtomicOp};

    pub trait Word {
        /// The width and kind of the word.
        const FLAGS: AtomicFlags;
        fn to_word(self) -> u64;
        fn of_word(word: u64) -> Self;
        /// Whether words of this type have that operation.
        fn has(op: AtomicOp) -> bool;
    }
}

macro_rules! word {
    ($word:ty, $flags:expr, $ordered:expr, $to:expr, $of:expr) => {
        impl sealed::Word for $word {
            const FLAGS: AtomicFlags = $flags;

            fn to_word(self) -> u64 {
                $to(self)
            }

            fn of_word(word: u64) -> Self {
                $of(word)
            }

            fn has(op: AtomicOp) -> bool {
                op.takes($flags) && ($ordered || !matches!(op, AtomicOp::Min | AtomicOp::Max))
            }
        }

        impl Word for $word {}
    };
}

const FLOAT_32: AtomicFlags = AtomicFlags::BITS_32.union(AtomicFlags::FLOAT);

// The core compares words as signed numbers, so unsigned words have no minimum and no maximum.
word!(u64, AtomicFlags::empty(), false, |word| word, |word| word);
word!(i64, AtomicFlags::empty(), true, i64::cast_unsigned, u64::cast_signed);
word!(u32, AtomicFlags::BITS_32, false, u64::from, |word| word as u32);
word!(i32, AtomicFlags::BITS_32, true, |word: i32| word.cast_unsigned().into(), |word| (word as u32).cast_signed());
word!(f64, AtomicFlags::FLOAT, true, f64::to_bits, f64::from_bits);
word!(f32, FLOAT_32, true, |word: f32| word.to_bits().into(), |word| f32::from_bits(word as u32));
