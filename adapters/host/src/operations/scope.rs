//! Operations on borrowed memory that are in progress at the same time. All of them are complete when their scope ends.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal, Request, Sending};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::CommHandle;
use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, check_tag};
use crate::operations::completion::{Completion, Pending};
use crate::operations::views::{View, ViewMut};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// Runs `f` with a scope. Operations that `f` begins in the scope may use borrowed memory, and `f` need not wait for each of
    /// them. All are complete when this method returns, so none can outlive the memory.
    ///
    /// If `f` returns an error or panics, receives that have not matched are cancelled first. If `f` panics and a send finds no
    /// receiver within [`Config::unwind_timeout_ms`](crate::Config::unwind_timeout_ms), the process is aborted, since the memory
    /// cannot be given back.
    ///
    /// # Errors
    /// The error of `f`, or the first failure of an operation that `f` did not wait for.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (left, right) = ((world.rank() + world.size() - 1) % world.size(), (world.rank() + 1) % world.size());
    /// let (mine, mut from_left, mut from_right) = ([world.rank(); 1000], [0; 1000], [0; 1000]);
    /// world.scope(|s| {
    ///     s.irecv(left, 0, &mut from_left)?;
    ///     s.irecv(right, 1, &mut from_right)?;
    ///     s.isend(right, 0, &mine)?;
    ///     s.isend(left, 1, &mine)?;
    ///     Ok::<(), towline::Error>(())
    /// })?;
    /// assert_eq!((from_left, from_right), ([left; 1000], [right; 1000]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Memory that does not live as long as the scope cannot be used in it:
    ///
    /// ```compile_fail
    /// let world = towline::init().unwrap();
    /// world.scope(|s| {
    ///     let short = [0u8; 4];
    ///     s.isend(0, 0, &short)?;
    ///     Ok::<(), towline::Error>(())
    /// });
    /// ```
    ///
    /// The program cannot read memory while a message is received into it:
    ///
    /// ```compile_fail
    /// let world = towline::init().unwrap();
    /// let mut into = [0u8; 4];
    /// world.scope(|s| {
    ///     s.irecv(0, 0, &mut into)?;
    ///     println!("{into:?}");
    ///     Ok::<(), towline::Error>(())
    /// });
    /// ```
    pub fn scope<'env, T, E, F>(&self, f: F) -> Result<T, E>
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env, L>) -> Result<T, E>,
        E: From<Error>,
    {
        let list = List { handle: self.handle.clone(), head: Cell::new(0), failed: Cell::new(None) };
        let scope = Scope { list, scope: PhantomData, env: PhantomData };
        let list = &scope.list;
        let unwinding = Unwinding(list);
        let result = f(&scope);
        std::mem::forget(unwinding);
        if result.is_err() {
            list.cancel_all();
        }
        no_unwind(|| list.wait_all());
        list.handle.context.run_callbacks();
        let value = result?;
        match list.failed.take() {
            // In a forked child, the operations that the parent began have no outcome.
            None => list.handle.context.check_process().map(|()| value).map_err(E::from),
            Some(error) => Err(error.into()),
        }
    }
}

/// A scope in which operations may use borrowed memory: see [`Communicator::scope`].
///
/// A scope cannot leave its closure, and is used by the thread that runs the closure. Its operations may be started in any order,
/// and at the same time as operations of other scopes.
///
/// ```
/// let world = towline::init()?;
/// let (mut a, mut b) = ([0u8; 5], [0u8; 5]);
/// world.scope(|s| {
///     s.irecv(0, 1, &mut a)?;
///     s.irecv(0, 2, &mut b)?;
///     s.isend(0, 2, b"world")?;
///     s.isend(0, 1, b"hello")?;
///     Ok::<(), towline::Error>(())
/// })?;
/// assert_eq!((&a, &b), (b"hello", b"world"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scope<'scope, 'env: 'scope, L: Threads = Single> {
    list: List<L>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The operations in progress of a scope.
struct List<L: Threads> {
    handle: CommHandle<L>,
    /// The first request, in the engine's lists of scopes.
    head: Cell<u32>,
    /// The first failure that no `wait` has returned.
    failed: Cell<Option<Error>>,
}

