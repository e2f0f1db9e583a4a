//! The contexts of this process, and how a call finds the one that a handle belongs to.

use std::ffi::CString;
use std::sync::OnceLock;

use parking_lot::Mutex;
use towline::Error;
use towline::btl::Process;
use towline::raw::RawMessage;

use crate::error::{Code, Failure, Fault, Outcome};
use crate::handles::{CommHandle, ContextHandle, MessageHandle, WindowHandle};
use crate::kept::Kept;
use crate::levels::{AnyComm, AnyWindow, AnyWorld, CommRef};
use crate::slots::Reserved;
use crate::table::Table;
use crate::tally::Tally;

/// The most contexts of a process at a time.
const CONTEXTS_MAX: u32 = 256;
/// The most communicators of a process at a time.
const COMMS_MAX: u32 = 1 << 16;
/// The most windows of a process at a time.
const WINDOWS_MAX: u32 = 1 << 14;
/// The most messages of a process that were taken by matched probes and not received.
pub(crate) const MESSAGES_MAX: u32 = 1 << 14;

pub(crate) static CONTEXTS: Table<Context> = Table::new(CONTEXTS_MAX);
/// The communicators of all contexts: a stale handle is refused without a look at any context.
static COMMS: Table<Comm> = Table::new(COMMS_MAX);
static WINDOWS: Table<Win> = Table::new(WINDOWS_MAX);
static MESSAGES: Table<TakenMessage> = Table::new(MESSAGES_MAX);

/// A context: a world, and what was made in it.
pub(crate) struct Context {
    pub world: AnyWorld,
    process: Process,
    /// For a context of one thread, the thread.
    thread: Option<usize>,
    /// The communicators and messages that end with the context.
    objects: Mutex<Objects>,
    pub kept: Kept,
    pub tally: Tally,
    /// The name of each counter, and what is counted.
    pub counter_texts: OnceLock<Vec<[CString; 2]>>,
}

#[derive(Default)]
struct Objects {
    /// The first is that of all ranks.
    comms: Vec<u64>,
    windows: Vec<u64>,
    messages: Vec<u64>,
}

/// What must be dropped after the world: communicators and windows, since peers get the reason for their end from the world, and
/// what operations in progress refer to.
pub(crate) struct Rest {
    _windows: Vec<Win>,
    _comms: Vec<Comm>,
    _kept: Kept,
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
    context: u64,
}

impl TakenMessage {
    /// The handle of its context.
    pub const fn context(&self) -> u64 {
        self.context
    }
}

/// A communicator behind a handle, and the handle of its context.
struct Comm {
    comm: AnyComm,
    context: u64,
}

// SAFETY: as for the context, which is found and checked before the communicator is used.
unsafe impl Send for Comm {}
// SAFETY: the same.
unsafe impl Sync for Comm {}

/// A window behind a handle, and the handle of its context.
struct Win {
    window: AnyWindow,
    context: u64,
}

// SAFETY: as for a communicator.
unsafe impl Send for Win {}
// SAFETY: the same.
unsafe impl Sync for Win {}

impl Context {
    pub fn new(world: AnyWorld) -> Self {
        let thread = matches!(world, AnyWorld::Single(_) | AnyWorld::SingleWorker(_)).then(this_thread);
        let tally = Tally::new(thread.is_none());
        let (objects, kept, counter_texts) = (Mutex::default(), Kept::default(), OnceLock::new());
        Self { world, process: Process::this(), thread, objects, kept, tally, counter_texts }
    }

    /// Whether the calling thread, of the calling process, may use the context.
    #[inline]
    fn is_callers(&self) -> bool {
        self.process.is_this() && self.thread.is_none_or(|thread| thread == this_thread())
    }

    /// Why the calling thread may not use the context.
    #[cold]
    #[inline(never)]
    fn refusal(&self) -> Failure {
        if self.process.is_this() { wrong_thread() } else { Error::Forked { process: self.process.id }.into() }
    }

    /// The communicator of all ranks.
    pub fn all_ranks(&'static self) -> CommRef {
        match &self.world {
            AnyWorld::Single(world) => CommRef::Single(world),
            AnyWorld::Multiple(world) => CommRef::Multiple(world),
            AnyWorld::SingleWorker(worker) => CommRef::Single(worker),
            AnyWorld::MultipleWorker(worker) => CommRef::Multiple(worker),
        }
    }

