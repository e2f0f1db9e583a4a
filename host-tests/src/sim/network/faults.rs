//! What may go wrong on simulated rails, and how often it did.

use towline_core::rail::native::OneSided;

use crate::random::Random;

/// What one rail of every node is like.
#[derive(Clone, Copy, Debug)]
pub struct RailParams {
    /// Nanoseconds from commit to arrival of an empty frame.
    pub latency: u32,
    /// Megabytes per second of each directed pair.
    pub bandwidth: u32,
    /// Longest eager and control frame in bytes.
    pub eager_limit: u32,
    /// Body bytes that go with a rendezvous header, at most.
    pub rendezvous_eager_limit: u32,
    /// Below this nothing is split any further.
    pub min_fragment: u32,
    /// Longest bulk frame in bytes.
    pub max_send_size: u32,
    /// Frames of each lane that are under way or unreleased between two nodes, at most.
    pub slots: u32,
    /// Frames that a receiver may hold.
    pub frames_kept: u32,
    /// Frames travel for themselves, as datagrams do: they may be lost, doubled and changed, those of unknown senders are
    /// dropped, and nothing is ever told of a peer that is gone. Otherwise they travel by a connection, which delays or
    /// breaks.
    pub datagrams: bool,
    /// What its device does.
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
    /// The same with frames that travel for themselves.
    pub const fn datagrams(self) -> Self {
        Self { datagrams: true, ..self }
    }
}

/// Two nodes that cannot reach each other for a time.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// Whose frames do not arrive.
    pub from: u32,
    /// And where.
    pub to: u32,
    /// Neither do those that go the other way.
    pub both: bool,
    /// By that rail; `None` by all of them.
    pub rail: Option<u32>,
    /// When.
    pub window: Window,
}

/// A rail of a node that is dead for a time.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Whose.
    pub node: u32,
    /// Which; `None` for all of them.
    pub rail: Option<u32>,
    /// When; up to [`FOR_EVER`].
    pub window: Window,
}

/// Two nodes without a common rail, or with one rail less in common: for the whole job.
#[derive(Clone, Copy, Debug)]
pub struct Missing {
    /// One of them, the lower.
    pub one: u32,
    /// The other.
    pub other: u32,
    /// That rail does not lead from one to the other; `None`: none does.
    pub rail: Option<u32>,
}

impl Missing {
    /// Whether it is about that rail of this pair.
    pub fn holds(&self, one: u32, other: u32, rail: u32) -> bool {
        (self.one, self.other) == (one.min(other), one.max(other)) && self.rail.is_none_or(|one| one == rail)
    }
}

/// The end of what does not end.
pub const FOR_EVER: u64 = u64::MAX;

/// What goes wrong. The default: nothing. Chances are per mille.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A rail with room refuses.
    pub busy: u32,
    /// A refusal lasts: nothing is taken for up to so many nanoseconds.
    pub busy_for: u64,
    /// Each frame takes up to so many nanoseconds more: frames overtake each other.
    pub jitter: u64,
    /// A frame's body comes later than its header.
    pub late_body: u32,
    /// A body is read where it lies, later.
    pub in_place: u32,
    /// A frame leaves only when its sender polls.
    pub staged: u32,
    /// A body is lent to whoever asks for that, and not refused.
    pub expose: u32,
    /// What was lent cannot be fetched.
    pub unreadable: u32,
    /// A device takes up to so many nanoseconds more.
    pub device_delay: u64,
    /// A device has no room.
    pub device_busy: u32,
    /// A device does not do what it is asked for.
    pub device_refuses: u32,
    /// A device fails when it is half through.
    pub device_breaks: u32,
    /// Memory is not registered.
    pub unregistered: u32,
    /// A datagram is lost.
    pub drop: u32,
    /// A datagram comes twice.
    pub duplicate: u32,
    /// A datagram comes with one bit flipped, of another kind, or cut short.
    pub corrupt: u32,
    /// Frames wait until it is over; datagrams are lost.
    pub partitions: Vec<Partition>,
    /// A rail of a node neither sends nor receives for a time.
    pub rail_stalls: Vec<(u32, u32, Window)>,
    /// Connections break; datagrams are lost.
    pub outages: Vec<Outage>,
    /// A rail of several on which half of all datagrams are lost for a time, while others lose none.
    pub lossy_rail: Option<(u32, Window)>,
    /// A node stands still, as if it were stopped or computed: it does not call its engine.
    pub node_stalls: Vec<(u32, Window)>,
    /// Hosts answer for processes that stand still, and say so when one is gone.
    pub hosts_answer: bool,
    /// With hosts: after a datagram its sender hears that nobody is there, which is not true.
    pub false_refusals: u32,
    /// Pairs that cannot reach each other by some or all rails.
    pub missing: Vec<Missing>,
    /// A bug, to see that it is noticed.
    pub planted: Option<PlantedBug>,
}

