//! Operations that own their memory: they may be waited for, awaited, or left alone.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Request, Sending};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::CommHandle;
use crate::engine::Engine;
use crate::engine::pending::{DetachedBuffer, Pending};
use crate::errors::error::{Error, Failed};
use crate::operations::communicator::{Communicator, check};
use crate::threads::levels::{MayOwn, Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

/// Memory that an operation may own while it sends from it.
///
/// ```
/// struct Record {
///     header: u32,
///     text: Vec<u8>,
/// }
///
/// impl towline::Buffer for Record {
///     fn bytes(&self) -> &[u8] {
///         &self.text
///     }
/// }
///
/// let world = towline::init()?;
/// let sending = world.isend(0, 1, Record { header: 7, text: b"only this".to_vec() })?;
/// assert_eq!(world.recv_vec::<u8>(0, 1)?.0, b"only this");
/// assert_eq!(sending.wait()?.header, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Buffer: 'static {
    /// The bytes of the message. Asked for once; they must not depend on anything that changes while the buffer is not
    /// touched.
    fn bytes(&self) -> &[u8];
}

/// Memory that an operation may own while it receives into it.
///
/// ```
/// struct Page(Box<[u8]>);
///
/// impl towline::BufferMut for Page {
///     fn bytes_mut(&mut self) -> &mut [u8] {
///         &mut self.0
///     }
/// }
///
/// let world = towline::init()?;
/// let receiving = world.irecv(0, 1, Page(vec![0; 4096].into()))?;
/// world.send(0, 1, b"text")?;
/// assert_eq!(receiving.wait()?.0.0[..4], *b"text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BufferMut: 'static {
    /// The bytes to receive into. Asked for once.
    fn bytes_mut(&mut self) -> &mut [u8];
}

macro_rules! buffers {
    ($([$($generic:tt)*] $type:ty;)*) => {
        $(impl<T: IntoBytes + Immutable + 'static, $($generic)*> Buffer for $type {
            fn bytes(&self) -> &[u8] {
                self[..].as_bytes()
            }
        })*
    };
}

macro_rules! mutable_buffers {
    ($([$($generic:tt)*] $type:ty;)*) => {
        $(impl<T: FromBytes + IntoBytes + 'static, $($generic)*> BufferMut for $type {
            fn bytes_mut(&mut self) -> &mut [u8] {
                self[..].as_mut_bytes()
            }
        })*
    };
}

buffers! {
    [] Vec<T>;
    [] Box<[T]>;
    [const N: usize] [T; N];
    [] Rc<[T]>;
    [] Arc<[T]>;
    [] Arc<Vec<T>>;
    [] &'static [T];
}

mutable_buffers! {
    [] Vec<T>;
    [] Box<[T]>;
    [const N: usize] [T; N];
}

impl Buffer for String {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<L: Threads> Communicator<L> {
    /// Begins to send a buffer, which comes back when that is over: see [`Sending`](SendRequest).
    ///
    /// # Errors
    /// As [`send`](Self::send), with the buffer.
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

    /// As [`isend`](Self::isend), but over only when the receiver has a receive for it.
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
        if let Err(error) = check(tag) {
            return Err(Failed { error, buffer });
        }
        let held = Boxed::new(buffer);
        // SAFETY: nobody but the operation uses the buffer from now on.
        let data = Span::of(unsafe { held.0.as_ref() }.bytes());
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the buffer stays where it is, untouched, until its request is over: see `Op`.
        match no_unwind(|| unsafe { engine.mtl.isend(self.handle.comm, dest, tag, mode, data) }) {
            Ok(Sending::Complete) => Ok(SendRequest(Op::over(held, Ok(NOTHING), &self.handle))),
            Ok(Sending::Pending(request)) => Ok(SendRequest(Op::begun(held, request, &self.handle))),
            Err(why) => {
                let error = self.handle.refusal(&engine, why, Some(dest));
                drop(engine);
                Err(Failed { error, buffer: held.into_inner() })
            }
        }
    }

