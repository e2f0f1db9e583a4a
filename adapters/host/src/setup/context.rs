//! One of several contexts of a process, before its thread enters it.

use towline_core::mtl::Comm;

use crate::context::handle::{ALL_CONTEXTS_ID, RankMap, WORLD_ID};
use crate::context::state::ContextState;
use crate::operations::communicator::Communicator;
use crate::setup::world::World;
use crate::threads::levels::{Single, Threads};
use crate::values::address::Address;

/// One of several contexts of a process. [`Builder::contexts`](crate::Builder::contexts) makes it; it is moved to the thread that
/// will use it, and [entered](Self::enter) there.
///
/// A context has an address of its own, an engine of its own and rails of its own. Contexts share nothing on the path of a
/// message, so their threads wait for each other only where they receive from each other.
///
/// A context that is dropped before it was entered is lost to all others, like a rank that has ended.
///
/// ```
/// use towline::{Address, Any, Builder};
///
/// let contexts = Builder::new().contexts(3)?; // not started by a launcher: 3 addresses in all
/// std::thread::scope(|threads| {
///     for context in contexts {
///         threads.spawn(move || {
///             let world = context.enter();
///             let all = world.all_contexts();
///             let next = Address { rank: 0, index: (world.address().index + 1) % 3 };
///             all.send(all.rank_of(next)?, 7, b"hello")?;
///             let mut into = [0u8; 5];
///             let status = all.recv(Any, 7, &mut into)?;
///             let from = all.address_of(status.source)?;
///             assert_eq!((from.index + 1) % 3, world.address().index);
///             Ok::<(), towline::Error>(())
///         });
///     }
/// });
/// # Ok::<(), towline::SetupError>(())
/// ```
pub struct Context<L: Threads = Single> {
    address: Address,
    /// `None` once it was entered.
    prepared: Option<PreparedContext<L>>,
}

/// A context's state and its communicators.
pub(crate) struct PreparedContext<L: Threads> {
    pub state: Box<ContextState<L>>,
    pub world: WorldComm,
    pub all_contexts: Option<Comm>,
}

/// The communicator of all ranks.
#[derive(Clone, Copy)]
pub(crate) struct WorldComm {
    pub comm: Comm,
    /// The rank of this context.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    pub rank_map: RankMap,
}

impl<L: Threads> PreparedContext<L> {
    /// The world of the calling thread.
    pub fn enter(self) -> World<L> {
        let grid = self.state.grid;
        let state = L::Ref::from(self.state);
        // SAFETY: what is behind the reference stays there until it is dropped.
        unsafe { state.mark_in_children() };
        let communicator =
            |comm, rank, size, rank_map, id| Communicator::new(L::Ref::clone(&state), comm, rank, size, rank_map, id);
        let WorldComm { comm, rank, size, rank_map } = self.world;
        let all = communicator(comm, rank, size, rank_map, WORLD_ID);
        let all_contexts = self
            .all_contexts
            .map(|comm| communicator(comm, grid.own_number(), grid.total(), RankMap::AllContexts, ALL_CONTEXTS_ID));
        World::new(all, all_contexts)
    }
}

// SAFETY: everything in a context was made for it and is reached through it alone, except for the connection to the launcher,
// which is behind a lock. These parts are not `Send` by themselves: addresses of memory that the engine owns; the loopback hub
// and its only rail, which refer to each other and move together; buffers and wakers of users, of which there are none before the
// context is entered; and rails of the program's own behind `dyn Rail`. `Builder::contexts`, which alone makes contexts, takes
// only rails of `Builder::rail_per_context`, and these are `Send`.
unsafe impl<L: Threads> Send for Context<L> {}

impl<L: Threads> Context<L> {
    /// A context whose rails may all move to another thread.
    pub(crate) fn new(prepared: PreparedContext<L>) -> Self {
        Self { address: prepared.state.grid.own, prepared: Some(prepared) }
    }

    /// The context's address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Enters the context in the calling thread. Returns its [`World`], which stays in this thread if it is of a [`Single`]
    /// thread.
    ///
    /// ```
    /// let contexts = towline::Builder::new().contexts(2)?;
    /// let threads = contexts.into_iter().map(|context| std::thread::spawn(|| context.enter().address().index));
    /// let threads: Vec<_> = threads.collect();
    /// let indices: Vec<u32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    /// assert_eq!(indices, [0, 1]);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn enter(mut self) -> World<L> {
        // Only this method takes `prepared`, and it consumes the context.
        self.prepared.take().expect("a context is entered once").enter()
    }
}

impl<L: Threads> std::fmt::Debug for Context<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<L: Threads> Drop for Context<L> {
    fn drop(&mut self) {
        let Some(prepared) = self.prepared.take().filter(|prepared| !prepared.state.is_copy()) else { return };
        // As with a world, a panicking thread does not report a normal end, so the launcher ends the job.
        if std::thread::panicking() {
            prepared.state.launcher.report_lost(self.address);
        } else if let Err(why) = prepared.state.launcher.leave(self.address, false) {
            log::warn!("{} did not finish normally: {why}", self.address);
        }
    }
}
