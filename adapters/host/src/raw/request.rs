//! Requests on memory of the caller.

use towline_core::mtl::{Failure, Mode, Request, Sending};

use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::operations::views::{View, ViewMut};
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

/// An operation in progress that keeps no memory: a number for foreign code. [`isend_raw`](Communicator::isend_raw) and
/// [`irecv_raw`](Communicator::irecv_raw) return it.
///
/// It is valid until its outcome is taken, by [`wait_raw`](Communicator::wait_raw) or [`test_raw`](Communicator::test_raw), in the
/// context of its communicator. A stale or invented one is refused with [`Error::NoRequest`]. An operation whose outcome is never
/// taken keeps one of the [requests](crate::Config::requests) of its context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RawRequest(pub(super) Request);

impl RawRequest {
    /// The request as a number.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The request of a number that [`to_bits`](Self::to_bits) returned. Any other number is refused where it is used.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Request::from_bits(bits))
    }
}

impl<L: Threads> Communicator<L> {
    /// Sends in any mode, and returns when the memory may be changed: `MPI_Send`, `MPI_Ssend`, `MPI_Rsend`.
    ///
    /// # Errors
    /// As [`send`](Self::send). [`Error::NotReady`] for [`Mode::Ready`] without a posted receive.
    ///
    /// ```
    /// use towline::raw::Mode;
    /// use towline::{Error, View};
    ///
    /// let world = towline::init()?;
    /// // SAFETY: the bytes are constant.
    /// let data = unsafe { View::contiguous(b"hello".as_ptr(), 5) };
    /// assert_eq!(world.send_in_mode(0, 1, Mode::Ready, data), Err(Error::NotReady { rank: 0 }));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn send_in_mode(&self, dest: u32, tag: u32, mode: Mode, data: View<'_>) -> Result<(), Error> {
        self.check_tag(tag)?;
        // SAFETY: the view borrows its memory until this returns.
        unsafe { self.send_span(dest, tag, mode, data.span()) }
    }

    /// Begins to send memory of the caller. `None`: the send is complete. For an example see [`raw`](crate::raw).
    ///
    /// # Errors
    /// As [`isend`](Self::isend): nothing was begun then.
    ///
    /// # Safety
    /// The bytes stay readable and unchanged, and the layout of the view stays valid, until the outcome of the request was taken,
    /// or until the context has ended.
    pub unsafe fn isend_raw(
        &self,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: View<'_>,
    ) -> Result<Option<RawRequest>, Error> {
        self.check_tag(tag)?;
        let (data, handle) = (data.span(), &self.handle);
        let mut engine = handle.context.engine.lock();
        // SAFETY: the caller's promise.
        match no_unwind(|| unsafe { engine.mtl.isend(handle.comm, dest, tag, mode, data) }) {
            Ok(Sending::Complete) => Ok(None),
            Ok(Sending::Pending(request)) => Ok(Some(RawRequest(request))),
            Err(why) => Err(handle.refusal(&engine, why, Some(dest)).of_message(tag, data.len())),
        }
    }

    /// Begins to receive into memory of the caller. For an example see [`raw`](crate::raw).
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv): nothing was begun then.
    ///
    /// # Safety
    /// The bytes stay writable, nothing else uses them, and the layout of the view stays valid, until the outcome of the request
    /// was taken, or until the context has ended.
    pub unsafe fn irecv_raw(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        into: ViewMut<'_>,
    ) -> Result<RawRequest, Error> {
        let (source, tag): (Source, Tag) = (source.into(), tag.into());
        self.check_tag_pattern(tag)?;
        let handle = &self.handle;
        let mut engine = handle.context.engine.lock();
        // SAFETY: the caller's promise.
        let request = no_unwind(|| unsafe { engine.mtl.irecv(handle.comm, source.core(), tag.core(), into.span()) });
        request.map(RawRequest).map_err(|why| handle.refusal(&engine, why, source.rank()))
    }

    /// Takes the outcome of a request, if it is complete; makes progress once otherwise. `None`: it is still in progress. The
    /// status of a send means nothing.
    ///
    /// # Errors
    /// The error of the operation; [`Error::NoRequest`].
    ///
    /// ```
    /// use towline::ViewMut;
    ///
    /// let world = towline::init()?;
    /// let mut into = [0u8; 4];
    /// // SAFETY: the buffer stays until the request is complete.
    /// let request = unsafe { world.irecv_raw(0, 1, ViewMut::contiguous(into.as_mut_ptr(), 4)) }?;
    /// assert_eq!(world.test_raw(request)?, None);
    /// world.send(0, 1, b"four")?;
    /// while world.test_raw(request)?.is_none() {}
    /// assert_eq!(&into, b"four");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn test_raw(&self, request: RawRequest) -> Result<Option<Status>, Error> {
        let context = &self.handle.context;
        for makes_progress in [true, false] {
            let mut engine = context.engine.lock();
            check(&engine, request)?;
            if let Some(outcome) = engine.mtl.test(request.0) {
                return self.raw_outcome(&engine, outcome).map(Some);
            }
            drop(engine);
            if makes_progress {
                context.progress();
            }
        }
        Ok(None)
    }

    /// Waits until a request is complete, and takes its outcome. The status of a send means nothing.
    ///
    /// # Errors
    /// As [`test_raw`](Self::test_raw). For an example see [`raw`](crate::raw).
    pub fn wait_raw(&self, request: RawRequest) -> Result<Status, Error> {
        let mut engine = self.handle.context.engine.lock();
        check(&engine, request)?;
        let outcome = engine.wait(request.0);
        let outcome = self.raw_outcome(&engine, outcome);
        drop(engine);
        self.handle.context.run_callbacks();
        outcome
    }

    /// Waits until one of these requests of this context is complete. Its outcome is still to be taken. A request that stands for
    /// nothing counts as complete. Returns at once if there is no request.
    ///
    /// ```
    /// use towline::ViewMut;
    ///
    /// let world = towline::init()?;
    /// let mut into = [[0u8; 4]; 2];
    /// let [one, other] = &mut into;
    /// // SAFETY: the buffers stay until the requests are complete.
    /// let requests = unsafe {
    ///     let one = world.irecv_raw(0, 1, ViewMut::contiguous(one.as_mut_ptr(), 4))?;
    ///     [one, world.irecv_raw(0, 2, ViewMut::contiguous(other.as_mut_ptr(), 4))?]
    /// };
    /// world.send(0, 2, b"four")?;
    /// world.wait_any_raw(&requests);
    /// assert!(world.test_raw(requests[1])?.is_some());
    /// assert!(world.cancel_raw(requests[0]));
    /// # let _ = world.wait_raw(requests[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_any_raw(&self, requests: &[RawRequest]) {
        if requests.is_empty() {
            return;
        }
        let requests: Vec<Request> = requests.iter().map(|request| request.0).collect();
        self.handle.context.engine.lock().wait_for_any(&requests);
        self.handle.context.run_callbacks();
    }

    /// Cancels a receive that no message has matched, or a send of which nothing has left: `MPI_Cancel`. Returns whether it was
    /// cancelled. It then ends with [`Error::Cancelled`], and its outcome is still to be taken.
    ///
    /// For an example see [`wait_any_raw`](Self::wait_any_raw).
    pub fn cancel_raw(&self, request: RawRequest) -> bool {
        let mut engine = self.handle.context.engine.lock();
        let is_cancelled = engine.mtl.cancel(request.0) || engine.mtl.cancel_send(request.0);
        engine.ended_by_calls = engine.ended_by_calls.wrapping_add(is_cancelled.into());
        is_cancelled
    }

    /// Lets an operation end by itself; its outcome is dropped: `MPI_Request_free`. Other requests are not affected, and one that
    /// stands for nothing is ignored. The memory must stay until the operation has ended, which the program must know by other
    /// means, such as an answer of the other rank.
    pub fn detach_raw(&self, request: RawRequest) {
        let mut engine = self.handle.context.engine.lock();
        if check(&engine, request).is_ok() {
            engine.mtl.pml().detach(request.0);
        }
    }

    fn raw_outcome(
        &self,
        engine: &Engine,
        outcome: Result<towline_core::mtl::Status, Failure>,
    ) -> Result<Status, Error> {
        match outcome {
            Err(Failure::NoRequest) => self.handle.context.check_process().and(Err(Error::NoRequest)),
            outcome => self.handle.outcome(engine, outcome),
        }
    }
}

/// Refuses a request of the library's own, which an invented number may stand for.
#[inline]
fn check(engine: &Engine, request: RawRequest) -> Result<(), Error> {
    if engine.kept_requests.contain(request.0) { Err(Error::NoRequest) } else { Ok(()) }
}
