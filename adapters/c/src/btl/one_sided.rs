//! One-sided operations: put, get, atomics, flush.

use std::ffi::{c_int, c_void};

use towline::btl::{
    Atomic, AtomicFlags, AtomicOp, BeginError, Btl, Denied, EndpointId, Registration, RemoteMemory, RmaCallback,
    RmaParams, Transfer,
};

use crate::border::{border, check_pointer, list, memory, put};
use crate::btl::handles::{BtlHandle, EndpointHandle, RegistrationHandle};
use crate::btl::memory::no_key;
use crate::btl::state::{self, State, add};
use crate::error::{Code, Failure, Fault, Outcome};

/// A one-sided operation that is complete: it is done at the target, and local memory is the program's again.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The peer. The handle is stale if the peer was removed.
    pub endpoint: EndpointHandle,
    /// What the program has given for the peer, or null.
    pub peer: *mut c_void,
    /// The old value of the word, for an atomic. A word of 32 bits is in the low half.
    pub value: u64,
    /// 0, or why it may not be done: `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_CANCELLED` if the peer was removed, `TOWLINE_ERR_DENIED` if
    /// the target does not allow it.
    pub status: c_int,
}

/// Is called for a one-sided operation that is complete. It may use the module.
pub type DoneFn = Option<unsafe extern "C" fn(done: *const Done, state: *mut c_void)>;

/// The function itself.
pub(super) type DoneCall = unsafe extern "C" fn(done: *const Done, state: *mut c_void);

impl From<BeginError> for Failure {
    #[cold]
    fn from(error: BeginError) -> Self {
        let code = match error {
            BeginError::Full => Code::TOWLINE_ERR_BUSY,
            BeginError::Unreachable => Code::TOWLINE_ERR_PEER_FAILED,
            BeginError::OutOfBounds => Code::TOWLINE_ERR_RANGE,
            BeginError::NotAvailable => Code::TOWLINE_ERR_NOT_AVAILABLE,
            _ => Code::TOWLINE_ERR_ARGUMENT,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

/// The memory of a peer, and where in it an operation is.
///
/// # Safety
/// The key is null, or readable for as many bytes as it says.
#[inline]
unsafe fn target(key: *const c_void, key_bytes: usize, address: u64) -> Outcome<(RemoteMemory, u64)> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { list("key", key.cast::<u8>(), key_bytes) }?;
    let memory = RemoteMemory::from_bytes(bytes).ok_or_else(no_key)?;
    // An address below the memory wraps to an offset that is beyond its end.
    Ok((memory, address.wrapping_sub(memory.base())))
}

/// The parameters of an operation for the core.
#[inline]
fn params(
    own: &'static State,
    registration: RegistrationHandle,
    function: DoneFn,
    state: *mut c_void,
) -> Outcome<RmaParams<RmaCallback<'static, towline::AnyRail>>> {
    if registration.bits != 0 && registration.btl != own.handle() {
        return Err(Failure::argument(
            "the registration is of another module than the endpoint: register it there, too",
        ));
    }
    let callback: Option<RmaCallback<'static, towline::AnyRail>> = function.map(|_| own as _);
    Ok(RmaParams {
        registration: (registration.bits != 0).then(|| Registration::from_bits(registration.bits)),
        callback,
        context: [function.map_or(0, |function| function as usize), state.expose_provenance()],
    })
}

/// Begins an operation with a peer, or does it at once if the peer is this process itself: then the function is called, too.
///
/// # Safety
/// As for `Btl::put` and `Btl::get`.
#[inline]
unsafe fn begin(
    endpoint: EndpointHandle,
    what: Transfer,
    (remote, offset): (RemoteMemory, u64),
    registration: RegistrationHandle,
    (function, state): (DoneFn, *mut c_void),
) -> Outcome<()> {
    state::with(endpoint.btl, |own, btl| {
        let params = params(own, registration, function, state)?;
        if endpoint.is_own() {
            // SAFETY: the caller's promise.
            let value = unsafe { btl.perform_here(what, &remote, offset) }?;
            count(own, &what);
            if let Some(function) = function {
                let done = Done { endpoint, peer: own.own(), value, status: 0 };
                // SAFETY: the program vouched for the function.
                own.call_back(btl, || unsafe { function(&raw const done, state) });
            }
            return Ok(());
        }
        let to = EndpointId::from_bits(endpoint.bits);
        match what {
            // SAFETY: the caller's promise.
            Transfer::Put(local) => unsafe { btl.put(to, local, &remote, offset, params) }?,
            // SAFETY: the caller's promise.
            Transfer::Get(local) => unsafe { btl.get(to, local, &remote, offset, params) }?,
            Transfer::Atomic(atomic, flags) => btl.atomic(to, atomic, flags, &remote, offset, params)?,
        };
        count(own, &what);
        Ok(())
    })
}

/// Counts an operation that was begun.
#[inline]
fn count(own: &State, what: &Transfer) {
    let counter = match what {
        Transfer::Put(_) => &own.tally.puts,
        Transfer::Get(_) => &own.tally.gets,
        Transfer::Atomic(..) => &own.tally.atomics,
    };
    add(counter, 1);
}

impl From<Denied> for Failure {
    #[cold]
    fn from(denied: Denied) -> Self {
        let code = match denied {
            Denied::OutOfBounds => Code::TOWLINE_ERR_RANGE,
            Denied::NotAvailable => Code::TOWLINE_ERR_NOT_AVAILABLE,
            _ => Code::TOWLINE_ERR_DENIED,
        };
        Self::new(code, denied.to_string())
    }
}

/// Copies memory of the program to memory of a peer. The function is called when it is done there.
///
/// @param endpoint      The peer. If it is this process itself, the function is called before this one returns.
/// @param local         The memory of the program.
/// @param length        How many bytes.
/// @param registration  Its registration, or one whose bits are 0. Needed from `put_registration_threshold` bytes on.
/// @param key           The key of the peer's memory.
/// @param key_bytes     Its length.
/// @param address       Where to copy to: an address of the peer, within that memory.
/// @param function      Is called by progress when the operation is complete. May be null.
/// @param state         Passed to the function.
/// @return              Nothing is done, and the function is not called, with `TOWLINE_ERR_BUSY` (make progress and try again),
///                      `TOWLINE_ERR_RANGE` if it reaches beyond the peer's memory, `TOWLINE_ERR_NOT_AVAILABLE` for a length or an
///                      alignment that the module does not have, `TOWLINE_ERR_PEER_FAILED`, `TOWLINE_ERR_ARGUMENT`,
///                      `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is readable, and nothing changes it, until the operation is complete; the key is readable now. Any thread that uses the
/// module may call `function` with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_put(
    endpoint: EndpointHandle,
    local: *const c_void,
    length: usize,
    registration: RegistrationHandle,
    key: *const c_void,
    key_bytes: usize,
    address: u64,
    function: DoneFn,
    state: *mut c_void,
) -> c_int {
    border(|| {
        let local = memory("local", local, length)?;
        // SAFETY: the caller's promise.
        let target = unsafe { target(key, key_bytes, address) }?;
        // SAFETY: the caller's promise.
        unsafe { begin(endpoint, Transfer::Put(local), target, registration, (function, state)) }
    })
}

