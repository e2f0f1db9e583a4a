//! Operations whose completions come by a queue.

use std::ffi::{c_int, c_void};

use towline::raw::{Completion as RawCompletion, RawRequest};

use crate::border::{border, check_list, check_pointer, put, put_if_wanted};
use crate::buffer::{Prepared, bytes_to_receive, bytes_to_send};
use crate::error::{Failure, Outcome};
use crate::handles::{CommHandle, ContextHandle, LayoutHandle, MessageHandle};
use crate::levels::{with, with_world};
use crate::probe::note_begun;
use crate::receive::{ToReceive, source_of, tag_of};
use crate::request::{Status, tally};
use crate::send::{ToSend, count_sent, mode_of};
use crate::worlds::{Context, find_comm, find_context, take_message};

/// An operation that has ended: see `towline_poll_queue`.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// The word that the operation was begun with.
    pub user: u64,
    /// The source, the tag and the length of a received message, and the code of the operation in `error`.
    pub status: Status,
}

/// Begins to send a message, as `towline_isend`, but the end of the operation comes by `towline_poll_queue`, with `user`: a runtime
/// with many operations need not ask each of them.
///
/// @param user  Any word.
/// @param done  Gets whether the send is complete already: it does not come by the queue then.
/// @return      As `towline_isend`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is readable, and nothing changes it, until the completion was taken. `done` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_isend_queued(
    comm: CommHandle,
    buffer: *const c_void,
    count: usize,
    layout: LayoutHandle,
    dest: u32,
    tag: u32,
    mode: c_int,
    user: u64,
    done: *mut bool,
) -> c_int {
    border(|| {
        check_pointer("done", done)?;
        // SAFETY: the caller's promise; the view is not used for longer.
        let Some(view) = (unsafe { bytes_to_send(buffer, count, layout) }) else {
            let send = ToSend::new(comm, buffer, count, layout, mode)?;
            // SAFETY: the same.
            return unsafe { isend_prepared(send, dest, tag, user, done) };
        };
        let (mode, (owner, _, comm)) = (mode_of(mode)?, find_comm(comm)?);
        // SAFETY: the same.
        let complete = with!(comm, comm => unsafe { comm.isend_queued(dest, tag, mode, view, user, |_| {}) })?;
        count_sent(owner, count as u64);
        // SAFETY: the caller's promise.
        unsafe { put("done", done, complete) }
    })
}

/// The other part of `towline_isend_queued`: memory that has a layout.
///
/// # Safety
/// As for `towline_isend_queued`.
#[cold]
#[inline(never)]
unsafe fn isend_prepared(send: ToSend, dest: u32, tag: u32, user: u64, done: *mut bool) -> Outcome<()> {
    // SAFETY: the caller's promise; what the view refers to is kept until the completion was taken.
    let view = unsafe { send.view() };
    let ToSend { mode, owner, comm, prepared, .. } = send;
    let bytes = prepared.bytes();
    let mut prepared = Some(prepared);
    let keep = |request| keep(owner, request, &mut prepared);
    // SAFETY: as above.
    let complete = with!(comm, comm => unsafe { comm.isend_queued(dest, tag, mode, view, user, keep) })?;
    count_sent(owner, bytes);
    if let Some(prepared) = prepared {
        prepared.check_functions()?;
    }
    // SAFETY: the caller's promise.
    unsafe { put("done", done, complete) }
}

/// Begins to receive a message, as `towline_irecv`, but the end of the operation comes by `towline_poll_queue`, with `user`.
///
/// @param user  Any word.
/// @return      As `towline_irecv`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is writable, and nothing else uses it, until the completion was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_irecv_queued(
    comm: CommHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    source: u32,
    tag: u32,
    user: u64,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise; the view is not used for longer.
        let Some(view) = (unsafe { bytes_to_receive(buffer, count, layout) }) else {
            // SAFETY: the same.
            let receive = unsafe { ToReceive::new(comm, buffer, count, layout) }?;
            // SAFETY: the same.
            return unsafe { irecv_prepared(receive, source, tag, user) };
        };
        let (_, _, comm) = find_comm(comm)?;
        // SAFETY: the same.
        with!(comm, comm => unsafe { comm.irecv_queued(source_of(source), tag_of(tag), view, user, |_| {}) })?;
        Ok(())
    })
}

