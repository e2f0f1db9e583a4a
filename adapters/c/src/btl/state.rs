//! The state of a module behind its handle, and how a call finds it.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::time::Duration;

use parking_lot::ReentrantMutex;
use towline::btl::{Btl, Directory, EndpointId, Module, Process};

use crate::btl::active::{ErrorCall, ReceiveCall};
use crate::btl::handles::{BtlHandle, EndpointHandle};
use crate::btl::lent::Lent;
use crate::error::{Code, Failure, Fault, Outcome};
use crate::table::Table;
use crate::worlds::{this_thread, wrong_thread};

/// The most modules of a process at a time.
const MODULES_MAX: u32 = 1024;
/// How many tags there are.
const TAGS: usize = 255;

static MODULES: Table<Box<State>> = Table::new(MODULES_MAX);

/// A module, its directory, and the functions of the program that it calls.
pub(super) struct State {
    // Dropped first: it refers to this state for its callbacks.
    module: UnsafeCell<Module>,
    /// The module as the core has given it to a callback, while one runs; null otherwise.
    in_callback: Cell<*mut Btl<'static>>,
    pub directory: RefCell<Directory>,
    /// What the program has given for each peer, by the peer's slot, with the bits of its endpoint.
    peers: RefCell<Vec<(u64, *mut c_void)>>,
    /// What the program has given for this process itself.
    own: Cell<*mut c_void>,
    /// The function for each tag.
    pub receivers: [Cell<Option<(ReceiveCall, *mut c_void)>>; TAGS],
    /// The function for lost peers.
    pub on_error: Cell<Option<(ErrorCall, *mut c_void)>>,
    /// The bytes of frames, while a function of the program has them.
    pub lent: Lent,
    pub tally: Tally,
    handle: Cell<u64>,
    process: Process,
    /// For a module of one thread, the thread.
    thread: Option<usize>,
    /// For a module of several threads: one of them uses it at a time. A callback uses the module again.
    lock: Option<ReentrantMutex<()>>,
}

/// Counts of operations that the core does not count by kind.
#[derive(Default)]
pub(super) struct Tally {
    pub bytes_sent: Cell<u64>,
    pub puts: Cell<u64>,
    pub gets: Cell<u64>,
    pub atomics: Cell<u64>,
}

/// Adds to a count.
#[inline]
pub(super) fn add(count: &Cell<u64>, more: u64) {
    count.set(count.get().wrapping_add(more));
}

// SAFETY: a module of one thread is used by that thread only, as `find` ensures in each call; one of several threads is used under its
// lock, and so is all that belongs to it. The program's functions and their states are used by whichever thread makes progress, as the
// comments of the interface say. The rails are the library's own, which belong to no thread.
unsafe impl Send for State {}
// SAFETY: the same.
unsafe impl Sync for State {}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl State {
    /// Keeps a module behind a handle. `several`: several threads use it.
    pub fn insert(module: Module, directory: Directory, several: bool) -> Outcome<BtlHandle> {
        let process = module.process();
        let state = Box::new(Self {
            module: UnsafeCell::new(module),
            in_callback: Cell::new(ptr::null_mut()),
            directory: RefCell::new(directory),
            peers: RefCell::default(),
            own: Cell::new(ptr::null_mut()),
            receivers: [const { Cell::new(None) }; TAGS],
            on_error: Cell::new(None),
            lent: Lent::default(),
            tally: Tally::default(),
            handle: Cell::new(0),
            process,
            thread: (!several).then(this_thread),
            lock: several.then(|| ReentrantMutex::new(())),
        });
        let Some(bits) = MODULES.insert(state) else {
            return Err(Failure {
                code: Code::TOWLINE_ERR_BUSY,
                fault: Fault::TOWLINE_FAULT_RESOURCE,
                text: format!("this process has {MODULES_MAX} modules already: close some of them first"),
            });
        };
        find(BtlHandle { bits })?.handle.set(bits);
        Ok(BtlHandle { bits })
    }

    /// The module's handle.
    pub fn handle(&self) -> BtlHandle {
        BtlHandle { bits: self.handle.get() }
    }

    /// The handle of an endpoint.
    pub fn endpoint(&self, endpoint: EndpointId) -> EndpointHandle {
        EndpointHandle { bits: endpoint.to_bits(), btl: self.handle() }
    }

