//! How a world comes up: join the job, open rails, exchange cards, choose, and start the engine.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use towline_bootstrap::{Environment, Job};
use towline_core::btl::selection::{Candidate, Report, Verdict, select};
use towline_core::btl::{Endpoint, Peer, Rail, Unreachable};
use towline_core::modex::{Component, Version};
use towline_core::mtl::{Group, Mtl};
use towline_core::pml;

use crate::clock::Clock;
use crate::communicator::Communicator;
use crate::context::Context;
use crate::engine::{Beside, Engine, HubBox, Scoped};
use crate::idle::{Bed, Patience, crowded};
use crate::memory::Mapping;
use crate::rails::{AnyRail, DynRail, RailSet};
use crate::setup::SetupError;
use crate::tunables::{Config, Tunable, entries};
use crate::world::World;

/// The context of the communicator of all ranks.
const WORLD: u32 = 1;
/// Bytes of a frame that a process sends to itself, at most.
const LOOP_FRAME: u32 = 16 << 10;
/// What can be asked for, in the order in which rails are polled.
const TRANSPORTS: [&str; 2] = ["sm", "tcp"];

/// Joins the job of this process's environment with all defaults: [`Builder::build`].
///
/// # Errors
/// [`SetupError`] says what is missing, and whose fault it is.
///
/// ```
/// let world = towline::init()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// # Ok::<(), towline::SetupError>(())
/// ```
pub fn init() -> Result<World, SetupError> {
    Builder::new().build()
}

