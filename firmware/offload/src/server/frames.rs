//! The commands of frames: the device sends them to peers, and puts those that arrive into the buffers of its host. A frame is a message
//! of the engine with a context of its own, so it is reliable. Frames of one sender are put into buffers in its order.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::pml::matching::{self, Pattern};
use towline_core::pml::{self, Mode, Rails, Sending, Status};
use towline_core::rail::Peer;
use towline_window::command::{ANY, Body};
use towline_window::completion::{Completion, Done, Failure};

use super::Server;
use crate::failures::{of_lost, of_refusal, peer_of_failure, result_of};
use crate::tables::Operation;

/// The context of frames. No communicator has it.
pub(super) const CONTEXT: u32 = u32::MAX - 1;
/// The tags of frames are below this number. The engine has others for itself.
const TAGS: u32 = 1 << 31;

/// Which losses of peers the host has learned by a buffer for frames.
#[derive(Debug)]
pub(super) struct Losses<'m> {
    told: &'m mut [bool],
    /// How many losses the engine had counted when the peers were looked at.
    seen: u64,
    /// Whether a loss waits for a buffer.
    waits: bool,
}

impl<'m> Losses<'m> {
    /// The bytes of a table for `peers` peers.
    pub const fn bytes(peers: u32) -> usize {
        Arena::cost::<bool>(peers as usize)
    }

    /// No losses.
    pub fn new(arena: &mut Arena<'m>, peers: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { told: arena.filled(peers as usize, false)?, seen: 0, waits: false })
    }

    /// A peer was added or deleted.
    pub fn forget(&mut self, peer: u32) {
        self.set(peer, false);
    }

    fn set(&mut self, peer: u32, told: bool) {
        if let Some(place) = self.told.get_mut(peer as usize) {
            *place = told;
        }
    }

    fn has_told(&self, peer: u32) -> bool {
        self.told.get(peer as usize).copied().unwrap_or(true)
    }
}

impl<R: Rails> Server<'_, '_, R> {
    pub(super) fn send_frame(&mut self, cookie: u64, peer: u32, tag: u32, body: Body) -> Result<Option<Done>, Failure> {
        if !self.knows(peer) {
            return Err(Failure::NoSuchThing);
        }
        if tag >= TAGS {
            return Err(Failure::Malformed);
        }
        let span = self.span_of(body)?;
        // SAFETY: the memory is in the window, which outlives the transport. A host that changes it meanwhile, against the
        // specification, harms its own frame only.
        match unsafe { self.mtl.pml().isend(Peer(peer), CONTEXT, tag, Mode::Complete, span) } {
            Ok(Sending::Complete) => Ok(Some(Done::default())),
            Ok(Sending::Pending(request)) => {
                self.begin(request, cookie, None, true, None);
                Ok(None)
            }
            Err(refusal) => Err(self.refused(&refusal)),
        }
    }

    pub(super) fn receive_frame(&mut self, cookie: u64, body: Body) -> Result<Option<Done>, Failure> {
        let span = self.span_of(body)?;
        let pattern = Pattern { context: CONTEXT, source: matching::ANY, tag: matching::ANY };
        // SAFETY: the memory is in the window, which outlives the transport, and has no Rust references.
        let begun = unsafe { self.mtl.pml().irecv(pattern, span) };
        let request = begun.map_err(|refusal| of_refusal(&refusal))?;
        self.begin(request, cookie, None, false, None);
        self.losses.seen = if self.losses.waits { u64::MAX } else { self.losses.seen };
        Ok(None)
    }

    /// The completion of the send or receive of a frame.
    pub(super) fn frame_ended(&mut self, operation: &Operation, outcome: Result<Status, pml::Failure>) -> Completion {
        let peer = peer_of_failure(&outcome).or(operation.lost);
        let lost = peer.and_then(|peer| self.mtl.why_lost(peer));
        let mut result = match (outcome, operation.lost) {
            (Err(pml::Failure::Cancelled), Some(_)) => Err(of_lost(lost)),
            (outcome, _) => result_of(outcome, lost, |status| Some(status.peer.0)),
        };
        if let (true, Ok(done)) = (operation.is_send, &mut result) {
            *done = Done::default();
        }
        let failed = peer.filter(|_| result.is_err());
        Completion { cookie: operation.cookie, result, failed: failed.map_or(ANY, |peer| peer.0) }
    }

    /// Ends a buffer for each peer that was lost: its frames that have arrived are in other buffers, and no further ones come. A loss
    /// waits until there is a buffer.
    pub(super) fn tell_losses(&mut self) {
        let count = self.mtl.counters().lost;
        if count == self.losses.seen {
            return;
        }
        (self.losses.seen, self.losses.waits) = (count, false);
        for peer in 0..self.peers {
            if !self.knows(peer) || self.losses.has_told(peer) || self.mtl.why_lost(Peer(peer)).is_none() {
                continue;
            }
            let (session, mtl) = (self.device.session(), &mut self.mtl);
            // A buffer that cannot be cancelled has a frame.
            match self.operations.frame_buffer(session, |operation| mtl.pml().cancel(operation.request)) {
                Some(operation) => {
                    operation.lost = Some(Peer(peer));
                    self.losses.set(peer, true);
                }
                None => self.losses.waits = true,
            }
        }
    }

    /// Takes the buffers back, and drops the frames that have none. The peers were deleted.
    pub(super) fn end_frames(&mut self) {
        self.mtl.pml().purge(CONTEXT);
        self.losses.waits = false;
    }
}
