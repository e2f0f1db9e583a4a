//! Brings up one context: chooses its rails, starts its engine, and makes its state.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};

use towline_bootstrap::Job;
use towline_core::arena::Arena;
use towline_core::btl::selection::{Candidate, Verdict};
use towline_core::mtl::{Comm, Group, Mtl};
use towline_core::pml;
use towline_core::rail::{Endpoint, Lost, Rail, Unreachable};
use towline_dpu::Matching;

use crate::context::handle::{ALL_CONTEXTS_ID, RankMap, WORLD_ID};
use crate::context::state::ContextState;
use crate::engine::Engine;
use crate::engine::loopback_hub::LoopbackHub;
use crate::engine::reporter::Reporter;
use crate::engine::scope_lists::ScopeLists;
use crate::errors::setup::SetupError;
use crate::forks::owned::Owned;
use crate::job::cards;
use crate::job::ended_contexts::EndedContexts;
use crate::job::launcher::Launcher;
use crate::job::processors;
use crate::settings::config::Config;
use crate::setup::context::{PreparedContext, WorldComm};
use crate::threads::levels::{ThreadLevel, Threads};
use crate::threads::lock::EngineLock;
use crate::threads::progress_policy::ProgressThreadPolicy;
use crate::transports::memory::Mapping;
use crate::transports::open::OpenedRails;
use crate::transports::rails::{AnyRail, RailSet};
use crate::values::address::Grid;
use crate::waiting::idle::IdlePolicy;
use crate::waiting::wait_set::WaitSet;
use towline_settings::Setting;

/// The longest frame that a context sends to itself, in bytes.
pub(crate) const LOOPBACK_FRAME_BYTES: u32 = 16 << 10;

/// A context whose engine runs.
pub(crate) struct StartedContext {
    engine: Engine,
    grid: Grid,
    world: WorldComm,
    all_contexts: Option<Comm>,
    rail_choices: Vec<Vec<Candidate>>,
    rail_names: Vec<String>,
    /// The incarnation of each rank whose cards were read.
    pub incarnations: Vec<u32>,
    failed_transports: Vec<(String, String)>,
    /// The DPU, for people.
    device: Option<String>,
}

/// The rails of a context that reach some address, and the choice among all that were opened.
struct ChosenRails {
    /// First the rails that are used from the beginning, then the spares.
    rails: Vec<AnyRail>,
    /// How many of them are used from the beginning.
    used: usize,
    names: Vec<String>,
    /// For each address, in the order of their numbers, the verdict on each opened rail.
    choices: Vec<Vec<Candidate>>,
    /// For each rail in use, its index among the opened ones.
    opened_index: Vec<usize>,
}

impl ChosenRails {
    /// Chooses among the opened rails. A rail that reaches no address is closed, so that it need not be polled.
    fn new(job: &mut Job, grid: Grid, mut rails: Vec<AnyRail>) -> Result<Self, SetupError> {
        let choices = cards::choose(job, grid, &mut rails)?;
        let names = cards::names(&rails);
        let any = |index: usize, is: fn(&Verdict) -> bool| {
            choices.iter().any(|candidates| candidates.get(index).is_some_and(|candidate| is(&candidate.verdict)))
        };
        let carries = |index: usize| any(index, |verdict| matches!(verdict, Verdict::Taken(_) | Verdict::OneSided(_)));
        let is_spare = |index: usize| any(index, |verdict| matches!(verdict, Verdict::Spare(_)));
        let mut opened_index: Vec<usize> = (0..rails.len()).filter(|index| carries(*index)).collect();
        let used = opened_index.len();
        opened_index.extend((0..rails.len()).filter(|index| !carries(*index) && is_spare(*index)));
        let names = opened_index.iter().filter_map(|index| names.get(*index).cloned()).collect();
        let mut rails: Vec<_> = rails.into_iter().map(Some).collect();
        let rails = opened_index.iter().filter_map(|index| rails.get_mut(*index)?.take()).collect();
        Ok(Self { rails, used, names, choices, opened_index })
    }
}

