//! The listening sockets of a server.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use crate::protocol::stream::Stream;

pub(crate) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Unix(listener) => Ok((Stream::unix(listener.accept()?.0)?, "a process on this host".into())),
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok((Stream::tcp(stream)?, from.to_string()))
            }
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
