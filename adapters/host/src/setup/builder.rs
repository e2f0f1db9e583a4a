//! How worlds come up: join the job, open rails, exchange cards, choose, and start the engines.

use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towline_bootstrap::{Environment, Job};
use towline_core::btl::selection::{Candidate, Verdict};
use towline_core::mtl::{Comm, Group, Mtl};
use towline_core::pml;
use towline_core::rail::{Endpoint, FullRail, Lost, Rail, Unreachable};

use crate::context::state::State;
use crate::engine::rma_ops::Performances;
use crate::engine::{Beside, Engine, HubBox, Scoped};
use crate::errors::setup::{MOST_ADDRESSES, SetupError};
use crate::job::cards;
use crate::job::ended_contexts::Absent;
use crate::job::launcher::Launch;
use crate::settings::config::{Config, Tunable};
use crate::setup::context::{Context, EVERYONE, Made, WORLD};
use crate::setup::rejoin;
use crate::setup::world::World;
use crate::threads::levels::{Lock, Single, ThreadLevel, Threads};
use crate::threads::progress_policy::Attendance;
use crate::transports::limits::{at_once, limits};
use crate::transports::memory::Mapping;
use crate::transports::open::{Opened, local_contexts, open};
use crate::transports::rails::{AnyRail, DynRail, RailSet};
use crate::values::address::{Address, Grid};
use crate::waiting::clock::Clock;
use crate::waiting::wait_set::{Bed, Patience};

/// Bytes of a frame that a context sends to itself, at most.
const LOOP_FRAME: u32 = 16 << 10;

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
pub struct Builder<L: Threads = Single> {
    config: Config,
    job: Option<Job>,
    rails: Vec<OwnRail>,
    level: PhantomData<L>,
}

/// A rail of the program's own.
enum OwnRail {
    /// For the only context.
    One(Box<dyn FullRail>),
    /// For each context one, which may go to another thread.
    Each(Box<dyn FnMut(Address) -> Box<dyn FullRail>>),
}

impl<L: Threads> std::fmt::Debug for Builder<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Builder {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<L: Threads> Builder<L> {
    /// Makes worlds for so many threads: [`Single`] unless this says [`Multiple`](crate::Multiple). What is asked for is granted.
    ///
    /// ```
    /// use towline::{Builder, Multiple, ThreadLevel};
    ///
    /// assert_eq!(Builder::new().build()?.threads(), ThreadLevel::Single);
    /// let world = Builder::new().threads(Multiple).build()?;
    /// assert_eq!(world.threads(), ThreadLevel::Multiple);
    /// std::thread::spawn(move || world.barrier()).join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads<M: Threads>(self, level: M) -> Builder<M> {
        let _ = level;
        let Self { config, job, rails, .. } = self;
        Builder { config, job, rails, level: PhantomData }
    }

    /// Has a thread of the library make progress while no other does, or forbids it: it sleeps until something comes, and polls
    /// only then. So messages are taken in, answered and brought to their end while the program computes. Threads that wait for
    /// an operation poll all the same, for as long as [`Config::spin_us`] says; each operation ends once.
    ///
    /// Where nobody asks, and [`Config::progress_thread`] does not, there is such a thread only where a transport loses frames
    /// (udp): they are sent again, and peers that fell silent are found out, also while the program is busy with other things.
    /// Each context has one of its own.
    ///
    /// ```
    /// use towline::Builder;
    ///
    /// let world = Builder::new().progress_thread(true).build()?;
    /// assert!(world.progress_thread().is_some());
    /// let (sending, receiving) = (world.isend(0, 1, vec![7u8; 100_000])?, world.irecv(0, 1, vec![0u8; 100_000])?);
    /// // Both end without a further call.
    /// assert_eq!(receiving.wait()?.0, sending.wait()?);
    /// assert!(Builder::new().build()?.progress_thread().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn progress_thread(mut self, wanted: bool) -> Self {
        self.config.progress_thread = if wanted { "always" } else { "never" }.into();
        self
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

