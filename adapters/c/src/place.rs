//! The place of a process in a runtime that carries cards itself.

use std::ffi::{c_int, c_void};

use towline::{JobKey, Place as RustPlace};

use crate::border::{border, check_pointer, list, put};
use crate::error::{Failure, Outcome};

/// Bytes of the secret of a job.
pub const TOWLINE_KEY_BYTES: usize = 32;
/// Bytes of the shortest secret that a place is made of.
const LEAST_SECRET: usize = 16;

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

impl Place {
    fn of_rust(place: &RustPlace) -> Self {
        let RustPlace { job, number, numbers, peers, local, local_rank, .. } = *place;
        Self { job, key: *place.key.bytes(), number, numbers, peers, local, local_rank, reserved: 0 }
    }
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
    let default = Place::of_rust(&RustPlace::new(0, JobKey::new([0; TOWLINE_KEY_BYTES]), 0));
    // SAFETY: the caller's promise.
    border(|| unsafe { put("place", place, default) })
}

/// Sets a place of a job whose processes share a secret, such as a credential of their launcher. Job and key are derived from the
/// secret, and do not reveal it. The other fields have their defaults.
///
/// @param secret  The secret: random bytes, the same in all processes of the job, and at least 16 of them.
/// @param length  Its length in bytes.
/// @param number  The number of this process.
/// @param place   Gets the place.
/// @return        `TOWLINE_ERR_ARGUMENT` for a null pointer, or for a secret of less than 16 bytes.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `secret` is readable for `length` bytes, and `place` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_place_from_secret(
    secret: *const c_void,
    length: usize,
    number: u32,
    place: *mut Place,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promise.
        let secret = unsafe { list("secret", secret.cast::<u8>(), length) }?;
        if secret.len() < LEAST_SECRET {
            return Err(Failure::argument(format!(
                "a secret of {length} bytes can be guessed: pass at least {LEAST_SECRET} random bytes"
            )));
        }
        // SAFETY: the caller's promise.
        unsafe { put("place", place, Place::of_rust(&RustPlace::from_secret(secret, number))) }
    })
}
