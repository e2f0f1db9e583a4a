//! What firmware needs on every board: the interface to the board, static memory, and reports.
//!
//! A program is a library with a function that is generic over [`Board`]. Each board has a crate, with one executable for each
//! program.
#![no_std]

mod block;
mod board;
mod report;

pub use block::{Block, Zeros};
pub use board::{Board, Stack};
pub use report::{Report, Unwritten};
