//! Atomic operations on words of windows.

use std::ffi::{c_int, c_void};

use towline::{AtomicOp, Word};

use crate::border::{border, check_pointer, list};
use crate::error::{Failure, Outcome};
use crate::handles::WindowHandle;
use crate::levels::with_window;
use crate::tally::Counted;
use crate::worlds::find_window;

/// The words of atomic operations, in the byte order of the processor.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum WordType {
    /// `uint32_t`.
    TOWLINE_UINT32 = 0,
    /// `int32_t`.
    TOWLINE_INT32 = 1,
    /// `uint64_t`.
    TOWLINE_UINT64 = 2,
    /// `int64_t`.
    TOWLINE_INT64 = 3,
    /// `float`.
    TOWLINE_FLOAT = 4,
    /// `double`.
    TOWLINE_DOUBLE = 5,
}

/// How a word is combined with an operand.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum WordOp {
    /// The sum of both. Integers wrap.
    TOWLINE_ADD = 0,
    /// The bits that are set in both; for integers.
    TOWLINE_AND = 1,
    /// The bits that are set in either; for integers.
    TOWLINE_OR = 2,
    /// The bits that are set in exactly one; for integers.
    TOWLINE_XOR = 3,
    /// 1 if neither is 0, else 0.
    TOWLINE_LOGICAL_AND = 4,
    /// 1 if at least one is not 0, else 0.
    TOWLINE_LOGICAL_OR = 5,
    /// 1 if exactly one is not 0, else 0.
    TOWLINE_LOGICAL_XOR = 6,
    /// The operand.
    TOWLINE_SWAP = 7,
    /// The lesser one; for signed integers and floating-point numbers. If one of these is not a number (NaN), the other one.
    TOWLINE_MIN = 8,
    /// The greater one, as for `TOWLINE_MIN`.
    TOWLINE_MAX = 9,
}

fn op_of(op: c_int) -> Outcome<AtomicOp> {
    Ok(match op {
        0 => AtomicOp::Add,
        1 => AtomicOp::And,
        2 => AtomicOp::Or,
        3 => AtomicOp::Xor,
        4 => AtomicOp::LogicalAnd,
        5 => AtomicOp::LogicalOr,
        6 => AtomicOp::LogicalXor,
        7 => AtomicOp::Swap,
        8 => AtomicOp::Min,
        9 => AtomicOp::Max,
        other => return Err(Failure::argument(format!("there is no operation {other}: use a `towline_word_op_t`"))),
    })
}

/// Uses the type of a `towline_word_type_t`.
macro_rules! with_word {
    ($word:expr, $name:ident => $body:expr) => {
        match $word {
            0 => {
                type $name = u32;
                $body
            }
            1 => {
                type $name = i32;
                $body
            }
            2 => {
                type $name = u64;
                $body
            }
            3 => {
                type $name = i64;
                $body
            }
            4 => {
                type $name = f32;
                $body
            }
            5 => {
                type $name = f64;
                $body
            }
            other => Err(Failure::argument(format!("there are no words of type {other}: use a `towline_word_type_t`"))),
        }
    };
}

/// Combines words of a rank's part with operands: `MPI_Accumulate`. Each word is changed by one atomic operation; all of them together
/// are not atomic. Complete after the next flush. Atomic operations are atomic with respect to each other, whichever rank begins
/// them, and to nothing else.
///
/// @param window    The window.
/// @param op        A `towline_word_op_t`.
/// @param word      A `towline_word_type_t`: the type of the words.
/// @param operands  The operands. They may be changed when the function returns. May be null if `count` is 0.
/// @param count     How many words and operands there are.
/// @param rank      The rank whose part it is.
/// @param offset    The place of the first word in the part, in bytes from its beginning.
/// @return          `TOWLINE_ERR_RANGE` if the words reach beyond the part, or if their addresses are not multiples of their size;
///                  `TOWLINE_ERR_ARGUMENT` if such words have no such operation; otherwise as `towline_window_put`.
///                  After an error, words before the one that has failed may have been changed.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The operands are readable, and nothing changes them, until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_accumulate(
    window: WindowHandle,
    op: c_int,
    word: c_int,
    operands: *const c_void,
    count: usize,
    rank: u32,
    offset: u64,
) -> c_int {
    border(|| {
        let (op, (context, found)) = (op_of(op)?, find_window(window)?);
        with_word!(word, W => {
            // SAFETY: the caller's promise.
            let operands: &[W] = unsafe { list("operands", operands.cast(), count) }?;
            with_window!(found, window => window.accumulate(rank, offset, op, operands))?;
            Ok(())
        })?;
        context.tally.add(Counted::Atomics, count as u64);
        Ok(())
    })
}

