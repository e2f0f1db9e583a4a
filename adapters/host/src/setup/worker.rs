//! Workers: contexts whose peers the program adds one by one, by cards that it carries itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use parking_lot::ReentrantMutex;
use towline_core::mtl::Group;
use towline_core::rail::{Lost, Peer};

use crate::context::handle::RankMap;
use crate::context::state::ContextState;
use crate::errors::error::Error;
use crate::errors::setup::SetupError;
use crate::errors::worker::WorkerError;
use crate::job::cards;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::setup::peers::add_chosen_peer;
use crate::setup::world::World;
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::EngineLock;
use crate::values::message::RUNTIME_TAG_MAX;

/// Of the ids of communicators, those with this bit are the program's. The library gives out the others.
const PROGRAM_ID: u32 = 1 << 31;

/// A context for a runtime that has an exchange of its own, such as an MPI library: it starts alone, and gets its peers one by one.
/// [`Builder::open`](crate::Builder::open) makes it.
///
/// Each process has a number, and a [card](Self::card) that the runtime carries to the others. A process can send to those whose
/// cards it has [added](Self::add_peer), through [communicators](Self::communicator) that it makes of them without any message.
/// Peers may come at any time. A worker is also a [`World`] of one rank, which has the operations of a context: progress, reports,
/// counters.
///
/// Both ends must add each other. A message to a process that has not done so waits; so does one for a communicator that the
/// receiver has not made yet.
///
/// **The end.** [`finish`](Self::finish) or a drop delivers what was sent to processes that have added this one, and waits for no
/// other process. A peer whose process ends is noticed where a transport notices it; nobody else reports ends.
///
/// **Threads.** As for a world: one thread, or several with [`Multiple`](crate::Multiple).
///
/// ```
/// use std::sync::mpsc::channel;
/// use towline::{Any, Builder, Place};
///
/// // Two processes of a runtime, here two threads. Channels are its exchange.
/// let process = |number: u32, (to, from): (std::sync::mpsc::Sender<Vec<u8>>, std::sync::mpsc::Receiver<Vec<u8>>)| {
///     let place = Place::new(0x1234, towline::JobKey::new([7; 32]), number);
///     let worker = Builder::new().transports("tcp").open(place)?;
///     to.send(worker.card())?;
///     worker.add_peer(&from.recv()?)?;
///     // Both give the communicator the same id, and its members the same order.
///     let both = worker.communicator(5, &[0, 1], Some(number))?;
///     both.send(1 - number, 7, &[number])?;
///     let mut word = [0u32];
///     let status = both.recv(Any, 7, &mut word)?;
///     assert_eq!((status.source, word), (1 - number, [1 - number]));
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// };
/// let ((to_one, at_one), (to_zero, at_zero)) = (channel(), channel());
/// std::thread::scope(|threads| {
///     let one = threads.spawn(|| process(1, (to_zero, at_one)));
///     process(0, (to_one, at_zero)).and(one.join().unwrap())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct Worker<L: Threads = Single> {
    world: World<L>,
    number: u32,
    /// A thread that changes a peer may run code of the program, which may use the worker. So the thread may take the lock again, and
    /// the table is borrowed for single steps.
    peers: ReentrantMutex<RefCell<PeerTable>>,
}

/// A transport notices within this time that a process has ended in order.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Which engine peer each process is.
#[derive(Debug)]
struct PeerTable {
    by_number: HashMap<u32, u32>,
    /// Which engine peers are in use.
    used: Box<[bool]>,
}

impl PeerTable {
    /// The engine peer of a new process. Where possible, it is the process's number: ranks of a communicator of all processes then
    /// need no table.
    fn take(&mut self, number: u32) -> Option<u32> {
        let is_free = |number: &usize| self.used.get(*number) == Some(&false);
        let wanted = Some(number as usize).filter(is_free);
        let peer = wanted.or_else(|| self.used.iter().rposition(|used| !used))?;
        self.used[peer] = true;
        self.by_number.insert(number, peer as u32);
        Some(peer as u32)
    }

    fn give_back(&mut self, number: u32) {
        if let Some(peer) = self.by_number.remove(&number) {
            self.used[peer as usize] = false;
        }
    }
}

/// The engine peer that a process itself is, where there are `peers` of them.
pub(super) const fn own_peer(number: u32, peers: u32) -> u32 {
    if number < peers { number } else { peers - 1 }
}

impl<L: Threads> Deref for Worker<L> {
    type Target = World<L>;

    fn deref(&self) -> &World<L> {
        &self.world
    }
}

