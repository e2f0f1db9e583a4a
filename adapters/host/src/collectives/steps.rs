//! The steps of a collective operation at one rank: sends and receives of known lengths.
//!
//! A rank that cannot take part, because of its arguments, its memory or an error in an earlier step, still does all of its
//! steps. It then receives into no memory, and sends *notices* in place of data. A notice is a message of a length that the
//! receiver does not expect. So no rank waits for a message that never comes, and an error reaches the ranks whose data it
//! concerns.
//!
//! While ranks compare their [lengths](crate::collectives::lengths), two kinds of notices are told apart, since they decide what
//! follows. A rank that passed something wrong ends the operation for all. A rank that only misses a message of a lost rank goes
//! on, for those that miss none.

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal, Request, Sending};

use crate::collectives::lengths::{Length, is_length};
use crate::collectives::reduce_op::Plain;
use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;

/// Requests that one step begins at a time, where it has many messages.
const AT_A_TIME: usize = 32;
/// The notice for a receiver that expects no bytes. Most others get an empty message.
const NOTICE_TO_EMPTY: &[u8] = &[0];
/// The notice for a receiver that expects a [`Length`], where a rank was lost.
const NOTICE_OF_LOSS: &[u8] = &[0; 2];

/// Why a rank has no valid data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// Arguments or memory, here or at another rank.
    Caller,
    /// A rank was lost, or may have been.
    Lost,
}

/// A collective operation in progress, with the first error of this rank in it.
pub(crate) struct Steps<'a, L: Threads> {
    comm: &'a Communicator<L>,
    tag: u32,
    error: Option<Error>,
    /// Why this rank has no valid data to send, if it has none.
    failed: Option<Cause>,
    /// The ranks compare their lengths.
    compares_lengths: bool,
}

impl<'a, L: Threads> Steps<'a, L> {
    pub fn new(comm: &'a Communicator<L>, tag: u32) -> Self {
        // A rank that is alone has no step that could fail.
        let error = comm.handle.context.check_process().err();
        Self { comm, tag, error, failed: None, compares_lengths: false }
    }

    /// The rank of this process, and the number of ranks.
    pub fn place(&self) -> (usize, usize) {
        (self.comm.rank as usize, self.comm.handle.size as usize)
    }

    /// Notes an error because of which this rank has no valid data. From now on it sends notices. The first error is kept.
    pub fn fail(&mut self, error: Error) {
        self.fail_because(Cause::Caller, error);
    }

    /// As [`fail`](Self::fail), for an outcome.
    pub fn check(&mut self, outcome: Result<(), Error>) {
        if let Err(error) = outcome {
            self.fail(error);
        }
    }

    fn fail_because(&mut self, cause: Cause, error: Error) {
        self.error.get_or_insert(error);
        self.failed.get_or_insert(cause);
    }

    /// Notes an error that concerns a receiver only: this rank's data is valid.
    fn note(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Treats all errors so far, also those of sends, as errors that other ranks must learn of.
    pub fn spread_errors(&mut self) {
        if self.error.is_some() {
            self.failed.get_or_insert(Cause::Lost);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The end of the operation: the first error, if there was one.
    pub fn end(self) -> Result<(), Error> {
        self.error.map_or(Ok(()), Err)
    }

    /// Has the ranks compare the number of bytes that they passed. `exchange` is the algorithm for short data, for lengths in
    /// place of data, and returns the lengths that this rank has got. Returns whether the algorithm for long data follows, which
    /// is the same at all ranks that are not lost.
    pub fn compare_lengths(
        &mut self,
        bytes: usize,
        exchange: impl FnOnce(&mut Self, Length) -> Vec<(usize, Length)>,
    ) -> bool {
        self.compares_lengths = true;
        let lengths = exchange(self, Length::new(bytes));
        self.compares_lengths = false;
        for (rank, length) in lengths {
            if !self.has_failed() {
                self.check(length.check(rank, bytes));
            }
        }
        self.failed != Some(Cause::Caller)
    }

    /// Zeroed items for the operation's own use. None, and a noted error, where there is not enough memory.
    pub fn scratch<T: Plain>(&mut self, items: usize) -> Vec<T> {
        T::new_vec_zeroed(items).unwrap_or_else(|_| {
            self.fail(Error::NoMemory { bytes: items.saturating_mul(size_of::<T>()) as u64 });
            Vec::new()
        })
    }

    /// Sends to one rank and receives from one rank at the same time.
    pub fn exchange(&mut self, data: &[u8], dest: usize, into: &mut [u8], source: usize) {
        let received = self.begin_and_wait(Some((data, dest)), Some((into, source)));
        self.check_notice(into, received);
    }

    pub fn send(&mut self, data: &[u8], dest: usize) {
        self.begin_and_wait(Some((data, dest)), None);
    }

    pub fn receive(&mut self, into: &mut [u8], source: usize) {
        let received = self.begin_and_wait(None, Some((into, source)));
        self.check_notice(into, received);
    }
}

/// Steps with many ranks at the same time.
impl<L: Threads> Steps<'_, L> {
    /// Receives a block from each of these ranks.
    pub fn receive_all<'b>(&mut self, blocks: impl IntoIterator<Item = (usize, &'b mut [u8])>) {
        let mut blocks = blocks.into_iter().peekable();
        while blocks.peek().is_some() {
            let mut engine = self.comm.handle.context.engine.lock();
            let mut some: Vec<_> = blocks.by_ref().take(at_a_time(&mut engine)).collect();
            let sinks: Vec<_> = some.iter_mut().map(|(source, into)| (*source, self.sink(into))).collect();
            let received: Vec<_> = no_unwind(|| {
                // SAFETY: the blocks are borrowed until all requests are complete, and nothing unwinds.
                let begin = |(source, sink)| unsafe { self.begin_receive(&mut engine, source, sink) };
                let begun: Vec<_> = sinks.into_iter().map(begin).collect();
                begun.into_iter().map(|begun| begun.and_then(|request| self.wait(&mut engine, request))).collect()
            });
            engine.keep_requests();
            drop(engine);
            self.comm.handle.context.run_callbacks();
            for ((source, into), received) in some.into_iter().zip(received) {
                self.check_notice(into, Some((source, received)));
            }
        }
    }

