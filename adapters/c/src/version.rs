//! Versions of the interface and of the library.

use std::ffi::c_char;

/// The major ABI version of this header. It changes if a program that was built before must be built again. While it is 0, a
/// change of the minor version may have the same effect.
pub const TOWLINE_ABI_MAJOR: u32 = 0;
/// The minor ABI version of this header. It grows if functions, constants or codes are added.
pub const TOWLINE_ABI_MINOR: u32 = 1;

/// The ABI version of the library that the program runs with.
///
/// @return  `major * 65536 + minor`. A program needs the major version of its header, and at least the minor one.
///
/// Thread-safe. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_abi_version() -> u32 {
    TOWLINE_ABI_MAJOR << 16 | TOWLINE_ABI_MINOR
}

/// The version of the library, such as "0.1.0".
///
/// @return  A text that ends with 0, and that lives as long as the process.
///
/// Thread-safe. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
