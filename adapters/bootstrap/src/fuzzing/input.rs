//! Bytes of a fuzz input, read as whatever a caller needs.

use towline_core::modex::{Component, Edition, SetWriter, Version};

use crate::Key;
use crate::protocol::channel::Kind;

pub(crate) const SIZE: u32 = 3;
pub(crate) const JOB: u64 = 0x1234;

/// The rest of an input. At its end, everything is zero.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// As many bytes as the next one says, or what is left.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        self.0.split_off(..length).unwrap_or_default()
    }

    /// `bytes`, with one of them changed every second time.
    pub(crate) fn perhaps_spoilt(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = bytes.to_vec();
        let spoil = self.byte() & 1 == 1;
        if spoil && let Some(length) = std::num::NonZero::new(bytes.len()) {
            let at = usize::from(self.byte()) % length;
            bytes[at] ^= 1 << (self.byte() % 8);
        }
        (bytes, spoil)
    }

    /// A frame's kind and payload: of any bytes, or one that makes sense.
    pub(crate) fn frame(&mut self) -> (Kind, Vec<u8>) {
        use Kind::{Abort, Ends, Fence, Finish, Gone, Part, Refuse, Set, Welcome};
        let kind = [Welcome, Refuse, Set, Fence, Gone, Finish, Abort, Part, Ends][usize::from(self.byte() % 9)];
        let payload = match self.byte() % 4 {
            0 => self.bytes().to_vec(),
            1 => u32::from(self.byte()).to_le_bytes().to_vec(),
            2 => self.set(),
            _ => [self.set(), self.set()].concat(),
        };
        (kind, payload)
    }

    fn set(&mut self) -> Vec<u8> {
        let (rank, edition) = (
            u32::from(self.byte() % 4),
            Edition { incarnation: (self.byte() % 3).into(), revision: (self.byte() % 4).into() },
        );
        let mut bytes = vec![0; 400];
        let Some(mut writer) = SetWriter::new(&mut bytes, rank, edition) else { return Vec::new() };
        if self.byte() & 1 == 1 {
            // Fits always.
            let _ = writer.entry(&COMPONENT, edition.revision, self.bytes());
        }
        let length = writer.finish();
        bytes.truncate(length);
        self.perhaps_spoilt(&bytes).0
    }
}

const V: Version = Version::new(1, 0, 0);
pub(crate) const COMPONENT: Component<'_> = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

pub(crate) fn key() -> Key {
    Key::from_bytes([0x5a; 32])
}
