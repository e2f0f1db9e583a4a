//! Functions of the program for frames that arrive, and for lost peers.

use std::ffi::{c_char, c_int, c_void};

use towline::btl::RegisterError;

use crate::border::border;
use crate::btl::handles::{BtlHandle, EndpointHandle};
use crate::btl::state;
use crate::error::{Code, Failure};

/// A frame that has arrived. It and its bytes can be used only until the function that gets it returns. If the library was built
/// with debug assertions, the bytes are 0xDB afterwards, so that a program that keeps their address is found out.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// The sender. `bits` are 0 if the sender is not a peer of the module, for example because it was removed.
    pub endpoint: EndpointHandle,
    /// What the program has given for the sender with `towline_btl_add_peer`, or null.
    pub peer: *mut c_void,
    /// The bytes of the frame, header and payload, in one piece.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
    /// The tag of the frame.
    pub tag: u8,
}

/// Gets each frame of a tag. It may use the module: send, allocate, free, begin one-sided operations, add peers. Progress within it
/// does nothing.
pub type ReceiveFn = Option<unsafe extern "C" fn(received: *const Received, state: *mut c_void)>;

/// The function itself.
pub(super) type ReceiveCall = unsafe extern "C" fn(received: *const Received, state: *mut c_void);

/// A peer that was lost.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The number of its process.
    pub number: u32,
    /// 1: frames may be lost, so that the job cannot go on. 2: another module may be used for the peer.
    pub flags: u32,
    /// Whether the peer has ended the connection itself, as a process does that ends normally.
    pub closed: bool,
    /// The reason, which ends with 0. It lasts until the function returns.
    pub text: *const c_char,
}

/// Is called once for each peer that is lost. It may use the module.
pub type ErrorFn = Option<unsafe extern "C" fn(loss: *const Loss, state: *mut c_void)>;

/// The function itself.
pub(super) type ErrorCall = unsafe extern "C" fn(loss: *const Loss, state: *mut c_void);

/// Sets the function that gets the frames of a tag. Frames of a tag without a function are dropped and counted.
///
/// @param btl       The module.
/// @param tag       0 to 254. The module itself has tag 16.
/// @param function  The function, or null: the tag has none from then on.
/// @param state     Passed to the function.
/// @return          `TOWLINE_ERR_TAG` for a tag above 254; `TOWLINE_ERR_BUSY` if the tag has a function already, or is that of the
///                  module; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// Any thread that uses the module may call `function` with `state`, until the tag has no function or the module was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_register(
    btl: BtlHandle,
    tag: u8,
    function: ReceiveFn,
    state: *mut c_void,
) -> c_int {
    border(|| {
        state::with(btl, |own, btl| {
            let no_tag = || Failure::new(Code::TOWLINE_ERR_TAG, RegisterError::InvalidTag.to_string());
            let receiver = own.receivers.get(tag as usize).ok_or_else(no_tag)?;
            let Some(function) = function else {
                btl.unregister(tag);
                receiver.set(None);
                return Ok(());
            };
            // SAFETY: it goes into the module of this state.
            btl.register(tag, unsafe { own.lasting() })
                .map_err(|why| Failure::new(Code::TOWLINE_ERR_BUSY, why.to_string()))?;
            receiver.set(Some((function, state)));
            Ok(())
        })
    })
}

/// Sets the function that is called for each lost peer. It replaces an earlier one.
///
/// @param btl       The module.
/// @param function  The function, or null for none.
/// @param state     Passed to the function.
/// @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_btl_register`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_on_error(btl: BtlHandle, function: ErrorFn, state: *mut c_void) -> c_int {
    border(|| {
        state::with(btl, |own, btl| {
            own.on_error.set(function.map(|function| (function, state)));
            // SAFETY: it goes into the module of this state.
            btl.register_error(unsafe { own.lasting() });
            Ok(())
        })
    })
}
