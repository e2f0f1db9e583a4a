//! Probes: looking at messages before they are received, and taking them.

use std::ffi::{c_int, c_void};
use std::ptr;

use towline::raw::RawMessage;
use towline::{Envelope, Error};

use crate::border::{border, check_pointer, put, put_if_wanted};
use crate::buffer::Prepared;
use crate::error::Outcome;
use crate::handles::{CommHandle, LayoutHandle, MessageHandle, RequestHandle};
use crate::levels::with;
use crate::receive::{source_of, tag_of};
use crate::request::{Status, towline_wait};
use crate::worlds::{MessagePlace, find_comm, reserve_message, take_message};

const fn status_of(envelope: Envelope) -> Status {
    Status::new(envelope.source, envelope.tag, envelope.bytes)
}

/// Waits for a message, and returns its envelope. The message stays to be received.
///
/// @param comm    The communicator.
/// @param source  The rank that sends it, or `TOWLINE_ANY_SOURCE`.
/// @param tag     Its tag, or `TOWLINE_ANY_TAG`.
/// @param status  Gets the source, the tag and the length. May be null.
/// @return        As `towline_recv`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_probe(comm: CommHandle, source: u32, tag: u32, status: *mut Status) -> c_int {
    border(|| {
        let (_, _, found) = find_comm(comm)?;
        let envelope = with!(found, comm => comm.probe(source_of(source), tag_of(tag)))?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(status, status_of(envelope)) };
        Ok(())
    })
}

/// Looks for a message without waiting. Makes progress once. Otherwise as `towline_probe`.
///
/// @param found   Gets whether there is a message.
/// @param status  As for `towline_probe`. It is set if there is one. May be null.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `found` is writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_iprobe(
    comm: CommHandle,
    source: u32,
    tag: u32,
    found: *mut bool,
    status: *mut Status,
) -> c_int {
    border(|| {
        check_pointer("found", found)?;
        let (_, _, owner) = find_comm(comm)?;
        let envelope = with!(owner, comm => comm.iprobe(source_of(source), tag_of(tag)))?;
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(envelope) = envelope {
                put_if_wanted(status, status_of(envelope));
            }
            put("found", found, envelope.is_some())
        }
    })
}

/// Waits for a message, and takes it, so that no other receive gets it. Otherwise as `towline_probe`.
///
/// @param message  Gets the message. The caller gives it to `towline_mrecv`, `towline_imrecv` or `towline_message_discard`.
/// @return         As `towline_probe`; `TOWLINE_ERR_BUSY` if there are too many requests, or 16384 messages that were taken.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `message` is writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_mprobe(
    comm: CommHandle,
    source: u32,
    tag: u32,
    message: *mut MessageHandle,
    status: *mut Status,
) -> c_int {
    border(|| {
        check_pointer("message", message)?;
        let (_, _, found) = find_comm(comm)?;
        let place = reserve_message()?;
        let taken = with!(found, comm => comm.mprobe_raw(source_of(source), tag_of(tag)))?;
        // SAFETY: the caller's promise.
        unsafe { hand_out(place, comm, taken, message, status) }
    })
}

/// Looks for a message without waiting, and takes it if there is one. Makes progress once. Otherwise as `towline_mprobe`.
///
/// @param found    Gets whether there is a message.
/// @param message  As for `towline_mprobe`. It is set if there is one.
/// @param status   As for `towline_mprobe`. It is set if there is one. May be null.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `found` and `message` are writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_improbe(
    comm: CommHandle,
    source: u32,
    tag: u32,
    found: *mut bool,
    message: *mut MessageHandle,
    status: *mut Status,
) -> c_int {
    border(|| {
        check_pointer("found", found)?;
        check_pointer("message", message)?;
        let (_, _, owner) = find_comm(comm)?;
        let place = reserve_message()?;
        let taken = with!(owner, comm => comm.improbe_raw(source_of(source), tag_of(tag)))?;
        let is_found = taken.is_some();
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(taken) = taken {
                hand_out(place, comm, taken, message, status)?;
            }
            put("found", found, is_found)
        }
    })
}

