//! The plan of a message: which bytes a device moves, and which bytes come in frames.

use zerocopy::FromZeros;

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::peers::link::PeerLink;
use crate::pml::rails::Rails;
use crate::pml::rdma::piece::{AfterFrames, Piece, PieceStage, TransferPlan};
use crate::pml::requests::state::Remote;
use crate::pool::Handle;
use crate::rail::native::{OneSided, Pipeline};
use crate::rail::{Endpoint, Liveness, Rail};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// The plan of a message that has matched. `None`: no device moves any of it.
    pub(in crate::pml) fn plan(&mut self, slot: u32) -> Option<TransferPlan> {
        let at = self.rdma.of(slot).or_else(|| self.begin_piece(slot))?;
        let (piece, state) = (self.rdma.pieces.get(at)?, self.requests.at(slot)?);
        let flag = if piece.stage == PieceStage::Awaiting { wire::FLAG_GET } else { wire::FLAG_PUT };
        Some(TransferPlan { flag, by_frames: piece.offset.saturating_sub(state.moved) as u32 })
    }

    fn begin_piece(&mut self, slot: u32) -> Option<Handle> {
        if !super::ENABLED || self.config.rdma.messages == 0 {
            return None;
        }
        let state = self.requests.at(slot)?;
        let left = state.wanted.saturating_sub(state.moved);
        let span = state.span.window(state.moved, left);
        span.as_run()?;
        let (rail, gets, by_frames) = self.device_for(state.peer, &span, state.moved, state.wanted)?;
        let stage = if gets { PieceStage::Awaiting } else { PieceStage::ToOffer };
        let piece = Piece { request: slot, stage, rail, offset: by_frames, until: by_frames, ..Piece::new_zeroed() };
        self.rdma.pieces.take(piece).ok()
    }

    /// The rail whose device is to move the last part of a message, whether the device gets, and the first byte of that part.
    fn device_for(&self, peer: u32, span: &Span, moved: u64, wanted: u64) -> Option<(u8, bool, u64)> {
        let links = self.peers.get(peer as usize).filter(|_| self.may_offer(peer))?.route.links;
        let used = || self.peer_links(peer).take(links.into());
        let all: u64 = used().map(|link| u64::from(link.bandwidth)).fold(0, u64::saturating_add).max(1);
        used().find_map(|link| {
            let can = self.device_of(link, span)?;
            let Pipeline { least, by_frames, gets, .. } = can.pipeline;
            let (may_put, may_get) = (can.put.limit != 0, can.get.limit != 0);
            if !(may_put || may_get) || wanted < least {
                return None;
            }
            // Frames on the other links carry the share of these links meanwhile.
            let (others, left) = (all.saturating_sub(link.bandwidth.into()), wanted.saturating_sub(moved));
            let share = (left / all).saturating_mul(others).saturating_add((left % all).saturating_mul(others) / all);
            let until = moved.saturating_add(by_frames.max(share).min(u32::MAX.into()));
            (until < wanted).then_some((link.rail, may_get && (gets || !may_put), until))
        })
    }

    /// What the device of a link's rail can do with the memory of a span. `None`: the device moves no messages, or the link is
    /// not connected yet, so that an offer would wait for the connection.
    fn device_of(&self, link: &PeerLink, span: &Span) -> Option<OneSided> {
        let rail = self.rails.rail(link.rail.into())?;
        let can = rail.attributes().reach(span.accelerator().is_some());
        (!can.at_once && can.pipeline.piece != 0 && rail.is_connected(Endpoint(link.endpoint))).then_some(can)
    }

    /// Whether all rails to a peer can carry an offer, since an offer may migrate to any of them.
    fn may_offer(&self, peer: u32) -> bool {
        let takes = |rail: &R::Rail| rail.attributes().eager_limit as usize >= size_of::<wire::Offer>();
        self.peer_links(peer).all(|link| self.rails.rail(link.rail.into()).is_some_and(takes))
    }

    /// Follows the receiver's plan for a send.
    pub(in crate::pml) fn await_device(&mut self, slot: u32, plan: TransferPlan) {
        if !super::ENABLED {
            return; // frames bring all bytes
        }
        let Some(state) = self.requests.at(slot) else { return };
        let (peer, wanted, abstains) = (state.peer, state.wanted, state.remote.has(Remote::DECLINES_DEVICE));
        let until = state.moved.saturating_add(plan.by_frames.into());
        let (gets, asks) = (plan.flag & wire::FLAG_GET != 0, plan.flag != 0 && until < wanted);
        let early = self.rdma.of(slot);
        if let Some(at) = early {
            let fits = |piece: &&mut Piece| asks && !gets && piece.offset == until;
            match self.rdma.pieces.get_mut(at).filter(fits) {
                Some(piece) => piece.until = until,
                None => self.release_piece(slot),
            }
        } else if asks && !abstains {
            // If devices put, the offer tells which rail it is.
            let rail = if gets { self.getter_for(peer, &state.span) } else { Some(0) };
            let stage = if gets { PieceStage::ToOffer } else { PieceStage::Awaiting };
            if let Some(rail) = rail {
                let _ = self.rdma.pieces.take(Piece {
                    request: slot,
                    stage,
                    rail,
                    until,
                    offset: until,
                    ..Piece::new_zeroed()
                });
            }
        }
    }

    /// The rail by which the peer's device is to get this side's memory.
    fn getter_for(&self, peer: u32, span: &Span) -> Option<u8> {
        let links = self.peers.get(peer as usize).filter(|_| self.may_offer(peer))?.route.links;
        let gets = |link: &&PeerLink| self.device_of(link, span).is_some_and(|can| can.get.limit != 0);
        self.peer_links(peer).take(links.into()).find(gets).map(|link| link.rail)
    }

    /// The byte up to which frames carry a send.
    pub(in crate::pml) fn frames_until(&self, slot: u32, wanted: u64) -> u64 {
        self.rdma.of(slot).and_then(|at| self.rdma.pieces.get(at)).map_or(wanted, |piece| piece.until)
    }

    /// Decides how a send goes on when frames have carried their part of the message.
    pub(in crate::pml) fn after_frames(&mut self, slot: u32) -> AfterFrames {
        let Some(at) = self.rdma.of(slot) else { return AfterFrames::Nothing };
        let Some(piece) = self.rdma.pieces.get(at) else { return AfterFrames::Nothing };
        if piece.stage != PieceStage::Left {
            return AfterFrames::ByDevice;
        }
        let Some(state) = self.requests.at_mut(slot) else { return AfterFrames::Nothing };
        state.moved = piece.offset;
        let rest = if state.moved < state.wanted { AfterFrames::ByFrames } else { AfterFrames::Nothing };
        self.release_piece(slot);
        rest
    }
}
