//! Completions: the queue that all queue pairs of a rail report to, and the channel that wakes a sleeper.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::calls::{checked, set_nonblocking};
use super::context::Device;

/// Completions that are taken by one call.
pub(crate) const COMPLETION_BATCH: usize = 16;

/// The channel by which the device wakes a sleeping process.
#[derive(Debug)]
pub(crate) struct CompletionChannel {
    channel: NonNull<ffi::ibv_comp_channel>,
    device: Arc<Device>,
}

// SAFETY: as for `Device`.
unsafe impl Send for CompletionChannel {}
// SAFETY: as for `Device`.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub fn new(device: &Arc<Device>) -> io::Result<Arc<Self>> {
        // SAFETY: an open device.
        let channel = unsafe { ffi::ibv_create_comp_channel(device.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { channel, device: Arc::clone(device) };
        // SAFETY: the channel's descriptor.
        unsafe { set_nonblocking(channel.fd()) }?;
        Ok(Arc::new(channel))
    }

    const fn fd(&self) -> RawFd {
        // SAFETY: a live channel.
        unsafe { self.channel.as_ref().fd }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue reports to it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.device));
        }
    }
}

/// The queue of completions.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    queue: NonNull<ffi::ibv_cq>,
    channel: Arc<CompletionChannel>,
}

// SAFETY: as for `Device`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Device`.
unsafe impl Sync for CompletionQueue {}

/// The completion of one work request. `len` and `immediate` mean nothing where it failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// The id that it was posted with.
    pub id: u64,
    /// Whether it succeeded.
    pub success: bool,
    /// The status (`enum ibv_wc_status`).
    pub status: u32,
    /// Bytes that were received.
    pub len: u32,
    /// The immediate data that was received, if any.
    pub immediate: Option<u32>,
    /// Number of our queue pair.
    pub queue_pair: u32,
}

impl CompletionQueue {
    /// A queue with room for `count` completions, which must never be exceeded.
    pub fn new(channel: &Arc<CompletionChannel>, count: u32) -> io::Result<Arc<Self>> {
        // SAFETY: an open device and a live channel of it, which the queue holds.
        let queue = unsafe {
            let channel = channel.channel.as_ptr();
            ffi::ibv_create_cq((*channel).context, count as libc::c_int, null_mut(), channel, 0)
        };
        let queue = NonNull::new(queue).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { queue, channel: Arc::clone(channel) }))
    }

    pub(super) const fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.queue.as_ptr()
    }

    /// Replaces the content of `batch` with the next completions. The batch is passed by reference, because by value each
    /// poll would copy the whole array twice.
    #[inline]
    pub fn poll(&self, batch: &mut CompletionBatch) {
        batch.next = 0;
        // SAFETY: a live queue, and room for the number of entries that is passed.
        let count = unsafe { ffi::ibv_poll_cq(self.as_ptr(), COMPLETION_BATCH as i32, batch.list.as_mut_ptr().cast()) };
        batch.count = usize::try_from(count).unwrap_or(0).min(COMPLETION_BATCH);
        batch.is_broken = count < 0;
    }

    /// Requests that the next completion makes the channel ready.
    pub fn request_notification(&self) -> io::Result<()> {
        // SAFETY: a live queue.
        checked(unsafe { ffi::ibv_req_notify_cq(self.as_ptr(), 0) })
    }

    /// Takes the notifications that made the channel ready, if any.
    pub fn take_notifications(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: a live channel, whose descriptor does not block; room for both answers.
        while unsafe { ffi::ibv_get_cq_event(self.channel.channel.as_ptr(), &raw mut queue, &raw mut context) } == 0 {
            // SAFETY: the queue of the notification, which is this one: the channel has no other. Notifications that are not
            // acknowledged would keep the queue from being destroyed.
            unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        }
    }
}

/// The completions that one poll has taken, as an iterator.
pub(crate) struct CompletionBatch {
    list: [MaybeUninit<ffi::ibv_wc>; COMPLETION_BATCH],
    next: usize,
    /// How many entries are filled in.
    count: usize,
    /// Whether the queue has failed: it yields no completion any more.
    pub is_broken: bool,
}

