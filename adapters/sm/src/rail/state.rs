//! The state of a rail, and how it is opened.

use std::os::fd::OwnedFd;

use towline_core::rail::attributes::EXCLUSIVITY_HOST;
use towline_core::rail::native::OneSided;
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities};
use towline_core::time::Instant;

use super::held_frames::HeldFrames;
use super::peer::PeerState;
use super::ring_pair::RingPair;
use crate::card::{self, Card};
use crate::clean_up::Requests;
use crate::config::Config;
use crate::error::{OpenError, system_error};
use crate::host::{self, HostId, Process};
use crate::membarrier;
use crate::rma::{ALL_OPERATIONS, OwnRegions};
use crate::segment::control::ControlSegment;
use crate::segment::layout::{PAGE, doorbell_words};
use crate::segment::names::SegmentNames;
use crate::segment::room::file_limit;
use crate::segment::stale::remove_stale;

/// In [`PollSchedule::fast_ring`]: no ring. There are fewer rings than that.
pub(super) const NO_RING: u32 = u32::MAX;

/// The path from one rank to the other processes of its host. A rail is used by one thread at a time.
///
/// ```
/// use towline_core::rail::{Event, Lane, Peer, Rail as _, Shape};
/// use towline_core::time::Instant;
/// use towline_sm::{Config, Rail};
///
/// // Two ranks; here in one thread, usually in two processes that exchange their cards.
/// let job = u64::from(std::process::id());
/// let mut left = Rail::open(Config::new(job, 0, 2))?;
/// let mut right = Rail::open(Config::new(job, 1, 2))?;
/// let to_right = left.add_peer(Peer(1), right.card()).unwrap();
/// right.add_peer(Peer(0), left.card()).unwrap();
///
/// let mut grant = left.reserve(to_right, Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 }).unwrap();
/// grant.write(0, b"hello");
/// let ticket = grant.finish();
/// left.commit(ticket);
/// let Some(Event::Frame(frame)) = right.poll(Instant::ZERO) else { panic!() };
/// assert_eq!((frame.from, frame.tag, frame.head()), (Peer(0), 0x80, &b"hello"[..]));
/// # Ok::<(), towline_sm::OpenError>(())
/// ```
#[derive(Debug)]
pub struct Rail {
    pub(super) schedule: PollSchedule,
    /// Two for each endpoint: see [`RingPair`].
    pub(super) rings: Vec<RingPair>,
    pub(super) held: HeldFrames,
    pub(super) control: ControlSegment,
    pub(super) doorbell: DoorbellState,
    /// The peers by endpoint.
    pub(super) peers: Vec<PeerState>,
    /// Endpoint of each rank, plus one; 0 for a rank that is not known.
    pub(super) endpoints: Box<[u32]>,
    /// Number of peers about which an event is still to be reported: that they were left, or lost.
    pub(super) to_report: u32,
    /// Why shared memory is used no more to some peer: the first reason.
    pub(super) warning: Option<String>,
    pub(super) ring_locks: RingLocks,
    /// Who removes our files if we do not.
    pub(super) clean_up: Requests,
    pub(super) waiting: WaitState,
    /// Whether frames wake a peer only on demand, by `signal`.
    pub(super) wake_on_demand: bool,
    /// Our memory that peers may map.
    pub(super) regions: OwnRegions,
    pub(super) next_liveness_check: Instant,
    /// The end of this rail is a failure for its peers.
    pub(super) fails_at_end: bool,
    pub(super) identity: Identity,
    pub(super) config: Config,
    pub(super) attributes: Attributes,
}

/// Which rings a poll looks at, and when maintenance is due.
#[derive(Debug)]
pub(super) struct PollSchedule {
    /// Number of the incoming ring that the fast path looks at, or [`NO_RING`]. `poll` sets it, to the number of an active ring.
    pub fast_ring: u32,
    /// Polls until `poll` begins with another ring.
    pub polls_left: u32,
    /// Turns of [`polls_left`](Self::polls_left) until maintenance is due.
    pub turns_left: u32,
    /// Index in `active` of the ring that `poll` looks at first.
    pub next_active: usize,
    /// Numbers of the incoming rings that are polled each time.
    pub active: Vec<u32>,
    /// Numbers of the incoming rings that have been quiet: one of them is looked at in each idle poll, all in maintenance.
    pub quiet: Vec<u32>,
    /// Index in `quiet` of the ring that was looked at last.
    pub next_quiet: usize,
    pub maintenance_rounds: u32,
}

impl PollSchedule {
    fn new() -> Self {
        Self {
            fast_ring: NO_RING,
            polls_left: 0,
            turns_left: 0,
            next_active: 0,
            active: Vec::new(),
            quiet: Vec::new(),
            next_quiet: 0,
            maintenance_rounds: 0,
        }
    }

    /// Index in `quiet` of the ring that is to be looked at next.
    pub fn after_quiet(&self) -> usize {
        if self.next_quiet + 1 < self.quiet.len() { self.next_quiet + 1 } else { 0 }
    }
}

