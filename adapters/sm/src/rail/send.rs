//! The rare parts of sending: the first frame to a peer, padding, lack of credit, waking.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use rustix::thread::futex;
use towline_core::rail::{Endpoint, Grant, HEAD, Lane, Lost, Rail as _, SendError, Shape};

use super::outgoing::{Ends, Outgoing};
use super::peer::PeerStatus;
use super::ring_pair::EAGER;
use super::state::Rail;
use crate::doorbell;
use crate::error::OpenError;
use crate::ring::slots_for;
use crate::sleep;

impl Rail {
    /// The part of `reserve` for a ring that does not exist yet, is at its end, or seems full.
    #[cold]
    pub(super) fn reserve_slowly(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let class = usize::from(shape.lane == Lane::Bulk);
        let limit = if class == EAGER { self.config.eager_limit_bytes } else { self.config.bulk_limit_bytes };
        if shape.len > limit || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if self.peers.get(to.0 as usize).is_none_or(|peer| peer.status != PeerStatus::Connected) {
            return Err(SendError::Unreachable);
        }
        let ring = to.0 as usize * 2 + class;
        if self.rings.get(ring).map(|ring| &ring.outgoing).is_some_and(|outgoing| !outgoing.exists())
            && let Err(error) = self.make_ring(to.0, class)
        {
            log::error!("rank {} cannot be reached through shared memory: {error}", self.rank_of(to.0));
            self.fail(to.0, Lost::Broken);
            return Err(SendError::Unreachable);
        }
        let Some(outgoing) = self.rings.get_mut(ring).map(|ring| &mut ring.outgoing) else {
            return Err(SendError::Unreachable);
        };
        if outgoing.sender.refresh(&outgoing.slots).is_err() {
            log::error!("rank {} violated the protocol: it returned more slots than were sent", self.rank_of(to.0));
            self.fail(to.0, Lost::Misbehaved);
            return Err(SendError::Unreachable);
        }
        let slots = slots_for(shape.len);
        let reserved = if shape.lane == Lane::Control { 0 } else { outgoing.reserved };
        outgoing.sender.pad(&outgoing.slots, slots, reserved);
        if outgoing.sender.reserve(slots, reserved).is_none() {
            outgoing.wants_credit = true;
            self.waiting.wants_credit = true;
            return Err(SendError::Busy);
        }
        // There is room now without any of the above.
        self.reserve(to, shape)
    }

    /// Makes the ring of one class to a peer, and tells the peer.
    fn make_ring(&mut self, endpoint: u32, class: usize) -> Result<(), OpenError> {
        let (bytes, limit, reserved) = match class {
            EAGER => (self.config.eager_ring_bytes, self.config.eager_limit_bytes, self.config.control_slots()),
            _ => (self.config.bulk_ring_bytes, self.config.bulk_limit_bytes, 0),
        };
        let me = (self.identity.process, self.identity.card.nonce);
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return Ok(()) };
        let Some(control) = &peer.control else { return Ok(()) };
        let path = self.identity.names.ring(self.identity.card.rank, peer.rank, class);
        let ends = Ends { from: me, to: (peer.process, peer.nonce) };
        let mut made = Outgoing::create(&path, ends, bytes, limit, reserved)?;
        if !peer.needs_fence {
            // SAFETY: the control segment is unmapped only together with the rings to that peer, in `forget`, or with the rail.
            unsafe { made.set_sleep_word(control.sleep()) };
        }
        if class == EAGER
            && self.config.single_copy_bytes != 0
            && let Some(exposure) = self.new_exposure(endpoint, &path)
        {
            made.offer_single_copy(exposure);
        }
        let Some(control) = self.peers.get(endpoint as usize).and_then(|peer| peer.control.as_ref()) else {
            return Ok(());
        };
        doorbell::ring(control.doorbell(), control.doorbell_bits(), self.identity.card.rank as usize * 2 + class);
        if let Some(outgoing) = self.rings.get_mut(endpoint as usize * 2 + class).map(|ring| &mut ring.outgoing) {
            *outgoing = made;
        }
        self.wake_for_frame(endpoint);
        Ok(())
    }

    /// Wakes the receiver of a frame that was just published, unless it is woken on demand only.
    #[cold]
    #[inline(never)]
    pub(super) fn wake_for_frame(&mut self, endpoint: u32) {
        if !self.wake_on_demand {
            self.wake(endpoint);
        }
    }

    /// Wakes a peer, if it sleeps.
    #[cold]
    #[inline(never)]
    pub(super) fn wake(&mut self, endpoint: u32) {
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        let Some(control) = &peer.control else { return };
        match sleep::claim(control.sleep(), peer.needs_fence) {
            None => {}
            Some(sleep::ON_FUTEX) => {
                let _ = futex::wake(control.sleep(), futex::Flags::empty(), i32::MAX as u32);
            }
            Some(_) => {
                if peer.pipe.is_none() {
                    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
                    let path = self.identity.names.pipe(peer.rank);
                    peer.pipe = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path).ok();
                }
                // A full pipe is readable, so it wakes as well.
                let _ = peer.pipe.as_mut().map(|pipe| pipe.write(&[1]));
            }
        }
    }

    /// Wakes the sender of a ring after credit was returned, if it may sleep and wait for credit.
    #[cold]
    #[inline(never)]
    pub(super) fn credit_returned(&mut self, ring: u32) {
        let may_sleep = self.peers.get(ring as usize / 2).is_some_and(|peer| {
            peer.needs_fence || peer.control.as_ref().is_some_and(|control| sleep::may_sleep(control.sleep()))
        });
        if may_sleep {
            self.wake(ring / 2);
        }
    }
}