    /// Begins to receive into a buffer, which comes back when that is over: see [`Receiving`](RecvRequest).
    ///
    /// # Errors
    /// As [`recv`](Self::recv), with the buffer. For an example see [`isend`](Self::isend).
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
        if let Some(tag) = tag.foreign() {
            return Err(Failed { error: Error::NoSuchTag(tag), buffer });
        }
        let mut held = Boxed::new(buffer);
        // SAFETY: nobody but the operation uses the buffer from now on.
        let bytes = unsafe { held.0.as_mut() }.bytes_mut();
        let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the buffer stays where it is, untouched, until its request is over: see `Op`.
        match no_unwind(|| unsafe { engine.mtl.irecv(self.handle.comm, source.core(), tag.core(), sink) }) {
            Ok(request) => Ok(RecvRequest(Op::begun(held, request, &self.handle))),
            Err(why) => {
                let error = self.handle.refusal(&engine, why, source.rank());
                drop(engine);
                Err(Failed { error, buffer: held.into_inner() })
            }
        }
    }
}

/// A send that owns its buffer. It can be waited for, or awaited, with the buffer as the result.
///
/// If it is dropped the message goes on its way all the same, and the buffer is freed when it has left.
///
/// ```
/// let world = towline::init()?;
/// drop(world.isend(0, 1, vec![7u8; 100_000])?);
/// let (buffer, _) = world.recv_vec::<u8>(0, 1)?;
/// assert_eq!(buffer, [7; 100_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, it goes on, but nobody learns how it ends"]
pub struct SendRequest<B: 'static, L: Threads = Single>(Op<B, L>);

/// A receive that owns its buffer. It can be waited for, or awaited, with buffer and status as the result.
///
/// If it is dropped it is cancelled; where a message matched already, that is received and thrown away with the buffer.
///
/// ```
/// let world = towline::init()?;
/// drop(world.irecv(0, 1, vec![0u8; 4])?);
/// world.send(0, 1, b"kept")?; // not for the receive that went
/// assert_eq!(world.recv_vec::<u8>(0, 1)?.0, b"kept");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, it is cancelled"]
pub struct RecvRequest<B: 'static, L: Threads = Single>(Op<B, L>);

impl<B, L: Threads> SendRequest<B, L> {
    /// Waits until it is over; gives the buffer back.
    ///
    /// # Errors
    /// As [`Communicator::send`], with the buffer.
    pub fn wait(mut self) -> Result<B, Failed<B>> {
        let (buffer, outcome) = self.0.wait();
        finish(buffer, outcome).map(|(buffer, _)| buffer)
    }

    /// Makes progress, and tells whether it is over.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut sending = world.issend(0, 1, vec![1u8])?;
    /// assert!(!sending.is_done()); // nobody receives
    /// world.recv(0, 1, &mut [0u8])?;
    /// while !sending.is_done() {}
    /// assert_eq!(sending.wait()?, [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_done(&mut self) -> bool {
        self.0.is_done()
    }
}

impl<B, L: Threads> RecvRequest<B, L> {
    /// Waits until it is over; gives the buffer back, and tells what came.
    ///
    /// # Errors
    /// As [`Communicator::recv`], with the buffer.
    pub fn wait(mut self) -> Result<(B, Status), Failed<B>> {
        let (buffer, outcome) = self.0.wait();
        finish(buffer, outcome)
    }

    /// Makes progress, and tells whether it is over.
    pub fn is_done(&mut self) -> bool {
        self.0.is_done()
    }

    /// Cancels it, if it has not matched a message; tells whether it did. It then ends with [`Error::Cancelled`].
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
        let Stage::Begun(request) = self.0.stage else { return false };
        self.0.handle.context.engine.lock().mtl.cancel(request)
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
        self.cancel();
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

/// What a completed send says of itself: nothing.
const NOTHING: Status = Status { source: 0, tag: 0, bytes: 0 };

/// A buffer at an address of its own, which nothing but an operation uses.
struct Boxed<B>(NonNull<B>);

// SAFETY: as a box of its own.
unsafe impl<B: Send> Send for Boxed<B> {}

impl<B> Boxed<B> {
    fn new(buffer: B) -> Self {
        Self(NonNull::from(Box::leak(Box::new(buffer))))
    }

