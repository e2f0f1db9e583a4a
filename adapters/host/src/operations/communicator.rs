//! Messages among the ranks of a communicator: blocking operations.

use std::fmt;
use std::ops::Deref;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal, Sending};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::{ALL_CONTEXTS_ID, CommHandle, RankMap};
use crate::context::state::ContextState;
use crate::errors::error::Error;
use crate::operations::free_requests::wait_for_requests;
use crate::operations::views::{View, ViewMut};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::address::Address;
use crate::values::message::{Source, Status, TAG_MAX, Tag};
use crate::waiting::no_unwind::no_unwind;

/// A group of ranks that send messages to each other, separate from all other communicators. Ranks are numbered from 0 to
/// [`size`](Self::size) - 1.
///
/// **Data** is sent as bytes. It is any type of plain data in the sense of [`zerocopy`]: integers, floats, arrays and slices of
/// them, and structures that derive its traits. Sender and receiver need not use the same type. Lengths are in bytes.
///
/// **Order.** Messages from one rank to another whose tags match the same receive are received in the order in which they were
/// sent.
///
/// **Progress.** A blocking operation makes progress for all operations of its context.
///
/// **Threads.** A communicator is used by one thread, or by several if its world is of [`Multiple`](crate::Multiple) threads.
///
/// ```
/// use towline::Any;
///
/// let world = towline::init()?; // a world is a communicator, too
/// world.send(0, 7, b"hello")?;
/// let mut into = [0u8; 16];
/// let status = world.recv(Any, 7, &mut into)?;
/// assert_eq!((status.source, &into[..5]), (0, &b"hello"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Communicator<L: Threads = Single> {
    pub(crate) handle: CommHandle<L>,
    pub(crate) rank: u32,
    pub(crate) context_id: u32,
}

impl<L: Threads> Communicator<L> {
    pub(crate) fn new(
        context: L::Ref<ContextState<L>>,
        comm: towline_core::mtl::Comm,
        rank: u32,
        size: u32,
        rank_map: RankMap,
        context_id: u32,
    ) -> Self {
        let lasting = context_id <= ALL_CONTEXTS_ID;
        let handle = CommHandle { context, comm, size, rank_map, lasting, tag_max: TAG_MAX };
        Self { handle, rank, context_id }
    }

    /// Checks a tag of a send on memory of the caller.
    #[inline]
    pub(crate) fn check_tag(&self, tag: u32) -> Result<(), Error> {
        if tag > self.handle.tag_max { Err(Error::NoSuchTag(tag)) } else { Ok(()) }
    }

    /// Checks the tag of a receive on memory of the caller, or of a probe.
    #[inline]
    pub(crate) fn check_tag_pattern(&self, tag: Tag) -> Result<(), Error> {
        match tag {
            Tag::Is(tag) => self.check_tag(tag),
            Tag::Any => Ok(()),
        }
    }

    /// The rank of this context.
    ///
    /// ```
    /// let world = towline::init()?; // not started by a launcher: a world of one rank
    /// assert_eq!((world.rank(), world.size()), (0, 1));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks the communicator has.
    #[inline]
    pub fn size(&self) -> u32 {
        self.handle.size
    }

