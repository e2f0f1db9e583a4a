//! What the parts of the chart share.

use std::error::Error;

pub const MARGIN: u32 = 10;
/// Lengths of the dashes and gaps of limits.
pub const DASH: u32 = 6;
pub const GAP: u32 = 4;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub fn font(size: u32) -> (&'static str, u32) {
    ("sans-serif", size)
}
