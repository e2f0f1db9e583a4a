//! Epoll: which sockets are ready.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A set of sockets to wait for, each with a token.
#[derive(Debug)]
pub(crate) struct Epoll {
    set: OwnedFd,
}

/// A report that a socket can be read or written, has ended, or has an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: u64,
}

/// Maximum number of reports of one call.
pub(crate) const BATCH: usize = 32;

/// The events to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Errors only.
    Nothing,
    /// Bytes to read.
    Read,
    /// Bytes to read, or room to write.
    ReadWrite,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        Ok(Self { set: unsafe { OwnedFd::from_raw_fd(set) } })
    }

    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.set
    }

    pub(crate) fn add(&self, socket: RawFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, interest, token)
    }

    pub(crate) fn change(&self, socket: RawFd, interest: Interest, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, interest, token)
    }

    fn control(&self, operation: i32, socket: RawFd, interest: Interest, token: u64) -> io::Result<()> {
        let events = match interest {
            Interest::Nothing => 0,
            Interest::Read => libc::EPOLLIN,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: the event is valid for the call.
        if unsafe { libc::epoll_ctl(self.set.as_raw_fd(), operation, socket, &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The sockets that are ready now; does not wait. Reports are level-triggered: bytes that are not read are reported again.
    pub(crate) fn ready(&self, into: &mut [Ready; BATCH]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: there is room for BATCH events.
        let count = unsafe { libc::epoll_wait(self.set.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        for (to, event) in into.iter_mut().zip(&events[..count.min(BATCH)]) {
            *to = Ready { token: event.u64 };
        }
        count.min(BATCH)
    }
}
