//! Contexts: to begin and to end, settings, progress and reports.

use std::ffi::{c_char, c_int};

use towline::bootstrap::Job;
use towline::{Builder, Config, Multiple};
use towline_settings::{Table as _, nearest};

use crate::border::{border, check_pointer, put, put_if_wanted, text};
use crate::error::{Code, Failure, Outcome};
use crate::handles::{CommHandle, ContextHandle};
use crate::levels::{AnyWorld, with_world};
use crate::texts::copy_text;
use crate::worlds::{CONTEXTS, Rest, find_context, insert_context};

/// How many threads use a context, as MPI names the levels.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum ThreadLevel {
    /// The process has one thread.
    TOWLINE_THREAD_SINGLE = 0,
    /// Only the thread that makes the context uses it. Another thread gets `TOWLINE_ERR_THREAD`.
    TOWLINE_THREAD_FUNNELED = 1,
    /// Several threads use it, one at a time.
    TOWLINE_THREAD_SERIALIZED = 2,
    /// Any number of threads use it at once.
    TOWLINE_THREAD_MULTIPLE = 3,
}

/// Joins the job of this process, and returns when all ranks have joined. `towline run` or a PMIx launcher (mpirun, prterun, srun) has
/// started it; `towline info` says which, and the setting `bootstrap` chooses. A process that no launcher started is a job of one
/// rank. `towline_init_with` joins a job by other means.
///
/// @param threads   A `towline_thread_level_t`. The level that is asked for is granted.
/// @param settings  Settings as `name=value`, such as `transports=sm,tcp`, in an array that ends with a null pointer. `towline info`
///                  lists the names. A variable of the environment (`TOWLINE_TRANSPORTS`) overrides the setting. May be null.
/// @param context   Gets the context. The caller ends it with `towline_finish`, `towline_leave` or `towline_abort`.
/// @return          `TOWLINE_ERR_SETTING` for a setting; `TOWLINE_ERR_JOB` if the job cannot be joined, for example because this
///                  process has joined it before; `TOWLINE_ERR_PEER_FAILED` if a rank cannot be reached; `TOWLINE_ERR_BUSY` if this
///                  process has 256 contexts.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// The texts end with 0, the array ends with null, and `context` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_init(
    threads: c_int,
    settings: *const *const c_char,
    context: *mut ContextHandle,
) -> c_int {
    // SAFETY: the caller's promise.
    border(|| unsafe { init(threads, settings, context, |_| Ok(None)) })
}

/// Makes a context, in the job that `job` joins with the program's settings, or in that of this process.
///
/// # Safety
/// As for `towline_init`.
pub(crate) unsafe fn init(
    threads: c_int,
    settings: *const *const c_char,
    context: *mut ContextHandle,
    job: impl FnOnce(&Config) -> Outcome<Option<Job>>,
) -> Outcome<()> {
    check_pointer("context", context)?;
    let mut config = Config::default();
    // SAFETY: the caller's promise.
    unsafe { read_settings(settings, &mut config) }?;
    let job = job(&config)?;
    let builder = Builder::new().configure(|it| *it = config);
    let builder = match job {
        Some(job) => builder.job(job),
        None => builder,
    };
    let world = match threads {
        0 | 1 => AnyWorld::Single(builder.build()?),
        2 | 3 => AnyWorld::Multiple(builder.threads(Multiple).build()?),
        other => return Err(no_thread_level(other)),
    };
    // SAFETY: the caller's promise.
    unsafe { put("context", context, insert_context(world)?) }
}

#[cold]
pub(crate) fn no_thread_level(threads: c_int) -> Failure {
    Failure::argument(format!("there is no thread level {threads}: use a `towline_thread_level_t`"))
}

/// # Safety
/// The address is null, or that of an array of texts that ends with null.
pub(crate) unsafe fn read_settings(mut list: *const *const c_char, config: &mut Config) -> Outcome<()> {
    let mut given = Vec::new();
    if list.is_null() {
        return Ok(());
    }
    loop {
        // SAFETY: the caller's promise: the array has not ended before.
        let entry = unsafe { list.read() };
        if entry.is_null() {
            break;
        }
        // SAFETY: the caller's promise.
        let entry = unsafe { text("settings", entry) }?;
        let (name, value) = entry.split_once('=').ok_or_else(|| {
            Failure::new(
                Code::TOWLINE_ERR_SETTING,
                format!("the setting `{entry}` has no value: write it as name=value"),
            )
        })?;
        given.push((name.trim().to_string(), value.to_string()));
        // SAFETY: the array goes on, since it has not ended yet.
        list = unsafe { list.add(1) };
    }
    let mut rows = Vec::new();
    let variable = |name: &str| format!("TOWLINE_{}", name.to_uppercase().replace('.', "_"));
    let value_of =
        |wanted: &str| given.iter().rev().find(|(name, _)| variable(name) == wanted).map(|(_, value)| value.clone());
    config.read(&value_of, &mut rows).map_err(|why| Failure::new(Code::TOWLINE_ERR_SETTING, why.to_string()))?;
    for (name, _) in &given {
        if !rows.iter().any(|row| row.name == name) {
            let near = nearest(name, rows.iter().map(|row| row.name));
            let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
            return Err(Failure::new(
                Code::TOWLINE_ERR_SETTING,
                format!("there is no setting `{name}`{hint}; `towline info` lists all settings"),
            ));
        }
    }
    Ok(())
}

