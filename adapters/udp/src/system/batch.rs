//! Batches of messages that are sent or received by one system call, with memory given by address. Each `unsafe` block here
//! carries its argument.

use std::io;
use std::os::fd::RawFd;

use libc::{c_int, c_void, iovec, mmsghdr, msghdr};
use socket2::{SockAddr, SockAddrStorage};

use crate::system::socket::{UDP_GRO, UDP_SEGMENT};

/// Room for control data: one word, and its header.
type Control = [u64; 4];

/// The result of a system call on a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BatchResult {
    /// This many messages were sent or received.
    Messages(usize),
    /// None can be sent or received now.
    WouldBlock,
    /// The call failed with this error number.
    Failed(i32),
}

fn result_of(result: c_int) -> BatchResult {
    match usize::try_from(result) {
        Ok(count) => BatchResult::Messages(count),
        Err(_) => match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => BatchResult::WouldBlock,
            number => BatchResult::Failed(number),
        },
    }
}

/// Messages for one system call, each with one piece of memory.
pub(crate) struct Batch {
    messages: Box<[mmsghdr]>,
    pieces: Box<[iovec]>,
    controls: Box<[Control]>,
    count: usize,
}

// SAFETY: addresses are written before each call that uses them, and have no meaning between calls.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(limit: usize) -> Self {
        let piece = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zero is a valid message header: no name, no pieces, no control data.
        let messages = (0..limit).map(|_| unsafe { std::mem::zeroed() }).collect();
        Self { messages, pieces: vec![piece; limit].into(), controls: vec![[0; 4]; limit].into(), count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.count == self.messages.len()
    }

    /// The next message, and its room for control data.
    fn push(
        &mut self,
        name: *mut c_void,
        name_len: u32,
        base: *mut u8,
        len: usize,
    ) -> Option<(&mut msghdr, *mut Control)> {
        let (message, piece) = (self.messages.get_mut(self.count)?, self.pieces.get_mut(self.count)?);
        let control = &raw mut *self.controls.get_mut(self.count)?;
        *piece = iovec { iov_base: base.cast(), iov_len: len };
        let header = &mut message.msg_hdr;
        (header.msg_name, header.msg_namelen) = (name, name_len);
        (header.msg_iov, header.msg_iovlen) = (piece, 1);
        (header.msg_control, header.msg_controllen, header.msg_flags) = (std::ptr::null_mut(), 0, 0);
        self.count += 1;
        Some((header, control))
    }

    /// Adds a message to be sent. `segment`: the kernel cuts the message into datagrams of this many bytes.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes until the call; `to` stays where it is until then.
    #[inline]
    pub(crate) unsafe fn add_send(&mut self, to: &SockAddr, from: *const u8, len: usize, segment: Option<u16>) {
        let name = to.as_ptr().cast_mut().cast();
        let Some((header, control)) = self.push(name, to.len(), from.cast_mut(), len) else { return };
        let Some(segment) = segment else { return };
        // SAFETY: the arithmetic is constant. The room holds one control message, as is asserted below.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as _;
        header.msg_control = control.cast();
        // SAFETY: the room holds a control header at its start, and its data.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment);
        }
    }

    /// Sends the messages of the batch, in order.
    pub(crate) fn send(&mut self, socket: RawFd) -> BatchResult {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `count` messages are written, and their callers vouch for the memory to which they refer.
        result_of(unsafe { libc::sendmmsg(socket, self.messages.as_mut_ptr(), self.count as u32, flags as _) })
    }

    /// Adds memory for a message to be received.
    ///
    /// # Safety
    /// The memory is writable for `len` bytes until the call; `name` stays where it is until then.
    #[inline]
    pub(crate) unsafe fn add_receive(&mut self, name: &mut SockAddrStorage, into: *mut u8, len: usize) {
        let name_len = size_of::<libc::sockaddr_storage>() as u32;
        let Some((header, control)) = self.push((&raw mut *name).cast(), name_len, into, len) else { return };
        header.msg_control = control.cast();
        header.msg_controllen = size_of::<Control>() as _;
    }

    /// Receives messages into the memory of the batch, in order.
    #[inline]
    pub(crate) fn receive(&mut self, socket: RawFd) -> BatchResult {
        let (flags, no_limit) = (libc::MSG_DONTWAIT, std::ptr::null_mut());
        // SAFETY: `count` messages are written, and their callers vouch for the memory to which they refer.
        result_of(unsafe {
            libc::recvmmsg(socket, self.messages.as_mut_ptr(), self.count as u32, flags as _, no_limit)
        })
    }

    /// The length of received message `at`, and the length of each datagram in it but the last. `None` if the message was
    /// truncated.
    #[inline]
    pub(crate) fn received(&self, at: usize) -> Option<(usize, usize)> {
        let message = self.messages.get(at)?;
        let (header, len) = (&message.msg_hdr, message.msg_len as usize);
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let mut segment = len;
        // SAFETY: the kernel has written the control data, whose place and length are in the header.
        unsafe {
            let mut control = libc::CMSG_FIRSTHDR(header);
            while let Some(data) = control.as_ref() {
                if (data.cmsg_level, data.cmsg_type) == (libc::SOL_UDP, UDP_GRO) {
                    let value = libc::CMSG_DATA(control).cast::<c_int>().read_unaligned();
                    segment = usize::try_from(value).unwrap_or(0);
                }
                control = libc::CMSG_NXTHDR(header, control);
            }
        }
        Some((len, segment.clamp(1, len.max(1))))
    }

    /// Length of the sender's name of message `at`, in bytes.
    pub(crate) fn name_len(&self, at: usize) -> u32 {
        self.messages.get(at).map_or(0, |message| message.msg_hdr.msg_namelen)
    }
}

// A control message of up to four bytes fits into its room.
const _: () = assert!(size_of::<Control>() >= size_of::<libc::cmsghdr>() + 8);
