//! What a module can do, and its limits.

use std::ffi::{c_char, c_int};

use towline::btl::{Attributes, Btl};
use towline::{Capabilities, Rail as _};

use crate::border::{border, put};
use crate::btl::handles::BtlHandle;
use crate::btl::state;

/// What a module can do, and its limits: the public part of `mca_btl_base_module_t` in Open MPI. It never changes.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BtlAttributes {
    /// The name of the transport, which ends with 0: "sm", "tcp", "udp", "verbs", "dpu-frames". It lives as long as the process.
    pub name: [c_char; 16],
    /// Bits, with the values of `MCA_BTL_FLAGS_` of Open MPI's `btl.h` 3.3.0. `PUT_AM`, `GET_AM` and `ATOMIC_AM_FOP` stand for
    /// operations that the module does by active messages; the calls are the same.
    pub flags: u32,
    /// Which atomics there are, with the values of `MCA_BTL_ATOMIC_SUPPORTS_`.
    pub atomics: u32,
    /// Of the modules that reach a peer, those with the highest value are used for messages.
    pub exclusivity: u32,
    /// Half a round trip, in nanoseconds: to choose among modules.
    pub latency: u32,
    /// In megabytes per second: to divide long messages among modules.
    pub bandwidth: u32,
    /// The most bytes of a frame for `towline_btl_sendi`, and of a first frame that is quick.
    pub eager_limit: usize,
    /// The most bytes of data in the first frame of a rendezvous.
    pub rendezvous_eager_limit: usize,
    /// The most bytes of a frame.
    pub max_send_size: usize,
    /// The most bytes of a put; `SIZE_MAX` for any number.
    pub put_limit: usize,
    /// Addresses and lengths of a put are multiples of this; 1 for any.
    pub put_alignment: usize,
    /// Puts of at least this many bytes need registered local memory; `SIZE_MAX`: none does.
    pub put_registration_threshold: usize,
    /// The same for gets.
    pub get_limit: usize,
    /// The same for gets.
    pub get_alignment: usize,
    /// The same for gets.
    pub get_registration_threshold: usize,
    /// Bytes of the key of registered memory, at most 256.
    pub key_bytes: usize,
}

/// What a module can do, and its limits.
///
/// @param btl         The module.
/// @param attributes  Gets them.
/// @return            `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `attributes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_attributes(btl: BtlHandle, attributes: *mut BtlAttributes) -> c_int {
    border(|| {
        let found = state::with(btl, |_, btl| Ok(of(btl)))?;
        // SAFETY: the caller's promise.
        unsafe { put("attributes", attributes, found) }
    })
}

fn of(btl: &Btl<'_>) -> BtlAttributes {
    let rail = btl.rail().attributes();
    let Attributes { one_sided, capabilities, .. } = *rail;
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().take(15).zip(rail.name.bytes()) {
        *to = from as c_char;
    }
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let reach = |native: Capabilities, of: towline::btl::Reach| {
        // What the device cannot do is done by active messages, which take any length, address and memory.
        if capabilities.contains(native) { of } else { towline::btl::Reach::ANY }
    };
    let (put, get) = (reach(Capabilities::PUT, one_sided.put), reach(Capabilities::GET, one_sided.get));
    BtlAttributes {
        name,
        flags: btl.capabilities().bits(),
        atomics: btl.atomics().bits(),
        exclusivity: rail.exclusivity,
        latency: rail.latency,
        bandwidth: rail.bandwidth,
        eager_limit: rail.eager_limit as usize,
        rendezvous_eager_limit: rail.rendezvous_eager_limit as usize,
        max_send_size: rail.max_send_size as usize,
        put_limit: size(put.limit),
        put_alignment: size(put.alignment),
        put_registration_threshold: size(put.local_registration),
        get_limit: size(get.limit),
        get_alignment: size(get.alignment),
        get_registration_threshold: size(get.local_registration),
        key_bytes: btl.registration_handle_bytes(),
    }
}
