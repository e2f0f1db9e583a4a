//! The key of a shared region, with which a peer finds it.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..4 | `"smw\x01"` |
//! | 4..8 | the owner's file descriptor |
//! | 8..16 | the region's number, drawn at random |
//! | 16..24 | zero |

use towline_core::rail::native::{KEY, Key};

/// The first bytes of a key.
const KIND: [u8; 4] = *b"smw\x01";

/// The key of the region `nonce` in the file that its owner has as `descriptor`.
pub fn encode(descriptor: u32, nonce: u64) -> Key {
    let mut key = [0; KEY];
    let fields = KIND.into_iter().chain(descriptor.to_le_bytes()).chain(nonce.to_le_bytes());
    key.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    Key(key)
}

/// The owner's descriptor, and the region's number. `None` for a key of another kind of memory.
pub fn decode(key: &Key) -> Option<(u32, u64)> {
    let (kind, rest) = key.0.split_first_chunk::<4>()?;
    let (descriptor, rest) = rest.split_first_chunk::<4>()?;
    let (nonce, _) = rest.split_first_chunk::<8>()?;
    (*kind == KIND).then_some((u32::from_le_bytes(*descriptor), u64::from_le_bytes(*nonce)))
}
