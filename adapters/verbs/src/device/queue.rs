//! Queues that are shared by all connections of a rail: what is done, and room for what comes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::{Element, Opened, Region, checked};

/// Completions that are taken at once.
pub(crate) const BATCH: usize = 16;

/// Sets a descriptor so that it does not block.
///
/// # Safety
/// The descriptor is open, and the caller's.
pub(super) unsafe fn does_not_block(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller vouches for the descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Where the device wakes who sleeps.
#[derive(Debug)]
pub(crate) struct Channel {
    channel: NonNull<ffi::ibv_comp_channel>,
    device: Arc<Opened>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Channel {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Channel {}

impl Channel {
    pub fn new(device: &Arc<Opened>) -> io::Result<Arc<Self>> {
        // SAFETY: an open device.
        let channel = unsafe { ffi::ibv_create_comp_channel(device.as_ptr()) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        let channel = Self { channel, device: Arc::clone(device) };
        // SAFETY: the channel's descriptor.
        unsafe { does_not_block(channel.fd()) }?;
        Ok(Arc::new(channel))
    }

    const fn fd(&self) -> RawFd {
        // SAFETY: a live channel.
        unsafe { self.channel.as_ref().fd }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel is.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue reports to it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.device));
        }
    }
}

/// What the device has done.
#[derive(Debug)]
pub(crate) struct Completions {
    queue: NonNull<ffi::ibv_cq>,
    channel: Arc<Channel>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Completions {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Completions {}

/// One thing that the device has done. Of work that failed `len` and `word` mean nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// The word that it was posted with.
    pub id: u64,
    pub good: bool,
    /// Of what failed, the device's word for why.
    pub why: u32,
    /// Bytes that came.
    pub len: u32,
    /// The word that came with them, if any did.
    pub word: Option<u32>,
    /// Our queue pair.
    pub queue_pair: u32,
}

impl Completions {
    /// Room for `count`: more than that must never wait in it.
    pub fn new(channel: &Arc<Channel>, count: u32) -> io::Result<Arc<Self>> {
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

    /// Some of what was done, in the place of what `done` had. That stays where it is: handed over by value, all of its room was
    /// copied with each poll, and twice.
    #[inline]
    pub fn take(&self, done: &mut Done) {
        done.next = 0;
        // SAFETY: a live queue, and room for as many entries as are told.
        let count = unsafe { ffi::ibv_poll_cq(self.as_ptr(), BATCH as i32, done.list.as_mut_ptr().cast()) };
        done.count = usize::try_from(count).unwrap_or(0).min(BATCH);
        done.is_broken = count < 0;
    }

    /// The next that is done makes the channel ready.
    pub fn wake(&self) -> io::Result<()> {
        // SAFETY: a live queue.
        checked(unsafe { ffi::ibv_req_notify_cq(self.as_ptr(), 0) })
    }

    /// Takes what made the channel ready, if anything did.
    pub fn woken(&self) {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: a live channel, whose descriptor does not block; room for both answers.
        while unsafe { ffi::ibv_get_cq_event(self.channel.channel.as_ptr(), &raw mut queue, &raw mut context) } == 0 {
            // SAFETY: the queue that the event is of, which is this one: the channel has no other. Those that are not
            // acknowledged would keep it from being destroyed.
            unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        }
    }
}

/// Work that was done, one by one.
pub(crate) struct Done {
    list: [MaybeUninit<ffi::ibv_wc>; BATCH],
    next: usize,
    /// So many of them are filled in.
    count: usize,
    /// The queue has failed: nothing more is heard by it.
    pub is_broken: bool,
}

impl Work {
    /// The peer's device has refused it.
    pub const fn is_refused(&self) -> bool {
        use ffi::ibv_wc_status as status;
        matches!(self.why, status::IBV_WC_REM_INV_REQ_ERR | status::IBV_WC_REM_ACCESS_ERR | status::IBV_WC_REM_OP_ERR)
    }
}

impl Done {
    /// None.
    #[inline]
    pub const fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; BATCH], next: 0, count: 0, is_broken: false }
    }
}

impl Iterator for Done {
    type Item = Work;

    #[inline]
    fn next(&mut self) -> Option<Work> {
        let entry = self.list[..self.count].get(self.next)?;
        self.next += 1;
        // SAFETY: among those that the library has filled in.
        Some(unsafe { Work::of(entry) })
    }
}

impl Work {
    /// # Safety
    /// The library has filled the entry in: which it does with what means anything alone.
    #[inline]
    unsafe fn of(entry: &MaybeUninit<ffi::ibv_wc>) -> Self {
        let it = entry.as_ptr();
        // SAFETY: these are of any work.
        let (id, why, queue_pair) = unsafe { ((*it).wr_id, (*it).status, (*it).qp_num) };
        let good = why == ffi::ibv_wc_status::IBV_WC_SUCCESS;
        let (mut len, mut word) = (0, None);
        // SAFETY: work that was good says what it was.
        if good && unsafe { (*it).opcode } & ffi::ibv_wc_opcode::IBV_WC_RECV != 0 {
            // SAFETY: what came has a length, and flags.
            let (bytes, flags) = unsafe { ((*it).byte_len, (*it).wc_flags) };
            len = bytes;
            if flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0 {
                // SAFETY: a word came with it.
                word = Some(u32::from_be(unsafe { (*it).imm_data_invalidated_rkey_union.imm_data }));
            }
        }
        Self { id, good, why, len, word, queue_pair }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue pair reports to it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_cq(self.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.channel));
        }
    }
}

