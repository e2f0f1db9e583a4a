//! Exchanges that the program supplies: a runtime whose processes can exchange bytes already needs no launcher of Towline.

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::{Duration, Instant};

use towline::SetupError;
use towline::bootstrap::{Environment, Exchange, ExchangeFailure, Job, RankEnd};

use crate::border::{border, check_pointer, list};
use crate::context::init;
use crate::error::{Failure, Outcome};
use crate::handles::ContextHandle;

/// What a function of an exchange returns if its time has passed.
pub const TOWLINE_EXCHANGE_TIMEOUT: c_int = 1;

/// Takes the bytes of one rank, in a call of `towline_gather_fn`.
///
/// @param gathered  What the library passed to the call.
/// @param rank      The rank that gave the bytes.
/// @param bytes     The bytes, which are copied. May be null if `length` is 0.
/// @param length    How many.
///
/// To be called by the thread that the library called. Since ABI version 0.1.
pub type DeliverFn =
    Option<unsafe extern "C" fn(gathered: *mut c_void, rank: u32, bytes: *const c_void, length: usize)>;

/// Gives the bytes of this rank to all ranks, and delivers those of all ranks, itself included. All ranks call it equally often, and
/// each call delivers the bytes of the same call of the others.
///
/// @param state       That of the exchange.
/// @param bytes       The bytes of this rank, until the function returns. Up to 1 MiB, or none.
/// @param length      How many.
/// @param timeout_ms  How long to wait for other ranks, in milliseconds.
/// @param deliver     To be called once for each rank, in any order.
/// @param gathered    To be passed to `deliver`.
/// @return            0, `TOWLINE_EXCHANGE_TIMEOUT`, or any other number, which the text of the error then has.
///
/// Since ABI version 0.1.
pub type GatherFn = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        bytes: *const c_void,
        length: usize,
        timeout_ms: u32,
        deliver: DeliverFn,
        gathered: *mut c_void,
    ) -> c_int,
>;

/// Waits until all ranks have called this. It counts as one of their common calls, as `towline_gather_fn` does.
///
/// @param state       That of the exchange.
/// @param timeout_ms  How long to wait for other ranks, in milliseconds.
/// @return            As `towline_gather_fn`.
///
/// Since ABI version 0.1.
pub type FenceFn = Option<unsafe extern "C" fn(state: *mut c_void, timeout_ms: u32) -> c_int>;

/// Shows a text to the user, and ends all ranks with an exit status. It may return, since the caller then ends itself.
///
/// @param state   That of the exchange.
/// @param status  The exit status of the job.
/// @param why     A text that ends with 0, until the function returns.
///
/// Since ABI version 0.1.
pub type AbortFn = Option<unsafe extern "C" fn(state: *mut c_void, status: c_int, why: *const c_char)>;

/// Says which rank has failed, without waiting.
///
/// @param state  That of the exchange.
/// @return       A rank that was not returned before, or -1 if there is none.
///
/// Since ABI version 0.1.
pub type LostFn = Option<unsafe extern "C" fn(state: *mut c_void) -> i64>;

/// What a rank's own runtime does for its job, in place of a launcher of Towline: see `towline_init_with`.
///
/// The exchange is trusted: the secret of the job goes through it. The library calls the functions one after the other, but from any
/// thread that uses the context. They must not call functions of this library, and must not throw C++ exceptions. After one of them
/// has failed, only `abort` is called.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExchangeFunctions {
    /// What is passed to the functions. It stays valid until the context has ended.
    pub state: *mut c_void,
    /// The rank of this process.
    pub rank: u32,
    /// The number of ranks: 1 to 1,048,576.
    pub size: u32,
    /// The ranks of this host, this one included, or null if they are not known. Copied.
    pub local_ranks: *const u32,
    /// How many they are.
    pub local_count: usize,
    /// Gathers bytes of all ranks. Not null.
    pub gather: GatherFn,
    /// Waits for all ranks. If it is null, ranks gather nothing instead.
    pub fence: FenceFn,
    /// Ends all ranks. Not null.
    pub abort: AbortFn,
    /// Says which ranks have failed. If it is null, a rank learns of the death only of those that it has a connection to.
    pub lost: LostFn,
}

