//! The identity of a host: processes with the same identity can share segments.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identity of the memory that two processes must have in common: the running kernel, and the file system of the directory,
/// which containers on one kernel may or may not share. Nothing else matters: futexes in shared files work across all namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostId {
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// Device of the directory.
    pub device: u64,
    /// Inode of the directory.
    pub inode: u64,
}

impl HostId {
    /// The identity of this host, for segments in `directory`.
    pub fn of(directory: &Path) -> std::io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut boot = [0; 16];
        let mut digits = text.chars().filter_map(|digit| digit.to_digit(16));
        for byte in &mut boot {
            let (high, low) = (digits.next().unwrap_or(0), digits.next().unwrap_or(0));
            *byte = (high << 4 | low) as u8;
        }
        let about = fs::metadata(directory)?;
        Ok(Self { boot, device: about.dev(), inode: about.ino() })
    }
}
