//! Events: which ranks have failed, as the launcher says, and which have left, as they say themselves. The library
//! reports them in a thread of its own.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_bootstrap::RankEnd;

use crate::abi::{self, HandledFn, Info, NAMESPACE, Proc, Status};
use crate::library::Library;
use crate::values::affected;

/// What the handler knows. There is one for the process, as the library has one connection to the launcher.
static STATE: Mutex<State> =
    Mutex::new(State { nspace: None, handler: None, known: BTreeSet::new(), new: VecDeque::new() });

/// A variable that mpirun of Open MPI 4 sets. With PMIx 4, it blocks for ever on an event of a rank that goes to other hosts.
const ORTE: &str = "OMPI_MCA_orte_launch";

struct State {
    /// The own namespace, while events count.
    nspace: Option<[c_char; NAMESPACE]>,
    /// The handler's number, once it is registered.
    handler: Option<usize>,
    /// The ranks that have ended.
    known: BTreeSet<u32>,
    /// Those that no caller has got yet.
    new: VecDeque<RankEnd>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to listen to the ends of ranks of this namespace.
pub(crate) fn listen(library: &Library, nspace: [c_char; NAMESPACE]) {
    state().nspace = Some(nspace);
    // SAFETY: the library reads the codes. They, the handler and the callback have the types of the standard, and live for ever.
    unsafe {
        (library.register)(
            abi::EVENTS.as_ptr().cast_mut(),
            abi::EVENTS.len(),
            ptr::null_mut(),
            0,
            Some(handle),
            Some(registered),
            ptr::null_mut(),
        );
    }
}

/// Ends what [`listen`] has begun. No event comes afterwards.
pub(crate) fn stop(library: &Library) {
    let handler = {
        let mut state = state();
        state.nspace = None;
        state.handler.take()
    };
    if let Some(handler) = handler {
        // SAFETY: the number is that of the handler. The lock is free, so that a handler that runs can end.
        unsafe { (library.deregister)(handler, None, ptr::null_mut()) };
    }
}

/// Makes a call if [`stop`] has not been called yet. A `stop` meanwhile waits until the call has returned. The call must not wait for
/// the library.
pub(crate) fn unless_stopped(call: impl FnOnce()) {
    let state = state();
    if state.nspace.is_some() {
        call();
    }
}

/// Tells the other ranks that this one has left.
pub(crate) fn tell_left(library: &Library, own: &Proc) {
    // Without this event, the others may wait for this rank until they have a connection to it.
    let range = if std::env::var_os(ORTE).is_some() { abi::RANGE_LOCAL } else { abi::RANGE_NAMESPACE };
    // SAFETY: the library copies the process before it returns, and no callback is called.
    let _ = unsafe { (library.notify)(abi::LEFT, own, range, ptr::null(), 0, None, ptr::null_mut()) };
}

/// The end of a rank that was not returned before.
pub(crate) fn next_end() -> Option<RankEnd> {
    state().new.pop_front()
}

/// Whether a rank has ended.
pub(crate) fn has_ended() -> bool {
    !state().known.is_empty()
}

unsafe extern "C" fn registered(status: Status, handler: usize, _: *mut c_void) {
    if status == abi::SUCCESS {
        state().handler = Some(handler);
    }
}

unsafe extern "C" fn handle(
    _handler: usize,
    status: Status,
    source: *const Proc,
    infos: *mut Info,
    len: usize,
    _results: *mut Info,
    _results_len: usize,
    done: Option<HandledFn>,
    data: *mut c_void,
) {
    {
        let mut guard = state();
        let state = &mut *guard;
        if let Some(nspace) = &state.nspace {
            // SAFETY: the library passes valid lists.
            let ranks = unsafe { affected(infos, len, source, nspace) };
            let new = ranks.into_iter().filter(|rank| state.known.insert(*rank));
            state.new.extend(new.map(|rank| RankEnd { rank, died: status != abi::LEFT }));
        }
    }
    if let Some(done) = done {
        // SAFETY: the standard has the handler call this with its own data. Other handlers may take the event, too.
        unsafe { done(abi::NO_ACTION_TAKEN, ptr::null_mut(), 0, None, ptr::null_mut(), data) };
    }
}
