//! Operations in progress.

use std::ffi::c_int;

use towline::Error;

use crate::border::{border, check_pointer, list_mut, put, put_if_wanted};
use crate::error::{Code, Failure, Outcome};
use crate::handles::RequestHandle;
use crate::levels::{CommRef, with};
use crate::tally::Counted;
use crate::worlds::{Context, find_comm, find_context};

/// What is known of a message that was received, or found by a probe.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The rank that sent it. After `TOWLINE_ERR_PEER_FAILED` and `TOWLINE_ERR_PEER_FINISHED`, the rank that was lost.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// How many bytes were delivered. For a probe: the length of the message.
    pub bytes: u64,
    /// The code of the operation. `towline_wait_all` sets it for each operation; the other functions return it, too.
    pub error: i32,
    /// 0.
    pub reserved: u32,
}

impl Status {
    pub(crate) const fn new(source: u32, tag: u32, bytes: u64) -> Self {
        Self { source, tag, bytes, error: 0, reserved: 0 }
    }

    /// The status of an outcome. Without one, it is that of no message, except for the message that was too long.
    pub(crate) fn of(outcome: &Result<towline::Status, Error>) -> Self {
        match outcome {
            Ok(status) => Self::new(status.source, status.tag, status.bytes),
            Err(Error::Truncated { source, tag, delivered, .. }) => {
                Self { error: Code::TOWLINE_ERR_TRUNCATED as i32, ..Self::new(*source, *tag, *delivered) }
            }
            Err(Error::PeerFailed { rank } | Error::PeerFinished { rank, .. }) => Self::new(*rank, 0, 0),
            Err(_) => Self::default(),
        }
    }

    /// The same with the code of an outcome.
    pub(crate) fn with_code(self, outcome: &Outcome<()>) -> Self {
        Self { error: outcome.as_ref().map_or_else(|failure| failure.code as i32, |()| 0), ..self }
    }
}

/// An outcome that was taken, with the status for the caller.
struct Done {
    status: Status,
    outcome: Outcome<()>,
}

impl Done {
    /// The outcome of a request that is null.
    const EMPTY: Self = Self { status: Status::new(0, 0, 0), outcome: Ok(()) };

    fn new(context: &Context, request: RequestHandle, outcome: Result<towline::Status, Error>) -> Self {
        let status = Status::of(&outcome);
        if request.is_receive() {
            tally(context, &outcome);
        }
        let functions = match outcome {
            Err(Error::NoRequest) => Ok(()), // it may be another one's
            _ => context.kept.remove(request.raw().to_bits()),
        };
        let outcome = outcome.map_err(Failure::from).and(functions);
        Self { status: status.with_code(&outcome), outcome }
    }

    /// A request whose context has ended, or that never was one.
    #[cold]
    fn no_request() -> Self {
        let outcome = Err(Failure::handle("request"));
        Self { status: Status::default().with_code(&outcome), outcome }
    }
}

/// Counts a message that was received.
#[inline]
pub(crate) fn tally(context: &Context, outcome: &Result<towline::Status, Error>) {
    let delivered = match outcome {
        Ok(status) => status.bytes,
        Err(Error::Truncated { delivered, .. }) => *delivered,
        Err(_) => return,
    };
    context.tally.add_with_bytes(Counted::MessagesReceived, Counted::BytesReceived, delivered);
}

/// The context of a request, and the communicator of its operation: that of all ranks, if the operation's was freed, so that the
/// request can still be completed. `None`: the context has ended, or never was.
///
/// # Errors
/// The caller may not use the context. Nothing is known of the request then.
fn find(request: RequestHandle) -> Outcome<Option<(&'static Context, CommRef)>> {
    match find_context(request.context.bits) {
        Err(failure) if failure.code == Code::TOWLINE_ERR_HANDLE => Ok(None),
        Err(failure) => Err(failure),
        Ok(context) => Ok(Some(match find_comm(request.comm) {
            Ok((owner, _, comm)) if std::ptr::eq(owner, context) => (context, comm),
            _ => (context, context.all_ranks()),
        })),
    }
}

/// Takes the outcome, and waits for it.
fn wait(request: RequestHandle) -> Outcome<Done> {
    if request == RequestHandle::NULL {
        return Ok(Done::EMPTY);
    }
    Ok(match find(request)? {
        Some((context, found)) => Done::new(context, request, with!(found, comm => comm.wait_raw(request.raw()))),
        None => Done::no_request(),
    })
}