    /// The address of a rank: its process, and the index of its context. Without [contexts](crate::Builder::contexts) the index
    /// is 0.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    ///
    /// ```
    /// use towline::Address;
    ///
    /// let world = towline::init()?;
    /// assert_eq!(world.address_of(0)?, Address { rank: 0, index: 0 });
    /// assert_eq!(world.rank_of((0, 0))?, 0);
    /// assert!(world.rank_of((0, 1)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn address_of(&self, rank: u32) -> Result<Address, Error> {
        self.handle.context.check_process()?;
        self.handle.address(rank).ok_or(Error::NoSuchRank { rank, size: self.handle.size })
    }

    /// The rank of an address, to send to it. For an example see [`address_of`](Self::address_of).
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] if this communicator does not include the address.
    pub fn rank_of(&self, address: impl Into<Address>) -> Result<u32, Error> {
        self.handle.context.check_process()?;
        let address = address.into();
        self.handle.rank_at(address).ok_or(Error::NoSuchAddress(address))
    }

    /// Sends `data` to rank `dest`, and returns when `data` may be changed: `MPI_Send`. A short message may then still be in
    /// transit; a long one has been received.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] and [`Error::NoSuchTag`]; [`Error::PeerFailed`] if the other rank was lost; [`Error::Restarted`] if
    /// it was restarted since the communicator was made; [`Error::Busy`] if as many operations are in progress as
    /// [`Config::requests`](crate::Config::requests) allows. As long as one of these may end without a further call by this
    /// thread, because it was dropped or another thread waits for it, the send waits for that instead.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let next = (world.rank() + 1) % world.size();
    /// world.send(next, 7, b"hello")?;
    /// world.send(next, 8, &[1.0f64, 2.0][..])?;
    /// # let mut into = [0u8; 16];
    /// # assert_eq!(world.recv(towline::Any, 7, &mut into)?.bytes, 5);
    /// # assert_eq!(world.recv(towline::Any, 8, &mut into)?.bytes, 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn send<T>(&self, dest: u32, tag: u32, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check_tag(tag)?;
        // SAFETY: `data` is borrowed until this returns.
        unsafe { self.send_span(dest, tag, Mode::Standard, Span::of(data.as_bytes())) }
    }

    /// A synchronous send, `MPI_Ssend`: as [`send`](Self::send), but returns only when a receive has matched the message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut into = [0u32; 1];
    /// world.scope(|s| {
    ///     s.irecv(0, 1, &mut into)?; // without it, the send would wait forever
    ///     world.ssend(0, 1, &[5u32])
    /// })?;
    /// assert_eq!(into, [5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ssend<T>(&self, dest: u32, tag: u32, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check_tag(tag)?;
        // SAFETY: `data` is borrowed until this returns.
        unsafe { self.send_span(dest, tag, Mode::Synchronous, Span::of(data.as_bytes())) }
    }

    /// Sends the bytes of a view, gathered from the buffer.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// ```
    /// use towline::{View, ViewMut, vector};
    ///
    /// let world = towline::init()?;
    /// let matrix: [u32; 12] = std::array::from_fn(|i| i as u32); // 3 rows, 4 columns
    /// let column = vector::<u32>(3, 1, 4)?;
    /// world.send_view(0, 0, View::new(&matrix, 1, &column)?)?;
    /// let mut back = [0u32; 12];
    /// world.recv_view(0, 0, ViewMut::new(&mut back, 2, &column)?)?;
    /// assert_eq!(back, [0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_view(&self, dest: u32, tag: u32, view: View<'_>) -> Result<(), Error> {
        check_tag(tag)?;
        // SAFETY: the view borrows its memory until this returns.
        unsafe { self.send_span(dest, tag, Mode::Standard, view.span()) }
    }

    /// Receives a message from `source` with `tag` into `into`, which may be longer than the message: `MPI_Recv`.
    ///
    /// Messages from one source are received in the order in which they were sent. From any source, messages of a rank that
    /// failed may be [missing](Self::acknowledge_failures) between others.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `into` is too short. [`Error::PeerFailed`] if the source was lost or has ended; from any source,
    /// if some rank failed and the failure was not [acknowledged](Self::acknowledge_failures). Otherwise as [`send`](Self::send).
    ///
    /// ```
    /// use towline::Any;
    ///
    /// let world = towline::init()?;
    /// world.send(0, 7, &[1u16, 2, 3])?;
    /// let mut into = [0u16; 10];
    /// let status = world.recv(Any, 7, &mut into)?;
    /// assert_eq!((status.source, status.count::<u16>()), (0, 3));
    /// assert_eq!(into[..3], [1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn recv<T>(&self, source: impl Into<Source>, tag: impl Into<Tag>, into: &mut T) -> Result<Status, Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let into = into.as_mut_bytes();
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        // SAFETY: `into` is borrowed until this returns, and any bytes make a valid `T`.
        unsafe { self.recv_span(source.into(), tag.into(), sink) }
    }

    /// Receives a message of any length, into memory that is allocated for it. Bytes at the end that do not make a whole item of
    /// type `T` are discarded.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). [`Error::NoMemory`] if there is not enough memory; the message is then lost.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, &[1u32, 2, 3])?;
    /// let (numbers, status) = world.recv_vec::<u32>(0, 7)?;
    /// assert_eq!((numbers, status.tag), (vec![1, 2, 3], 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recv_vec<T>(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<(Vec<T>, Status), Error>
    where
        T: FromBytes + IntoBytes + Copy,
    {
        let message = self.mprobe(source, tag)?;
        let count = (message.envelope().bytes as usize).div_ceil(size_of::<T>().max(1));
        // The sender decides about the length. This process must not abort if that is more than the free memory.
        let mut items = T::new_vec_zeroed(count).map_err(|_| Error::NoMemory { bytes: message.envelope().bytes })?;
        let status = message.recv(&mut items[..])?;
        items.truncate(status.count::<T>());
        Ok((items, status))
    }

    /// Receives a message into the bytes of a view.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). For an example see [`send_view`](Self::send_view).
    pub fn recv_view(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        view: ViewMut<'_>,
    ) -> Result<Status, Error> {
        let tag = tag.into();
        self.check_tag_pattern(tag)?;
        // SAFETY: the view borrows its memory until this returns.
        unsafe { self.recv_span_unchecked(source.into(), tag, view.span()) }
    }

    /// Sends and receives at the same time, so two ranks that call this for each other do not deadlock: `MPI_Sendrecv`.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`recv`](Self::recv). After an error neither the send nor the receive is in progress.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (left, right) = ((world.rank() + world.size() - 1) % world.size(), (world.rank() + 1) % world.size());
    /// let mut from_left = [0u32];
    /// world.sendrecv(&[world.rank()], right, 4, &mut from_left, left, 4)?;
    /// assert_eq!(from_left, [left]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sendrecv<S, R>(
        &self,
        data: &S,
        dest: u32,
        send_tag: u32,
        into: &mut R,
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status, Error>
    where
        S: IntoBytes + Immutable + ?Sized,
        R: FromBytes + IntoBytes + ?Sized,
    {
        check_tag(send_tag)?;
        let recv_tag = recv_tag.into();
        recv_tag.reserved().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        let into = into.as_mut_bytes();
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        // SAFETY: both are borrowed until this returns.
        unsafe { self.exchange(Span::of(data.as_bytes()), dest, send_tag, sink, source.into(), recv_tag, true) }
    }

    /// # Safety
    /// The span's memory stays readable and unchanged until this returns.
    #[inline]
    pub(crate) unsafe fn send_span(&self, dest: u32, tag: u32, mode: Mode, data: Span) -> Result<(), Error> {
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the caller's promise; a request is waited for before this returns, and nothing unwinds.
        let sending = no_unwind(|| unsafe { engine.mtl.isend(self.handle.comm, dest, tag, mode, data) });
        match sending {
            Ok(Sending::Complete) => Ok(()),
            Ok(Sending::Pending(request)) => {
                let outcome = no_unwind(|| engine.wait(request));
                let outcome = self.handle.outcome(&engine, outcome).map(|_| ());
                drop(engine);
                self.handle.context.run_callbacks();
                outcome
            }
            Err(Refusal::Busy) => {
                drop(engine);
                // SAFETY: the caller's promise.
                unsafe { self.send_when_free(dest, tag, mode, data) }
            }
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, Some(dest)).of_message(tag, data.len())),
        }
    }

    /// As `send_span`, after a wait for a free request.
    ///
    /// # Safety
    /// As for `send_span`.
    #[cold]
    #[inline(never)]
    unsafe fn send_when_free(&self, dest: u32, tag: u32, mode: Mode, data: Span) -> Result<(), Error> {
        let mut engine = wait_for_requests(&self.handle, 1);
        let sent = no_unwind(|| {
            // SAFETY: the caller's promise; the request is waited for before this returns, and nothing unwinds.
            Ok(match unsafe { engine.mtl.isend(self.handle.comm, dest, tag, mode, data) }? {
                Sending::Complete => None,
                Sending::Pending(request) => Some(engine.wait(request)),
            })
        });
        let outcome = match sent {
            Ok(None) => Ok(()),
            Ok(Some(outcome)) => self.handle.outcome(&engine, outcome).map(|_| ()),
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, Some(dest)).of_message(tag, data.len())),
        };
        drop(engine);
        self.handle.context.run_callbacks();
        outcome
    }

    /// # Safety
    /// The span's memory stays writable, and nothing else uses it, until this returns.
    #[inline]
    pub(crate) unsafe fn recv_span(&self, source: Source, tag: Tag, sink: Span) -> Result<Status, Error> {
        if let Some(tag) = tag.reserved() {
            return Err(Error::NoSuchTag(tag));
        }
        // SAFETY: the caller's promise.
        unsafe { self.recv_span_unchecked(source, tag, sink) }
    }

    /// As `recv_span`, but tags that are reserved for the library are allowed.
    ///
    /// # Safety
    /// As for `recv_span`.
    #[inline]
    pub(crate) unsafe fn recv_span_unchecked(&self, source: Source, tag: Tag, sink: Span) -> Result<Status, Error> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| {
            // SAFETY: the caller's promise; the request is waited for before this returns, and nothing unwinds.
            let request = unsafe { engine.mtl.irecv(self.handle.comm, source.core(), tag.core(), sink) }?;
            Ok(engine.wait(request))
        });
        match outcome {
            Ok(outcome) => {
                let outcome = self.handle.outcome(&engine, outcome);
                drop(engine);
                self.handle.context.run_callbacks();
                outcome
            }
            Err(Refusal::Busy) => {
                drop(engine);
                // SAFETY: the caller's promise.
                unsafe { self.recv_when_free(source, tag, sink) }
            }
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, source.rank())),
        }
    }

    /// As `recv_span_unchecked`, after a wait for a free request.
    ///
    /// # Safety
    /// As for `recv_span`.
    #[cold]
    #[inline(never)]
    unsafe fn recv_when_free(&self, source: Source, tag: Tag, sink: Span) -> Result<Status, Error> {
        let mut engine = wait_for_requests(&self.handle, 1);
        let received = no_unwind(|| {
            // SAFETY: the caller's promise; the request is waited for before this returns, and nothing unwinds.
            let request = unsafe { engine.mtl.irecv(self.handle.comm, source.core(), tag.core(), sink) }?;
            Ok(engine.wait(request))
        });
        let outcome = match received {
            Ok(outcome) => self.handle.outcome(&engine, outcome),
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, source.rank())),
        };
        drop(engine);
        self.handle.context.run_callbacks();
        outcome
    }

    /// Sends and receives at the same time. `cancels`: a send that fails cancels the receive.
    ///
    /// # Safety
    /// As for `send_span` and `recv_span`.
    #[allow(clippy::too_many_arguments)] // those of a send, and those of a receive
    pub(crate) unsafe fn exchange(
        &self,
        data: Span,
        dest: u32,
        send_tag: u32,
        sink: Span,
        source: Source,
        recv_tag: Tag,
        cancels: bool,
    ) -> Result<Status, Error> {
        let mut guard = self.handle.context.engine.lock();
        // While the receive is in progress, the send must not wait: the other side may do the same.
        if guard.mtl.pml().free_requests() < 2 {
            drop(guard);
            guard = wait_for_requests(&self.handle, 2);
        }
        let engine = &mut guard;
        let (comm, handle) = (self.handle.comm, &self.handle);
        let received = no_unwind(|| {
            // SAFETY: the caller's promise; both requests are waited for before this returns.
            let receive = unsafe { engine.mtl.irecv(comm, source.core(), recv_tag.core(), sink) };
            let receive = receive.map_err(|why| handle.refusal(engine, why, source.rank()))?;
            // SAFETY: as above.
            let sent = match unsafe { engine.mtl.isend(comm, dest, send_tag, Mode::Standard, data) } {
                Ok(Sending::Complete) => Ok(()),
                Ok(Sending::Pending(request)) => {
                    let outcome = engine.wait(request);
                    handle.outcome(engine, outcome).map(|_| ())
                }
                Err(why) => Err(handle.refusal(engine, why, Some(dest)).of_message(send_tag, data.len())),
            };
            if cancels && sent.is_err() {
                engine.mtl.cancel(receive);
            }
            let outcome = engine.wait(receive);
            let received = handle.outcome(engine, outcome);
            sent.and(received)
        });
        drop(guard);
        self.handle.context.run_callbacks();
        received
    }
}

