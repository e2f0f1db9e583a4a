//! Reports of peers, devices and links about a piece.

use zerocopy::FromZeros;

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma::piece::{Piece, PieceStage};
use crate::pml::rdma::pins::Pinned;
use crate::pml::requests::state::{Phase, RECEIVE, Remote};
use crate::pml::stall::liveness::HEARD;
use crate::pool::Handle;
use crate::rail::native::NativeError;
use crate::rail::{Cookie, Peer};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Handles the offer of memory for the next piece of a message. The memory is registered with the rail that brought the
    /// offer. An offer that has migrated (`rail` is `None`) may belong to any rail, so no piece is moved with it.
    pub(in crate::pml) fn on_offer(&mut self, from: Peer, rail: Option<usize>, header: &wire::Offer) {
        let (handle, offset, len) = (Handle::from_bits(header.request.get()), header.offset.get(), header.len.get());
        let slot = handle.slot();
        let at = self.rdma.of(slot);
        let found = self.requests.get_mut(handle).filter(|state| {
            let phase = if state.flags & RECEIVE != 0 { Phase::Receiving } else { Phase::Streaming };
            let end = if state.phase == Phase::Waiting { state.total } else { state.wanted };
            state.peer == from.0
                && (state.phase == phase || (state.phase == Phase::Waiting && state.flags & RECEIVE == 0))
                && offset.checked_add(len.into()).is_some_and(|last| last <= end)
        });
        let Some(state) = found else { return self.count_unused_offer() };
        let (receives, waits) = (state.flags & RECEIVE != 0, state.phase == Phase::Waiting);
        let Some(at) = at else {
            // The request has no piece: the offer is late, or has overtaken the ack.
            return if waits { self.keep_early_offer(slot, rail, header) } else { self.count_unused_offer() };
        };
        let Some(piece) = self.rdma.pieces.get_mut(at).filter(|piece| piece.stage == PieceStage::Awaiting) else {
            return self.count_unused_offer();
        };
        match rail {
            _ if len == 0 && !receives => piece.stage = PieceStage::Left,
            _ if len == 0 || piece.offset != offset => return self.count_unused_offer(),
            Some(rail) => {
                let other = usize::from(piece.rail) != rail;
                let ahead = if other { core::mem::take(&mut piece.ahead) } else { Pinned::NONE };
                (piece.stage, piece.rail, piece.len, piece.key) = (PieceStage::ToMove, rail as u8, len, header.key);
                self.rdma.pins.unpin(&mut self.rails, ahead, true); // another rail moves the next piece
            }
            None => {
                self.count_unused_offer();
                self.fall_back(slot, at);
            }
        }
        self.activate(slot);
    }

    fn count_unused_offer(&mut self) {
        self.counters.offers_unused = self.counters.offers_unused.wrapping_add(1);
    }

    /// Keeps an offer that has overtaken the ack. Without a free slot the offer is dropped and frames bring all bytes. This is
    /// noted, since a slot may be free when the ack comes: the message must not wait for the dropped offer.
    fn keep_early_offer(&mut self, slot: u32, rail: Option<usize>, header: &wire::Offer) {
        let piece = rail.filter(|_| header.len.get() != 0).map(|rail| Piece {
            request: slot,
            stage: PieceStage::ToMove,
            rail: rail as u8,
            len: header.len.get(),
            offset: header.offset.get(),
            key: header.key,
            ..Piece::new_zeroed()
        });
        if piece.is_some_and(|piece| self.rdma.pieces.take(piece).is_ok()) {
            return;
        }
        self.count_unused_offer();
        if let Some(state) = self.requests.at_mut(slot) {
            state.remote.set(Remote::DECLINES_DEVICE);
        }
    }

    /// Forgets the offer for a send that is held back again: the next ack brings other offers.
    pub(in crate::pml) fn forget_early_offer(&mut self, slot: u32) {
        self.release_piece(slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.remote.clear(Remote::DECLINES_DEVICE);
        }
    }

    /// Handles the report that the peer's device has moved the offered piece, or cannot move it (length 0).
    pub(in crate::pml) fn on_performed(&mut self, from: Peer, header: &wire::Performed) {
        let (handle, offset, len) = (Handle::from_bits(header.request.get()), header.offset.get(), header.len.get());
        let slot = handle.slot();
        let at = self.rdma.of(slot);
        let offered = at.and_then(|at| self.rdma.pieces.get(at)).filter(|piece| {
            piece.stage == PieceStage::Offered && piece.offset == offset && (len == piece.len || len == 0)
        });
        let found = self.requests.get_mut(handle).filter(|state| {
            let receives = state.flags & RECEIVE != 0;
            let phase = if receives { Phase::Receiving } else { Phase::Streaming };
            let room = state.wanted.saturating_sub(state.moved) >= u64::from(len);
            state.peer == from.0 && state.phase == phase && (!receives || (room && len != 0))
        });
        let (Some(at), Some(_), Some(state)) = (at, offered, found) else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return;
        };
        let receives = state.flags & RECEIVE != 0;
        if receives {
            state.moved = state.moved.saturating_add(len.into());
        }
        if len == 0 {
            self.fall_back(slot, at);
        } else {
            self.next_piece(slot, at, PieceStage::ToOffer);
        }
        if receives {
            self.advance_receive(slot);
        } else {
            self.activate(slot);
        }
    }

    /// Handles the report of a device of this side that it has moved a piece, or failed.
    #[cold]
    pub(in crate::pml) fn device_done(&mut self, cookie: Cookie, result: Result<u64, NativeError>) {
        self.piece_moved(Handle::from_bits(cookie.0), result.is_ok());
    }

    /// Handles the end of the device's work on a request's piece. `moved`: with success.
    pub(in crate::pml) fn piece_moved(&mut self, request: Handle, moved: bool) {
        let slot = request.slot();
        let Some(at) = self.requests.get(request).and_then(|_| self.rdma.of(slot)) else { return };
        let Some(piece) = self.rdma.pieces.get_mut(at).filter(|piece| piece.stage == PieceStage::Moving) else {
            return;
        };
        piece.stage = PieceStage::ToReport;
        if let Some(state) = self.requests.at_mut(slot) {
            state.inflight = state.inflight.saturating_sub(1);
            let peer = state.peer as usize;
            if let Some(peer) = self.peers.get_mut(peer) {
                peer.liveness.set(HEARD);
            }
        }
        if !moved {
            self.fall_back(slot, at);
        }
        self.activate(slot);
    }

    /// Takes the pieces of a peer from the device of a link that is down. The device does not access memory any more.
    pub(in crate::pml) fn drop_pieces(&mut self, rail: usize, peer: Peer) {
        for place in 0..self.rdma.pieces.touched() {
            let Some(at) = self.rdma.pieces.handle(place) else { continue };
            let Some(piece) = self.rdma.pieces.get(at).filter(|piece| usize::from(piece.rail) == rail) else {
                continue;
            };
            let (slot, stage) = (piece.request, piece.stage);
            let Some(state) = self.requests.at_mut(slot).filter(|state| state.peer == peer.0) else { continue };
            match stage {
                PieceStage::Moving => state.inflight = state.inflight.saturating_sub(1),
                PieceStage::ToMove => {}
                _ => continue,
            }
            match state.phase {
                Phase::Streaming | Phase::Receiving => {
                    self.fall_back(slot, at);
                    self.activate(slot);
                }
                // The ack has not arrived, and the offer will not be repeated.
                _ => {
                    state.remote.set(Remote::DECLINES_DEVICE);
                    self.release_piece(slot);
                }
            }
        }
    }
}
