//! Messages that arrived before their receive, or before earlier messages: kept, claimed by a receive, refused.

pub(super) mod claim;
pub(super) mod keep;
pub(super) mod message;
pub(super) mod refuse;
pub(crate) mod refused_messages;
pub(super) mod state;
