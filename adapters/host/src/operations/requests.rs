//! Operations that own their buffer. A request stands for such an operation: it may be waited for, awaited, or dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Once;
use std::task::{Context as TaskContext, Poll};

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Request, Sending};

use crate::context::handle::CommHandle;
use crate::engine::Engine;
use crate::engine::pending::{DetachedBuffer, FormerEntry, Pending};
use crate::errors::error::{Error, Failed};
use crate::operations::buffer::{Buffer, BufferMut};
use crate::operations::communicator::{Communicator, check_tag};
use crate::operations::completion::{Completion, Pending as PendingOperation};
use crate::threads::levels::{MayOwn, Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// Begins to send a buffer: `MPI_Isend`. The request owns the buffer and gives it back at the end.
    ///
    /// # Errors
    /// As [`send`](Self::send). The error has the buffer.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let sending = world.isend(0, 5, vec![1u64; 100])?;
    /// let receiving = world.irecv(0, 5, vec![0u64; 200])?;
    /// let (buffer, status) = receiving.wait()?;
    /// assert_eq!((status.count::<u64>(), buffer[99]), (100, 1));
    /// let buffer = sending.wait()?; // may be used again
    /// assert_eq!(buffer.len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn isend<B: Buffer>(&self, dest: u32, tag: u32, buffer: B) -> Result<SendRequest<B, L>, Failed<B>>
    where
        L: MayOwn<B>,
    {
        self.isend_in(Mode::Standard, dest, tag, buffer)
    }

    /// As [`isend`](Self::isend), but complete only when a receive has matched the message: `MPI_Issend`.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn issend<B: Buffer>(&self, dest: u32, tag: u32, buffer: B) -> Result<SendRequest<B, L>, Failed<B>>
    where
        L: MayOwn<B>,
    {
        self.isend_in(Mode::Synchronous, dest, tag, buffer)
    }

    fn isend_in<B: Buffer>(&self, mode: Mode, dest: u32, tag: u32, buffer: B) -> Result<SendRequest<B, L>, Failed<B>> {
        if let Err(error) = check_tag(tag) {
            return Err(Failed { error, buffer });
        }
        let boxed = BoxedBuffer::new(buffer);
        // SAFETY: only the operation uses the buffer from now on.
        let data = Span::of(unsafe { boxed.0.as_ref() }.bytes());
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the buffer keeps its address, and no code accesses it, until its request is complete: see `Operation`.
        match no_unwind(|| unsafe { engine.mtl.isend(self.handle.comm, dest, tag, mode, data) }) {
            Ok(Sending::Complete) => Ok(SendRequest(Operation::complete(boxed, Ok(Status::EMPTY), &self.handle))),
            Ok(Sending::Pending(request)) => Ok(SendRequest(Operation::started(boxed, request, &self.handle))),
            Err(why) => {
                let error = self.handle.refusal(&engine, why, Some(dest)).of_message(tag, data.len());
                drop(engine);
                Err(Failed { error, buffer: boxed.into_inner() })
            }
        }
    }

    /// Begins to receive into a buffer: `MPI_Irecv`. The request owns the buffer and gives it back at the end.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). The error has the buffer. For an example see [`isend`](Self::isend).
    pub fn irecv<B: BufferMut>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: B,
    ) -> Result<RecvRequest<B, L>, Failed<B>>
    where
        L: MayOwn<B>,
    {
        let (source, tag) = (source.into(), tag.into());
        if let Some(tag) = tag.reserved() {
            return Err(Failed { error: Error::NoSuchTag(tag), buffer });
        }
        let mut boxed = BoxedBuffer::new(buffer);
        // SAFETY: only the operation uses the buffer from now on.
        let bytes = unsafe { boxed.0.as_mut() }.bytes_mut();
        let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the buffer keeps its address, and no code accesses it, until its request is complete: see `Operation`.
        match no_unwind(|| unsafe { engine.mtl.irecv(self.handle.comm, source.core(), tag.core(), sink) }) {
            Ok(request) => Ok(RecvRequest(Operation::started(boxed, request, &self.handle))),
            Err(why) => {
                let error = self.handle.refusal(&engine, why, source.rank());
                drop(engine);
                Err(Failed { error, buffer: boxed.into_inner() })
            }
        }
    }
}

