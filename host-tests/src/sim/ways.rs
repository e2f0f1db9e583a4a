//! The rails of a node.

use towline_core::pml::Rails;

use super::rail::SimRail;

/// All of them.
pub struct Set(pub Vec<SimRail>);

impl Rails for Set {
    type Rail = SimRail;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn rail(&self, index: usize) -> Option<&SimRail> {
        self.0.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut SimRail> {
        self.0.get_mut(index)
    }
}
