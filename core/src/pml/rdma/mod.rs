//! Long messages that a rail's device moves, from the sender's memory to the receiver's, without a copy.
//!
//! The receiver chooses when the message has matched: its ack says how many bytes are to come in frames, as those of any message
//! do, and the rest is moved in pieces, one at a time. Whose memory a device reaches is the *target*: it registers the memory for a
//! piece and offers it. The other side is the *initiator*: its device moves the piece, and it tells when that is done. Then comes the
//! next offer. Where devices put, the receiver is the target; where they only get, or are to ([`Pipeline::gets`]), the sender is.
//!
//! - **Pipelined**: while the first memory is registered, frames bring [`Pipeline::by_frames`] bytes; while a piece is moved, both
//!   sides register what comes next.
//! - **Shared**: frames bring as many bytes as the other links can carry meanwhile, by their bandwidth. The device of one rail moves
//!   pieces of a message, those of others do not.
//! - **Nobody has to**: whoever cannot (no slot, memory that is not contiguous, a device that refuses, a link that breaks) says so or
//!   simply does not, and all that is left comes in frames. Frames need no word of it, so nothing waits for a device that is gone.
//! - **The initiator knows.** It alone says what its device has moved. A sender whose device was interrupted sends the piece once more,
//!   in frames; it is the same bytes for the same place, and the receiver counts what it is told and no more. A receiver whose device
//!   was, says so, and the sender's memory stays until then.
//! - **Memory ends with the request**: before a request is over its memory is registered no longer, so a write that comes late
//!   finds nothing. What is [kept](Config::kept_pins) was moved and told of in good order.
//!
//! Neither side waits for a slot here: a message that finds none goes in frames. A hostile peer can have its messages hold all slots,
//! and then those of others are slower; it can do no more.

mod pins;
#[cfg(test)]
mod tests;

use zerocopy::FromZeros;

use self::pins::{Pinned, Pins, Wanted};
use super::engine::{Pml, Rails};
use super::peer::Link;
use super::request::{Phase, RECEIVE};
use super::send::{charge, request_cookie};
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::rail::native::{Key, Local, Native, NativeError, OneSided, Pipeline, Reach, Work};
use crate::rail::{Cookie, DeviceMemory, Endpoint, Liveness, Peer, Rail, SendError};
use crate::rma::Access;
use crate::wire;

/// How an engine uses devices that reach memory of peers, and tell later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Messages at most that devices move at the same time; others go in frames. Each side counts its own. A slot is found by
    /// looking at all that were ever in use, so this is meant to be a few dozen.
    pub messages: u32,
    /// Registrations that stay when their message is over, for the next one with the same memory: each of a piece at most
    /// ([`Pipeline::piece`]). Not 0 only where [`Pml::forget_memory`] is called before any memory of messages is unmapped, and
    /// peers may be trusted not to write to memory of messages that are over.
    pub kept_pins: u32,
    /// Devices also put to [registered memory](Pml::register) and get from it.
    pub windows: bool,
}

impl Config {
    /// They are not used.
    pub const OFF: Self = Self { messages: 0, kept_pins: 0, windows: false };

    /// Registrations of one message: of the piece that is moved, and of the next.
    const PINS: u32 = 2;

    pub(super) const fn bytes(&self) -> usize {
        Pool::<Piece>::cost(self.messages)
            .saturating_add(Pins::cost(self.messages.saturating_mul(Self::PINS), self.kept_pins))
    }
}

/// In `State::remote` of a send that waits: the memory that it was offered found no slot.
const ABSTAINS: u64 = 2;

/// What comes next with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
enum Stage {
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
    ToTell,
    /// Of a sender: frames go on from here.
    Left,
}

/// The piece of a message that is moved now, and what is known of those after it.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Piece {
    /// The request's slot.
    request: u32,
    stage: Stage,
    rail: u8,
    /// Bytes of it. 0 in what is told: none could be moved.
    len: u32,
    /// Of a sender: frames go up to here.
    until: u64,
    /// Where in the message it begins.
    offset: u64,
    /// Where the target's memory is.
    key: [u8; 24],
    /// This side's memory for it, and for the next.
    pin: Pinned,
    ahead: Pinned,
    ahead_len: u32,
}