    /// For callbacks of the module, which drops them before this state is dropped.
    ///
    /// # Safety
    /// The result is used by the module of this state only.
    pub unsafe fn lasting(&self) -> &'static Self {
        // SAFETY: the state is in a box, which is not moved or dropped before the module in it.
        unsafe { &*ptr::from_ref(self) }
    }

    /// What the program has given for a peer. Null if the peer was removed.
    #[inline]
    pub fn peer(&self, endpoint: EndpointId) -> *mut c_void {
        match self.peers.borrow().get(endpoint.slot() as usize) {
            Some((bits, peer)) if *bits == endpoint.to_bits() => *peer,
            _ => ptr::null_mut(),
        }
    }

    /// Keeps what the program gives for a peer; null to forget it.
    pub fn set_peer(&self, endpoint: EndpointId, peer: *mut c_void) {
        let (mut peers, slot) = (self.peers.borrow_mut(), endpoint.slot() as usize);
        if peers.len() <= slot {
            peers.resize(slot + 1, (0, ptr::null_mut()));
        }
        peers[slot] = (endpoint.to_bits(), peer);
    }

    /// What the program has given for this process itself.
    pub fn own(&self) -> *mut c_void {
        self.own.get()
    }

    /// Keeps what the program gives for this process itself.
    pub fn set_own(&self, peer: *mut c_void) {
        self.own.set(peer);
    }

    /// Calls a function of the program in a callback of the core, which has given the module to it.
    #[inline]
    pub fn call_back(&self, btl: &mut Btl<'_>, call: impl FnOnce()) {
        // The lifetime is that of the callbacks, which `lasting` makes longer than that of the module.
        let former = self.in_callback.replace(ptr::from_mut(btl).cast());
        call();
        self.in_callback.set(former);
    }

    pub fn is_in_callback(&self) -> bool {
        !self.in_callback.get().is_null()
    }

    /// Uses the module.
    #[inline]
    fn with<T>(&self, use_it: impl for<'m> FnOnce(&mut Btl<'m>) -> T) -> T {
        let given = self.in_callback.get();
        if given.is_null() {
            // SAFETY: this thread alone uses the state now (see `Sync`), and it does not use the module yet: only progress calls
            // functions of the program, and sets `in_callback` for that time.
            unsafe { &mut *self.module.get() }.with(use_it)
        } else {
            // SAFETY: the core's callback has exclusive access to the module, and has lent it to the program's function, which calls
            // this; the borrow ends before that function returns.
            use_it(unsafe { &mut *given })
        }
    }

    /// Whether the calling thread, of the calling process, may use the module.
    #[inline]
    fn is_callers(&self) -> bool {
        self.process.is_this() && self.thread.is_none_or(|thread| thread == this_thread())
    }

    /// Makes progress. Within a callback it does nothing.
    #[inline(always)] // on the path of each message
    fn progress(&self) -> u32 {
        if self.is_in_callback() {
            return 0;
        }
        // SAFETY: as for `with`. Callbacks use the module that they are given, which is derived from this reference.
        unsafe { &mut *self.module.get() }.progress()
    }
}

/// The module of a handle.
#[inline(always)] // on the path of each message, where only the refusals are long
pub(super) fn find(btl: BtlHandle) -> Outcome<&'static State> {
    match MODULES.get(btl.bits) {
        Some(state) if state.is_callers() => Ok(state),
        Some(state) if state.process.is_this() => Err(wrong_thread()),
        Some(state) => Err(forked(state.process.id)),
        None => Err(Failure::handle("module")),
    }
}

#[cold]
fn forked(parent: u32) -> Failure {
    Failure::new(
        Code::TOWLINE_ERR_FORKED,
        format!("the module belongs to process {parent}, from which this one was forked: open another one"),
    )
}

/// Uses the module of a handle, and its state.
#[inline]
pub(super) fn with<T>(
    btl: BtlHandle,
    use_it: impl for<'m> FnOnce(&'static State, &mut Btl<'m>) -> Outcome<T>,
) -> Outcome<T> {
    let state = find(btl)?;
    let _guard = state.lock.as_ref().map(ReentrantMutex::lock);
    state.with(|btl| use_it(state, btl))
}

/// Makes progress on the module of a handle. If another thread uses it, that thread makes progress.
#[inline(always)] // on the path of each message
pub(super) fn progress(btl: BtlHandle) -> Outcome<u32> {
    let state = find(btl)?;
    match &state.lock {
        None => Ok(state.progress()),
        Some(lock) => Ok(lock.try_lock().map_or(0, |_guard| state.progress())),
    }
}

/// Makes progress until all that was sent has left, but for at most `time`, and ends the module. Returns whether it has.
pub(super) fn close(btl: BtlHandle, time: Duration) -> Outcome<bool> {
    let state = find(btl)?;
    let guard = state.lock.as_ref().map(ReentrantMutex::lock);
    if state.is_in_callback() {
        return Err(Failure::new(
            Code::TOWLINE_ERR_BUSY,
            "a module cannot be closed in a function that it has called: close it later",
        ));
    }
    // SAFETY: as for `progress`.
    let has_left = unsafe { &mut *state.module.get() }.drain(time);
    drop(guard);
    drop(MODULES.remove(btl.bits));
    Ok(has_left)
}
