//! Reports of datagrams that were not delivered: errors of this host, and ICMP messages of others.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::{iovec, msghdr};
use socket2::{SockAddrStorage, Socket};

use crate::system::socket::address_of;

/// A report of a datagram that was not delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Its destination.
    pub(crate) destination: Option<SocketAddr>,
    /// The error number.
    pub(crate) number: u32,
    /// The report comes from the network (ICMP), not from this host.
    pub(crate) from_network: bool,
    /// The first bytes of the datagram.
    bytes: [u8; 64],
    quoted: usize,
}

impl Report {
    /// The first bytes of the datagram, as far as the report quotes them.
    pub(crate) fn quoted(&self) -> &[u8] {
        self.bytes.get(..self.quoted).unwrap_or_default()
    }
}

/// The next report in the kernel's queue. The socket is usable again once it is taken.
#[cold]
pub(crate) fn next_report(socket: &Socket) -> Option<Report> {
    let mut name = SockAddrStorage::zeroed();
    let (mut bytes, mut control) = ([0u8; 64], [0u64; 64]);
    let mut piece = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is a valid message header.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    (header.msg_name, header.msg_namelen) = ((&raw mut name).cast(), size_of::<libc::sockaddr_storage>() as u32);
    (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: all memory to which the header refers is valid for the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    let quoted = usize::try_from(len).ok()?.min(bytes.len());
    let mut report =
        Report { destination: address_of(&name, header.msg_namelen), number: 0, from_network: false, bytes, quoted };
    // SAFETY: the kernel has written the control data, whose place and length are in the header.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while let Some(message) = at.as_ref() {
            let kind = (message.cmsg_level, message.cmsg_type);
            if kind == (libc::IPPROTO_IP, libc::IP_RECVERR) || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) {
                let mut error = MaybeUninit::<libc::sock_extended_err>::zeroed();
                let len = size_of_val(&error).min(message.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize));
                std::ptr::copy_nonoverlapping(libc::CMSG_DATA(at), error.as_mut_ptr().cast::<u8>(), len);
                let error = error.assume_init();
                report.number = error.ee_errno;
                report.from_network = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    Some(report)
}
