//! The engine of a world that one thread uses. It is in a cell without a lock, unless its rails need more: a rail that loses
//! frames has a progress thread send them again and probe peers, so the engine is behind a lock then.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use towline_core::mtl::{Failure, Request, Status};
use towline_core::time::Instant;

use crate::engine::Engine;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::threads::shared::Shared;
use crate::threads::shared_guard::SharedGuard;
use crate::waiting::idle::Idle;

/// The engine of a world of one thread.
// There is one for each context, and the cell is the quick way.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Exclusive {
    /// A cell: no other thread uses the engine.
    Cell(RefCell<Engine>),
    /// Behind a lock, for a progress thread or for rails that need flushes. Only one thread of the program uses it.
    Locked(Shared),
}

impl EngineLock for Exclusive {
    type Guard<'a> = ExclusiveGuard<'a>;

    fn new(engine: Engine, progress_thread: bool) -> std::io::Result<Self> {
        if progress_thread || engine.needs_flush {
            Shared::for_single_user(engine, progress_thread).map(Self::Locked)
        } else {
            Ok(Self::Cell(RefCell::new(engine)))
        }
    }

    #[inline]
    fn lock(&self) -> ExclusiveGuard<'_> {
        match self {
            Self::Cell(cell) => {
                let (owner, engine) = (Owner::Cell(cell.borrow_mut()), cell.as_ptr());
                ExclusiveGuard { engine, owner }
            }
            Self::Locked(shared) => lock_shared(shared),
        }
    }

    #[inline]
    fn run_callbacks(&self) {
        match self {
            Self::Cell(engine) => {
                if !engine.borrow().pending.entries.is_empty() {
                    run_all_callbacks(engine);
                }
            }
            Self::Locked(shared) => shared.run_callbacks(),
        }
    }

    fn progress_thread_wakes(&self) -> Option<u64> {
        match self {
            Self::Cell(_) => None,
            Self::Locked(shared) => shared.progress_thread_wakes(),
        }
    }

    fn end_progress_thread(&self) {
        if let Self::Locked(shared) = self {
            shared.end_progress_thread();
        }
    }
}

#[cold]
fn run_all_callbacks(engine: &RefCell<Engine>) {
    loop {
        // The engine is free again before code of users runs: the code may use the context.
        let completed = engine.borrow_mut().next_completed();
        match completed {
            Some(completed) => completed.run(),
            None => return,
        }
    }
}

/// The engine while its thread uses it.
pub(crate) struct ExclusiveGuard<'a> {
    /// The engine's address, which is valid for both kinds of owner, so that an access need not match the owner.
    engine: *mut Engine,
    owner: Owner<'a>,
}

/// The lock or borrow that ends when the guard is dropped.
enum Owner<'a> {
    Cell(RefMut<'a, Engine>),
    Locked(LockedOwner<'a>),
}

/// A guard whose code is kept out of the path of worlds that take no lock.
struct LockedOwner<'a>(Option<SharedGuard<'a>>);

#[cold]
#[inline(never)]
fn lock_shared(shared: &Shared) -> ExclusiveGuard<'_> {
    let guard = shared.lock();
    ExclusiveGuard { engine: shared.engine(), owner: Owner::Locked(LockedOwner(Some(guard))) }
}

impl<'a> LockedOwner<'a> {
    fn guard(&mut self) -> &mut SharedGuard<'a> {
        self.0.as_mut().expect("there until it is dropped")
    }

    #[cold]
    #[inline(never)]
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        self.guard().wait_longer(request)
    }
}

impl EngineGuard for RefMut<'_, Engine> {
    #[inline]
    fn progress_or_wait(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, _: Option<Instant>) {
        self.progress_or_idle(idle, || awaited.wait_for());
    }
}

impl Drop for LockedOwner<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = None;
    }
}

impl Deref for ExclusiveGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        // SAFETY: the owner holds the engine for this guard alone. The progress thread has a locked engine only while this thread
        // waits in a method of the owner, which borrows the guard, so that no reference from here exists then.
        unsafe { &*self.engine }
    }
}

impl DerefMut for ExclusiveGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        // SAFETY: as above.
        unsafe { &mut *self.engine }
    }
}

impl EngineGuard for ExclusiveGuard<'_> {
    #[inline]
    fn progress_or_wait(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        match &mut self.owner {
            Owner::Cell(engine) => engine.progress_or_wait(idle, awaited, until),
            Owner::Locked(owner) => owner.guard().progress_or_wait(idle, awaited, until),
        }
    }

    // The kind of owner is matched once, not in each turn.
    #[inline]
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        match &mut self.owner {
            Owner::Cell(engine) => engine.wait_longer(request),
            Owner::Locked(owner) => owner.wait_longer(request),
        }
    }

    #[inline]
    fn more_follows(&mut self) {
        if let Owner::Locked(owner) = &mut self.owner {
            owner.guard().more_follows();
        }
    }
}
