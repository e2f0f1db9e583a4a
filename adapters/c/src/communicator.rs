//! Communicators: groups of ranks whose messages are separate from those of other groups.

use std::ffi::c_int;

use crate::border::{border, check_pointer, put};
use crate::error::Outcome;
use crate::handles::CommHandle;
use crate::levels::{AnyComm, CommRef, with};
use crate::worlds::{CommPlace, find_comm, remove_comm, reserve_comm};

/// The rank of this process in a communicator.
///
/// @param comm  The communicator.
/// @param rank  Gets the rank: 0 to the number of ranks - 1.
/// @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `rank` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_comm_rank(comm: CommHandle, rank: *mut u32) -> c_int {
    border(|| {
        let (_, _, found) = find_comm(comm)?;
        // SAFETY: the caller's promise.
        unsafe { put("rank", rank, with!(found, comm => comm.rank())) }
    })
}

/// The number of ranks of a communicator.
///
/// @param comm  The communicator.
/// @param size  Gets the number, at least 1.
/// @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `size` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_comm_size(comm: CommHandle, size: *mut u32) -> c_int {
    border(|| {
        let (_, _, found) = find_comm(comm)?;
        // SAFETY: the caller's promise.
        unsafe { put("size", size, with!(found, comm => comm.size())) }
    })
}

/// Makes a communicator of the same ranks, whose messages are separate. All ranks call it, and wait for each other.
///
/// @param comm  The communicator.
/// @param made  Gets the new one. The caller frees it with `towline_comm_free`; it ends with its context at the latest.
/// @return      `TOWLINE_ERR_BUSY` if this rank has too many communicators, and `TOWLINE_ERR_OTHER_RANK` if another one has: no rank
///              has made it then. `TOWLINE_ERR_PEER_FAILED` if a rank was lost.
///
/// One thread at a time calls such functions for one communicator. Since ABI version 0.1.
///
/// # Safety
/// `made` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_comm_dup(comm: CommHandle, made: *mut CommHandle) -> c_int {
    border(|| {
        check_pointer("made", made)?;
        let (_, context, found) = find_comm(comm)?;
        let place = reserve_for(&found)?;
        let copy = match found {
            CommRef::Single(comm) => AnyComm::Single(comm.dup()?),
            CommRef::Multiple(comm) => AnyComm::Multiple(comm.dup()?),
        };
        let copy = place.keep(context, copy)?;
        // SAFETY: the caller's promise.
        unsafe { put("made", made, copy) }
    })
}

/// Makes communicators of the ranks that give the same color. All ranks call it, and wait for each other.
///
/// @param comm   The communicator.
/// @param color  The color: any number, or `TOWLINE_NO_COLOR` for a rank that wants no communicator.
/// @param key    Ranks of one color are ordered by their keys, and by their ranks in `comm` where the keys are equal.
/// @param made   Gets the new communicator, or 0 for `TOWLINE_NO_COLOR`. As for `towline_comm_dup`.
/// @return       As for `towline_comm_dup`, for all colors together.
///
/// One thread at a time calls such functions for one communicator. Since ABI version 0.1.
///
/// # Safety
/// `made` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_comm_split(comm: CommHandle, color: u32, key: u32, made: *mut CommHandle) -> c_int {
    border(|| {
        check_pointer("made", made)?;
        let (_, context, found) = find_comm(comm)?;
        let color = (color != TOWLINE_NO_COLOR).then_some(color);
        let place = color.map(|_| reserve_for(&found)).transpose()?;
        let part = match found {
            CommRef::Single(comm) => comm.split(color, key)?.map(AnyComm::Single),
            CommRef::Multiple(comm) => comm.split(color, key)?.map(AnyComm::Multiple),
        };
        let part = place.zip(part).map(|(place, part)| place.keep(context, part)).transpose()?;
        // SAFETY: the caller's promise.
        unsafe { put("made", made, part.unwrap_or(CommHandle::NULL)) }
    })
}

/// Reserves the place of a communicator that all ranks are about to make. If there is none, takes part nevertheless, so that all ranks
/// get an error.
fn reserve_for(found: &CommRef) -> Outcome<CommPlace> {
    reserve_comm().inspect_err(|_| {
        let _shortage_of_communicators = with!(found, comm => comm.refuse_comm_raw());
    })
}

/// The color of a rank that wants no communicator: see `towline_comm_split`.
pub const TOWLINE_NO_COLOR: u32 = u32::MAX;

/// Frees a communicator of this rank; the other ranks free theirs. Messages that this rank has not received in it are lost, and
/// receives that no message has matched are cancelled. Other operations in progress go on. All of them are still to be waited for.
///
/// @param comm  The communicator.
/// @return      `TOWLINE_ERR_ARGUMENT` for the communicator of all ranks, which ends with its context; `TOWLINE_ERR_HANDLE`,
///              `TOWLINE_ERR_THREAD`.
///
/// No other call may use this handle at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_comm_free(comm: CommHandle) -> c_int {
    border(|| remove_comm(comm))
}

/// Lets receives from any source wait again although ranks have failed: see `TOWLINE_ERR_PEER_FAILED`.
///
/// @param comm  The communicator.
/// @return      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_comm_acknowledge_failures(comm: CommHandle) -> c_int {
    border(|| {
        let (_, _, found) = find_comm(comm)?;
        with!(found, comm => comm.acknowledge_failures());
        Ok(())
    })
}