/// Adds the peers of all addresses to an engine.
fn add_peers(
    mtl: &mut Mtl<'static, RailSet>,
    job: &Job,
    grid: Grid,
    choices: &[Vec<Candidate>],
    opened_index: &[usize],
) -> Result<(), SetupError> {
    for (number, candidates) in (0..).zip(choices) {
        let rank = grid.address(number).rank;
        if candidates.iter().all(|candidate| candidate.for_messages().is_none()) {
            // The rank ended before this process came up, so no message of it will come.
            mtl.pml().lose_peer(grid.peer(number), Lost::Closed);
            continue;
        }
        let reach = |rail: usize, _: &mut AnyRail| -> Result<Endpoint, Unreachable> {
            let candidate = opened_index.get(rail).and_then(|index| candidates.get(*index));
            candidate.and_then(Candidate::for_messages).ok_or(Unreachable::NoCard)
        };
        let unreachable = |why: Unreachable| SetupError::Unreachable { rank, report: why.to_string() };
        mtl.add_peer(grid.peer(number), cards::engine_limits(job, rank)?, reach).map_err(unreachable)?;
        let card = cards::dpu_card(job, rank, grid.address(number).index);
        cards::add_to_dpu(mtl.pml().rails_mut().dpu_mut(), grid.peer(number), card)
            .map_err(|report| SetupError::Unreachable { rank, report })?;
        for (rail, index) in opened_index.iter().enumerate() {
            if let Some(endpoint) = candidates.get(*index).and_then(Candidate::for_spare) {
                mtl.pml().add_spare(grid.peer(number), rail, endpoint).map_err(unreachable)?;
            }
        }
    }
    Ok(())
}

/// Adds the communicator of all ranks, and that of all contexts where ranks have several.
fn add_communicators(engine: &mut Engine, grid: Grid) -> Result<(WorldComm, Option<Comm>), SetupError> {
    let comm = engine.mtl.add_lasting_comm(WORLD_ID, Group::World { size: grid.ranks }, grid.own.rank);
    let comm = comm.map_err(SetupError::World)?;
    let world = WorldComm { comm, rank: grid.own.rank, size: grid.ranks, rank_map: RankMap::Peers };
    if grid.contexts == 1 {
        return Ok((world, None));
    }
    let peers = (0..grid.total()).map(|number| grid.peer(number).0).collect();
    let all_contexts = engine.add_table_comm(ALL_CONTEXTS_ID, peers, grid.own_number(), true);
    Ok((world, Some(all_contexts.map_err(SetupError::World)?)))
}

/// The memory of an engine, and the hub of its loopback rail. The rails must be dropped before the hub.
struct EngineMemory {
    hub: LoopbackHub,
    arena: Arena<'static>,
    memory: Mapping,
}

impl EngineMemory {
    fn new(config: &Config, limits: &pml::Config, rails: &[AnyRail]) -> Result<Self, SetupError> {
        let own = LoopbackHub::attributes(LOOPBACK_FRAME_BYTES);
        let attributes: Vec<_> = rails.iter().map(Rail::attributes).chain([&own]).collect();
        let bytes = Mtl::<RailSet>::bytes(limits, config.communicators, &attributes)
            .saturating_add(LoopbackHub::bytes(LOOPBACK_FRAME_BYTES) + 64);
        let memory = Mapping::new(bytes).map_err(|why| SetupError::System("map memory for the engine", why))?;
        // SAFETY: called once. Everything that is cut from the arena goes into the engine, whose fields are dropped in the order
        // that this needs.
        let mut arena = unsafe { memory.arena() };
        let hub = LoopbackHub::new(&mut arena, LOOPBACK_FRAME_BYTES).map_err(SetupError::Memory)?;
        Ok(Self { hub, arena, memory })
    }

    /// The rail of this process to itself.
    fn loopback(&self) -> Option<AnyRail> {
        // SAFETY: the hub's rail goes into the engine, or is dropped by the caller, before the hub is.
        unsafe { self.hub.hub() }.rail(0).map(AnyRail::Loopback)
    }

    /// An engine over these rails, of which the first `used` are used from the beginning.
    fn into_engine(
        mut self,
        config: &Config,
        limits: pml::Config,
        mut rails: Vec<AnyRail>,
        dpu: Option<Box<Matching>>,
        used: usize,
        contexts_per_processor: u32,
    ) -> Result<Engine, SetupError> {
        // A rail of the program's own may need flushes.
        let needs_flush = rails.iter().take(used).any(|rail| matches!(rail, AnyRail::Udp(_) | AnyRail::Dyn(_)));
        let bell = dpu.as_deref().and_then(Matching::bell);
        let wait_set =
            WaitSet::new(&mut rails, used, bell).map_err(|why| SetupError::System("make a wait handle", why))?;
        let mut mtl = Mtl::new(limits, config.communicators, &mut self.arena, RailSet::new(rails, used, dpu))?;
        mtl.pml().set_stall_timeout(towline_core::time::Duration::from_millis(config.stall_timeout_ms.into()));
        let idle_policy = IdlePolicy::new(config, contexts_per_processor);
        let scope_lists = ScopeLists::new(limits.requests);
        let engine = Engine::new(mtl, idle_policy, wait_set, self.hub, self.memory);
        let mut engine = Engine { scope_lists, needs_flush, ..engine };
        engine.keep_requests();
        Ok(engine)
    }
}