/// Makes a [`World`], with settings of the program's own. What the environment sets goes before.
///
/// ```
/// use towline::Builder;
///
/// let world = Builder::new().transports("sm,tcp").links(2).configure(|config| config.requests = 1000).build()?;
/// assert!(world.tunables().iter().any(|tunable| tunable.name == "requests" && tunable.value == "1000"));
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Default)]
#[must_use = "nothing happens before `build`"]
pub struct Builder {
    config: Config,
    job: Option<Job>,
    rails: Vec<Box<dyn Rail>>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Builder {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses these transports alone, such as `sm,tcp`. One that does not work is an error then.
    pub fn transports(mut self, names: &str) -> Self {
        self.config.transports = names.into();
        self
    }

    /// Uses so many TCP links to each peer.
    pub fn links(mut self, links: u32) -> Self {
        self.config.links = links;
        self
    }

    /// Changes any other setting.
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Takes part in a job that was joined already, by other ways than the environment. So the threads of a process can be
    /// ranks of a job, each with a world of its own:
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use towline::Builder;
    /// use towline::bootstrap::server::{Config, Server};
    /// use towline::bootstrap::{Environment, Job};
    ///
    /// let mut base = Environment::singleton(); // a random job number and key
    /// let (job, key, listen) = (base.job, base.key.clone(), Some("127.0.0.1:0".parse().unwrap()));
    /// let server = Server::start(Config { size: 2, job, key, name: None, listen, left_is_gone: true }, |_| {})?;
    /// (base.size, base.root, base.local) = (2, server.addresses().to_vec(), Some(vec![0, 1]));
    /// std::thread::scope(|threads| {
    ///     for rank in 0..2 {
    ///         let mut environment = base.clone();
    ///         environment.rank = rank;
    ///         threads.spawn(move || {
    ///             let job = Job::join(environment, Instant::now() + Duration::from_secs(30)).unwrap();
    ///             let world = Builder::new().job(job).build().unwrap();
    ///             let mut other = [0u32];
    ///             world.sendrecv(&[rank], 1 - rank, 0, &mut other, 1 - rank, 0).unwrap();
    ///             assert_eq!(other, [1 - rank]);
    ///             world.finish().unwrap();
    ///         });
    ///     }
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn job(mut self, job: Job) -> Self {
        self.job = Some(job);
        self
    }

    /// Uses a rail of the program's own beside the others; all ranks add theirs in the same order. While one is in use,
    /// waiting ranks nap instead of sleeping, since it has no wait handle.
    ///
    /// # Safety
    /// The rail keeps the contract of [`Rail`]: it reports the end of a transfer only for transfers that were given to it,
    /// once each, when it uses their memory no more. What is reported too early, also for another rail, would give memory
    /// back that is in use.
    ///
    /// ```compile_fail,E0133
    /// # fn add(builder: towline::Builder, rail: impl towline::Rail + 'static) -> towline::Builder {
    /// builder.rail(rail) // needs `unsafe`
    /// # }
    /// ```
    pub unsafe fn rail(mut self, rail: impl Rail + 'static) -> Self {
        self.rails.push(Box::new(rail));
        self
    }

    /// Joins the job, and comes back when all ranks are up. A process that no launcher started is a job of its own.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing, and whose fault it is.
    pub fn build(self) -> Result<World, SetupError> {
        let (config, tunables) = self.config.overlaid(|name| std::env::var(name).ok())?;
        let deadline = Instant::now() + Duration::from_millis(config.startup_timeout_ms.into());
        let mut job = match self.job {
            Some(job) => job,
            None => Job::join(Environment::read().map_err(towline_bootstrap::Error::from)?, deadline)?,
        };
        let mut opened = open(&config, &job)?;
        opened.rails.extend(self.rails.into_iter().map(|rail| AnyRail::Dyn(DynRail(rail))));
        let limits = limits(&config, job.size())?;
        publish(&mut job, &opened.rails, &limits)?;
        job.exchange(deadline)?;
        start(config, tunables, job, opened, limits)
    }
}

/// Rails that were opened, and those that could not be.
struct Opened {
    rails: Vec<AnyRail>,
    failures: Vec<(String, String)>,
}

fn open(config: &Config, job: &Job) -> Result<Opened, SetupError> {
    let asked = entries(&config.transports);
    if let Some(unknown) = asked.iter().find(|name| !TRANSPORTS.contains(&name.as_str()) && *name != "loopback") {
        return Err(SetupError::UnknownTransport(unknown.clone()));
    }
    let mut opened = Opened { rails: Vec::new(), failures: Vec::new() };
    for name in TRANSPORTS {
        let wanted = asked.iter().any(|asked| asked == name);
        // A process alone needs no way to others, unless it was asked to try.
        if !wanted && (!asked.is_empty() || job.size() == 1) {
            continue;
        }
        let links = if name == "tcp" { config.links.clamp(1, 64) } else { 1 };
        for link in 0..links {
            let rail = match name {
                "sm" => open_sm(config, job),
                _ => open_tcp(config, job, link as u8),
            };
            match rail {
                Ok(rail) => opened.rails.push(rail),
                Err(why) if wanted => return Err(SetupError::Transport { name: name.into(), why }),
                Err(why) => {
                    log::warn!("transport {name} does not work here: {why}");
                    opened.failures.push((name.into(), why));
                }
            }
        }
    }
    Ok(opened)
}

fn open_sm(config: &Config, job: &Job) -> Result<AnyRail, String> {
    let mut sm = towline_sm::Config::new(job.job_id(), job.rank(), job.size());
    sm.directory = config.sm_directory.as_str().into();
    sm.eager_ring_bytes = config.sm_eager_ring_bytes;
    sm.eager_limit_bytes = config.sm_eager_limit_bytes;
    sm.bulk_ring_bytes = match config.sm_bulk_ring_bytes {
        0 => bulk_ring(&sm.directory, sm.bulk_ring_bytes, local_ranks(job)),
        bytes => bytes,
    };
    sm.bulk_limit_bytes = config.sm_bulk_limit_bytes;
    sm.liveness_interval = Duration::from_millis(config.sm_liveness_ms.into());
    towline_sm::Rail::open(sm).map(AnyRail::Sm).map_err(|why| why.to_string())
}

/// Bytes of the ring for long messages: `least`, and up to 4 MiB where ranks must take turns on the processors, so that they
/// do it less often. All rings of all ranks together stay within a quarter of what is free.
fn bulk_ring(directory: &std::path::Path, least: u32, ranks: usize) -> u32 {
    if !crowded(ranks) {
        return least;
    }
    let free = rustix::fs::statvfs(directory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let pairs = (ranks as u64).saturating_mul(ranks as u64 - 1);
    let most = (16 << 20) / ranks as u64;
    let bytes = most.min(free / 4 / pairs).clamp(u64::from(least), 4 << 20);
    1 << bytes.ilog2()
}

/// Ranks on this host, as far as that is known.
fn local_ranks(job: &Job) -> usize {
    job.local_ranks().map_or(1, <[u32]>::len)
}

fn open_tcp(config: &Config, job: &Job, link: u8) -> Result<AnyRail, String> {
    let key = towline_tcp::JobKey::new(*job.key().bytes());
    let mut tcp = towline_tcp::Config::new(job.job_id(), job.rank(), key);
    let buffer = (config.tcp_socket_bytes != 0).then_some(config.tcp_socket_bytes);
    let exclude = entries(&config.tcp_exclude);
    tcp.link = link;
    tcp.filter.include = entries(&config.tcp_include);
    tcp.filter.exclude = (!exclude.is_empty()).then_some(exclude);
    tcp.ports = ports(&config.tcp_ports)
        .ok_or_else(|| format!("TOWLINE_TCP_PORTS: `{}` is no range such as 5000-5100", config.tcp_ports))?;
    tcp.eager_limit_bytes = config.tcp_eager_limit_bytes;
    tcp.rendezvous_eager_limit_bytes = config.tcp_eager_limit_bytes;
    tcp.max_send_size_bytes = config.tcp_max_send_bytes;
    tcp.in_place_from_bytes = config.tcp_in_place_bytes;
    tcp.send_staging_bytes = config.tcp_send_staging_bytes;
    (tcp.socket_send_buffer_bytes, tcp.socket_receive_buffer_bytes) = (buffer, buffer);
    tcp.host_congestion_control.clone_from(&config.tcp_host_congestion);
    tcp.epoll_interval_polls = config.tcp_epoll_polls;
    tcp.bandwidth_megabytes_per_second = config.tcp_bandwidth_mb_s;
    tcp.connect_timeout = Duration::from_millis(config.tcp_connect_timeout_ms.into());
    towline_tcp::Rail::new(tcp).map(AnyRail::Tcp).map_err(|why| why.to_string())
}

fn ports(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
}

/// The engine's limits for a job of so many ranks.
fn limits(config: &Config, size: u32) -> Result<pml::Config, SetupError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|why| SetupError::System("draw random numbers", std::io::Error::other(why)))?;
    let or = |set: u32, each: u32, least: u32| if set == 0 { size.saturating_mul(each).max(least) } else { set };
    Ok(pml::Config {
        peers: size,
        requests: config.requests.clamp(1, 1 << 24),
        unexpected: or(config.unexpected, 128, 4096),
        units: or(config.units, 32, 1024),
        unit_bytes: config.unit_bytes.clamp(64, 1 << 20),
        probes: 64,
        seed: u64::from_le_bytes(seed),
        first_sequence: 0,
    })
}

