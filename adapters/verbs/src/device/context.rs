//! An open device, and its asynchronous events.

use std::io;
use std::ptr::NonNull;

use rdma_mummy_sys as ffi;

use super::calls::set_nonblocking;
use crate::bookkeeping::async_event::AsyncEvent;

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    context: NonNull<ffi::ibv_context>,
}

// SAFETY: libibverbs may be called from any thread, and all of the device's objects may move between them.
unsafe impl Send for Device {}
// SAFETY: as above; calls at the same time are allowed, too.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a device of the library's list.
    ///
    /// # Safety
    /// The list has not been freed.
    pub unsafe fn open(device: *mut ffi::ibv_device) -> io::Result<Self> {
        // SAFETY: passed on from the caller. An open device holds its entry itself.
        let context = NonNull::new(unsafe { ffi::ibv_open_device(device) }).ok_or_else(io::Error::last_os_error)?;
        let device = Self { context };
        // SAFETY: a descriptor of the open context.
        unsafe { set_nonblocking((*device.as_ptr()).async_fd) }?;
        Ok(device)
    }

    pub const fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.context.as_ptr()
    }

    /// Takes the next asynchronous event. `None` where there is none: this does not block.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = std::mem::MaybeUninit::<ffi::ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the event has room.
        if unsafe { ffi::ibv_get_async_event(self.as_ptr(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: the call has succeeded, so the event is filled in. Its type is read as a number: later versions of the library
        // have more types than the binding's enumeration, and a value of the enumeration must not be made from those.
        let number = unsafe { (&raw const (*event.as_ptr()).event_type).cast::<u32>().read() };
        // SAFETY: an event of this number names a queue pair, which exists until the event is acknowledged.
        let queue_pair =
            AsyncEvent::is_of_queue_pair(number).then(|| unsafe { (*(*event.as_ptr()).element.qp).qp_num });
        // SAFETY: the event was taken just now; the object that it names is not used from here on.
        unsafe { ffi::ibv_ack_async_event(event.as_mut_ptr()) };
        Some(AsyncEvent::of(number, queue_pair.unwrap_or(0)))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: opened once, and no object depends on it any more: that would hold it.
        if unsafe { ffi::ibv_close_device(self.context.as_ptr()) } != 0 {
            log::warn!("verbs: the device cannot be closed: {}", io::Error::last_os_error());
        }
    }
}
