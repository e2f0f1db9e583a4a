//! Memory of the DPU for messages that the host does not copy.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use towline_dpu::Buffer;

use crate::context::state::ContextState;
use crate::operations::communicator::Communicator;
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::EngineLock;

/// Bytes in the memory of this context's DPU. [`Communicator::device_buffer`] makes it. It is used as a slice.
///
/// The DPU reads a message that is sent from here, and writes one that is received here, without a copy by this process. It counts
/// among the DPU's memory until it is dropped. Messages that lie in it in part, or that are strided, are copied like others.
///
/// **Trust.** The DPU can read and change its memory at any time.
pub struct DeviceBuffer<L: Threads = Single> {
    /// Keeps the DPU open.
    context: L::Ref<ContextState<L>>,
    /// `None` only while it is dropped.
    buffer: Option<Buffer>,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes belong to this value alone. What it shares with others is sent only where the context may be.
unsafe impl<L: Threads> Send for DeviceBuffer<L> where L::Ref<ContextState<L>>: Send {}

impl<L: Threads> std::fmt::Debug for DeviceBuffer<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<L: Threads> Communicator<L> {
    /// Memory of this context's DPU, filled with zeros. `None` if the context has no DPU (`TOWLINE_TRANSPORTS`), if the DPU has
    /// failed, or if it has no room for so many bytes now: the buffers and windows of a context may have a quarter of it.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut message = vec![0; 100];
    /// match world.device_buffer(100) {
    ///     Some(mut buffer) => buffer.fill(7), // sent and received without a copy
    ///     None => message.fill(7),
    /// }
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn device_buffer(&self, bytes: usize) -> Option<DeviceBuffer<L>> {
        self.handle.context.check_process().ok()?;
        let context = L::Ref::clone(&self.handle.context);
        let (buffer, base) = {
            let mut engine = context.engine.lock();
            let dpu = engine.mtl.pml().rails_mut().dpu_mut()?;
            let buffer = dpu.buffer(bytes as u64).ok()?;
            let base = dpu.transport().address_of(&buffer);
            (buffer, base)
        };
        // SAFETY: the part of the mapped window belongs to the new buffer alone.
        unsafe { base.write_bytes(0, bytes) };
        Some(DeviceBuffer { context, buffer: Some(buffer), base, len: bytes })
    }
}

impl<L: Threads> Deref for DeviceBuffer<L> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part of the window is mapped while the context lives, and belongs to this value. The DPU writes to it only
        // while a receive has it borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<L: Threads> DerefMut for DeviceBuffer<L> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the value is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<L: Threads> Drop for DeviceBuffer<L> {
    fn drop(&mut self) {
        if self.context.is_copy() {
            return; // a forked child
        }
        let mut engine = self.context.engine.lock();
        if let (Some(dpu), Some(buffer)) = (engine.mtl.pml().rails_mut().dpu_mut(), self.buffer.take()) {
            dpu.free(buffer);
        }
    }
}
