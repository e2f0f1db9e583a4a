//! The faults of simulated rails, and counts of how often each happened.

use towline_core::rail::native::OneSided;

use crate::random::Random;

/// The parameters of one rail. Every node has one rail of each set of parameters.
#[derive(Clone, Copy, Debug)]
pub struct RailParams {
    /// Nanoseconds from commit to arrival of an empty frame.
    pub latency: u32,
    /// Megabytes per second of each directed pair.
    pub bandwidth: u32,
    /// Longest eager and control frame in bytes.
    pub eager_limit: u32,
    /// Most body bytes that are sent with a rendezvous header.
    pub rendezvous_eager_limit: u32,
    /// Smallest fragment: messages are not split further.
    pub min_fragment: u32,
    /// Longest bulk frame in bytes.
    pub max_send_size: u32,
    /// Most frames of each lane that are in flight or unreleased between two nodes.
    pub slots: u32,
    /// Most frames that a receiver may hold.
    pub frames_kept: u32,
    /// Frames are independent, like datagrams: they may be lost, duplicated and corrupted, frames of unknown senders
    /// are dropped, and the loss of a peer is never reported. Otherwise frames travel over a connection, which delays
    /// or breaks.
    pub datagrams: bool,
    /// The abilities of its device.
    pub device: OneSided,
}

impl Default for RailParams {
    fn default() -> Self {
        Self {
            latency: 1000,
            bandwidth: 1000,
            eager_limit: 4096,
            rendezvous_eager_limit: 1024,
            min_fragment: 1024,
            max_send_size: 16_384,
            slots: 16,
            frames_kept: 1,
            datagrams: false,
            device: OneSided::NONE,
        }
    }
}

/// A span of virtual time in nanoseconds, from the first to before the second.
pub type Window = (u64, u64);

impl RailParams {
    /// The same parameters with independent frames.
    pub const fn datagrams(self) -> Self {
        Self { datagrams: true, ..self }
    }
}

/// A partition: two nodes cannot reach each other for a time.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// The sender whose frames do not arrive.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// Frames in the other direction do not arrive either.
    pub both: bool,
    /// The rail, or `None` for all rails.
    pub rail: Option<u32>,
    /// When.
    pub window: Window,
}

/// An outage: a rail of a node is dead for a time.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// The node.
    pub node: u32,
    /// The rail, or `None` for all rails.
    pub rail: Option<u32>,
    /// When; up to [`FOR_EVER`].
    pub window: Window,
}

/// Two nodes without a common rail, or with one common rail less, for the whole job.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// The lower node.
    pub one: u32,
    /// The higher node.
    pub other: u32,
    /// The missing rail, or `None` if all are missing.
    pub rail: Option<u32>,
}

impl Missing {
    /// Whether it concerns this rail of this pair.
    pub fn holds(&self, one: u32, other: u32, rail: u32) -> bool {
        (self.one, self.other) == (one.min(other), one.max(other)) && self.rail.is_none_or(|one| one == rail)
    }
}

/// The end of a fault that does not end.
pub const FOR_EVER: u64 = u64::MAX;

/// The faults of a network. The default is none. Chances are per mille.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A rail with room refuses a frame.
    pub busy: u32,
    /// A refusal lasts for up to this many nanoseconds.
    pub busy_for: u64,
    /// Each frame takes up to this many additional nanoseconds, so frames are reordered.
    pub jitter: u64,
    /// The body of a frame arrives later than its header.
    pub late_body: u32,
    /// A body is left in place and read later.
    pub in_place: u32,
    /// A frame is sent only when its sender polls.
    pub staged: u32,
    /// A rail agrees to expose a body.
    pub expose: u32,
    /// An exposed body cannot be read.
    pub unreadable: u32,
    /// A device takes up to this many additional nanoseconds.
    pub device_delay: u64,
    /// A device has no room.
    pub device_busy: u32,
    /// A device refuses an operation.
    pub device_refuses: u32,
    /// A device fails after half of an operation.
    pub device_breaks: u32,
    /// Memory cannot be registered.
    pub unregistered: u32,
    /// A datagram is lost.
    pub drop: u32,
    /// A datagram arrives twice.
    pub duplicate: u32,
    /// A datagram arrives with one bit flipped, with another tag, or truncated.
    pub corrupt: u32,
    /// Partitions: frames wait until one is over, and datagrams are lost.
    pub partitions: Vec<Partition>,
    /// Stalls of rails: a rail of a node does not send or receive for a time.
    pub rail_stalls: Vec<(u32, u32, Window)>,
    /// Outages: connections break, and datagrams are lost.
    pub outages: Vec<Outage>,
    /// A rail on which half of all datagrams are lost for a time, while the other rails lose none.
    pub lossy_rail: Option<(u32, Window)>,
    /// A node is stalled, as if it were stopped or computed: it does not call its engine.
    pub node_stalls: Vec<(u32, Window)>,
    /// Hosts answer for stalled processes, and report when a process has ended.
    pub hosts_answer: bool,
    /// If hosts answer: the sender of a datagram gets a false reply that no process is there.
    pub false_refusals: u32,
    /// Pairs without some or all common rails.
    pub missing: Vec<Missing>,
    /// A planted bug, which a test must detect.
    pub planted: Option<PlantedBug>,
}

