//! One-sided operations: windows.

pub(crate) mod window;
