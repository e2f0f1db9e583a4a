//! The operations of reductions.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Plain data that collective operations move as bytes: integers, floating-point numbers, arrays of them, and structures that
/// derive the traits of [`zerocopy`]. All types with these traits have it.
///
/// ```
/// fn is_plain<T: towline::Plain>() {}
/// is_plain::<f64>();
/// is_plain::<[u32; 3]>();
/// ```
pub trait Plain: FromBytes + IntoBytes + Immutable + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Plain for T {}

/// An operation that combines two items in [`reduce`](crate::Communicator::reduce) and
/// [`allreduce`](crate::Communicator::allreduce): `MPI_Op`. It must be associative, as far as the program needs that: how items
/// are grouped depends on the number of ranks and on the length.
///
/// A closure `Fn(&T, &T) -> T` is an operation whose operands keep the order of the ranks. [`Commutative`] says that their order
/// does not matter, which permits quicker algorithms. [`Sum`], [`Product`], [`Min`] and [`Max`] are for numbers.
///
/// All ranks must use the same operation. If an operation panics, the panic goes on at that rank, and other ranks may wait until
/// that rank has ended.
///
/// ```
/// use towline::{Commutative, ReduceOp};
///
/// /// Multiplies matrices of 2 rows and 2 columns, for which the order matters.
/// struct Multiply;
///
/// impl ReduceOp<[u64; 4]> for Multiply {
///     fn combine(&self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
///         [
///             a[0] * b[0] + a[1] * b[2],
///             a[0] * b[1] + a[1] * b[3],
///             a[2] * b[0] + a[3] * b[2],
///             a[2] * b[1] + a[3] * b[3],
///         ]
///     }
/// }
///
/// let world = towline::init()?;
/// let mut matrices = [[1u64, 1, 1, 0]];
/// world.allreduce(&mut matrices, Multiply)?; // a power of the matrix: its entries are Fibonacci numbers
/// let mut largest = [world.rank()];
/// world.allreduce(&mut largest, Commutative(|a: &u32, b: &u32| *a.max(b)))?;
/// assert_eq!(largest, [world.size() - 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ReduceOp<T> {
    /// The result for two operands. `earlier` is from lower ranks than `later`, unless the operation is
    /// [commutative](Self::is_commutative).
    fn combine(&self, earlier: &T, later: &T) -> T;

    /// Whether the operands may be exchanged.
    fn is_commutative(&self) -> bool {
        false
    }
}

impl<T, F: Fn(&T, &T) -> T> ReduceOp<T> for F {
    fn combine(&self, earlier: &T, later: &T) -> T {
        self(earlier, later)
    }
}

/// A closure that is a commutative [operation](ReduceOp).
///
/// ```
/// let world = towline::init()?;
/// let mut bits = [1u64 << world.rank()];
/// world.allreduce(&mut bits, towline::Commutative(|a: &u64, b: &u64| a | b))?;
/// assert_eq!(bits, [(1 << world.size()) - 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Commutative<F>(pub F);

impl<T, F: Fn(&T, &T) -> T> ReduceOp<T> for Commutative<F> {
    fn combine(&self, earlier: &T, later: &T) -> T {
        (self.0)(earlier, later)
    }

    fn is_commutative(&self) -> bool {
        true
    }
}

/// The sum: `MPI_SUM`. Integers wrap around on overflow.
///
/// ```
/// let world = towline::init()?;
/// let mut counts = [1u32, 10];
/// world.allreduce(&mut counts, towline::Sum)?;
/// assert_eq!(counts, [world.size(), 10 * world.size()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum;

/// The product: `MPI_PROD`. Integers wrap around on overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Product;

/// The smaller number: `MPI_MIN`. A NaN counts only where both numbers are NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Min;

/// The larger number: `MPI_MAX`. A NaN counts only where both numbers are NaN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Max;

macro_rules! operation {
    ($operation:ident: $($number:ty)* => $combine:expr) => {
        $(impl ReduceOp<$number> for $operation {
            #[inline]
            fn combine(&self, earlier: &$number, later: &$number) -> $number {
                let combine: fn($number, $number) -> $number = $combine;
                combine(*earlier, *later)
            }

            fn is_commutative(&self) -> bool {
                true
            }
        })*
    };
}

operation!(Sum: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize => |a, b| a.wrapping_add(b));
operation!(Sum: f32 f64 => |a, b| a + b);
operation!(Product: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize => |a, b| a.wrapping_mul(b));
operation!(Product: f32 f64 => |a, b| a * b);
operation!(Min: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize => |a, b| std::cmp::Ord::min(a, b));
operation!(Min: f32 f64 => |a, b| a.min(b));
operation!(Max: u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize => |a, b| std::cmp::Ord::max(a, b));
operation!(Max: f32 f64 => |a, b| a.max(b));

/// Combines items with those of higher ranks: `items = items op later`.
pub(crate) fn combine_with_later<T: Plain>(op: &impl ReduceOp<T>, items: &mut [T], later: &[T]) {
    items.iter_mut().zip(later).for_each(|(item, later)| *item = op.combine(item, later));
}

/// Combines items with those of lower ranks: `items = earlier op items`.
pub(crate) fn combine_with_earlier<T: Plain>(op: &impl ReduceOp<T>, earlier: &[T], items: &mut [T]) {
    items.iter_mut().zip(earlier).for_each(|(item, earlier)| *item = op.combine(earlier, item));
}