/// Copies memory of a peer to memory of the program. The function is called when it is there.
///
/// @param endpoint  As for `towline_btl_put`, as are the other arguments and the errors. `registration` is needed from
///                  `get_registration_threshold` bytes on.
/// @return          As for `towline_btl_put`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// The memory is writable, and nothing else uses it, until the operation is complete; the key is readable now. Any thread that uses the
/// module may call `function` with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_get(
    endpoint: EndpointHandle,
    local: *mut c_void,
    length: usize,
    registration: RegistrationHandle,
    key: *const c_void,
    key_bytes: usize,
    address: u64,
    function: DoneFn,
    state: *mut c_void,
) -> c_int {
    border(|| {
        let local = memory("local", local, length)?;
        // SAFETY: the caller's promise.
        let target = unsafe { target(key, key_bytes, address) }?;
        // SAFETY: the caller's promise.
        unsafe { begin(endpoint, Transfer::Get(local), target, registration, (function, state)) }
    })
}

/// Begins an atomic.
///
/// # Safety
/// The key is null, or readable for as many bytes as it says.
#[inline]
unsafe fn atomic(
    endpoint: EndpointHandle,
    what: Atomic,
    flags: u32,
    (key, key_bytes, address): (*const c_void, usize, u64),
    (function, state): (DoneFn, *mut c_void),
) -> Outcome<()> {
    let flags = AtomicFlags::from_bits(flags).ok_or_else(|| Failure::argument("there is no such flag of atomics"))?;
    // SAFETY: the caller's promise.
    let target = unsafe { target(key, key_bytes, address) }?;
    let none = RegistrationHandle { bits: 0, btl: endpoint.btl };
    // SAFETY: no local memory is involved.
    unsafe { begin(endpoint, Transfer::Atomic(what, flags), target, none, (function, state)) }
}

