//! The pieces of messages that devices move.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::pml::rdma::config::Config;
use crate::pml::rdma::pins::{Pinned, Pins};
use crate::pool::{Handle, Pool};

/// What comes next with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(in crate::pml) enum PieceStage {
    /// The target is to offer it, if it can.
    ToOffer,
    /// The target waits for the word that it was moved.
    Offered,
    /// A target that receives is to tell that it offers no more.
    ToDecline,
    /// The initiator waits for an offer.
    Awaiting,
    /// The initiator's device had no room yet.
    ToMove,
    /// The initiator's device is at work.
    Moving,
    /// The initiator is to tell that it was moved, or cannot be.
    ToReport,
    /// Of a sender: frames go on from here.
    Left,
}

/// The piece of a message that is moved now, and what is known of those after it.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(in crate::pml) struct Piece {
    /// The request's slot.
    pub(super) request: u32,
    pub(super) stage: PieceStage,
    pub(super) rail: u8,
    /// Bytes of it. 0 in what is told: none could be moved.
    pub(super) len: u32,
    /// Of a sender: frames go up to here.
    pub(super) until: u64,
    /// Where in the message it begins.
    pub(super) offset: u64,
    /// Where the target's memory is.
    pub(super) key: [u8; 24],
    /// This side's memory for it, and for the next.
    pub(super) pin: Pinned,
    pub(super) ahead: Pinned,
    pub(super) ahead_len: u32,
}

/// All messages that devices move.
#[derive(Debug)]
pub(in crate::pml) struct Rdma<'m> {
    pub(super) pieces: Pool<'m, Piece>,
    pub(super) pins: Pins<'m>,
}

/// Registrations of one message: of the piece that is moved, and of the next.
const PINS_PER_MESSAGE: u32 = 2;

impl<'m> Rdma<'m> {
    /// Bytes that [`new`](Self::new) takes from an arena at most.
    pub const fn cost(config: &Config) -> usize {
        let used = config.messages.saturating_mul(PINS_PER_MESSAGE);
        Pool::<Piece>::cost(config.messages).saturating_add(Pins::cost(used, config.kept_pins))
    }

    pub fn new(config: Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self {
            pieces: Pool::new(arena, config.messages)?,
            pins: Pins::new(arena, config.messages.saturating_mul(PINS_PER_MESSAGE), config.kept_pins)?,
        })
    }

    /// Whether no message is moved: the usual case, and the first that is asked.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.pieces.used() == 0
    }

    /// The piece of a request.
    pub(super) fn of(&self, request: u32) -> Option<Handle> {
        if self.is_idle() {
            return None;
        }
        let own = |slot: &u32| self.pieces.at(*slot).is_some_and(|piece| piece.request == request);
        (0..self.pieces.touched()).find(own).and_then(|slot| self.pieces.handle(slot))
    }
}

/// What a receiver has chosen: whose device moves what does not come in frames, and how many bytes do beside the first fragment.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml) struct TransferPlan {
    pub flag: u8,
    pub by_frames: u32,
}

/// What a sender does when its frames have brought what they were to bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pml) enum AfterFrames {
    /// Nothing is left.
    Nothing,
    /// A device moves it, or is going to.
    ByDevice,
    /// More has to go in frames.
    ByFrames,
}
