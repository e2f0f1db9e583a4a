//! Counters and a dump.

use std::ffi::{c_char, c_int};

use towline::btl::EndpointId;

use crate::border::{border, put, put_if_wanted};
use crate::btl::handles::{BtlHandle, EndpointHandle};
use crate::btl::state;
use crate::texts::copy_text;

/// Counts of a module since it was opened.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BtlCounters {
    /// Frames that were accepted for sending.
    pub sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Frames that a function of the program got.
    pub received: u64,
    /// Sends and one-sided operations that are complete.
    pub completed: u64,
    /// Frames that were dropped because their tag has no function.
    pub unregistered: u64,
    /// Frames that were dropped because they were too long.
    pub oversize: u64,
    /// Puts that were begun.
    pub puts: u64,
    /// Gets that were begun.
    pub gets: u64,
    /// Atomics that were begun.
    pub atomics: u64,
}

/// The counts of a module since it was opened.
///
/// @param btl       The module.
/// @param counters  Gets them.
/// @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `counters` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_counters(btl: BtlHandle, counters: *mut BtlCounters) -> c_int {
    border(|| {
        let counts = state::with(btl, |own, btl| {
            let (core, tally) = (btl.counters(), &own.tally);
            Ok(BtlCounters {
                sent: core.sent,
                bytes_sent: tally.bytes_sent.get(),
                received: core.received,
                completed: core.completed,
                unregistered: core.unregistered,
                oversize: core.oversize,
                puts: tally.puts.get(),
                gets: tally.gets.get(),
                atomics: tally.atomics.get(),
            })
        })?;
        // SAFETY: the caller's promise.
        unsafe { put("counters", counters, counts) }
    })
}

/// The state of a module, and of a peer, for diagnosis: one JSON object.
///
/// @param btl       The module.
/// @param endpoint  The peer, or one whose bits are 0 for none.
/// @param verbose   Whether to say more.
/// @param buffer    Gets the text, cut to `size` - 1 bytes, and a 0. May be null if `size` is 0.
/// @param size      Bytes of `buffer`.
/// @param length    Gets the length of the whole text, without the 0. May be null.
/// @return          `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes, and `length` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_dump(
    btl: BtlHandle,
    endpoint: EndpointHandle,
    verbose: bool,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    border(|| {
        let endpoint = (endpoint.bits != 0).then(|| EndpointId::from_bits(endpoint.bits));
        let text = state::with(btl, |_, btl| Ok(btl.dump(endpoint, verbose).to_string()))?;
        // SAFETY: the caller's promise.
        unsafe {
            let whole = copy_text(&text, buffer, size);
            put_if_wanted(length, whole);
        }
        Ok(())
    })
}
