//! Cards and endpoints.

use std::ffi::{c_int, c_void};
use std::ptr;

use towline::btl::{AddError, Btl, EndpointId};

use crate::border::{border, check_pointer, copy_bytes, list, put};
use crate::btl::handles::{BtlHandle, EndpointHandle};
use crate::btl::state::{self, State};
use crate::error::{Code, Failure};

impl From<AddError> for Failure {
    fn from(error: AddError) -> Self {
        let code = match error {
            AddError::Card(_) => Code::TOWLINE_ERR_ARGUMENT,
            _ => Code::TOWLINE_ERR_PEER_FAILED,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

/// The card of a module, which the module of the same rail in other processes needs to reach this process: some hundred bytes, the same
/// for all, as long as the module lives.
///
/// Whoever can change cards on their way can have messages sent elsewhere, as with any exchange of addresses.
///
/// @param btl     The module.
/// @param buffer  Gets the card. May be null if `size` is 0.
/// @param size    Bytes of `buffer`.
/// @param length  Gets the length of the card.
/// @return        `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_HANDLE`,
///                `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes, and `length` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_card(
    btl: BtlHandle,
    buffer: *mut c_void,
    size: usize,
    length: *mut usize,
) -> c_int {
    border(|| {
        let card = state::with(btl, |own, _| Ok(own.directory.borrow().card()))?;
        // SAFETY: the caller's promise.
        unsafe { copy_bytes("card", &card, buffer, size, length) }
    })
}

/// Adds the process with this card. Sends nothing: the transport connects with the first frame. A process that was added before may be
/// added again, and has the same endpoint. The endpoint of this process itself serves one-sided operations, which are done at once.
///
/// If the number of the process is that of one that has ended or was lost, or if there is no room, such processes are removed first, as
/// by `towline_btl_remove_peer`, even if this call fails then. Over sm this holds at once for a process that has ended in order. In all
/// other cases it holds once `towline_btl_progress` has noticed the end, which needs a connection to the process.
///
/// @param btl       The module.
/// @param card      The card of the module of the same rail in the other process.
/// @param length    Its length in bytes.
/// @param peer      What functions of the program get for this process. May be null.
/// @param endpoint  Gets the endpoint. It ends with `towline_btl_remove_peer`, with the module, or when the process has ended and another
///                  one is added in its place.
/// @return          `TOWLINE_ERR_ARGUMENT` for bytes that are no card of this job, or the card of another process with a number that is in
///                  use; `TOWLINE_ERR_PEER_FAILED` if the transport does not reach the process, or if the module has as many peers as the
///                  place allows; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `card` is readable for `length` bytes, and `endpoint` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_add_peer(
    btl: BtlHandle,
    card: *const c_void,
    length: usize,
    peer: *mut c_void,
    endpoint: *mut EndpointHandle,
) -> c_int {
    border(|| {
        check_pointer("endpoint", endpoint)?;
        // SAFETY: the caller's promise.
        let card = unsafe { list("card", card.cast::<u8>(), length) }?;
        state::with(btl, |own, btl| {
            let added = if *card == *own.directory.borrow().card() {
                own.set_own(peer);
                EndpointHandle::own(own.handle())
            } else {
                let added = add_in_place_of_ended(own, btl, card)?;
                own.set_peer(added, peer);
                own.endpoint(added)
            };
            // Before another thread can call a function for a frame of the peer.
            // SAFETY: the caller's promise.
            unsafe { put("endpoint", endpoint, added) }
        })
    })
}

/// Adds a process, in place of those that have ended if they are in its way.
fn add_in_place_of_ended(own: &State, btl: &mut Btl<'_>, card: &[u8]) -> Result<EndpointId, AddError> {
    let mut directory = own.directory.borrow_mut();
    let why = match directory.add(btl, card) {
        Ok((added, _)) => return Ok(added),
        Err(why) => why,
    };
    let removed = directory.remove_ended(btl, card, &why);
    for endpoint in &removed {
        own.set_peer(*endpoint, ptr::null_mut());
    }
    if removed.is_empty() { Err(why) } else { directory.add(btl, card).map(|(added, _)| added) }
}

/// Removes a process. Sends and one-sided operations with it that are not complete end with `TOWLINE_ERR_CANCELLED`: the next progress
/// calls their functions. Its number may then be that of a new process.
///
/// @param endpoint  The endpoint.
/// @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_remove_peer(endpoint: EndpointHandle) -> c_int {
    border(|| {
        state::with(endpoint.btl, |own, btl| {
            if endpoint.is_own() {
                own.set_own(ptr::null_mut());
                return Ok(());
            }
            let id = EndpointId::from_bits(endpoint.bits);
            if !own.directory.borrow_mut().remove(btl, id) {
                return Err(Failure::handle("endpoint"));
            }
            own.set_peer(id, ptr::null_mut());
            Ok(())
        })
    })
}
