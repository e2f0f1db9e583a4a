//! Segments: the files in shared memory through which ranks reach each other, what lies in them, how they are named, and which of
//! them are stale.

pub mod control;
pub mod file;
pub mod layout;
pub mod names;
pub mod slots;
pub mod stale;