    /// Has a rank count as dead that something is waited for and that makes no progress for so long: one that is stopped, or
    /// that computes without a [progress thread](Builder::progress_thread). Requests to it end with
    /// [`Error::PeerFailed`](crate::Error::PeerFailed), and [`why_lost`](crate::Communicator::why_lost) says
    /// [`Stalled`](crate::Lost::Stalled). It is noticed within five quarters of the time. Zero, as by default: never.
    ///
    /// What the rank still sends afterwards is dropped, as of any that was lost.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let world = towline::Builder::new().stall_timeout(Duration::from_secs(30)).build()?;
    /// assert!(world.tunables().iter().any(|it| it.name == "stall_timeout_ms" && it.value == "30000"));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn stall_timeout(mut self, time: Duration) -> Self {
        self.config.stall_timeout_ms = u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
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
    /// waiting ranks nap instead of sleeping, since it has no wait handle. It serves one context;
    /// [`rail_for_each`](Self::rail_for_each) is for several.
    ///
    /// # Safety
    /// The rail keeps the contract of [`Rail`]: it reports the end of a transfer only for transfers that were given to it,
    /// once each, when it uses their memory no more. What is reported too early, also for another rail, would give memory
    /// back that is in use.
    ///
    /// ```compile_fail,E0133
    /// # fn add(builder: towline::Builder, rail: impl towline::FullRail + 'static) -> towline::Builder {
    /// builder.rail(rail) // needs `unsafe`
    /// # }
    /// ```
    pub unsafe fn rail(mut self, rail: impl FullRail + 'static) -> Self {
        self.rails.push(OwnRail::One(Box::new(rail)));
        self
    }