/// A send in progress that owns its buffer: made by [`isend`](Communicator::isend) and [`issend`](Communicator::issend). It can
/// be waited for, or awaited as a future. Both return the buffer.
///
/// If the request is dropped, the message is still sent, and the buffer is freed afterwards.
///
/// ```
/// let world = towline::init()?;
/// drop(world.isend(0, 1, vec![7u8; 100_000])?);
/// let (buffer, _) = world.recv_vec::<u8>(0, 1)?;
/// assert_eq!(buffer, [7; 100_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a send that is dropped goes on, but its outcome is lost"]
pub struct SendRequest<B: 'static, L: Threads = Single>(Operation<B, L>);

/// A receive in progress that owns its buffer: made by [`irecv`](Communicator::irecv). It can be waited for, or awaited as a
/// future. Both return the buffer and the status.
///
/// If the request is dropped, the receive is cancelled. If a message has matched already, that message is received and discarded.
///
/// ```
/// let world = towline::init()?;
/// drop(world.irecv(0, 1, vec![0u8; 4])?);
/// world.send(0, 1, b"kept")?; // not for the receive that was dropped
/// assert_eq!(world.recv_vec::<u8>(0, 1)?.0, b"kept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a receive that is dropped is cancelled"]
pub struct RecvRequest<B: 'static, L: Threads = Single>(Operation<B, L>);

impl<B, L: Threads> SendRequest<B, L> {
    /// Waits until the send is complete. Returns the buffer.
    ///
    /// # Errors
    /// As [`Communicator::send`]. The error has the buffer.
    pub fn wait(mut self) -> Result<B, Failed<B>> {
        let (buffer, outcome) = self.0.wait();
        finish(buffer, outcome).map(|(buffer, _)| buffer)
    }

    /// Makes progress once. Returns whether the send is complete.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut sending = world.issend(0, 1, vec![1u8])?;
    /// assert!(!sending.is_done()); // no receive is posted
    /// world.recv(0, 1, &mut [0u8])?;
    /// while !sending.is_done() {}
    /// assert_eq!(sending.wait()?, [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_done(&mut self) -> bool {
        self.0.is_done()
    }

    /// Cancels the send, if nothing of the message has left: `MPI_Cancel`. Returns whether it was cancelled; it then ends with
    /// [`Error::Cancelled`], and the other rank learns nothing of it.
    ///
    /// A message leaves at once, or is announced at once if it is long or synchronous, as long as the other rank has room for
    /// messages that it has not received. So this cancels only a send that is held back: by this limit, or because the transport
    /// has no room or is not connected. A send that has left or is announced cannot be cancelled, even if no receive has matched
    /// it. It goes on as if this had not been called.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut announced = world.issend(0, 1, vec![1u8])?;
    /// assert!(!announced.cancel()); // this rank knows of the message already
    /// world.recv(0, 1, &mut [0u8])?;
    /// assert_eq!(announced.wait()?, [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self) -> bool {
        let Stage::InProgress(request) = self.0.stage else { return false };
        self.0.handle.context.engine.lock().mtl.cancel_send(request)
    }
}

impl<B, L: Threads> RecvRequest<B, L> {
    /// Waits until the receive is complete. Returns the buffer and the status.
    ///
    /// # Errors
    /// As [`Communicator::recv`]. The error has the buffer.
    pub fn wait(mut self) -> Result<(B, Status), Failed<B>> {
        let (buffer, outcome) = self.0.wait();
        finish(buffer, outcome)
    }

    /// Makes progress once. Returns whether the receive is complete.
    pub fn is_done(&mut self) -> bool {
        self.0.is_done()
    }

    /// Cancels the receive, if no message has matched it: `MPI_Cancel`. Returns whether it was cancelled; it then ends with
    /// [`Error::Cancelled`].
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut receiving = world.irecv(0, 1, vec![0u8; 4])?;
    /// assert!(receiving.cancel());
    /// let failed = receiving.wait().unwrap_err();
    /// assert_eq!((failed.error, failed.buffer), (towline::Error::Cancelled, vec![0; 4]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self) -> bool {
        let Stage::InProgress(request) = self.0.stage else { return false };
        self.0.handle.context.engine.lock().mtl.cancel(request)
    }
}

impl<B, L: Threads> Completion<L> for SendRequest<B, L> {}
impl<B, L: Threads> Completion<L> for RecvRequest<B, L> {}

impl<B, L: Threads> PendingOperation<L> for SendRequest<B, L> {
    fn handle(&self) -> &CommHandle<L> {
        &self.0.handle
    }

