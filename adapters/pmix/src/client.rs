//! A rank under a PMIx launcher.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use towline_bootstrap::{CleanUpFn, Exchange, ExchangeFailure, RankEnd};

use crate::abi::{self, Info, NAMESPACE, Proc, Status};
use crate::clean_up;
use crate::error::Error;
use crate::events;
use crate::library::Library;
use crate::values::{Received, flag, number, of_bytes, process};

/// The variables that a PMIx launcher sets for each process.
const VARIABLES: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];

const SIZE: &CStr = c"pmix.job.size";
const LOCAL: &CStr = c"pmix.lpeers";
const COLLECT: &CStr = c"pmix.collect";
const TIMEOUT: &CStr = c"pmix.timeout";
/// Only what the launcher has said at the start is looked at, and no other process is asked.
const OPTIONAL: &CStr = c"pmix.optional";

/// How long to wait for a value that all ranks have published before, in seconds.
const ANSWER_LIMIT_SECS: i32 = 60;
/// How often a rank that waits for others looks for ended ones.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a rank still waits for others after one has ended.
const GRACE: Duration = Duration::from_secs(1);
/// The byte before those that a rank gives.
const MARK: u8 = 1;

/// Whether a PMIx launcher has started this process.
pub fn is_started() -> bool {
    missing_variable().is_none()
}

fn missing_variable() -> Option<&'static str> {
    VARIABLES.into_iter().find(|name| std::env::var_os(name).is_none())
}

/// The version of the PMIx library at this path; if the path is empty, of the system's. Loads it.
///
/// # Errors
/// [`Error::Library`]
pub fn library_version(path: &str) -> Result<String, Error> {
    Library::load(path).map(|library| library.version())
}

/// A rank's connection to its PMIx launcher. A process has one at a time.
pub struct Pmix {
    library: Library,
    nspace: [c_char; NAMESPACE],
    rank: u32,
    size: u32,
    local: Option<Vec<u32>>,
    /// How often this rank has gathered.
    gathered: u32,
}

impl Pmix {
    /// Loads the library, by its path or, if that is empty, by its usual names, and connects to the launcher.
    ///
    /// # Errors
    /// [`Error::NotStarted`] if no such launcher has started this process, [`Error::Library`] if the library cannot be loaded, and
    /// [`Error::Call`] if the launcher does not answer.
    pub fn start(path: &str) -> Result<Self, Error> {
        if let Some(missing) = missing_variable() {
            return Err(Error::NotStarted(missing));
        }
        let library = Library::load(path)?;
        let mut own = process([0; NAMESPACE], 0);
        // SAFETY: the library writes the process, and takes no directives.
        let status = unsafe { (library.init)(&raw mut own, ptr::null_mut(), 0) };
        check(&library, status, "connect to the launcher")?;
        let Proc { nspace, rank } = own;
        let mut pmix = Self { library, nspace, rank, size: 0, local: None, gathered: 0 };
        let size = pmix.get(abi::RANK_WILDCARD, SIZE, &[flag(OPTIONAL)])?.number();
        pmix.size = size.ok_or_else(|| bad_value("tell the number of ranks"))?;
        // Launchers need not say which ranks are on this host.
        let local = pmix.get(abi::RANK_WILDCARD, LOCAL, &[flag(OPTIONAL)]);
        pmix.local = local.ok().and_then(|local| parse_ranks(&local.text()?));
        events::listen(&pmix.library, nspace);
        Ok(pmix)
    }

    /// This process's rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The ranks on this host, if the launcher has said which they are.
    pub fn local_ranks(&self) -> Option<&[u32]> {
        self.local.as_deref()
    }

    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<(), Error> {
        let mut value = of_bytes(bytes);
        // SAFETY: the library copies the value.
        let status = unsafe { (self.library.put)(abi::GLOBAL, key.as_ptr(), &raw mut value) };
        check(&self.library, status, "publish")?;
        // SAFETY: the function takes nothing.
        check(&self.library, unsafe { (self.library.commit)() }, "publish")
    }

    fn get(&self, rank: u32, key: &CStr, directives: &[Info]) -> Result<Received, Error> {
        let (of, mut value) = (process(self.nspace, rank), ptr::null_mut());
        // SAFETY: all addresses are those of objects that outlive the call.
        let status = unsafe {
            (self.library.get)(&raw const of, key.as_ptr(), directives.as_ptr(), directives.len(), &raw mut value)
        };
        check(&self.library, status, "get a value of another rank")?;
        // SAFETY: the library has allocated the value for its caller.
        unsafe { Received::new(value) }.ok_or_else(|| bad_value("get a value of another rank"))
    }