    /// As [`rail`](Self::rail), for any number of [contexts](Self::contexts): each gets a rail of its own, which `make` makes
    /// for its address in the thread that builds, and which moves with its context to another.
    ///
    /// # Safety
    /// As for [`rail`](Self::rail), for each rail that `make` makes.
    ///
    /// ```
    /// use towline::Builder;
    ///
    /// let ports = |address: towline::Address| {
    ///     let key = towline_tcp::JobKey::new([7; 32]); // of the job, in earnest
    ///     let config = towline_tcp::Config::new(1, 2 * address.rank + address.index, key);
    ///     towline_tcp::Rail::new(config).expect("sockets")
    /// };
    /// // SAFETY: the rail of the library keeps the contract.
    /// let builder = unsafe { Builder::new().transports("loopback").rail_for_each(ports) };
    /// let contexts = builder.contexts(2)?;
    /// std::thread::scope(|threads| {
    ///     for context in contexts {
    ///         threads.spawn(|| context.enter().everyone().barrier());
    ///     }
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub unsafe fn rail_for_each<R: FullRail + Send + 'static>(
        mut self,
        mut make: impl FnMut(Address) -> R + 'static,
    ) -> Self {
        self.rails.push(OwnRail::Each(Box::new(move |address| Box::new(make(address)))));
        self
    }

    /// Joins the job, and comes back when all ranks are up. A process that no launcher started is a job of its own.
    ///
    /// One that was started again (see [`World::incarnation`]) comes back when all ranks that go on have
    /// [taken it back](World::readmit), or with [`SetupError::NotTakenBack`] where one has not in
    /// [time](Config::startup_timeout_ms). Ranks that are gone by then are [lost](crate::Communicator::lost) to it.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing, and whose fault it is.
    pub fn build(self) -> Result<World<L>, SetupError> {
        if L::LEVEL != ThreadLevel::Single && self.rails.iter().any(|own| matches!(own, OwnRail::One(_))) {
            return Err(SetupError::OwnRail);
        }
        let mut made = self.set_up(1)?;
        Ok(made.swap_remove(0).enter())
    }

    /// As [`build`](Self::build), with `count` contexts (at least one) for as many threads. All ranks ask for the same
    /// number.
    ///
    /// Each is moved to its thread and [entered](Context::enter) there, which gives a [`World`]: rank r of it is the context of
    /// the same index in process r, so each index has a world apart, with its own collectives. All contexts of all ranks
    /// together are [`World::everyone`].
    ///
    /// # Errors
    /// As [`build`](Self::build); [`SetupError::Contexts`] names the rank that asks for another number, and
    /// [`SetupError::OwnRail`] says that there is a rail of the program's own for [one context](Self::rail)
    /// alone.
    ///
    /// ```
    /// use towline::Builder;
    ///
    /// let contexts = Builder::new().contexts(2)?;
    /// std::thread::scope(|threads| {
    ///     for context in contexts {
    ///         threads.spawn(move || {
    ///             let world = context.enter();
    ///             world.barrier()?; // of the contexts of this index
    ///             world.everyone().barrier()?; // of all contexts of all ranks
    ///             Ok::<(), towline::Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn contexts(self, count: u32) -> Result<Vec<Context<L>>, SetupError> {
        if self.rails.iter().any(|own| matches!(own, OwnRail::One(_))) {
            return Err(SetupError::OwnRail);
        }
        Ok(self.set_up(count.max(1))?.into_iter().map(Context::new).collect())
    }

    fn set_up(self, contexts: u32) -> Result<Vec<Made<L>>, SetupError> {
        let (config, tunables) = self.config.overlaid(|name| std::env::var(name).ok())?;
        let bound = self.rails.iter().any(|own| matches!(own, OwnRail::One(_)));
        let attendance = Attendance::wished(&config, bound)?;
        let attended = attendance.is_expected(&config);
        let deadline = Instant::now() + Duration::from_millis(config.startup_timeout_ms.into());
        let mut job = match self.job {
            Some(job) => job,
            None => Job::join(Environment::read().map_err(towline_bootstrap::Error::from)?, deadline)?,
        };
        let ranks = job.size();
        if ranks.checked_mul(contexts).is_none_or(|all| all > MOST_ADDRESSES) {
            return Err(SetupError::TooManyContexts { ranks, contexts });
        }
        let grid = |index| Grid { own: Address { rank: job.rank(), index }, ranks, contexts };
        let (first, grids) = (grid(0), (0..contexts).map(grid).collect::<Vec<_>>());
        let mut opened =
            grids.iter().map(|grid| open(&config, &job, *grid, attended)).collect::<Result<Vec<_>, _>>()?;
        for own in self.rails {
            let add = |opened: &mut Opened, rail| opened.rails.push(AnyRail::Dyn(DynRail(rail)));
            match own {
                // With more than the first context there are none.
                OwnRail::One(rail) => {
                    if let Some(first) = opened.first_mut() {
                        add(first, rail);
                    }
                }
                OwnRail::Each(mut make) => {
                    opened.iter_mut().zip(&grids).for_each(|(opened, grid)| add(opened, make(grid.own)));
                }
            }
        }
        let limits = limits(&config, ranks * contexts, at_once(&opened, &job, LOOP_FRAME))?;
        cards::publish(&mut job, &opened, &limits)?;
        job.exchange(deadline)?;
        cards::agree(&job)?;
        let begun = grids.into_iter().zip(opened).map(|(grid, opened)| Begun::new(&config, &job, grid, opened, limits));
        let begun = begun.collect::<Result<Vec<_>, _>>()?;
        // One that was started again need not come where it was before.
        if contexts > 1 && (job.incarnation() == 1 || job.fences() == 0) {
            // One of them may end before others have begun: not before all ranks have met it.
            job.fence(deadline)?;
        }
        let (incarnation, own) = (job.incarnation(), job.rank());
        let launch = Arc::new(Launch::new(job, first));
        let known = begun.first().map_or(&[][..], |begun| &begun.incarnations);
        let again = (0..).zip(known).filter(|(rank, incarnation)| *rank != own && **incarnation > 1);
        launch.came_up_with(again.map(|(rank, incarnation)| (rank, *incarnation)))?;
        let made = begun.into_iter().map(|begun| begun.made(&launch, &config, &tunables, attendance));
        let made = made.collect::<Result<Vec<Made<L>>, _>>()?;
        if incarnation > 1 {
            rejoin::wait_to_be_taken_back(&made, &launch, deadline)?;
        }
        Ok(made)
    }
}

/// A context whose engine runs.
struct Begun {
    engine: Engine,
    grid: Grid,
    world: Comm,
    everyone: Option<Comm>,
    choices: Vec<Vec<Candidate>>,
    names: Vec<String>,
    /// Of each rank, the one that its cards are of.
    incarnations: Vec<u32>,
    failures: Vec<(String, String)>,
}

