//! System calls on the socket, on memory given by address. All that is `unsafe` about them is argued for here.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};

use libc::{c_int, c_void, iovec, mmsghdr, msghdr};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// Of `linux/udp.h`: the cut of datagrams that leave in one call, and of those that come in so.
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;

/// Room for control data: one word, and its header.
type Control = [u64; 4];

/// What a call to the kernel did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// So many messages.
    Messages(usize),
    /// Nothing can be done now.
    Nothing,
    /// It failed, with this error number.
    Failed(i32),
}

fn done(result: c_int) -> Done {
    match usize::try_from(result) {
        Ok(count) => Done::Messages(count),
        Err(_) => match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
            libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Done::Nothing,
            number => Done::Failed(number),
        },
    }
}

/// A socket as the rail wants it.
pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    let (level, errors, discover, want) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_RECVERR, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)
    } else {
        socket.set_only_v6(true)?;
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)
    };
    // Reports of closed ports are kept for us; a path that turns out to be narrow gets its datagrams in fragments.
    option(&socket, level, errors, 1)?;
    option(&socket, level, discover, want)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Ends what a stream socket was used for, so that it can be used anew.
pub(crate) fn disconnect(socket: &Socket) -> io::Result<()> {
    // SAFETY: all zero is a valid address, of no family, which is what ends a connection.
    let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    // SAFETY: the address is valid for the call, and its length is given.
    let result =
        unsafe { libc::connect(socket.as_raw_fd(), &raw const nobody, size_of::<libc::sockaddr>() as libc::socklen_t) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn option(socket: &Socket, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the value is valid for the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<c_int>() as u32)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks the kernel to join the datagrams that come in a row, and whether it knows of cutting those that leave.
pub(crate) fn cut_and_join(socket: &Socket) -> io::Result<()> {
    option(socket, libc::SOL_UDP, UDP_SEGMENT, 0)?;
    option(socket, libc::SOL_UDP, UDP_GRO, 1)
}

/// Bytes that an interface carries at once.
pub(crate) fn mtu(socket: &Socket, interface: &str) -> io::Result<u32> {
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is valid for the call, which fills its other half.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled this field.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Datagrams that the kernel has dropped because the socket's receive buffer was full.
pub(crate) fn overflowed(socket: &Socket) -> u64 {
    let mut words = [0u32; 16];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: room for `len` bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, words.as_mut_ptr().cast(), &mut len)
    };
    if result == 0 { words[DROPS].into() } else { 0 }
}

/// Where the drops stand in what the kernel tells of a socket's memory (`SK_MEMINFO_DROPS`).
const DROPS: usize = 8;

/// Messages for one call, each of one piece of memory.
pub(crate) struct Calls {
    messages: Box<[mmsghdr]>,
    pieces: Box<[iovec]>,
    controls: Box<[Control]>,
    count: usize,
}

// SAFETY: addresses are put in before each call that follows them, and mean nothing between calls.
unsafe impl Send for Calls {}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        let piece = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zero is a valid message header: no name, no pieces, no control data.
        let messages = (0..most).map(|_| unsafe { std::mem::zeroed() }).collect();
        Self { messages, pieces: vec![piece; most].into(), controls: vec![[0; 4]; most].into(), count: 0 }
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

    /// Adds bytes to be sent; cut every `cut` bytes, if that is given.
    ///
    /// # Safety
    /// The memory is readable for `len` bytes until the call; `to` stays where it is until then.
    #[inline]
    pub(crate) unsafe fn add_send(&mut self, to: &SockAddr, from: *const u8, len: usize, cut: Option<u16>) {
        let name = to.as_ptr().cast_mut().cast();
        let Some((header, control)) = self.push(name, to.len(), from.cast_mut(), len) else { return };
        let Some(cut) = cut else { return };
        // SAFETY: constant arithmetic; the room is made for one word, as is asserted below.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as _;
        header.msg_control = control.cast();
        // SAFETY: the room holds a control header, which is at its start, and its data.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            (*control).cmsg_level = libc::SOL_UDP;
            (*control).cmsg_type = UDP_SEGMENT;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(control).cast::<u16>().write_unaligned(cut);
        }
    }

    /// Sends what was added, from the first on.
    pub(crate) fn send(&mut self, socket: RawFd) -> Done {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `count` messages are filled, and whoever added them vouches for what they refer to.
        done(unsafe { libc::sendmmsg(socket, self.messages.as_mut_ptr(), self.count as u32, flags as _) })
    }

    /// Adds room for what is to come.
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

    /// Receives into what was added, from the first on.
    #[inline]
    pub(crate) fn receive(&mut self, socket: RawFd) -> Done {
        let (flags, no_limit) = (libc::MSG_DONTWAIT, std::ptr::null_mut());
        // SAFETY: `count` messages are filled, and whoever added them vouches for what they refer to.
        done(unsafe { libc::recvmmsg(socket, self.messages.as_mut_ptr(), self.count as u32, flags as _, no_limit) })
    }

    /// What came as message `at`: bytes, and how they are cut. `None` where it was cut short.
    #[inline]
    pub(crate) fn received(&self, at: usize) -> Option<(usize, usize)> {
        let message = self.messages.get(at)?;
        let (header, len) = (&message.msg_hdr, message.msg_len as usize);
        if header.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let mut cut = len;
        // SAFETY: the kernel has filled the control data, of which the header tells place and length.
        unsafe {
            let mut control = libc::CMSG_FIRSTHDR(header);
            while let Some(data) = control.as_ref() {
                if (data.cmsg_level, data.cmsg_type) == (libc::SOL_UDP, UDP_GRO) {
                    let said = libc::CMSG_DATA(control).cast::<c_int>().read_unaligned();
                    cut = usize::try_from(said).unwrap_or(0);
                }
                control = libc::CMSG_NXTHDR(header, control);
            }
        }
        Some((len, cut.clamp(1, len.max(1))))
    }

    /// Bytes of the name of who sent message `at`.
    pub(crate) fn name_len(&self, at: usize) -> u32 {
        self.messages.get(at).map_or(0, |message| message.msg_hdr.msg_namelen)
    }
}