/// Combines a word of a rank's part with an operand, and returns the old word: `MPI_Fetch_and_op`. It is complete when the function
/// returns. With `TOWLINE_ADD` and an operand of 0 it only reads the word.
///
/// @param window   The window.
/// @param op       A `towline_word_op_t`.
/// @param word     A `towline_word_type_t`: the type of the word.
/// @param operand  The operand.
/// @param old      Gets the word before the operation. May be the address of the operand.
/// @param rank     The rank whose part it is.
/// @param offset   The place of the word in the part, in bytes from its beginning.
/// @return         As `towline_window_accumulate`; `TOWLINE_ERR_DENIED` if the rank does not allow it.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `operand` is the address of such a word, and `old` is writable for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_fetch_op(
    window: WindowHandle,
    op: c_int,
    word: c_int,
    operand: *const c_void,
    old: *mut c_void,
    rank: u32,
    offset: u64,
) -> c_int {
    border(|| {
        let (op, (context, found)) = (op_of(op)?, find_window(window)?);
        with_word!(word, W => {
            // SAFETY: the caller's promise.
            let operand = unsafe { one::<W>("operand", operand) }?;
            check_pointer("old", old)?;
            let fetched = with_window!(found, window => window.fetch_and_op(rank, offset, op, operand))?;
            // SAFETY: the caller's promise.
            unsafe { old.cast::<W>().write_unaligned(fetched) };
            Ok(())
        })?;
        context.tally.add(Counted::Atomics, 1);
        Ok(())
    })
}

/// Changes a word of a rank's part if it is as expected, and returns the old word: `MPI_Compare_and_swap`. It is complete when the
/// function returns.
///
/// @param window    The window.
/// @param word      A `towline_word_type_t` of integers.
/// @param expected  The word that is to be there.
/// @param desired   The word that takes its place.
/// @param old       Gets the word before the operation. It was changed if this is the expected one. May be the address of `expected`.
/// @param rank      The rank whose part it is.
/// @param offset    The place of the word in the part, in bytes from its beginning.
/// @return          As `towline_window_fetch_op`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `expected` and `desired` are addresses of such words, and `old` is writable for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_compare_swap(
    window: WindowHandle,
    word: c_int,
    expected: *const c_void,
    desired: *const c_void,
    old: *mut c_void,
    rank: u32,
    offset: u64,
) -> c_int {
    border(|| {
        let (context, found) = find_window(window)?;
        with_word!(word, W => {
            // SAFETY: the caller's promise.
            let (expected, desired) = unsafe { (one::<W>("expected", expected)?, one::<W>("desired", desired)?) };
            check_pointer("old", old)?;
            let fetched = with_window!(found, window => window.compare_and_swap(rank, offset, expected, desired))?;
            // SAFETY: the caller's promise.
            unsafe { old.cast::<W>().write_unaligned(fetched) };
            Ok(())
        })?;
        context.tally.add(Counted::Atomics, 1);
        Ok(())
    })
}

/// A word of the caller.
///
/// # Safety
/// The address is null, or that of such a word, aligned or not.
unsafe fn one<W: Word>(name: &str, address: *const c_void) -> Outcome<W> {
    check_pointer(name, address)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { address.cast::<W>().read_unaligned() })
}
