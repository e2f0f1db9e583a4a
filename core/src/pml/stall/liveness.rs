//! What is known of a peer's progress.

use zerocopy::FromZeros;

/// Looks in the time after which a peer is given up.
pub(in crate::pml) const CHECKS: u8 = 4;

/// What is known of a peer's progress: marks, and how many looks in a row were in vain.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct PeerLiveness(u8);

/// Something came, or left, since the last look. Short messages by the quick way do not set it: their numbers tell, in
/// `look_at`.
pub(in crate::pml) const HEARD: u8 = 0x01;

/// A request waits for the peer.
pub(in crate::pml) const AWAITED: u8 = 0x02;

/// No sign, but kept with them: a message to the peer found no room.
pub(in crate::pml) const OUT_OF_ROOM: u8 = 0x04;

/// The peer asks for one.
pub(in crate::pml) const KEEPALIVE_REPLY_DUE: u8 = 0x08;

/// One look in vain.
const SILENT: u8 = 0x10;

/// As many as there may be.
const ALL_SILENT: u8 = 0x70;

/// The peer is to be asked for a sign as soon as there is room for the keepalive.
pub(in crate::pml) const KEEPALIVE_DUE: u8 = 0x80;

const _: () = assert!(CHECKS <= ALL_SILENT / SILENT);

impl PeerLiveness {
    #[inline]
    pub const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    #[inline]
    pub const fn set(&mut self, mark: u8) {
        self.0 |= mark;
    }

    #[inline]
    pub const fn clear(&mut self, mark: u8) {
        self.0 &= !mark;
    }

    pub(super) const fn silent(self) -> u8 {
        (self.0 & ALL_SILENT) / SILENT
    }

    /// One more look, at a peer that something is waited for or not. The time begins with the first look at one that is.
    pub(super) const fn note_check(&mut self, awaited: bool) {
        if !awaited {
            self.0 = (self.0 | HEARD) & !ALL_SILENT;
        } else if self.has(HEARD) {
            self.0 &= !(HEARD | ALL_SILENT);
        } else if self.silent() < CHECKS {
            self.0 = self.0.wrapping_add(SILENT);
        }
    }
}
