//! System calls on the socket. Each `unsafe` block here carries its argument.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

/// Socket options of `linux/udp.h`: the segment size of datagrams that are sent by one call, and of those that are received by
/// one.
pub(super) const UDP_SEGMENT: c_int = 103;
pub(super) const UDP_GRO: c_int = 104;

/// Opens a UDP socket at an address.
pub(crate) fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    let (level, errors, discover, want) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_RECVERR, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_WANT)
    } else {
        socket.set_only_v6(true)?;
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_WANT)
    };
    // The kernel queues error reports for this socket. On a path with a smaller MTU datagrams are fragmented.
    option(&socket, level, errors, 1)?;
    option(&socket, level, discover, want)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Disconnects a stream socket, so that it can be used again.
pub(crate) fn disconnect(socket: &Socket) -> io::Result<()> {
    // SAFETY: all zero is a valid address without a family, which ends a connection.
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

/// Lets the kernel coalesce datagrams that arrive in a row, and checks that it can segment datagrams that are sent.
pub(crate) fn enable_segmentation(socket: &Socket) -> io::Result<()> {
    option(socket, libc::SOL_UDP, UDP_SEGMENT, 0)?;
    option(socket, libc::SOL_UDP, UDP_GRO, 1)
}

/// The MTU of an interface, in bytes.
pub(crate) fn mtu(socket: &Socket, interface: &str) -> io::Result<u32> {
    // SAFETY: all zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is valid for the call, which writes its other half.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has written this field.
    Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Datagrams that the kernel has dropped because the receive buffer of the socket was full.
pub(crate) fn overflowed(socket: &Socket) -> u64 {
    let mut words = [0u32; 16];
    let mut len = size_of_val(&words) as libc::socklen_t;
    // SAFETY: there is room for `len` bytes.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, words.as_mut_ptr().cast(), &mut len)
    };
    if result == 0 { words[DROPS].into() } else { 0 }
}

/// The index of the drops in the memory information of a socket (`SK_MEMINFO_DROPS`).
const DROPS: usize = 8;

/// The address in a name of which the kernel wrote the first `len` bytes.
pub(crate) fn address_of(name: &SockAddrStorage, len: u32) -> Option<SocketAddr> {
    if len as usize > size_of::<SockAddrStorage>() {
        return None;
    }
    // SAFETY: the storage is plain bytes, all of them initialised; the kernel wrote the first `len`.
    unsafe { SockAddr::new(std::ptr::read(name), len) }.as_socket()
}