impl<'scope, L: Threads> Scope<'scope, '_, L> {
    /// Begins to send `data`, which stays borrowed until the scope ends: `MPI_Isend`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    #[inline]
    pub fn isend<T>(&'scope self, dest: u32, tag: u32, data: &'scope T) -> Result<ScopedSend<'scope, L>, Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check_tag(tag)?;
        // SAFETY: the memory is borrowed for the scope, which ends only when all of its requests are complete.
        unsafe { self.begin_send(dest, tag, Mode::Standard, Span::of(data.as_bytes())) }
    }

    /// As [`isend`](Self::isend), but complete only when a receive has matched the message: `MPI_Issend`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn issend<T>(&'scope self, dest: u32, tag: u32, data: &'scope T) -> Result<ScopedSend<'scope, L>, Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check_tag(tag)?;
        // SAFETY: as in `isend`.
        unsafe { self.begin_send(dest, tag, Mode::Synchronous, Span::of(data.as_bytes())) }
    }

    /// Begins to send the bytes of a view.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn isend_view(&'scope self, dest: u32, tag: u32, view: View<'scope>) -> Result<ScopedSend<'scope, L>, Error> {
        check_tag(tag)?;
        // SAFETY: as in `isend`; the view borrows its layout as long as its memory.
        unsafe { self.begin_send(dest, tag, Mode::Standard, view.span()) }
    }

    /// Begins to receive into `into`, which stays borrowed until the scope ends, or until [`ScopedRecv::wait`] returns it:
    /// `MPI_Irecv`.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    #[inline]
    pub fn irecv<T>(
        &'scope self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &'scope mut T,
    ) -> Result<ScopedRecv<'scope, T, L>, Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let len = size_of_val(into);
        let into: *mut T = into;
        // SAFETY: the memory is borrowed for the scope, which ends only when all of its requests are complete. All of its bytes
        // may be written, and any bytes make a valid `T`.
        let op = unsafe { self.begin_receive(source.into(), tag.into(), Span::contiguous(into.cast(), len)) }?;
        Ok(ScopedRecv { op, into })
    }

    /// Begins to receive into the bytes of a view.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn irecv_view(
        &'scope self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        view: ViewMut<'scope>,
    ) -> Result<ScopedRecv<'scope, (), L>, Error> {
        // SAFETY: as in `irecv`; the view borrows its layout as long as its memory.
        let op = unsafe { self.begin_receive(source.into(), tag.into(), view.span()) }?;
        Ok(ScopedRecv { op, into: std::ptr::NonNull::dangling().as_ptr() })
    }

    /// # Safety
    /// The span's memory stays readable and unchanged for `'scope`.
    #[inline]
    unsafe fn begin_send(
        &'scope self,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: Span,
    ) -> Result<ScopedSend<'scope, L>, Error> {
        let list = &self.list;
        let begun = {
            let mut engine = list.handle.context.engine.lock();
            // SAFETY: the caller's promise: the request is in the scope's list before anything else can happen.
            no_unwind(|| match unsafe { engine.mtl.isend(list.handle.comm, dest, tag, mode, data) } {
                Ok(Sending::Complete) => {
                    engine.more_follows(); // at least the end of the scope
                    Ok(None)
                }
                Ok(Sending::Pending(request)) => Ok(Some(list.begin(&mut engine, request))),
                Err(refusal) => Err(refusal),
            })
        };
        match begun {
            Ok(None) => Ok(ScopedSend { op: Op { list, stage: Stage::SentAtOnce } }),
            Ok(Some(request)) => Ok(ScopedSend { op: Op { list, stage: Stage::InProgress(request) } }),
            Err(refusal) => Err(list.refusal(refusal, Some(dest)).of_message(tag, data.len())),
        }
    }

    /// # Safety
    /// The span's memory stays writable, and nothing else uses it, for `'scope`, or until the request's outcome is taken.
    #[inline]
    unsafe fn begin_receive(&'scope self, source: Source, tag: Tag, sink: Span) -> Result<Op<'scope, L>, Error> {
        tag.reserved().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        let list = &self.list;
        let begun = {
            let mut engine = list.handle.context.engine.lock();
            no_unwind(|| {
                // SAFETY: the caller's promise: the request is in the scope's list before anything else can happen.
                let request = unsafe { engine.mtl.irecv(list.handle.comm, source.core(), tag.core(), sink) }?;
                Ok(list.begin(&mut engine, request))
            })
        };
        match begun {
            Ok(request) => Ok(Op { list, stage: Stage::InProgress(request) }),
            Err(refusal) => Err(list.refusal(refusal, source.rank())),
        }
    }
}

impl<L: Threads> List<L> {
    #[inline]
    fn begin(&self, engine: &mut Engine, request: Request) -> Request {
        let mut head = self.head.get();
        engine.scope_lists.push(&mut head, request);
        self.head.set(head);
        request
    }

