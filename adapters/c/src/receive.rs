//! Receives.

use std::ffi::{c_int, c_void};

use towline::{Any, Source, TAG_MAX, Tag, ViewMut};

use crate::border::{border, check_pointer, put, put_if_wanted};
use crate::buffer::Prepared;
use crate::error::{Failure, Outcome};
use crate::handles::{CommHandle, LayoutHandle, RequestHandle};
use crate::levels::{CommRef, with};
use crate::request::{Status, tally};
use crate::worlds::{Context, find_comm};

/// The source of a receive or probe that takes messages of any rank.
pub const TOWLINE_ANY_SOURCE: u32 = u32::MAX;
/// The tag of a receive or probe that takes messages with any tag.
pub const TOWLINE_ANY_TAG: u32 = u32::MAX;
/// The largest tag of a message.
pub const TOWLINE_TAG_MAX: u32 = 0x7fff_ffff;
const _: () = assert!(TOWLINE_TAG_MAX == TAG_MAX);

#[inline]
pub(crate) fn source_of(source: u32) -> Source {
    if source == TOWLINE_ANY_SOURCE { Any.into() } else { source.into() }
}

#[inline]
pub(crate) fn tag_of(tag: u32) -> Tag {
    if tag == TOWLINE_ANY_TAG { Any.into() } else { tag.into() }
}

/// What all receives have to find and to check before they begin.
pub(crate) struct ToReceive {
    pub owner: &'static Context,
    /// The handle of the context.
    pub context: u64,
    pub comm: CommRef,
    pub prepared: Prepared,
    pub view: ViewMut<'static>,
}

impl ToReceive {
    /// # Safety
    /// As for [`Prepared::view_mut`]: the view is used only while `prepared` exists.
    // On the path of each message: without it, the compiler copies the parts twice.
    #[inline(always)]
    pub unsafe fn new(comm: CommHandle, buffer: *mut c_void, count: usize, layout: LayoutHandle) -> Outcome<Self> {
        let (owner, context, comm) = find_comm(comm)?;
        let prepared = Prepared::to_receive(buffer, count, layout)?;
        // SAFETY: the caller's promise.
        let view = unsafe { prepared.view_mut() }?;
        Ok(Self { owner, context, comm, prepared, view })
    }
}

/// Receives a message, and returns when it has arrived.
///
/// @param comm    The communicator.
/// @param buffer  The address of the first item. May be null if there is no byte.
/// @param count   How many items there is room for. The message may be shorter.
/// @param layout  The layout of an item, or `TOWLINE_BYTES` for bytes.
/// @param source  The rank that sends it, or `TOWLINE_ANY_SOURCE`.
/// @param tag     Its tag, or `TOWLINE_ANY_TAG`.
/// @param status  Gets the source, the tag and the length, and the code of the operation, also if it fails. May be null.
/// @return        `TOWLINE_ERR_TRUNCATED` if the message is longer: the part that fits was delivered. `TOWLINE_ERR_LAYOUT` if the
///                layout contains a byte twice. `TOWLINE_ERR_PEER_FAILED` from any source, if some rank has failed: see
///                `towline_comm_acknowledge_failures`. Otherwise as `towline_send`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is writable, and nothing else uses it, until the function returns. `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_recv(
    comm: CommHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    source: u32,
    tag: u32,
    status: *mut Status,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise; the view is used until this returns.
        let ToReceive { owner, comm, prepared, view, .. } = unsafe { ToReceive::new(comm, buffer, count, layout) }?;
        let outcome = with!(comm, comm => comm.recv_view(source_of(source), tag_of(tag), view));
        let known = Status::of(&outcome);
        tally(owner, &outcome);
        let outcome = outcome.map_err(Failure::from).and(prepared.check_functions());
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(status, known.with_code(&outcome)) };
        outcome
    })
}

/// Begins to receive a message. Otherwise as `towline_recv`.
///
/// @param request  Gets the request. `towline_wait` or a similar function completes it, and has the status.
/// @return         As `towline_recv`, but for the errors of the message itself: nothing was begun then.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is writable, and nothing else uses it, until the request is complete. `request` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_irecv(
    comm: CommHandle,
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
    source: u32,
    tag: u32,
    request: *mut RequestHandle,
) -> c_int {
    border(|| {
        check_pointer("request", request)?;
        // SAFETY: the caller's promise; what the view refers to is kept until the request is complete.
        let receive = unsafe { ToReceive::new(comm, buffer, count, layout) }?;
        let view = receive.view;
        // SAFETY: the same.
        let begun = with!(receive.comm, comm => unsafe { comm.irecv_raw(source_of(source), tag_of(tag), view) })?;
        receive.owner.kept.add(begun.to_bits(), receive.prepared);
        // SAFETY: the caller's promise.
        unsafe { put("request", request, RequestHandle::of_receive(begun, comm, receive.context)) }
    })
}