    /// The handle of the communicator of all ranks.
    pub fn world_handle(&self) -> CommHandle {
        CommHandle { bits: self.objects.lock().comms.first().copied().unwrap_or(0) }
    }

    /// Ends all handles of the context.
    pub fn into_parts(self) -> (AnyWorld, Rest) {
        let Objects { comms, windows, messages } = self.objects.into_inner();
        for message in messages {
            let _ended = MESSAGES.remove(message);
        }
        let comms = comms.into_iter().filter_map(|comm| COMMS.remove(comm)).collect();
        let windows = windows.into_iter().filter_map(|window| WINDOWS.remove(window)).collect();
        (self.world, Rest { _windows: windows, _comms: comms, _kept: self.kept })
    }
}

#[cold]
pub(crate) fn wrong_thread() -> Failure {
    Failure::new(
        Code::TOWLINE_ERR_THREAD,
        "this context is of one thread, and another thread has called: use it in the thread that made it, or make it with \
         TOWLINE_THREAD_SERIALIZED or TOWLINE_THREAD_MULTIPLE",
    )
}

/// A number that no other thread has at the same time.
#[inline]
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn this_thread() -> usize {
    let number;
    // Each call of the interface asks for it, and the address of a thread-local variable of a shared library costs a call.
    // SAFETY: the first word of a thread's control block is the block's own address (ELF Handling for Thread-Local Storage, 3.4.6).
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) number, options(pure, readonly, nostack, preserves_flags)) };
    number
}

/// A number that no other thread has at the same time.
#[inline]
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_pointer_width = "64")))]
pub(crate) fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    // A thread that is about to end has no place any more, and is no thread of a context then.
    PLACE.try_with(|place| (&raw const *place).addr()).unwrap_or(0)
}

/// The context of a handle.
#[inline(always)] // on the path of each message, where only the refusals are long
pub(crate) fn find_context(handle: u64) -> Outcome<&'static Context> {
    match CONTEXTS.get(handle) {
        Some(context) if context.is_callers() => Ok(context),
        Some(context) => Err(context.refusal()),
        None => Err(Failure::handle("context")),
    }
}

/// The communicator of a handle, with its context and the handle of that.
#[inline(always)] // as above
pub(crate) fn find_comm(handle: CommHandle) -> Outcome<(&'static Context, u64, CommRef)> {
    let Some(found) = COMMS.get(handle.bits) else { return Err(Failure::handle("communicator")) };
    let context = find_context(found.context)?;
    let comm = match &found.comm {
        AnyComm::World => context.all_ranks(),
        AnyComm::Single(comm) => CommRef::Single(comm),
        AnyComm::Multiple(comm) => CommRef::Multiple(comm),
    };
    Ok((context, found.context, comm))
}

/// Keeps a context behind a handle, and its communicator of all ranks.
pub(crate) fn insert_context(world: AnyWorld) -> Outcome<ContextHandle> {
    let place = reserve_comm()?;
    let Some(bits) = CONTEXTS.insert(Context::new(world)) else {
        return Err(Failure {
            code: Code::TOWLINE_ERR_BUSY,
            fault: Fault::TOWLINE_FAULT_RESOURCE,
            text: format!("this process has {CONTEXTS_MAX} contexts already: end some of them first"),
        });
    };
    place.keep(bits, AnyComm::World)?;
    Ok(ContextHandle { bits })
}

