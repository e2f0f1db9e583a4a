//! One of several contexts of a process, on its way to its thread.

use towline_core::mtl::Comm;

use crate::context::state::{Ranks, State};
use crate::operations::communicator::Communicator;
use crate::setup::world::World;
use crate::threads::levels::{Single, Threads};
use crate::values::address::Address;

/// The context of the communicator of all ranks.
pub(crate) const WORLD: u32 = 1;
/// The context of the communicator of all contexts of all ranks.
pub(crate) const EVERYONE: u32 = 2;

/// One of several contexts of a process: made by [`Builder::contexts`](crate::Builder::contexts), to be moved to the thread
/// that will use it, and [entered](Self::enter) there.
///
/// A context is an address of its own, with an engine and rails of its own. Contexts share nothing that a message passes, so
/// their threads wait for each other only where they receive from each other.
///
/// A context that is dropped without having been entered is lost to all others, as a rank that has ended.
///
/// ```
/// use towline::{Address, Any, Builder};
///
/// let contexts = Builder::new().contexts(3)?; // alone: 3 addresses in all
/// std::thread::scope(|threads| {
///     for context in contexts {
///         threads.spawn(move || {
///             let world = context.enter();
///             let everyone = world.everyone();
///             let next = Address { rank: 0, index: (world.address().index + 1) % 3 };
///             everyone.send(everyone.rank_of(next)?, 7, b"hello")?;
///             let mut into = [0u8; 5];
///             let status = everyone.recv(Any, 7, &mut into)?;
///             let from = everyone.address_of(status.source)?;
///             assert_eq!((from.index + 1) % 3, world.address().index);
///             Ok::<(), towline::Error>(())
///         });
///     }
/// });
/// # Ok::<(), towline::SetupError>(())
/// ```
pub struct Context<L: Threads = Single> {
    address: Address,
    /// Gone once it was entered.
    made: Option<Made<L>>,
}

/// A context, and its communicators.
pub(crate) struct Made<L: Threads> {
    pub state: Box<State<L>>,
    pub world: Comm,
    pub everyone: Option<Comm>,
}

impl<L: Threads> Made<L> {
    /// The world of the calling thread.
    pub fn enter(self) -> World<L> {
        let grid = self.state.grid;
        let state = L::Ref::from(self.state);
        let all = Communicator::new(L::Ref::clone(&state), self.world, grid.own.rank, grid.ranks, Ranks::Peers, WORLD);
        let everyone =
            |comm| Communicator::new(state, comm, grid.own_number(), grid.total(), Ranks::Everyone, EVERYONE);
        World::new(all, self.everyone.map(everyone))
    }
}

// SAFETY: everything in a context was made for it and is reached through it alone, but for the launcher's tie, which is
// behind a lock. What is not `Send` by itself: addresses of memory that the engine owns; the hub and its only rail, which
// refer to each other and go together; buffers and wakers of users, of which there are none before it is entered; and rails of
// the program's own behind `dyn FullRail`: `Builder::contexts`, which alone makes contexts, takes those of `Builder::rail_for_each`
// only, and these are `Send`.
unsafe impl<L: Threads> Send for Context<L> {}

impl<L: Threads> Context<L> {
    /// A context whose rails may all go to another thread.
    pub(crate) fn new(made: Made<L>) -> Self {
        Self { address: made.state.grid.own, made: Some(made) }
    }

    /// Its address.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Makes it the calling thread's: its [`World`] stays in this thread.
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
        // It is there: nothing but this takes it, and this takes the context.
        self.made.take().expect("a context is entered once").enter()
    }
}

impl<L: Threads> std::fmt::Debug for Context<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("address", &self.address).finish_non_exhaustive()
    }
}

impl<L: Threads> Drop for Context<L> {
    fn drop(&mut self) {
        let Some(made) = self.made.take() else { return };
        // As with a world, a thread in trouble does not say that all is well, and the launcher ends the job.
        if std::thread::panicking() {
            made.state.launch.lose(self.address);
        } else if let Err(why) = made.state.launch.finish(self.address) {
            log::warn!("{}: {why}", self.address);
        }
    }
}
