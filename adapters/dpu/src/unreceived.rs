//! What was taken out of a device since no receive takes it any more.

use std::collections::VecDeque;
use std::time::Instant;

use towline_core::pml::RefusedMessages;

use crate::transport::Message;

/// What was taken out.
#[derive(Debug, Default)]
pub(crate) struct Unreceived {
    /// When the process ends: the last look.
    pub looked: Option<Instant>,
    /// A summary of it.
    pub summary: Option<RefusedMessages>,
    /// Messages that were taken out, and for whose receive there was no room yet.
    pub waiting: VecDeque<Message>,
}

impl Unreceived {
    /// Whether the process ends, so that the device must be looked at from time to time.
    pub const fn is_looking(&self) -> bool {
        self.looked.is_some()
    }
}
