//! The steps of a piece that this side takes: offer, move, report.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma::piece::{Piece, PieceStage};
use crate::pml::requests::cookie::request_cookie;
use crate::pml::requests::state::RECEIVE;
use crate::pml::send::schedule::charge;
use crate::pool::Handle;
use crate::rail::native::{Key, Local, Native, NativeError, OneSided, Reach, Work};
use crate::rail::{DeviceMemory, Endpoint, Rail, SendError};
use crate::rma::Access;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Takes the next steps of a request's piece. Returns whether the piece waits for room.
    pub(in crate::pml) fn advance_piece(&mut self, slot: u32) -> bool {
        while let Some(at) = self.rdma.of(slot) {
            let Some(piece) = self.rdma.pieces.get(at) else { return false };
            let done = match piece.stage {
                PieceStage::ToOffer => self.offer(slot, at),
                PieceStage::ToDecline => self.decline(slot),
                PieceStage::ToMove => self.begin_transfer(slot, at),
                PieceStage::ToReport => self.report_moved(slot, at),
                PieceStage::Offered | PieceStage::Awaiting | PieceStage::Moving | PieceStage::Left => return false,
            };
            if done.is_none() {
                return true;
            }
        }
        false
    }

    /// Takes the next steps of a receive's piece. The receive is in the active list only for that.
    pub(in crate::pml) fn advance_receive(&mut self, slot: u32) {
        if self.advance_piece(slot) {
            return self.activate(slot);
        }
        self.deactivate(slot);
        self.ended = self.ended.wrapping_add(1); // the receive may be over
        self.settle_receive(slot);
    }

    /// The target registers the memory of a piece and offers it. `None`: there is no room.
    fn offer(&mut self, slot: u32, at: Handle) -> Option<()> {
        let Some((piece, can)) = self.usable(slot, at) else { return self.fall_back(slot, at) };
        let Some(state) = self.requests.at(slot) else { return Some(()) };
        let (peer, remote, receives) = (state.peer, state.remote.as_handle(), state.flags & RECEIVE != 0);
        let left = state.wanted.saturating_sub(piece.offset);
        let len = left.min(longest(&can, receives));
        // Some devices read the bytes that they have written, to make sure that these have arrived.
        let put = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = if receives { put } else { Access::REMOTE_READ };
        let Some(pin) = self.pin_piece(slot, at, len, access) else { return self.fall_back(slot, at) };
        let Some((_, key)) = self.rdma.pins.names(pin) else { return self.fall_back(slot, at) };
        match self.control_on(peer, piece.rail.into(), wire::Offer::new(remote, piece.offset, len as u32, key)) {
            Ok(()) => {}
            Err(SendError::Busy) => return None,
            Err(_) => return self.fall_back(slot, at),
        }
        self.counters.offers_sent = self.counters.offers_sent.wrapping_add(1);
        let piece = self.rdma.pieces.get_mut(at)?;
        (piece.stage, piece.len) = (PieceStage::Offered, len as u32);
        self.pin_ahead(slot, at, access);
        Some(())
    }

    /// A target that receives reports that it offers nothing more.
    fn decline(&mut self, slot: u32) -> Option<()> {
        let state = self.requests.at(slot)?;
        let (peer, word) = (state.peer, wire::Offer::new(state.remote.as_handle(), 0, 0, Key([0; 24])));
        if self.control(peer, word) == Err(SendError::Busy) {
            return None;
        }
        self.release_piece(slot);
        Some(())
    }

    /// The initiator's device begins to move the offered bytes. `None`: the device is busy.
    fn begin_transfer(&mut self, slot: u32, at: Handle) -> Option<()> {
        let Some((piece, can)) = self.usable(slot, at) else { return self.fall_back(slot, at) };
        let Some(handle) = self.requests.handle(slot) else { return Some(()) };
        let Some(state) = self.requests.at(slot) else { return Some(()) };
        let (peer, gets, len) = (state.peer, state.flags & RECEIVE != 0, u64::from(piece.len));
        let Some((base, _)) = state.span.window(piece.offset, len).as_run() else { return self.fall_back(slot, at) };
        let reach = if gets { can.get } else { can.put };
        if !reach.takes(0, base.addr() as u64, len) {
            return self.fall_back(slot, at);
        }
        let access = if gets { Access::LOCAL_WRITE } else { Access::empty() };
        let mut region = None;
        if len >= reach.local_registration {
            let Some(pin) = self.pin_piece(slot, at, len, access) else { return self.fall_back(slot, at) };
            region = self.rdma.pins.names(pin).map(|(region, _)| region);
        }
        let local = Local { base, len, region };
        let work = if gets { Work::Get(local) } else { Work::Put(local) };
        let native = Native { work, key: Key(piece.key), offset: 0 };
        let Some(endpoint) = self.link_in_use(peer, piece.rail) else { return self.fall_back(slot, at) };
        let rail = self.rails.rail_mut(piece.rail.into())?;
        // SAFETY: the caller of `isend` or `irecv` guarantees that the memory is valid until the request is over. It is not over
        // before the device has reported, or the link is down or the peer lost (`inflight`).
        let begun = unsafe { rail.perform(endpoint, &native, request_cookie(handle)) };
        let told = match begun {
            Ok(told) => told,
            Err(NativeError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                return None;
            }
            Err(_) => return self.fall_back(slot, at),
        };
        let round = self.round;
        let count = self.rails.count();
        let start = (peer as usize).wrapping_mul(count);
        if let Some(row) = self.links.get_mut(start..start.wrapping_add(count))
            && let Some(place) = row.iter().position(|link| link.is_of(piece.rail.into()))
        {
            charge(row, place, round, len);
        }
        if let Some(state) = self.requests.at_mut(slot) {
            state.inflight = state.inflight.saturating_add(1);
        }
        self.rdma.pieces.get_mut(at)?.stage = PieceStage::Moving;
        if told.is_some() {
            self.piece_moved(handle, true);
        } else if len >= reach.local_registration {
            self.pin_ahead(slot, at, access);
        }
        Some(())
    }

    /// The initiator reports the bytes that its device has moved.
    fn report_moved(&mut self, slot: u32, at: Handle) -> Option<()> {
        let state = self.requests.at(slot)?;
        let piece = self.rdma.pieces.get(at)?;
        let (peer, len) = (state.peer, u64::from(piece.len));
        let word = wire::Performed::new(state.remote.as_handle(), piece.offset, piece.len);
        if self.control(peer, word) == Err(SendError::Busy) {
            return None;
        }
        let state = self.requests.at_mut(slot)?;
        let receives = state.flags & RECEIVE != 0;
        if receives {
            state.moved = state.moved.saturating_add(len);
        }
        if len == 0 {
            self.release_piece(slot); // this side receives, and frames bring the other bytes
            return Some(());
        }
        self.next_piece(slot, at, PieceStage::Awaiting);
        Some(())
    }

    /// Goes on with the next piece, if there is one, when a piece was moved and reported.
    pub(in crate::pml) fn next_piece(&mut self, slot: u32, at: Handle, next: PieceStage) {
        let Some(state) = self.requests.at(slot) else { return };
        let (receives, wanted) = (state.flags & RECEIVE != 0, state.wanted);
        let Some(piece) = self.rdma.pieces.get_mut(at) else { return };
        piece.offset = piece.offset.saturating_add(piece.len.into());
        let pin = core::mem::take(&mut piece.pin);
        let done = piece.offset >= wanted;
        piece.stage = if done { PieceStage::Left } else { next };
        let counted = u64::from(piece.len);
        piece.len = 0;
        self.rdma.pins.unpin(&mut self.rails, pin, true);
        self.counters.pieces = self.counters.pieces.wrapping_add(1);
        self.counters.bytes_by_device = self.counters.bytes_by_device.wrapping_add(counted);
        if done && receives {
            self.release_piece(slot);
        }
    }

    /// Gives up moving a message by a device: frames bring the other bytes.
    pub(in crate::pml) fn fall_back(&mut self, slot: u32, at: Handle) -> Option<()> {
        let receives = self.requests.at(slot)?.flags & RECEIVE != 0;
        let piece = self.rdma.pieces.get_mut(at)?;
        let pins = [core::mem::take(&mut piece.pin), core::mem::take(&mut piece.ahead)];
        piece.stage = match piece.stage {
            _ if !receives => PieceStage::Left,
            PieceStage::ToOffer => PieceStage::ToDecline,
            _ => PieceStage::ToReport,
        };
        piece.len = 0;
        for pin in pins {
            self.rdma.pins.unpin(&mut self.rails, pin, false);
        }
        self.counters.device_failures = self.counters.device_failures.wrapping_add(1);
        Some(())
    }

    /// Frees the piece of a request, if it has one, and the registrations for it.
    pub(in crate::pml) fn release_piece(&mut self, slot: u32) {
        let Some(piece) = self.rdma.of(slot).and_then(|at| self.rdma.pieces.free(at)) else { return };
        self.rdma.pins.unpin(&mut self.rails, piece.pin, false);
        self.rdma.pins.unpin(&mut self.rails, piece.ahead, false);
    }

    /// A piece, and what the device of its rail can do with the memory. `None` if the link is suspended.
    fn usable(&self, slot: u32, at: Handle) -> Option<(Piece, OneSided)> {
        let piece = *self.rdma.pieces.get(at)?;
        let state = self.requests.at(slot)?;
        self.link_in_use(state.peer, piece.rail)?;
        let can = self.rails.rail(piece.rail.into())?.attributes().reach(state.span.accelerator().is_some());
        Some((piece, can)).filter(|_| !can.at_once)
    }

    fn link_in_use(&self, peer: u32, rail: u8) -> Option<Endpoint> {
        let links = self.peers.get(peer as usize)?.route.links;
        let mut used = self.peer_links(peer).take(links.into());
        used.find(|link| link.is_of(rail.into())).map(|link| Endpoint(link.endpoint))
    }
}

/// Most bytes of a piece.
pub(in crate::pml) fn longest(can: &OneSided, put: bool) -> u64 {
    let Reach { limit, .. } = if put { can.put } else { can.get };
    limit.min(can.pipeline.piece.into())
}
