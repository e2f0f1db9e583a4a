//! Builds worlds: joins the job, opens rails, exchanges cards, and starts the engines.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towline_bootstrap::Job;
use towline_core::rail::FullRail;
use towline_settings::Setting;
use towline_sm::CleanUp;

use crate::engine::kept_requests::KEPT;
use crate::errors::setup::{MAX_ADDRESSES, SetupError};
use crate::forks::handlers;
use crate::job::launcher::Launcher;
use crate::job::warnings::{self, Warning};
use crate::job::{cards, joined, processors};
use crate::settings::config::{Config, process_environment};
use crate::settings::variables::unknown_here;
use crate::setup::bring_up::{LOOPBACK_FRAME_BYTES, StartedContext};
use crate::setup::context::{Context, PreparedContext};
use crate::setup::place::Place;
use crate::setup::rejoin;
use crate::setup::worker::{Worker, own_peer};
use crate::setup::world::World;
use crate::threads::levels::{Single, ThreadLevel, Threads};
use crate::threads::progress_policy::ProgressThreadPolicy;
use crate::transports::limits::{engine_limits, longest_message_at_once};
use crate::transports::open::{OpenedRails, open};
use crate::transports::rails::{AnyRail, DynRail};
use crate::values::address::{Address, Grid};

/// Joins the job of this process's environment with all defaults: [`Builder::build`].
///
/// # Errors
/// [`SetupError`] says what is missing, whose fault it is, and what to do. [`SetupError::AlreadyJoined`] if a launcher started this
/// process, and the process has joined the job before: it joins once. [`Builder::contexts`] makes several contexts.
///
/// ```
/// let world = towline::init()?;
/// println!("rank {} of {}", world.rank(), world.size());
/// # Ok::<(), towline::SetupError>(())
/// ```
pub fn init() -> Result<World, SetupError> {
    Builder::new().build()
}

/// Makes a [`World`] with settings of the program's own. A setting in the environment overrides that of the program.
///
/// ```
/// use towline::Builder;
///
/// let world = Builder::new().transports("sm,tcp").links(2).configure(|config| config.requests = 1000).build()?;
/// assert!(world.settings().iter().any(|setting| setting.name == "requests" && setting.value == "1000"));
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Default)]
#[must_use = "nothing happens before `build`"]
pub struct Builder<L: Threads = Single> {
    config: Config,
    job: Option<Job>,
    rails: Vec<CustomRail>,
    level: PhantomData<L>,
}

/// A process whose rails are open, and that knows no other process.
pub(crate) struct Alone {
    pub config: Config,
    pub settings: Vec<Setting>,
    pub job: Job,
    pub opened: OpenedRails,
    pub warnings: Vec<Warning>,
}

/// A rail of the program's own.
enum CustomRail {
    /// For the only context.
    One(Box<dyn FullRail>),
    /// Makes one for each context. The rail may move to another thread.
    PerContext(Box<dyn FnMut(Address) -> Box<dyn FullRail>>),
}

impl<L: Threads> std::fmt::Debug for Builder<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Builder {
    /// A builder with all defaults.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<L: Threads> Builder<L> {
    /// Sets the thread level of the world: [`Single`] by default, or [`Multiple`](crate::Multiple). The level that is asked for
    /// is granted.
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