    fn request(&self) -> Option<Request> {
        self.0.request()
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn test(&mut self) -> bool {
        self.0.test(false)
    }
}

impl<B, L: Threads> PendingOperation<L> for RecvRequest<B, L> {
    fn handle(&self) -> &CommHandle<L> {
        &self.0.handle
    }

    fn request(&self) -> Option<Request> {
        self.0.request()
    }

    fn is_active(&self) -> bool {
        self.0.is_active()
    }

    fn test(&mut self) -> bool {
        self.0.test(false)
    }
}

impl<B, L: Threads> Future for SendRequest<B, L> {
    type Output = Result<B, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.poll(task).map(|(buffer, outcome)| finish(buffer, outcome).map(|(buffer, _)| buffer))
    }
}

impl<B, L: Threads> Future for RecvRequest<B, L> {
    type Output = Result<(B, Status), Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.poll(task).map(|(buffer, outcome)| finish(buffer, outcome))
    }
}

impl<B, L: Threads> Drop for RecvRequest<B, L> {
    fn drop(&mut self) {
        let Stage::InProgress(request) = self.0.stage else { return };
        let mut engine = self.0.handle.context.engine.lock();
        // No task waits any more, so none is woken by the cancellation.
        let entry = remove_pending(&mut engine, request);
        engine.mtl.cancel(request);
        engine.returns_soon();
        drop(engine);
        drop(entry);
    }
}

impl<B, L: Threads> fmt::Debug for SendRequest<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest").finish_non_exhaustive()
    }
}

impl<B, L: Threads> fmt::Debug for RecvRequest<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvRequest").finish_non_exhaustive()
    }
}

fn finish<B>(buffer: B, outcome: Result<Status, Error>) -> Result<(B, Status), Failed<B>> {
    match outcome {
        Ok(status) => Ok((buffer, status)),
        Err(error) => Err(Failed { error, buffer }),
    }
}

/// A buffer at an address that does not change. While an operation is in progress, only the operation uses it.
pub(crate) struct BoxedBuffer<B>(NonNull<B>);

// SAFETY: it owns the buffer as a `Box<B>` does, which is `Send` if `B` is.
unsafe impl<B: Send> Send for BoxedBuffer<B> {}

impl<B> BoxedBuffer<B> {
    pub fn new(buffer: B) -> Self {
        Self(NonNull::from(Box::leak(Box::new(buffer))))
    }

