//! The engine of a world that one thread uses. It is a cell without a lock, unless its rails need more than that: those that
//! lose frames have them sent again, and their peers probed, by a progress thread, which takes a lock.

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};

use towline_core::time::Instant;

use crate::engine::Engine;
use crate::idle::Idle;
use crate::several::{Guard, Several};
use crate::threads::{Awaited, Held, Lock};

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
            Self::Bare(engine) => AloneGuard::Bare(engine.borrow_mut()),
            Self::Attended(several) => AloneGuard::Attended(attend(several)),
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
pub(crate) enum AloneGuard<'a> {
    Bare(RefMut<'a, Engine>),
    Attended(Attended<'a>),
}

/// A guard whose code stays out of the way of those that take no lock.
pub(crate) struct Attended<'a>(Option<Guard<'a>>);

#[inline(never)]
fn attend(several: &Several) -> Attended<'_> {
    Attended(Some(several.hold()))
}

impl Drop for Attended<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        self.0 = None;
    }
}

impl<'a> Attended<'a> {
    fn guard(&mut self) -> &mut Guard<'a> {
        self.0.as_mut().expect("there until it is dropped")
    }
}

impl Deref for AloneGuard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        match self {
            Self::Bare(engine) => engine,
            Self::Attended(attended) => attended.0.as_ref().expect("there until it is dropped"),
        }
    }
}

impl DerefMut for AloneGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        match self {
            Self::Bare(engine) => engine,
            Self::Attended(attended) => attended.guard(),
        }
    }
}

impl Held for AloneGuard<'_> {
    #[inline]
    fn turn(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        match self {
            Self::Bare(engine) => {
                Engine::turn(engine, idle);
            }
            Self::Attended(attended) => attended.guard().turn(idle, awaited, until),
        }
    }

    #[inline]
    fn more_follows(&mut self) {
        if let Self::Attended(attended) = self {
            attended.guard().more_follows();
        }
    }
}
