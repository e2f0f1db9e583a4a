//! What is kept for each peer.

use zerocopy::FromZeros;

use super::ack_parts::Parts;
use super::congestion::Window;
use super::estimator::Estimator;
use super::in_flight::List;
use super::numbers::widen;
use super::reordering::Overtaking;
use crate::rail::{Endpoint, Lost};

/// How it stands with a peer.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    /// Nobody's.
    Free,
    /// Added; nothing was to be sent yet.
    Quiet,
    /// The two sides greet each other.
    Greeting,
    /// Both know each other.
    Up,
    /// Out of order, and probed.
    Down,
    /// The peer has said good-bye.
    Closed,
}

/// The way to one peer.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Path {
    pub state: State,
    /// The peer's name of its end.
    pub their_link: u8,
    /// Whether the rail below knows the peer.
    pub raw_known: bool,
    /// Whether bodies are summed, as either side wishes.
    pub sums: bool,
    pub raw: Endpoint,
    /// The engine's number of the peer.
    pub peer: u32,
    pub card_len: u16,
    /// Both sides' incarnations are in here: of greetings.
    pub hello_seeds: [u32; 2],
    /// Where the checks of frames begin: out, in.
    pub seeds: [u32; 2],
    pub their_incarnation: u64,
    /// This side's session, the peer's (0 as long as it is not known), and whether the peer knows this side's.
    pub mine: u64,
    pub theirs: u64,
    pub known: bool,

    // What goes out.
    /// Number of the next frame.
    pub next: u64,
    /// The first number that is not acknowledged.
    pub first: u64,
    /// No frame before this number is kept.
    pub oldest: u64,
    /// Frames that may be unacknowledged.
    pub window: u32,
    /// Frames kept and unacknowledged, and how many of them are control frames.
    pub kept: u32,
    pub control: u32,
    /// Of those, the ones that are under way, in the order in which they left last.
    pub sent: List,
    pub in_flight: u32,
    /// Those that have to leave: control frames, others.
    pub waiting: [List; 2],
    /// Frames that left so far, resent ones included; and the latest one that is acknowledged.
    pub left: u64,
    pub latest: u64,
    /// Nanoseconds that the latter was on its way and back.
    pub trip: u64,
    pub parts: Parts,
    pub overtaking: Overtaking,
    pub congestion: Window,
    /// Times in a row that nothing was heard in time, and when that was last.
    pub timeouts: u8,
    /// Times that a peer was asked too early why nothing comes, since a round trip was last measured.
    pub too_early: u8,
    pub asked_at: u64,
    pub estimator: Estimator,

    // What comes in.
    /// The first number that did not come.
    pub base: u64,
    /// One more than the highest number that came.
    pub top: u64,
    /// The same of those that were seen, be they unread or refused: low half-word.
    pub seen: u16,
    /// Frames that came since the last acknowledgement left.
    pub owed: u32,
    /// Frames that came twice, as the peer is told.
    pub doubles: u16,
    /// Times that the rail had no room for it.
    pub ack_refused: u8,
    /// When what came once more was answered last, or will be.
    pub repeated_at: u64,
    /// Deliveries that are taken up.
    pub coming: u32,
    /// Numbers that were passed over, since another link brings their frames.
    pub away: u16,

    // Health.
    pub heard_at: u64,
    /// When the peer last answered a probe, which proves that it hears this side too.
    pub answered_at: u64,
    /// Until when silence is excused: by the peer's host, which answers, or since signs of life may not have been heard yet.
    pub excused_until: u64,
    /// Since when the peer owes a sign of life; 0: it does not.
    pub owes_since: u64,
    pub probe_at: u64,
    pub probe_gap: u64,
    pub probe: u16,
    /// Number of the probe from which on an answer tells that the peer was there after it left, and when that was; 0: none.
    pub question: u16,
    pub question_at: u64,
    /// The peer was there after this, which is more than that it was heard since: a frame may have been on its way for long.
    pub there_after: u64,
    /// Probes since the last sign of life.
    pub tries: u8,
    /// Number of a probe that has to be answered, plus one.
    pub answer: u32,
    /// A greeting has to be sent.
    pub greets: bool,
    pub why: Why,
    pub told_down: bool,
    /// It is to be told that nothing is heard of the peer but its host.
    pub silent: bool,
    /// When it was to be given up, and was asked once more; 0: it was not.
    pub doubted_at: u64,

    /// It is to be told which frames are wanted.
    pub wants: bool,
    /// It is to be told which numbers are void, and which frames are away.
    pub voids: bool,

    // Membership in queues.
    pub in_refused: bool,
    pub in_work: bool,
    pub in_reports: bool,
    /// It came up, and nobody was told yet.
    pub up_untold: bool,
}

/// [`Lost`], in memory that began as zeros.
#[derive(FromZeros, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Why {
    Broken,
    Closed,
    TimedOut,
    Misbehaved,
    /// The peer has given this side up.
    GivenUp,
}

impl Why {
    /// Whether the peer has forgotten this side, and will not come back.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Closed | Self::GivenUp)
    }
}

impl From<Lost> for Why {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Broken => Self::Broken,
            Lost::Closed => Self::Closed,
            Lost::TimedOut | Lost::Stalled => Self::TimedOut,
            Lost::Misbehaved => Self::Misbehaved,
        }
    }
}

impl From<Why> for Lost {
    fn from(why: Why) -> Self {
        match why {
            Why::Broken | Why::GivenUp => Self::Broken,
            Why::Closed => Self::Closed,
            Why::TimedOut => Self::TimedOut,
            Why::Misbehaved => Self::Misbehaved,
        }
    }
}

// What a link keeps for each peer, beside its windows: the least that 100,000 peers cost.
const _: () = assert!(size_of::<Path>() <= 440);

impl Path {
    /// Data frames kept.
    pub const fn data(&self) -> u32 {
        self.kept.wrapping_sub(self.control)
    }

    /// Frames of other lanes than control that may leave now, of those that are to leave at all.
    pub const fn has_room(&self) -> bool {
        self.in_flight < self.congestion.allowed()
    }

    /// Frames that were handed up beyond one that has not come.
    pub const fn has_holes(&self) -> bool {
        self.top != self.base
    }

    /// One more than the highest number that was seen.
    pub const fn seen(&self) -> u64 {
        widen(self.seen, self.base)
    }

    /// Whether there is something to tell of what came.
    pub const fn tells(&self) -> bool {
        (self.owed | self.answer) != 0 || self.wants
    }

    /// Whether the two sides know each other, so that frames have a check.
    pub const fn met(&self) -> bool {
        self.theirs != 0
    }
}
