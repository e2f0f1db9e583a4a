//! Workers: contexts that start alone, and whose peers the program adds by cards that it carries itself.

use std::ffi::{c_char, c_int, c_void};

use towline::{Builder, Config, Multiple};

use crate::border::{border, check_pointer, copy_bytes, list, put, put_if_wanted};
use crate::context::{no_thread_level, read_settings};
use crate::error::{Failure, Outcome};
use crate::handles::{CommHandle, ContextHandle};
use crate::levels::{AnyComm, AnyWorld, with_worker};
use crate::place::{Place, read_place};
use crate::worlds::{find_context, insert_context, reserve_comm};

/// The rank of a process in a communicator that it is not a member of: see `towline_comm_create`.
pub const TOWLINE_NO_RANK: u32 = u32::MAX;

/// Opens a context that starts alone: a worker. It is for a runtime that has an exchange of its own, such as an MPI library. No
/// launcher and no other process is needed, and nothing waits.
///
/// The runtime carries the card of each process (`towline_worker_card`) to the others, which add it (`towline_worker_add_peer`), and
/// makes communicators of processes (`towline_comm_create`). Both ends must add each other; a message to a process that has not done
/// so waits. The communicator of `towline_world` contains this process alone.
///
/// @param threads   As for `towline_init`, as are `settings` and `context`.
/// @param place     The place of this process.
/// @return          `TOWLINE_ERR_ARGUMENT` for an impossible place; otherwise as `towline_init`.
///
/// `towline_finish` and `towline_leave` end the context: both deliver what was sent, and wait for no other process. `towline_finish`
/// says whether that went well. Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// The texts end with 0, the array ends with null, `place` is readable and `context` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_worker_open(
    threads: c_int,
    settings: *const *const c_char,
    place: *const Place,
    context: *mut ContextHandle,
) -> c_int {
    border(|| {
        check_pointer("context", context)?;
        // SAFETY: the caller's promise.
        let place = unsafe { read_place(place) }?;
        let mut config = Config::default();
        // SAFETY: the caller's promise.
        unsafe { read_settings(settings, &mut config) }?;
        let builder = Builder::new().configure(|it| *it = config);
        let worker = match threads {
            0 | 1 => AnyWorld::SingleWorker(builder.open(place)?),
            2 | 3 => AnyWorld::MultipleWorker(builder.threads(Multiple).open(place)?),
            other => return Err(no_thread_level(other)),
        };
        // SAFETY: the caller's promise.
        unsafe { put("context", context, insert_context(worker)?) }
    })
}

#[cold]
fn no_worker() -> Failure {
    Failure::argument(
        "the context was made by `towline_init`, and its job has all its ranks: use `towline_worker_open`",
    )
}

/// The card of this process, which others need to reach it: some hundred bytes, the same for all, as long as the context lives.
///
/// Whoever can change cards on their way can have messages sent elsewhere, as with any exchange of addresses.
///
/// @param context  A context of `towline_worker_open`.
/// @param buffer   Gets the card. May be null if `size` is 0.
/// @param size     Bytes of `buffer`.
/// @param length   Gets the length of the card.
/// @return         `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_ARGUMENT` for another kind
///                 of context; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes, and `length` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_worker_card(
    context: ContextHandle,
    buffer: *mut c_void,
    size: usize,
    length: *mut usize,
) -> c_int {
    border(|| {
        let card = with_worker!(&find_context(context.bits)?.world, worker => worker.card(), no_worker());
        // SAFETY: the caller's promise.
        unsafe { copy_bytes("card", &card, buffer, size, length) }
    })
}

