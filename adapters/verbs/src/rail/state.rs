//! The rail: its queues, its memory, its peers, and what it says of itself.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use towline_core::rail::atomics::AtomicSupport;
use towline_core::rail::attributes::EXCLUSIVITY_DEFAULT;
use towline_core::rail::native::{OneSided, Pipeline, Reach};
use towline_core::rail::{AcceleratorLimits, Attributes, Capabilities, Endpoint, Lost, Peer, Ticket};
use towline_core::time::Instant;

use crate::bookkeeping::pending_events::{Arrival, Arrivals};
use crate::wire::card::{self, Card};
use crate::config::{Config, HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE};
use crate::counters::Counters;
use crate::device::{
    Channel, Completions, Datagrams, Destination, Domain, Opened, POSTS, Port, Region, Registered, Reliable,
    SharedReceives, open,
};
use crate::error::SetupError;
use crate::wire::hello::{self, Hello, Stage};
use crate::bookkeeping::layout::{HELLOS_IN, HELLOS_OUT, Layout, ROUTE};
use crate::bookkeeping::closing::Leaving;
use crate::bookkeeping::hello_buffers::Outbox;
use crate::port::{self, Mtu};
use crate::bookkeeping::round_robin::Round;
use crate::bookkeeping::send_queue::{Outstanding, Slot, Slots};

/// Markers that may be on their way.
pub(crate) const MARKERS: u32 = 64;
/// Control frames that may be under way to a peer beyond the others, and a marker.
pub(crate) const CONTROL: u32 = 16;
/// One-sided operations that may be under way, to all peers, each of which is two pieces of work at the most; and to one, so that
/// others have their share while it answers nothing.
pub(crate) const WORKS: u32 = 64;
pub(crate) const WORKS_TO_ONE: u32 = WORKS / 4;

/// One port of a device that reaches all peers, each by a queue pair of its own.
#[derive(Debug)]
pub struct Rail {
    pub(crate) config: Config,
    pub(crate) attributes: Attributes,
    pub(crate) card: [u8; card::BYTES],
    pub(crate) port: Port,
    pub(crate) mtu: Mtu,
    pub(crate) instance: u64,

    /// By endpoint.
    pub(crate) peers: Vec<Option<Known>>,
    /// Endpoints without a peer.
    pub(crate) free: Vec<u32>,
    /// Endpoints by rank.
    pub(crate) ranks: HashMap<u32, u32>,
    /// Of each rank, an instance and the last number of a connection of it that was heard of: also of peers that were forgotten.
    pub(crate) past: HashMap<u32, (u64, u64)>,
    /// Endpoints by the number of their queue pair here, in order of that.
    pub(crate) lines: Vec<(u32, u32)>,
    /// Number of the next connection.
    pub(crate) number: u64,

    /// What came, and whom it is from.
    pub(crate) arrived: Arrivals,
    /// By receive buffer: whose frame the reader holds there.
    pub(crate) held: Vec<Option<Held>>,
    pub(crate) held_count: u32,
    /// Receive buffers that the device is to get back: [`POSTS`] at most.
    pub(crate) used: Vec<u32>,
    pub(crate) slots: Slots,
    pub(crate) granted: Option<(Ticket, Slot)>,
    /// Memory of the user's that the device may touch, by the names that were given out.
    pub(crate) registered: HashMap<u64, Registered>,
    /// The next of those.
    pub(crate) next_region: u64,
    /// Hellos that came.
    pub(crate) heard: VecDeque<Hello>,
    /// Endpoints whose queue pair has failed.
    pub(crate) failed: Vec<u32>,
    /// Endpoints that are to be called.
    pub(crate) wanted: Vec<u32>,
    /// Endpoints that hellos are exchanged with.
    pub(crate) meeting: Vec<u32>,
    /// Endpoints to which frames left of which the device does not tell; each once.
    pub(crate) tails: Vec<u32>,
    /// When to ask how those do.
    pub(crate) tail_at: Option<Instant>,
    /// Not later than the next hello.
    pub(crate) next_hello: Option<Instant>,
    /// When to look who was silent; `None` while there is no connection.
    pub(crate) beat_at: Option<Instant>,
    /// Whom to look at first.
    pub(crate) turn: Round,
    /// Queue pairs of connections that have ended.
    pub(crate) leaving: Leaving<Reliable>,
    /// Buffers for hellos that the device has.
    pub(crate) hellos_in: u32,
    /// The queue pair of hellos has failed, and is to be mended once the device has given back all of its buffers.
    pub(crate) mending: bool,
    /// What has failed that all rests on, until that is seen to.
    pub(crate) fault: Option<&'static str>,
    /// The same from then on: there is no way to anybody.
    pub(crate) dead: Option<&'static str>,
    /// The channel may have become ready.
    pub(crate) armed: bool,
    pub(crate) now: Instant,
    pub(crate) counters: Counters,