/// A planted bug of a rail, link or program. It takes effect now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A frame on a reliable rail is lost.
    FrameLost,
    /// A frame on a reliable rail arrives twice.
    FrameDuplicated,
    /// A bit of a body on a reliable rail changes.
    BodyCorrupted,
    /// Two messages swap their places in the order.
    MessagesSwapped,
    /// A delivery is reported, but the body is not written to the sink.
    SinkUnwritten,
    /// A request is never released.
    RequestLeaked,
    /// A disabled rail is never enabled again.
    RailStaysDisabled,
    /// Frames are given to a disabled rail.
    DisabledRailUsed,
    /// A stall time-out is not set.
    NoStallTimeout,
    /// The stall time-out is much too short.
    ShortStallTimeout,
    /// Live hosts do not answer.
    HostsSilent,
    /// Lost hosts answer.
    LostHostsAnswer,
    /// A rail that loses half of its frames makes all rails report the peer as lost.
    FalseLoss,
    /// Nodes without a common rail can reach each other.
    MissingRailUsed,
}

impl PlantedBug {
    /// Whether it is a bug of rails. Such a bug ends together with all other faults.
    pub const fn is_of_rails(self) -> bool {
        matches!(
            self,
            Self::FrameLost
                | Self::FrameDuplicated
                | Self::BodyCorrupted
                | Self::MessagesSwapped
                | Self::SinkUnwritten
                | Self::RequestLeaked
        )
    }
}

impl Faults {
    /// A random set of the faults of a reliable rail, each with a random strength.
    pub fn reliable(random: &mut Random) -> Self {
        let mut one = |of: &[u32]| if random.chance(500) { random.pick(of) } else { 0 };
        Self {
            busy: one(&[5, 50, 300]),
            busy_for: one(&[0, 500, 20_000]).into(),
            jitter: one(&[10, 1000, 50_000]).into(),
            late_body: one(&[20, 300, 1000]),
            in_place: one(&[100, 500, 1000]),
            staged: one(&[100, 500, 1000]),
            expose: one(&[500, 1000]),
            unreadable: one(&[10, 300, 1000]),
            ..Self::default()
        }
    }
}

/// Declares the counters with their names.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts {
            $($(#[$doc])* #[allow(missing_docs)] pub $name: u64,)*
        }

        impl Counts {
            /// Names and values.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// Adds other counts.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Frames committed.
    frames,
    /// Bytes of them.
    bytes,
    /// Refusals by chance.
    busy_by_chance,
    /// Refusals because there was no room.
    busy_for_room,
    /// Frames received after a later one of the same pair and rail.
    reordered,
    /// Frames whose body arrived later than the header.
    late_bodies,
    /// Deliveries that were pending.
    pending_deliveries,
    /// Bodies left in place and read later.
    in_place,
    /// Frames that waited for their sender's poll.
    staged,
    /// Bodies exposed.
    exposed,
    /// Exposed bodies read.
    read_exposed,
    /// Reads of exposed bodies that failed.
    unreadable,
    /// Operations of devices, and those that they refused because there was no room or by chance.
    performed,
    device_busy,
    device_refused,
    /// Operations of devices that failed half through.
    device_broken,
    /// Operations of devices on memory that was no longer registered.
    not_reached,
    /// Refused registrations.
    unregistered,
    /// Writes of devices after the initiator had deleted the peer, including those to memory that was no longer
    /// registered.
    late_writes,
    /// Frames lost.
    dropped,
    /// Frames doubled.
    duplicated,
    /// Frames changed.
    corrupted,
    /// Frames held up or lost by a partition.
    partitioned,
    /// Frames held up or lost by a partition of one direction.
    one_way,
    /// Datagrams lost in an outage.
    outage_losses,
    /// Datagrams lost by the lossy rail.
    lossy_rail_losses,
    /// Rails that were disabled.
    disabled,
    /// Disabled rails that were enabled again.
    enabled,
    /// Stalls of nodes.
    nodes_stalled,
    /// Stalled nodes that other nodes kept although they were silent for longer than a link allows, since their hosts
    /// answered.
    kept_by_host,
    /// Nodes that were given up because of the stall time-out.
    given_up_stalled,
    /// Stalled nodes that other nodes kept since the stall was shorter than the time-out.
    kept_below_timeout,
    /// Requests to hosts that were answered.
    hosts_asked,
    /// Requests to hosts that were not answered.
    hosts_silent,
    /// Nodes that were lost with their host.
    hosts_lost,
    /// Datagrams to which a host replied that no process is there.
    refused,
    /// Such replies that were false.
    false_refusals,
    /// Pairs that could not be introduced, since they have no common rail.
    unlinked,
    /// Sends that were cancelled and begun again.
    cancelled_sends,
    /// Sends that could not be cancelled.
    uncancelled_sends,
    /// Missing rails of pairs that have other common rails.
    fewer_rails,
    /// Rails that died.
    outages,
    /// Peers that were added again after their connection broke.
    reconnected,
    /// Nodes that died.
    killed,
    /// Nodes that came back.
    revived,
    /// Frames from or to an earlier incarnation.
    stale_frames,
    /// Polls that found nothing because the rail was stalled.
    stalled_polls,
    /// Pairs of rails that were cut.
    cut,
    /// Requests prepared for a cache.
    prepared,
    /// Requests released from the cache.
    unprepared,
    /// Frames of requests from a cache.
    cached,
    /// Frames of requests that are not cached.
    uncached,
}
