//! The state of a link towards one peer, in groups whose invariants are local.

use zerocopy::FromZeros;

use super::ack_parts::AckParts;
use super::congestion::CongestionWindow;
use super::estimator::Estimator;
use super::header::{MIGRATION, NACKS};
use super::numbers::widen;
use super::reordering::Reordering;
use crate::list::List;
use crate::rail::{Endpoint, Lost};

/// The link towards one peer.
///
/// Zeroed memory is a free entry.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Path {
    pub session: Session,
    pub below: Below,
    pub send: SendWindow,
    pub loss: LossDetection,
    pub congestion: CongestionWindow,
    pub estimator: Estimator,
    pub receive: ReceiveWindow,
    pub due: Due,
    pub liveness: Liveness,
    pub report: Report,
    pub listed: Listed,
}

// The bytes that a link keeps for each peer, in addition to its windows. 100,000 peers cost at least 100,000 times this.
const _: () = assert!(size_of::<Path>() <= 440);

/// The state of the connection with a peer.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum ConnState {
    /// The entry belongs to no peer.
    Free,
    /// The peer was added; nothing was sent to it yet.
    Idle,
    /// The two sides exchange hellos.
    Connecting,
    /// Both sides know each other.
    Up,
    /// The link has failed; it probes the peer.
    Down,
    /// The peer has said goodbye.
    Closed,
}

/// The identity of the peer, and the session of the two sides.
///
/// A session is the time from `add_peer` to `del_peer`. Each side numbers its own sessions from 1. So a peer that was deleted
/// and added again has another session, and its old frames fail the check.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Session {
    /// The seeds of the checks of hellos: outgoing, incoming. They are checksums of the incarnations of both sides.
    pub hello_seeds: [u32; 2],
    /// The seeds of the checks of all other frames: outgoing, incoming. They are checksums of incarnations and sessions.
    pub seeds: [u32; 2],
    pub remote_incarnation: u64,
    /// This side's session.
    pub local: u64,
    /// The peer's session; 0: it is not known yet.
    pub remote: u64,
    /// The engine's number of the peer.
    pub peer: u32,
    pub state: ConnState,
    /// The peer's name of its end of the link.
    pub remote_link: u8,
    /// Whether the peer knows this side's session.
    pub known_to_peer: bool,
    /// Whether the bodies of frames have a checksum, since at least one side asks for it.
    pub checks_bodies: bool,
}

impl Session {
    /// Whether the peer's session is known, so that frames to it have a check.
    pub const fn is_established(&self) -> bool {
        self.remote != 0
    }
}

/// The peer as the rail below knows it.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Below {
    /// Valid while `known`.
    pub endpoint: Endpoint,
    /// The length of the peer's card, in bytes.
    pub card_len: u16,
    /// Whether the rail below has the peer in its tables.
    pub known: bool,
}

/// The window of outgoing frames. Numbers from `first` to before `next` are in use.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct SendWindow {
    /// The number of the next frame.
    pub next: u64,
    /// The first number that is not acknowledged.
    pub first: u64,
    /// The link keeps no frame before this number.
    pub oldest: u64,
    /// How many numbers may be unacknowledged.
    pub window: u32,
    /// Frames that are kept and unacknowledged.
    pub unacked: u32,
    /// How many of `unacked` are control frames.
    pub unacked_control: u32,
    /// The length of `sent`.
    pub in_flight: u32,
    /// The unacknowledged frames that are in flight, in the order of their last transmission.
    pub sent: List,
    /// The unacknowledged frames that wait for a transmission: control frames, others.
    pub queued: [List; 2],
}

impl SendWindow {
    /// Data frames that are kept.
    pub const fn unacked_data(&self) -> u32 {
        self.unacked.wrapping_sub(self.unacked_control)
    }
}

/// The history of transmissions, by which lost ones are detected (RACK and tail loss probes, RFC 8985). A transmission is named
/// by the count of all transmissions so far. A frame that is sent again is another transmission.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct LossDetection {
    /// Transmissions so far.
    pub transmissions: u64,
    /// The latest transmission that is acknowledged.
    pub latest: u64,
    /// The round trip of that transmission, in nanoseconds.
    pub latest_trip: u64,
    /// When the last tail loss probe was sent.
    pub probed_at: u64,
    pub parts: AckParts,
    pub reordering: Reordering,
}

/// The window of incoming frames.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    /// The first number that did not arrive.
    pub base: u64,
    /// One more than the highest number that arrived.
    pub top: u64,
    /// Deliveries that are pending.
    pub pending: u32,
    /// The low half-word of the highest number that was seen, plus one. Frames that are unread or were refused count as seen.
    seen: u16,
    /// How many numbers were skipped because another link brings their frames.
    pub migrated: u16,
}

impl ReceiveWindow {
    /// Begins at a number.
    pub const fn restart(&mut self, first: u64) {
        (self.base, self.top, self.seen) = (first, first, first as u16);
    }