/// So many buffers are given to the device by one call, at most.
pub(crate) const POSTS: usize = 16;

/// Buffers for what comes by any connection.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    queue: NonNull<ffi::ibv_srq>,
    region: Arc<Region>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for SharedReceives {}
// SAFETY: as for `Opened`.
unsafe impl Sync for SharedReceives {}

impl SharedReceives {
    pub fn new(region: &Arc<Region>, count: u32) -> io::Result<Arc<Self>> {
        // SAFETY: plain numbers and a pointer, for which zero is a value.
        let mut wanted: ffi::ibv_srq_init_attr = unsafe { std::mem::zeroed() };
        wanted.attr.max_wr = count;
        wanted.attr.max_sge = 1;
        // SAFETY: a live domain.
        let queue = unsafe { ffi::ibv_create_srq(region.domain().as_ptr(), &raw mut wanted) };
        let queue = NonNull::new(queue).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { queue, region: Arc::clone(region) }))
    }

    pub(super) const fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.queue.as_ptr()
    }

    /// Gives buffers of the region to the device, each of `len` bytes, by one call: it writes there what comes next, and tells so
    /// with their ids. [`POSTS`] of them at most.
    pub fn post(&self, buffers: impl Iterator<Item = (u64, usize)>, len: u32) -> io::Result<()> {
        let none = Element { addr: 0, length: 0, lkey: 0 };
        let mut elements = [none; POSTS];
        let mut works =
            [const { ffi::ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 1 } }; POSTS];
        let mut count = 0;
        for (id, at) in buffers {
            let places = works.get_mut(count).zip(elements.get_mut(count)).zip(self.region.element(at, len));
            let Some(((work, place), element)) = places else { return Err(io::ErrorKind::InvalidInput.into()) };
            (work.wr_id, *place) = (id, element);
            count += 1;
        }
        // From the last on, as each names the next.
        let mut next = null_mut();
        for (work, element) in works[..count].iter_mut().zip(&mut elements[..count]).rev() {
            (work.next, work.sg_list) = (next, element);
            next = work;
        }
        if next.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: a live queue; the work and its elements stay where they are and are read before this returns, and name memory of
        // the region that the queue holds.
        checked(unsafe { ffi::ibv_post_srq_recv(self.as_ptr(), next, &raw mut bad) })
    }
}

impl Drop for SharedReceives {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue pair takes from it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_srq(self.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device fills in of work: `fill` is all that it does.
    fn work(fill: impl FnOnce(&mut ffi::ibv_wc)) -> Work {
        let mut entry = MaybeUninit::<ffi::ibv_wc>::uninit();
        // SAFETY: numbers, whatever they are; the test reads what it has filled in.
        unsafe {
            entry.as_mut_ptr().cast::<u8>().write_bytes(0xa5, size_of::<ffi::ibv_wc>());
            fill(&mut *entry.as_mut_ptr());
            Work::of(&entry)
        }
    }

    #[test]
    fn a_word_is_read_where_one_came() {
        let came = |flags: ffi::ibv_wc_flags| {
            work(|it| {
                (it.wr_id, it.status, it.opcode) =
                    (7, ffi::ibv_wc_status::IBV_WC_SUCCESS, ffi::ibv_wc_opcode::IBV_WC_RECV);
                (it.qp_num, it.byte_len, it.wc_flags) = (17, 100, flags.0);
                it.imm_data_invalidated_rkey_union.imm_data = 0x0102_0304_u32.to_be();
            })
        };
        let it = came(ffi::ibv_wc_flags::IBV_WC_WITH_IMM);
        assert_eq!((it.id, it.good, it.queue_pair, it.len, it.word), (7, true, 17, 100, Some(0x0102_0304)));
        let it = came(ffi::ibv_wc_flags(0));
        assert_eq!((it.good, it.len, it.word), (true, 100, None));
        assert_eq!(came(ffi::ibv_wc_flags::IBV_WC_WITH_INV).word, None, "another number is there");
    }

    #[test]
    fn of_what_was_sent_or_failed_no_more_is_read_than_there_is() {
        for (status, opcode) in [
            (ffi::ibv_wc_status::IBV_WC_SUCCESS, ffi::ibv_wc_opcode::IBV_WC_SEND),
            (ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR, ffi::ibv_wc_opcode::IBV_WC_RECV),
        ] {
            let it = work(|it| (it.wr_id, it.status, it.opcode, it.qp_num) = (7, status, opcode, 17));
            assert_eq!((it.id, it.queue_pair, it.why, it.len, it.word), (7, 17, status, 0, None));
        }
    }
}
