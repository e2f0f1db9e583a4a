pub(crate) mod pending;
pub(crate) mod replay_limit;
