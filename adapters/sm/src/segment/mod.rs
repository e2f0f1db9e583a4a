//! Segments: the files in shared memory through which ranks reach each other, and what lies in them.

pub mod control;
pub mod file;
pub mod layout;
pub mod slots;
