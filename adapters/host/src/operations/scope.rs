//! Operations on borrowed memory that go on beside each other, and have all ended when their scope has.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal, Request, Sending};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::CommHandle;
use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, check};
use crate::operations::views::{View, ViewMut};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// Runs `f` with a scope in which sends and receives may use borrowed memory without being waited for one by one.
    /// All have ended when this returns, so none can outlive the memory.
    ///
    /// If `f` fails, receives that have not matched are cancelled first. If it panics, too; should a send then find no
    /// receiver within [`Config::unwind_timeout_ms`](crate::Config::unwind_timeout_ms), the process is aborted, since its
    /// memory cannot be given back.
    ///
    /// # Errors
    /// What `f` returns, or the first failure of an operation that `f` did not wait for.
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
    /// Memory that does not live as long as the scope cannot be given to it:
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
    /// nor can memory that is being received into be looked at:
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
            None => Ok(value),
            Some(error) => Err(error.into()),
        }
    }
}

/// Where operations may use borrowed memory: see [`Communicator::scope`].
pub struct Scope<'scope, 'env: 'scope, L: Threads = Single> {
    list: List<L>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What is under way in a scope.
struct List<L: Threads> {
    handle: CommHandle<L>,
    /// The first request in the engine's table of them.
    head: Cell<u32>,
    /// The first failure that nobody was told.
    failed: Cell<Option<Error>>,
}

impl<'scope, L: Threads> Scope<'scope, '_, L> {
    /// Begins to send `data`, which stays borrowed until the scope ends.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    #[inline]
    pub fn isend<T>(&'scope self, dest: u32, tag: u32, data: &'scope T) -> Result<Sent<'scope, L>, Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check(tag)?;
        // SAFETY: the memory is borrowed for the scope, which ends only when all of its requests have.
        unsafe { self.begin_send(dest, tag, Mode::Standard, Span::of(data.as_bytes())) }
    }

    /// As [`isend`](Self::isend), but ends only when the receiver has a receive for it.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn issend<T>(&'scope self, dest: u32, tag: u32, data: &'scope T) -> Result<Sent<'scope, L>, Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check(tag)?;
        // SAFETY: as in `isend`.
        unsafe { self.begin_send(dest, tag, Mode::Synchronous, Span::of(data.as_bytes())) }
    }

    /// Begins to send what a view shows.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn isend_view(&'scope self, dest: u32, tag: u32, view: View<'scope>) -> Result<Sent<'scope, L>, Error> {
        check(tag)?;
        // SAFETY: as in `isend`; the view borrows its layout as long as its memory.
        unsafe { self.begin_send(dest, tag, Mode::Standard, view.span()) }
    }

    /// Begins to receive into `into`, which stays borrowed until the scope ends, or until it comes back from
    /// [`Received::wait`].
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    #[inline]
    pub fn irecv<T>(
        &'scope self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        into: &'scope mut T,
    ) -> Result<Received<'scope, T, L>, Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let len = size_of_val(into);
        let into: *mut T = into;
        // SAFETY: the memory is borrowed for the scope, which ends only when all of its requests have; all of its bytes may
        // be written, and any make a valid `T`.
        let op = unsafe { self.begin_receive(source.into(), tag.into(), Span::contiguous(into.cast(), len)) }?;
        Ok(Received { op, into })
    }

    /// Begins to receive into where a view shows.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn irecv_view(
        &'scope self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        view: ViewMut<'scope>,
    ) -> Result<Received<'scope, (), L>, Error> {
        // SAFETY: as in `irecv`; the view borrows its layout as long as its memory.
        let op = unsafe { self.begin_receive(source.into(), tag.into(), view.span()) }?;
        Ok(Received { op, into: std::ptr::NonNull::dangling().as_ptr() })
    }

    /// # Safety
    /// The span's memory stays readable and unchanged for `'scope`.
    #[inline]
    unsafe fn begin_send(&'scope self, dest: u32, tag: u32, mode: Mode, data: Span) -> Result<Sent<'scope, L>, Error> {
        let list = &self.list;
        let begun = {
            let mut engine = list.handle.context.engine.lock();
            // SAFETY: passed on from the caller: the request is in the scope's list before anything else can happen.
            no_unwind(|| match unsafe { engine.mtl.isend(list.handle.comm, dest, tag, mode, data) } {
                Ok(Sending::Complete) => {
                    engine.more_follows(); // the end of the scope, at the latest
                    Ok(None)
                }
                Ok(Sending::Pending(request)) => Ok(Some(list.begin(&mut engine, request))),
                Err(refusal) => Err(refusal),
            })
        };
        match begun {
            Ok(None) => Ok(Sent { op: Op { list, stage: Stage::Sent } }),
            Ok(Some(request)) => Ok(Sent { op: Op { list, stage: Stage::Begun(request) } }),
            Err(refusal) => Err(list.refusal(refusal, Some(dest))),
        }
    }

    /// # Safety
    /// The span's memory stays writable, and nobody else uses it, for `'scope`, or until the request's outcome is taken.
    #[inline]
    unsafe fn begin_receive(&'scope self, source: Source, tag: Tag, sink: Span) -> Result<Op<'scope, L>, Error> {
        tag.foreign().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        let list = &self.list;
        let begun = {
            let mut engine = list.handle.context.engine.lock();
            no_unwind(|| {
                // SAFETY: passed on from the caller: the request is in the scope's list before anything else can happen.
                let request = unsafe { engine.mtl.irecv(list.handle.comm, source.core(), tag.core(), sink) }?;
                Ok(list.begin(&mut engine, request))
            })
        };
        match begun {
            Ok(request) => Ok(Op { list, stage: Stage::Begun(request) }),
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
    fn wait(&self, request: Request) -> Result<Status, Error> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| engine.wait(request));
        self.end(&mut engine, request);
        self.handle.outcome(&engine, outcome)
    }

    /// Takes an operation's outcome if it is over.
    fn test(&self, request: Request) -> Option<Result<Status, Error>> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| engine.mtl.test(request))?;
        self.end(&mut engine, request);
        Some(self.handle.outcome(&engine, outcome))
    }

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

    /// Waits for all that is under way. Runs no code of users.
    fn wait_all(&self) {
        let mut engine = self.handle.context.engine.lock();
        while let Some((request, _)) = engine.scope_lists.at(self.head.get()) {
            let outcome = engine.wait(request);
            self.end(&mut engine, request);
            if let Err(failure) = outcome {
                self.note(self.handle.failure(&engine, failure));
            }
        }
    }

    fn first(&self) -> Option<(Request, u32)> {
        self.handle.context.engine.lock().scope_lists.at(self.head.get())
    }

    /// Keeps the first failure.
    fn note(&self, error: Error) {
        let first = self.failed.take();
        self.failed.set(first.or(Some(error)));
    }
}

