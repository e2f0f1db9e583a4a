//! Stream sockets, Unix and TCP, with deadlines.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Address;

/// A connected socket in non-blocking mode.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects within `limit`. For a host name with several addresses, the first address that answers is used.
    pub(crate) fn connect(address: &Address, limit: Duration) -> io::Result<Self> {
        match address {
            Address::Path(path) => Self::unix(UnixStream::connect(path)?),
            Address::Abstract(name) => {
                let name = SocketAddr::from_abstract_name(name.as_bytes())?;
                Self::unix(UnixStream::connect_addr(&name)?)
            }
            Address::Tcp(host) => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                let deadline = Instant::now() + limit;
                for address in host.to_socket_addrs()? {
                    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                    match TcpStream::connect_timeout(&address, left) {
                        Ok(stream) => return Self::tcp(stream),
                        Err(why) => last = why,
                    }
                }
                Err(last)
            }
        }
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // Keepalive finds a host that vanished without closing its connections after 5 s: the first probe goes out
        // after 2 s of silence, then one each second, three in all.
        rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&stream, Duration::from_secs(2))?;
        rustix::net::sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(1))?;
        rustix::net::sockopt::set_tcp_keepcnt(&stream, 3)?;
        Ok(Self::Tcp(stream))
    }

    /// Waits until the stream can be read, or written if `write` is set. Returns `false` at the deadline.
    pub(crate) fn wait(&self, write: bool, deadline: Instant) -> io::Result<bool> {
        let flags = if write { PollFlags::OUT | PollFlags::IN } else { PollFlags::IN };
        let mut fds = [PollFd::new(self, flags)];
        loop {
            match poll(&mut fds, Some(&timespec(deadline.saturating_duration_since(Instant::now())))) {
                Ok(ready) => return Ok(ready != 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}

/// Converts a duration for `poll`. It is rounded up, so that a wait does not end just before its deadline.
pub(crate) fn timespec(span: Duration) -> Timespec {
    let span = span.saturating_add(Duration::from_nanos(1)).min(Duration::from_secs(1 << 30));
    Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(from),
            Self::Tcp(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}
