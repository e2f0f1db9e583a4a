//! The rare parts of sending: the first frame to a peer, padding, no credit, waking.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use rustix::thread::futex;
use towline_core::rail::{Endpoint, Grant, HEAD, Lane, Lost, Rail as _, SendError, Shape};

use crate::doorbell;
use crate::error::OpenError;
use crate::rail::outgoing::{Ends, Outgoing};
use crate::rail::transport::{Rail, Stage};
use crate::ring::slots_for;
use crate::sleep;

impl Rail {
    /// What `reserve` does where the ring does not exist yet, is at its end, or seems full.
    #[cold]
    pub(crate) fn reserve_slowly(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let lane = usize::from(shape.lane == Lane::Bulk);
        let limit = if lane == 0 { self.config.eager_limit_bytes } else { self.config.bulk_limit_bytes };
        if shape.len > limit || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if self.peers.get(to.0 as usize).is_none_or(|peer| peer.stage != Stage::Live) {
            return Err(SendError::Unreachable);
        }
        let ring = to.0 as usize * 2 + lane;
        if self.rings.get(ring).map(|ring| &ring.outgoing).is_some_and(|outgoing| !outgoing.exists())
            && let Err(error) = self.make_ring(to.0, lane)
        {
            log::error!("rank {} is out of reach through shared memory: {error}", self.rank_of(to.0));
            self.fail(to.0, Lost::Broken);
            return Err(SendError::Unreachable);
        }
        let Some(outgoing) = self.rings.get_mut(ring).map(|ring| &mut ring.outgoing) else {
            return Err(SendError::Unreachable);
        };
        if outgoing.sender.refresh(&outgoing.slots).is_err() {
            log::error!("rank {} gave credit that it never had", self.rank_of(to.0));
            self.fail(to.0, Lost::Misbehaved);
            return Err(SendError::Unreachable);
        }
        let slots = slots_for(shape.len);
        let kept = if shape.lane == Lane::Control { 0 } else { outgoing.kept };
        outgoing.sender.pad(&outgoing.slots, slots, kept);
        if outgoing.sender.reserve(slots, kept).is_none() {
            outgoing.starved = true;
            self.starved = true;
            return Err(SendError::Busy);
        }
        // There is room now without any of the above.
        self.reserve(to, shape)
    }

    /// Makes the ring for one lane to a peer, and tells the peer.
    fn make_ring(&mut self, endpoint: u32, lane: usize) -> Result<(), OpenError> {
        let (bytes, limit, kept) = match lane {
            0 => (self.config.eager_ring_bytes, self.config.eager_limit_bytes, self.config.control_slots()),
            _ => (self.config.bulk_ring_bytes, self.config.bulk_limit_bytes, 0),
        };
        let me = (self.me, self.card.nonce);
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return Ok(()) };
        let Some(board) = &peer.board else { return Ok(()) };
        let path = self.names.ring(self.card.rank, peer.rank, lane);
        // One that an earlier process of our rank left for a receiver that never came.
        let _ = std::fs::remove_file(&path);
        let ends = Ends { from: me, to: (peer.process, peer.nonce) };
        let mut made = Outgoing::create(&path, ends, bytes, limit, kept)?;
        if !peer.fence {
            // SAFETY: the board is unmapped only together with the rings to that peer, in `forget`, or with the rail.
            unsafe { made.watch(board.sleep()) };
        }
        if lane == 0
            && self.config.single_copy_bytes != 0
            && let Some(lender) = self.lender(endpoint, &path)
        {
            made.pledge(lender);
        }
        let Some(board) = self.peers.get(endpoint as usize).and_then(|peer| peer.board.as_ref()) else { return Ok(()) };
        doorbell::ring(board.bell(), board.bits(), self.card.rank as usize * 2 + lane);
        if let Some(outgoing) = self.rings.get_mut(endpoint as usize * 2 + lane).map(|ring| &mut ring.outgoing) {
            *outgoing = made;
        }
        self.wake_for_frame(endpoint);
        Ok(())
    }

    /// After a frame for a peer that may sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_for_frame(&mut self, endpoint: u32) {
        if !self.on_demand {
            self.wake(endpoint);
        }
    }

    /// Wakes a peer, if it sleeps.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake(&mut self, endpoint: u32) {
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        let Some(board) = &peer.board else { return };
        match sleep::claim(board.sleep(), peer.fence) {
            None => {}
            Some(sleep::ON_FUTEX) => {
                let _ = futex::wake(board.sleep(), futex::Flags::empty(), i32::MAX as u32);
            }
            Some(_) => {
                if peer.pipe.is_none() {
                    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
                    let path = self.names.pipe(peer.rank);
                    peer.pipe = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path).ok();
                }
                // A full pipe is readable, so it wakes as well.
                let _ = peer.pipe.as_mut().map(|pipe| pipe.write(&[1]));
            }
        }
    }

    /// After credit was given: its sender may sleep, waiting for it.
    #[cold]
    #[inline(never)]
    pub(crate) fn credit_given(&mut self, ring: u32) {
        let fence = self
            .peers
            .get(ring as usize / 2)
            .is_some_and(|peer| peer.fence || peer.board.as_ref().is_some_and(|board| sleep::may_sleep(board.sleep())));
        if fence {
            self.wake(ring / 2);
        }
    }

    pub(crate) fn rank_of(&self, endpoint: u32) -> u32 {
        self.peers.get(endpoint as usize).map_or(u32::MAX, |peer| peer.rank)
    }
}
