//! The objects of the device that all connections of a rail share.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::work_id::WorkId;
use crate::bookkeeping::layout::Layout;
use crate::bookkeeping::resource::Buffer;
use crate::config::Config;
use crate::device::{
    CompletionChannel, CompletionQueue, Device, MemoryRegion, Port, ProtectionDomain, SharedReceiveQueue,
};
use crate::error::SetupError;
use crate::sizes::{HELLO_RECEIVE_BUFFERS, HELLO_SEND_BUFFERS, MAX_MARKERS, MAX_OPS};

/// The queues and the memory that all connections of a rail share.
#[derive(Debug)]
pub struct Queues {
    /// How many completions the completion queue has room for.
    pub capacity: u32,
    /// Bytes of a receive buffer.
    frame_bytes: u32,
    pub receives: Arc<SharedReceiveQueue>,
    pub completions: Arc<CompletionQueue>,
    pub channel: Arc<CompletionChannel>,
    pub region: Arc<MemoryRegion>,
    pub layout: Layout,
    pub device: Arc<Device>,
}

impl Queues {
    /// Makes the queues and the memory on a device.
    pub fn new(config: &Config, device: Arc<Device>, port: &Port) -> Result<Self, SetupError> {
        let refused = |what| move |why| SetupError::Refused(what, why);
        let layout = Layout::of(&config.buffer_sizes());
        let domain = ProtectionDomain::new(Arc::clone(&device)).map_err(refused("make a protection domain"))?;
        let region = MemoryRegion::new(&domain, layout.bytes).map_err(refused("register memory"))?;
        let channel = CompletionChannel::new(&device).map_err(refused("make a completion channel"))?;
        // The queue has room for all work requests that may be in flight at once, so no completion can be lost.
        let capacity = config.receive_buffers
            + config.eager_buffers
            + config.bulk_buffers
            + MAX_MARKERS
            + 2 * MAX_OPS
            + HELLO_RECEIVE_BUFFERS
            + HELLO_SEND_BUFFERS;
        if capacity > port.max_completions {
            let why =
                io::Error::other(format!("{capacity} entries are more than the device's {}", port.max_completions));
            return Err(SetupError::Refused("make a completion queue", why));
        }
        let completions = CompletionQueue::new(&channel, capacity).map_err(refused("make a completion queue"))?;
        let receives =
            SharedReceiveQueue::new(&region, config.receive_buffers).map_err(refused("make a shared receive queue"))?;
        let frame_bytes = config.max_send_size_bytes;
        Ok(Self { capacity, frame_bytes, receives, completions, channel, region, layout, device })
    }

    /// Posts receive buffers, at most [`MAX_POSTS`](crate::device::MAX_POSTS).
    pub fn post_receives(&self, buffers: &[u32]) -> io::Result<()> {
        let entry =
            |buffer: &u32| (WorkId::Receive(*buffer).word(), self.layout.receive.at(*buffer).unwrap_or(usize::MAX));
        self.receives.post(buffers.iter().map(entry), self.frame_bytes)
    }

    /// Address of the first `len` bytes of a send buffer.
    #[inline]
    pub fn send_buffer(&self, buffer: Buffer, len: usize) -> Option<NonNull<u8>> {
        self.region.pointer(self.layout.buffer(buffer)?, len)
    }

    /// Address of `len` bytes of a receive buffer, from `at` on.
    #[inline]
    pub fn receive_buffer(&self, buffer: u32, at: usize, len: usize) -> Option<NonNull<u8>> {
        self.region.pointer(self.layout.receive.at(buffer)?.checked_add(at)?, len)
    }
}