impl<L: Threads> fmt::Debug for Scope<'_, '_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// Ends a scope whose function panics.
struct Unwinding<'a, L: Threads>(&'a List<L>);

impl<L: Threads> Drop for Unwinding<'_, L> {
    fn drop(&mut self) {
        let list = self.0;
        no_unwind(|| {
            list.cancel_all();
            let context = &list.handle.context;
            let deadline = context.engine.lock().deadline(context.config.unwind_timeout_ms);
            while let Some((request, _)) = list.first() {
                let mut engine = context.engine.lock();
                if engine.wait_until(request, deadline).is_none() {
                    eprintln!(
                        "towline: a panic while messages from borrowed memory found no receiver: the process ends"
                    );
                    std::process::abort();
                }
                list.end(&mut engine, request);
            }
        });
    }
}

/// What a completed send says of itself: nothing.
const NOTHING: Status = Status { source: 0, tag: 0, bytes: 0 };

/// An operation of a scope.
struct Op<'scope, L: Threads> {
    list: &'scope List<L>,
    stage: Stage,
}

enum Stage {
    /// It was over when it began. Apart from other outcomes, since it is made for each short message: all that has to be
    /// written is which of these it is.
    Sent,
    Begun(Request),
    Done(Result<Status, Error>),
}

impl<L: Threads> Op<'_, L> {
    #[inline]
    fn wait(self) -> Result<Status, Error> {
        match self.stage {
            Stage::Sent => Ok(NOTHING),
            Stage::Done(outcome) => outcome,
            Stage::Begun(request) => {
                let outcome = self.list.wait(request);
                self.list.handle.context.run_callbacks();
                outcome
            }
        }
    }

    fn is_done(&mut self) -> bool {
        if let Stage::Begun(request) = self.stage {
            self.list.handle.context.progress();
            match self.list.test(request) {
                Some(outcome) => self.stage = Stage::Done(outcome),
                None => return false,
            }
        }
        true
    }
}

/// A send of a scope. It may be dropped: the scope waits for it.
pub struct Sent<'scope, L: Threads = Single> {
    op: Op<'scope, L>,
}

impl<L: Threads> Sent<'_, L> {
    /// Waits until it is over.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn wait(self) -> Result<(), Error> {
        self.op.wait().map(|_| ())
    }

    /// Makes progress, and tells whether it is over; [`wait`](Self::wait) then tells how.
    pub fn is_done(&mut self) -> bool {
        self.op.is_done()
    }
}

impl<L: Threads> fmt::Debug for Sent<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sent").finish_non_exhaustive()
    }
}

/// A receive of a scope. It may be dropped: the scope waits for it.
pub struct Received<'scope, T: ?Sized, L: Threads = Single> {
    op: Op<'scope, L>,
    /// What it receives into, borrowed for the scope.
    into: *mut T,
}

impl<'scope, T: ?Sized, L: Threads> Received<'scope, T, L> {
    /// Waits until it is over: what came, and the memory, which is the caller's again.
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
    pub fn wait(self) -> Result<(Status, &'scope mut T), Error> {
        let status = self.op.wait()?;
        // SAFETY: made from a unique borrow for 'scope, which only the request used since, and that is over.
        Ok((status, unsafe { &mut *self.into }))
    }

    /// Makes progress, and tells whether it is over; [`wait`](Self::wait) then tells how.
    pub fn is_done(&mut self) -> bool {
        self.op.is_done()
    }

    /// Cancels it, if it has not matched a message; tells whether it did. It then ends with [`Error::Cancelled`], which
    /// is the scope's own failure too unless it is waited for here.
    pub fn cancel(&mut self) -> bool {
        let Stage::Begun(request) = self.op.stage else { return false };
        self.op.list.handle.context.engine.lock().mtl.cancel(request)
    }
}

impl<T: ?Sized, L: Threads> fmt::Debug for Received<'_, T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").finish_non_exhaustive()
    }
}
