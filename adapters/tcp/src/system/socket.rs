//! System calls on sockets and pipes, with memory given by address. Each `unsafe` block here carries its argument.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) use libc::iovec;

/// The result of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transfer {
    /// This many bytes, at least one, were transferred.
    Bytes(usize),
    /// No bytes can be transferred now.
    WouldBlock,
    /// The peer sends nothing more.
    End,
    /// The connection is broken; the system's error number.
    Broken(i32),
    /// The received bytes are not a record that the peer sealed.
    Forged,
}

/// A piece of memory in the kernel's form.
#[inline]
pub(crate) const fn piece(base: *mut u8, len: usize) -> iovec {
    iovec { iov_base: base.cast(), iov_len: len }
}

/// Receives into one piece.
///
/// # Safety
/// The memory is writable for `len` bytes.
#[inline]
pub(crate) unsafe fn receive(socket: RawFd, into: *mut u8, len: usize) -> Transfer {
    // SAFETY: the caller guarantees that the memory is valid.
    transferred(unsafe { libc::recv(socket, into.cast(), len, libc::MSG_DONTWAIT) })
}

/// Receives into pieces, in order.
///
/// # Safety
/// The memory of each piece is writable.
#[inline]
pub(crate) unsafe fn receive_pieces(socket: RawFd, pieces: &mut [iovec]) -> Transfer {
    // SAFETY: the pieces are a slice, and the caller guarantees that their memory is valid.
    transferred(unsafe { libc::readv(socket, pieces.as_ptr(), pieces.len() as i32) })
}

/// Sends one piece.
///
/// # Safety
/// The memory is readable for `len` bytes.
#[inline]
pub(crate) unsafe fn send(socket: RawFd, from: *const u8, len: usize) -> Transfer {
    // SAFETY: the caller guarantees that the memory is valid.
    transferred(unsafe { libc::send(socket, from.cast(), len, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Sends pieces, in order.
///
/// # Safety
/// The memory of each piece is readable.
#[inline]
pub(crate) unsafe fn send_pieces(socket: RawFd, pieces: &mut [iovec]) -> Transfer {
    // SAFETY: all zero is a valid message header: no name, no pieces, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the message refers to the slice of pieces only, and the caller guarantees that their memory is valid.
    transferred(unsafe { libc::sendmsg(socket, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// A pipe that holds `bytes` bytes: the end to write to, and the end to read from.
pub(crate) fn pipe(bytes: u32) -> io::Result<[OwnedFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the two descriptors are new, so nobody else owns them.
    let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: no memory is involved.
    if unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok([write, read])
}

/// Maps the pages of a piece of memory into a pipe, as far as the pipe has room (`vmsplice(2)`).
///
/// # Safety
/// The memory is readable for `len` bytes.
pub(crate) unsafe fn vmsplice(pipe: RawFd, base: *mut u8, len: usize) -> Transfer {
    let piece = piece(base, len);
    // SAFETY: there is one piece, and the caller guarantees that its memory is valid; the kernel holds references to the pages
    // itself.
    transferred(unsafe { libc::vmsplice(pipe, &piece, 1, libc::SPLICE_F_NONBLOCK) })
}

/// Moves pages from a pipe to a socket (`splice(2)`). `None`: this kernel cannot.
pub(crate) fn splice(pipe: RawFd, socket: RawFd, len: usize) -> Option<Transfer> {
    let null = std::ptr::null_mut();
    // SAFETY: no memory is involved.
    let splice = || transferred(unsafe { libc::splice(pipe, null, socket, null, len, libc::SPLICE_F_NONBLOCK) });
    let moved = without_sigpipe(splice);
    let unsupported = [libc::EINVAL, libc::ENOSYS, libc::EPERM, libc::EOPNOTSUPP];
    (!matches!(moved, Transfer::Broken(number) if unsupported.contains(&number))).then_some(moved)
}

/// Makes a call that raises SIGPIPE on a broken connection and has no flag against that, and takes the signal back. The process
/// belongs to the user and may die of the signal.
fn without_sigpipe(call: impl FnOnce() -> Transfer) -> Transfer {
    // SAFETY: all zero is a valid set of signals. The calls read and write sets of this function. The signal that is taken back
    // is one that this thread has raised, as no such signal was pending before.
    unsafe {
        let [mut pipe, mut before, mut pending]: [libc::sigset_t; 3] = std::mem::zeroed();
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let blocked = libc::sigismember(&before, libc::SIGPIPE) == 1;
        let was_pending =
            blocked && libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, libc::SIGPIPE) == 1;
        let moved = call();
        // This is done for any result: if a connection breaks in the middle of a call, the call reports the bytes that were sent
        // before.
        if !was_pending {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        moved
    }
}

#[inline]
fn transferred(result: isize) -> Transfer {
    match result {
        1.. => Transfer::Bytes(result as usize),
        0 => Transfer::End,
        _ => refused(),
    }
}

#[cold]
fn refused() -> Transfer {
    let number = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match number {
        libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM => Transfer::WouldBlock,
        _ => Transfer::Broken(number),
    }
}

/// How the host at the other end of a connection answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Responsiveness {
    /// Time since its last acknowledgement.
    pub(crate) silence: Duration,
    /// Retransmissions and window probes of the kernel since then.
    pub(crate) attempts: u32,
}

/// How the host at the other end of a TCP connection answers; `None` where the kernel does not know.
pub(crate) fn responsiveness(socket: RawFd) -> Option<Responsiveness> {
    // SAFETY: the fields are plain numbers, for which 0 is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, and of a longer structure the first ones.
    let result =
        unsafe { libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    (result == 0).then(|| Responsiveness {
        silence: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        attempts: u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes),
    })
}

/// Sets the longest time between two retransmissions or window probes of the kernel.
pub(crate) fn set_max_retransmission_timeout(socket: RawFd, time: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let millis = libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX).clamp(1000, 120_000);
    let len = size_of_val(&millis) as libc::socklen_t;
    // SAFETY: the kernel reads one number.
    let result =
        unsafe { libc::setsockopt(socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, (&raw const millis).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