impl StartedContext {
    /// Chooses among the opened rails, and starts the engine with those that reach some address.
    pub fn new(
        config: &Config,
        job: &mut Job,
        grid: Grid,
        opened: OpenedRails,
        limits: pml::Config,
    ) -> Result<Self, SetupError> {
        let device = opened.device();
        let OpenedRails { rails, dpu, failures } = opened;
        let memory = EngineMemory::new(config, &limits, &rails)?;
        let mut rails = rails; // declared after the hub, so that the rails are dropped first where this fails
        rails.extend(memory.loopback());
        let dpu = dpu.map(|(dpu, _)| dpu);
        let ChosenRails { rails, used, names, choices, opened_index } = ChosenRails::new(job, grid, rails)?;
        let sharing = processors::contexts_per_processor(job, grid);
        let mut engine = memory.into_engine(config, limits, rails, dpu, used, sharing)?;
        add_peers(&mut engine.mtl, job, grid, &choices, &opened_index)?;
        let (world, all_contexts) = add_communicators(&mut engine, grid)?;
        let incarnations = (0..grid.ranks).map(|rank| job.incarnation_of(rank).unwrap_or(0)).collect();
        Ok(Self {
            engine,
            grid,
            world,
            all_contexts,
            rail_choices: choices,
            rail_names: names,
            incarnations,
            failed_transports: failures,
            device,
        })
    }

    /// Starts the engine of a process that knows no other process yet: the only member of its world.
    pub fn alone(
        config: &Config,
        job: &Job,
        grid: Grid,
        opened: OpenedRails,
        limits: pml::Config,
    ) -> Result<Self, SetupError> {
        let device = opened.device();
        let OpenedRails { rails, dpu, failures } = opened;
        let memory = EngineMemory::new(config, &limits, &rails)?;
        let mut rails = rails; // declared after the hub, so that the rails are dropped first where this fails
        // While shared memory reaches all peers, other rails need not be polled.
        let is_sm = rails.first().is_some_and(|rail| matches!(rail, AnyRail::Sm(_)));
        rails.splice(usize::from(is_sm)..usize::from(is_sm), memory.loopback());
        let used = if is_sm { 2 } else { rails.len() };
        let names = cards::names(&rails);
        let own_peer = grid.peer(grid.own_number());
        let own = cards::choose_by(&mut rails, own_peer, true, |_| None);
        let reach = |rail: usize, _: &mut AnyRail| -> Result<Endpoint, Unreachable> {
            own.get(rail).and_then(Candidate::for_messages).ok_or(Unreachable::NoCard)
        };
        let sharing = processors::contexts_per_processor(job, grid);
        let (dpu, card) = dpu.unzip();
        let mut engine = memory.into_engine(config, limits, rails, dpu, used, sharing)?;
        let unreachable = |report: String| SetupError::Unreachable { rank: 0, report };
        let added = engine.mtl.add_peer(own_peer, &limits.params(), reach);
        added.map_err(|why| unreachable(why.to_string()))?;
        cards::add_to_dpu(engine.mtl.pml().rails_mut().dpu_mut(), own_peer, card.as_deref()).map_err(unreachable)?;
        let comm = engine.add_table_comm(WORLD_ID, [own_peer.0].into(), 0, true).map_err(SetupError::World)?;
        Ok(Self {
            engine,
            grid,
            world: WorldComm { comm, rank: 0, size: 1, rank_map: RankMap::Table },
            all_contexts: None,
            rail_choices: vec![own],
            rail_names: names,
            incarnations: Vec::new(),
            failed_transports: failures,
            device,
        })
    }

    /// Puts the engine behind its lock, with a progress thread if the policy asks for one.
    pub fn prepare<L: Threads>(
        mut self,
        launcher: &Arc<Launcher>,
        config: &Config,
        settings: &[Setting],
        policy: ProgressThreadPolicy,
    ) -> Result<PreparedContext<L>, SetupError> {
        self.engine.ended_contexts =
            (self.grid.total() > 1).then(|| EndedContexts::new(Arc::clone(launcher), self.grid, self.incarnations));
        let threads = L::LEVEL == ThreadLevel::Multiple;
        self.engine.reporter = Some(Reporter::new(Arc::clone(launcher), self.grid, threads, config.finish_report_ms));
        let (progress_thread, progress_thread_note) = policy.resolve(&self.engine.mtl.rails().0);
        let engine = L::Lock::new(self.engine, progress_thread);
        let engine =
            engine.map_err(|why| SetupError::System("make a wait handle or start the progress thread", why))?;
        let state = Box::new(ContextState {
            marked: OnceLock::new(),
            engine: Owned::new(engine),
            grid: self.grid,
            launcher: Arc::clone(launcher),
            config: config.clone(),
            settings: settings.to_vec(),
            rail_choices: Mutex::new(self.rail_choices),
            rail_names: self.rail_names,
            failed_transports: self.failed_transports,
            device: self.device,
            progress_thread_note,
            finished: AtomicBool::new(false),
        });
        Ok(PreparedContext { state, world: self.world, all_contexts: self.all_contexts })
    }
}
