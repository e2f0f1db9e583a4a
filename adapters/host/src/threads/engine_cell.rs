//! The cell of an engine that one thread uses: a `RefCell` that also knows whether tasks wait.

use std::cell::{Cell, UnsafeCell};

use crate::engine::Engine;

/// An engine that is used by one thread, through one guard at a time.
pub(crate) struct EngineCell {
    engine: UnsafeCell<Engine>,
    state: Cell<State>,
}

/// Whether the engine is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    /// Free, and tasks of other executors wait, so whoever uses the engine must hand over to the reactor afterwards.
    FreeWithTasks,
    InUse,
}

impl EngineCell {
    pub const fn new(engine: Engine) -> Self {
        Self { engine: UnsafeCell::new(engine), state: Cell::new(State::Free) }
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

    /// Takes the engine while tasks wait.
    ///
    /// # Panics
    /// If it is in use.
    #[cold]
    #[inline(never)]
    pub fn take_from_tasks(&self) -> InUseWithTasks<'_> {
        let former = self.state.replace(State::InUse);
        assert!(former == State::FreeWithTasks, "the engine is used by a function that calls code of users");
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
        let former = self.state.replace(State::InUse);
        assert!(former != State::InUse, "the engine is used by a function that calls code of users");
        // SAFETY: the engine was free, and is marked as in use.
        let value = look(unsafe { &mut *self.engine.get() });
        self.state.set(former);
        value
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