/// The other part of `towline_irecv_queued`: memory that has a layout.
///
/// # Safety
/// As for `towline_irecv_queued`.
#[cold]
#[inline(never)]
unsafe fn irecv_prepared(receive: ToReceive, source: u32, tag: u32, user: u64) -> Outcome<()> {
    let ToReceive { owner, comm, prepared, view, .. } = receive;
    let mut prepared = Some(prepared);
    let keep = |request| keep(owner, request, &mut prepared);
    // SAFETY: the caller's promise; what the view refers to is kept until the completion was taken.
    with!(comm, comm => unsafe { comm.irecv_queued(source_of(source), tag_of(tag), view, user, keep) })?;
    Ok(())
}

/// Keeps what an operation refers to.
fn keep(owner: &Context, request: RawRequest, prepared: &mut Option<Prepared>) {
    if let Some(prepared) = prepared.take() {
        owner.kept.add(request.to_bits(), prepared);
    }
}

/// Begins to receive a message that was taken, as `towline_imrecv`, but the end of the operation comes by `towline_poll_queue`, with
/// `user`.
///
/// @param user  Any word.
/// @return      As `towline_imrecv`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_irecv_queued`; `message` is readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_imrecv_queued(
    message: *mut MessageHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    user: u64,
) -> c_int {
    border(|| {
        check_pointer("message", message)?;
        let prepared = Prepared::to_receive(buffer, count, layout)?;
        // SAFETY: the caller's promise; what the view refers to is kept until the completion was taken.
        let view = unsafe { prepared.view_mut() }?;
        // SAFETY: the caller's promise.
        let (owner, found, taken) = take_message(unsafe { message.read() })?;
        let comm = taken.comm;
        let mut prepared = Some(prepared);
        let keep = |request| keep(owner, request, &mut prepared);
        // SAFETY: as above.
        let begun = with!(found, comm => unsafe { comm.imrecv_queued(taken.message, view, user, keep) });
        // SAFETY: the caller's promise.
        unsafe { note_begun(comm, begun, message) }
    })
}

/// Cancels a queued operation that was begun with this word: a receive that no message has matched, or a send of which nothing has
/// left. Its end comes by the queue, cancelled or not. Looks through all operations in progress.
///
/// @param context    The context of the operation.
/// @param user       The word.
/// @param cancelled  Gets whether it was cancelled. May be null.
/// @return           `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `cancelled` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_cancel_queued(context: ContextHandle, user: u64, cancelled: *mut bool) -> c_int {
    border(|| {
        let done = with_world!(&find_context(context.bits)?.world, world => world.cancel_queued(user));
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(cancelled, done) };
        Ok(())
    })
}

/// Makes progress, without waiting, and takes completions of queued operations, in any communicator of the context, the oldest first.
///
/// @param context      The context.
/// @param completions  Gets the completions.
/// @param most         How many there is room for: at least 1. If all were used, there may be more.
/// @param count        Gets how many there were.
/// @param events       Gets how many events there were in this call. 0: nothing has arrived and nothing has left; operations that had
///                     ended before may still be among the completions. A runtime that gives its processor away while nothing happens
///                     keeps it if there were any: parts of what it waits for may have arrived. May be null. Is not set if the call
///                     fails.
/// @return             `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`. The codes of the operations are in their
///                     statuses.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `completions` is writable for `most` items, `count` is writable, and `events` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_poll_queue(
    context: ContextHandle,
    completions: *mut Completion,
    most: usize,
    count: *mut usize,
    events: *mut u32,
) -> c_int {
    border(|| {
        check_list("completions", completions, most)?;
        check_pointer("count", count)?;
        let found = find_context(context.bits)?;
        let mut taken = 0;
        let take = |completion: RawCompletion| {
            let status = match &completion.outcome {
                Ok(status) if found.kept.is_empty() => {
                    if completion.is_receive {
                        tally(found, &completion.outcome);
                    }
                    Status::new(status.source, status.tag, status.bytes)
                }
                _ => status_of(found, &completion),
            };
            // SAFETY: the caller's promise: there is room for `most` of them.
            unsafe { completions.add(taken).write(Completion { user: completion.user, status }) };
            taken += 1;
        };
        let polled = with!(found.all_ranks(), comm => comm.poll_queue(most, take));
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(events, polled.events) };
        // SAFETY: the caller's promise.
        unsafe { put("count", count, taken) }
    })
}

/// The status of an operation that has failed, or that may refer to more than the memory of its message.
#[cold]
#[inline(never)]
fn status_of(owner: &Context, completion: &RawCompletion) -> Status {
    let functions = owner.kept.remove(completion.request.to_bits());
    if completion.is_receive {
        tally(owner, &completion.outcome);
    }
    let outcome = completion.outcome.clone().map(|_| ()).map_err(Failure::from).and(functions);
    Status::of(&completion.outcome).with_code(&outcome)
}