/// Changes a word of a peer's memory. The function gets its old value.
///
/// @param endpoint   The peer.
/// @param op         Which operation, with the values of `MCA_BTL_ATOMIC_` of Open MPI's `btl.h`: 1 add, 0x11 and, 0x12 or, 0x14 xor, 0x15
///                   to 0x17 the same of truth values, 0x1a swap, 0x20 the lesser, 0x21 the greater.
/// @param flags      1: the word has 32 bits, and not 64. 2: it is a floating-point number.
/// @param operand    The operand. One of 32 bits is in the low half.
/// @param key        As for `towline_btl_put`, as are `key_bytes`, `address`, `function` and `state`.
/// @return           As for `towline_btl_put`; `TOWLINE_ERR_NOT_AVAILABLE` also if the word is not aligned to its size, or if the module
///                   has no such operation on such words.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// The key is readable now. Any thread that uses the module may call `function` with `state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_atomic(
    endpoint: EndpointHandle,
    op: u32,
    flags: u32,
    operand: u64,
    key: *const c_void,
    key_bytes: usize,
    address: u64,
    function: DoneFn,
    state: *mut c_void,
) -> c_int {
    border(|| {
        let no_op = || {
            Failure::new(
                Code::TOWLINE_ERR_NOT_AVAILABLE,
                format!("there is no atomic operation {op}: choose a listed one"),
            )
        };
        let op = u8::try_from(op).ok().and_then(AtomicOp::of).ok_or_else(no_op)?;
        // SAFETY: the caller's promise.
        unsafe { atomic(endpoint, Atomic::Op(op, operand), flags, (key, key_bytes, address), (function, state)) }
    })
}

/// Compares a word of a peer's memory with a value, and replaces it by another one if they are equal. The function gets its old value.
///
/// @param endpoint  The peer.
/// @param flags     1: the word has 32 bits, and not 64.
/// @param compare   The expected value.
/// @param value     The new one.
/// @param key       As for `towline_btl_put`, as are `key_bytes`, `address`, `function` and `state`.
/// @return          As for `towline_btl_atomic`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_btl_atomic`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_compare_swap(
    endpoint: EndpointHandle,
    flags: u32,
    compare: u64,
    value: u64,
    key: *const c_void,
    key_bytes: usize,
    address: u64,
    function: DoneFn,
    state: *mut c_void,
) -> c_int {
    border(|| {
        let what = Atomic::CompareSwap(compare, value);
        // SAFETY: the caller's promise.
        unsafe { atomic(endpoint, what, flags, (key, key_bytes, address), (function, state)) }
    })
}

/// Makes progress until all one-sided operations that were begun on memory of a peer, or of all peers, are complete, and their functions
/// were called. With several threads, other threads may use the module meanwhile.
///
/// @param btl       The module.
/// @param endpoint  The peer, or one whose bits are 0 for all.
/// @return          `TOWLINE_ERR_BUSY` within a function that the module has called, if an operation is not complete;
///                  `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_flush(btl: BtlHandle, endpoint: EndpointHandle) -> c_int {
    border(|| {
        while !is_flushed(btl, endpoint)? {
            if state::progress(btl)? == 0 {
                std::thread::yield_now();
            }
        }
        Ok(())
    })
}

/// Whether all one-sided operations that were begun on memory of a peer, or of all peers, are complete.
///
/// @param btl       The module.
/// @param endpoint  The peer, or one whose bits are 0 for all.
/// @param flushed   Gets whether it is so.
/// @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `flushed` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_is_flushed(btl: BtlHandle, endpoint: EndpointHandle, flushed: *mut bool) -> c_int {
    border(|| {
        check_pointer("flushed", flushed)?;
        let are = state::with(btl, |_, btl| Ok(flushed_now(btl, endpoint)))?;
        // SAFETY: the caller's promise.
        unsafe { put("flushed", flushed, are) }
    })
}

fn flushed_now(btl: &Btl<'_>, endpoint: EndpointHandle) -> bool {
    btl.flush((endpoint.bits != 0).then(|| EndpointId::from_bits(endpoint.bits)))
}

/// As `flushed_now`, for a caller that waits.
fn is_flushed(btl: BtlHandle, endpoint: EndpointHandle) -> Outcome<bool> {
    state::with(btl, |own, btl| {
        let flushed = flushed_now(btl, endpoint);
        if !flushed && own.is_in_callback() {
            return Err(Failure {
                code: Code::TOWLINE_ERR_BUSY,
                fault: Fault::TOWLINE_FAULT_CALLER,
                text: "a function that the module has called cannot wait: return, and flush later".into(),
            });
        }
        Ok(flushed)
    })
}