impl Begun {
    /// Chooses among the rails, and starts the engine over those that are of use.
    fn new(config: &Config, job: &Job, grid: Grid, opened: Opened, limits: pml::Config) -> Result<Self, SetupError> {
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
        let choices = cards::choose(job, grid, &mut rails)?;

        // A rail that nobody is reached by is given up, so that it need not be polled.
        let used = |index: usize| {
            let carries = |candidate: &Candidate| matches!(candidate.verdict, Verdict::Taken(_) | Verdict::OneSided(_));
            choices.iter().any(|candidates| candidates.get(index).is_some_and(carries))
        };
        let kept: Vec<usize> = (0..rails.len()).filter(|index| used(*index)).collect();
        let mut names = cards::names(&rails);
        let mut index = 0..;
        names.retain(|_| index.next().is_some_and(used));
        let mut index = 0..;
        rails.retain(|_| index.next().is_some_and(used));
        // Of a rail of the program's own nothing is known.
        let holds_back = rails.iter().any(|rail| matches!(rail, AnyRail::Udp(_) | AnyRail::Dyn(_)));
        let bed = Bed::make(&mut rails).map_err(|why| SetupError::System("make a wait handle", why))?;

        let mut mtl = Mtl::new(limits, config.communicators, &mut arena, RailSet(rails))?;
        mtl.pml().set_stall_timeout(towline_core::time::Duration::from_millis(config.stall_timeout_ms.into()));
        for (number, candidates) in (0..).zip(&choices) {
            let rank = grid.address(number).rank;
            if candidates.iter().all(|candidate| candidate.for_messages().is_none()) {
                // Gone before this process came up: nothing of it is to come.
                mtl.pml().lose_peer(grid.peer(number), Lost::Closed);
                continue;
            }
            let reach = |rail: usize, _: &mut AnyRail| -> Result<Endpoint, Unreachable> {
                let candidate = kept.get(rail).and_then(|index| candidates.get(*index));
                candidate.and_then(Candidate::for_messages).ok_or(Unreachable::NoCard)
            };
            mtl.add_peer(grid.peer(number), cards::params(job, rank)?, reach)
                .map_err(|why| SetupError::Unreachable { rank, report: why.to_string() })?;
        }
        let mut engine = Engine {
            mtl,
            beside: Beside::default(),
            performances: Performances::default(),
            scoped: Scoped::new(limits.requests),
            groups: Vec::new(),
            clock: Clock::new(),
            patience: Patience::new(config, local_contexts(job, grid)),
            bed,
            holds_back,
            absent: None,
            busy: 0,
            next_context: EVERYONE + 1,
            _hub: hub,
            _memory: memory,
        };
        let world = engine.mtl.add_lasting_comm(WORLD, Group::World { size: grid.ranks }, grid.own.rank);
        let world = world.map_err(SetupError::World)?;
        // With one context each, all ranks are everyone.
        let peers = (grid.contexts > 1).then(|| (0..grid.total()).map(|number| grid.peer(number).0).collect());
        let everyone = peers.map(|peers| engine.add_group(EVERYONE, peers, grid.own_number(), true)).transpose();
        let everyone = everyone.map_err(SetupError::World)?;
        let incarnations = (0..grid.ranks).map(|rank| job.incarnation_of(rank).unwrap_or(0)).collect();
        Ok(Self { engine, grid, world, everyone, choices, names, incarnations, failures })
    }

    fn made<L: Threads>(
        mut self,
        launch: &Arc<Launch>,
        config: &Config,
        tunables: &[Tunable],
        attendance: Attendance,
    ) -> Result<Made<L>, SetupError> {
        self.engine.absent =
            (self.grid.total() > 1).then(|| Absent::new(Arc::clone(launch), self.grid, self.incarnations));
        let (thread, attended) = attendance.settled(&self.engine.mtl.rails().0);
        let engine = L::Cell::new(self.engine, thread);
        let engine = engine.map_err(|why| SetupError::System("make what threads wait with", why))?;
        let state = Box::new(State {
            engine,
            grid: self.grid,
            launch: Arc::clone(launch),
            config: config.clone(),
            tunables: tunables.to_vec(),
            choices: Mutex::new(self.choices),
            names: self.names,
            failures: self.failures,
            attended,
            finished: AtomicBool::new(false),
        });
        Ok(Made { state, world: self.world, everyone: self.everyone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_cannot_work_is_an_error_where_it_was_asked_for() {
        let nowhere = |config: &mut Config| config.sm_directory = "/nowhere".into();
        let asked = Builder::new().transports("sm").configure(nowhere).build();
        assert!(matches!(asked, Err(SetupError::Transport { name, .. }) if name == "sm"));
        let wrong = Builder::new().transports("tcp").configure(|config| config.tcp_ports = "many".into()).build();
        assert!(wrong.unwrap_err().to_string().contains("TOWLINE_TCP_PORTS"));
    }
}