/// The name under which a rail's card is published: its own, and its number among those of that name.
fn component(name: &str) -> Component<'_> {
    let version = Version::new(1, 0, 0);
    Component { mca: version, kind: "towline", kind_version: version, name, version }
}

fn names(rails: &[AnyRail]) -> Vec<String> {
    let name = |(index, rail): (usize, &AnyRail)| {
        let name = rail.attributes().name;
        let before = rails[..index].iter().filter(|other| other.attributes().name == name).count();
        format!("{name}.{before}")
    };
    rails.iter().enumerate().map(name).collect()
}

fn publish(job: &mut Job, rails: &[AnyRail], limits: &pml::Config) -> Result<(), SetupError> {
    job.publish(&component("engine"), &limits.params())?;
    for (rail, name) in rails.iter().zip(names(rails)) {
        job.publish(&component(&name), rail.card())?;
    }
    Ok(())
}

/// Chooses the rails for each rank. Candidates are in the order of the rails, the loop last.
fn choose(job: &Job, rails: &mut [AnyRail]) -> Result<Vec<Vec<Candidate>>, SetupError> {
    let names = names(rails);
    let mut choices = Vec::with_capacity(job.size() as usize);
    for rank in 0..job.size() {
        let mut candidates: Vec<_> = rails.iter().map(|rail| Candidate::of(rail.attributes())).collect();
        let taken = select(&mut candidates, |index| match &mut rails[index] {
            AnyRail::Loopback(_) if rank != job.rank() => Err(Unreachable::OtherProcess),
            AnyRail::Loopback(rail) => {
                let card = rail.card().to_vec();
                rail.add_peer(Peer(rank), &card)
            }
            rail => match job.card(&component(&names[index]), rank) {
                Ok(card) => rail.add_peer(Peer(rank), card),
                Err(_) => Err(Unreachable::NoCard),
            },
        });
        if taken == 0 {
            let report = Report { peer: Peer(rank), rails: &candidates }.to_string();
            return Err(SetupError::Unreachable { rank, report });
        }
        choices.push(candidates);
    }
    Ok(choices)
}

