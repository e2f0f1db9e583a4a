//! Memory of the program that peers access.

use std::ffi::{c_int, c_void};

use towline::Access;
use towline::btl::{DeregisterError, EndpointId, RegisterMemoryError, Registration, RemoteMemory};

use crate::border::{border, check_list, check_pointer, copy_bytes, list, put};
use crate::btl::handles::{BtlHandle, EndpointHandle, RegistrationHandle};
use crate::btl::state;
use crate::error::{Code, Failure};

/// Bytes of the longest key of registered memory: that of Open MPI's `btl.h`.
pub const TOWLINE_BTL_KEY_MAX: usize = 256;

/// Rights of registered memory, with the values of `MCA_BTL_REG_FLAG_` of Open MPI's `btl.h`: a local get may write to it.
pub const TOWLINE_BTL_LOCAL_WRITE: u32 = 1;
/// Peers may get from the memory.
pub const TOWLINE_BTL_REMOTE_READ: u32 = 2;
/// Peers may put into the memory.
pub const TOWLINE_BTL_REMOTE_WRITE: u32 = 4;
/// Peers may use atomics on the memory.
pub const TOWLINE_BTL_REMOTE_ATOMIC: u32 = 8;
/// All rights.
pub const TOWLINE_BTL_ACCESS_ANY: u32 = 15;

impl From<RegisterMemoryError> for Failure {
    fn from(error: RegisterMemoryError) -> Self {
        let code = match error {
            RegisterMemoryError::Full => Code::TOWLINE_ERR_BUSY,
            RegisterMemoryError::Unreachable => Code::TOWLINE_ERR_PEER_FAILED,
            _ => Code::TOWLINE_ERR_NOT_AVAILABLE,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

impl From<DeregisterError> for Failure {
    fn from(error: DeregisterError) -> Self {
        let code = match error {
            DeregisterError::InUse => Code::TOWLINE_ERR_BUSY,
            _ => Code::TOWLINE_ERR_HANDLE,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

/// Registers memory, so that peers can access it with its key, and so that operations of this side can use it.
///
/// @param btl           The module.
/// @param only          The peer that may access it, or one whose bits are 0 for all peers, also those that are added later.
/// @param base          The memory.
/// @param length        Its length in bytes.
/// @param access        Rights: `TOWLINE_BTL_LOCAL_WRITE` and so on.
/// @param registration  Gets the handle. The caller ends it with `towline_btl_deregister`; it ends with the module at the latest.
/// @return              `TOWLINE_ERR_BUSY` if too much memory is registered; `TOWLINE_ERR_PEER_FAILED`; `TOWLINE_ERR_ARGUMENT`;
///                      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory exists, readable and writable as far as the rights say, until it was deregistered or the module was closed. Peers access
/// it at any time. `registration` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_register_memory(
    btl: BtlHandle,
    only: EndpointHandle,
    base: *mut c_void,
    length: usize,
    access: u32,
    registration: *mut RegistrationHandle,
) -> c_int {
    border(|| {
        check_pointer("registration", registration)?;
        if length != 0 {
            check_list("base", base.cast::<u8>(), length)?;
        }
        let only = (only.bits != 0).then(|| EndpointId::from_bits(only.bits));
        let access = Access::from_bits(access & TOWLINE_BTL_ACCESS_ANY).unwrap_or_default();
        let bits = state::with(btl, |_, btl| {
            // SAFETY: the caller's promise.
            Ok(unsafe { btl.register_mem(only, base.cast(), length, access) }?.to_bits())
        })?;
        // SAFETY: the caller's promise.
        unsafe { put("registration", registration, RegistrationHandle { bits, btl }) }
    })
}

/// The key of registered memory, which peers need to access it. The program brings it to them. It names the memory, and is no secret.
///
/// @param registration  The registration.
/// @param buffer        Gets the key. May be null if `size` is 0.
/// @param size          Bytes of `buffer`.
/// @param length        Gets the length of the key: the module's `key_bytes`.
/// @return              `TOWLINE_ERR_NO_MEMORY` if the buffer is too short: `length` is set then, too. `TOWLINE_ERR_HANDLE`,
///                      `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes, and `length` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_key(
    registration: RegistrationHandle,
    buffer: *mut c_void,
    size: usize,
    length: *mut usize,
) -> c_int {
    border(|| {
        let key = state::with(registration.btl, |_, btl| {
            let remote = btl.remote_memory(Registration::from_bits(registration.bits));
            Ok(remote.ok_or_else(|| Failure::handle("registration"))?.to_bytes())
        })?;
        // SAFETY: the caller's promise.
        unsafe { copy_bytes("key", &key, buffer, size, length) }
    })
}

/// The key of all memory that the owner of a key has registered for this process: the addresses of operations tell where in it. It serves a
/// runtime that knows an address, and not the registration in which it lies.
///
/// The owner looks for a registration that allows the access, and does so for each part of a long operation. So an operation is denied
/// (`TOWLINE_ERR_DENIED`) where `TOWLINE_ERR_RANGE` would be returned with the key of the memory, and a part of it may have been done then.
/// Such operations are slower, need progress of the owner, and do not reach memory of an accelerator.
///
/// @param key      The key of any memory of the owner.
/// @param length   Its length in bytes, which is that of the other key, too.
/// @param address  The address in the owner's process for which the other key is meant.
/// @param all      Gets the other key. It may be `key` itself.
/// @return         `TOWLINE_ERR_ARGUMENT` if the bytes are no key; `TOWLINE_ERR_RANGE` if the address lies in the memory of the key: then
///                 that is the key for it.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `key` is readable, and `all` is writable, for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_key_by_address(
    key: *const c_void,
    length: usize,
    address: u64,
    all: *mut c_void,
) -> c_int {
    border(|| {
        check_pointer("all", all)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { list("key", key.cast::<u8>(), length) }?;
        let memory = RemoteMemory::from_bytes(bytes).ok_or_else(no_key)?;
        if address.wrapping_sub(memory.base()) < memory.len() {
            let text = "the address lies in the memory of the key: use that key";
            return Err(Failure { code: Code::TOWLINE_ERR_RANGE, ..Failure::argument(text) });
        }
        let (by_address, mut copied) = (memory.by_address().to_bytes(), 0);
        // SAFETY: the caller's promise. The bytes of the other key were copied before.
        unsafe { copy_bytes("all", &by_address, all, length, &raw mut copied) }
    })
}

/// The error for bytes that are no key.
pub(super) fn no_key() -> Failure {
    Failure::argument("the bytes are no key of registered memory: pass those of `towline_btl_key`")
}

/// Ends a registration. Operations of peers on the memory are denied from then on.
///
/// @param registration  The registration.
/// @return              `TOWLINE_ERR_BUSY` if an operation of this side uses it: wait for its end. `TOWLINE_ERR_HANDLE`,
///                      `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_deregister(registration: RegistrationHandle) -> c_int {
    border(|| {
        let ended = |btl: &mut towline::btl::Btl<'_>| btl.deregister_mem(Registration::from_bits(registration.bits));
        state::with(registration.btl, |_, btl| Ok(ended(btl)?))
    })
}
