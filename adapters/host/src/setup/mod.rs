//! How worlds come up and end.

pub(crate) mod bring_up;
pub(crate) mod builder;
pub(crate) mod context;
pub(crate) mod rejoin;
pub(crate) mod world;
