//! The end of a request: its outcome, and the list of completed requests.

use zerocopy::FromZeros;

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma;
use crate::pml::requests::errors::Failure;
use crate::pml::requests::request::{Request, Status};
use crate::pml::requests::state::{Attachment, DETACHED, NOTIFY, Outcome, Phase, RECEIVE, RequestState};
use crate::rail::{Peer, SHORTCUTS};

impl<R: Rails> Pml<'_, R> {
    /// Ends a request with an outcome.
    #[inline]
    pub(in crate::pml) fn complete(&mut self, slot: u32, outcome: Outcome) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.finish(outcome);
        if state.is_awaited() {
            self.end(slot);
        }
    }

    /// The further steps at the end of a request: releases its attachment, and frees it or lists it as completed.
    // Not inlined, but not cold either: all requests of a caller that takes completions from a queue come here.
    #[inline(never)]
    pub(in crate::pml) fn end(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        let flags = state.flags;
        if state.attachment.is_some() {
            self.end_attachment(slot);
        }
        if flags & DETACHED != 0 {
            self.detached = self.detached.saturating_sub(1);
            if let Some(handle) = self.requests.handle(slot) {
                self.requests.free(handle);
            }
        } else if flags & NOTIFY != 0 {
            self.completed.push(&mut self.requests, slot);
        }
    }

    #[cold]
    fn end_attachment(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & RECEIVE != 0 {
            self.forget_posting(slot);
        } else if rdma::ENABLED
            && let Some(entry) = state.attachment.cache_entry()
            && let Some(cache) = self.caches.iter_mut().find(|cache| cache.rail() == usize::from(state.cached_by))
        {
            cache.put(entry);
            state.attachment = Attachment::NONE;
        }
    }

    /// Takes the outcome of a request that is done, and frees the request. `None` if it is not done.
    #[inline]
    pub(in crate::pml) fn take_outcome(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        if !SHORTCUTS {
            return self.take_outcome_slow(request);
        }
        let Some(status) = self.take_received(request) else { return self.take_outcome_slow(request) };
        Some(Ok(status))
    }

    /// Takes the outcome of a receive that has got all of its message: one look at the request. `None` says nothing of other requests,
    /// and leaves them as they are: [`test`](Self::test) has their outcomes.
    #[inline(always)]
    pub fn take_received(&mut self, request: Request) -> Option<Status> {
        let state = self.requests.free_if(request.0, RequestState::has_succeeded)?;
        Some(Status { peer: Peer(state.peer), tag: state.tag, received: state.total, delivered: state.total })
    }

    #[inline(never)]
    fn take_outcome_slow(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        let Some(state) = self.requests.get(request.0) else { return Some(Err(Failure::NoRequest)) };
        if state.phase != Phase::Done {
            return None;
        }
        if state.flags & NOTIFY != 0 {
            self.completed.remove(&mut self.requests, request.0.slot());
        }
        let state = self.requests.free(request.0)?;
        let peer = Peer(state.peer);
        let receive = state.flags & RECEIVE != 0;
        let delivered = if receive { state.fits() } else { state.total };
        let status = Status { peer, tag: state.tag, received: state.total, delivered };
        Some(match state.outcome {
            Outcome::Success if status.delivered < status.received => Err(Failure::Truncated(status)),
            Outcome::Success => Ok(status),
            Outcome::Cancelled => Err(Failure::Cancelled),
            Outcome::PeerFailed => Err(Failure::PeerFailed(peer)),
            Outcome::PeerClosed => {
                Err(Failure::PeerClosed { peer, tag: state.tag, bytes: (!receive).then_some(state.total) })
            }
            Outcome::Restarted => Err(Failure::Restarted(peer)),
            Outcome::NotReady => Err(Failure::NotReady(peer)),
            Outcome::NoCommunicator => Err(Failure::NoCommunicator(status)),
            Outcome::TooLong => Err(Failure::TooLong),
            Outcome::DeviceFailed => Err(Failure::DeviceFailed),
            Outcome::MessagesLost => Err(Failure::MessagesLost(peer)),
            Outcome::BadMemory => Err(Failure::BadMemory),
            Outcome::Aborted => Err(Failure::Aborted(status)),
        })
    }

    /// Lets [`next_completed`](Self::next_completed) return the request when it is over. A stale request is ignored.
    pub fn notify(&mut self, request: Request) {
        let Some(state) = self.requests.get_mut(request.0) else { return };
        if state.flags & NOTIFY != 0 {
            return;
        }
        state.flags |= NOTIFY;
        if state.phase == Phase::Done {
            self.completed.push(&mut self.requests, request.0.slot());
        }
    }

    /// Whether [`next_completed`](Self::next_completed) has a request.
    #[inline]
    pub fn has_completed(&self) -> bool {
        self.completed.first().get().is_some()
    }

    /// The next completed request of those that were passed to [`notify`](Self::notify). Its outcome is still to be taken.
    #[inline]
    pub fn next_completed(&mut self) -> Option<Request> {
        let slot = self.completed.first().get()?;
        self.completed.remove(&mut self.requests, slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.flags &= !NOTIFY;
        }
        self.requests.handle(slot).map(Request)
    }

    /// Lets a request end by itself; its outcome is dropped. The memory must stay until the end, which is not reported: when no
    /// request is in use ([`used`](Self::used)), all have ended.
    pub fn detach(&mut self, request: Request) {
        let Some(state) = self.requests.get_mut(request.0) else { return };
        if state.phase == Phase::Done {
            let _ = self.take_outcome(request);
        } else {
            state.flags |= DETACHED;
            self.detached = self.detached.wrapping_add(1);
        }
    }

    /// Whether [`test`](Self::test) has an outcome for a request, which it does not take.
    #[inline]
    pub fn is_over(&self, request: Request) -> bool {
        self.requests.get(request.0).is_none_or(|state| state.phase == Phase::Done)
    }

    /// The number of requests in progress that were [detached](Self::detach). Each is free when it ends.
    pub fn detached(&self) -> u32 {
        self.detached
    }

    /// The number of requests that are free.
    pub fn free_requests(&self) -> u32 {
        self.requests.capacity().saturating_sub(self.requests.used())
    }

    /// Takes a free request, and keeps it for an operation that must find one later. [`test`](Self::test) frees it again, as a
    /// request that is over. `None` if no request is free.
    pub fn keep_request(&mut self) -> Option<Request> {
        self.requests.take(RequestState::new_zeroed()).ok().map(Request)
    }

    /// The other side of a request: the receiver of a send, the sender of a receive that has matched. `None` if the request is
    /// stale, or a receive without a match.
    pub fn peer_of(&self, request: Request) -> Option<Peer> {
        let state = self.requests.get(request.0)?;
        (!state.is_unmatched_receive()).then_some(Peer(state.peer))
    }

    /// Takes the outcome of a request that is over: its slot is free then, and its memory belongs to the caller again. `None`
    /// while the request is in progress. A stale request fails with [`Failure::NoRequest`].
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        self.take_outcome(request)
    }
}
