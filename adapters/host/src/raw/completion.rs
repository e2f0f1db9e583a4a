//! Operations whose completions come by a queue.

use towline_core::mtl::{Comm, Failure, Mode, Sending};

use crate::context::handle::{CommHandle, RankMap};
use crate::engine::Engine;
use crate::engine::completion_queue::{Completed, Entry};
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::operations::views::{View, ViewMut};
use crate::raw::message::RawMessage;
use crate::raw::request::RawRequest;
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;
use crate::values::message::{Source, Status, TAG_MAX, Tag};
use crate::waiting::no_unwind::no_unwind;

/// The most turns of progress in one poll.
const MAX_TURNS: u32 = 64;

/// An operation that has ended: see [`Communicator::poll_queue`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The word that the operation was begun with.
    pub user: u64,
    /// It was a receive.
    pub is_receive: bool,
    /// The request, which stands for nothing any more.
    pub request: RawRequest,
    /// The outcome. The status of a send means nothing.
    pub outcome: Result<Status, Error>,
}

impl<L: Threads> Communicator<L> {
    /// As [`isend_raw`](Self::isend_raw), but the end of the operation comes by [`poll_queue`](Self::poll_queue), with `user`.
    /// Returns whether the send is complete already: it does not come then. Otherwise `begun` was called with the request, before
    /// another thread can have taken the completion. It must not use the context.
    ///
    /// # Errors
    /// As [`isend`](Self::isend): nothing was begun then.
    ///
    /// # Safety
    /// As for [`isend_raw`](Self::isend_raw): until the completion was taken, or until the context has ended.
    #[inline]
    pub unsafe fn isend_queued(
        &self,
        dest: u32,
        tag: u32,
        mode: Mode,
        data: View<'_>,
        user: u64,
        begun: impl FnOnce(RawRequest),
    ) -> Result<bool, Error> {
        self.check_tag(tag)?;
        let (data, handle) = (data.span(), &self.handle);
        let mut engine = handle.context.engine.lock();
        // SAFETY: the caller's promise.
        match no_unwind(|| unsafe { engine.mtl.isend(handle.comm, dest, tag, mode, data) }) {
            Ok(Sending::Complete) => Ok(true),
            Ok(Sending::Pending(request)) => {
                begun(RawRequest(request));
                queue(&mut engine, handle.comm, RawRequest(request), user, false);
                Ok(false)
            }
            Err(why) => Err(handle.refusal(&engine, why, Some(dest)).of_message(tag, data.len())),
        }
    }

    /// As [`irecv_raw`](Self::irecv_raw), but the end of the operation comes by [`poll_queue`](Self::poll_queue), with `user`.
    /// `begun`: as for [`isend_queued`](Self::isend_queued).
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv): nothing was begun then.
    ///
    /// # Safety
    /// As for [`irecv_raw`](Self::irecv_raw): until the completion was taken, or until the context has ended.
    #[inline]
    pub unsafe fn irecv_queued(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        into: ViewMut<'_>,
        user: u64,
        begun: impl FnOnce(RawRequest),
    ) -> Result<(), Error> {
        let (source, tag): (Source, Tag) = (source.into(), tag.into());
        self.check_tag_pattern(tag)?;
        let handle = &self.handle;
        let mut engine = handle.context.engine.lock();
        // SAFETY: the caller's promise.
        let request = no_unwind(|| unsafe { engine.mtl.irecv(handle.comm, source.core(), tag.core(), into.span()) });
        let request = RawRequest(request.map_err(|why| handle.refusal(&engine, why, source.rank()))?);
        begun(request);
        queue(&mut engine, handle.comm, request, user, true);
        Ok(())
    }

    /// As [`imrecv_raw`](Self::imrecv_raw), but the end of the operation comes by [`poll_queue`](Self::poll_queue), with `user`.
    /// `begun`: as for [`isend_queued`](Self::isend_queued).
    ///
    /// # Errors
    /// As [`imrecv_raw`](Self::imrecv_raw), with the message, which is still taken.
    ///
    /// # Safety
    /// As for [`irecv_queued`](Self::irecv_queued).
    pub unsafe fn imrecv_queued(
        &self,
        message: RawMessage,
        into: ViewMut<'_>,
        user: u64,
        begun: impl FnOnce(RawRequest),
    ) -> Result<(), (Error, RawMessage)> {
        // SAFETY: the caller's promise.
        let request = unsafe { self.imrecv_raw(message, into) }?;
        begun(request);
        queue(&mut self.handle.context.engine.lock(), self.handle.comm, request, user, true);
        Ok(())
    }

    /// Cancels a queued operation that was begun with this word: a receive that no message has matched, or a send of which nothing
    /// has left. Returns whether it was cancelled; its end comes by the queue, cancelled or not. Looks through all operations in
    /// progress.
    ///
    /// ```
    /// use towline::{Error, ViewMut};
    ///
    /// let world = towline::init()?;
    /// let mut into = [0u8; 4];
    /// // SAFETY: the buffer stays until the completion was taken.
    /// unsafe { world.irecv_queued(0, 1, ViewMut::contiguous(into.as_mut_ptr(), 4), 77, |_| {}) }?;
    /// assert!(world.cancel_queued(77) && !world.cancel_queued(78));
    /// let mut outcome = None;
    /// world.poll_queue(1, |completion| outcome = Some(completion.outcome));
    /// assert_eq!(outcome, Some(Err(Error::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_queued(&self, user: u64) -> bool {
        let mut engine = self.handle.context.engine.lock();
        let requests: Vec<_> = engine.completion_queue.requests_of(user).collect();
        requests.into_iter().any(|request| engine.mtl.cancel(request) || engine.mtl.cancel_send(request))
    }
}