/// All messages that devices move.
#[derive(Debug)]
pub(super) struct Rdma<'m> {
    pieces: Pool<'m, Piece>,
    pins: Pins<'m>,
}

impl<'m> Rdma<'m> {
    pub fn new(config: Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self {
            pieces: Pool::new(arena, config.messages)?,
            pins: Pins::new(arena, config.messages.saturating_mul(Config::PINS), config.kept_pins)?,
        })
    }

    /// Whether no message is moved: the usual case, and the first that is asked.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.pieces.used() == 0
    }

    /// The piece of a request.
    fn of(&self, request: u32) -> Option<Handle> {
        if self.is_idle() {
            return None;
        }
        let own = |slot: &u32| self.pieces.at(*slot).is_some_and(|piece| piece.request == request);
        (0..self.pieces.touched()).find(own).and_then(|slot| self.pieces.handle(slot))
    }
}

/// What a receiver has chosen: whose device moves what does not come in frames, and how many bytes do beside the first fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub flag: u8,
    pub by_frames: u32,
}

/// What a sender does when its frames have brought what they were to bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// Nothing is left.
    Nothing,
    /// A device moves it, or is going to.
    ByDevice,
    /// More has to go in frames.
    ByFrames,
}

impl<R: Rails> Pml<'_, R> {
    /// Says that memory is about to be unmapped, or otherwise to become other memory: none of it stays registered for messages to come
    /// ([`Config::kept_pins`]). Not while a message is sent from it, or received into it.
    pub fn forget_memory(&mut self, base: *mut u8, len: usize) {
        self.rdma.pins.forget(&mut self.rails, base, len as u64);
    }

    /// The same of all memory.
    pub(super) fn forget_all_memory(&mut self) {
        self.rdma.pins.forget(&mut self.rails, core::ptr::null_mut(), u64::MAX);
    }

    /// Registrations for messages: those in use, and those that are [kept](Config::kept_pins).
    pub fn pins(&self) -> [u32; 2] {
        self.rdma.pins.count()
    }

    /// Of a message that has matched: what a device moves. `None`: nothing.
    pub(super) fn plan(&mut self, slot: u32) -> Option<Plan> {
        let at = self.rdma.of(slot).or_else(|| self.begin_piece(slot))?;
        let (piece, state) = (self.rdma.pieces.get(at)?, self.requests.at(slot)?);
        let flag = if piece.stage == Stage::Awaiting { wire::FLAG_GET } else { wire::FLAG_PUT };
        Some(Plan { flag, by_frames: piece.offset.saturating_sub(state.moved) as u32 })
    }

    fn begin_piece(&mut self, slot: u32) -> Option<Handle> {
        if self.config.rdma.messages == 0 {
            return None;
        }
        let state = self.requests.at(slot)?;
        let left = state.wanted.saturating_sub(state.moved);
        let span = state.span.window(state.moved, left);
        span.as_run()?;
        let (rail, gets, by_frames) = self.device_for(state.peer, &span, state.moved, state.wanted)?;
        let stage = if gets { Stage::Awaiting } else { Stage::ToOffer };
        let piece = Piece { request: slot, stage, rail, offset: by_frames, until: by_frames, ..Piece::new_zeroed() };
        self.rdma.pieces.take(piece).ok()
    }

    /// The rail whose device is to move the rest of a message, whether by getting, and from where in it on.
    fn device_for(&self, peer: u32, span: &Span, moved: u64, wanted: u64) -> Option<(u8, bool, u64)> {
        let links = self.peers.get(peer as usize).filter(|_| self.may_offer(peer))?.links;
        let used = || self.row(peer).take(links.into());
        let all: u64 = used().map(|link| u64::from(link.bandwidth)).fold(0, u64::saturating_add).max(1);
        used().find_map(|link| {
            let can = self.device_of(link, span)?;
            let Pipeline { least, by_frames, gets, .. } = can.pipeline;
            let (may_put, may_get) = (can.put.limit != 0, can.get.limit != 0);
            if !(may_put || may_get) || wanted < least {
                return None;
            }
            // The other links carry their share meanwhile.
            let (others, left) = (all.saturating_sub(link.bandwidth.into()), wanted.saturating_sub(moved));
            let share = (left / all).saturating_mul(others).saturating_add((left % all).saturating_mul(others) / all);
            let until = moved.saturating_add(by_frames.max(share).min(u32::MAX.into()));
            (until < wanted).then_some((link.rail, may_get && (gets || !may_put), until))
        })
    }

    /// What the device of a link's rail can do with such memory. `None`: it moves no messages; or the two sides have not met by this link, so that an
    /// offer would wait until they have.
    fn device_of(&self, link: &Link, span: &Span) -> Option<OneSided> {
        let rail = self.rails.rail(link.rail.into())?;
        let can = rail.attributes().reach(span.accelerator().is_some());
        (!can.at_once && can.pipeline.piece != 0 && rail.is_connected(Endpoint(link.endpoint))).then_some(can)
    }

    /// Whether all rails to a peer take an offer, since any may have to carry it in the end.
    fn may_offer(&self, peer: u32) -> bool {
        let takes = |rail: &R::Rail| rail.attributes().eager_limit as usize >= size_of::<wire::Offer>();
        self.row(peer).all(|link| self.rails.rail(link.rail.into()).is_some_and(takes))
    }

    /// The receiver has said what is to come in frames. Of a send.
    pub(super) fn await_device(&mut self, slot: u32, plan: Plan) {
        let Some(state) = self.requests.at(slot) else { return };
        let (peer, wanted, abstains) = (state.peer, state.wanted, state.remote & ABSTAINS != 0);
        let until = state.moved.saturating_add(plan.by_frames.into());
        let (gets, asks) = (plan.flag & wire::FLAG_GET != 0, plan.flag != 0 && until < wanted);
        let early = self.rdma.of(slot);
        if let Some(at) = early {
            let fits = |piece: &&mut Piece| asks && !gets && piece.offset == until;
            match self.rdma.pieces.get_mut(at).filter(fits) {
                Some(piece) => piece.until = until,
                None => self.let_go(slot),
            }
        } else if asks && !abstains {
            // What it puts with is told by the offer.
            let rail = if gets { self.getter_for(peer, &state.span) } else { Some(0) };
            let stage = if gets { Stage::ToOffer } else { Stage::Awaiting };
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

    /// The rail by which a peer is to get.
    fn getter_for(&self, peer: u32, span: &Span) -> Option<u8> {
        let links = self.peers.get(peer as usize).filter(|_| self.may_offer(peer))?.links;
        let gets = |link: &&Link| self.device_of(link, span).is_some_and(|can| can.get.limit != 0);
        self.row(peer).take(links.into()).find(gets).map(|link| link.rail)
    }

    /// How far a send goes in frames.
    pub(super) fn frames_until(&self, slot: u32, wanted: u64) -> u64 {
        self.rdma.of(slot).and_then(|at| self.rdma.pieces.get(at)).map_or(wanted, |piece| piece.until)
    }

    /// Frames of a send have brought what they were to bring.
    pub(super) fn after_frames(&mut self, slot: u32) -> Rest {
        let Some(at) = self.rdma.of(slot) else { return Rest::Nothing };
        let Some(piece) = self.rdma.pieces.get(at) else { return Rest::Nothing };
        if piece.stage != Stage::Left {
            return Rest::ByDevice;
        }
        let Some(state) = self.requests.at_mut(slot) else { return Rest::Nothing };
        state.moved = piece.offset;
        let rest = if state.moved < state.wanted { Rest::ByFrames } else { Rest::Nothing };
        self.let_go(slot);
        rest
    }

    /// Does what is to be done for a request that a device has a part in. Tells whether it waits for room.
    pub(super) fn further(&mut self, slot: u32) -> bool {
        while let Some(at) = self.rdma.of(slot) {
            let Some(piece) = self.rdma.pieces.get(at) else { return false };
            let done = match piece.stage {
                Stage::ToOffer => self.offer(slot, at),
                Stage::ToDecline => self.decline(slot),
                Stage::ToMove => self.begin_to_move(slot, at),
                Stage::ToTell => self.tell_moved(slot, at),
                Stage::Offered | Stage::Awaiting | Stage::Moving | Stage::Left => return false,
            };
            if done.is_none() {
                return true;
            }
        }
        false
    }

    /// The same for a receive, which is in the active list for that alone.
    pub(super) fn further_receive(&mut self, slot: u32) {
        if self.further(slot) {
            return self.activate(slot);
        }
        self.deactivate(slot);
        self.ended = self.ended.wrapping_add(1); // it may be over
        self.settle_receive(slot);
    }

    /// The target registers the memory of a piece and offers it. `None`: there is no room.
    fn offer(&mut self, slot: u32, at: Handle) -> Option<()> {
        let Some((piece, can)) = self.usable(slot, at) else { return self.fail(slot, at) };
        let Some(state) = self.requests.at(slot) else { return Some(()) };
        let (peer, remote, receives) = (state.peer, state.remote, state.flags & RECEIVE != 0);
        let left = state.wanted.saturating_sub(piece.offset);
        let len = left.min(longest(&can, receives));
        // There are devices that read what they have written, to know that it is there.
        let put = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let access = if receives { put } else { Access::REMOTE_READ };
        let Some(pin) = self.pin_piece(slot, at, len, access) else { return self.fail(slot, at) };
        let Some((_, key)) = self.rdma.pins.names(pin) else { return self.fail(slot, at) };
        match self.control_on(peer, piece.rail.into(), wire::Offer::new(remote, piece.offset, len as u32, key)) {
            Ok(()) => {}
            Err(SendError::Busy) => return None,
            Err(_) => return self.fail(slot, at),
        }
        self.counters.offers_sent = self.counters.offers_sent.wrapping_add(1);
        let piece = self.rdma.pieces.get_mut(at)?;
        (piece.stage, piece.len) = (Stage::Offered, len as u32);
        self.pin_ahead(slot, at, access);
        Some(())
    }

    /// A target that receives has nothing to offer any more.
    fn decline(&mut self, slot: u32) -> Option<()> {
        let state = self.requests.at(slot)?;
        let (peer, word) = (state.peer, wire::Offer::new(state.remote, 0, 0, Key([0; 24])));
        if self.control(peer, word) == Err(SendError::Busy) {
            return None;
        }
        self.let_go(slot);
        Some(())
    }

    /// The initiator's device begins with what was offered. `None`: it has no room.
    fn begin_to_move(&mut self, slot: u32, at: Handle) -> Option<()> {
        let Some((piece, can)) = self.usable(slot, at) else { return self.fail(slot, at) };
        let Some(handle) = self.requests.handle(slot) else { return Some(()) };
        let Some(state) = self.requests.at(slot) else { return Some(()) };
        let (peer, gets, len) = (state.peer, state.flags & RECEIVE != 0, u64::from(piece.len));
        let Some((base, _)) = state.span.window(piece.offset, len).as_run() else { return self.fail(slot, at) };
        let reach = if gets { can.get } else { can.put };
        if !reach.takes(0, base.addr() as u64, len) {
            return self.fail(slot, at);
        }
        let access = if gets { Access::LOCAL_WRITE } else { Access::empty() };
        let mut region = None;
        if len >= reach.local_registration {
            let Some(pin) = self.pin_piece(slot, at, len, access) else { return self.fail(slot, at) };
            region = self.rdma.pins.names(pin).map(|(region, _)| region);
        }
        let local = Local { base, len, region };
        let work = if gets { Work::Get(local) } else { Work::Put(local) };
        let native = Native { work, key: Key(piece.key), offset: 0 };
        let Some(endpoint) = self.link_in_use(peer, piece.rail) else { return self.fail(slot, at) };
        let rail = self.rails.rail_mut(piece.rail.into())?;
        // SAFETY: the caller of `isend` or `irecv` vouches for the memory until the request is over, which it is not before the
        // device has told, or the link is down or the peer lost (`inflight`).
        let begun = unsafe { rail.perform(endpoint, &native, request_cookie(handle)) };
        let told = match begun {
            Ok(told) => told,
            Err(NativeError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                return None;
            }
            Err(_) => return self.fail(slot, at),
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
        self.rdma.pieces.get_mut(at)?.stage = Stage::Moving;
        if told.is_some() {
            self.moved_by_device(handle, true);
        } else if len >= reach.local_registration {
            self.pin_ahead(slot, at, access);
        }
        Some(())
    }

    /// The initiator tells what its device has moved.
    fn tell_moved(&mut self, slot: u32, at: Handle) -> Option<()> {
        let state = self.requests.at(slot)?;
        let piece = self.rdma.pieces.get(at)?;
        let (peer, len) = (state.peer, u64::from(piece.len));
        let word = wire::Performed::new(state.remote, piece.offset, piece.len);
        if self.control(peer, word) == Err(SendError::Busy) {
            return None;
        }
        let state = self.requests.at_mut(slot)?;
        let receives = state.flags & RECEIVE != 0;
        if receives {
            state.moved = state.moved.saturating_add(len);
        }
        if len == 0 {
            self.let_go(slot); // of a receiver: the rest comes in frames
            return Some(());
        }
        self.next_piece(slot, at, Stage::Awaiting);
        Some(())
    }

    /// A piece was moved and told of: on to the next, if there is one.
    fn next_piece(&mut self, slot: u32, at: Handle, next: Stage) {
        let Some(state) = self.requests.at(slot) else { return };
        let (receives, wanted) = (state.flags & RECEIVE != 0, state.wanted);
        let Some(piece) = self.rdma.pieces.get_mut(at) else { return };
        piece.offset = piece.offset.saturating_add(piece.len.into());
        let pin = core::mem::take(&mut piece.pin);
        let done = piece.offset >= wanted;
        piece.stage = if done { Stage::Left } else { next };
        let counted = u64::from(piece.len);
        piece.len = 0;
        self.rdma.pins.unpin(&mut self.rails, pin, true);
        self.counters.pieces = self.counters.pieces.wrapping_add(1);
        self.counters.bytes_by_device = self.counters.bytes_by_device.wrapping_add(counted);
        if done && receives {
            self.let_go(slot);
        }
    }

    /// A device cannot go on with a message: its frames do.
    fn fail(&mut self, slot: u32, at: Handle) -> Option<()> {
        let receives = self.requests.at(slot)?.flags & RECEIVE != 0;
        let piece = self.rdma.pieces.get_mut(at)?;
        let pins = [core::mem::take(&mut piece.pin), core::mem::take(&mut piece.ahead)];
        piece.stage = match piece.stage {
            _ if !receives => Stage::Left,
            Stage::ToOffer => Stage::ToDecline,
            _ => Stage::ToTell,
        };
        piece.len = 0;
        for pin in pins {
            self.rdma.pins.unpin(&mut self.rails, pin, false);
        }
        self.counters.device_failures = self.counters.device_failures.wrapping_add(1);
        Some(())
    }

    /// Memory for the next piece of a message is offered. It is memory of a rail, which is the one that brings the offer: an offer
    /// that was moved from one link to another (`rail` is `None`) may be of any, so nothing is moved with it.
    pub(super) fn on_offer(&mut self, from: Peer, rail: Option<usize>, header: &wire::Offer) {
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
            // Without a piece it is waited for no longer, or not yet: it has overtaken the ack.
            return if waits { self.keep_early_offer(slot, rail, header) } else { self.count_unused_offer() };
        };
        let Some(piece) = self.rdma.pieces.get_mut(at).filter(|piece| piece.stage == Stage::Awaiting) else {
            return self.count_unused_offer();
        };
        match rail {
            _ if len == 0 && !receives => piece.stage = Stage::Left,
            _ if len == 0 || piece.offset != offset => return self.count_unused_offer(),
            Some(rail) => {
                let other = usize::from(piece.rail) != rail;
                let ahead = if other { core::mem::take(&mut piece.ahead) } else { Pinned::NONE };
                (piece.stage, piece.rail, piece.len, piece.key) = (Stage::ToMove, rail as u8, len, header.key);
                self.rdma.pins.unpin(&mut self.rails, ahead, true); // its rail has no part in the next piece
            }
            None => {
                self.count_unused_offer();
                self.fail(slot, at);
            }
        }
        self.activate(slot);
    }

    fn count_unused_offer(&mut self) {
        self.counters.offers_unused = self.counters.offers_unused.wrapping_add(1);
    }

    /// An offer has overtaken the ack. Where there is no slot for it frames bring everything; and if there are slots when the ack
    /// comes, it must not wait for this offer.
    fn keep_early_offer(&mut self, slot: u32, rail: Option<usize>, header: &wire::Offer) {
        let piece = rail.filter(|_| header.len.get() != 0).map(|rail| Piece {
            request: slot,
            stage: Stage::ToMove,
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
            state.remote |= ABSTAINS;
        }
    }

    /// A send that was offered memory before it was acknowledged is to wait for an ack anew, and for other offers.
    pub(super) fn forget_early_offer(&mut self, slot: u32) {
        self.let_go(slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.remote &= !ABSTAINS;
        }
    }

    /// The peer's device has moved what was offered to it.
    pub(super) fn on_performed(&mut self, from: Peer, header: &wire::Performed) {
        let (handle, offset, len) = (Handle::from_bits(header.request.get()), header.offset.get(), header.len.get());
        let slot = handle.slot();
        let at = self.rdma.of(slot);
        let offered = at
            .and_then(|at| self.rdma.pieces.get(at))
            .filter(|piece| piece.stage == Stage::Offered && piece.offset == offset && (len == piece.len || len == 0));
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
            self.fail(slot, at);
        } else {
            self.next_piece(slot, at, Stage::ToOffer);
        }
        if receives {
            self.further_receive(slot);
        } else {
            self.activate(slot);
        }
    }

    /// A device has told.
    #[cold]
    pub(super) fn told_by_device(&mut self, cookie: Cookie, result: Result<u64, NativeError>) {
        self.moved_by_device(Handle::from_bits(cookie.0), result.is_ok());
    }

    fn moved_by_device(&mut self, request: Handle, moved: bool) {
        let slot = request.slot();
        let Some(at) = self.requests.get(request).and_then(|_| self.rdma.of(slot)) else { return };
        let Some(piece) = self.rdma.pieces.get_mut(at).filter(|piece| piece.stage == Stage::Moving) else { return };
        piece.stage = Stage::ToTell;
        if let Some(state) = self.requests.at_mut(slot) {
            state.inflight = state.inflight.saturating_sub(1);
            let peer = state.peer as usize;
            if let Some(peer) = self.peers.get_mut(peer) {
                peer.signs.set(super::stall::HEARD);
            }
        }
        if !moved {
            self.fail(slot, at);
        }
        self.activate(slot);
    }

    /// A link is down, and its device touches no memory any more.
    pub(super) fn lose_pieces(&mut self, rail: usize, peer: Peer) {
        for place in 0..self.rdma.pieces.touched() {
            let Some(at) = self.rdma.pieces.handle(place) else { continue };
            let Some(piece) = self.rdma.pieces.get(at).filter(|piece| usize::from(piece.rail) == rail) else {
                continue;
            };
            let (slot, stage) = (piece.request, piece.stage);
            let Some(state) = self.requests.at_mut(slot).filter(|state| state.peer == peer.0) else { continue };
            match stage {
                Stage::Moving => state.inflight = state.inflight.saturating_sub(1),
                Stage::ToMove => {}
                _ => continue,
            }
            match state.phase {
                Phase::Streaming | Phase::Receiving => {
                    self.fail(slot, at);
                    self.activate(slot);
                }
                // The ack is yet to come, and the offer will not come again.
                _ => {
                    state.remote |= ABSTAINS;
                    self.let_go(slot);
                }
            }
        }
    }

    /// No device has to do with a request any more, and its memory is registered no longer.
    pub(super) fn let_go(&mut self, slot: u32) {
        let Some(piece) = self.rdma.of(slot).and_then(|at| self.rdma.pieces.free(at)) else { return };
        self.rdma.pins.unpin(&mut self.rails, piece.pin, false);
        self.rdma.pins.unpin(&mut self.rails, piece.ahead, false);
    }

    /// A piece, and what its rail can do, unless the link is set aside.
    fn usable(&self, slot: u32, at: Handle) -> Option<(Piece, OneSided)> {
        let piece = *self.rdma.pieces.get(at)?;
        let state = self.requests.at(slot)?;
        self.link_in_use(state.peer, piece.rail)?;
        let can = self.rails.rail(piece.rail.into())?.attributes().reach(state.span.accelerator().is_some());
        Some((piece, can)).filter(|_| !can.at_once)
    }

    fn link_in_use(&self, peer: u32, rail: u8) -> Option<Endpoint> {
        let links = self.peers.get(peer as usize)?.links;
        let mut used = self.row(peer).take(links.into());
        used.find(|link| link.is_of(rail.into())).map(|link| Endpoint(link.endpoint))
    }

    /// This side's memory for a piece.
    fn pin_piece(&mut self, slot: u32, at: Handle, len: u64, access: Access) -> Option<Pinned> {
        let piece = *self.rdma.pieces.get(at)?;
        if piece.pin.is_some() {
            return Some(piece.pin); // from before, when there was no room, or ahead
        }
        let pin = if piece.ahead.is_some() && u64::from(piece.ahead_len) == len {
            piece.ahead
        } else {
            self.rdma.pins.unpin(&mut self.rails, piece.ahead, true);
            self.pin(slot, piece.rail, piece.offset, len, access).unwrap_or_default()
        };
        let piece = self.rdma.pieces.get_mut(at)?;
        (piece.pin, piece.ahead) = (pin, Pinned::NONE);
        pin.is_some().then_some(pin)
    }

    /// And for the next one, while this one is moved.
    fn pin_ahead(&mut self, slot: u32, at: Handle, access: Access) {
        let Some(piece) = self.rdma.pieces.get(at).filter(|piece| !piece.ahead.is_some()) else { return };
        let (rail, len, offset) = (piece.rail, piece.len, piece.offset.saturating_add(piece.len.into()));
        let wanted = self.requests.at(slot).map_or(0, |state| state.wanted);
        let len = wanted.saturating_sub(offset).min(len.into());
        if len != 0
            && let Some(pin) = self.pin(slot, rail, offset, len, access)
            && let Some(piece) = self.rdma.pieces.get_mut(at)
        {
            (piece.ahead, piece.ahead_len) = (pin, len as u32);
        }
    }

    fn pin(&mut self, slot: u32, rail: u8, offset: u64, len: u64, access: Access) -> Option<Pinned> {
        let span = self.requests.at(slot)?.span.window(offset, len);
        let (base, _) = span.as_run()?;
        let access = if span.accelerator().is_some() { access | Access::ACCELERATOR } else { access };
        let wanted = Wanted { rail: rail.into(), base, len, access };
        let (pinned, kept) = self.rdma.pins.pin(&mut self.rails, &wanted)?;
        let count = if kept { &mut self.counters.pins_found } else { &mut self.counters.pins_made };
        *count = count.wrapping_add(1);
        Some(pinned)
    }
}

/// Bytes of a piece at most.
fn longest(can: &OneSided, put: bool) -> u64 {
    let Reach { limit, .. } = if put { can.put } else { can.get };
    limit.min(can.pipeline.piece.into())
}
