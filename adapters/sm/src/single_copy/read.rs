//! The receiving side of single copy: reading a peer's memory.

use towline_core::rail::RemoteBuffer;

/// The state for reading one peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct RemoteReader {
    process: libc::pid_t,
    epoch_address: u64,
    /// The first value of the epoch word.
    first_epoch: u64,
}

impl RemoteReader {
    /// Tries to read the epoch word that a ring describes (its address and value) in the process that
    /// [holds](super::holder) the lock on the ring's file.
    ///
    /// # Errors
    /// The reason in words, where it cannot be read.
    pub fn new(holder: std::io::Result<libc::pid_t>, epoch: (u64, u64)) -> Result<Self, String> {
        let (epoch_address, first_epoch) = epoch;
        if epoch_address == 0 {
            return Err("the sender exposes no memory".into());
        }
        let process = holder.map_err(|error| format!("the maker of the ring is unknown: {error}"))?;
        let reader = Self { process, epoch_address, first_epoch };
        // SAFETY: no bytes are written to.
        match unsafe { reader.read_at(0, first_epoch, std::ptr::null_mut(), 0) } {
            Ok(true) => Ok(reader),
            Ok(false) => Err(format!("process {process} has no such epoch word")),
            Err(error) => Err(format!("the memory of process {process} cannot be read: {error}")),
        }
    }

    /// Reads memory that the peer exposed. `Ok(false)` where it does not exist, or is not exposed any more.
    ///
    /// # Errors
    /// The system's, where it does not let this process read the peer's memory.
    ///
    /// # Safety
    /// `into` is writable for `len` bytes, and no other code uses them.
    pub unsafe fn read(&self, buffer: &RemoteBuffer, into: *mut u8, len: usize) -> std::io::Result<bool> {
        let [address, generation] = [0, 8]
            .map(|at| u64::from_le_bytes(std::array::from_fn(|byte| buffer.0.get(at + byte).copied().unwrap_or(0))));
        // SAFETY: passed on from the caller.
        unsafe { self.read_at(address, self.first_epoch.wrapping_add(generation), into, len) }
    }

    /// Reads memory of the peer. `Ok(false)` where it does not exist, or the epoch word is not `epoch`.
    ///
    /// # Safety
    /// `into` is writable for `len` bytes, and no other code uses them.
    unsafe fn read_at(&self, from: u64, epoch: u64, into: *mut u8, len: usize) -> std::io::Result<bool> {
        let mut found = 0u64;
        let vector = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
        let remote_address = |address: u64| std::ptr::without_provenance_mut::<u8>(address as usize);
        let local = [vector(into, len), vector((&raw mut found).cast(), 8)];
        let remote = [vector(remote_address(from), len), vector(remote_address(self.epoch_address), 8)];
        // The message is read before the epoch word: if that is still as expected, the message was exposed while it was read.
        let skip = usize::from(len == 0);
        let (local, remote) = (&local[skip..], &remote[skip..]);
        let count = local.len() as libc::c_ulong;
        // SAFETY: the kernel writes to `found` and to the memory that the caller vouches for, and checks the peer's addresses
        // itself.
        let moved = unsafe { libc::process_vm_readv(self.process, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        match usize::try_from(moved) {
            Ok(moved) => Ok(moved == len + 8 && found == epoch),
            Err(_) => match std::io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
                error => Err(error),
            },
        }
    }
}
