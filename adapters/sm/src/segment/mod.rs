//! Segments: the files in shared memory through which ranks reach each other, their content, their names, and which of them are
//! stale.

pub mod control;
pub mod file;
pub mod layout;
pub mod names;
pub mod slots;
pub mod stale;
