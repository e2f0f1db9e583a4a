//! The engine of a world that one thread uses. It is in a cell without a lock, unless its rails need more: a rail that loses
//! frames has a progress thread send them again and probe peers, so the engine is behind a lock then.

use std::ops::{Deref, DerefMut};
use std::task::Waker;

use towline_core::mtl::{Failure, Request, Status};
use towline_core::time::Instant;

use crate::engine::Engine;
use crate::engine::pending::FormerEntry;
use crate::forks::handlers::Markable;
use crate::threads::engine_cell::{EngineCell, InUse, InUseWithTasks};
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::threads::shared::Shared;
use crate::threads::shared_guard::SharedGuard;
use crate::waiting::idle::Idle;

/// The engine of a world of one thread.
// There is one for each context, and the cell is the quick way.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Exclusive {
    /// A cell: no other thread uses the engine.
    Cell(EngineCell),
    /// Behind a lock, for a progress thread or for rails that need flushes. Only one thread of the program uses it.
    Locked(Shared),
}

impl EngineLock for Exclusive {
    type Guard<'a> = ExclusiveGuard<'a>;

    fn new(engine: Engine, progress_thread: bool) -> std::io::Result<Self> {
        if progress_thread || engine.needs_flush {
            Shared::for_single_user(engine, progress_thread).map(Self::Locked)
        } else {
            Ok(Self::Cell(EngineCell::new(engine)))
        }
    }

    #[inline]
    fn lock(&self) -> ExclusiveGuard<'_> {
        match self {
            Self::Cell(cell) => match cell.take() {
                Some(owner) => ExclusiveGuard { engine: cell.engine(), owner: Owner::Cell(owner) },
                None => take_otherwise(cell),
            },
            Self::Locked(shared) => lock_shared(shared),
        }
    }

    #[inline]
    fn look<T>(&self, look: impl FnOnce(&mut Engine) -> Option<T>) -> Option<T> {
        let Self::Cell(cell) = self else { return None };
        let _owner = cell.take()?;
        // SAFETY: the owner holds the engine for this function.
        let engine = unsafe { &mut *cell.engine() };
        if engine.pending.entries.is_empty() { look(engine) } else { None }
    }

    #[inline]
    fn run_callbacks(&self) {
        match self {
            Self::Cell(cell) => {
                if !cell.peek(|engine| engine.pending.entries.is_empty()) {
                    run_all_callbacks(cell);
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

/// Takes an engine for which tasks wait, or that of a forked child.
#[cold]
#[inline(never)]
fn take_otherwise(cell: &EngineCell) -> ExclusiveGuard<'_> {
    let cell = cell.current();
    let owner = match cell.take() {
        Some(owner) => Owner::Cell(owner),
        None => Owner::WithTasks(Some(cell.take_from_tasks())),
    };
    ExclusiveGuard { engine: cell.engine(), owner }
}

impl Markable for Exclusive {
    fn mark_as_copy(&self) {
        match self {
            Self::Cell(cell) => cell.mark_as_copy(),
            Self::Locked(shared) => shared.mark_as_copy(),
        }
    }
}

#[cold]
fn run_all_callbacks(cell: &EngineCell) {
    // The engine is free again before code of users runs: the code may use the context.
    while let Some(completed) = cell.peek(Engine::next_completed) {
        completed.run();
    }
}

/// The engine while its thread uses it.
pub(crate) struct ExclusiveGuard<'a> {
    /// The engine's address, which is valid for all kinds of owner, so that an access need not match the owner.
    engine: *mut Engine,
    owner: Owner<'a>,
}

/// The lock or borrow that ends when the guard is dropped.
enum Owner<'a> {
    Cell(InUse<'a>),
    WithTasks(Option<InUseWithTasks<'a>>),
    Locked(LockedOwner<'a>),
}

/// A guard whose code is kept out of the path of worlds that take no lock.
struct LockedOwner<'a>(Option<SharedGuard<'a>>);

#[cold]
#[inline(never)]
fn lock_shared(shared: &Shared) -> ExclusiveGuard<'_> {
    let guard = shared.lock();
    ExclusiveGuard { engine: guard.engine(), owner: Owner::Locked(LockedOwner(Some(guard))) }
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

/// The engine of a cell, for the code that waits.
struct FromCell<'a>(&'a mut Engine);

impl Deref for FromCell<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        self.0
    }
}

impl DerefMut for FromCell<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        self.0
    }
}

impl EngineGuard for FromCell<'_> {
    #[inline]
    fn progress_or_wait(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, _: Option<Instant>) {
        self.0.progress_or_idle(idle, || awaited.wait_for());
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
            Owner::Locked(owner) => owner.guard().progress_or_wait(idle, awaited, until),
            Owner::Cell(_) | Owner::WithTasks(_) => FromCell(self).progress_or_wait(idle, awaited, until),
        }
    }

    // The kind of owner is matched once, not in each turn.
    #[inline]
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        match &mut self.owner {
            Owner::Locked(owner) => owner.wait_longer(request),
            Owner::Cell(_) | Owner::WithTasks(_) => FromCell(self).wait_longer(request),
        }
    }

    #[inline]
    fn more_follows(&mut self) {
        if let Owner::Locked(owner) = &mut self.owner {
            owner.guard().more_follows();
        }
    }

    fn returns_soon(&mut self) {
        match &mut self.owner {
            Owner::Cell(_) | Owner::WithTasks(None) => {}
            Owner::WithTasks(Some(owner)) => owner.returns_soon = true,
            Owner::Locked(owner) => owner.guard().returns_soon(),
        }
    }

    fn has_driver(&self, waker: &Waker) -> bool {
        match &self.owner {
            Owner::Cell(_) | Owner::WithTasks(_) => self.tasks.is_own(waker),
            Owner::Locked(owner) => owner.0.as_ref().is_some_and(|guard| guard.has_driver(waker)),
        }
    }

    fn watch_task(&mut self, request: Request, waker: Waker) -> std::io::Result<FormerEntry> {
        if let Owner::Locked(owner) = &mut self.owner {
            return owner.guard().watch_task(request, waker);
        }
        let former = Engine::watch_task(self, request, waker)?;
        self.owner = match std::mem::replace(&mut self.owner, Owner::WithTasks(None)) {
            Owner::Cell(owner) => Owner::WithTasks(Some(owner.with_tasks())),
            other => other,
        };
        Ok(former)
    }
}