    /// The buffer. Leaks unless called, or given to an [`UnackedFrame`].
    fn into_inner(self) -> B {
        // SAFETY: made from a box in `new`, and `self` is the only one that knows of it.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// An operation with its buffer. The buffer leaves only when the request is over: to whoever waits, or to be freed.
struct Op<B: 'static, L: Threads> {
    buffer: Option<Boxed<B>>,
    stage: Stage,
    handle: CommHandle<L>,
}

enum Stage {
    Begun(Request),
    Over(Option<Result<Status, Error>>),
}

impl<B, L: Threads> Op<B, L> {
    fn begun(buffer: Boxed<B>, request: Request, handle: &CommHandle<L>) -> Self {
        Self { buffer: Some(buffer), stage: Stage::Begun(request), handle: handle.clone() }
    }

    fn over(buffer: Boxed<B>, outcome: Result<Status, Error>, handle: &CommHandle<L>) -> Self {
        Self { buffer: Some(buffer), stage: Stage::Over(Some(outcome)), handle: handle.clone() }
    }

    /// Buffer and outcome of an operation that is over. A future that is polled again has none.
    fn take(&mut self) -> Option<(B, Result<Status, Error>)> {
        let Stage::Over(outcome) = &mut self.stage else { return None };
        let outcome = outcome.take()?;
        Some((self.buffer.take()?.into_inner(), outcome))
    }

    fn wait(&mut self) -> (B, Result<Status, Error>) {
        if let Stage::Begun(request) = self.stage {
            let mut engine = self.handle.context.engine.lock();
            let outcome = no_unwind(|| engine.wait(request));
            let waker = forget(&mut engine, request);
            self.stage = Stage::Over(Some(self.handle.outcome(&engine, outcome)));
            drop(engine);
            drop(waker);
            self.handle.context.run_callbacks();
        }
        self.take().expect("a future is not used any more once it was ready")
    }

    /// Takes the outcome if there is one.
    fn test(&mut self) -> bool {
        let Stage::Begun(request) = self.stage else { return true };
        let mut engine = self.handle.context.engine.lock();
        let Some(outcome) = engine.mtl.test(request) else { return false };
        let waker = forget(&mut engine, request);
        self.stage = Stage::Over(Some(self.handle.outcome(&engine, outcome)));
        drop(engine);
        drop(waker);
        true
    }

    fn is_done(&mut self) -> bool {
        self.test() || {
            self.handle.context.progress();
            self.test()
        }
    }

    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<(B, Result<Status, Error>)> {
        if self.is_done() {
            return Poll::Ready(self.take().expect("a future is not polled any more once it was ready"));
        }
        if let Stage::Begun(request) = self.stage {
            let waker = Pending::Waker(task.waker().clone());
            let mut engine = self.handle.context.engine.lock();
            let former = engine.pending.entries.insert(request.to_bits(), waker);
            engine.mtl.pml().notify(request);
            drop(engine);
            drop(former); // code of users
        }
        Poll::Pending
    }
}

/// Forgets who waits for a request; what comes back is to be dropped when the engine is free.
#[must_use]
fn forget(engine: &mut Engine, request: Request) -> Option<Pending> {
    if engine.pending.entries.is_empty() { None } else { engine.pending.entries.remove(&request.to_bits()) }
}

impl<B, L: Threads> Drop for Op<B, L> {
    fn drop(&mut self) {
        if !self.test()
            && let Stage::Begun(request) = self.stage
            && let Some(Boxed(buffer)) = self.buffer.take()
        {
            // SAFETY: the buffer came from a box, and was taken out of here.
            let buffer = unsafe { DetachedBuffer::new(buffer) };
            let mut engine = self.handle.context.engine.lock();
            let former = engine.pending.entries.insert(request.to_bits(), Pending::Buffer(buffer));
            engine.mtl.pml().notify(request);
            drop(engine);
            drop(former);
        }
        if let Some(buffer) = self.buffer.take() {
            drop(buffer.into_inner());
        }
    }
}