    /// Whether a frame arrived beyond one that is missing.
    pub const fn has_holes(&self) -> bool {
        self.top != self.base
    }

    /// One more than the highest number that was seen.
    pub const fn seen(&self) -> u64 {
        widen(self.seen, self.base)
    }

    /// The number was seen; it is the highest so far.
    pub const fn see(&mut self, number: u64) {
        self.seen = number.wrapping_add(1) as u16;
    }
}

/// What this side has yet to report to the peer in control frames.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Due {
    /// When a repeated frame was last answered, or will be answered.
    pub repeated_at: u64,
    /// Frames that arrived since the last acknowledgement.
    pub frames: u32,
    /// The number of a probe that has to be answered, plus one.
    pub probe_answer: u32,
    /// How many frames have arrived twice so far, modulo 2^16. It is reported to the peer.
    pub duplicates: u16,
    /// How many times in a row the rail below had no room for these control frames.
    pub refusals: u8,
    /// A hello has to be sent.
    pub hello: bool,
    /// The missing frames have to be asked for.
    pub nack: bool,
    /// A report of the gaps, and of the frames that have migrated, has to be sent.
    pub gaps: bool,
}

impl Due {
    /// Whether an acknowledgement is due.
    pub const fn is_ack_due(&self) -> bool {
        (self.frames | self.probe_answer) != 0 || (NACKS && self.nack)
    }
}

/// Whether the peer still answers. Times are in nanoseconds.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Liveness {
    /// When the last frame of the peer arrived.
    pub heard_at: u64,
    /// When the peer last answered a probe. That proves that the peer receives frames of this side, too.
    pub answered_at: u64,
    /// Until when silence is excused: the peer's host answers, or the rail below may have unread frames of the peer.
    pub excused_until: u64,
    /// Since when the peer owes an answer; 0: the peer owes none.
    pub owes_since: u64,
    /// When the next probe or hello is due.
    pub probe_at: u64,
    pub probe_interval: u64,
    /// When `query` was sent; 0: there is no query.
    pub query_at: u64,
    /// The peer was alive after this time, which an answer to `query` has proved. An arrival after this time would not prove
    /// it, since a frame may be on its way for long.
    pub alive_after: u64,
    /// When the user wanted to give the peer up, and the peer was probed once more instead; 0: that did not happen.
    pub doubted_at: u64,
    /// The number of the last probe.
    pub last_probe: u16,
    /// The number of the first probe whose answer proves that the peer was alive after `query_at`.
    pub query: u16,
    /// Probes since the last answer.
    pub unanswered: u8,
}

/// What has yet to be reported to the user of the link.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Report {
    pub reason: DownReason,
    /// `Event::Down` was reported to the user.
    pub told_down: bool,
    /// The link came up, and that has yet to be reported.
    pub up: bool,
    /// `Event::Silent` is due: only the peer's host answers, a handshake begins, or hellos are not answered.
    pub silence: bool,
}

/// The queues of the link in which the peer is.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Listed {
    /// In `ReceiveBuffers::refused`, the queue of peers whose frames were refused here.
    pub refused: bool,
    /// In `Work::refused`, the queue of peers whose frames wait for room in the rail below.
    pub work: bool,
    /// In `Work::reports`.
    pub reports: bool,
}

/// Why a link is down. The same as [`Lost`], but valid in zeroed memory.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum DownReason {
    Broken,
    Closed,
    TimedOut,
    Misbehaved,
    /// The peer has given this side up.
    GivenUp,
    DeviceFailed,
}

impl DownReason {
    /// Whether the peer has forgotten this side, and will not come back.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::GivenUp)
    }
}

impl From<Lost> for DownReason {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Broken | Lost::NoRoom => Self::Broken,
            Lost::Closed => Self::Closed,
            Lost::TimedOut | Lost::Stalled => Self::TimedOut,
            Lost::Misbehaved => Self::Misbehaved,
            Lost::DeviceFailed => Self::DeviceFailed,
        }
    }
}

impl From<DownReason> for Lost {
    fn from(reason: DownReason) -> Self {
        match reason {
            DownReason::Broken | DownReason::GivenUp => Self::Broken,
            DownReason::Closed => Self::Closed,
            DownReason::TimedOut => Self::TimedOut,
            DownReason::Misbehaved => Self::Misbehaved,
            DownReason::DeviceFailed => Self::DeviceFailed,
        }
    }
}

impl Path {
    /// Whether frames of other lanes than control may be sent now.
    pub const fn has_room(&self) -> bool {
        self.send.in_flight < self.congestion.allowed()
    }

    /// Whether any control frame is due.
    pub fn is_anything_due(&self) -> bool {
        self.session.state != ConnState::Free
            && (self.due.is_ack_due() || (MIGRATION && self.due.gaps) || self.due.hello)
    }
}
