//! The engine of a world that one thread uses. It is a cell without a lock, unless its rails need more than that: those that
//! lose frames have them sent again, and their peers probed, by a progress thread, which takes a lock.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use towline_core::mtl::{Failure, Request, Status};
use towline_core::time::Instant;

use crate::engine::Engine;
use crate::threads::levels::{Awaited, Held, Lock};
use crate::threads::shared::{Guard, Several};
use crate::waiting::wait_set::Idle;

/// What the engine is in.
// There is one for each context, and the cell is the quick way.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Alone {
    /// A cell: nobody else is there.
    Bare(RefCell<Engine>),
    /// What several threads share: with the progress thread, where there is one. Apart from it one thread has the engine.
    Attended(Several),
}

impl Lock for Alone {
    type Guard<'a> = AloneGuard<'a>;

    fn new(engine: Engine, thread: bool) -> std::io::Result<Self> {
        if thread || engine.holds_back {
            Several::for_one(engine, thread).map(Self::Attended)
        } else {
            Ok(Self::Bare(RefCell::new(engine)))
        }
    }

    #[inline]
    fn hold(&self) -> AloneGuard<'_> {
        match self {
            Self::Bare(cell) => {
                let (keeper, engine) = (Keeper::Bare(cell.borrow_mut()), cell.as_ptr());
                AloneGuard { engine, keeper }
            }
            Self::Attended(several) => attend(several),
        }
    }

    #[inline]
    fn settle(&self) {
        match self {
            Self::Bare(engine) => {
                if !engine.borrow().beside.entries.is_empty() {
                    settle_all(engine);
                }
            }
            Self::Attended(several) => several.settle(),
        }
    }

    fn thread_wakes(&self) -> Option<u64> {
        match self {
            Self::Bare(_) => None,
            Self::Attended(several) => several.thread_wakes(),
        }
    }

    fn end_thread(&self) {
        if let Self::Attended(several) = self {
            several.end_thread();
        }
    }
}

#[cold]
fn settle_all(engine: &RefCell<Engine>) {
    loop {
        // The engine is free again before code of users runs: it may use the context.
        let done = engine.borrow_mut().next_done();
        match done {
            Some(done) => done.run(),
            None => return,
        }
    }
}

/// The engine in the hands of its thread.
pub(crate) struct AloneGuard<'a> {
    /// Where it is, whoever keeps it: so that its user need not ask each time.
    engine: *mut Engine,
    keeper: Keeper<'a>,
}

/// What has to be given back.
enum Keeper<'a> {
    Bare(RefMut<'a, Engine>),
    Attended(Attended<'a>),
}

/// A guard whose code stays out of the way of those that take no lock.
struct Attended<'a>(Option<Guard<'a>>);

#[cold]
#[inline(never)]
fn attend(several: &Several) -> AloneGuard<'_> {
    let guard = several.hold();
    AloneGuard { engine: several.engine(), keeper: Keeper::Attended(Attended(Some(guard))) }
}

impl<'a> Attended<'a> {
    fn guard(&mut self) -> &mut Guard<'a> {
        self.0.as_mut().expect("there until it is dropped")
    }

    #[cold]
    #[inline(never)]
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        self.guard().wait_longer(request)
    }
}

impl Held for RefMut<'_, Engine> {
    #[inline]
    fn turn(&mut self, idle: &mut Idle, _: &Awaited<'_>, _: Option<Instant>) {
        Engine::turn(self, idle);
    }
}

impl Drop for Attended<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = None;
    }
}

impl Deref for AloneGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        // SAFETY: the keeper has it for this guard alone. Others have an attended engine only while this thread waits in a
        // method of the keeper's, which borrows the guard, so that nobody holds a reference of this.
        unsafe { &*self.engine }
    }
}

impl DerefMut for AloneGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        // SAFETY: as above.
        unsafe { &mut *self.engine }
    }
}

impl Held for AloneGuard<'_> {
    #[inline]
    fn turn(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        match &mut self.keeper {
            Keeper::Bare(engine) => engine.turn(idle, awaited, until),
            Keeper::Attended(attended) => attended.guard().turn(idle, awaited, until),
        }
    }

    // Asked once who keeps it, not in each turn.
    #[inline]
    fn wait_longer(&mut self, request: Request) -> Result<Status, Failure> {
        match &mut self.keeper {
            Keeper::Bare(engine) => engine.wait_longer(request),
            Keeper::Attended(attended) => attended.wait_longer(request),
        }
    }

    #[inline]
    fn more_follows(&mut self) {
        if let Keeper::Attended(attended) = &mut self.keeper {
            attended.guard().more_follows();
        }
    }
}