    #[cold]
    fn refusal(&self, refusal: Refusal, other: Option<u32>) -> Error {
        self.handle.refusal(&self.handle.context.engine.lock(), refusal, other)
    }

    /// Waits for an operation of this scope.
    #[inline(never)]
    fn wait(&self, request: Request) -> Result<Status, Error> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| engine.wait(request));
        self.end(&mut engine, request);
        let outcome = self.handle.outcome(&engine, outcome);
        drop(engine);
        self.handle.context.run_callbacks();
        outcome
    }

    /// Takes the outcome of a receive that has got all of its message. `None` says nothing of other operations.
    #[inline]
    fn take_received(&self, request: Request) -> Option<Status> {
        self.handle.context.engine.look(|engine| {
            let status = engine.mtl.take_received(request)?;
            self.end(engine, request);
            Some(self.handle.status(engine, status))
        })
    }

    /// Takes the outcome of an operation, if it is complete.
    fn test(&self, request: Request) -> Option<Result<Status, Error>> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| engine.mtl.test(request))?;
        self.end(&mut engine, request);
        Some(self.handle.outcome(&engine, outcome))
    }

    #[inline]
    fn end(&self, engine: &mut Engine, request: Request) {
        let mut head = self.head.get();
        engine.scope_lists.remove(&mut head, request);
        self.head.set(head);
    }

    fn cancel_all(&self) {
        let mut engine = self.handle.context.engine.lock();
        let mut place = self.head.get();
        while let Some((request, next)) = engine.scope_lists.at(place) {
            engine.mtl.cancel(request);
            place = next;
        }
    }

    /// Waits for all operations in progress. Runs no code of users.
    fn wait_all(&self) {
        let mut engine = self.handle.context.engine.lock();
        while let Some((request, _)) = engine.scope_lists.at(self.head.get()) {
            let outcome = engine.wait(request);
            self.end(&mut engine, request);
            if let Err(failure) = outcome {
                self.note_failure(self.handle.failure(&engine, failure));
            }
        }
    }

    fn first(&self) -> Option<(Request, u32)> {
        self.handle.context.engine.lock().scope_lists.at(self.head.get())
    }

    /// Keeps the first failure.
    fn note_failure(&self, error: Error) {
        let first = self.failed.take();
        self.failed.set(first.or(Some(error)));
    }
}

impl<L: Threads> fmt::Debug for Scope<'_, '_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// Completes the operations of a scope whose function panics.
struct Unwinding<'a, L: Threads>(&'a List<L>);

impl<L: Threads> Drop for Unwinding<'_, L> {
    fn drop(&mut self) {
        let list = self.0;
        no_unwind(|| {
            list.cancel_all();
            let context = &list.handle.context;
            let started = std::time::Instant::now();
            let deadline = context.engine.lock().deadline(context.config.unwind_timeout_ms);
            while let Some((request, _)) = list.first() {
                let mut engine = context.engine.lock();
                if engine.wait_until(request, deadline).is_none() {
                    eprintln!(
                        "towline: a scope panicked, and a message from its borrowed memory found no receiver within {} ms \
                         (TOWLINE_UNWIND_TIMEOUT_MS): the process is aborted",
                        started.elapsed().as_millis()
                    );
                    std::process::abort();
                }
                list.end(&mut engine, request);
            }
        });
    }
}

/// An operation of a scope.
struct Op<'scope, L: Threads> {
    list: &'scope List<L>,
    stage: Stage,
}

enum Stage {
    /// The send was complete when it began. This is separate from other outcomes since it is made for each short message: only
    /// the discriminant has to be written.
    SentAtOnce,
    InProgress(Request),
    Complete(Result<Status, Error>),
}

impl<L: Threads> Op<'_, L> {
    #[inline]
    fn wait(self) -> Result<Status, Error> {
        match self.stage {
            Stage::SentAtOnce => Ok(Status::EMPTY),
            Stage::Complete(outcome) => outcome,
            Stage::InProgress(request) => match self.list.take_received(request) {
                Some(status) => Ok(status),
                None => self.list.wait(request),
            },
        }
    }

    fn is_done(&mut self) -> bool {
        if let Stage::InProgress(_) = self.stage {
            self.list.handle.context.progress();
        }
        self.test()
    }

    /// Takes the outcome, if the operation is complete. Returns whether it is.
    fn test(&mut self) -> bool {
        if let Stage::InProgress(request) = self.stage {
            match self.list.test(request) {
                Some(outcome) => self.stage = Stage::Complete(outcome),
                None => return false,
            }
        }
        true
    }

    fn request(&self) -> Option<Request> {
        if let Stage::InProgress(request) = self.stage { Some(request) } else { None }
    }
}