    /// Starts a progress thread, or forbids it. A progress thread makes progress while no thread of the program does: messages
    /// are received, answered and completed while the program computes. It sleeps until something comes, and polls only then.
    /// Threads that wait for an operation still poll for as long as [`Config::spin_us`] says.
    ///
    /// By default, and unless [`Config::progress_thread`] says otherwise, a context has a progress thread only where a transport
    /// loses frames (udp): lost frames are sent again, and silent peers are detected, while the program is busy. Each context has
    /// a progress thread of its own.
    ///
    /// ```
    /// use towline::Builder;
    ///
    /// let world = Builder::new().progress_thread(true).build()?;
    /// assert!(world.progress_thread().is_some());
    /// let (sending, receiving) = (world.isend(0, 1, vec![7u8; 100_000])?, world.irecv(0, 1, vec![0u8; 100_000])?);
    /// // Both complete without a further call.
    /// assert_eq!(receiving.wait()?.0, sending.wait()?);
    /// assert!(Builder::new().build()?.progress_thread().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn progress_thread(mut self, wanted: bool) -> Self {
        self.config.progress_thread = if wanted { "always" } else { "never" }.into();
        self
    }

    /// Uses only these transports, such as `sm,tcp`. It is an error if one of them does not work.
    pub fn transports(mut self, names: &str) -> Self {
        self.config.transports = names.into();
        self
    }

    /// Uses this number of links of tcp, of udp and of verbs to each peer: see [`Config::links`].
    pub fn links(mut self, links: u32) -> Self {
        self.config.links = links;
        self
    }

    /// Sets the time without progress after which a rank counts as failed, if this rank waits for it. Such a rank may be stopped,
    /// or may compute without a [progress thread](Builder::progress_thread). Requests to it end with
    /// [`Error::PeerFailed`](crate::Error::PeerFailed), and [`why_lost`](crate::Communicator::why_lost) returns
    /// [`Stalled`](crate::Lost::Stalled). The failure is detected within five quarters of the time. Zero, the default, means
    /// never.
    ///
    /// All frames that the rank sends afterwards are dropped, as for any lost rank.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let world = towline::Builder::new().stall_timeout(Duration::from_secs(30)).build()?;
    /// assert!(world.settings().iter().any(|it| it.name == "stall_timeout_ms" && it.value == "30000"));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn stall_timeout(mut self, time: Duration) -> Self {
        self.config.stall_timeout_ms = u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX);
        self
    }

    /// Changes any other setting, in a [`Config`].
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Uses a job that was joined already, instead of the job of the environment. [`Job::over`] joins one by an exchange of the
    /// program's own. The threads of a process can be ranks of a job, too, each with a world of its own:
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use towline::Builder;
    /// use towline::bootstrap::server::{Config, Server};
    /// use towline::bootstrap::{Environment, Job};
    ///
    /// let mut base = Environment::singleton(); // a random job number and key
    /// let (job, key, listen) = (base.job, base.key.clone(), Some("127.0.0.1:0".parse().unwrap()));
    /// let server = Server::start(Config { size: 2, job, key, name: None, listen, disconnect_ends_rank: true }, |_| {})?;
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

    /// Adds a rail of the program's own to the others. All ranks must add their rails in the same order. While such a rail is in
    /// use, waiting ranks sleep for short times only, since the rail has no wait handle. It serves one context;
    /// [`rail_per_context`](Self::rail_per_context) is for several.
    ///
    /// # Safety
    /// The rail keeps the contract of [`Rail`](crate::Rail): it reports the completion of a transfer only for transfers that were
    /// given to it, once each, when it does not use their memory any more. A completion that is reported too early, or for a
    /// transfer of another rail, would free memory that is in use.
    ///
    /// ```compile_fail,E0133
    /// # fn add(builder: towline::Builder, rail: impl towline::FullRail + 'static) -> towline::Builder {
    /// builder.rail(rail) // needs `unsafe`
    /// # }
    /// ```
    pub unsafe fn rail(mut self, rail: impl FullRail + 'static) -> Self {
        self.rails.push(CustomRail::One(Box::new(rail)));
        self
    }

    /// As [`rail`](Self::rail), for any number of [contexts](Self::contexts). `make` makes a rail for the address of each
    /// context, in the thread that builds. The rail then moves with its context to another thread.
    ///
    /// # Safety
    /// As for [`rail`](Self::rail), for each rail that `make` makes.
    ///
    /// ```
    /// use towline::Builder;
    ///
    /// let ports = |address: towline::Address| {
    ///     let key = towline_tcp::JobKey::new([7; 32]); // a real program uses the job's key
    ///     let config = towline_tcp::Config::new(1, 2 * address.rank + address.index, key);
    ///     towline_tcp::Rail::new(config).expect("sockets")
    /// };
    /// // SAFETY: the library's own rail keeps the contract.
    /// let builder = unsafe { Builder::new().transports("loopback").rail_per_context(ports) };
    /// let contexts = builder.contexts(2)?;
    /// std::thread::scope(|threads| {
    ///     for context in contexts {
    ///         threads.spawn(|| context.enter().all_contexts().barrier());
    ///     }
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub unsafe fn rail_per_context<R: FullRail + Send + 'static>(
        mut self,
        mut make: impl FnMut(Address) -> R + 'static,
    ) -> Self {
        self.rails.push(CustomRail::PerContext(Box::new(move |address| Box::new(make(address)))));
        self
    }

    /// Joins the job, and returns when all ranks are up. `towline run` or a PMIx launcher has started the process, as
    /// [`Config::chosen_bootstrap`] says. A process that no launcher started is a job of its own.
    ///
    /// A restarted process (see [`World::incarnation`]) returns when all running ranks have [accepted it](World::rejoin). It
    /// returns [`SetupError::NotRejoined`] if a rank has not done so within [`Config::startup_timeout_ms`]. Ranks that have ended
    /// by then are [lost](crate::Communicator::lost) to it.
    ///
    /// # Errors
    /// [`SetupError`] says what is missing, whose fault it is, and what to do.
    pub fn build(self) -> Result<World<L>, SetupError> {
        if L::LEVEL != ThreadLevel::Single && self.rails.iter().any(|rail| matches!(rail, CustomRail::One(_))) {
            return Err(SetupError::CustomRail);
        }
        let mut prepared = self.set_up(1)?;
        Ok(prepared.swap_remove(0).enter())
    }

    /// As [`build`](Self::build), with `count` contexts (at least one) for as many threads. All ranks must ask for the same
    /// number.
    ///
    /// Each context is moved to its thread and [entered](Context::enter) there, which gives a [`World`]. Rank r of that world is
    /// the context of the same index in process r. So the contexts of each index have a world of their own, with its own
    /// collective operations. [`World::all_contexts`] has all contexts of all ranks.
    ///
    /// # Errors
    /// As [`build`](Self::build). [`SetupError::Contexts`] names the rank that asks for another number, and
    /// [`SetupError::CustomRail`] says that a rail of the program's own serves only [one context](Self::rail).
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
    ///             world.all_contexts().barrier()?; // of all contexts of all ranks
    ///             Ok::<(), towline::Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn contexts(self, count: u32) -> Result<Vec<Context<L>>, SetupError> {
        if self.rails.iter().any(|rail| matches!(rail, CustomRail::One(_))) {
            return Err(SetupError::CustomRail);
        }
        if count == 0 {
            return Err(SetupError::NoContexts);
        }
        Ok(self.set_up(count)?.into_iter().map(Context::new).collect())
    }

    /// Opens a context that starts alone, for a runtime that carries the cards of its processes itself: a [`Worker`]. No launcher
    /// and no other process is needed, and nothing waits.
    ///
    /// # Errors
    /// [`SetupError::Place`] for impossible numbers; otherwise as [`build`](Self::build).
    ///
    /// For an example see [`Worker`].
    pub fn open(self, place: Place) -> Result<Worker<L>, SetupError> {
        let bound = self.rails.iter().any(|rail| matches!(rail, CustomRail::One(_)));
        if bound && L::LEVEL != ThreadLevel::Single {
            return Err(SetupError::CustomRail);
        }
        let expected = |config: &Config| Ok(ProgressThreadPolicy::new(config, bound)?.is_expected(config));
        let Alone { config, settings, mut job, opened, warnings } = self.open_rails(&place, expected)?;
        let policy = ProgressThreadPolicy::new(&config, bound)?;
        let own = own_peer(place.number, place.peers);
        let of_peers = Grid { own: Address { rank: own, index: 0 }, ranks: place.peers, contexts: 1 };
        let opened = [opened];
        let at_once = longest_message_at_once(&opened, &job, LOOPBACK_FRAME_BYTES);
        let limits = engine_limits(&config, place.peers, at_once, KEPT)?;
        cards::publish(&mut job, &opened, &limits)?;
        warnings::publish(&mut job, &warnings)?;
        warnings::print(&job);

        let [opened] = opened;
        let started = StartedContext::alone(&config, &job, of_peers, opened, limits)?;
        let launcher = Arc::new(Launcher::new(job, of_peers, false));
        let prepared = started.prepare(&launcher, &config, &settings, policy)?;
        Ok(Worker::new(prepared.enter(), place.number))
    }

    /// Opens the rails of a process that knows no other process yet. `progress_thread`: whether it will have one.
    pub(crate) fn open_rails(
        self,
        place: &Place,
        progress_thread: impl FnOnce(&Config) -> Result<bool, SetupError>,
    ) -> Result<Alone, SetupError> {
        place.check()?;
        handlers::install().map_err(|why| SetupError::System("install the handlers of forks", why))?;
        let (config, settings) = self.config.in_force(process_environment)?;
        let job = Job::carried(place.environment());
        let of_numbers = Grid { own: Address { rank: place.number, index: 0 }, ranks: place.numbers, contexts: 1 };
        let mut opened =
            [open(&config, &settings, &job, of_numbers, progress_thread(&config)?, place.clean_up.as_ref())?];
        let warnings = found_warnings(&opened[0]);
        if let Some(warning) = warnings.first().filter(|_| config.strict) {
            return Err(SetupError::Warning(warning.to_string()));
        }
        self.rails.into_iter().for_each(|rail| rail.add_to(&mut opened, &[of_numbers]));
        let [opened] = opened;
        Ok(Alone { config, settings, job, opened, warnings })
    }

    fn set_up(self, contexts: u32) -> Result<Vec<PreparedContext<L>>, SetupError> {
        handlers::install().map_err(|why| SetupError::System("install the handlers of forks", why))?;
        let (config, settings) = self.config.in_force(process_environment)?;
        let bound = self.rails.iter().any(|rail| matches!(rail, CustomRail::One(_)));
        let policy = ProgressThreadPolicy::new(&config, bound)?;
        let deadline = Instant::now() + Duration::from_millis(config.startup_timeout_ms.into());
        let mut job = match self.job {
            Some(job) => job,
            None => joined::join(&config, deadline)?,
        };
        let ranks = job.size();
        if ranks.checked_mul(contexts).is_none_or(|all| all > MAX_ADDRESSES) {
            return Err(SetupError::TooManyContexts { ranks, contexts });
        }
        let grid = |index| Grid { own: Address { rank: job.rank(), index }, ranks, contexts };
        let (first, grids) = (grid(0), (0..contexts).map(grid).collect::<Vec<_>>());

        let clean_up = job.clean_up().map(CleanUp::new);
        let thread = policy.is_expected(&config);
        let opens = grids.iter().map(|grid| open(&config, &settings, &job, *grid, thread, clean_up.as_ref()));
        let mut opened = opens.collect::<Result<Vec<_>, _>>()?;
        // The contexts of a process have the same transports.
        let warnings = opened.first().map(found_warnings).unwrap_or_default();
        if let Some(warning) = warnings.first().filter(|_| config.strict) {
            return Err(SetupError::Warning(warning.to_string()));
        }
        self.rails.into_iter().for_each(|rail| rail.add_to(&mut opened, &grids));
        let at_once = longest_message_at_once(&opened, &job, LOOPBACK_FRAME_BYTES);
        let limits = engine_limits(&config, ranks * contexts, at_once, KEPT)?;
        cards::publish(&mut job, &opened, &limits)?;
        processors::publish(&mut job)?;
        warnings::publish(&mut job, &warnings)?;
        job.exchange(deadline)?;
        warnings::print(&job);
        cards::check_contexts(&job)?;

        let started = grids.into_iter().zip(opened);
        let started = started.map(|(grid, opened)| StartedContext::new(&config, &mut job, grid, opened, limits));
        let started: Result<Vec<_>, _> = started.collect();
        if let Err(SetupError::Unreachable { rank, .. }) = started {
            let _ = job.lost_peer(rank); // perhaps it has failed already, and is the cause
        }
        let started = started?;
        // No context may leave before all ranks know each other, since others may not have started yet: what it has sent to them
        // would be lost with it. A restarted process skips this fence if an earlier process of its rank took part in it.
        if job.incarnation() == 1 || job.fences() == 0 {
            match job.fence(deadline) {
                // Operations with that rank report its end.
                Err(towline_bootstrap::Error::PeerGone { .. }) if contexts == 1 => {}
                outcome => outcome?,
            }
        }
        let (incarnation, own) = (job.incarnation(), job.rank());
        // One warning about shared memory is enough for a job.
        let warned = warnings::contain(&job, &left_out_text("sm"));
        let launcher = Arc::new(Launcher::new(job, first, warned));
        let known = started.first().map_or(&[][..], |started| &started.incarnations);
        let restarted = (0..).zip(known).filter(|(rank, incarnation)| *rank != own && **incarnation > 1);
        launcher.note_restarted_before(restarted.map(|(rank, incarnation)| (rank, *incarnation)))?;

        let prepared = started.into_iter().map(|started| started.prepare(&launcher, &config, &settings, policy));
        let prepared = prepared.collect::<Result<Vec<PreparedContext<L>>, _>>()?;
        if incarnation > 1 {
            let states: Vec<_> = prepared.iter().map(|prepared| &*prepared.state).collect();
            rejoin::wait_until_accepted(&states, &launcher, deadline)?;
        }
        Ok(prepared)
    }
}

