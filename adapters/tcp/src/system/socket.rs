//! System calls on sockets and epoll, on memory given by address. All that is `unsafe` about them is argued for here.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) use libc::iovec;

/// What a transfer did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moved {
    /// That many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Nothing,
    /// The peer sends no more.
    End,
    /// The connection is broken; the system's error number.
    Broken(i32),
    /// What came is not what the peer has sealed.
    Forged,
}

/// A piece of memory as the kernel takes it.
#[inline]
pub(crate) const fn piece(base: *mut u8, len: usize) -> iovec {
    iovec { iov_base: base.cast(), iov_len: len }
}

/// Receives into one piece.
///
/// # Safety
/// The memory is writable for `len` bytes.
#[inline]
pub(crate) unsafe fn receive(socket: RawFd, into: *mut u8, len: usize) -> Moved {
    // SAFETY: the caller vouches for the memory.
    moved(unsafe { libc::recv(socket, into.cast(), len, libc::MSG_DONTWAIT) })
}

/// Receives into pieces, in order.
///
/// # Safety
/// The memory of each piece is writable.
#[inline]
pub(crate) unsafe fn receive_pieces(socket: RawFd, pieces: &mut [iovec]) -> Moved {
    // SAFETY: the pieces are a slice, and the caller vouches for their memory.
    moved(unsafe { libc::readv(socket, pieces.as_ptr(), pieces.len() as i32) })
}

/// Sends one piece.
///
/// # Safety
/// The memory is readable for `len` bytes.
#[inline]
pub(crate) unsafe fn send(socket: RawFd, from: *const u8, len: usize) -> Moved {
    // SAFETY: the caller vouches for the memory.
    moved(unsafe { libc::send(socket, from.cast(), len, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Sends pieces, in order.
///
/// # Safety
/// The memory of each piece is readable.
#[inline]
pub(crate) unsafe fn send_pieces(socket: RawFd, pieces: &mut [iovec]) -> Moved {
    // SAFETY: all zero is a valid message header: no name, no pieces, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the message refers to the slice of pieces alone, and the caller vouches for their memory.
    moved(unsafe { libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// A pipe that holds so many bytes: where to write, and where to read.
pub(crate) fn pipe(bytes: u32) -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: no memory is involved.
    if unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok([write, read])
}

/// Gives a pipe the pages of a piece of memory, as far as it has room.
///
/// # Safety
/// The memory is readable for `len` bytes.
pub(crate) unsafe fn give_pages(pipe: RawFd, base: *mut u8, len: usize) -> Moved {
    let piece = piece(base, len);
    // SAFETY: one piece, whose memory the caller vouches for; the kernel keeps the pages themselves.
    moved(unsafe { libc::vmsplice(pipe, &piece, 1, libc::SPLICE_F_NONBLOCK) })
}

/// Moves pages from a pipe to a socket. `None`: this kernel does not.
pub(crate) fn move_pages(pipe: RawFd, socket: RawFd, len: usize) -> Option<Moved> {
    let null = std::ptr::null_mut();
    // SAFETY: no memory is involved.
    let splice = || moved(unsafe { libc::splice(pipe, null, socket, null, len, libc::SPLICE_F_NONBLOCK) });
    let moved = without_sigpipe(splice);
    let unfit = [libc::EINVAL, libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP];
    (!matches!(moved, Moved::Broken(number) if unfit.contains(&number))).then_some(moved)
}

/// Makes a call that raises SIGPIPE at a broken connection, which it cannot be told not to, and takes the signal back: a process
/// that is not ours to set up may die of it.
fn without_sigpipe(call: impl FnOnce() -> Moved) -> Moved {
    // SAFETY: all zero is a set of signals; the calls read and write sets of this function's own, and the signal that is taken
    // is one that this thread has raised: none waited before.
    unsafe {
        let [mut pipe, mut before, mut waiting]: [libc::sigset_t; 3] = std::mem::zeroed();
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let blocked = libc::sigismember(&before, libc::SIGPIPE) == 1;
        let waits = blocked && libc::sigpending(&mut waiting) == 0 && libc::sigismember(&waiting, libc::SIGPIPE) == 1;
        let moved = call();
        // Whatever it says: a connection may break in the middle of a call, which then tells what had left before.
        if !waits {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        moved
    }
}

#[inline]
fn moved(result: isize) -> Moved {
    match result {
        1.. => Moved::Bytes(result as usize),
        0 => Moved::End,
        _ => refused(),
    }
}

#[cold]
fn refused() -> Moved {
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match number {
        libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Moved::Nothing,
        _ => Moved::Broken(number),
    }
}

/// How the host at the other end answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answers {
    /// Since the last one.
    pub(crate) silence: Duration,
    /// How often the kernel has sent something again, or asked for room, without an answer since.
    pub(crate) tries: u32,
}

/// How the host at the other end of a TCP connection answers; `None` where the kernel does not tell.
pub(crate) fn answers(socket: RawFd) -> Option<Answers> {
    // SAFETY: plain numbers, for which 0 is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, of what is longer the front.
    let result =
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    (result == 0).then(|| Answers {
        silence: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        tries: u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes),
    })
}

/// The most time between two tries of the kernel to get something across.
pub(crate) fn set_most_between_tries(socket: RawFd, time: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let millis = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX).clamp(1000, 120_000);
    let len = size_of_val(&millis) as libc::socklen_t;
    // SAFETY: the kernel reads one number.
    let result =
        unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, (&raw const millis).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A set of sockets to wait for, each with a word of ours.
#[derive(Debug)]
pub(crate) struct Epoll {
    set: OwnedFd,
}

/// A readiness report: the word, and whether there is something to read (or an end, or an error).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) word: u64,
}

/// Reports taken at once.
pub(crate) const BATCH: usize = 32;

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Errors alone.
    Nothing,
    /// Something to read.
    Read,
    /// Something to read, or room to write.
    ReadWrite,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self { set: unsafe { OwnedFd::from_raw_fd(set) } })
    }

    pub(crate) const fn descriptor(&self) -> &OwnedFd {
        &self.set
    }

    pub(crate) fn add(&self, socket: RawFd, interest: Interest, word: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, interest, word)
    }

    pub(crate) fn change(&self, socket: RawFd, interest: Interest, word: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, interest, word)
    }

    fn control(&self, what: i32, socket: RawFd, interest: Interest, word: u64) -> io::Result<()> {
        let events = match interest {
            Interest::Nothing => 0,
            Interest::Read => libc::EPOLLIN,
            Interest::ReadWrite => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: word };
        // SAFETY: the event is valid for the call.
        if unsafe { libc::epoll_ctl(self.set.as_raw_fd(), what, socket, &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// What is ready now; does not wait. Level-triggered: what is not taken is reported again.
    pub(crate) fn ready(&self, into: &mut [Ready; BATCH]) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: room for BATCH events.
        let count = unsafe { libc::epoll_wait(self.set.as_raw_fd(), events.as_mut_ptr(), BATCH as i32, 0) };
        let count = usize::try_from(count).unwrap_or(0);
        for (to, event) in into.iter_mut().zip(&events[..count.min(BATCH)]) {
            *to = Ready { word: event.u64 };
        }
        count.min(BATCH)
    }
}