/// A bug that no rail, link or program may have: once in a while it does what it must not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// A frame over a reliable rail is lost.
    FrameLost,
    /// It comes twice.
    FrameDuplicated,
    /// A bit of its body changes.
    BodyCorrupted,
    /// It takes the place of the one before it in the order of messages.
    MessagesSwapped,
    /// A body is told to be in its sink, and never gets there.
    SinkUnwritten,
    /// A request is never given back.
    RequestLeaked,
    /// A rail that was disabled is never enabled again.
    RailStaysDisabled,
    /// Frames are given to a rail although it is disabled.
    DisabledRailUsed,
    /// A stall time-out is not set.
    NoStallTimeout,
    /// It is much shorter than it should be.
    ShortStallTimeout,
    /// Hosts that are there do not answer.
    HostsSilent,
    /// Hosts that are gone answer.
    LostHostsAnswer,
    /// Where one rail loses half of its frames, all of them tell that whom they were for is lost.
    FalseLoss,
    /// Nodes without a common rail reach each other.
    MissingRailUsed,
}

impl PlantedBug {
    /// Whether it is a bug of rails, which end with all else that goes wrong.
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
    /// A random set of the faults that a reliable rail may show, each with a random strength.
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

/// Declares the counters together with their names.
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

            /// Adds what happened elsewhere.
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
    /// Refusals for want of room.
    busy_for_room,
    /// Frames handed over after a later one of the same pair and rail.
    reordered,
    /// Frames whose body came later than the header.
    late_bodies,
    /// Deliveries that were pending.
    pending_deliveries,
    /// Bodies read where they lay.
    in_place,
    /// Frames that waited for their sender's poll.
    staged,
    /// Bodies lent.
    exposed,
    /// Bodies fetched from where they lay.
    read_exposed,
    /// Fetches that failed.
    unreadable,
    /// Operations that devices did, and those that they did not begin with for want of room or otherwise.
    performed,
    device_busy,
    device_refused,
    /// Operations that failed half through.
    device_broken,
    /// Operations on memory that was not registered any more.
    not_reached,
    /// Memory that was not registered.
    unregistered,
    /// Writes that came after whoever began them had forgotten the peer, also where the memory was registered no more.
    late_writes,
    /// Frames lost.
    dropped,
    /// Frames doubled.
    duplicated,
    /// Frames changed.
    corrupted,
    /// Frames held up or lost by a partition.
    partitioned,
    /// Those of them by one that holds one way only.
    one_way,
    /// Datagrams lost because a rail was dead.
    outage_losses,
    /// Datagrams lost by the rail that loses half of them.
    lossy_rail_losses,
    /// Rails that were disabled.
    disabled,
    /// Those of them that were enabled again.
    enabled,
    /// Nodes that stood still for a while.
    nodes_stalled,
    /// Those of them that others waited for, longer than a silent link lives, and kept because their hosts answered.
    kept_by_host,
    /// Nodes that were given up because they stood still for longer than the stall time-out.
    given_up_stalled,
    /// Nodes that others waited for while they stood still, and kept since it was shorter than that.
    kept_below_timeout,
    /// Questions to hosts that were answered.
    hosts_asked,
    /// Those that were not.
    hosts_silent,
    /// Nodes that were lost with their host.
    hosts_lost,
    /// Datagrams of which a host said that nobody is there.
    refused,
    /// The same where it is not true.
    false_refusals,
    /// Pairs of which one could not be added for want of a common rail.
    unlinked,
    /// Ways that are missing between pairs that have others.
    fewer_rails,
    /// Rails that died.
    outages,
    /// Rails of which a peer was added again after its connection was cut.
    reconnected,
    /// Nodes that died.
    killed,
    /// Nodes that came back.
    revived,
    /// Frames of or for a incarnation that is over.
    stale_frames,
    /// Polls in vain because of a stall.
    stalled_polls,
    /// Pairs of rails that were cut.
    cut,
    /// Requests prepared for a cache.
    prepared,
    /// Requests undone, when they left it.
    unprepared,
    /// Frames of requests from a cache.
    cached,
    /// Frames of others.
    uncached,
}
