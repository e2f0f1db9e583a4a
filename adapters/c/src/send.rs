//! Sends.

use std::ffi::{c_int, c_void};

use towline::View;
use towline::raw::Mode;

use crate::border::{border, check_pointer, put};
use crate::buffer::Prepared;
use crate::error::{Failure, Outcome};
use crate::handles::{CommHandle, LayoutHandle, RequestHandle};
use crate::levels::{CommRef, with};
use crate::tally::Counted;
use crate::worlds::{Context, find_comm};

/// When a send is complete.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum SendMode {
    /// When the memory may be changed. A short message may have been copied, and a long one has been received.
    TOWLINE_SEND_STANDARD = 0,
    /// When a receive has matched the message: `MPI_Ssend`.
    TOWLINE_SEND_SYNCHRONOUS = 1,
    /// As synchronous, and the receive must be posted already: `MPI_Rsend`. Otherwise the send fails with `TOWLINE_ERR_NOT_READY`.
    TOWLINE_SEND_READY = 2,
    /// When the message is with the device, and needs no further progress of this process.
    TOWLINE_SEND_COMPLETE = 3,
}

/// What all sends have to find and to check before they begin.
pub(crate) struct ToSend {
    pub mode: Mode,
    pub owner: &'static Context,
    /// The handle of the context.
    pub context: u64,
    pub comm: CommRef,
    pub prepared: Prepared,
}

impl ToSend {
    // On the path of each message: without it, the compiler copies the parts twice.
    #[inline(always)]
    pub fn new(
        comm: CommHandle,
        buffer: *const c_void,
        count: usize,
        layout: LayoutHandle,
        mode: c_int,
    ) -> Outcome<Self> {
        let (mode, (owner, context, comm)) = (mode_of(mode)?, find_comm(comm)?);
        Ok(Self { mode, owner, context, comm, prepared: Prepared::to_send(buffer, count, layout)? })
    }

    /// The memory.
    ///
    /// # Safety
    /// As for [`Prepared::view`].
    #[inline]
    pub unsafe fn view(&self) -> View<'static> {
        // SAFETY: the caller's promise.
        unsafe { self.prepared.view() }
    }
}

/// Counts a send that was begun.
#[inline]
pub(crate) fn count_sent(owner: &Context, bytes: u64) {
    owner.tally.add_with_bytes(Counted::MessagesSent, Counted::BytesSent, bytes);
}

#[inline]
pub(crate) fn mode_of(mode: c_int) -> Outcome<Mode> {
    Ok(match mode {
        0 => Mode::Standard,
        1 => Mode::Synchronous,
        2 => Mode::Ready,
        3 => Mode::Complete,
        other => return Err(Failure::argument(format!("there is no mode {other}: use a `towline_send_mode_t`"))),
    })
}

/// Sends a message, and returns when its memory may be changed, or later as the mode says.
///
/// @param comm    The communicator.
/// @param buffer  The address of the first item. May be null if the message has no bytes.
/// @param count   How many items there are.
/// @param layout  The layout of an item, or `TOWLINE_BYTES` for bytes.
/// @param dest    The rank to send to.
/// @param tag     A number for receives to match: 0 to `TOWLINE_TAG_MAX`.
/// @param mode    A `towline_send_mode_t`.
/// @return        `TOWLINE_ERR_RANK`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`;
///                `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_PEER_FINISHED`, `TOWLINE_ERR_RESTARTED` for the other rank;
///                `TOWLINE_ERR_NO_COMMUNICATOR` if it has freed the communicator; `TOWLINE_ERR_NOT_READY`; `TOWLINE_ERR_LAYOUT` if the layout
///                has no function that packs, or if that has failed; `TOWLINE_ERR_FORKED`; `TOWLINE_ERR_BUSY` if as many operations are in progress as the setting `requests` allows.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is readable, and nothing changes it, until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_send(
    comm: CommHandle,
    buffer: *const c_void,
    count: usize,
    layout: LayoutHandle,
    dest: u32,
    tag: u32,
    mode: c_int,
) -> c_int {
    border(|| {
        let send = ToSend::new(comm, buffer, count, layout, mode)?;
        // SAFETY: the caller's promise; the view is used until this returns.
        let view = unsafe { send.view() };
        with!(send.comm, comm => comm.send_in_mode(dest, tag, send.mode, view))?;
        count_sent(send.owner, send.prepared.bytes());
        send.prepared.check_functions()
    })
}

/// Begins to send a message. Otherwise as `towline_send`.
///
/// @param request  Gets the request. `towline_wait` or a similar function completes it. It may be `TOWLINE_REQUEST_NULL` if the send
///                 is complete; such a request is treated as a complete one.
/// @return         As `towline_send`: nothing was begun then, unless a function of the layout has failed (`TOWLINE_ERR_LAYOUT`).
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is readable, and nothing changes it, until the request is complete. `request` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_isend(
    comm: CommHandle,
    buffer: *const c_void,
    count: usize,
    layout: LayoutHandle,
    dest: u32,
    tag: u32,
    mode: c_int,
    request: *mut RequestHandle,
) -> c_int {
    border(|| {
        check_pointer("request", request)?;
        let send = ToSend::new(comm, buffer, count, layout, mode)?;
        // SAFETY: the caller's promise; what the view refers to is kept until the request is complete.
        let view = unsafe { send.view() };
        // SAFETY: the same.
        let begun = with!(send.comm, comm => unsafe { comm.isend_raw(dest, tag, send.mode, view) })?;
        count_sent(send.owner, send.prepared.bytes());
        let handle = match begun {
            Some(begun) => {
                send.owner.kept.add(begun.to_bits(), send.prepared);
                RequestHandle::of_send(begun, comm, send.context)
            }
            None => {
                send.prepared.check_functions()?;
                RequestHandle::NULL
            }
        };
        // SAFETY: the caller's promise.
        unsafe { put("request", request, handle) }
    })
}