/// Warnings about unknown variables, and about transports that cannot be used.
fn found_warnings(opened: &OpenedRails) -> Vec<Warning> {
    let unknown = unknown_here();
    let unknown = unknown.iter().map(|unknown| Warning::new(&unknown.what(), &unknown.advice()));
    let left_out = |(name, why): &(String, String)| Warning::new(&left_out_text(name), why);
    unknown.chain(opened.failures.iter().map(left_out)).collect()
}

/// What happened, where a transport cannot be used.
fn left_out_text(transport: &str) -> String {
    format!("transport {transport} does not work here, and is left out")
}

impl CustomRail {
    /// Adds the rail to the contexts that it serves.
    fn add_to(self, contexts: &mut [OpenedRails], grids: &[Grid]) {
        let add = |opened: &mut OpenedRails, rail| opened.rails.push(AnyRail::Dyn(DynRail(rail)));
        match self {
            // With several contexts the builder has refused such a rail.
            Self::One(rail) => {
                if let Some(first) = contexts.first_mut() {
                    add(first, rail);
                }
            }
            Self::PerContext(mut make) => {
                contexts.iter_mut().zip(grids).for_each(|(opened, grid)| add(opened, make(grid.own)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_cannot_work_is_an_error_where_it_was_asked_for() {
        let nowhere = |config: &mut Config| config.sm.directory = "/nowhere".into();
        let asked = Builder::new().transports("sm").configure(nowhere).build();
        assert!(matches!(asked, Err(SetupError::Transport { name, .. }) if name == "sm"));
        let wrong = Builder::new().transports("tcp").configure(|config| config.tcp.ports = "many".into()).build();
        assert!(wrong.unwrap_err().to_string().contains("TOWLINE_TCP_PORTS"));
    }
}
