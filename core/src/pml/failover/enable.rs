//! Enabling and disabling rails.

use crate::pml::engine::Pml;
use crate::pml::failover::errors::EnableError;
use crate::pml::peers::link::DISABLED;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;

/// Whether a rail's bit is set.
pub(in crate::pml) fn is_disabled(bits: &[u32], rail: usize) -> bool {
    bits.get(rail / 32).is_some_and(|word| word & bit(rail) != 0)
}

const fn bit(rail: usize) -> u32 {
    1 << (rail % 32)
}

impl<R: Rails> Pml<'_, R> {
    /// Enables or disables a rail for all peers, as `MCA_PTL_ENABLE` of Open MPI's PTL does. All rails are enabled at set-up.
    ///
    /// The engine gives no new frames to a disabled rail. The rail still delivers the frames that it accepted before, and frames
    /// that arrive by it are handled. Other rails carry all messages. If a peer has no other rail, its messages wait until a rail
    /// is enabled again.
    ///
    /// # Errors
    /// [`EnableError`]: nothing has changed then.
    pub fn enable_rail(&mut self, index: usize, on: bool) -> Result<(), EnableError> {
        let word = self.disabled.get_mut(index / 32).filter(|_| index < self.rails.count());
        let word = word.ok_or(EnableError::NoRail(index))?;
        *word = if on { *word & !bit(index) } else { *word | bit(index) };
        for peer in 0..self.peers.len() as u32 {
            if self.peers.get(peer as usize).is_some_and(|state| state.status == PeerStatus::Up) {
                self.set_suspended(peer, index, DISABLED, !on);
            }
        }
        Ok(())
    }

    /// Whether a rail takes new frames. `false` also if there is no such rail.
    pub fn is_enabled(&self, index: usize) -> bool {
        index < self.rails.count() && !is_disabled(&self.disabled, index)
    }
}
