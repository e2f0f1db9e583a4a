//! A fuzz input, from which values of several kinds are taken.

use towline_core::modex::{Component, SetWriter, Stamp, Version};

use crate::JobKey;
use crate::protocol::channel::Kind;

pub(crate) const SIZE: u32 = 3;
pub(crate) const JOB: u64 = 0x1234;

/// The rest of an input. At its end, every value is zero.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    /// Takes as many bytes as the next byte says, or all that are left.
    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        self.0.split_off(..length).unwrap_or_default()
    }

    /// A copy of `bytes`, and whether one bit of it was changed, which happens every second time.
    pub(crate) fn perhaps_changed(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = bytes.to_vec();
        let change = self.byte() & 1 == 1;
        if change && let Some(length) = std::num::NonZero::new(bytes.len()) {
            let at = usize::from(self.byte()) % length;
            bytes[at] ^= 1 << (self.byte() % 8);
        }
        (bytes, change)
    }

    /// A frame's kind and payload. The payload is of random bytes, or is well-formed.
    pub(crate) fn frame(&mut self) -> (Kind, Vec<u8>) {
        use Kind::{
            Abort, Ended, Ends, Failing, Fence, Finish, Leaving, Left, LostPeer, PartEnded, Refuse, Report, Set,
            Unmatched, Warning, Welcome,
        };
        let kinds = [
            Welcome, Refuse, Set, Fence, Ended, Finish, Abort, PartEnded, Ends, Report, Unmatched, Left, LostPeer,
            Failing, Warning, Leaving,
        ];
        let kind = kinds[usize::from(self.byte()) % kinds.len()];
        let payload = match self.byte() % 4 {
            0 => self.bytes().to_vec(),
            1 => u32::from(self.byte()).to_le_bytes().to_vec(),
            2 => self.set(),
            _ => [self.set(), self.set()].concat(),
        };
        (kind, payload)
    }

    fn set(&mut self) -> Vec<u8> {
        let (rank, stamp) = (
            u32::from(self.byte() % 4),
            Stamp { incarnation: (self.byte() % 3).into(), revision: (self.byte() % 4).into() },
        );
        let mut bytes = vec![0; 400];
        let Some(mut writer) = SetWriter::new(&mut bytes, rank, stamp) else { return Vec::new() };
        if self.byte() & 1 == 1 {
            // Always fits.
            let _ = writer.entry(&COMPONENT, stamp.revision, self.bytes());
        }
        let length = writer.finish();
        bytes.truncate(length);
        self.perhaps_changed(&bytes).0
    }
}

const V: Version = Version::new(1, 0, 0);
pub(crate) const COMPONENT: Component<'_> = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

pub(crate) fn key() -> JobKey {
    JobKey::new([0x5a; 32])
}
