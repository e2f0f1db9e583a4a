//! Messages that arrived before their receive, or before the messages that go first.

pub(super) mod claim;
pub(super) mod keep;
pub(super) mod message;
pub(super) mod refuse;
pub(super) mod state;