impl<L: Threads> fmt::Debug for Communicator<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank)
            .field("size", &self.handle.size)
            .field("context", &self.context_id)
            .finish_non_exhaustive()
    }
}

/// A communicator that is deleted when it is dropped. [`Communicator::dup`] and [`Communicator::split`] make it.
///
/// Each rank drops its communicator independently. Messages that this rank has not received in it are lost, and the senders of
/// long ones get [`Error::NoCommunicator`].
///
/// ```
/// let world = towline::init()?;
/// let library = world.dup()?; // its messages never match receives in the world
/// library.barrier()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct OwnedCommunicator<L: Threads = Single>(pub(crate) Communicator<L>);

impl<L: Threads> Deref for OwnedCommunicator<L> {
    type Target = Communicator<L>;

    fn deref(&self) -> &Communicator<L> {
        &self.0
    }
}

impl<L: Threads> Drop for OwnedCommunicator<L> {
    fn drop(&mut self) {
        let mut engine = self.0.handle.context.engine.lock();
        engine.note_dropped_messages(self.0.handle.context.grid, self.0.context_id);
        engine.mtl.del_comm(self.0.handle.comm);
        engine.ended_by_calls = engine.ended_by_calls.wrapping_add(1); // receives that nothing has matched
        engine.rank_tables.retain(|(comm, _)| *comm != self.0.handle.comm);
    }
}

/// Checks that programs may use a tag.
#[inline]
pub(crate) fn check_tag(tag: u32) -> Result<(), Error> {
    if tag > TAG_MAX { Err(Error::NoSuchTag(tag)) } else { Ok(()) }
}