impl<L: Threads> Worker<L> {
    /// A worker that knows only itself.
    pub(super) fn new(world: World<L>, number: u32) -> Self {
        let grid = world.handle.context.grid;
        let mut peers = PeerTable { by_number: HashMap::new(), used: vec![false; grid.ranks as usize].into() };
        let own = peers.take(number);
        debug_assert_eq!(own, Some(grid.own.rank), "the engine has this peer, too");
        Self { world, number, peers: ReentrantMutex::new(RefCell::new(peers)) }
    }

    fn context(&self) -> &ContextState<L> {
        &self.world.handle.context
    }

    /// The number of this process.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What other processes need to reach this one: its number, its limits, and the cards of its transports. The same bytes for
    /// all of them, for as long as the worker lives; some hundred bytes. Whoever can change them on their way can have messages
    /// sent elsewhere, as with any exchange of addresses.
    pub fn card(&self) -> Vec<u8> {
        self.context().launcher.read(towline_bootstrap::Job::own_publications)
    }

    /// Adds the process with this card, and returns its number. Sends nothing: the transports connect with the first message. A
    /// process that was added before, or this one itself, may be added again, which changes nothing. If its number is that of a
    /// process that has ended or was lost, or if there is no room, such processes are removed first, as by
    /// [`remove_peer`](Self::remove_peer).
    ///
    /// # Errors
    /// [`WorkerError::Card`] for bytes that are no card of this job, or the card of another process with a number that is in use;
    /// [`WorkerError::Full`]; [`WorkerError::Unreachable`] with the verdict on each transport; [`WorkerError::Operation`] in a
    /// forked child. Nothing has changed then.
    pub fn add_peer(&self, card: &[u8]) -> Result<u32, WorkerError> {
        let context = self.context();
        context.check_process()?;
        let peers = self.peers.lock();
        let accept = || context.launcher.change(|job| job.accept_publications(card));
        let number = match accept() {
            Err(_) if towline_bootstrap::Job::rank_in(card).is_some_and(|number| self.await_end(number)) => accept(),
            accepted => accepted,
        };
        let number = number.map_err(WorkerError::Card)?;
        if peers.borrow().by_number.contains_key(&number) {
            return Ok(number);
        }
        let mut taken = peers.borrow_mut().take(number);
        if taken.is_none() && self.forget_ended(None) {
            taken = peers.borrow_mut().take(number);
        }
        let full = || WorkerError::Full { most: peers.borrow().used.len() as u32 };
        let added = taken.ok_or_else(full).and_then(|peer| self.add(number, Peer(peer)));
        if added.is_err() {
            peers.borrow_mut().give_back(number);
            context.launcher.change(|job| job.forget_publications(number));
        }
        added.map(|()| number)
    }

    /// Forgets the process with this number, if it has ended or was lost. Transports notice this in progress, and the caller may have
    /// made none since. Returns whether it has ended.
    fn await_end(&self, number: u32) -> bool {
        let deadline = Instant::now() + NOTICED_WITHIN;
        loop {
            if self.forget_ended(Some(number)) {
                return true;
            }
            let is_peer = number != self.number && self.peers.lock().borrow().by_number.contains_key(&number);
            if !is_peer || Instant::now() >= deadline {
                return false;
            }
            self.context().engine.lock().poll();
            self.context().run_callbacks();
            std::thread::yield_now();
        }
    }

    /// Forgets processes that have ended or were lost: the one with this number, or all. Returns whether there was any.
    fn forget_ended(&self, number: Option<u32>) -> bool {
        let peers = self.peers.lock();
        let engine = self.context().engine.lock();
        let has_ended = |(known, peer): (&u32, &u32)| {
            let is_meant = *known != self.number && number.is_none_or(|number| number == *known);
            (is_meant && engine.mtl.why_lost(Peer(*peer)).is_some()).then_some(*known)
        };
        let ended: Vec<u32> = peers.borrow().by_number.iter().filter_map(has_ended).collect();
        drop(engine);
        ended.iter().filter(|number| self.remove_peer(**number).is_ok()).count() != 0
    }

    /// Adds a process whose card was accepted to the engine.
    fn add(&self, number: u32, peer: Peer) -> Result<(), WorkerError> {
        let context = self.context();
        let mut engine = context.engine.lock();
        let chosen = context.launcher.read(|job| {
            let limits = cards::engine_limits(job, number).unwrap_or_default();
            let rails = &mut engine.mtl.pml().rails_mut().0;
            let chosen = cards::choose_by(rails, peer, false, |index| {
                cards::card_in(job, context.rail_names.get(index)?, number)
            });
            add_chosen_peer(&mut engine, peer, limits, cards::dpu_card(job, number, 0), chosen)
        });
        let chosen = chosen.map_err(|report| WorkerError::Unreachable { number, report })?;
        engine.use_rails(&chosen);
        drop(engine);
        let mut choices = context.rail_choices.lock().unwrap_or_else(PoisonError::into_inner);
        let place = peer.0 as usize;
        if choices.len() <= place {
            choices.resize_with(place + 1, Vec::new);
        }
        choices[place] = chosen;
        Ok(())
    }