    /// What the queue of completions has room for.
    pub(crate) room: u32,
    pub(crate) datagrams: Datagrams,
    /// Behind the queue pair of hellos, which goes before what its work names does.
    pub(crate) outbox: Outbox<Destination>,
    pub(crate) receives: Arc<SharedReceives>,
    pub(crate) completions: Arc<Completions>,
    channel: Arc<Channel>,
    pub(crate) region: Arc<Region>,
    pub(crate) layout: Layout,
    pub(crate) device: Arc<Opened>,
}

/// A frame in the reader's hands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub endpoint: u32,
    pub len: u32,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Known {
    pub peer: Peer,
    pub card: Card,
    pub way: Way,
    pub line: Option<Line>,
    /// Where its hellos go, once there were any.
    pub destination: Option<Arc<Destination>>,
}

/// How it stands with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Not used yet.
    Unused,
    /// The next poll begins.
    Wanted,
    /// There is a queue pair, and hellos are exchanged.
    Meeting,
    /// Frames can travel.
    Up,
    /// No way any more.
    Gone,
}

/// A connection, or what is to become one.
#[derive(Debug)]
pub(crate) struct Line {
    pub pair: Reliable,
    pub number: u64,
    pub first_packet: u32,
    /// The number at the other end, once that was heard of and this one connected to it; else zero.
    pub theirs: u64,
    pub out: Outstanding,
    /// In `Rail::tails`.
    pub in_tails: bool,
    /// Number of the next frame when that was looked at.
    pub tail: u32,
    /// When the device told last that something has arrived.
    pub heard: Instant,
    /// Hellos that were said, when to say the next, and when to give up.
    pub said: u32,
    pub next: Instant,
    pub deadline: Instant,
}