impl Completion {
    /// Whether the peer's device has refused it.
    pub const fn is_refused(&self) -> bool {
        use ffi::ibv_wc_status as status;
        matches!(
            self.status,
            status::IBV_WC_REM_INV_REQ_ERR | status::IBV_WC_REM_ACCESS_ERR | status::IBV_WC_REM_OP_ERR
        )
    }
}

impl CompletionBatch {
    /// An empty batch.
    #[inline]
    pub const fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; COMPLETION_BATCH], next: 0, count: 0, is_broken: false }
    }
}

impl Iterator for CompletionBatch {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        let entry = self.list[..self.count].get(self.next)?;
        self.next += 1;
        // SAFETY: one of the entries that the library has filled in.
        Some(unsafe { Completion::of(entry) })
    }
}

impl Completion {
    /// # Safety
    /// The library has filled in the entry. It fills in only those fields that mean something for its status and opcode.
    #[inline]
    unsafe fn of(entry: &MaybeUninit<ffi::ibv_wc>) -> Self {
        let it = entry.as_ptr();
        // SAFETY: these fields are filled in for any work request.
        let (id, status, queue_pair) = unsafe { ((*it).wr_id, (*it).status, (*it).qp_num) };
        let success = status == ffi::ibv_wc_status::IBV_WC_SUCCESS;
        let (mut len, mut immediate) = (0, None);
        // SAFETY: a successful completion has an opcode.
        if success && unsafe { (*it).opcode } & ffi::ibv_wc_opcode::IBV_WC_RECV != 0 {
            // SAFETY: a received message has a length, and flags.
            let (bytes, flags) = unsafe { ((*it).byte_len, (*it).wc_flags) };
            len = bytes;
            if flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0 {
                // SAFETY: the flag says that immediate data came with the message.
                immediate = Some(u32::from_be(unsafe { (*it).imm_data_invalidated_rkey_union.imm_data }));
            }
        }
        Self { id, success, status, len, immediate, queue_pair }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue pair reports to it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_cq(self.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.channel));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A completion of which the device fills in only the fields that `fill` sets.
    fn completion(fill: impl FnOnce(&mut ffi::ibv_wc)) -> Completion {
        let mut entry = MaybeUninit::<ffi::ibv_wc>::uninit();
        // SAFETY: plain numbers, of any value; the test reads the fields that it has filled in.
        unsafe {
            entry.as_mut_ptr().cast::<u8>().write_bytes(0xa5, size_of::<ffi::ibv_wc>());
            fill(&mut *entry.as_mut_ptr());
            Completion::of(&entry)
        }
    }

    #[test]
    fn immediate_data_is_read_where_it_came() {
        let received = |flags: ffi::ibv_wc_flags| {
            completion(|it| {
                (it.wr_id, it.status, it.opcode) =
                    (7, ffi::ibv_wc_status::IBV_WC_SUCCESS, ffi::ibv_wc_opcode::IBV_WC_RECV);
                (it.qp_num, it.byte_len, it.wc_flags) = (17, 100, flags.0);
                it.imm_data_invalidated_rkey_union.imm_data = 0x0102_0304_u32.to_be();
            })
        };
        let it = received(ffi::ibv_wc_flags::IBV_WC_WITH_IMM);
        assert_eq!((it.id, it.success, it.queue_pair, it.len, it.immediate), (7, true, 17, 100, Some(0x0102_0304)));
        let it = received(ffi::ibv_wc_flags(0));
        assert_eq!((it.success, it.len, it.immediate), (true, 100, None));
        assert_eq!(received(ffi::ibv_wc_flags::IBV_WC_WITH_INV).immediate, None, "another number is in its place");
    }

    #[test]
    fn of_sends_and_failures_only_the_filled_in_fields_are_read() {
        for (status, opcode) in [
            (ffi::ibv_wc_status::IBV_WC_SUCCESS, ffi::ibv_wc_opcode::IBV_WC_SEND),
            (ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR, ffi::ibv_wc_opcode::IBV_WC_RECV),
        ] {
            let it = completion(|it| (it.wr_id, it.status, it.opcode, it.qp_num) = (7, status, opcode, 17));
            assert_eq!((it.id, it.queue_pair, it.status, it.len, it.immediate), (7, 17, status, 0, None));
        }
    }
}
