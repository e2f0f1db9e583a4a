//! Which link of a bundle carries a frame.

use super::state::Bundle;
use crate::rail::{Endpoint, FullRail, Lane, SendError, Shape};

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'_, R, L> {
    /// Gives a frame to the first link that takes it.
    #[inline]
    pub(super) fn give<T>(
        &mut self,
        to: Endpoint,
        shape: Shape,
        send: impl FnMut(&mut R, Endpoint) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        // Any link may have to carry the frame later, also the one with the smallest limit.
        let limit = match shape.lane {
            Lane::Control | Lane::Eager => self.attributes.eager_limit,
            Lane::Bulk => self.attributes.max_send_size,
        };
        if shape.len > limit {
            return Err(SendError::TooLong);
        }
        self.try_links(to.0, shape.lane, send)
    }

    /// Tries the links in use to a peer: for bulk in turn, so that all of them carry a part; for other frames from the first one
    /// on. A link that went down a moment ago answers that the peer is unreachable, which is true only if the bundle reports it.
    pub(super) fn try_links<T>(
        &mut self,
        at: u32,
        lane: Lane,
        mut send: impl FnMut(&mut R, Endpoint) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        let state = self.peers.at(at).filter(|state| !state.lost).copied().ok_or(SendError::Unreachable)?;
        let count = self.count();
        let mut link = if lane == Lane::Bulk { state.turn as usize } else { 0 };
        for _ in 0..count {
            let next = if link.wrapping_add(1) < count { link.wrapping_add(1) } else { 0 };
            if state.is_usable(link) {
                let endpoint = self.endpoint(at, link);
                match self.link_mut(link).map(|rail| send(rail, endpoint)) {
                    Some(Ok(sent)) => {
                        self.granted = link;
                        if lane == Lane::Bulk
                            && let Some(state) = self.peers.at_mut(at)
                        {
                            state.turn = next as u32;
                        }
                        return Ok(sent);
                    }
                    Some(Err(SendError::TooLong)) => return Err(SendError::TooLong),
                    _ => {}
                }
            }
            link = next;
        }
        Err(SendError::Busy)
    }
}
