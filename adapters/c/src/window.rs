//! Windows: memory of each rank that all ranks read, write and change, without a receive at the target.

use std::ffi::{c_int, c_void};

use towline::{Access, Error, Shortage, Threads, Window};

use crate::border::{border, check_pointer, list, list_mut, put, put_if_wanted};
use crate::error::{Code, Failure, Outcome};
use crate::handles::{CommHandle, WindowHandle};
use crate::levels::{AnyWindow, CommRef, Part, with, with_window};
use crate::tally::Counted;
use crate::worlds::{WindowPlace, find_comm, find_window, reserve_window, take_window};

/// Other ranks may get from this rank's part of a window.
pub const TOWLINE_ACCESS_READ: u32 = 2;
/// Other ranks may put into this rank's part of a window.
pub const TOWLINE_ACCESS_WRITE: u32 = 4;
/// Other ranks may use atomic operations on this rank's part of a window.
pub const TOWLINE_ACCESS_ATOMIC: u32 = 8;
/// All rights.
pub const TOWLINE_ACCESS_ALL: u32 = 15;
const _: () = assert!(
    TOWLINE_ACCESS_READ == Access::REMOTE_READ.bits()
        && TOWLINE_ACCESS_WRITE == Access::REMOTE_WRITE.bits()
        && TOWLINE_ACCESS_ATOMIC == Access::REMOTE_ATOMIC.bits()
        && TOWLINE_ACCESS_ALL == Access::ANY.bits()
);

fn access_of(access: u32) -> Outcome<Access> {
    match Access::from_bits(access) {
        Some(access) if Access::ANY.contains(access) => Ok(access),
        _ => Err(Failure::argument(format!("there are no rights {access:#x}: add up `TOWLINE_ACCESS_...`"))),
    }
}

/// Makes a window, with memory of the library: `MPI_Win_allocate`. All ranks call it, or `towline_window_create`, and wait for each
/// other. Ranks on one host access such memory directly, where the system allows it. In a job over dpu it lies in the memory of
/// this rank's DPU, if it fits, and the DPU serves other ranks while this one makes no call.
///
/// @param comm    The communicator. The window has one of its own, so this one may be freed.
/// @param bytes   The length of this rank's part, which may differ from that of other ranks, and may be 0. The memory is zeroed.
/// @param access  What other ranks may do with this part: `TOWLINE_ACCESS_ALL`, or a sum of the others.
/// @param window  Gets the window. The caller ends it with `towline_window_free`; it ends with its context at the latest.
/// @return        `TOWLINE_ERR_NO_MEMORY` or `TOWLINE_ERR_BUSY` if this rank has too little memory, or too many windows or
///                communicators, and `TOWLINE_ERR_OTHER_RANK` if another one has: no rank has made the window then.
///                `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
///
/// One thread at a time calls such functions for one communicator. Since ABI version 0.1.
///
/// # Safety
/// `window` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_allocate(
    comm: CommHandle,
    bytes: usize,
    access: u32,
    window: *mut WindowHandle,
) -> c_int {
    border(|| {
        check_pointer("window", window)?;
        let (access, (_, context, found)) = (access_of(access)?, find_comm(comm)?);
        let place = reserve_for(&found)?;
        let made = match found {
            CommRef::Single(comm) => {
                let made = comm.window_with(bytes, access).map_err(|why| not_made(why, comm.rank()))?;
                AnyWindow::Single(Part::Own(made))
            }
            CommRef::Multiple(comm) => {
                let made = comm.window_with(bytes, access).map_err(|why| not_made(why, comm.rank()))?;
                AnyWindow::Multiple(Part::Own(made))
            }
        };
        let made = place.keep(context, made)?;
        // SAFETY: the caller's promise.
        unsafe { put("window", window, made) }
    })
}