/// Takes the outcome, if there is one. Otherwise makes progress once.
fn test(request: RequestHandle) -> Outcome<Option<Done>> {
    if request == RequestHandle::NULL {
        return Ok(Some(Done::EMPTY));
    }
    Ok(match find(request)? {
        Some((context, found)) => {
            let outcome = with!(found, comm => comm.test_raw(request.raw())).transpose();
            outcome.map(|outcome| Done::new(context, request, outcome))
        }
        None => Some(Done::no_request()),
    })
}

/// Waits until an operation is complete, and frees its request.
///
/// @param request  The request. It is `TOWLINE_REQUEST_NULL` afterwards, whatever the outcome is. A null request is complete.
/// @param status   Gets the status of a receive, with the code of the operation. That of a send has only the code. May be null.
/// @return         The code of the operation, as `towline_send` or `towline_recv` would return it; `TOWLINE_ERR_HANDLE` if there is no
///                 such request. `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED` and `TOWLINE_ERR_ARGUMENT`: request and status are unchanged.
///
/// Thread-safe as the context's level says; one thread at a time waits for a request. Since ABI version 0.1.
///
/// # Safety
/// `request` is readable and writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_wait(request: *mut RequestHandle, status: *mut Status) -> c_int {
    border(|| {
        check_pointer("request", request)?;
        // SAFETY: the caller's promise.
        let done = wait(unsafe { request.read() })?;
        // SAFETY: the caller's promise.
        unsafe { finish(request, status, done) }
    })
}

/// Looks whether an operation is complete, and frees its request then. Makes progress once.
///
/// @param request  The request. If the operation is complete, it is `TOWLINE_REQUEST_NULL` afterwards. A null request is complete.
/// @param done     Gets whether the operation is complete.
/// @param status   As for `towline_wait`. It is set if the operation is complete. May be null.
/// @return         As `towline_wait`. A failed operation is complete.
///
/// Thread-safe as the context's level says; one thread at a time tests a request. Since ABI version 0.1.
///
/// # Safety
/// `request` is readable and writable, `done` is writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_test(request: *mut RequestHandle, done: *mut bool, status: *mut Status) -> c_int {
    border(|| {
        check_pointer("request", request)?;
        check_pointer("done", done)?;
        // SAFETY: the caller's promise.
        let tested = test(unsafe { request.read() })?;
        // SAFETY: the caller's promise.
        unsafe {
            put("done", done, tested.is_some())?;
            tested.map_or(Ok(()), |tested| finish(request, status, tested))
        }
    })
}

/// # Safety
/// `request` is writable, and `status` is null or writable.
unsafe fn finish(request: *mut RequestHandle, status: *mut Status, done: Done) -> Outcome<()> {
    // SAFETY: the caller's promise.
    unsafe {
        request.write(RequestHandle::NULL);
        put_if_wanted(status, done.status);
    }
    done.outcome
}

/// Waits until all operations are complete, and frees their requests.
///
/// @param count     How many requests there are.
/// @param requests  The requests. All are `TOWLINE_REQUEST_NULL` afterwards.
/// @param statuses  Gets a status for each, with the code of the operation in `error`. May be null.
/// @return          The code of the first operation of the list that has failed, or `TOWLINE_SUCCESS`.
///
/// Thread-safe as `towline_wait`. Since ABI version 0.1.
///
/// # Safety
/// `requests` is readable and writable for `count` entries, and `statuses` is null or writable for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_wait_all(count: usize, requests: *mut RequestHandle, statuses: *mut Status) -> c_int {
    border(|| {
        // SAFETY: the caller's promise.
        let requests = unsafe { list_mut("requests", requests, count) }?;
        let mut first = Ok(());
        for (index, request) in requests.iter_mut().enumerate() {
            let done = wait(*request)?;
            *request = RequestHandle::NULL;
            if !statuses.is_null() {
                // SAFETY: the caller's promise; the index is below the count.
                unsafe { statuses.add(index).write(done.status) };
            }
            if first.is_ok() {
                first = done.outcome;
            }
        }
        first
    })
}

/// The index if no request of a list is in progress: see `towline_wait_any`.
///
/// cbindgen:ignore
pub const TOWLINE_NO_INDEX: usize = usize::MAX;