impl Rail {
    /// Opens a port. Contacts nobody.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, SetupError> {
        let asked = config.peer_timeout;
        let (device, port) = open(&config)?;
        let mut config = config.sane(if port.is_soft_roce { SOFT_ROCE_PIPELINE } else { HARDWARE_PIPELINE });
        if asked.is_zero() || asked > config.peer_timeout {
            let most = config.peer_timeout.as_secs();
            log::warn!(
                "verbs link {}: a peer whose device is silent for {most} s is lost: none waits longer",
                config.link
            );
        }
        config.receive_buffers = config.receive_buffers.min(port.most_shared.max(4));
        let most_work = port.most_work.saturating_sub(CONTROL + 1).max(4);
        config.send_queue_frames = config.send_queue_frames.min(most_work);
        config.signal_every = config.signal_every.min(config.send_queue_frames / 2);
        let layout = Layout::of(&config);
        let refused = |what| move |why| SetupError::Refused(what, why);
        let domain = Domain::new(Arc::clone(&device)).map_err(refused("make a protection domain"))?;
        let region = Region::new(&domain, layout.bytes).map_err(refused("register memory"))?;
        let channel = Channel::new(&device).map_err(refused("make a completion channel"))?;
        // All that may be under way at once has room, so none of it can be lost.
        let room = config.receive_buffers
            + config.eager_buffers
            + config.bulk_buffers
            + MARKERS
            + 2 * WORKS
            + HELLOS_IN
            + HELLOS_OUT;
        if room > port.most_completions {
            let why =
                std::io::Error::other(format!("{room} entries are more than the device's {}", port.most_completions));
            return Err(SetupError::Refused("make a completion queue", why));
        }
        let completions = Completions::new(&channel, room).map_err(refused("make a completion queue"))?;
        let receives =
            SharedReceives::new(&region, config.receive_buffers).map_err(refused("make a shared receive queue"))?;
        let mut random = [0; 12];
        let drawn = getrandom::fill(&mut random).map_err(std::io::Error::other);
        drawn.map_err(refused("draw random bytes"))?;
        let (instance, key) = random.split_at(8);
        let instance = u64::from_le_bytes(std::array::from_fn(|at| instance[at]));
        // Keys with the highest bit set are the device's own.
        let key = u32::from_le_bytes(std::array::from_fn(|at| key[at])) & 0x7fff_ffff;
        let datagrams = Datagrams::new(&region, &completions, port.number, (HELLOS_OUT, HELLOS_IN), key)
            .map_err(refused("make a queue pair for datagrams"))?;
        let asked = if config.path_mtu_bytes == 0 { None } else { Mtu::within(config.path_mtu_bytes) };
        let mtu = asked.map_or(port.mtu, |asked| asked.min(port.mtu));
        let card = Card {
            link: config.link,
            kind: port.address.entry.kind,
            mtu,
            job: config.job,
            instance,
            rank: config.rank,
            hello_queue: datagrams.number(),
            hello_key: key,
            longest: config.max_send_size_bytes,
            gid: port.address.entry.gid,
            lid: port.lid,
            reads: port.most_answers,
        };
        log::debug!("verbs link {}: {}, {}, packets of {} bytes", config.link, port.name, port.address, mtu.bytes());
        let mut rail = Self {
            attributes: attributes(&config, &port),
            card: card.encode(),
            port,
            mtu,
            instance,
            peers: Vec::new(),
            free: Vec::new(),
            ranks: HashMap::new(),
            past: HashMap::new(),
            lines: Vec::new(),
            number: 1,
            arrived: Arrivals::new(config.receive_buffers),
            held: vec![None; config.receive_buffers as usize],
            held_count: 0,
            used: Vec::with_capacity(POSTS),
            slots: Slots::new(config.eager_buffers, config.bulk_buffers, MARKERS, WORKS),
            granted: None,
            registered: HashMap::new(),
            next_region: 0,
            heard: VecDeque::with_capacity(HELLOS_IN as usize),
            failed: Vec::new(),
            wanted: Vec::new(),
            meeting: Vec::new(),
            tails: Vec::new(),
            tail_at: None,
            next_hello: None,
            beat_at: None,
            turn: Round::default(),
            leaving: Leaving::new(),
            hellos_in: 0,
            mending: false,
            fault: None,
            dead: None,
            armed: false,
            now: Instant::ZERO,
            counters: Counters::default(),
            room,
            datagrams,
            outbox: Outbox::new(HELLOS_OUT),
            receives,
            completions,
            channel,
            region,
            layout,
            device,
            config,
        };
        let all: Vec<u32> = (0..rail.layout.received.count()).collect();
        for some in all.chunks(POSTS) {
            rail.post_receives(some).map_err(refused("post a receive"))?;
        }
        rail.post_hellos().map_err(refused("post a receive"))?;
        Ok(rail)
    }

    /// What happened so far, in numbers.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the rail was made from, after impossible values were made possible.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The port that is used, as `device:port`.
    pub fn port(&self) -> &str {
        &self.port.name
    }

    /// Its address, and why that one.
    pub const fn address(&self) -> &port::Choice {
        &self.port.address
    }

    /// Moves the connection to a peer to its error state, as a fault of the network does: for tests.
    pub fn break_down(&self, to: Endpoint) {
        let known = self.peers.get(to.0 as usize).and_then(Option::as_ref);
        if let Some(line) = known.and_then(|known| known.line.as_ref())
            && let Err(why) = line.pair.break_down()
        {
            log::warn!("verbs: a connection does not break down: {why}");
        }
    }

    /// The same with the queue pair that hellos come by.
    pub fn break_hellos(&self) {
        if let Err(why) = self.datagrams.break_down() {
            log::warn!("verbs: the queue pair of hellos does not break down: {why}");
        }
    }

    #[inline]
    pub(crate) fn known(&mut self, endpoint: u32) -> Option<&mut Known> {
        self.peers.get_mut(endpoint as usize)?.as_mut()
    }

    /// Gives receive buffers to the device, [`POSTS`] at most.
    fn post_receives(&self, buffers: &[u32]) -> std::io::Result<()> {
        let place =
            |buffer: &u32| (Id::Receive(*buffer).word(), self.layout.received.at(*buffer).unwrap_or(usize::MAX));
        self.receives.post(buffers.iter().map(place), self.config.max_send_size_bytes)
    }

    /// The frame in a receive buffer was dealt with. The device gets it back later, with others or when nothing else is to be done:
    /// whoever waits for what the frame brought does not wait for that. Few enough are kept that the device has most of them.
    #[inline]
    pub(crate) fn post_again(&mut self, buffer: u32) {
        self.used.push(buffer);
        if self.used.len() >= POSTS.min(self.held.len() / 8) {
            self.post_used();
        }
    }

    /// Gives all of those to the device. It has as much room for buffers as there are, so it refuses none unless it is broken.
    pub(crate) fn post_used(&mut self) {
        if let Err(why) = self.post_receives(&self.used) {
            log::error!("verbs link {}: buffers are lost: {why}", self.config.link);
        }
        self.used.clear();
    }

    /// Gives a buffer for a hello to the device.
    pub(crate) fn post_hello(&mut self, buffer: u32) -> std::io::Result<()> {
        let at = self.layout.hellos_in.at(buffer).unwrap_or(usize::MAX);
        self.datagrams.post(Id::HelloIn(buffer).word(), at, (ROUTE + hello::BYTES) as u32)?;
        self.hellos_in += 1;
        Ok(())
    }

    /// Gives all of them.
    pub(crate) fn post_hellos(&mut self) -> std::io::Result<()> {
        (0..self.layout.hellos_in.count()).try_for_each(|buffer| self.post_hello(buffer))
    }

    /// Ends the way to a peer and reports it, once, after the frames of it that came.
    pub(crate) fn lose(&mut self, endpoint: u32, why: Lost) {
        let link = self.config.link;
        let Some(known) = self.known(endpoint) else { return };
        if known.way == Way::Gone {
            return;
        }
        known.way = Way::Gone;
        let (peer, rank) = (known.peer, known.card.rank);
        if why == Lost::Closed {
            log::debug!("verbs link {link}: rank {rank}: {why}");
        } else {
            log::warn!("verbs link {link}: rank {rank} is lost: {why}");
        }
        self.counters.lost += 1;
        if why != Lost::Closed {
            self.say_last(endpoint, Stage::Unknown); // the other end may be there
        }
        self.hang_up(endpoint);
        self.leave_lists(endpoint);
        self.arrived.push(Arrival::Lost { endpoint, peer, why });
    }

    /// Ends the connection to a peer. Frames that have come by it are still there.
    pub(crate) fn hang_up(&mut self, endpoint: u32) {
        let Some(line) = self.known(endpoint).and_then(|known| known.line.take()) else { return };
        let Line { pair, out, .. } = line;
        if let Err(why) = pair.break_down() {
            log::debug!("verbs: a connection does not break down: {why}");
        }
        let number = pair.number();
        self.leaving.add(pair, number, out, self.now);
        // What has come so far came from this peer.
        self.gather_all();
        self.take_memory_back(number);
        self.arrived.grow_old(endpoint);
        self.lines.retain(|(other, _)| *other != number);
    }

    /// Destroys queue pairs that the device has let go of. It may drop what it told of them and nobody has heard of yet.
    #[cold]
    pub(crate) fn let_go(&mut self) {
        self.hear_device();
        self.gather_all();
        self.leaving.let_go(self.now, &mut self.slots, Reliable::destroy);
        self.gather_all(); // what it tells late, while no other queue pair has their numbers
    }

    pub(crate) fn leave_lists(&mut self, endpoint: u32) {
        let Self { wanted, meeting, tails, failed, .. } = self;
        for list in [wanted, meeting, tails, failed] {
            list.retain(|it| *it != endpoint);
        }
        if self.granted.is_some_and(|(ticket, _)| ticket.endpoint.0 == endpoint) {
            self.granted = None;
        }
    }
}