    /// Forgets a process: one that has ended, or that is not needed any more. Operations with it end with
    /// [`Error::PeerFinished`], and communicators with it are of no use for messages with it; delete them before. Its number may
    /// then be that of a new process.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchPeer`]; also for this process itself, which cannot be removed.
    pub fn remove_peer(&self, number: u32) -> Result<(), WorkerError> {
        let context = self.context();
        context.check_process()?;
        let peers = self.peers.lock();
        let known = peers.borrow().by_number.get(&number).copied().filter(|_| number != self.number);
        let peer = known.ok_or(WorkerError::NoSuchPeer(number))?;
        let mut engine = context.engine.lock();
        engine.mtl.pml().lose_peer(Peer(peer), Lost::Closed);
        // Operations learn of the loss now: afterwards the place may belong to another process.
        engine.poll();
        engine.mtl.del_peer(Peer(peer));
        drop(engine);
        context.launcher.change(|job| job.forget_publications(number));
        peers.borrow_mut().give_back(number);
        drop(peers);
        context.run_callbacks();
        Ok(())
    }

    /// Makes a communicator of processes that were added. Local: no message is sent, and nothing waits. Messages for it that have
    /// arrived already are kept for it.
    ///
    /// `id` is the same at all members, below 2^31, and not that of another communicator with a common member. `members` are
    /// numbers; rank r of the communicator is the process `members[r]`. `rank` is that of this process; `None` makes the
    /// communicator a view of a group that this process is not in: it sends to the members and receives from them, as with the
    /// remote group of an inter-communicator.
    ///
    /// Operations on memory of the caller ([`raw`](crate::raw)), of [views](crate::View), and probes also take tags from 2^31 to
    /// 2^32 - 2 in such a communicator, for protocols of the runtime. A receive of any tag does not match them. The library's own
    /// collective operations use some of them (2^31 + 255 to 2^31 + 2814), so a runtime uses either those or its own.
    ///
    /// # Errors
    /// [`WorkerError::NoSuchPeer`] for a member that was not added; [`WorkerError::Id`]; [`WorkerError::Rank`];
    /// [`WorkerError::Operation`] if the id is in use, or if there is no room.
    pub fn communicator(
        &self,
        id: u32,
        members: &[u32],
        rank: Option<u32>,
    ) -> Result<OwnedCommunicator<L>, WorkerError> {
        let context = self.context();
        context.check_process()?;
        if id >= PROGRAM_ID {
            return Err(WorkerError::Id(id));
        }
        let members_of = |rank: u32| members.get(rank as usize).copied();
        if rank.is_some_and(|rank| members_of(rank) != Some(self.number)) {
            return Err(WorkerError::Rank { rank: rank.unwrap_or(0), number: self.number });
        }
        let table: Box<[u32]> = {
            let peers = self.peers.lock();
            let peers = peers.borrow();
            let peer = |number: &u32| peers.by_number.get(number).copied().ok_or(WorkerError::NoSuchPeer(*number));
            members.iter().map(peer).collect::<Result<_, _>>()?
        };
        let (size, id) = (table.len() as u32, PROGRAM_ID | id);
        let identity = table.iter().zip(0..).all(|(peer, rank)| *peer == rank);
        let mut engine = context.engine.lock();
        let own = rank.unwrap_or(0); // what it says matters to nobody where this process is not a member
        let (made, rank_map) = if identity {
            (engine.mtl.add_comm(id, Group::World { size }, own), RankMap::Peers)
        } else {
            (engine.add_table_comm(id, table, own, false), RankMap::Table)
        };
        drop(engine);
        let comm = made.map_err(Error::Communicator)?;
        let state = L::Ref::clone(&self.world.handle.context);
        let mut made = Communicator::new(state, comm, rank.unwrap_or(u32::MAX), size, rank_map, id);
        made.handle.tag_max = RUNTIME_TAG_MAX;
        Ok(OwnedCommunicator(made))
    }

    /// Ends the worker: delivers what was sent, and waits for no other process. It also ends where it fails.
    ///
    /// # Errors
    /// [`SetupError::Unsent`] if messages were not received within [`Config::finish_timeout_ms`](crate::Config::finish_timeout_ms).
    pub fn finish(self) -> Result<(), SetupError> {
        self.world.leave()
    }
}