/// What the doorbell has said. Peers ring it in the control segment when they make a ring.
#[derive(Debug)]
pub(super) struct DoorbellState {
    /// The doorbell's counter when its bits were last taken.
    pub seen: u32,
    /// Bits of the doorbell that are still to be acted on, such as those of ranks that are not added yet.
    pub announced: Box<[u64]>,
}

/// Locks on the files of rings, which a sender holds until the receivers have looked.
#[derive(Default, Debug)]
pub(super) struct RingLocks {
    /// Number of rings whose files are locked.
    pub held: u32,
    /// Number of rings that were made without a lock, because too many were held.
    pub over_limit: u32,
}

/// How this rank waits for frames and for credit.
#[derive(Debug)]
pub(super) struct WaitState {
    /// Whether any outgoing ring wants credit.
    pub wants_credit: bool,
    /// Whether some peer could not be woken for lack of a descriptor.
    pub owes_wakes: bool,
    /// Whether sleep may be announced in the control segment.
    pub armed: bool,
    /// Whether this process is registered for the barriers of receivers that go to sleep.
    pub has_membarrier: bool,
    /// The pipe that wakes this rank, once it was asked for.
    pub pipe: Option<OwnedFd>,
}

/// This rank, as its peers see it.
#[derive(Debug)]
pub(super) struct Identity {
    pub process: Process,
    pub card: Card,
    /// The card, encoded.
    pub card_bytes: [u8; card::LEN],
    /// The names of the job's files.
    pub names: SegmentNames,
}

impl Rail {
    /// Opens a rank's rail: removes stale files of jobs whose processes are gone, and makes the rank's control segment. Contacts
    /// no peer.
    ///
    /// # Errors
    /// [`OpenError`]: an impossible setting, no room in the file system, a rank that runs already, or a refusal of the system.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        check_file_limit(&config)?;
        let process = Process::current();
        remove_stale(&config.directory, &process);
        let host = HostId::of(&config.directory).map_err(|error| system_error("look at", &config.directory, error))?;
        let names = SegmentNames::new(&config.directory, config.job);
        let clean_up = Requests::new(config.clean_up.clone(), &config.directory, config.job, config.rank, config.ranks);
        let (nonce, has_membarrier) = (host::nonce(), membarrier::register());
        let control =
            ControlSegment::create(&names.control(config.rank), config.ranks, &process, nonce, has_membarrier)?;
        let user = rustix::process::geteuid().as_raw();
        let card = Card { host, user, rank: config.rank, job: config.job, nonce, process };
        Ok(Self {
            schedule: PollSchedule::new(),
            rings: Vec::new(),
            held: HeldFrames::new(config.frames_kept),
            control,
            doorbell: DoorbellState { seen: 0, announced: vec![0; doorbell_words(config.ranks)].into() },
            peers: Vec::new(),
            endpoints: vec![0; config.ranks as usize].into(),
            to_report: 0,
            warning: None,
            ring_locks: RingLocks::default(),
            clean_up,
            waiting: WaitState { wants_credit: false, owes_wakes: false, armed: false, has_membarrier, pipe: None },
            wake_on_demand: false,
            fails_at_end: false,
            regions: OwnRegions::default(),
            next_liveness_check: Instant::ZERO,
            identity: Identity { process, card, card_bytes: card.encode(), names },
            attributes: attributes(&config),
            config,
        })
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Why shared memory is used no more to some peer, as a text for people: the first reason. `None` where there is none.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The rank of an endpoint, for logs; `u32::MAX` where there is no such endpoint.
    pub(super) fn rank_of(&self, endpoint: u32) -> u32 {
        self.peers.get(endpoint as usize).map_or(u32::MAX, |peer| peer.rank)
    }
}

/// Checks that this process may make the rings.
fn check_file_limit(config: &Config) -> Result<(), OpenError> {
    let bytes = u64::from(config.eager_ring_bytes.max(config.bulk_ring_bytes)) + PAGE as u64;
    match file_limit().filter(|limit| *limit < bytes) {
        Some(limit) => Err(OpenError::FileLimit { path: config.directory.join("ring"), bytes, limit }),
        None => Ok(()),
    }
}

/// The rail's attributes, for the engine.
fn attributes(config: &Config) -> Attributes {
    let thread = if config.progress_thread { Capabilities::PROGRESS_THREAD } else { Capabilities::empty() };
    Attributes {
        name: "sm",
        capabilities: Capabilities::SEND.union(Capabilities::SIGNALED).union(thread),
        exclusivity: EXCLUSIVITY_HOST,
        latency: config.latency_nanos,
        bandwidth: config.bandwidth_megabytes_per_second,
        eager_limit: config.eager_limit_bytes,
        rendezvous_eager_limit: config.eager_limit_bytes,
        min_fragment: config.bulk_limit_bytes.min(4096),
        max_send_size: config.bulk_limit_bytes,
        cache_size: 0,
        cache_bytes: 0,
        accelerator: AcceleratorLimits::NONE,
        frames_kept: config.frames_kept,
        one_sided: if config.share_windows { ALL_OPERATIONS } else { OneSided::NONE },
    }
}
