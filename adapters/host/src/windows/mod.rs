//! One-sided operations: windows.

pub(crate) mod window;
pub(crate) mod word;
