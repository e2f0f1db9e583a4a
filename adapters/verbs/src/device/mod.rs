//! The device: its objects, in types that own them.
//!
//! # Lifetimes
//! Each object holds the objects that it depends on, by reference counts. So the device's objects are destroyed in the right
//! order, whichever is dropped first: a queue pair, then the queues that it reports to, the memory that its work requests
//! name, the protection domain, the device itself. A queue posts work requests in the [`MemoryRegion`] that it was made with
//! and holds, so that memory stays mapped and registered for as long as there is a queue that could make the device access
//! it. For the user's memory, the caller that posts the work request vouches. An object that the device refuses to destroy is
//! never freed, and keeps all objects that it holds.

mod calls;
mod completion;
mod context;
mod datagram;
mod discovery;
mod memory;
mod port;
mod queue_pair;
mod receive_queue;
mod reliable;
mod route;

pub(crate) use calls::Sge;
pub(crate) use completion::{COMPLETION_BATCH, Completion, CompletionBatch, CompletionChannel, CompletionQueue};
pub(crate) use context::Device;
pub(crate) use datagram::{AddressHandle, DatagramQueuePair};
pub(crate) use discovery::open;
pub(crate) use memory::{MemoryRegion, ProtectionDomain, UserRegion};
pub(crate) use port::Port;
pub(crate) use receive_queue::{MAX_POSTS, SharedReceiveQueue};
pub(crate) use reliable::ReliableQueuePair;
pub(crate) use route::{ConnectionAttributes, FetchOp, RemoteAddress, Route};
