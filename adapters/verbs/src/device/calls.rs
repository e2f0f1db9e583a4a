//! Results of calls to the library, and types of its binding.

use std::io;
use std::os::fd::RawFd;

/// A piece of local memory, as a scatter/gather element of a work request.
pub(crate) use rdma_mummy_sys::ibv_sge as Sge;

/// The result of a call that returns 0 or the number of an error.
pub(super) fn checked(answer: libc::c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        // Old providers return -1 and leave the number in `errno`.
        ..0 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// Sets a descriptor so that it does not block.
///
/// # Safety
/// The descriptor is open, and the caller's.
pub(super) unsafe fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: the caller guarantees that the descriptor is valid.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
