//! The configuration of a link.

use super::ack_parts::MOST_WINDOW;
use super::clock::FOREVER;
use super::paths::SEVERAL;
use crate::rail::{Attributes, COPIED, Capabilities, LINKED_HEAD};
use crate::time::Duration;

/// Sizes and times of a link. Start from [`Config::new`]. [`Link::new`](super::Link::new) brings values that are out of bounds
/// into bounds.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// This side's name of the link. Each link of a process has another one. Peers know it from the card.
    pub link: u8,
    /// Tells this process from all processes that had its address before: a random number, or the time of its start.
    pub incarnation: u64,
    /// The number of the first frame to each peer. Tests let numbers wrap soon by it.
    pub first_number: u64,
    /// The most peers that the link has at the same time.
    pub peers: u32,
    /// How many frames to one peer may be unacknowledged: a power of two from 4 to 1024. A quarter of them, but at most 16, is
    /// for the control lane alone.
    pub window: u32,
    /// How many frames to all peers together may be unacknowledged. A link with several peers gives no peer more slots than
    /// remain free: half of all if no other peer has any. If `n` peers acknowledge nothing, one part in `n + 1` remains free.
    /// Up to a quarter of the slots is kept back for peers that have none yet, one slot for each. With four times as many slots
    /// as peers, silent peers delay no other peer, whatever their number. Each slot has room for a copy of
    /// [`COPIED`](crate::rail::COPIED) bytes.
    pub slots: u32,
    /// The same for the control lane, in addition to `slots`. Here up to a half is kept back.
    pub control_slots: u32,
    /// How many of the frames in `slots` may be copies of more than [`COPIED`](crate::rail::COPIED) bytes: long grants, and
    /// long migrated bodies without a cookie. Each takes room for the longest frame.
    pub long_slots: u32,
    /// How many bodies may be arriving, or have to arrive once more, in addition to the frames that the reader holds.
    pub deliveries: u32,
    /// Bytes of the longest card of the rail below.
    pub card_bytes: u32,
    /// Whether bodies have a checksum. Headers, and frames of up to 56 bytes, always have one.
    pub sums: bool,
    /// The initial congestion window: how many frames are sent to a peer before it has acknowledged any.
    pub initial_window: u32,
    /// As long as no reordering was seen, a frame counts as lost when this many later frames are acknowledged. After that, the
    /// link waits for a frame as long as earlier frames were late, but at least a quarter of a round trip.
    pub reorder: u32,
    /// How many frames are received before an acknowledgement is sent at once.
    pub ack_every: u32,
    /// How long an acknowledgement waits for a frame that may carry it, at most.
    pub ack_delay: Duration,
    /// The shortest time before a tail loss probe, which is sent if nothing is acknowledged for two round trips.
    pub least_timeout: Duration,
    /// The time before a tail loss probe as long as no round trip was measured. Also the time before the first hello is
    /// repeated.
    pub initial_timeout: Duration,
    /// The longest time before a tail loss probe, after several were not acknowledged. Also the longest time between two
    /// hellos.
    pub most_timeout: Duration,
    /// A link whose peer owes an answer, and sends none for this time, is down. With the default heartbeat the peer gets more
    /// than 45 probes in that time: if 30 % of the frames are lost in each direction, all of these fail once in 10^13 times.
    pub dead_after: Duration,
    /// Whether silence alone is no failure: the peer may compute without a thread that answers for it, and the rail below
    /// reports a peer that is lost. Then a link reports [`Event::Silent`](crate::rail::Event::Silent) after `dead_after`, and
    /// goes down only when the user calls [`give_up`](crate::rail::Liveness::give_up).
    pub patient: bool,
    /// A link whose peer has never answered a hello is down after this time.
    pub hello_within: Duration,
    /// A peer that was silent for this time is probed; a quarter of `dead_after` at most. Then it is probed again after each
    /// 64th part of `dead_after` until it answers. Zero: it is never probed.
    pub heartbeat: Duration,
    /// The time before the first probe of a link that is down. It doubles with each probe.
    pub probe: Duration,
    /// The longest time between two probes of a link that is down.
    pub most_probe: Duration,
}

