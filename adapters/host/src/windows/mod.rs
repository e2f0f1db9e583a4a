//! One-sided operations: windows.

pub(crate) mod caller_memory;
pub(crate) mod dpu_access;
pub(crate) mod dpu_parts;
pub(crate) mod raw_window;
pub(crate) mod window;
pub(crate) mod word;