    /// Sends a block to each of these ranks.
    pub fn send_all<'b>(&mut self, blocks: impl IntoIterator<Item = (usize, &'b [u8])>) {
        let mut blocks = blocks.into_iter().peekable();
        while blocks.peek().is_some() {
            let mut engine = self.comm.handle.context.engine.lock();
            let some = blocks.by_ref().take(at_a_time(&mut engine)).map(|(dest, data)| (dest, self.source(data)));
            let some: Vec<_> = some.collect();
            let sent: Vec<_> = no_unwind(|| {
                // SAFETY: the blocks are borrowed until all requests are complete, and nothing unwinds.
                let begin = |(dest, data)| unsafe { self.begin_send(&mut engine, dest, data) };
                let begun: Vec<_> = some.into_iter().map(begin).collect();
                begun.into_iter().map(|begun| self.wait_for_send(&mut engine, begun)).collect()
            });
            engine.keep_requests();
            drop(engine);
            self.comm.handle.context.run_callbacks();
            sent.into_iter().filter_map(Result::err).for_each(|error| self.note(error));
        }
    }
}

/// How many requests a step may begin together: with more, it would wait for requests that only its own later steps free.
fn at_a_time(engine: &mut Engine) -> usize {
    AT_A_TIME.min(engine.mtl.pml().free_requests() as usize).max(1)
}

/// No request is free: frees one of those that are kept, or waits for a while.
///
/// # Errors
/// [`Error::Busy`] if no request can become free without a further call by this thread.
fn find_request(engine: &mut impl EngineGuard, idle: &mut Idle) -> Result<(), Error> {
    if !engine.free_kept_request() {
        if !engine.may_free_requests() {
            return Err(Error::Busy);
        }
        engine.progress_or_wait(idle, &Awaited::FreeRequests(1), None);
    }
    Ok(())
}

/// The result of a receive: the rank that it was from, and how many bytes came.
type Received = (usize, Result<u64, Error>);

