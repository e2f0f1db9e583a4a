//! Semihosting: services that the emulator provides to the program. These are its end, its command line, and a file for a second stream
//! of bytes. The operations are those of Arm's "Semihosting for AArch32 and AArch64"; RISC-V uses the same ones.

use core::arch::asm;
use core::ffi::CStr;

use embedded_io::{ErrorKind, ErrorType, Write};

const SYS_OPEN: usize = 0x01;
const SYS_WRITE: usize = 0x05;
const SYS_GET_CMDLINE: usize = 0x15;
const SYS_EXIT_EXTENDED: usize = 0x20;
const APPLICATION_EXIT: usize = 0x2_0026;
const MODE_WRITE_BINARY: usize = 5;

/// # Safety
/// `operation` must take a block of `N` arguments, and the addresses in it must be valid for the operation.
unsafe fn call<const N: usize>(operation: usize, arguments: &[usize; N]) -> usize {
    // SAFETY: passed on from the caller. The operations that are called so do not write to the block.
    unsafe { trap(operation, arguments.as_ptr()) }
}

/// # Safety
/// `operation` must take the block of arguments, and the addresses in it must be valid for the operation. If it writes to the block, the
/// block may be written.
unsafe fn trap(operation: usize, block: *const usize) -> usize {
    let result;
    // SAFETY: the trap accesses the block and the memory that its addresses refer to as the operation says, and changes only the result
    // register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("hlt #0xF000", inlateout("x0") operation => result, in("x1") block, options(nostack));
    }
    // SAFETY: as above. The three instructions together are the trap. They have their full length, and may not cross a page.
    #[cfg(target_arch = "riscv64")]
    unsafe {
        asm!(
            ".balign 16",
            ".option push",
            ".option norvc",
            "slli x0, x0, 0x1f",
            "ebreak",
            "srai x0, x0, 7",
            ".option pop",
            inlateout("a0") operation => result,
            in("a1") block,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "arm")]
    unsafe {
        asm!("bkpt #0xAB", inlateout("r0") operation => result, in("r1") block, options(nostack));
    }
    result
}

/// Ends the emulator with an exit status.
pub fn exit(status: u32) -> ! {
    // SAFETY: the operation takes two words.
    unsafe { call(SYS_EXIT_EXTENDED, &[APPLICATION_EXIT, status as usize]) };
    loop {
        core::hint::spin_loop();
    }
}

/// The command line that the emulator was given for the program. Returns `None` if it does not fit, or is not text.
pub fn command_line(into: &mut [u8]) -> Option<&str> {
    let mut block = [into.as_mut_ptr() as usize, into.len()];
    // SAFETY: the operation takes the address and the length of memory for the text, and writes the text, a zero, and into the block its
    // length without the zero.
    let result = unsafe { trap(SYS_GET_CMDLINE, block.as_mut_ptr()) };
    let text = into.get(..block[1]).filter(|_| result == 0)?;
    core::str::from_utf8(text).ok()
}

/// A file on the host, to which the program writes a stream of bytes.
#[derive(Debug)]
pub struct Channel {
    handle: usize,
}

impl Channel {
    /// Creates the file in the emulator's working folder. Returns `None` if the emulator refuses.
    pub fn create(name: &CStr) -> Option<Self> {
        let len = name.to_bytes().len();
        // SAFETY: the operation takes a name that ends with zero, a mode, and the name's length without the zero.
        let handle = unsafe { call(SYS_OPEN, &[name.as_ptr() as usize, MODE_WRITE_BINARY, len]) };
        (handle != usize::MAX).then_some(Self { handle })
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
        let left = unsafe { call(SYS_WRITE, &[self.handle, bytes.as_ptr() as usize, bytes.len()]) };
        match bytes.len().checked_sub(left) {
            None | Some(0) => Err(ErrorKind::WriteZero),
            Some(written) => Ok(written),
        }
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}
