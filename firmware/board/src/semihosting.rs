//! Semihosting: services that the emulator provides to the program. These are its end, and a file for a second stream of
//! bytes.

use core::arch::asm;
use core::ffi::CStr;

use embedded_io::{ErrorKind, ErrorType, Write};

const SYS_OPEN: u64 = 0x01;
const SYS_WRITE: u64 = 0x05;
const SYS_EXIT: u64 = 0x18;
const APPLICATION_EXIT: u64 = 0x2_0026;
const MODE_WRITE_BINARY: u64 = 5;

/// # Safety
/// `operation` must take a block of `N` arguments, and the addresses in it must be valid for the operation.
unsafe fn call<const N: usize>(operation: u64, arguments: &[u64; N]) -> u64 {
    let result;
    // SAFETY: the trap reads the block and the memory that its addresses refer to, and changes only the result register.
    unsafe {
        asm!("hlt #0xF000", inlateout("x0") operation => result, in("x1") arguments.as_ptr(), options(nostack));
    }
    result
}

/// Ends the emulator with an exit status.
pub fn exit(status: u32) -> ! {
    // SAFETY: the operation takes two words.
    unsafe { call(SYS_EXIT, &[APPLICATION_EXIT, u64::from(status)]) };
    loop {
        core::hint::spin_loop();
    }
}

/// A file on the host, to which the program writes a stream of bytes.
#[derive(Debug)]
pub struct Channel {
    handle: u64,
}

impl Channel {
    /// Creates the file in the emulator's working folder. Returns `None` if the emulator refuses.
    pub fn create(name: &CStr) -> Option<Self> {
        let len = name.to_bytes().len() as u64;
        // SAFETY: the operation takes a name that ends with zero, a mode, and the name's length without the zero.
        let handle = unsafe { call(SYS_OPEN, &[name.as_ptr() as u64, MODE_WRITE_BINARY, len]) };
        (handle != u64::MAX).then_some(Self { handle })
    }
}

impl ErrorType for Channel {
    type Error = ErrorKind;
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        if bytes.is_empty() {
            return Ok(0);
        }
        // SAFETY: the operation takes a handle and the bytes. Its result is the number of bytes that were NOT written.
        let left = unsafe { call(SYS_WRITE, &[self.handle, bytes.as_ptr() as u64, bytes.len() as u64]) };
        match bytes.len().checked_sub(left as usize) {
            None | Some(0) => Err(ErrorKind::WriteZero),
            Some(written) => Ok(written),
        }
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}
