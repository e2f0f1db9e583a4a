//! Worlds, communicators and windows of either thread level.

use std::ops::Deref;

use towline::{Communicator, Multiple, OwnedCommunicator, RawWindow, Single, Threads, Window, Worker, World};

/// A world or worker of either thread level.
// There are few of them.
#[allow(clippy::large_enum_variant)]
pub(crate) enum AnyWorld {
    Single(World<Single>),
    Multiple(World<Multiple>),
    SingleWorker(Worker<Single>),
    MultipleWorker(Worker<Multiple>),
}

/// The communicator behind a handle.
pub(crate) enum AnyComm {
    /// That of all ranks.
    World,
    Single(OwnedCommunicator<Single>),
    Multiple(OwnedCommunicator<Multiple>),
}

/// A communicator in use by a call.
pub(crate) enum CommRef {
    Single(&'static Communicator<Single>),
    Multiple(&'static Communicator<Multiple>),
}

/// A window of either thread level.
pub(crate) enum AnyWindow {
    Single(Part<Single>),
    Multiple(Part<Multiple>),
}

/// A window, by whose memory this rank's part has.
pub(crate) enum Part<L: Threads> {
    /// The library's.
    Own(Window<L>),
    /// The program's.
    Callers(RawWindow<L>),
}

impl<L: Threads> Deref for Part<L> {
    type Target = Window<L>;

    fn deref(&self) -> &Window<L> {
        match self {
            Self::Own(window) => window,
            Self::Callers(window) => window,
        }
    }
}

impl<L: Threads> Part<L> {
    /// Ends the window: all ranks do.
    pub fn close(self) -> Result<(), towline::Error> {
        match self {
            Self::Own(window) => window.close(),
            Self::Callers(window) => window.close(),
        }
    }
}

/// Uses a communicator of either thread level, by the same code for both.
macro_rules! with {
    ($comm:expr, $name:ident => $body:expr) => {
        match $comm {
            $crate::levels::CommRef::Single($name) => $body,
            $crate::levels::CommRef::Multiple($name) => $body,
        }
    };
}
pub(crate) use with;

/// Uses a world of either thread level, by the same code for both.
macro_rules! with_world {
    ($world:expr, $name:ident => $body:expr) => {
        match $world {
            $crate::levels::AnyWorld::Single($name) => $body,
            $crate::levels::AnyWorld::Multiple($name) => $body,
            $crate::levels::AnyWorld::SingleWorker($name) => $body,
            $crate::levels::AnyWorld::MultipleWorker($name) => $body,
        }
    };
}
pub(crate) use with_world;

/// Uses a worker of either thread level, by the same code for both. Returns the error if it is a world.
macro_rules! with_worker {
    ($world:expr, $name:ident => $body:expr, $otherwise:expr) => {
        match $world {
            $crate::levels::AnyWorld::SingleWorker($name) => $body,
            $crate::levels::AnyWorld::MultipleWorker($name) => $body,
            $crate::levels::AnyWorld::Single(_) | $crate::levels::AnyWorld::Multiple(_) => return Err($otherwise),
        }
    };
}
pub(crate) use with_worker;

/// Uses a window of either thread level, by the same code for both.
macro_rules! with_window {
    ($window:expr, $name:ident => $body:expr) => {
        match $window {
            $crate::levels::AnyWindow::Single($name) => $body,
            $crate::levels::AnyWindow::Multiple($name) => $body,
        }
    };
}
pub(crate) use with_window;
