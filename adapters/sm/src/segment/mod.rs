//! Segments: the files in shared memory through which ranks reach each other, their content, their names, the room for them, and
//! which of them are stale.

pub mod control;
pub mod file;
pub mod layout;
pub mod names;
pub mod room;
pub mod slots;
pub mod stale;