/// Gives a request into the queue's care.
#[inline]
fn queue(engine: &mut Engine, comm: Comm, request: RawRequest, user: u64, is_receive: bool) {
    engine.completion_queue.add(request.0, comm, user, is_receive);
    engine.mtl.pml().notify(request.0);
}

/// What a call of [`poll_queue`](Communicator::poll_queue) has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Polled {
    /// How many completions were passed on.
    pub completions: usize,
    /// How many events there were in this call. 0: nothing has arrived and nothing has left; operations that had ended before may
    /// still be among the completions. A caller that gives its processor away while nothing happens keeps it if there were any:
    /// parts of what it waits for may have arrived.
    pub events: u32,
}

impl<L: Threads> Communicator<L> {
    /// Makes progress without waiting, and passes at most `most` completions of [queued](Self::isend_queued) operations of this
    /// context, in any communicator, to `take`, the oldest first. Returns how many, and how many events there were. `take` is called
    /// while the context is in use: it must not use the context. Messages of this process to itself make all the progress that they
    /// can: a program may count on them, since they wait for nobody.
    ///
    /// ```
    /// use towline::ViewMut;
    ///
    /// let world = towline::init()?;
    /// let mut into = [0u8; 4];
    /// // SAFETY: the buffer stays until the completion was taken.
    /// unsafe { world.irecv_queued(0, 1, ViewMut::contiguous(into.as_mut_ptr(), 4), 77, |_| {}) }?;
    /// world.send(0, 1, b"four")?;
    /// let mut taken = Vec::new();
    /// while taken.is_empty() {
    ///     world.poll_queue(16, |completion| taken.push(completion));
    /// }
    /// assert_eq!((taken[0].user, taken[0].outcome.as_ref().unwrap().bytes, &into), (77, 4, b"four"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn poll_queue(&self, most: usize, mut take: impl FnMut(Completion)) -> Polled {
        let context = &self.handle.context;
        let mut engine = context.engine.lock();
        // After a poll that took something, another message is probably there: it is taken in this call, too. After one that took
        // nothing, a program waits for a single message, and nothing must delay its return.
        let drains = engine.completion_queue.was_taken_from;
        let (mut taken, mut turns, mut events) = (0, 0, engine.poll_and_look());
        let mut all_events = events;
        loop {
            // Most polls of a program that waits find nothing, and end here.
            while engine.may_have_queued()
                && taken < most
                && let Some(completed) = engine.next_queued()
            {
                take(self.completion(&engine, completed));
                taken += 1;
            }
            turns += 1;
            let more = events != 0 && (drains || taken == 0);
            if (!more && engine.loopback_hub.is_empty()) || taken == most || turns == MAX_TURNS {
                break;
            }
            events = engine.poll_more();
            all_events = all_events.wrapping_add(events);
        }
        engine.completion_queue.was_taken_from = taken != 0;
        drop(engine);
        if taken == 0 {
            // The caller waits. A sibling of this processor, which may be the peer, gets the units that this one does not use.
            std::hint::spin_loop();
        }
        context.run_callbacks();
        Polled { completions: taken, events: all_events }
    }

    #[inline]
    fn completion(&self, engine: &Engine, completed: Completed) -> Completion {
        let Completed { entry: Entry { request, comm, user, is_receive }, outcome } = completed;
        let outcome = match outcome {
            Ok(status) => {
                let source = engine.mtl.rank_of(comm, status.peer).unwrap_or(status.peer.0);
                Ok(Status { source, tag: status.tag, bytes: status.delivered })
            }
            Err(failure) => Err(self.queued_failure(engine, comm, failure)),
        };
        Completion { user, is_receive, request: RawRequest(request), outcome }
    }

    /// The error of an operation in some communicator of this context.
    #[cold]
    fn queued_failure(&self, engine: &Engine, comm: Comm, failure: Failure) -> Error {
        let lasting = comm == self.handle.comm;
        let context = L::Ref::clone(&self.handle.context);
        let of: CommHandle<L> =
            CommHandle { context, comm, size: u32::MAX, rank_map: RankMap::Table, lasting, tag_max: TAG_MAX };
        of.failure(engine, failure)
    }
}