/// # Safety
/// `message` is writable, and `status` is null or writable.
unsafe fn hand_out(
    place: MessagePlace,
    comm: CommHandle,
    taken: RawMessage,
    message: *mut MessageHandle,
    status: *mut Status,
) -> Outcome<()> {
    let envelope = taken.envelope();
    let handle = place.keep(comm, taken)?;
    // SAFETY: the caller's promise.
    unsafe {
        put_if_wanted(status, status_of(envelope));
        put("message", message, handle)
    }
}

/// Receives a message that was taken, and returns when it has arrived.
///
/// @param message  The message. It is 0 if the receive was begun. Otherwise it is still the caller's, perhaps with other bits.
/// @param buffer   As for `towline_recv`, as are `count`, `layout` and `status`.
/// @return         As `towline_recv`; `TOWLINE_ERR_HANDLE` if there is no such message, or its communicator was freed.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_recv`; `message` is readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_mrecv(
    message: *mut MessageHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    status: *mut Status,
) -> c_int {
    let mut request = RequestHandle::NULL;
    // SAFETY: the caller's promise; the request is waited for before this returns.
    unsafe {
        match towline_imrecv(message, buffer, count, layout, &raw mut request) {
            0 => towline_wait(&raw mut request, status),
            code => code,
        }
    }
}

/// Begins to receive a message that was taken. Otherwise as `towline_mrecv`.
///
/// @param request  Gets the request, as for `towline_irecv`.
/// @return         As `towline_mrecv`, but for the errors of the message itself: nothing was begun then.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_irecv`; `message` is readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_imrecv(
    message: *mut MessageHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    request: *mut RequestHandle,
) -> c_int {
    border(|| {
        check_pointer("message", message)?;
        check_pointer("request", request)?;
        let prepared = Prepared::to_receive(buffer, count, layout)?;
        // SAFETY: the caller's promise; what the view refers to is kept until the request is complete.
        let view = unsafe { prepared.view_mut() }?;
        // SAFETY: the caller's promise.
        let (context, found, taken) = take_message(unsafe { message.read() })?;
        let comm = taken.comm;
        let owner = taken.context();
        // SAFETY: as above.
        let begun = with!(found, comm => unsafe { comm.imrecv_raw(taken.message, view) });
        if let Ok(begun) = &begun {
            context.kept.add(begun.to_bits(), prepared);
            // SAFETY: the caller's promise.
            unsafe { put("request", request, RequestHandle::of_receive(*begun, comm, owner)) }?;
        }
        // SAFETY: the caller's promise.
        unsafe { note_begun(comm, begun, message) }
    })
}

/// Notes whether the receive of a message that was taken was begun. Otherwise the message is the caller's again, under another
/// handle.
///
/// # Safety
/// `message` is writable.
pub(crate) unsafe fn note_begun<T>(
    comm: CommHandle,
    begun: Result<T, (Error, RawMessage)>,
    message: *mut MessageHandle,
) -> Outcome<()> {
    // SAFETY: the caller's promise.
    unsafe {
        match begun {
            Ok(_) => put("message", message, MessageHandle { bits: 0 }),
            Err((error, kept)) => {
                hand_out(reserve_message()?, comm, kept, message, ptr::null_mut())?;
                Err(error.into())
            }
        }
    }
}

/// Receives a message that was taken, and discards it.
///
/// @param message  The message. It is 0 if the function succeeds. Otherwise it is still the caller's, perhaps with other bits.
/// @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_BUSY`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `message` is readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_message_discard(message: *mut MessageHandle) -> c_int {
    border(|| {
        check_pointer("message", message)?;
        // SAFETY: the caller's promise.
        let (_, found, taken) = take_message(unsafe { message.read() })?;
        let comm = taken.comm;
        let discarded = with!(found, comm => comm.discard_raw(taken.message));
        // SAFETY: the caller's promise.
        unsafe { note_begun(comm, discarded, message) }
    })
}