/// As `towline_init`, for a process whose own runtime exchanges what the ranks have to tell each other. No launcher of Towline is
/// needed, and its environment variables that describe a job (`TOWLINE_RANK` and others) do not count. All ranks call this. Some
/// things need a launcher of Towline, and are missing: ranks are not restarted, there are no reports of several ranks, and warnings
/// go to standard error.
///
/// @param threads   As for `towline_init`.
/// @param settings  As for `towline_init`.
/// @param exchange  The functions, which are copied.
/// @param context   Gets the context, as for `towline_init`.
/// @return          `TOWLINE_ERR_ARGUMENT` for impossible ranks and missing functions; `TOWLINE_ERR_JOB` if a function fails, or does
///                  not deliver the bytes of all ranks; otherwise as `towline_init`. The functions are not called after an error.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_init`. `exchange` is readable, its list of ranks is readable for its length, and its functions do what their types
/// say until the context has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_init_with(
    threads: c_int,
    settings: *const *const c_char,
    exchange: *const ExchangeFunctions,
    context: *mut ContextHandle,
) -> c_int {
    border(|| {
        check_pointer("exchange", exchange)?;
        // SAFETY: the caller's promise.
        let functions = unsafe { exchange.read() };
        let exchange = ForeignExchange::new(functions)?;
        // SAFETY: the caller's promise.
        let local = unsafe { list("local_ranks", functions.local_ranks, functions.local_count) }?;
        let local = (!functions.local_ranks.is_null()).then(|| local.to_vec());
        // SAFETY: the caller's promise.
        unsafe {
            init(threads, settings, context, |config| {
                let config = config.clone().with_environment()?;
                let deadline = Instant::now() + Duration::from_millis(config.startup_timeout_ms.into());
                let environment = Environment::of_rank(functions.rank, functions.size, local);
                let environment = environment.map_err(|why| Failure::argument(why.to_string()))?;
                let job = Job::over(environment, Box::new(exchange), deadline).map_err(SetupError::from)?;
                Ok(Some(job))
            })
        }
    })
}

/// The functions of a program.
struct ForeignExchange(ExchangeFunctions);

// SAFETY: the program promises that its functions may be called from any thread, one at a time.
unsafe impl Send for ForeignExchange {}

impl ForeignExchange {
    fn new(functions: ExchangeFunctions) -> Outcome<Self> {
        let missing = |name| Failure::argument(format!("the exchange has no function `{name}`: set it"));
        functions.gather.ok_or_else(|| missing("gather"))?;
        functions.abort.ok_or_else(|| missing("abort"))?;
        Ok(Self(functions))
    }
}

impl Exchange for ForeignExchange {
    fn gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure> {
        let ExchangeFunctions { state, size, gather, .. } = self.0;
        let mut gathered = Gathered(vec![None; size as usize]);
        let (bytes, length, to) = (own.as_ptr().cast(), own.len(), (&raw mut gathered).cast());
        if let Some(gather) = gather {
            // SAFETY: the program's promise; all addresses are valid until the call returns.
            let code = unsafe { gather(state, bytes, length, milliseconds_until(deadline), Some(deliver), to) };
            outcome("gather", code)?;
        }
        match gathered.0.iter().position(Option::is_none) {
            None => Ok(gathered.0.into_iter().flatten().collect()),
            Some(rank) => Err(ExchangeFailure::Failed(format!(
                "the program's function `gather` has not delivered the bytes of rank {rank}: deliver those of each rank"
            ))),
        }
    }

    fn fence(&mut self, deadline: Instant) -> Result<(), ExchangeFailure> {
        match self.0.fence {
            // SAFETY: the program's promise.
            Some(fence) => outcome("fence", unsafe { fence(self.0.state, milliseconds_until(deadline)) }),
            None => self.gather(&[], deadline).map(drop),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure> {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default(); // it has no 0
        if let Some(abort) = self.0.abort {
            // SAFETY: the program's promise; the text is valid until the call returns.
            unsafe { abort(self.0.state, code, message.as_ptr()) };
        }
        Ok(())
    }

    fn next_end(&mut self) -> Option<RankEnd> {
        // SAFETY: the program's promise.
        let lost = unsafe { self.0.lost?(self.0.state) };
        u32::try_from(lost).ok().map(|rank| RankEnd { rank, died: true })
    }
}

/// What ranks have given.
struct Gathered(Vec<Option<Vec<u8>>>);

/// Takes the bytes of a rank. Wrong ones are noticed later, as missing.
unsafe extern "C" fn deliver(gathered: *mut c_void, rank: u32, bytes: *const c_void, length: usize) {
    // SAFETY: `gathered` is what `gather` has passed to the program, which passes it on while that call lasts.
    let Some(Gathered(all)) = (unsafe { gathered.cast::<Gathered>().as_mut() }) else { return };
    // SAFETY: the program's promise.
    let bytes = unsafe { list("bytes", bytes.cast::<u8>(), length) };
    if let (Some(place), Ok(bytes)) = (all.get_mut(rank as usize), bytes) {
        *place = Some(bytes.to_vec());
    }
}

fn outcome(name: &str, code: c_int) -> Result<(), ExchangeFailure> {
    match code {
        0 => Ok(()),
        TOWLINE_EXCHANGE_TIMEOUT => Err(ExchangeFailure::Timeout),
        code => Err(ExchangeFailure::Failed(format!(
            "the program's function `{name}` has returned {code}; look there for the reason"
        ))),
    }
}

fn milliseconds_until(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now());
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::{Barrier, Mutex};

    use super::*;
    use crate::communicator::{towline_comm_rank, towline_comm_size};
    use crate::context::{towline_finish, towline_world};
    use crate::error::{Code, towline_error_text};
    use crate::handles::CommHandle;

    /// Threads that exchange through memory.
    struct Shared {
        barrier: Barrier,
        given: Mutex<Vec<Vec<u8>>>,
    }

    struct Rank<'s> {
        rank: u32,
        shared: &'s Shared,
        /// What the function returns.
        code: c_int,
        /// How many ranks it delivers.
        deliver: usize,
    }

