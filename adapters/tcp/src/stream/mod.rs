pub(crate) mod block;
pub(crate) mod channel;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod pack_buffers;
pub(crate) mod splice;
