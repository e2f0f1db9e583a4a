//! The place of a process in a runtime that carries cards itself.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use towline::{CleanUp, JobKey, Place as RustPlace};

use crate::border::{border, check_pointer, list, put};
use crate::error::{Failure, Outcome};

/// Bytes of the secret of a job.
pub const TOWLINE_KEY_BYTES: usize = 32;
/// Bytes of the shortest secret that a place is made of.
const LEAST_SECRET: usize = 16;

/// Asks a runtime to remove files of this process when it is gone, in case that it is killed. The files may be made after the call,
/// or never, and may be removed before. The function is called by threads that open transports or send; it must not wait, must not
/// call functions of this library, and must not throw C++ exceptions.
///
/// @param state  That of the place.
/// @param paths  The absolute paths of the files, until the function returns.
/// @param count  How many.
///
/// Since ABI version 0.1.
pub type CleanUpFn = Option<unsafe extern "C" fn(state: *mut c_void, paths: *const *const c_char, count: usize)>;

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
    /// Asks the runtime to remove files, if it can. If null, a killed process leaves files in shared memory, and the next program of
    /// the same user that opens shared memory over Towline removes them.
    pub clean_up: CleanUpFn,
    /// What is passed to `clean_up`. It stays valid until the transports are closed.
    pub clean_up_state: *mut c_void,
}

/// An address of the caller, for its own function.
struct ForeignState(*mut c_void);

// SAFETY: the caller promises that its function may be called with this address from any thread.
unsafe impl Send for ForeignState {}
// SAFETY: the same.
unsafe impl Sync for ForeignState {}

impl ForeignState {
    fn address(&self) -> *mut c_void {
        self.0
    }
}

impl Place {
    /// The place as Rust has it.
    pub(crate) fn to_rust(self) -> RustPlace {
        let Self { job, key, number, numbers, peers, local, local_rank, reserved: _, clean_up, clean_up_state } = self;
        let state = ForeignState(clean_up_state);
        let clean_up = clean_up.map(|ask| {
            CleanUp::new(move |files| {
                let files = files.iter().map(|path| CString::new(path.as_os_str().as_bytes()));
                let files: Vec<CString> = files.flatten().collect();
                let paths: Vec<*const c_char> = files.iter().map(|path| path.as_ptr()).collect();
                // SAFETY: the caller's function, which may be called from any thread; the paths are valid until it returns.
                unsafe { ask(state.address(), paths.as_ptr(), paths.len()) };
            })
        });
        RustPlace { job, key: JobKey::new(key), number, numbers, peers, local, local_rank, clean_up }
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
        let (key, clean_up_state) = (*place.key.bytes(), ptr::null_mut());
        Self { job, key, number, numbers, peers, local, local_rank, reserved: 0, clean_up: None, clean_up_state }
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