    /// # Safety
    /// No operation is in progress.
    pub unsafe fn get(&self) -> &B {
        // SAFETY: made from a box in `new`; the caller's promise.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// No operation is in progress.
    pub unsafe fn get_mut(&mut self) -> &mut B {
        // SAFETY: made from a box in `new`; the caller's promise.
        unsafe { self.0.as_mut() }
    }

    /// The owner of the buffer without its type.
    pub fn detach(self, ends_by_itself: bool) -> DetachedBuffer {
        // SAFETY: the buffer came from a box, and only `self` has its address.
        unsafe { DetachedBuffer::new(self.0, ends_by_itself) }
    }

    /// The buffer. It leaks unless this or [`detach`](Self::detach) is called.
    pub fn into_inner(self) -> B {
        // SAFETY: made from a box in `new`, and only `self` has the address.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// An operation with its buffer. The buffer leaves only when the request is complete: it is returned, or freed.
pub(super) struct Operation<B: 'static, L: Threads> {
    pub buffer: Option<BoxedBuffer<B>>,
    pub stage: Stage,
    pub handle: CommHandle<L>,
}

pub(super) enum Stage {
    InProgress(Request),
    Complete(Option<Result<Status, Error>>),
}

impl<B, L: Threads> Operation<B, L> {
    fn started(buffer: BoxedBuffer<B>, request: Request, handle: &CommHandle<L>) -> Self {
        Self { buffer: Some(buffer), stage: Stage::InProgress(request), handle: handle.clone() }
    }

    fn complete(buffer: BoxedBuffer<B>, outcome: Result<Status, Error>, handle: &CommHandle<L>) -> Self {
        Self { buffer: Some(buffer), stage: Stage::Complete(Some(outcome)), handle: handle.clone() }
    }

    /// The buffer and the outcome of a complete operation, once. `None` for a future that is polled again after it was ready.
    fn take(&mut self) -> Option<(B, Result<Status, Error>)> {
        let Stage::Complete(outcome) = &mut self.stage else { return None };
        let outcome = outcome.take()?;
        Some((self.buffer.take()?.into_inner(), outcome))
    }

    fn wait(&mut self) -> (B, Result<Status, Error>) {
        self.complete_now();
        self.take().expect("a future that was ready is not used again")
    }

    /// The request, while it is in progress.
    pub fn request(&self) -> Option<Request> {
        if let Stage::InProgress(request) = self.stage { Some(request) } else { None }
    }

    /// Whether its outcome is still to be taken.
    pub fn is_active(&self) -> bool {
        !matches!(self.stage, Stage::Complete(None))
    }

    /// Waits until the operation is complete.
    pub fn complete_now(&mut self) {
        if let Stage::InProgress(request) = self.stage {
            let mut engine = self.handle.context.engine.lock();
            let outcome = no_unwind(|| engine.wait(request));
            let waker = remove_pending(&mut engine, request);
            self.stage = Stage::Complete(Some(self.handle.outcome(&engine, outcome)));
            drop(engine);
            drop(waker);
            self.handle.context.run_callbacks();
        }
    }

    /// Takes the outcome, if the operation is complete. Returns whether it is. `returns_soon`: if it is not, the thread uses the
    /// engine again soon.
    pub fn test(&mut self, returns_soon: bool) -> bool {
        let Stage::InProgress(request) = self.stage else { return true };
        let mut engine = self.handle.context.engine.lock();
        let Some(outcome) = engine.mtl.test(request) else {
            if returns_soon {
                engine.returns_soon();
            }
            return false;
        };
        let waker = remove_pending(&mut engine, request);
        self.stage = Stage::Complete(Some(self.handle.outcome(&engine, outcome)));
        drop(engine);
        drop(waker);
        true
    }

    pub fn is_done(&mut self) -> bool {
        self.test(true) || {
            self.handle.context.progress();
            self.test(false)
        }
    }

    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<(B, Result<Status, Error>)> {
        let mut polls = 0;
        while !self.test(true) {
            if polls == MAX_POLLS || self.handle.context.progress_for_task() == 0 {
                return match self.test(true) {
                    true => Poll::Ready(self.take_again()),
                    false => self.register(task),
                };
            }
            polls += 1;
        }
        Poll::Ready(self.take_again())
    }

    fn take_again(&mut self) -> (B, Result<Status, Error>) {
        self.take().expect("a future that was ready is not polled again")
    }

    /// Registers the task to be woken when the operation is complete.
    fn register(&mut self, task: &TaskContext<'_>) -> Poll<(B, Result<Status, Error>)> {
        let Stage::InProgress(request) = self.stage else { return Poll::Pending };
        let waker = task.waker();
        let mut engine = self.handle.context.engine.lock();
        let former = if engine.has_driver(waker) {
            let entry = engine.pending.entries.insert(request.to_bits(), Pending::Waker(waker.clone()));
            Ok(FormerEntry { _waker: None, _entry: entry })
        } else {
            engine.watch_task(request, waker.clone())
        };
        engine.mtl.pml().notify(request);
        drop(engine);
        if let Err(why) = former {
            static WARN: Once = Once::new();
            WARN.call_once(|| {
                log::warn!("a task that awaits an operation polls all the time, since nothing can wake it: {why}");
            });
            waker.wake_by_ref();
        }
        Poll::Pending
    }
}

/// After this many polls of the engine in which something came, a task lets other tasks run.
const MAX_POLLS: u32 = 256;

/// Removes the pending entry of a request. The result must be dropped without the lock, since that runs code of users.
#[must_use]
fn remove_pending(engine: &mut Engine, request: Request) -> Option<Pending> {
    if engine.pending.entries.is_empty() { None } else { engine.pending.entries.remove(&request.to_bits()) }
}

impl<B, L: Threads> Drop for Operation<B, L> {
    fn drop(&mut self) {
        if !self.test(true)
            && let Stage::InProgress(request) = self.stage
            && let Some(buffer) = self.buffer.take()
        {
            let mut engine = self.handle.context.engine.lock();
            let ends_by_itself = engine.mtl.pml().peer_of(request) != Some(self.handle.context.own_peer());
            engine.pending.dropped += u32::from(ends_by_itself);
            let detached = buffer.detach(ends_by_itself);
            let former = engine.pending.entries.insert(request.to_bits(), Pending::Buffer(detached));
            engine.mtl.pml().notify(request);
            drop(engine);
            drop(former);
        }
        if let Some(buffer) = self.buffer.take() {
            drop(buffer.into_inner());
        }
    }
}