/// Ends a context: waits until all other ranks finish, too, and until the messages of this rank were sent. All handles of the
/// context are stale then, and memory of operations in progress belongs to the caller again.
///
/// @param context  The context. It has ended also if the function fails, unless it returns `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`
///                 or `TOWLINE_ERR_FORKED`.
/// @return         `TOWLINE_ERR_PEER_FAILED` if ranks were lost before they had finished; `TOWLINE_ERR_JOB` if some rank did not
///                 finish in time, or if the launcher cannot be reached.
///
/// No other call may use the context at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_finish(context: ContextHandle) -> c_int {
    border(|| {
        let (world, _rest) = take(context)?;
        with_world!(world, world => Ok(world.finish()?))
    })
}

/// Ends a context without waiting for the programs of other ranks: their receives from this rank, and their sends to it, end with
/// `TOWLINE_ERR_PEER_FINISHED`. What was sent before is delivered.
///
/// @param context  The context.
/// @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// No other call may use the context at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_leave(context: ContextHandle) -> c_int {
    border(|| {
        let (world, _rest) = take(context)?;
        drop(world);
        Ok(())
    })
}

/// Takes a context out of the table. What operations in progress refer to must be dropped after the world.
fn take(context: ContextHandle) -> Outcome<(AnyWorld, Rest)> {
    find_context(context.bits)?;
    let context = CONTEXTS.remove(context.bits).ok_or_else(|| Failure::handle("context"))?;
    Ok(context.into_parts())
}

/// Asks the launcher to end all ranks, and ends this process with its destructors and `atexit` functions.
///
/// @param context  The context. If it is none, only this process ends.
/// @param status   The exit status of the job: 1 to 255. Any other counts as 1.
/// @param why      A text that the launcher prints. It ends with 0. May be null.
///
/// Thread-safe as the context's level says. Does not return. Since ABI version 0.1.
///
/// # Safety
/// `why` is null, or the address of a text that ends with 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_abort(context: ContextHandle, status: c_int, why: *const c_char) -> ! {
    let status = if (1..256).contains(&status) { status } else { 1 };
    border(|| {
        // SAFETY: the caller's promise.
        let why = if why.is_null() { "the program has aborted".into() } else { unsafe { text("why", why) }? };
        let found = find_context(context.bits)?;
        with_world!(&found.world, world => world.abort(status, &why))
    });
    std::process::exit(status)
}

/// Makes progress once, without waiting. All functions that wait make progress, too.
///
/// @param context  The context.
/// @param events   Gets how many events there were. May be null.
/// @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `events` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_progress(context: ContextHandle, events: *mut u32) -> c_int {
    border(|| {
        let found = find_context(context.bits)?;
        let came = with_world!(&found.world, world => world.progress());
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(events, came) };
        Ok(())
    })
}

/// The communicator of all ranks of the job.
///
/// @param context  The context.
/// @param world    Gets its handle, which is always the same. It ends with the context.
/// @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `world` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_world(context: ContextHandle, world: *mut CommHandle) -> c_int {
    border(|| {
        check_pointer("world", world)?;
        let handle = find_context(context.bits)?.world_handle();
        // SAFETY: the caller's promise.
        unsafe { put("world", world, handle) }
    })
}

/// The form of a report.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum ReportForm {
    /// Lines for people.
    TOWLINE_REPORT_TEXT = 0,
    /// One JSON object.
    TOWLINE_REPORT_JSON = 1,
}

/// What a context is doing: operations in progress with their peers, tags and lengths, and messages that no receive has taken.
///
/// @param context  The context.
/// @param form     A `towline_report_form_t`.
/// @param buffer   Gets the report, cut to `size` - 1 bytes, and a 0. May be null if `size` is 0.
/// @param size     Bytes of `buffer`.
/// @param length   Gets the length of the whole report, without the 0. May be null.
/// @return         `TOWLINE_ERR_ARGUMENT`, `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes, and `length` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_report(
    context: ContextHandle,
    form: c_int,
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> c_int {
    border(|| {
        let found = find_context(context.bits)?;
        let report = with_world!(&found.world, world => world.report());
        let text = match form {
            0 => report.to_string(),
            1 => report.to_json(),
            other => return Err(Failure::argument(format!("there is no form {other}: use a `towline_report_form_t`"))),
        };
        // SAFETY: the caller's promise.
        unsafe {
            let len = copy_text(&text, buffer, size);
            put_if_wanted(length, len);
        }
        Ok(())
    })
}
