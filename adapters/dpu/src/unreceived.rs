//! What was taken out of a device since no receive takes it any more.

use std::collections::VecDeque;
use std::time::Instant;

use towline_core::pml::RefusedMessages;

use crate::members::Members;
use crate::transport::Message;

/// The most communicators of which is noted that they were deleted.
const DELETED: usize = 64;

/// What was taken out.
#[derive(Debug, Default)]
pub(crate) struct Unreceived {
    /// When the process ends: the last look.
    pub looked: Option<Instant>,
    /// A summary of it.
    pub summary: Option<RefusedMessages>,
    /// Messages that were taken out, and for whose receive there was no room yet.
    pub waiting: VecDeque<Message>,
    /// The communicators that were deleted last. Messages in them may still come.
    pub deleted: VecDeque<Members>,
}

impl Unreceived {
    /// A communicator was deleted.
    pub fn note_deleted(&mut self, members: Members) {
        if self.deleted.len() == DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back(members);
    }

    /// Whether the process ends, so that the device must be looked at from time to time.
    pub const fn is_looking(&self) -> bool {
        self.looked.is_some()
    }
}