/// A place for the handle of a communicator. It is reserved before the ranks make the communicator, so that none of them makes one
/// that another cannot keep.
pub(crate) struct CommPlace(Reserved<'static, Comm>);

/// Reserves a place.
///
/// # Errors
/// There is none.
pub(crate) fn reserve_comm() -> Outcome<CommPlace> {
    let full = || Failure {
        code: Code::TOWLINE_ERR_BUSY,
        fault: Fault::TOWLINE_FAULT_RESOURCE,
        text: format!("this process has {COMMS_MAX} communicators: free some"),
    };
    COMMS.reserve().map(CommPlace).ok_or_else(full)
}

impl CommPlace {
    /// Keeps a communicator of a context behind a handle.
    pub fn keep(self, context: u64, comm: AnyComm) -> Outcome<CommHandle> {
        let owner = find_context(context)?;
        let bits = self.0.fill(Comm { comm, context });
        owner.objects.lock().comms.push(bits);
        Ok(CommHandle { bits })
    }
}

/// Frees a communicator that is not the one of all ranks.
pub(crate) fn remove_comm(handle: CommHandle) -> Outcome<()> {
    let (context, ..) = find_comm(handle)?;
    if context.world_handle() == handle {
        return Err(Failure::argument("the communicator of all ranks ends with its context: it cannot be freed"));
    }
    context.objects.lock().comms.retain(|comm| *comm != handle.bits);
    drop(COMMS.remove(handle.bits));
    Ok(())
}

/// A place for the handle of a window, as for a communicator.
pub(crate) struct WindowPlace(Reserved<'static, Win>);

/// Reserves a place.
///
/// # Errors
/// There is none.
pub(crate) fn reserve_window() -> Outcome<WindowPlace> {
    let full = || Failure {
        code: Code::TOWLINE_ERR_BUSY,
        fault: Fault::TOWLINE_FAULT_RESOURCE,
        text: format!("this process has {WINDOWS_MAX} windows: free some"),
    };
    WINDOWS.reserve().map(WindowPlace).ok_or_else(full)
}

impl WindowPlace {
    /// Keeps a window of a context behind a handle.
    pub fn keep(self, context: u64, window: AnyWindow) -> Outcome<WindowHandle> {
        let owner = find_context(context)?;
        let bits = self.0.fill(Win { window, context });
        owner.objects.lock().windows.push(bits);
        Ok(WindowHandle { bits })
    }
}

/// The window of a handle, with its context.
#[inline]
pub(crate) fn find_window(handle: WindowHandle) -> Outcome<(&'static Context, &'static AnyWindow)> {
    let found = WINDOWS.get(handle.bits).ok_or_else(|| Failure::handle("window"))?;
    Ok((find_context(found.context)?, &found.window))
}

/// Takes a window out of the table.
pub(crate) fn take_window(handle: WindowHandle) -> Outcome<AnyWindow> {
    let (context, _) = find_window(handle)?;
    context.objects.lock().windows.retain(|window| *window != handle.bits);
    WINDOWS.remove(handle.bits).map(|taken| taken.window).ok_or_else(|| Failure::handle("window"))
}

/// A place for the handle of a message. It is reserved before a probe takes the message.
pub(crate) struct MessagePlace(Reserved<'static, TakenMessage>);

/// Reserves a place.
///
/// # Errors
/// There is none.
pub(crate) fn reserve_message() -> Outcome<MessagePlace> {
    MESSAGES.reserve().map(MessagePlace).ok_or_else(too_many_messages)
}

#[cold]
fn too_many_messages() -> Failure {
    Failure {
        code: Code::TOWLINE_ERR_BUSY,
        fault: Fault::TOWLINE_FAULT_RESOURCE,
        text: format!("{MESSAGES_MAX} messages were taken and not received: receive some"),
    }
}

impl MessagePlace {
    /// Keeps a message that a probe took behind a handle.
    pub fn keep(self, comm: CommHandle, message: RawMessage) -> Outcome<MessageHandle> {
        let (owner, context, _) = find_comm(comm)?;
        let bits = self.0.fill(TakenMessage { message, comm, context });
        owner.objects.lock().messages.push(bits);
        Ok(MessageHandle { bits })
    }
}

/// Takes a message whose communicator still exists.
pub(crate) fn take_message(handle: MessageHandle) -> Outcome<(&'static Context, CommRef, TakenMessage)> {
    let no_message = |_| Failure::handle("message");
    let found = MESSAGES.get(handle.bits).ok_or_else(|| Failure::handle("message"))?;
    find_context(found.context)?;
    let (context, _, comm) = find_comm(found.comm).map_err(no_message)?;
    context.objects.lock().messages.retain(|message| *message != handle.bits);
    let taken = MESSAGES.remove(handle.bits).ok_or_else(|| Failure::handle("message"))?;
    Ok((context, comm, taken))
}
