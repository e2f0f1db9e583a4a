//! The contexts of this process, and how a call finds the one that a handle belongs to.

use std::sync::LazyLock;

use towline::raw::RawMessage;
use towline::{Communicator, Multiple, OwnedCommunicator, Single, World};

use crate::error::{Code, Failure, Fault, Outcome};
use crate::handles::CommHandle;
use crate::kept::Kept;
use crate::slots::{Slots, slot_of, split_owner, with_owner};

/// The most contexts of a process at a time. The slot of a context is a byte of the handles of its objects.
const CONTEXTS_MAX: u32 = 256;

/// The most messages of a context that were taken by matched probes and not received.
pub(crate) const MESSAGES_MAX: u32 = 4096;

pub(crate) static CONTEXTS: LazyLock<Slots<Context>> = LazyLock::new(|| Slots::new(CONTEXTS_MAX));

/// A context: a world, and the objects that were made in it.
pub(crate) struct Context {
    pub world: AnyWorld,
    /// For a context of one thread, the thread.
    thread: Option<usize>,
    pub comms: Slots<AnyComm>,
    pub messages: Slots<TakenMessage>,
    pub kept: Kept,
}

// SAFETY: a context of one thread is used by that thread only, as `check_thread` ensures in each call; one of several threads is
// `Send` and `Sync` by itself.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

/// A message behind a handle, and its communicator.
pub(crate) struct TakenMessage {
    pub message: RawMessage,
    pub comm: CommHandle,
}

/// A world of either thread level.
pub(crate) enum AnyWorld {
    Single(World<Single>),
    Multiple(World<Multiple>),
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

/// Uses a communicator of either thread level, by the same code for both.
macro_rules! with {
    ($comm:expr, $name:ident => $body:expr) => {
        match $comm {
            $crate::worlds::CommRef::Single($name) => $body,
            $crate::worlds::CommRef::Multiple($name) => $body,
        }
    };
}
pub(crate) use with;

/// Uses a world of either thread level, by the same code for both.
macro_rules! with_world {
    ($world:expr, $name:ident => $body:expr) => {
        match $world {
            $crate::worlds::AnyWorld::Single($name) => $body,
            $crate::worlds::AnyWorld::Multiple($name) => $body,
        }
    };
}
pub(crate) use with_world;

impl Context {
    /// The world, and what operations in progress refer to, which must be dropped after it. The handles end.
    pub fn into_parts(self) -> (AnyWorld, Kept) {
        (self.world, self.kept)
    }

    pub fn new(world: AnyWorld, communicators: u32) -> Self {
        let thread = matches!(world, AnyWorld::Single(_)).then(this_thread);
        let (comms, messages) = (Slots::new(communicators.saturating_add(1)), Slots::new(MESSAGES_MAX));
        Self { world, thread, comms, messages, kept: Kept::default() }
    }

    #[inline]
    fn check_thread(&self) -> Outcome<()> {
        match self.thread {
            Some(thread) if thread != this_thread() => Err(wrong_thread()),
            _ => Ok(()),
        }
    }

    /// The communicator of a handle of this context.
    #[inline]
    pub fn comm(&'static self, handle: u64) -> Outcome<CommRef> {
        let found = self.comms.get(split_owner(handle).1).ok_or_else(|| Failure::handle("communicator"))?;
        Ok(match (found, &self.world) {
            (AnyComm::World, AnyWorld::Single(world)) => CommRef::Single(world),
            (AnyComm::World, AnyWorld::Multiple(world)) => CommRef::Multiple(world),
            (AnyComm::Single(comm), _) => CommRef::Single(comm),
            (AnyComm::Multiple(comm), _) => CommRef::Multiple(comm),
        })
    }
}

#[cold]
fn wrong_thread() -> Failure {
    Failure::new(
        Code::TOWLINE_ERR_THREAD,
        "this context is of one thread, and another thread has called: use it in the thread that made it, or make it with \
         TOWLINE_THREAD_SERIALIZED or TOWLINE_THREAD_MULTIPLE",
    )
}

/// A number that no other thread has at the same time.
#[inline]
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    // A thread that is about to end has no place any more, and is no thread of a context then.
    PLACE.try_with(|place| (&raw const *place).addr()).unwrap_or(0)
}

/// The context of a handle.
pub(crate) fn find_context(handle: u64) -> Outcome<&'static Context> {
    let context = CONTEXTS.get(handle).ok_or_else(|| Failure::handle("context"))?;
    context.check_thread()?;
    Ok(context)
}

/// The context that the object of a handle belongs to, if it belongs to one.
#[inline]
pub(crate) fn find_owner(handle: u64, what: &str) -> Outcome<&'static Context> {
    let context = CONTEXTS.at(split_owner(handle).0 as usize).ok_or_else(|| Failure::handle(what))?;
    context.check_thread()?;
    Ok(context)
}

/// The communicator of a handle, and its context.
#[inline]
pub(crate) fn find_comm(handle: u64) -> Outcome<(&'static Context, CommRef)> {
    let context = find_owner(handle, "communicator")?;
    let comm = context.comm(handle)?;
    Ok((context, comm))
}

/// The number of a context among all, for the handles of its objects.
pub(crate) const fn owner_of(context: u64) -> u64 {
    slot_of(context) as u64
}

/// Keeps a communicator behind a handle.
pub(crate) fn insert_comm(context: &Context, owner: u64, comm: AnyComm) -> Outcome<CommHandle> {
    match context.comms.insert(comm) {
        Some(handle) => Ok(CommHandle { bits: with_owner(handle, owner) }),
        None => Err(Failure {
            code: Code::TOWLINE_ERR_BUSY,
            fault: Fault::TOWLINE_FAULT_RESOURCE,
            text: "too many handles of communicators are in use: free some, or raise TOWLINE_COMMUNICATORS".into(),
        }),
    }
}