impl<L: Threads> Completion<L> for ScopedSend<'_, L> {}
impl<T: ?Sized, L: Threads> Completion<L> for ScopedRecv<'_, T, L> {}

impl<L: Threads> Pending<L> for ScopedSend<'_, L> {
    fn handle(&self) -> &CommHandle<L> {
        &self.op.list.handle
    }

    fn request(&self) -> Option<Request> {
        self.op.request()
    }

    fn is_active(&self) -> bool {
        true // its `wait` consumes it
    }

    fn test(&mut self) -> bool {
        self.op.test()
    }
}

impl<T: ?Sized, L: Threads> Pending<L> for ScopedRecv<'_, T, L> {
    fn handle(&self) -> &CommHandle<L> {
        &self.op.list.handle
    }

    fn request(&self) -> Option<Request> {
        self.op.request()
    }

    fn is_active(&self) -> bool {
        true // its `wait` consumes it
    }

    fn test(&mut self) -> bool {
        self.op.test()
    }
}

/// A send of a [`Scope`]. It may be dropped: the scope waits for the send.
///
/// ```
/// let world = towline::init()?;
/// let mut into = [0u8; 2];
/// world.scope(|s| {
///     s.irecv(0, 1, &mut into)?;
///     let send = s.issend(0, 1, b"hi")?;
///     send.wait() // the receive has matched the message
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ScopedSend<'scope, L: Threads = Single> {
    op: Op<'scope, L>,
}

impl<L: Threads> ScopedSend<'_, L> {
    /// Waits until the send is complete.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn wait(self) -> Result<(), Error> {
        self.op.wait().map(|_| ())
    }

    /// Makes progress once. Returns whether the operation is complete; [`wait`](Self::wait) then returns the outcome.
    pub fn is_done(&mut self) -> bool {
        self.op.is_done()
    }

    /// Cancels the send, if nothing of the message has left, as [`SendRequest::cancel`](crate::SendRequest::cancel) does. Returns
    /// whether it was cancelled; it then ends with [`Error::Cancelled`]. The scope returns this error, too, unless
    /// [`wait`](Self::wait) has returned it.
    pub fn cancel(&mut self) -> bool {
        let Stage::InProgress(request) = self.op.stage else { return false };
        self.op.list.handle.context.engine.lock().mtl.cancel_send(request)
    }
}

impl<L: Threads> fmt::Debug for ScopedSend<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedSend").finish_non_exhaustive()
    }
}

/// A receive of a [`Scope`]. It may be dropped: the scope waits for the receive.
pub struct ScopedRecv<'scope, T: ?Sized, L: Threads = Single> {
    op: Op<'scope, L>,
    /// The memory to receive into, borrowed for the scope.
    into: *mut T,
}

impl<'scope, T: ?Sized, L: Threads> ScopedRecv<'scope, T, L> {
    /// Waits until the receive is complete. Returns the status, and the memory, which the caller may use again.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (mut request, mut answer) = ([0u32], [0u32]);
    /// world.scope(|s| {
    ///     let receive = s.irecv(0, 1, &mut request)?;
    ///     s.isend(0, 1, &[20u32])?;
    ///     let (_, request) = receive.wait()?;
    ///     request[0] += 1; // not borrowed any more
    ///     s.irecv(0, 2, &mut answer)?;
    ///     s.isend(0, 2, request)?;
    ///     Ok::<(), towline::Error>(())
    /// })?;
    /// assert_eq!(answer, [21]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn wait(self) -> Result<(Status, &'scope mut T), Error> {
        let status = self.op.wait()?;
        // SAFETY: made from a unique borrow for 'scope, which only the request used since, and the request is complete.
        Ok((status, unsafe { &mut *self.into }))
    }

    /// Makes progress once. Returns whether the operation is complete; [`wait`](Self::wait) then returns the outcome.
    pub fn is_done(&mut self) -> bool {
        self.op.is_done()
    }

    /// Cancels the receive, if no message has matched it: `MPI_Cancel`. Returns whether it was cancelled; it then ends with
    /// [`Error::Cancelled`]. The scope returns this error, too, unless [`wait`](Self::wait) has returned it.
    pub fn cancel(&mut self) -> bool {
        let Stage::InProgress(request) = self.op.stage else { return false };
        self.op.list.handle.context.engine.lock().mtl.cancel(request)
    }
}

impl<T: ?Sized, L: Threads> fmt::Debug for ScopedRecv<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedRecv").finish_non_exhaustive()
    }
}
