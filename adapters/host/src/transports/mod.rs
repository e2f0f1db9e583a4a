//! The rails of a context: their types, how they are opened, and their memory.

pub(crate) mod bundled;
pub(crate) mod limits;
pub(crate) mod linked;
pub(crate) mod local;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod rails;
