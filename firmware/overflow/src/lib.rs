//! A program that overflows its stack. A board without an operating system ends it with exit status 102, before the overflow
//! changes other memory.
#![no_std]

use core::hint::black_box;
use core::sync::atomic::{AtomicU32, Ordering};

use runtime::Board;

/// The exit status if the stack is larger than it should be.
const NO_EXCEPTION: u32 = 1;
/// More calls than any stack has room for.
const CALLS: u32 = 10_000;

/// Counts calls. Each keeps its own number on the stack until it returns.
static DEEPEST: AtomicU32 = AtomicU32::new(0);

/// Runs the program on a board. Returns the exit status if there was no exception.
pub fn run<B: Board>() -> u32 {
    B::print(format_args!("overflows the stack\n"));
    descend(CALLS);
    B::print(format_args!("no exception after {} calls\n", DEEPEST.load(Ordering::Relaxed)));
    NO_EXCEPTION
}

#[inline(never)]
fn descend(left: u32) {
    let numbers = black_box([left; 32]);
    DEEPEST.fetch_add(1, Ordering::Relaxed);
    if left > 0 {
        descend(left.wrapping_sub(1));
    }
    black_box(&numbers);
}
