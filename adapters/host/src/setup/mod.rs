//! How worlds come up and end.

pub(crate) mod bring_up;
pub(crate) mod builder;
pub(crate) mod context;
pub(crate) mod end;
pub(crate) mod peers;
pub(crate) mod place;
pub(crate) mod rejoin;
pub(crate) mod run;
pub(crate) mod worker;
pub(crate) mod world;
