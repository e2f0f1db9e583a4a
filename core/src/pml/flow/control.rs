//! Sending control frames.

use zerocopy::FromBytes;

use crate::pml::engine::Pml;
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::ptl;
use crate::rail::{Endpoint, MULTIRAIL, SendError};
use crate::wire::{Common, Header};

impl<R: Rails> Pml<'_, R> {
    /// Sends a control frame on the first of the peer's links that has room.
    ///
    /// If a message to the peer has found no room, the frame does not take the links of first frames until a message has left.
    /// Control frames may use all room of a rail, so an engine that answers all the time might leave no room for messages. The
    /// other side's polls alone free room for messages, so this wait ends.
    ///
    /// # Errors
    /// [`SendError::Unreachable`] if the peer is lost or unknown: it is of no use to wait. [`SendError::Busy`] for any other
    /// error of a link, since another link may carry the frame later.
    pub(in crate::pml) fn control<H: Header>(&mut self, to: u32, mut header: H) -> Result<(), SendError> {
        self.control_frame(to, header.as_mut_bytes())
    }

    /// As [`control`](Self::control), for all types of headers at once.
    fn control_frame(&mut self, to: u32, header: &mut [u8]) -> Result<(), SendError> {
        let crowd = |peer: &PeerState| (if peer.is_out_of_room() { peer.route.firsts } else { 0 }, peer.route.links);
        let (from, links) = self.peers.get(to as usize).map_or((0, 0), crowd);
        if from != 0 && from >= links {
            return Err(SendError::Busy);
        }
        let mut sent = self.control_frame_by(to, from.into(), header);
        if !MULTIRAIL {
            return sent;
        }
        for place in usize::from(from).saturating_add(1)..usize::from(links) {
            if sent != Err(SendError::Busy) {
                break;
            }
            sent = self.control_frame_by(to, place, header); // the link before may not be connected, possibly for long
        }
        sent
    }

    /// Sends a control frame on the link in one place of the peer's row.
    pub(in crate::pml) fn control_by<H: Header>(
        &mut self,
        to: u32,
        place: usize,
        mut header: H,
    ) -> Result<(), SendError> {
        self.control_frame_by(to, place, header.as_mut_bytes())
    }

    fn control_frame_by(&mut self, to: u32, place: usize, header: &mut [u8]) -> Result<(), SendError> {
        let link = *self.link(to, place).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        if peer.status != PeerStatus::Up {
            return Err(SendError::Unreachable);
        }
        if peer.route.links == 0 {
            return Err(SendError::Busy);
        }
        let rail = self.rails.rail_mut(link.rail as usize).ok_or(SendError::Unreachable)?;
        if let Ok((common, _)) = Common::mut_from_prefix(header) {
            peer.stamp(common);
        }
        match ptl::control(rail, Endpoint(link.endpoint), header) {
            Ok(_) => {
                peer.sent();
                Ok(())
            }
            Err(_) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                Err(SendError::Busy)
            }
        }
    }

    /// Sends a control frame on the link of one rail. It waits as [`control`](Self::control) does.
    pub(in crate::pml) fn control_on<H: Header>(&mut self, to: u32, rail: usize, header: H) -> Result<(), SendError> {
        let peer = self.peers.get(to as usize).ok_or(SendError::Unreachable)?;
        let (crowded, firsts, links) =
            (peer.is_out_of_room(), usize::from(peer.route.firsts), usize::from(peer.route.links));
        let place = self.peer_links(to).take(links).position(|link| link.is_of(rail)).ok_or(SendError::Unreachable)?;
        if crowded && place < firsts {
            return Err(SendError::Busy);
        }
        self.control_by(to, place, header)
    }
}