impl Config {
    /// The configuration for a rail: with checksums where it may corrupt frames, with heartbeats where it may lose them.
    pub const fn new(link: u8, incarnation: u64, rail: &Attributes) -> Self {
        let lossy = rail.capabilities.contains(Capabilities::NEED_ACK);
        Self {
            link,
            incarnation,
            first_number: 0,
            peers: 64,
            window: 256,
            slots: 512,
            control_slots: 32,
            long_slots: 4,
            deliveries: 64,
            card_bytes: 256,
            sums: rail.capabilities.contains(Capabilities::NEED_CSUM),
            initial_window: if lossy { 32 } else { 1024 },
            reorder: 3,
            ack_every: 8,
            ack_delay: Duration::from_nanos(25_000),
            least_timeout: if lossy { Duration::from_nanos(100_000) } else { Duration::from_millis(1000) },
            initial_timeout: Duration::from_millis(if lossy { 10 } else { 1000 }),
            most_timeout: Duration::from_millis(1000),
            dead_after: Duration::from_secs(5),
            patient: false,
            hello_within: Duration::from_secs(60),
            heartbeat: if lossy { Duration::from_secs(1) } else { Duration::ZERO },
            probe: Duration::from_millis(50),
            most_probe: Duration::from_secs(2),
        }
    }

    /// The configuration that the link uses: all values within bounds, with checksums if the rail needs them.
    pub(super) const fn sane(mut self, rail: &Attributes) -> Self {
        self.peers = within(self.peers, 1, if SEVERAL { 1 << 24 } else { 1 });
        self.window = within(self.window, 4, MOST_WINDOW).next_power_of_two();
        self.slots = within(self.slots, 1, 1 << 20);
        self.control_slots = within(self.control_slots, 1, 1 << 16);
        self.long_slots = within(self.long_slots, 1, 1 << 16);
        self.deliveries = within(self.deliveries, 1, 1 << 16);
        self.card_bytes = within(self.card_bytes, 0, u16::MAX as u32);
        self.sums |= rail.capabilities.contains(Capabilities::NEED_CSUM);
        self.initial_window = within(self.initial_window, 1, 1024);
        self.reorder = within(self.reorder, 1, 1024);
        self.ack_every = within(self.ack_every, 1, self.window / 4);
        self.dead_after = Duration::from_nanos(long(self.dead_after.as_nanos(), 0, FOREVER));
        self.hello_within = Duration::from_nanos(long(self.hello_within.as_nanos(), 0, FOREVER));
        self.ack_delay = Duration::from_nanos(long(self.ack_delay.as_nanos(), 0, FOREVER));
        let quarter = long(self.dead_after.as_nanos() / 4, 1, FOREVER);
        let most = long(self.most_timeout.as_nanos(), 1, quarter);
        self.most_timeout = Duration::from_nanos(most);
        self.least_timeout = Duration::from_nanos(long(self.least_timeout.as_nanos(), 1, most));
        self.initial_timeout = Duration::from_nanos(long(self.initial_timeout.as_nanos(), 1, most));
        if self.heartbeat.as_nanos() != 0 {
            self.heartbeat = Duration::from_nanos(long(self.heartbeat.as_nanos(), 1, quarter));
        }
        self.probe = Duration::from_nanos(long(self.probe.as_nanos(), 1, FOREVER));
        self.most_probe = Duration::from_nanos(long(self.most_probe.as_nanos(), self.probe.as_nanos(), FOREVER));
        self
    }

    /// Part of the window that only control frames may use.
    pub(super) const fn control_window(&self) -> u32 {
        if self.window / 4 < 16 { self.window / 4 } else { 16 }
    }

    /// The shorter of the two times for which a peer may be silent, connected or not, in nanoseconds.
    pub(super) fn min_timeout(&self) -> u64 {
        self.dead_after.as_nanos().min(self.hello_within.as_nanos())
    }

    /// The time between two probes of a peer that does not answer, in nanoseconds.
    #[inline(never)]
    pub(super) fn urgent(&self) -> u64 {
        let most = if self.heartbeat == Duration::ZERO { u64::MAX } else { self.heartbeat.as_nanos() };
        (self.dead_after.as_nanos() / 64).clamp(1, most)
    }

    /// How many words one set of bits of one peer has.
    pub(super) const fn words(&self) -> usize {
        if self.window < 64 { 1 } else { self.window as usize / 64 }
    }

    /// Bytes of each slot after the head.
    pub(super) const fn room(longest: u32) -> usize {
        let room = COPIED as usize + LINKED_HEAD;
        if (longest as usize) < room { longest as usize } else { room }
    }
}

/// A value within bounds. A function for constants.
const fn within(value: u32, least: u32, most: u32) -> u32 {
    if value < least {
        least
    } else if value > most {
        most
    } else {
        value
    }
}

/// As [`within`], for nanoseconds.
const fn long(value: u64, least: u64, most: u64) -> u64 {
    if value < least {
        least
    } else if value > most {
        most
    } else {
        value
    }
}