// A control message of up to four bytes fits its room.
const _: () = assert!(size_of::<Control>() >= size_of::<libc::cmsghdr>() + 8);

/// Who a name is; the kernel wrote its first `len` bytes.
pub(crate) fn named(name: &SockAddrStorage, len: u32) -> Option<SocketAddr> {
    if len as usize > size_of::<SockAddrStorage>() {
        return None;
    }
    // SAFETY: the storage is plain bytes, initialised all over; its first `len` were written by the kernel.
    unsafe { SockAddr::new(std::ptr::read(name), len) }.as_socket()
}

/// A report of a datagram that did not get through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Where it was to go.
    pub(crate) to: Option<SocketAddr>,
    /// The error number.
    pub(crate) number: u32,
    /// It was told by the other end, or by a router on the way.
    pub(crate) told: bool,
    /// The begin of the datagram, as far as it was told.
    bytes: [u8; 64],
    quoted: usize,
}

impl Report {
    /// The begin of the datagram, as far as who reports it has told.
    pub(crate) fn quoted(&self) -> &[u8] {
        self.bytes.get(..self.quoted).unwrap_or_default()
    }
}

/// The next report that the kernel has kept; taking it makes the socket usable again.
#[cold]
pub(crate) fn report(socket: &Socket) -> Option<Report> {
    let mut name = SockAddrStorage::zeroed();
    let (mut bytes, mut control) = ([0u8; 64], [0u64; 64]);
    let mut piece = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is a valid message header.
    let mut header: msghdr = unsafe { std::mem::zeroed() };
    (header.msg_name, header.msg_namelen) = ((&raw mut name).cast(), size_of::<libc::sockaddr_storage>() as u32);
    (header.msg_iov, header.msg_iovlen) = (&mut piece, 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: all that the header refers to is valid for the call.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    let quoted = usize::try_from(len).ok()?.min(bytes.len());
    let mut report = Report { to: named(&name, header.msg_namelen), number: 0, told: false, bytes, quoted };
    // SAFETY: the kernel has filled the control data, of which the header tells place and length.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while let Some(said) = at.as_ref() {
            let kind = (said.cmsg_level, said.cmsg_type);
            if kind == (libc::IPPROTO_IP, libc::IP_RECVERR) || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) {
                let mut error = MaybeUninit::<libc::sock_extended_err>::zeroed();
                let len = size_of_val(&error).min(said.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize));
                std::ptr::copy_nonoverlapping(libc::CMSG_DATA(at), error.as_mut_ptr().cast::<u8>(), len);
                let error = error.assume_init();
                report.number = error.ee_errno;
                report.told = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    Some(report)
}
