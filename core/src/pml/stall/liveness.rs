//! The state of a peer's liveness.

use zerocopy::FromZeros;

/// A peer is given up after this many checks without an answer.
pub(in crate::pml) const CHECKS: u8 = 4;

/// The state of a peer's liveness: marks, and the number of checks in a row without an answer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct PeerLiveness(u8);

/// A frame came or left since the last check. The fast path does not set it for short messages: `check_peer` compares their
/// numbers.
pub(in crate::pml) const HEARD: u8 = 0x01;

/// A request waits for the peer.
pub(in crate::pml) const AWAITED: u8 = 0x02;

/// A message to the peer found no room. This mark is not about liveness; it is stored here since a bit was free.
pub(in crate::pml) const OUT_OF_ROOM: u8 = 0x04;

/// A keepalive of the peer has to be answered.
pub(in crate::pml) const KEEPALIVE_REPLY_DUE: u8 = 0x08;

/// One check without an answer.
const SILENT: u8 = 0x10;

/// The bits that count these checks.
const ALL_SILENT: u8 = 0x70;

/// A keepalive is to be sent as soon as there is room.
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

    /// Notes a check. `awaited`: the peer is awaited. The time-out begins with the first check at which it is.
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