/// Makes a window over memory of the caller: `MPI_Win_create`. Operations of other ranks on it are done by this rank when it makes
/// progress. Atomic operations need memory that is aligned for their words. Otherwise as `towline_window_allocate`.
///
/// @param base   The memory of this rank's part. It is in use until the window or its context has ended. May be null if `bytes` is 0.
/// @param bytes  The length of this rank's part, which may differ from that of other ranks, and may be 0.
/// @return       As `towline_window_allocate`. The memory is not in use after an error.
///
/// One thread at a time calls such functions for one communicator. Since ABI version 0.1.
///
/// # Safety
/// The memory is readable and writable, and the program accesses it only while no rank does: see `towline_window_base`. `window` is
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_create(
    comm: CommHandle,
    base: *mut c_void,
    bytes: usize,
    access: u32,
    window: *mut WindowHandle,
) -> c_int {
    border(|| {
        check_pointer("window", window)?;
        let base: *mut u8 = base.cast();
        // SAFETY: the caller's promise. It is checked only.
        let _ = unsafe { list("base", base, bytes) }?;
        let (access, (_, context, found)) = (access_of(access)?, find_comm(comm)?);
        let place = reserve_for(&found)?;
        let made = match found {
            CommRef::Single(comm) => {
                // SAFETY: the caller's promise.
                let made = unsafe { comm.window_raw(base, bytes, access) };
                AnyWindow::Single(Part::Callers(made.map_err(|why| not_made(why, comm.rank()))?))
            }
            CommRef::Multiple(comm) => {
                // SAFETY: the caller's promise.
                let made = unsafe { comm.window_raw(base, bytes, access) };
                AnyWindow::Multiple(Part::Callers(made.map_err(|why| not_made(why, comm.rank()))?))
            }
        };
        let made = place.keep(context, made)?;
        // SAFETY: the caller's promise.
        unsafe { put("window", window, made) }
    })
}

/// Reserves the place of a window that all ranks are about to make. If there is none, takes part nevertheless, so that all ranks get
/// an error.
fn reserve_for(found: &CommRef) -> Outcome<WindowPlace> {
    reserve_window().inspect_err(|_| {
        let _shortage_of_windows = with!(found, comm => comm.refuse_window_raw());
    })
}

/// The failure to make a window. `own`: this rank.
#[cold]
fn not_made(why: Error, own: u32) -> Failure {
    let code = match why {
        Error::NoWindow { rank, why: Shortage::Memory } if rank == own => Some(Code::TOWLINE_ERR_NO_MEMORY),
        Error::NoWindow { rank, .. } if rank == own => Some(Code::TOWLINE_ERR_BUSY),
        _ => None,
    };
    let failure = Failure::from(why);
    Failure { code: code.unwrap_or(failure.code), ..failure }
}

/// Ends a window, after all operations of all ranks on it are complete: `MPI_Win_free`. All ranks call it, and wait for each other.
///
/// @param window  The window. It has ended also if the function fails, unless it returns `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD` or
///                `TOWLINE_ERR_FORKED`; memory of the caller is the caller's again.
/// @return        The errors of `towline_window_flush_all`; `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
///
/// No other call may use this handle at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_window_free(window: WindowHandle) -> c_int {
    border(|| Ok(with_window!(take_window(window)?, window => window.close())?))
}

/// The memory of this rank's own part.
///
/// The program may access it while no operation of another rank does: for example, after `towline_window_fence`, until a rank begins
/// the next operations. A word that other ranks change at any time is read by an atomic operation of `towline_window_fetch_op`.
///
/// @param window  The window.
/// @param base    Gets the address of the first byte. It stays the same until the window ends. May be null.
/// @param bytes   Gets the length. May be null.
/// @return        `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `base` and `bytes` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_base(window: WindowHandle, base: *mut *mut c_void, bytes: *mut u64) -> c_int {
    border(|| {
        let (_, found) = find_window(window)?;
        let (address, len) = with_window!(found, window => own_part(window))?;
        // SAFETY: the caller's promise.
        unsafe {
            put_if_wanted(base, address.cast());
            put_if_wanted(bytes, len);
        }
        Ok(())
    })
}

fn own_part<L: Threads>(window: &Window<L>) -> Outcome<(*mut u8, u64)> {
    Ok((window.base_raw(), window.len(window.communicator().rank())?))
}

/// The length of a rank's part, in bytes.
///
/// @param window  The window.
/// @param rank    The rank, as in the communicator that the window was made with.
/// @param bytes   Gets the length.
/// @return        `TOWLINE_ERR_RANK`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `bytes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_size(window: WindowHandle, rank: u32, bytes: *mut u64) -> c_int {
    border(|| {
        check_pointer("bytes", bytes)?;
        let (_, found) = find_window(window)?;
        let len = with_window!(found, window => window.len(rank))?;
        // SAFETY: the caller's promise.
        unsafe { put("bytes", bytes, len) }
    })
}