impl AsFd for Rail {
    /// The wait handle: ready to read when there is work for `poll`, once `arm` has answered `true`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl AsRawFd for Rail {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.channel.as_fd().as_raw_fd()
    }
}

/// What a word given to the device names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Id {
    Receive(u32),
    Send { endpoint: u32, number: u32 },
    HelloIn(u32),
    HelloOut(u32),
}

/// Endpoints at most: what the word has room for.
pub(crate) const MOST_PEERS: usize = 1 << 30;

impl Id {
    #[inline]
    pub const fn word(self) -> u64 {
        match self {
            Self::Receive(buffer) => buffer as u64,
            Self::Send { endpoint, number } => 1 << 62 | (endpoint as u64) << 32 | number as u64,
            Self::HelloIn(buffer) => 2 << 62 | buffer as u64,
            Self::HelloOut(buffer) => 3 << 62 | buffer as u64,
        }
    }

    #[inline]
    pub const fn of(word: u64) -> Self {
        match word >> 62 {
            0 => Self::Receive(word as u32),
            1 => Self::Send { endpoint: (word >> 32) as u32 & 0x3fff_ffff, number: word as u32 },
            2 => Self::HelloIn(word as u32),
            _ => Self::HelloOut(word as u32),
        }
    }
}

fn attributes(config: &Config, port: &Port) -> Attributes {
    // Short ones are copied, so that who wants them need not register anything.
    let local_registration = u64::from(config.max_send_size_bytes) + 1;
    let limit = u64::from(port.most_bytes.clamp(4096, 1 << 30)) & !4095;
    let reads = config.one_sided && port.most_reads != 0 && port.most_answers != 0;
    let reach = if reads { Reach { limit, alignment: 1, local_registration } } else { Reach::NONE };
    let atomics = if reads { port.atomics } else { AtomicSupport::empty() };
    let has_atomics = Capabilities::ATOMIC_OPS | Capabilities::ATOMIC_FOPS;
    let native = match (reads, atomics.is_empty()) {
        (true, false) => Capabilities::NATIVE,
        (true, true) => Capabilities::NATIVE - has_atomics,
        (false, _) => Capabilities::empty(),
    };
    let thread = if config.progress_thread { Capabilities::PROGRESS_THREAD } else { Capabilities::empty() };
    Attributes {
        name: "verbs",
        capabilities: Capabilities::SEND | native | thread,
        exclusivity: EXCLUSIVITY_DEFAULT,
        latency: config.latency_nanos,
        bandwidth: config.bandwidth_megabytes_per_second,
        eager_limit: config.eager_limit_bytes,
        rendezvous_eager_limit: config.rendezvous_eager_limit_bytes,
        min_fragment: config.max_send_size_bytes,
        max_send_size: config.max_send_size_bytes,
        cache_size: 0,
        cache_bytes: 0,
        accelerator: AcceleratorLimits::NONE,
        // The rest goes on taking in what comes.
        frames_kept: (config.receive_buffers / 2).max(1),
        one_sided: OneSided {
            put: reach,
            get: reach,
            atomics,
            at_once: false,
            pipeline: config.pipeline.filter(|_| reads).unwrap_or(Pipeline::NONE),
        },
    }
}

const _: () = {
    const fn may_move_between_threads<T: Send>() {}
    may_move_between_threads::<Rail>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_what_they_were_made_of() {
        let last = u32::MAX >> 2;
        for id in [
            Id::Receive(0),
            Id::Receive(u32::MAX),
            Id::Send { endpoint: 0, number: u32::MAX },
            Id::Send { endpoint: last, number: 0 },
            Id::HelloIn(7),
            Id::HelloOut(u32::MAX),
        ] {
            assert_eq!(Id::of(id.word()), id);
        }
        assert_eq!(last as usize, MOST_PEERS - 1);
    }
}