    impl Rank<'_> {
        fn functions(&self) -> ExchangeFunctions {
            ExchangeFunctions {
                state: ptr::from_ref(self).cast_mut().cast(),
                rank: self.rank,
                size: self.shared.given.lock().unwrap().len() as u32,
                local_ranks: ptr::null(),
                local_count: 0,
                gather: Some(gather),
                fence: None,
                abort: Some(abort),
                lost: None,
            }
        }
    }

    unsafe extern "C" fn gather(
        state: *mut c_void,
        bytes: *const c_void,
        length: usize,
        _: u32,
        deliver: DeliverFn,
        gathered: *mut c_void,
    ) -> c_int {
        // SAFETY: the tests pass such a state, and the library bytes of this length.
        let (rank, own) =
            unsafe { (&*state.cast::<Rank<'_>>(), std::slice::from_raw_parts(bytes.cast::<u8>(), length)) };
        let Shared { barrier, given } = rank.shared;
        given.lock().unwrap()[rank.rank as usize] = own.to_vec();
        barrier.wait();
        let all = given.lock().unwrap().clone();
        barrier.wait();
        for (number, bytes) in (0..).zip(all).take(rank.deliver) {
            // SAFETY: as the type says.
            unsafe { deliver.unwrap()(gathered, number, bytes.as_ptr().cast(), bytes.len()) };
        }
        rank.code
    }

    unsafe extern "C" fn abort(_: *mut c_void, _: c_int, _: *const c_char) {}

    fn shared(size: usize) -> Shared {
        Shared { barrier: Barrier::new(size), given: Mutex::new(vec![Vec::new(); size]) }
    }

    fn start(functions: &ExchangeFunctions) -> (c_int, ContextHandle) {
        let mut context = ContextHandle { bits: 0 };
        // SAFETY: the functions do what their types say, and the context is writable.
        (unsafe { towline_init_with(0, ptr::null(), functions, &raw mut context) }, context)
    }

    fn text() -> String {
        let mut buffer = [0u8; 400];
        // SAFETY: the buffer is as long as it says.
        let len = unsafe { towline_error_text(buffer.as_mut_ptr().cast(), buffer.len()) };
        String::from_utf8_lossy(&buffer[..len.min(399)]).into_owned()
    }

    #[test]
    fn threads_join_a_job_by_an_exchange_of_their_own() {
        let shared = &shared(3);
        std::thread::scope(|threads| {
            for rank in 0..3 {
                threads.spawn(move || {
                    let rank = Rank { rank, shared, code: 0, deliver: 3 };
                    let (code, context) = start(&rank.functions());
                    assert_eq!(code, 0, "{}", text());
                    let (mut world, mut number, mut size) = (CommHandle { bits: 0 }, 9, 9);
                    // SAFETY: the results are writable.
                    unsafe {
                        assert_eq!(towline_world(context, &raw mut world), 0);
                        assert_eq!(towline_comm_rank(world, &raw mut number), 0);
                        assert_eq!(towline_comm_size(world, &raw mut size), 0);
                    }
                    assert_eq!((number, size, towline_finish(context)), (rank.rank, 3, 0));
                });
            }
        });
    }

    #[test]
    fn missing_functions_and_impossible_ranks_are_refused_and_failures_have_a_text() {
        let shared = &shared(1);
        let rank = |code, deliver| Rank { rank: 0, shared, code, deliver };
        let good = rank(0, 1);
        let refused = |change: fn(&mut ExchangeFunctions), expected: &str| {
            let mut functions = good.functions();
            change(&mut functions);
            assert_eq!(start(&functions).0, Code::TOWLINE_ERR_ARGUMENT as c_int);
            assert!(text().contains(expected), "{}", text());
        };
        refused(|functions| functions.gather = None, "no function `gather`");
        refused(|functions| functions.abort = None, "no function `abort`");
        refused(|functions| functions.rank = 1, "there is no rank 1 of 1 ranks");
        refused(|functions| functions.size = 0, "there is no rank 0 of 0 ranks");
        refused(|functions| functions.local_count = 1, "`local_ranks` is a null pointer");
        // SAFETY: a null address is refused.
        let null = unsafe { towline_init_with(0, ptr::null(), ptr::null(), ptr::null_mut()) };
        assert_eq!(null, Code::TOWLINE_ERR_ARGUMENT as c_int);
        for (code, deliver, expected) in [
            (7, 1, "`gather` has returned 7"),
            (TOWLINE_EXCHANGE_TIMEOUT, 1, "not all ranks have taken part"),
            (0, 0, "has not delivered the bytes of rank 0"),
        ] {
            let failing = rank(code, deliver);
            assert_eq!(start(&failing.functions()).0, Code::TOWLINE_ERR_JOB as c_int);
            assert!(text().contains(expected), "{}", text());
        }
    }
}
