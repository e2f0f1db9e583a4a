//! The rails of a node: simulated rails as they are, or made reliable by links.

use std::ptr::NonNull;

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::forward_rail;
use towline_core::link::{Config, Counters, Crc32c, Link};
use towline_core::pml::Rails;
use towline_core::rail::native::{Native, NativeError};
use towline_core::rail::{
    self, Cookie, DeviceMemory, Endpoint, Failover, FastPath, Liveness, Origin, Peer, Rail, RequestCache, SendError,
    Sent, Shape, SingleCopy, Ticket,
};
use towline_core::time::Duration;

use super::counts::add;
use crate::sim::network::SimRail;

/// The parameters of links. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// Use the defaults of the link, whatever the other fields say.
    pub defaults: bool,
    /// Time after which a silent peer is down.
    pub dead_after: u64,
    /// Least time after which a frame is resent.
    pub least_timeout: u64,
    /// Time for which an acknowledgement waits to be piggybacked on a frame.
    pub ack_delay: u64,
    /// Most unacknowledged frames.
    pub window: u32,
    /// Frames kept for all peers together, and as many again for control frames.
    pub slots: u32,
    /// Most bodies that may be arriving, in addition to those that the engine holds.
    pub deliveries: u32,
    /// Number of the first frame.
    pub first_number: u64,
    /// A peer that does not answer a hello is down after this many times `dead_after`.
    pub hello_attempts: u64,
    /// The rails below report lost peers, so silence does not mean a loss.
    pub patient: bool,
}

impl LinkParams {
    /// Attempts within the time after which a peer is down. With drops of 30 %, all of them fail in one of 1e10 cases.
    pub const ATTEMPTS: u64 = 40;

    /// The defaults of the link.
    pub const DEFAULTS: Self = Self {
        defaults: true,
        dead_after: 5_000_000_000,
        least_timeout: 0,
        ack_delay: 0,
        window: 0,
        slots: 0,
        deliveries: 0,
        first_number: 0,
        hello_attempts: 2,
        patient: false,
    };

    /// Nanoseconds after which a link that was down is up again, after its fault has ended.
    pub const fn slack(&self) -> u64 {
        self.dead_after * if self.hello_attempts > 2 { 8 } else { 2 }
    }

    fn config(&self, link: u8, incarnation: u64, peers: u32, raw: &SimRail) -> Config {
        let nanos = Duration::from_nanos;
        let often = self.dead_after / Self::ATTEMPTS;
        let default = Config { peers, ..Config::new(link, incarnation, raw.attributes()) };
        if self.defaults {
            return default;
        }
        Config {
            first_number: self.first_number,
            window: self.window,
            slots: self.slots,
            control_slots: self.slots,
            deliveries: self.deliveries,
            card_bytes: 64,
            ack_delay: nanos(self.ack_delay),
            least_timeout: nanos(self.least_timeout),
            initial_timeout: nanos(self.least_timeout * 4),
            most_timeout: nanos(often),
            dead_after: nanos(self.dead_after),
            hello_within: nanos(self.dead_after * self.hello_attempts),
            patient: self.patient && default.heartbeat == Duration::ZERO,
            heartbeat: if default.heartbeat == Duration::ZERO { Duration::ZERO } else { nanos(often) },
            probe: nanos(often / 4),
            most_probe: nanos(self.dead_after / 4),
            ..default
        }
    }
}

/// A rail of a node.
pub struct NodeRail<'m> {
    kind: RailKind<'m>,
    /// It is disabled.
    disabled: bool,
    /// It was given a frame while disabled.
    used_while_disabled: bool,
}

enum RailKind<'m> {
    /// A simulated rail.
    Raw(Box<SimRail>),
    /// A link over it.
    Linked(Box<Link<'m, SimRail, Crc32c>>),
}

macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            NodeRail { kind: RailKind::Raw($rail), .. } => $call,
            NodeRail { kind: RailKind::Linked($rail), .. } => $call,
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl rail::Rail for NodeRail<'_> {
    forward_rail!(below, except commit, send);

    fn commit(&mut self, ticket: Ticket) -> Sent {
        self.used_while_disabled |= self.disabled;
        below!(self, rail => rail.commit(ticket))
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        let sent = below!(self, rail => unsafe { rail.send(to, shape, header, body, cookie) });
        self.check_enabled(sent)
    }
}

#[deny(clippy::missing_trait_methods)]
impl FastPath for NodeRail<'_> {
    forward_rail!(FastPath: below, except send_now);

    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        let sent = below!(self, rail => unsafe { rail.send_now(to, tag, header, body) });
        self.check_enabled(sent)
    }
}

