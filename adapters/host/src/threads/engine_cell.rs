//! The cell of an engine that one thread uses: a `RefCell` that also knows whether tasks wait, and whether it is a copy in a child.

use std::cell::{Cell, OnceCell, UnsafeCell};

use crate::engine::Engine;
use crate::forks::handlers::Markable;

/// An engine that is used by one thread, through one guard at a time.
pub(crate) struct EngineCell {
    engine: UnsafeCell<Engine>,
    state: Cell<State>,
    /// In a forked child, the cell that it uses instead.
    of_child: OnceCell<Box<EngineCell>>,
}

/// Whether the engine is in use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    Free,
    /// Free, and tasks of other executors wait, so whoever uses the engine must hand over to the reactor afterwards.
    FreeWithTasks,
    InUse,
    /// A copy in a forked child: it is never used.
    OfParent,
}

impl EngineCell {
    pub const fn new(engine: Engine) -> Self {
        Self { engine: UnsafeCell::new(engine), state: Cell::new(State::Free), of_child: OnceCell::new() }
    }

    /// The address of the engine, for the owner of the cell.
    #[inline]
    pub const fn engine(&self) -> *mut Engine {
        self.engine.get()
    }

    /// Takes the engine, if it is free and no tasks wait.
    #[inline]
    pub fn take(&self) -> Option<InUse<'_>> {
        if self.state.get() != State::Free {
            return None;
        }
        self.state.set(State::InUse);
        Some(InUse(self))
    }

    /// This cell, or in a forked child the one that it uses instead.
    #[cold]
    pub fn current(&self) -> &Self {
        let mut cell = self;
        while cell.state.get() == State::OfParent {
            cell = cell.of_child.get_or_init(|| Box::new(Self::new(Engine::of_child())));
        }
        cell
    }

    /// Takes the engine while tasks wait.
    ///
    /// # Panics
    /// If it is in use.
    #[cold]
    #[inline(never)]
    pub fn take_from_tasks(&self) -> InUseWithTasks<'_> {
        let former = self.state.replace(State::InUse);
        assert!(former == State::FreeWithTasks, "{IN_USE}");
        // SAFETY: the engine was free.
        unsafe { &*self.engine.get() }.tasks.disarm();
        InUseWithTasks { cell: self, returns_soon: false }
    }

    /// Looks at the engine, without any use of its rails.
    ///
    /// # Panics
    /// If it is in use.
    #[inline]
    pub fn peek<T>(&self, look: impl FnOnce(&mut Engine) -> T) -> T {
        let former = self.state.get();
        if former >= State::InUse {
            return self.peek_in_child(look);
        }
        self.state.set(State::InUse);
        // SAFETY: the engine was free, and is marked as in use.
        let value = look(unsafe { &mut *self.engine.get() });
        self.state.set(former);
        value
    }

    #[cold]
    #[inline(never)]
    fn peek_in_child<T>(&self, look: impl FnOnce(&mut Engine) -> T) -> T {
        let cell = self.current();
        assert!(cell.state.get() < State::InUse, "{IN_USE}");
        cell.peek(look)
    }
}

/// The text of a panic.
const IN_USE: &str = "the engine is used by a function that calls code of users";

impl Markable for EngineCell {
    fn mark_as_copy(&self) {
        let mut cell = self;
        while let Some(child) = cell.of_child.get() {
            cell = child;
        }
        cell.state.set(State::OfParent);
    }
}

/// The engine is in use, as long as this exists.
pub(crate) struct InUse<'a>(&'a EngineCell);

impl<'a> InUse<'a> {
    /// Tasks wait from now on.
    pub fn with_tasks(self) -> InUseWithTasks<'a> {
        let cell = self.0;
        std::mem::forget(self);
        InUseWithTasks { cell, returns_soon: false }
    }
}

impl Drop for InUse<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.state.set(State::Free);
    }
}

/// The engine is in use while tasks wait. The end of the use hands over to the reactor.
pub(crate) struct InUseWithTasks<'a> {
    cell: &'a EngineCell,
    /// The thread uses the engine again soon, and hands over then.
    pub returns_soon: bool,
}

impl Drop for InUseWithTasks<'_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: this is the only user of the engine. A guard that lends it has no reference any more.
        let engine = unsafe { &mut *self.cell.engine.get() };
        if !self.returns_soon {
            engine.hand_over();
        }
        self.cell.state.set(if engine.tasks.are_waiting() { State::FreeWithTasks } else { State::Free });
    }
}
