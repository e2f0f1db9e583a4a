//! What is known of a peer's progress.

use zerocopy::FromZeros;

/// Looks in the time after which a peer is given up.
pub(in crate::pml) const LOOKS: u8 = 4;

/// What is known of a peer's progress: marks, and how many looks in a row were in vain.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct Signs(u8);

/// Something came, or left, since the last look. Short messages by the quick way do not set it: their numbers tell, in
/// `look_at`.
pub(in crate::pml) const HEARD: u8 = 0x01;

/// A request waits for the peer.
pub(in crate::pml) const AWAITED: u8 = 0x02;

/// No sign, but kept with them: a message to the peer found no room.
pub(in crate::pml) const CROWDED_OUT: u8 = 0x04;

/// The peer asks for one.
pub(in crate::pml) const TO_ANSWER: u8 = 0x08;

/// One look in vain.
const SILENT: u8 = 0x10;

/// As many as there may be.
const SILENCE: u8 = 0x70;

/// The peer is to be asked for a sign as soon as there is room for the question.
pub(in crate::pml) const TO_ASK: u8 = 0x80;

const _: () = assert!(LOOKS <= SILENCE / SILENT);

impl Signs {
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
        (self.0 & SILENCE) / SILENT
    }

    /// One more look, at a peer that something is waited for or not. The time begins with the first look at one that is.
    pub(super) const fn look(&mut self, awaited: bool) {
        if !awaited {
            self.0 = (self.0 | HEARD) & !SILENCE;
        } else if self.has(HEARD) {
            self.0 &= !(HEARD | SILENCE);
        } else if self.silent() < LOOKS {
            self.0 = self.0.wrapping_add(SILENT);
        }
    }
}
