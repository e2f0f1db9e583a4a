//! The messages that a context has not received when it ends.

use towline_bootstrap::report::{LargestMessage, Unmatched};
use towline_core::mtl::Unreceived;
use towline_core::rail::Peer;

use crate::engine::Engine;
use crate::values::address::Grid;

impl Engine {
    /// The program receives nothing any more: its unexpected messages are refused, except those with these tags.
    pub fn refuse_unexpected(&mut self, except: std::ops::Range<u32>) {
        self.mtl.pml().refuse_unexpected(except);
        if let Some(dpu) = self.mtl.pml().rails_mut().dpu_mut() {
            dpu.refuse_unexpected();
        }
    }

    /// Counts the messages of a communicator that is about to be dropped.
    pub fn note_dropped_messages(&mut self, grid: Grid, context: u32) {
        let Self { mtl, dropped_messages, .. } = self;
        let lost = mtl.unreceived().filter(|message| message.context == context && !message.is_internal());
        lost.for_each(|message| dropped_messages.add(named(grid, &message)));
    }

    /// The messages that this context has not received. From the start of its end on it refuses messages, and these count, too.
    pub fn unmatched(&mut self, grid: Grid) -> Unmatched {
        let mut unmatched = self.dropped_messages.clone();
        let kept = self.mtl.unreceived().filter(|message| !message.is_internal());
        kept.for_each(|message| unmatched.add(named(grid, &message)));
        let by_dpu = self.mtl.pml().rails_mut().dpu_mut().and_then(|dpu| dpu.refused_messages());
        for refused in self.mtl.pml().refused_messages().into_iter().chain(by_dpu) {
            let largest = LargestMessage {
                bytes: refused.largest,
                from: rank_of(grid, refused.peer),
                to: grid.own.rank,
                tag: refused.tag,
                communicator: refused.context,
            };
            unmatched.merge(Unmatched { count: refused.count, bytes: refused.bytes, largest: Some(largest) });
        }
        unmatched
    }
}

fn rank_of(grid: Grid, peer: Peer) -> u32 {
    grid.address(grid.number_of(peer)).rank
}

fn named(grid: Grid, message: &Unreceived) -> LargestMessage {
    LargestMessage {
        bytes: message.bytes,
        from: rank_of(grid, message.peer),
        to: grid.own.rank,
        tag: message.tag,
        communicator: message.context,
    }
}
