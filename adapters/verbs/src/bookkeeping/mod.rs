//! The rail's records between calls to the device: buffers, queues, operations, hellos. No code here calls a device.

pub(crate) mod async_event;
pub(crate) mod closing;
pub(crate) mod hello_action;
pub(crate) mod hello_buffers;
pub(crate) mod layout;
pub(crate) mod operations;
pub(crate) mod pending_events;
pub(crate) mod resource;
pub(crate) mod round_robin;
pub(crate) mod send_queue;
pub(crate) mod send_resources;
