//! Sends of frames.

use std::ffi::{c_int, c_void};

use towline::btl::{
    Descriptor, DescriptorFlags, EndpointId, Immediate, ImmediateError, Outcome as SendOutcome, SendError,
};

use crate::border::{border, check_pointer, list, memory, put};
use crate::btl::descriptors::{BtlSegment, give};
use crate::btl::handles::{DescriptorHandle, EndpointHandle};
use crate::btl::state::{self, add};
use crate::error::{Code, Failure};

/// A send that is complete: its descriptor can be used again, and the bytes leave without further calls.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The descriptor.
    pub descriptor: DescriptorHandle,
    /// The peer. The handle is stale if the peer was removed.
    pub endpoint: EndpointHandle,
    /// What the program has given for the peer, or null.
    pub peer: *mut c_void,
    /// 0, or why the frame may not arrive: `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_CANCELLED` if the peer was removed, or
    /// `TOWLINE_ERR_OTHER`.
    pub status: c_int,
    /// For later descriptors whose frames shall arrive after this one.
    pub order: u8,
}

/// Is called for a send that is complete. It may use the module.
pub type SentFn = Option<unsafe extern "C" fn(sent: *const Sent, state: *mut c_void)>;

/// The function itself.
pub(super) type SentCall = unsafe extern "C" fn(sent: *const Sent, state: *mut c_void);

impl From<SendError> for Failure {
    #[cold]
    fn from(error: SendError) -> Self {
        let code = match error {
            SendError::Full => Code::TOWLINE_ERR_BUSY,
            SendError::Unreachable => Code::TOWLINE_ERR_PEER_FAILED,
            SendError::Stale => Code::TOWLINE_ERR_HANDLE,
            SendError::InvalidTag => Code::TOWLINE_ERR_TAG,
            _ => Code::TOWLINE_ERR_ARGUMENT,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

impl From<ImmediateError> for Failure {
    #[cold]
    fn from(error: ImmediateError) -> Self {
        let code = match error {
            ImmediateError::Busy(_) => Code::TOWLINE_ERR_BUSY,
            ImmediateError::Unreachable => Code::TOWLINE_ERR_PEER_FAILED,
            ImmediateError::InvalidTag => Code::TOWLINE_ERR_TAG,
            _ => Code::TOWLINE_ERR_ARGUMENT,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

/// Sends a descriptor. The module owns it until the send is complete. A full transport is no error: the send waits in the module. A
/// descriptor may be sent several times at once, with the same function.
///
/// @param endpoint    The peer.
/// @param descriptor  The descriptor.
/// @param tag         The tag of the frame: 0 to 254, but not 16.
/// @param flags       As for `towline_btl_alloc`; they replace those of the descriptor.
/// @param function    Is called by progress when the send is complete, if it was not so at once, or if the flags have
///                    `MCA_BTL_DES_SEND_ALWAYS_CALLBACK`. May be null.
/// @param state       Passed to the function.
/// @param complete    Gets whether the send is complete already. A descriptor that the module owns is freed then, unless the function
///                    will be called.
/// @return            Nothing is sent, and the program owns the descriptor, with `TOWLINE_ERR_BUSY` (make progress and try again),
///                    `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_ARGUMENT` if it is longer than `max_send_size`,
///                    `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// Any thread that uses the module may call `function` with `state`, until the send is complete. `complete` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_send(
    endpoint: EndpointHandle,
    descriptor: DescriptorHandle,
    tag: u8,
    flags: u32,
    function: SentFn,
    state: *mut c_void,
    complete: *mut bool,
) -> c_int {
    border(|| {
        check_pointer("complete", complete)?;
        if descriptor.btl != endpoint.btl {
            return Err(Failure::argument("the descriptor is of another module than the endpoint: allocate one there"));
        }
        let outcome = state::with(endpoint.btl, |own, btl| {
            let id = Descriptor::from_bits(descriptor.bits);
            let properties = btl.properties_mut(id).ok_or_else(|| Failure::handle("descriptor"))?;
            properties.flags = DescriptorFlags::from_bits_truncate(flags);
            properties.cbdata = function.map_or(0, |function| function as usize);
            properties.context = state.expose_provenance();
            // SAFETY: it goes into the module of this state.
            properties.callback = Some(unsafe { own.lasting() });
            let bytes: u64 = (0..2).filter_map(|index| btl.segment(id, index)).map(|segment| segment.len).sum();
            let outcome = btl.send(EndpointId::from_bits(endpoint.bits), id, tag)?;
            add(&own.tally.bytes_sent, bytes);
            Ok(outcome)
        })?;
        // SAFETY: the caller's promise.
        unsafe { put("complete", complete, outcome == SendOutcome::Sent) }
    })
}

/// Sends a header and data now, or does not send them.
///
/// @param endpoint     The peer.
/// @param order        As for `towline_btl_alloc`.
/// @param flags        As for `towline_btl_alloc`.
/// @param tag          The tag of the frame: 0 to 254, but not 16.
/// @param header       The first bytes of the frame.
/// @param header_size  How many.
/// @param data         The bytes after them.
/// @param data_size    How many. Both together are at most the module's `eager_limit`.
/// @param descriptor   May be null. Otherwise, if the transport is full, gets a descriptor for header and data, which the program fills
///                     and sends; its bits are 0 if there is none.
/// @param segment      Gets the memory of the descriptor. May be null if `descriptor` is.
/// @return             `TOWLINE_ERR_BUSY` if the transport is full; `TOWLINE_ERR_ARGUMENT` if the frame is too long, or the order is not one;
///                     `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_TAG`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// Header and data are readable. `descriptor` is null, or it and `segment` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_sendi(
    endpoint: EndpointHandle,
    order: u8,
    flags: u32,
    tag: u8,
    header: *const c_void,
    header_size: usize,
    data: *const c_void,
    data_size: usize,
    descriptor: *mut DescriptorHandle,
    segment: *mut BtlSegment,
) -> c_int {
    border(|| {
        if !descriptor.is_null() {
            check_pointer("segment", segment)?;
        }
        // SAFETY: the caller's promise.
        let header = unsafe { list("header", header.cast::<u8>(), header_size) }?;
        let payload = memory("data", data, data_size)?;
        state::with(endpoint.btl, |own, btl| {
            let what = Immediate {
                tag,
                header,
                payload,
                order,
                flags: DescriptorFlags::from_bits_truncate(flags),
                or_descriptor: !descriptor.is_null(),
            };
            // SAFETY: the caller's promise.
            match unsafe { btl.sendi(EndpointId::from_bits(endpoint.bits), what) } {
                Ok(()) => {
                    add(&own.tally.bytes_sent, (header_size + data_size) as u64);
                    Ok(())
                }
                Err(why) => {
                    if let (ImmediateError::Busy(made), false) = (&why, descriptor.is_null()) {
                        match *made {
                            // SAFETY: the caller's promise.
                            Some(made) => unsafe { give(btl, endpoint.btl, made, descriptor, segment) }?,
                            // SAFETY: the caller's promise.
                            None => unsafe { descriptor.write(DescriptorHandle { bits: 0, btl: endpoint.btl }) },
                        }
                    }
                    Err(why.into())
                }
            }
        })
    })
}