/// Adds the process with this card. Sends nothing: the transports connect with the first message. A process that was added before, or
/// this one itself, may be added again, which changes nothing. If its number is that of a process that has ended or was lost, or if
/// there is no room, such processes are removed first, as by `towline_worker_remove_peer`.
///
/// @param context  A context of `towline_worker_open`.
/// @param card     The card.
/// @param length   Its length in bytes.
/// @param number   Gets the number of the process. May be null.
/// @return         `TOWLINE_ERR_ARGUMENT` for bytes that are no card of this job, or the card of another process with a number that is
///                 in use; `TOWLINE_ERR_BUSY` if there are as many peers as the place allows; `TOWLINE_ERR_PEER_FAILED` if no transport
///                 reaches the process; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `card` is readable for `length` bytes. `number` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_worker_add_peer(
    context: ContextHandle,
    card: *const c_void,
    length: usize,
    number: *mut u32,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise.
        let card = unsafe { list("card", card.cast::<u8>(), length) }?;
        let added = with_worker!(&find_context(context.bits)?.world, worker => worker.add_peer(card)?, no_worker());
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(number, added) };
        Ok(())
    })
}

/// Forgets a process: one that has ended, or that is not needed any more. Operations with it end with `TOWLINE_ERR_PEER_FINISHED`. Its
/// communicators should have been freed before. Its number may then be that of a new process.
///
/// @param context  A context of `towline_worker_open`.
/// @param number   The number of the process.
/// @return         `TOWLINE_ERR_RANK` if there is no such peer, or if it is this process; `TOWLINE_ERR_ARGUMENT` for another kind of
///                 context; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_worker_remove_peer(context: ContextHandle, number: u32) -> c_int {
    border(|| {
        with_worker!(&find_context(context.bits)?.world, worker => worker.remove_peer(number)?, no_worker());
        Ok(())
    })
}

/// Makes a communicator of processes that were added. Local: no message is sent, and nothing waits. Messages for it that have arrived
/// already are kept for it.
///
/// In such a communicator tags from 2^31 to 2^32 - 2 are for protocols of the runtime. `TOWLINE_ANY_TAG` does not match them.
/// `towline_comm_dup` and `towline_comm_split` use some of them (2^31 + 767 to 2^31 + 1022), so a runtime uses either these functions
/// or these tags.
///
/// @param context  A context of `towline_worker_open`.
/// @param id       A number below 2^31, the same at all members, that no other communicator with a common member has.
/// @param members  The numbers of the members. Rank r is the process `members[r]`.
/// @param count    How many members there are.
/// @param rank     The rank of this process, or `TOWLINE_NO_RANK` if it is not a member: it sends to the members, and receives from
///                 them, as with the remote group of an inter-communicator.
/// @param made     Gets the communicator. The caller frees it with `towline_comm_free`; it ends with its context at the latest.
/// @return         `TOWLINE_ERR_RANK` if a member was not added, or if `rank` is that of another process; `TOWLINE_ERR_ARGUMENT` for an
///                 impossible or used id, or another kind of context; `TOWLINE_ERR_BUSY` if there are too many communicators (setting
///                 `communicators`); `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `members` is readable for `count` numbers, and `made` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_comm_create(
    context: ContextHandle,
    id: u32,
    members: *const u32,
    count: usize,
    rank: u32,
    made: *mut CommHandle,
) -> c_int {
    border(|| {
        check_pointer("made", made)?;
        // SAFETY: the caller's promise.
        let members = unsafe { list("members", members, count) }?;
        let rank = (rank != TOWLINE_NO_RANK).then_some(rank);
        let (found, place) = (find_context(context.bits)?, reserve_comm()?);
        let comm = create(&found.world, id, members, rank)?;
        // SAFETY: the caller's promise.
        unsafe { put("made", made, place.keep(context.bits, comm)?) }
    })
}

fn create(world: &AnyWorld, id: u32, members: &[u32], rank: Option<u32>) -> Outcome<AnyComm> {
    Ok(match world {
        AnyWorld::SingleWorker(worker) => AnyComm::Single(worker.communicator(id, members, rank)?),
        AnyWorld::MultipleWorker(worker) => AnyComm::Multiple(worker.communicator(id, members, rank)?),
        AnyWorld::Single(_) | AnyWorld::Multiple(_) => return Err(no_worker()),
    })
}
