//! Counts of the frames to and from a peer. With these counts a module keeps order over a rail whose frames may overtake each
//! other.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::descriptor::{NO_ORDER, ORDER};

/// The version, in the high half of the first byte. The kinds of other frames with this tag are in `rma::frames`.
pub(super) const VERSION: u8 = 1 << 4;
/// The sender asks for a reply as soon as `count` of its frames were handed over.
pub(super) const COUNT_REQUEST: u8 = VERSION | 6;
/// The reply: `count` frames were handed over.
pub(super) const COUNT_REPLY: u8 = VERSION | 7;

/// A frame that asks for or reports a count.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct CountFrame {
    pub kind: u8,
    pub reserved: [u8; 3],
    pub count: U32,
}

/// The counts of one peer. All of them wrap.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct PeerCounts {
    /// Frames that were sent to the peer.
    sent: u32,
    /// How many of these frames were handed over to the peer's consumers, according to its last reply.
    arrived: u32,
    /// The count of the last request that was sent. There is one request at a time.
    requested: u32,
    /// A request is due, and its count.
    request_due: bool,
    request_count: u32,
    /// The count that the peer has to confirm before the first waiting ordered send may leave.
    goal: u32,
    has_goal: bool,
    /// Frames of the peer that were handed over here, or dropped.
    delivered: u32,
    /// The count in the peer's last request, and whether that request still needs a reply.
    peer_requested: u32,
    reply_due: bool,
    /// Whether any operation to the peer is complete, so that its order value is valid.
    complete: bool,
}

impl PeerCounts {
    /// A frame was sent.
    pub const fn count_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// A frame of the peer was handed over, or dropped. Returns whether the peer waits for a reply.
    pub const fn on_delivered(&mut self) -> bool {
        self.delivered = self.delivered.wrapping_add(1);
        self.reply_due
    }

    /// An operation is complete: from now on its order value is valid.
    pub const fn on_completion(&mut self) {
        self.complete = true;
    }

    /// Whether an order value is valid: it is none, or that of a complete operation.
    pub const fn is_valid_order(&self, order: u8) -> bool {
        order == NO_ORDER || (order == ORDER && self.complete)
    }

    /// Whether all frames that were sent before the first waiting ordered send have arrived. If not, a request is due.
    pub const fn ordered_may_leave(&mut self) -> bool {
        if !self.has_goal {
            (self.goal, self.has_goal) = (self.sent, true); // sends with priority that leave later do not count
        }
        self.have_arrived(self.goal)
    }

    /// The first ordered send has left or failed.
    pub const fn on_ordered_left(&mut self) {
        self.has_goal = false;
    }

    /// Whether all frames that were sent so far have arrived. If not, a request is due.
    pub const fn all_arrived(&mut self) -> bool {
        self.have_arrived(self.sent)
    }

    const fn have_arrived(&mut self, goal: u32) -> bool {
        let arrived = self.arrived.wrapping_sub(goal) <= u32::MAX / 2;
        if !arrived && !self.request_due && self.requested == self.arrived {
            (self.request_due, self.request_count) = (true, goal);
        }
        arrived
    }

    /// Whether an ordered send waits, and can leave only after the peer has replied.
    pub const fn awaits_reply(&self) -> bool {
        self.has_goal && !self.request_due && self.requested != self.arrived
    }

    /// The next frame that is due to the peer.
    pub fn due(&self) -> Option<CountFrame> {
        let reserved = [0; 3];
        // More frames than the peer has asked for may have been handed over by now.
        let enough = self.delivered.wrapping_sub(self.peer_requested) <= u32::MAX / 2;
        if self.reply_due && enough {
            return Some(CountFrame { kind: COUNT_REPLY, reserved, count: U32::new(self.peer_requested) });
        }
        self.request_due.then_some(CountFrame { kind: COUNT_REQUEST, reserved, count: U32::new(self.request_count) })
    }

    /// A frame that was due was sent.
    pub const fn on_sent(&mut self, frame: &CountFrame) {
        if frame.kind == COUNT_REPLY {
            self.reply_due = false;
        } else {
            (self.request_due, self.requested) = (false, frame.count.get());
        }
    }

    /// A frame of the peer has arrived.
    pub fn on_frame(&mut self, frame: &CountFrame) {
        match frame.kind {
            COUNT_REPLY if frame.count.get() == self.requested => self.arrived = self.requested,
            COUNT_REQUEST => (self.reply_due, self.peer_requested) = (true, frame.count.get()),
            _ => {} // a reply to no request
        }
    }
}
