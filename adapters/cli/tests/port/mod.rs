//! An address for a server that another process starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// An address of the loopback interface that is kept for a server as long as this value lives. Nobody listens there before. The
/// system gives the port to no other process, and a server can bind it nevertheless, since both sockets permit that. A copy of
/// the socket in a new process does no harm.
pub struct Reserved {
    pub address: SocketAddr,
    _socket: OwnedFd,
}

impl Reserved {
    pub fn new() -> Self {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Self { address: getsockname(&socket).unwrap().try_into().unwrap(), _socket: socket }
    }
}