/// Waits until one of several operations is complete, and frees its request. Null requests are skipped.
///
/// @param count     How many requests there are. All belong to one context.
/// @param requests  The requests. The one that is complete is `TOWLINE_REQUEST_NULL` afterwards.
/// @param index     Gets the index of the complete one, or `TOWLINE_NO_INDEX` if all are null.
/// @param status    As for `towline_wait`. May be null.
/// @return          As `towline_wait`, for the operation at `index`; `TOWLINE_ERR_ARGUMENT` for requests of different contexts.
///
/// Thread-safe as `towline_wait`. Since ABI version 0.1.
///
/// # Safety
/// `requests` is readable and writable for `count` entries, `index` is writable, and `status` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_wait_any(
    count: usize,
    requests: *mut RequestHandle,
    index: *mut usize,
    status: *mut Status,
) -> c_int {
    border(|| {
        check_pointer("index", index)?;
        // SAFETY: the caller's promise.
        let requests = unsafe { list_mut("requests", requests, count) }?;
        loop {
            if let Some((found, done)) = test_each(requests)? {
                // SAFETY: the caller's promise.
                return unsafe { finish_at(requests, index, status, found, done) };
            }
            let present = || requests.iter().filter(|request| **request != RequestHandle::NULL);
            let Some(first) = present().next() else {
                // SAFETY: the caller's promise.
                return unsafe { put("index", index, TOWLINE_NO_INDEX) };
            };
            if present().any(|request| request.context != first.context) {
                return Err(Failure::argument(
                    "the requests belong to different contexts: wait for those of one context at a time",
                ));
            }
            let raw: Vec<_> = present().map(|request| request.raw()).collect();
            with!(find_context(first.context.bits)?.all_ranks(), comm => comm.wait_any_raw(&raw));
        }
    })
}

/// As `towline_wait_any`, without waiting. Makes progress.
///
/// @param count     How many requests there are.
/// @param requests  The requests.
/// @param index     Gets the index of a complete one, or `TOWLINE_NO_INDEX` if none is complete, or all are null.
/// @param status    As for `towline_wait`. It is set if one is complete. May be null.
/// @return          As `towline_wait`, for the operation at `index`.
///
/// Thread-safe as `towline_wait`. Since ABI version 0.1.
///
/// # Safety
/// As for `towline_wait_any`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_test_any(
    count: usize,
    requests: *mut RequestHandle,
    index: *mut usize,
    status: *mut Status,
) -> c_int {
    border(|| {
        check_pointer("index", index)?;
        // SAFETY: the caller's promise.
        let requests = unsafe { list_mut("requests", requests, count) }?;
        match test_each(requests)? {
            // SAFETY: the caller's promise.
            Some((found, done)) => unsafe { finish_at(requests, index, status, found, done) },
            // SAFETY: the caller's promise.
            None => unsafe { put("index", index, TOWLINE_NO_INDEX) },
        }
    })
}

/// The first complete request that is not null, with its outcome.
fn test_each(requests: &[RequestHandle]) -> Outcome<Option<(usize, Done)>> {
    for (index, request) in requests.iter().enumerate().filter(|(_, request)| **request != RequestHandle::NULL) {
        if let Some(done) = test(*request)? {
            return Ok(Some((index, done)));
        }
    }
    Ok(None)
}

/// # Safety
/// `index` is writable, and `status` is null or writable.
unsafe fn finish_at(
    requests: &mut [RequestHandle],
    index: *mut usize,
    status: *mut Status,
    found: usize,
    done: Done,
) -> Outcome<()> {
    // SAFETY: the caller's promise.
    unsafe {
        put("index", index, found)?;
        match requests.get_mut(found) {
            Some(request) => finish(request, status, done),
            None => Ok(()),
        }
    }
}

/// Cancels a receive that no message has matched, or a send of which nothing has left. It then ends with `TOWLINE_ERR_CANCELLED`; the
/// request is still to be waited for, whether it was cancelled or not.
///
/// @param request    The request.
/// @param cancelled  Gets whether it was cancelled. May be null.
/// @return           `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`. A request that is complete, null or none is not cancelled, and that is
///                   no error.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `cancelled` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_cancel(request: RequestHandle, cancelled: *mut bool) -> c_int {
    border(|| {
        let was_cancelled = request != RequestHandle::NULL
            && find(request)?.is_some_and(|(_, found)| with!(found, comm => comm.cancel_raw(request.raw())));
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(cancelled, was_cancelled) };
        Ok(())
    })
}