#[deny(clippy::missing_trait_methods)]
impl RequestCache for NodeRail<'_> {
    forward_rail!(RequestCache: below, except send_request);

    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        let sent = below!(self, rail => unsafe { rail.send_request(to, shape, header, body, cookie, extra) });
        self.check_enabled(sent)
    }
}

#[deny(clippy::missing_trait_methods)]
impl SingleCopy for NodeRail<'_> {
    forward_rail!(SingleCopy: below);
}

#[deny(clippy::missing_trait_methods)]
impl DeviceMemory for NodeRail<'_> {
    forward_rail!(DeviceMemory: below, except perform);

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        let begun = below!(self, rail => unsafe { rail.perform(on, native, cookie) });
        self.used_while_disabled |= self.disabled && begun.is_ok();
        begun
    }
}

#[deny(clippy::missing_trait_methods)]
impl Failover for NodeRail<'_> {
    forward_rail!(Failover: below, except send_migrated);

    unsafe fn send_migrated(
        &mut self,
        to: Endpoint,
        origin: Origin,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        let sent = below!(self, rail => unsafe { rail.send_migrated(to, origin, shape, header, body, cookie) });
        self.check_enabled(sent)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Liveness for NodeRail<'_> {
    forward_rail!(Liveness: below);
}

impl<'m> NodeRail<'m> {
    const fn new(kind: RailKind<'m>) -> Self {
        Self { kind, disabled: false, used_while_disabled: false }
    }

    /// Enables or disables it.
    pub fn set_enabled(&mut self, on: bool) {
        self.disabled = !on;
    }

    /// Notes whether a frame was given to a disabled rail.
    fn check_enabled(&mut self, sent: Result<Sent, SendError>) -> Result<Sent, SendError> {
        self.used_while_disabled |= self.disabled && sent.is_ok();
        sent
    }
}

/// All rails of a node.
pub struct NodeRails<'m>(pub Vec<NodeRail<'m>>);

impl<'m> NodeRails<'m> {
    /// Makes the rails, and their memory, which must be dropped after them. Every incarnation must be different.
    pub fn new(
        rails: Vec<SimRail>,
        links: Option<LinkParams>,
        incarnation: u64,
        peers: u32,
    ) -> (Self, Vec<Box<[u64]>>) {
        let Some(links) = links else {
            return (
                Self(rails.into_iter().map(|rail| NodeRail::new(RailKind::Raw(Box::new(rail)))).collect()),
                vec![],
            );
        };
        let mut memories = vec![];
        let link = |(index, raw): (usize, SimRail)| {
            let config = links.config(index as u8, incarnation, peers, &raw);
            let mut memory = vec![0u64; config.bytes(&raw).div_ceil(8) + 1].into_boxed_slice();
            // SAFETY: fresh zeros, used by nothing else, and kept by the caller for longer than the link.
            let mut arena: Arena<'m> =
                unsafe { Arena::from_zeroed(NonNull::from(&mut *memory).cast(), memory.len() * 8) };
            memories.push(memory);
            let link = Link::new(raw, Crc32c, config, &mut arena).expect("as much memory as it said");
            NodeRail::new(RailKind::Linked(Box::new(link)))
        };
        let rails = rails.into_iter().enumerate().map(link).collect();
        (Self(rails), memories)
    }

    /// Whether all links to a peer are connected.
    pub fn have_met(&self, peer: Peer) -> bool {
        self.0.iter().all(|rail| match &rail.kind {
            RailKind::Raw(_) => true,
            RailKind::Linked(link) => link.has_answered(peer),
        })
    }

    /// Whether a frame was given to a disabled rail.
    pub fn was_used_while_disabled(&self) -> bool {
        self.0.iter().any(|rail| rail.used_while_disabled)
    }

    /// Sums of the links' counters.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut sums = vec![];
        for rail in &self.0 {
            if let RailKind::Linked(link) = &rail.kind {
                add(&mut sums, &named(link.counters()));
            }
        }
        sums
    }
}

/// A link's counters, with their names after `link_`.
fn named(counters: &Counters) -> [(&'static str, u64); 13] {
    macro_rules! named {
        ($($name:ident),*) => { [$((concat!("link_", stringify!($name)), counters.$name)),*] };
    }
    named!(
        resent,
        timeouts,
        duplicates,
        bad_headers,
        bad_bodies,
        no_room,
        before_handshake,
        probes,
        downs,
        ups,
        migrated,
        claims,
        hellos
    )
}

impl<'m> Rails for NodeRails<'m> {
    type Rail = NodeRail<'m>;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn rail(&self, index: usize) -> Option<&NodeRail<'m>> {
        self.0.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut NodeRail<'m>> {
        self.0.get_mut(index)
    }
}
