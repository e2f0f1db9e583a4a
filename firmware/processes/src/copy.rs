//! Copies by the kernel.

use libc::{c_void, iovec, pid_t, process_vm_readv, process_vm_writev};

/// A range of memory of a process.
fn remote(address: u64, len: usize) -> Option<iovec> {
    let address = usize::try_from(address).ok()?;
    Some(iovec { iov_base: std::ptr::without_provenance_mut::<c_void>(address), iov_len: len })
}

/// Copies memory of a process. `None`: it cannot be read as a whole.
pub fn read(process: pid_t, from: u64, into: &mut [u8]) -> Option<()> {
    let (local, remote) =
        (iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() }, remote(from, into.len())?);
    // SAFETY: the kernel writes at most the bytes of `into`, and checks the addresses of the other process.
    let copied = unsafe { process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    (copied.cast_unsigned() == into.len()).then_some(())
}

/// Copies bytes to memory of a process. `None`: it cannot be written as a whole.
pub fn write(process: pid_t, from: &[u8], to: u64) -> Option<()> {
    let local = iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = remote(to, from.len())?;
    // SAFETY: the kernel only reads the bytes of `from`, and checks the addresses of the other process. If that is this process, the host
    // vouches for its memory.
    let copied = unsafe { process_vm_writev(process, &raw const local, 1, &raw const remote, 1, 0) };
    (copied.cast_unsigned() == from.len()).then_some(())
}
