//! The key of registered memory, with which a peer accesses it. No code here calls a device.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..3 | `"vb\x01"` |
//! | 3 | rights, with the values of [`Access`] |
//! | 4..8 | the device's key |
//! | 8..16 | address of the first byte |
//! | 16..22 | length in bytes |
//! | 22 | link |
//! | 23 | zero |

use towline_core::rail::native::{KEY, Key, Work};
use towline_core::rma::Access;
use towline_net::fields::{u32_at, u64_at};

const KIND: [u8; 3] = *b"vb\x01";
/// Bytes of the longest memory that is registered.
pub(crate) const MAX_LEN: u64 = (1 << 48) - 1;

/// Memory of a peer, as its key describes it. The key comes from the peer, and may say anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMemory {
    /// Address of the first byte, in the peer's process.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The device's key.
    pub key: u32,
    /// The rights of peers.
    pub access: Access,
    /// The link that the memory was registered with: other links cannot access it.
    pub link: u8,
}

impl RemoteMemory {
    /// The key that peers get.
    pub fn encode(&self) -> Key {
        let mut out = [0; KEY];
        out[..3].copy_from_slice(&KIND);
        out[3] = self.access.bits() as u8;
        out[4..8].copy_from_slice(&self.key.to_le_bytes());
        out[8..16].copy_from_slice(&self.address.to_le_bytes());
        out[16..22].copy_from_slice(&self.len.to_le_bytes()[..6]);
        out[22] = self.link;
        Key(out)
    }

    /// Reads a key that a peer gave. `None` where it is not a key of a verbs rail.
    pub fn decode(key: &Key) -> Option<Self> {
        let bytes = &key.0;
        (bytes[..3] == KIND && bytes[23] == 0).then(|| Self {
            address: u64_at(bytes, 8),
            len: u64_at(bytes, 16) & MAX_LEN,
            link: bytes[22],
            key: u32_at(bytes, 4),
            access: Access::from_bits_truncate(bytes[3].into()),
        })
    }

    /// Address of an operation at `offset` bytes, in the peer's process. `None` where the operation is out of bounds, not
    /// aligned, or without the right: the peer's device would end the connection for it. The engine then sends the operation in a
    /// frame, and the target reports the error.
    pub fn address_of(&self, work: &Work, offset: u64) -> Option<u64> {
        let (right, bytes, alignment) = match work {
            // A byte of the written memory is read afterwards.
            Work::Put(local) => (Access::REMOTE_WRITE | Access::REMOTE_READ, local.len, 1),
            Work::Get(local) => (Access::REMOTE_READ, local.len, 1),
            Work::Atomic(_, flags) => (Access::REMOTE_ATOMIC, flags.word_bytes(), flags.word_bytes()),
        };
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.len);
        let at = self.address.checked_add(offset).filter(|at| at.checked_add(bytes).is_some())?;
        (inside && self.access.contains(right) && at % alignment == 0).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
    use towline_core::rail::native::Local;

    use super::*;

    const MEMORY: RemoteMemory =
        RemoteMemory { address: 0x1000, len: 64, key: 0x0a0b_0c0d, access: Access::ANY, link: 3 };

    const fn local(len: u64) -> Local {
        Local { base: std::ptr::null_mut(), len, region: None }
    }

    #[test]
    fn x1_golden_bytes() {
        let key = MEMORY.encode();
        assert_eq!(key.0, *b"vb\x01\x0f\x0d\x0c\x0b\x0a\0\x10\0\0\0\0\0\0\x40\0\0\0\0\0\x03\0");
        assert_eq!(RemoteMemory::decode(&key), Some(MEMORY));
        assert_eq!(RemoteMemory::decode(&Key([0; KEY])), None);
        let longest = RemoteMemory { len: MAX_LEN, ..MEMORY };
        assert_eq!(RemoteMemory::decode(&longest.encode()), Some(longest));
    }

    #[test]
    fn b24_b25_b52_operations_that_the_device_would_refuse_are_not_posted() {
        let (put, get) = (Work::Put(local(8)), Work::Get(local(8)));
        let add = Work::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
        for work in [put, get, add] {
            assert_eq!(MEMORY.address_of(&work, 56), Some(0x1038));
            assert_eq!(MEMORY.address_of(&work, 57), None);
            assert_eq!(MEMORY.address_of(&work, u64::MAX - 3), None);
            let wraps = RemoteMemory { address: u64::MAX - 16, len: u64::MAX, ..MEMORY };
            assert_eq!(wraps.address_of(&work, 12), None);
        }
        assert_eq!(MEMORY.address_of(&put, 3), Some(0x1003));
        assert_eq!(MEMORY.address_of(&add, 4), None, "not aligned");
        for (work, rights) in [
            (put, Access::REMOTE_WRITE | Access::REMOTE_READ),
            (get, Access::REMOTE_READ),
            (add, Access::REMOTE_ATOMIC),
        ] {
            for right in rights.iter() {
                assert_eq!(RemoteMemory { access: Access::ANY - right, ..MEMORY }.address_of(&work, 0), None);
            }
            assert!(RemoteMemory { access: rights, ..MEMORY }.address_of(&work, 0).is_some());
        }
    }
}