    /// Waits until all ranks have called this. `collect`: what they have published is brought here.
    fn fence_until(&self, collect: bool, deadline: Instant) -> Result<(), ExchangeFailure> {
        // The library may read the directives until the end.
        let waiting = Arc::new(Waiting { directives: [flag(COLLECT)], status: Mutex::new(None), done: Condvar::new() });
        let directives = if collect { &waiting.directives[..] } else { &[] };
        let data = Arc::into_raw(Arc::clone(&waiting)).cast_mut().cast::<c_void>();
        // SAFETY: no processes means all; the callback has the standard's type, and gets a reference of its own.
        let status = unsafe {
            (self.library.fence_nb)(ptr::null(), 0, directives.as_ptr(), directives.len(), Some(fence_done), data)
        };
        let status = if status == abi::SUCCESS {
            waiting.wait_until(deadline).ok_or(ExchangeFailure::Timeout)?
        } else {
            // SAFETY: the callback is not called, so the reference is this function's again.
            drop(unsafe { Arc::from_raw(data.cast_const().cast::<Waiting>()) });
            status
        };
        match status {
            abi::OPERATION_SUCCEEDED => Ok(()),
            abi::ERR_TIMEOUT => Err(ExchangeFailure::Timeout),
            status => check(&self.library, status, "wait for the other ranks").map_err(failed),
        }
    }
}

impl Exchange for Pmix {
    fn gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure> {
        let key = CString::new(format!("towline.{}", self.gathered)).unwrap_or_default(); // it has no 0
        self.gathered += 1;
        // Launchers need not carry values of no bytes.
        self.put(&key, &[&[MARK], own].concat()).map_err(failed)?;
        self.fence_until(true, deadline)?;
        let directives = [number(TIMEOUT, ANSWER_LIMIT_SECS)];
        let get = |rank| {
            let bytes = self.get(rank, &key, &directives).map_err(failed)?.bytes();
            let own = bytes.and_then(|bytes| bytes.strip_prefix(&[MARK]).map(<[u8]>::to_vec));
            own.ok_or_else(|| failed(bad_value("get a value of another rank")))
        };
        (0..self.size).map(get).collect()
    }

    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeFailure> {
        self.fence_until(false, deadline)
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure> {
        // Not all launchers show the text that they are given.
        eprintln!("towline: rank {} ends the job: {message}", self.rank);
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default(); // it has no 0
        // SAFETY: the text outlives the call; no processes means all.
        let status = unsafe { (self.library.abort)(code, message.as_ptr(), ptr::null_mut(), 0) };
        check(&self.library, status, "end the other ranks").map_err(failed)
    }

    fn finish(&mut self) -> Result<(), ExchangeFailure> {
        events::stop(&self.library);
        // SAFETY: the function takes no directives.
        let status = unsafe { (self.library.finalize)(ptr::null(), 0) };
        check(&self.library, status, "take leave of the launcher").map_err(failed)
    }

    fn leave(&mut self) -> Result<(), ExchangeFailure> {
        events::tell_left(&self.library, &process(self.nspace, self.rank));
        self.finish()
    }

    fn next_end(&mut self) -> Option<RankEnd> {
        events::next_end()
    }

    fn clean_up(&self) -> Option<CleanUpFn> {
        let library = self.library;
        Some(Box::new(move |files| clean_up::ask(&library, files)))
    }
}

/// A fence that this rank waits for.
struct Waiting {
    directives: [Info; 1],
    status: Mutex<Option<Status>>,
    done: Condvar,
}

// SAFETY: the directives are flags, without addresses, and nothing changes them.
unsafe impl Send for Waiting {}
// SAFETY: the same.
unsafe impl Sync for Waiting {}

impl Waiting {
    /// The status of the fence; `None` if there was none before `deadline`, or if a rank has ended, which cannot take part any more.
    fn wait_until(&self, mut deadline: Instant) -> Option<Status> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(LOOK_INTERVAL);
            let waited = self.done.wait_timeout_while(status, left, |status| status.is_none());
            status = waited.unwrap_or_else(PoisonError::into_inner).0;
            if status.is_some() || Instant::now() >= deadline {
                return *status;
            }
            if !ended && events::has_ended() {
                ended = true;
                // The rank may have taken part before.
                deadline = deadline.min(Instant::now() + GRACE);
            }
        }
    }
}

unsafe extern "C" fn fence_done(status: Status, data: *mut c_void) {
    // SAFETY: `fence_until` has given this reference to the callback, which is called once.
    let waiting = unsafe { Arc::from_raw(data.cast_const().cast::<Waiting>()) };
    *waiting.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    waiting.done.notify_all();
}

fn check(library: &Library, status: Status, what: &'static str) -> Result<(), Error> {
    if status == abi::SUCCESS { Ok(()) } else { Err(Error::Call { what, why: library.describe(status) }) }
}

fn bad_value(what: &'static str) -> Error {
    Error::Call { what, why: "the value has another type than it should".into() }
}

fn failed(why: Error) -> ExchangeFailure {
    ExchangeFailure::Failed(why.to_string())
}

/// A list of ranks with commas between them.
fn parse_ranks(text: &str) -> Option<Vec<u32>> {
    text.split(',').map(|rank| rank.trim().parse().ok()).collect()
}