fn start(
    config: Config,
    tunables: Vec<Tunable>,
    job: Job,
    opened: Opened,
    limits: pml::Config,
) -> Result<World, SetupError> {
    let size = job.size();
    let Opened { rails, failures } = opened;
    let own = HubBox::attributes(LOOP_FRAME);
    let attributes: Vec<_> = rails.iter().map(Rail::attributes).chain([&own]).collect();
    let bytes = Mtl::<RailSet>::bytes(&limits, config.communicators, &attributes)
        .saturating_add(HubBox::bytes(LOOP_FRAME) + 64);
    let memory = Mapping::new(bytes).map_err(|why| SetupError::System("map memory for the engine", why))?;
    // SAFETY: called once; all that is cut from it goes into the engine, whose fields go in the order that this needs.
    let mut arena = unsafe { memory.arena() };
    let hub = HubBox::new(&mut arena, LOOP_FRAME).map_err(SetupError::Memory)?;
    let mut rails = rails; // declared behind the hub, so that it goes first where this fails
    // SAFETY: its rail goes into the engine, or is dropped here, before the hub is.
    rails.extend(unsafe { hub.hub() }.rail(0).map(AnyRail::Loopback));
    let choices = choose(&job, &mut rails)?;

    // A rail that nobody is reached by is given up, so that it need not be polled.
    let used = |index: usize| {
        let carries = |candidate: &Candidate| matches!(candidate.verdict, Verdict::Taken(_) | Verdict::OneSided(_));
        choices.iter().any(|candidates| candidates.get(index).is_some_and(carries))
    };
    let kept: Vec<usize> = (0..rails.len()).filter(|index| used(*index)).collect();
    let mut index = 0..;
    rails.retain(|_| index.next().is_some_and(&used));
    let bed = Bed::make(&mut rails).map_err(|why| SetupError::System("make a wait handle", why))?;

    let requests = limits.requests;
    let mut mtl = Mtl::new(limits, config.communicators, &mut arena, RailSet(rails)).map_err(SetupError::Memory)?;
    for (rank, candidates) in (0..size).zip(&choices) {
        let params = job.card(&component("engine"), rank).map_err(|why| SetupError::Card { rank, why })?;
        let reach = |rail: usize, _: &mut AnyRail| -> Result<Endpoint, Unreachable> {
            let candidate = kept.get(rail).and_then(|index| candidates.get(*index));
            candidate.and_then(Candidate::for_messages).ok_or(Unreachable::NoCard)
        };
        mtl.add_peer(Peer(rank), params, reach)
            .map_err(|why| SetupError::Unreachable { rank, report: why.to_string() })?;
    }
    let comm = mtl.add_comm(WORLD, Group::World { size }, job.rank()).map_err(SetupError::World)?;
    let engine = Engine {
        mtl,
        beside: Beside::default(),
        scoped: Scoped::new(requests),
        groups: Vec::new(),
        clock: Clock::new(),
        patience: Patience::new(&config, local_ranks(&job)),
        bed,
        next_context: WORLD + 1,
        _hub: hub,
        _memory: memory,
    };
    let rank = job.rank();
    let context = Rc::new(Context {
        engine: RefCell::new(engine),
        job: RefCell::new(job),
        config,
        tunables,
        choices,
        failures,
        finished: Cell::new(false),
    });
    Ok(World::new(Communicator::new(context, comm, rank, size, true, WORLD)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports() {
        assert_eq!(ports("0"), Some(0..=0));
        assert_eq!(ports(" 5000 - 5100 "), Some(5000..=5100));
        assert_eq!(ports("5000-"), None);
        assert_eq!(ports("70000"), None);
    }

    #[test]
    fn rings_grow_only_where_ranks_take_turns_and_never_beyond_what_is_free() {
        let here = std::path::Path::new("/dev/shm");
        assert_eq!(bulk_ring(here, 1 << 18, 1), 1 << 18);
        for ranks in [1000, 100_000] {
            assert_eq!(bulk_ring(here, 1 << 18, ranks), 1 << 18, "16 MiB in all for {ranks} ranks");
        }
        assert_eq!(bulk_ring(std::path::Path::new("/nowhere"), 1 << 18, 1000), 1 << 18);
    }

    #[test]
    fn a_transport_that_cannot_work_is_an_error_where_it_was_asked_for() {
        let nowhere = |config: &mut Config| config.sm_directory = "/nowhere".into();
        let asked = Builder::new().transports("sm").configure(nowhere).build();
        assert!(matches!(asked, Err(SetupError::Transport { name, .. }) if name == "sm"));
        let wrong = Builder::new().transports("tcp").configure(|config| config.tcp_ports = "many".into()).build();
        assert!(wrong.unwrap_err().to_string().contains("TOWLINE_TCP_PORTS"));
    }
}