/// Writes to a rank's part: `MPI_Put`. It is complete after the next flush, which also reports errors at the target. Operations may be
/// reordered between two flushes.
///
/// @param window  The window.
/// @param from    The data. It may be changed when the function returns. May be null if `bytes` is 0.
/// @param bytes   The length of the data.
/// @param rank    The rank whose part it is.
/// @param offset  The place in the part, in bytes from its beginning.
/// @return        `TOWLINE_ERR_RANGE` if the data reaches beyond the part; `TOWLINE_ERR_RANK`, `TOWLINE_ERR_ARGUMENT`,
///                `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`; `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_RESTARTED`
///                for that rank.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The data is readable, and nothing changes it, until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_put(
    window: WindowHandle,
    from: *const c_void,
    bytes: usize,
    rank: u32,
    offset: u64,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise.
        let data = unsafe { list("from", from.cast::<u8>(), bytes) }?;
        let (context, found) = find_window(window)?;
        with_window!(found, window => window.put(rank, offset, data))?;
        context.tally.add_with_bytes(Counted::Puts, Counted::BytesPut, bytes as u64);
        Ok(())
    })
}

/// Reads from a rank's part: `MPI_Get`. It is complete when the function returns. A get that overlaps a put in time may return any
/// mixture of old and new bytes.
///
/// @param window  The window.
/// @param into    Gets the data. Its contents are undefined after an error. May be null if `bytes` is 0.
/// @param bytes   The length.
/// @param rank    The rank whose part it is.
/// @param offset  The place in the part, in bytes from its beginning.
/// @return        `TOWLINE_ERR_DENIED` if the rank does not allow it; otherwise as `towline_window_put`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is writable, and nothing else uses it, until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_window_get(
    window: WindowHandle,
    into: *mut c_void,
    bytes: usize,
    rank: u32,
    offset: u64,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise; bytes that were never written are not read.
        let into = unsafe { list_mut("into", into.cast::<u8>(), bytes) }?;
        let (context, found) = find_window(window)?;
        with_window!(found, window => window.get(rank, offset, into))?;
        context.tally.add_with_bytes(Counted::Gets, Counted::BytesGot, bytes as u64);
        Ok(())
    })
}

/// Waits until all operations of this process on a rank's part are complete: any later read there sees their effects.
/// `MPI_Win_flush`.
///
/// @param window  The window.
/// @param rank    The rank whose part it is.
/// @return        The first error of an operation since the last flush: `TOWLINE_ERR_DENIED` or `TOWLINE_ERR_PEER_FAILED`. Otherwise
///                `TOWLINE_ERR_RANK`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_window_flush(window: WindowHandle, rank: u32) -> c_int {
    border(|| Ok(with_window!(find_window(window)?.1, window => window.flush(rank))?))
}

/// As `towline_window_flush`, for the parts of all ranks: `MPI_Win_flush_all`.
///
/// @param window  The window.
/// @return        As `towline_window_flush`, for the first rank with an error.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_window_flush_all(window: WindowHandle) -> c_int {
    border(|| Ok(with_window!(find_window(window)?.1, window => window.flush_all())?))
}

/// Flushes the parts of all ranks, and waits until all ranks have done so: what any rank has begun before is complete everywhere.
/// `MPI_Win_fence`. All ranks call it.
///
/// @param window  The window.
/// @return        As `towline_window_flush_all`; `TOWLINE_ERR_PEER_FAILED` if a rank was lost. The ranks have waited for each other also
///                if operations have failed.
///
/// One thread at a time calls it for one window. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_window_fence(window: WindowHandle) -> c_int {
    fn fence<L: Threads>(window: &Window<L>) -> Result<(), Error> {
        let flushed = window.flush_all();
        // Other ranks wait for this one.
        let reached = window.communicator().barrier();
        flushed.and(reached)
    }
    border(|| Ok(with_window!(find_window(window)?.1, window => fence(window))?))
}
