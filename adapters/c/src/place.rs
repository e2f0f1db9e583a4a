//! The place of a process in a runtime that carries cards itself.

use std::ffi::c_int;

use towline::{JobKey, Place as RustPlace};

use crate::border::{border, check_pointer, put};
use crate::error::Outcome;

/// Bytes of the secret of a job.
pub const TOWLINE_KEY_BYTES: usize = 32;

/// The place of a process in a runtime that exchanges cards by its own means. `towline_place_default` sets it.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Place {
    /// The number of the job. All processes that may become peers have the same. Others on the host should have another one.
    pub job: u64,
    /// The secret of the job, the same in all its processes. Processes that do not know it cannot connect.
    pub key: [u8; TOWLINE_KEY_BYTES],
    /// The number of this process. No other running process of the job has it.
    pub number: u32,
    /// How many numbers there are, the same in all processes: 1 to 1,048,576.
    pub numbers: u32,
    /// How many peers this process may have at a time, itself included. Memory for unexpected messages is divided among them.
    pub peers: u32,
    /// How many processes of the job are on this host, this one included. They share its memory and its processors.
    pub local: u32,
    /// How many of them come before this one in an order on which they agree.
    pub local_rank: u32,
    /// 0.
    pub reserved: u32,
}

impl Place {
    /// The place as Rust has it.
    pub(crate) fn to_rust(self) -> RustPlace {
        let Self { job, key, number, numbers, peers, local, local_rank, .. } = self;
        RustPlace { job, key: JobKey::new(key), number, numbers, peers, local, local_rank }
    }
}

/// Reads a place of the caller.
///
/// # Safety
/// The address is null or that of a place.
pub(crate) unsafe fn read_place(place: *const Place) -> Outcome<RustPlace> {
    check_pointer("place", place)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { place.read() }.to_rust())
}

/// Sets a place to its defaults: job 0, a key of zeros, number 0 of 4096, 64 peers, alone on its host. The caller sets at least job,
/// key and number then.
///
/// @param place  Gets the defaults.
/// @return       `TOWLINE_ERR_ARGUMENT` for a null pointer.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `place` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_place_default(place: *mut Place) -> c_int {
    border(|| {
        let RustPlace { number, numbers, peers, local, local_rank, .. } = RustPlace::new(0, JobKey::new([0; 32]), 0);
        let key = [0; TOWLINE_KEY_BYTES];
        // SAFETY: the caller's promise.
        unsafe { put("place", place, Place { job: 0, key, number, numbers, peers, local, local_rank, reserved: 0 }) }
    })
}
