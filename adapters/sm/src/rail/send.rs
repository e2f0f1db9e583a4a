//! The rare parts of sending: the first frame to a peer, padding, lack of credit, waking.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::thread::futex;
use towline_core::rail::{Endpoint, Grant, HEAD, Lane, Lost, Rail as _, SendError, Shape};

use super::outgoing::{Ends, Outgoing};
use super::peer::{PeerState, PeerStatus, is_out_of_descriptors};
use super::ring_pair::EAGER;
use super::state::Rail;
use crate::config::can_hold;
use crate::doorbell;
use crate::error::{OpenError, system_error};
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
            self.leave(to.0, &error);
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
        let path = self.identity.names.ring(self.identity.card.rank, peer.rank, class);
        self.clean_up.add_rings(peer.rank);
        let ends = Ends { from: me, to: (peer.process, peer.nonce) };
        let mut made = Outgoing::create(&path, ends, bytes, limit, reserved);
        if is_out_of_descriptors(&made) && peer.free_descriptor() {
            made = Outgoing::create(&path, ends, bytes, limit, reserved);
        }
        // A shorter ring for long messages carries the same frames, with more waits.
        let mut shorter = bytes / 2;
        while matches!(made, Err(OpenError::NoRoom { .. } | OpenError::FileLimit { .. }))
            && can_hold(shorter, limit, reserved)
        {
            made = Outgoing::create(&path, ends, shorter, limit, reserved);
            shorter /= 2;
        }
        let mut made = made?;
        if let Some(control) = peer.control.as_ref().filter(|_| !peer.needs_fence) {
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
            Some(how) => {
                if write_to_pipe(peer, &self.identity.names.pipe(peer.rank)) {
                    return;
                }
                // No descriptor is left to open the pipe. The peer sleeps on, and maintenance tries again.
                peer.is_to_be_woken = true;
                self.waiting.owes_wakes = true;
                if let Some(control) = &peer.control {
                    sleep::restore(control.sleep(), how);
                }
            }
        }
    }

    /// Wakes the peers that could not be woken before.
    #[cold]
    pub(super) fn wake_again(&mut self) {
        self.waiting.owes_wakes = false;
        for endpoint in 0..self.peers.len() as u32 {
            let peer = self.peers.get_mut(endpoint as usize);
            if peer.is_some_and(|peer| std::mem::take(&mut peer.is_to_be_woken)) {
                self.wake(endpoint);
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

/// Writes to the pipe of a peer that sleeps, and opens the pipe before that if it is not open. `false`: there is no descriptor for
/// it.
fn write_to_pipe(peer: &mut PeerState, path: &Path) -> bool {
    if peer.pipe.is_none() {
        let mut opened = open_pipe(path);
        if is_out_of_descriptors(&opened) && peer.free_descriptor() {
            opened = open_pipe(path);
        }
        if is_out_of_descriptors(&opened) {
            return false;
        }
        peer.pipe = opened.ok(); // a peer that has no pipe, or does not read it, has ended
    }
    // A full pipe is readable, so it wakes as well.
    let _ = peer.pipe.as_mut().map(|pipe| pipe.write(&[1]));
    true
}

fn open_pipe(path: &Path) -> Result<File, OpenError> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let opened = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path);
    opened.map_err(|error| system_error("open", path, error))
}
