//! The pieces of messages that devices move.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::pml::rdma::config::Config;
use crate::pml::rdma::pins::{Pinned, Pins};
use crate::pool::{Handle, Pool};

/// The stage of a piece: its next step, or what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(in crate::pml) enum PieceStage {
    /// The target is to offer the piece, if it can.
    ToOffer,
    /// The target waits for the report that the piece was moved.
    Offered,
    /// A target that receives is to report that it makes no more offers.
    ToDecline,
    /// The initiator waits for an offer.
    Awaiting,
    /// The initiator's device is to move it, as soon as the device has room.
    ToMove,
    /// The initiator's device is moving it.
    Moving,
    /// The initiator is to report that the piece was moved, or cannot be moved.
    ToReport,
    /// No device moves the piece: the sender goes on in frames from its first byte.
    Left,
}

/// The piece of a message that a device moves now, and what is known of the next one.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(in crate::pml) struct Piece {
    /// The request's slot.
    pub(super) request: u32,
    pub(super) stage: PieceStage,
    pub(super) rail: u8,
    /// Bytes of the piece. In a report, 0 means that none could be moved.
    pub(super) len: u32,
    /// Of a sender: frames carry the message up to this byte.
    pub(super) until: u64,
    /// The byte of the message where the piece begins.
    pub(super) offset: u64,
    /// The key of the target's memory.
    pub(super) key: [u8; 24],
    /// The registration of this side's memory for the piece.
    pub(super) pin: Pinned,
    /// The registration of this side's memory for the next piece.
    pub(super) ahead: Pinned,
    /// Bytes of the next piece.
    pub(super) ahead_len: u32,
}

/// The pieces of all messages that devices move, and the registrations.
#[derive(Debug)]
pub(in crate::pml) struct Rdma<'m> {
    pub(super) pieces: Pool<'m, Piece>,
    pub(super) pins: Pins<'m>,
}

/// Registrations of one message: one for the piece that is moved, and one for the next piece.
const PINS_PER_MESSAGE: u32 = 2;

impl<'m> Rdma<'m> {
    /// Most bytes that [`new`](Self::new) takes from an arena.
    pub const fn cost(config: &Config) -> usize {
        let used = config.messages.saturating_mul(PINS_PER_MESSAGE);
        Pool::<Piece>::cost(config.messages).saturating_add(Pins::cost(used, config.kept_pins))
    }

    pub fn new(config: Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        if !super::ENABLED {
            return Ok(Self { pieces: Pool::none(), pins: Pins::none() });
        }
        Ok(Self {
            pieces: Pool::new(arena, config.messages)?,
            pins: Pins::new(arena, config.messages.saturating_mul(PINS_PER_MESSAGE), config.kept_pins)?,
        })
    }

    /// Whether devices move no message: the usual case, so it is tested first.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        !super::ENABLED || self.pieces.used() == 0
    }

    /// The piece of a request.
    pub(in crate::pml) fn of(&self, request: u32) -> Option<Handle> {
        if self.is_idle() {
            return None;
        }
        let own = |slot: &u32| self.pieces.at(*slot).is_some_and(|piece| piece.request == request);
        (0..self.pieces.touched()).find(own).and_then(|slot| self.pieces.handle(slot))
    }
}

/// The plan of a receiver: the operation by which devices move the bytes (`FLAG_PUT`, `FLAG_GET`, or 0 for none), and how many
/// bytes come in frames after the first fragment.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml) struct TransferPlan {
    pub flag: u8,
    pub by_frames: u32,
}

/// The next step of a sender when its frames have carried their part of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pml) enum AfterFrames {
    /// The message is sent.
    Nothing,
    /// A device moves the other bytes, or is going to.
    ByDevice,
    /// Frames bring more bytes.
    ByFrames,
}
