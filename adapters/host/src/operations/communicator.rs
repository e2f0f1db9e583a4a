//! Messages among the ranks of a communicator: blocking operations and probes.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Sending};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::handle::{CommHandle, RankMap};
use crate::context::state::ContextState;
use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::matched_message::Message;
use crate::operations::views::{View, ViewMut};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::values::address::Address;
use crate::values::message::{Envelope, Source, Status, TAG_MAX, Tag};
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;

/// A group of ranks that send to each other, apart from all other communicators. Ranks go from 0 to
/// [`size`](Self::size) - 1.
///
/// Data goes as bytes: any type that is plain data in the sense of [`zerocopy`], so integers, floats, arrays and slices
/// of them, and structures that derive its traits. Sender and receiver need not use the same type.
///
/// Messages from one rank to another with tags that match one receive are received in the order in which they were
/// sent. A blocking operation makes progress for all operations of its context.
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
        Self { handle: CommHandle { context, comm, size, rank_map }, rank, context_id }
    }

    /// This process's rank.
    ///
    /// ```
    /// let world = towline::init()?; // not started by a launcher: a world of its own
    /// assert_eq!((world.rank(), world.size()), (0, 1));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    #[inline]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[inline]
    pub fn size(&self) -> u32 {
        self.handle.size
    }

    /// Which context of which process a rank is. Without [contexts](crate::Builder::contexts), each has index 0.
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
        self.handle.address(rank).ok_or(Error::NoSuchRank { rank, size: self.handle.size })
    }

    /// Which rank a context of a process is, to send to it. For an example see [`address_of`](Self::address_of).
    ///
    /// # Errors
    /// [`Error::NoSuchAddress`] where it is not in this communicator.
    pub fn rank_of(&self, address: impl Into<Address>) -> Result<u32, Error> {
        let address = address.into();
        self.handle.rank_at(address).ok_or(Error::NoSuchAddress(address))
    }

    /// Sends `data` to rank `dest`, and comes back when `data` may be changed. A short message may then still be under
    /// way; a long one has been received.
    ///
    /// # Errors
    /// [`Error`]: no such rank or tag, the other rank was lost, or was [started again](Error::Restarted) since the communicator
    /// was made, or too many operations are under way.
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
        check(tag)?;
        // SAFETY: `data` is borrowed until this returns.
        unsafe { self.send_span(dest, tag, Mode::Standard, Span::of(data.as_bytes())) }
    }

    /// As [`send`](Self::send), but comes back only when the receiver has a receive for it: a synchronous send.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut into = [0u32; 1];
    /// world.scope(|s| {
    ///     s.irecv(0, 1, &mut into)?; // without it, the send would wait for ever
    ///     world.ssend(0, 1, &[5u32])
    /// })?;
    /// assert_eq!(into, [5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ssend<T>(&self, dest: u32, tag: u32, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        check(tag)?;
        // SAFETY: `data` is borrowed until this returns.
        unsafe { self.send_span(dest, tag, Mode::Synchronous, Span::of(data.as_bytes())) }
    }

    /// Sends what a view shows, gathered from where it lies.
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
        check(tag)?;
        // SAFETY: the view borrows its memory until this returns.
        unsafe { self.send_span(dest, tag, Mode::Standard, view.span()) }
    }

    /// Receives a message from `source` with `tag` into `into`, which may be longer. Tells what came.
    ///
    /// Messages of one source come in the order in which they were sent. From any source, of a rank that died some may be
    /// [missing](Self::acknowledge_failures) between others.
    ///
    /// # Errors
    /// [`Error::Truncated`] where `into` is too short, [`Error::PeerFailed`] where the source was lost or has ended or, if it
    /// is any, where a rank died and that was not [acknowledged](Self::acknowledge_failures), and as [`send`](Self::send).
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

    /// Receives a message of any length, into memory made for it.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`Error::NoMemory`], with which the message is lost.
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
        // The length is what the sender says: more than there is memory for must not end the process.
        let mut items = T::new_vec_zeroed(count).map_err(|_| Error::NoMemory { bytes: message.envelope().bytes })?;
        let status = message.recv(&mut items[..])?;
        items.truncate(status.count::<T>());
        Ok((items, status))
    }

    /// Receives into where a view shows.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). For an example see [`send_view`](Self::send_view).
    pub fn recv_view(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        view: ViewMut<'_>,
    ) -> Result<Status, Error> {
        // SAFETY: the view borrows its memory until this returns.
        unsafe { self.recv_span(source.into(), tag.into(), view.span()) }
    }

    /// Ranks that were lost so far, as far as this one knows: those that died, and those that came to their end. Empty where
    /// all are there. One that is [back](crate::World::rejoin) is still lost to communicators that were made before.
    ///
    /// ```
    /// assert!(towline::init()?.lost().is_empty());
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn lost(&self) -> Vec<u32> {
        let engine = self.handle.context.engine.lock();
        let lost = |rank: &u32| engine.mtl.failed(self.handle.comm, towline_core::mtl::Source::Rank(*rank)).is_some();
        (0..self.handle.size).filter(lost).collect()
    }

    /// Ranks whose process was started again by the launcher, and that this one has not [taken back](crate::World::rejoin)
    /// yet, whether it has noticed that they were lost or not. Does not wait.
    ///
    /// ```
    /// assert!(towline::init()?.restarted().is_empty());
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn restarted(&self) -> Vec<u32> {
        let restarted = self.handle.context.restarted();
        let is_one = |rank: &u32| self.handle.address(*rank).is_some_and(|address| restarted.contains(&address.rank));
        if restarted.is_empty() { Vec::new() } else { (0..self.handle.size).filter(is_one).collect() }
    }

    /// Why a rank was lost; `None` of one that was not, that is [back](crate::World::rejoin), or that does not exist.
    ///
    /// ```
    /// assert_eq!(towline::init()?.why_lost(0), None);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn why_lost(&self, rank: u32) -> Option<crate::Lost> {
        let mut engine = self.handle.context.engine.lock();
        let peer = engine.mtl.failed(self.handle.comm, towline_core::mtl::Source::Rank(rank))?;
        engine.mtl.pml().why_lost(peer)
    }

    /// Receives and probes from [`Any`](crate::Any) source wait again for those that are left, though a rank of this
    /// communicator died.
    ///
    /// Until this is said they end with [`Error::PeerFailed`], which names a rank that died, unless their message is here:
    /// nobody knows whether it was to come from that rank. No message is lost by it. A further death ends them again, until
    /// that is acknowledged, too. This is what fault-tolerant MPI (ULFM) has, `MPIX_Comm_failure_ack`. A rank that came to
    /// its end in good order is no reason.
    ///
    /// What was on its way from the rank that died may have been lost with it, and what it sent later may be here all the
    /// same: a long message needs its sender to the end, a shorter one behind it does not. So a receive or a probe from any
    /// source that matches both may take a later, shorter message of the dead rank where an earlier, longer one never comes.
    /// Those that do come are whole, each once, and in their order; there may be gaps between them.
    ///
    /// ```
    /// towline::init()?.acknowledge_failures();
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn acknowledge_failures(&self) {
        self.handle.context.engine.lock().mtl.acknowledge(self.handle.comm);
    }

    /// Sends and receives at once, so that two ranks may do so with each other.
    ///
    /// # Errors
    /// As [`send`](Self::send) and [`recv`](Self::recv); the other half has then ended too, or was cancelled.
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
        check(send_tag)?;
        let recv_tag = recv_tag.into();
        recv_tag.foreign().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        let into = into.as_mut_bytes();
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        // SAFETY: both are borrowed until this returns.
        unsafe { self.exchange(Span::of(data.as_bytes()), dest, send_tag, sink, source.into(), recv_tag, true) }
    }

    /// Waits until a message from `source` with `tag` is there, and tells about it. It stays to be received.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] or [`Error::NoSuchTag`]; [`Error::PeerFailed`] as for [`recv`](Self::recv).
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"how long?")?;
    /// let envelope = world.probe(0, towline::Any)?;
    /// let mut into = vec![0u8; envelope.bytes as usize];
    /// world.recv(envelope.source, envelope.tag, &mut into[..])?;
    /// assert_eq!(into, b"how long?");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Envelope, Error> {
        let (source, tag) = (source.into(), tag.into());
        self.until(source, tag, |engine| engine.mtl.iprobe(self.handle.comm, source.core(), tag.core()))
            .map(|found| self.envelope(found))
    }

    /// Makes progress, and tells about a message from `source` with `tag` if one is there.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert_eq!(world.iprobe(0, 7)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Envelope>, Error> {
        let (source, tag) = (source.into(), tag.into());
        self.once(source, tag, |engine| engine.mtl.iprobe(self.handle.comm, source.core(), tag.core()))
            .map(|found| found.map(|found| self.envelope(found)))
    }

    /// Waits until a message from `source` with `tag` is there, and takes it: no other receive gets it.
    ///
    /// # Errors
    /// As [`probe`](Self::probe), and [`Error::Busy`] where there is one and no request for it: messages that are taken
    /// and not received may need one.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"mine")?;
    /// let message = world.mprobe(towline::Any, towline::Any)?;
    /// let mut into = vec![0u8; message.envelope().bytes as usize];
    /// message.recv(&mut into[..])?;
    /// assert_eq!(into, b"mine");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message<'_, L>, Error> {
        let (source, tag) = (source.into(), tag.into());
        let comm = self.handle.comm;
        let took = self.until(source, tag, |engine| engine.mtl.improbe(comm, source.core(), tag.core()).transpose())?;
        self.message(took, source)
    }

    /// Makes progress, and takes a message from `source` with `tag` if one is there.
    ///
    /// # Errors
    /// As [`probe`](Self::probe), and [`Error::Busy`] where there is one and no request for it: messages that are taken
    /// and not received may need one.
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert!(world.improbe(0, 7)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn improbe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Message<'_, L>>, Error> {
        let (source, tag) = (source.into(), tag.into());
        let comm = self.handle.comm;
        let took = self.once(source, tag, |engine| engine.mtl.improbe(comm, source.core(), tag.core()).transpose())?;
        took.map(|took| self.message(took, source)).transpose()
    }

    fn message(
        &self,
        took: Result<(towline_core::mtl::Message, towline_core::mtl::Envelope), towline_core::mtl::Refusal>,
        source: Source,
    ) -> Result<Message<'_, L>, Error> {
        match took {
            Ok((message, found)) => Ok(Message::new(&self.handle, message, self.envelope(found))),
            Err(refusal) => Err(self.handle.refusal(&self.handle.context.engine.lock(), refusal, source.rank())),
        }
    }

    fn envelope(&self, found: towline_core::mtl::Envelope) -> Envelope {
        let source = self.handle.rank_of(&self.handle.context.engine.lock(), found.peer);
        Envelope { source, tag: found.tag, bytes: found.len }
    }

    fn probes(&self, source: Source, tag: Tag) -> Result<(), Error> {
        tag.foreign().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        match source.rank() {
            Some(rank) if rank >= self.handle.size => Err(Error::NoSuchRank { rank, size: self.handle.size }),
            _ if self.handle.context.finished.load(Ordering::Relaxed) => Err(Error::Finished),
            _ => Ok(()),
        }
    }

    fn once<T>(
        &self,
        source: Source,
        tag: Tag,
        look: impl FnOnce(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.probes(source, tag)?;
        self.handle.context.progress();
        Ok(look(&mut self.handle.context.engine.lock()))
    }

    fn until<T>(&self, source: Source, tag: Tag, mut look: impl FnMut(&mut Engine) -> Option<T>) -> Result<T, Error> {
        self.probes(source, tag)?;
        let awaited = Awaited::Message((self.handle.comm, source.core(), tag.core()));
        let mut idle = Idle::default();
        let mut engine = self.handle.context.engine.lock();
        engine.clock.renew_coarsely();
        loop {
            // First what came, then what is looked for, then rest: an ask that the look gave rise to must go out.
            if let Some(found) = look(&mut engine) {
                drop(engine);
                self.handle.context.run_callbacks();
                return Ok(found);
            }
            if let Some(lost) = engine.mtl.failed(self.handle.comm, source.core()) {
                return Err(self.handle.peer_lost(&engine, lost));
            }
            engine.progress_or_wait(&mut idle, &awaited, None);
        }
    }

    /// # Safety
    /// The span's memory stays readable and unchanged until this returns.
    #[inline]
    pub(crate) unsafe fn send_span(&self, dest: u32, tag: u32, mode: Mode, data: Span) -> Result<(), Error> {
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: passed on from the caller; a request is waited for before this returns, and nothing unwinds.
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
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, Some(dest))),
        }
    }

    /// # Safety
    /// The span's memory stays writable, and nobody else uses it, until this returns.
    #[inline]
    pub(crate) unsafe fn recv_span(&self, source: Source, tag: Tag, sink: Span) -> Result<Status, Error> {
        if let Some(tag) = tag.foreign() {
            return Err(Error::NoSuchTag(tag));
        }
        // SAFETY: passed on from the caller.
        unsafe { self.recv_any_tag(source, tag, sink) }
    }

    /// # Safety
    /// As for `recv_span`.
    #[inline]
    pub(crate) unsafe fn recv_any_tag(&self, source: Source, tag: Tag, sink: Span) -> Result<Status, Error> {
        let mut engine = self.handle.context.engine.lock();
        let outcome = no_unwind(|| {
            // SAFETY: passed on from the caller; the request is waited for before this returns, and nothing unwinds.
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
            Err(refusal) => Err(self.handle.refusal(&engine, refusal, source.rank())),
        }
    }

    /// Sends and receives at once; `gives_up`: cancels the receive where it could not send.
    ///
    /// # Safety
    /// As for `send_span` and `recv_span`.
    #[allow(clippy::too_many_arguments)] // those of a send, those of a receive
    pub(crate) unsafe fn exchange(
        &self,
        data: Span,
        dest: u32,
        send_tag: u32,
        sink: Span,
        source: Source,
        recv_tag: Tag,
        gives_up: bool,
    ) -> Result<Status, Error> {
        let mut guard = self.handle.context.engine.lock();
        let engine = &mut guard;
        let (comm, handle) = (self.handle.comm, &self.handle);
        let received = no_unwind(|| {
            // SAFETY: passed on from the caller; both requests are waited for before this returns.
            let receive = unsafe { engine.mtl.irecv(comm, source.core(), recv_tag.core(), sink) };
            let receive = receive.map_err(|why| handle.refusal(engine, why, source.rank()))?;
            // SAFETY: as above.
            let sent = match unsafe { engine.mtl.isend(comm, dest, send_tag, Mode::Standard, data) } {
                Ok(Sending::Complete) => Ok(()),
                Ok(Sending::Pending(request)) => {
                    let outcome = engine.wait(request);
                    handle.outcome(engine, outcome).map(|_| ())
                }
                Err(why) => Err(handle.refusal(engine, why, Some(dest))),
            };
            if gives_up && sent.is_err() {
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

/// A communicator that is deleted when it is dropped: made by [`Communicator::dup`] and [`Communicator::split`].
///
/// Dropping it is this rank's affair alone. Messages in it that this rank has not received are lost, and the senders of
/// long ones get [`Error::NoCommunicator`].
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
        engine.mtl.del_comm(self.0.handle.comm);
        engine.rank_tables.retain(|(comm, _)| *comm != self.0.handle.comm);
    }
}

/// Whether programs may use a tag.
#[inline]
pub(crate) fn check(tag: u32) -> Result<(), Error> {
    if tag > TAG_MAX { Err(Error::NoSuchTag(tag)) } else { Ok(()) }
}