/// One step with the engine.
impl<L: Threads> Steps<'_, L> {
    /// Begins a receive and a send, and waits for both.
    fn begin_and_wait(
        &mut self,
        send: Option<(&[u8], usize)>,
        receive: Option<(&mut [u8], usize)>,
    ) -> Option<Received> {
        let send = send.map(|(data, dest)| (self.source(data), dest));
        let receive = receive.map(|(into, source)| (self.sink(into), source));
        let mut engine = self.comm.handle.context.engine.lock();
        let (sent, received) = no_unwind(|| {
            // SAFETY: the caller's slices are borrowed until both requests are complete, and nothing unwinds.
            let early = receive.map(|(sink, source)| unsafe { self.try_receive(&mut engine, source, sink) });
            // SAFETY: as above.
            let begun = send.map_or(Ok(None), |(data, dest)| unsafe { self.begin_send(&mut engine, dest, data) });
            // A receive that found no free request is begun after the send, for which the other rank may be waiting.
            let received = receive.zip(early).map(|((sink, source), early)| {
                let begun = match early {
                    // SAFETY: as above.
                    Err(Refusal::Busy) => unsafe { self.begin_receive(&mut engine, source, sink) },
                    early => early.map_err(|why| self.comm.handle.refusal(&engine, why, Some(source as u32))),
                };
                (source, begun)
            });
            let sent = self.wait_for_send(&mut engine, begun);
            let mut wait = |begun: Result<_, _>| begun.and_then(|request| self.wait(&mut engine, request));
            (sent, received.map(|(source, begun)| (source, wait(begun))))
        });
        engine.keep_requests();
        drop(engine);
        self.comm.handle.context.run_callbacks();
        if let Err(error) = sent {
            self.note(error);
        }
        received
    }

    /// The memory for a message: none if this rank cannot take part.
    fn sink(&self, into: &mut [u8]) -> Span {
        if self.has_failed() { Span::EMPTY } else { Span::contiguous(into.as_mut_ptr(), into.len()) }
    }

    /// The bytes for a message: a notice if this rank cannot take part.
    fn source(&self, data: &[u8]) -> Span {
        match self.failed {
            None => Span::of(data),
            Some(Cause::Lost) if self.compares_lengths => Span::of(NOTICE_OF_LOSS),
            Some(_) if data.is_empty() => Span::of(NOTICE_TO_EMPTY),
            Some(_) => Span::EMPTY,
        }
    }

    /// # Safety
    /// As for [`begin_receive`](Self::begin_receive).
    unsafe fn try_receive(&self, engine: &mut Engine, source: usize, sink: Span) -> Result<Request, Refusal> {
        let (source, tag) = (towline_core::mtl::Source::Rank(source as u32), towline_core::mtl::Tag::Is(self.tag));
        // SAFETY: the caller's promise.
        unsafe { engine.mtl.irecv(self.comm.handle.comm, source, tag, sink) }
    }

    /// Begins a receive. If no request is free, it takes one of those that are kept, or waits for one.
    ///
    /// # Safety
    /// The memory is writable and not used otherwise until the request is complete.
    unsafe fn begin_receive(&self, engine: &mut impl EngineGuard, source: usize, sink: Span) -> Result<Request, Error> {
        let mut idle = Idle::default();
        loop {
            // SAFETY: the caller's promise.
            match unsafe { self.try_receive(engine, source, sink) } {
                Err(Refusal::Busy) => find_request(engine, &mut idle)?,
                begun => return begun.map_err(|why| self.comm.handle.refusal(engine, why, Some(source as u32))),
            }
        }
    }

    /// Begins a send. If it needs a request and none is free, it takes one of those that are kept, or waits for one. `None` if it is
    /// complete.
    ///
    /// # Safety
    /// The memory is readable and unchanged until the request is complete.
    unsafe fn begin_send(
        &self,
        engine: &mut impl EngineGuard,
        dest: usize,
        data: Span,
    ) -> Result<Option<Request>, Error> {
        let (comm, mut idle) = (self.comm.handle.comm, Idle::default());
        loop {
            // SAFETY: the caller's promise.
            match unsafe { engine.mtl.isend(comm, dest as u32, self.tag, Mode::Standard, data) } {
                Ok(Sending::Complete) => return Ok(None),
                Ok(Sending::Pending(request)) => return Ok(Some(request)),
                Err(Refusal::Busy) => find_request(engine, &mut idle)?,
                Err(why) => return Err(self.comm.handle.refusal(engine, why, Some(dest as u32))),
            }
        }
    }

    fn wait_for_send(&self, engine: &mut impl EngineGuard, begun: Result<Option<Request>, Error>) -> Result<(), Error> {
        match begun? {
            Some(request) => self.wait(engine, request).map(|_| ()),
            None => Ok(()),
        }
    }

    fn wait(&self, engine: &mut impl EngineGuard, request: Request) -> Result<u64, Error> {
        let outcome = engine.wait(request);
        self.comm.handle.outcome(engine, outcome).map(|status| status.bytes)
    }

    /// Notes an error if something else than `into.len()` bytes of data came.
    fn check_notice(&mut self, into: &[u8], received: Option<Received>) {
        let Some((rank, received)) = received.filter(|_| !self.has_failed()) else { return };
        let (rank, expected) = (rank as u32, into.len() as u64);
        let sent = match received {
            Ok(bytes) => bytes,
            Err(Error::Truncated { sent, .. }) => sent,
            Err(error) => return self.fail_because(Cause::Lost, error),
        };
        let is_notice = match sent {
            0 => true,
            1 => expected == 0 || self.compares_lengths,
            2 => self.compares_lengths,
            _ => false,
        };
        if sent == expected {
            if !self.compares_lengths && is_length(into) {
                self.fail(Error::UnequalLengths { rank, expected, sent });
            }
        } else if is_notice {
            let cause = if sent == NOTICE_OF_LOSS.len() as u64 { Cause::Lost } else { Cause::Caller };
            let error = self.reason_for_notice(rank);
            self.fail_because(cause, error);
        } else {
            self.fail(Error::UnequalLengths { rank, expected, sent });
        }
    }

    /// The error for a notice from `rank`. It names a rank that was lost, as far as this rank knows.
    fn reason_for_notice(&self, rank: u32) -> Error {
        let engine = self.comm.handle.context.engine.lock();
        let lost = engine.mtl.broken(self.comm.handle.comm);
        lost.map_or(Error::NoPart { rank }, |peer| self.comm.handle.peer_lost(&engine, peer))
    }
}
