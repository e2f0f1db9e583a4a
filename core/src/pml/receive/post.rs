//! Posting and cancelling receives, and the end of a context.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::matching::Pattern;
use crate::pml::offload::ANNOUNCEMENT_TAG;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::Request;
use crate::pml::requests::state::{Outcome, Phase, Remote, RequestState};
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::wire::Reason;

impl<R: Rails> Pml<'_, R> {
    /// Begins to receive a message that `pattern` accepts into `sink`. A message that has arrived already is taken at once.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory of `sink` stays writable, and no other code accesses it, until the result of the request is taken with
    /// [`test`](Self::test).
    #[inline]
    pub unsafe fn irecv(&mut self, pattern: Pattern, sink: Span) -> Result<Request, Refusal> {
        let Some((handle, state)) = self.requests.take_uncleared() else { return Err(Refusal::Busy) };
        state.post();
        state.peer = pattern.source;
        state.context = pattern.context;
        state.tag = pattern.tag;
        state.span = sink;
        // In a free slot the attachment is none and `inflight` is 0. The match sets the other fields.
        state.remote = Remote::posting(self.next_posting);
        self.next_posting = self.next_posting.wrapping_add(1);
        let slot = handle.slot();
        if self.slow_receives || !self.matcher.post_only(slot, pattern) {
            // Passed in parts, which fit registers: otherwise the fast path would have to store the pattern.
            self.post(slot, pattern.context, pattern.source, pattern.tag);
        }
        Ok(Request(handle))
    }

    /// Gives a new receive a message that has arrived, or posts it.
    #[inline(never)]
    pub(in crate::pml) fn post(&mut self, slot: u32, context: u32, source: u32, tag: u32) {
        let pattern = Pattern { context, source, tag };
        if self.matcher.unexpected_len() != 0
            && let Some(envelope) = self.find_unexpected(&pattern)
        {
            self.matcher.remove_unexpected(envelope);
            return self.claim(envelope, slot);
        }
        if self.slow_receives && self.ends_at_once(slot, pattern.source) {
            return;
        }
        self.matcher.post(slot, pattern);
    }

    /// Further steps of a new receive if a peer was lost or holds messages back. `true`: the receive is complete.
    #[cold]
    fn ends_at_once(&mut self, slot: u32, source: u32) -> bool {
        if self.peers.get(source as usize).is_some_and(|peer| peer.status == PeerStatus::Lost) {
            self.complete(slot, self.outcome_of_lost(source));
            return true;
        }
        if self.posting_order.drop_if_idle(&mut self.requests) {
            self.posting_order.insert(&mut self.requests, slot);
        } else {
            self.slow_receives = self.has_lost_any();
        }
        false
    }

    /// Takes a receive out of the posting order, if it is there.
    #[inline]
    pub(in crate::pml) fn forget_posting(&mut self, slot: u32) {
        if self.requests.at(slot).is_some_and(|state| state.attachment.is_some()) {
            self.posting_order.remove(&mut self.requests, slot);
        }
    }

    /// Cancels a receive that has not matched: its outcome is [`Failure::Cancelled`](crate::pml::Failure::Cancelled). Returns
    /// whether it was cancelled. All other operations are not affected (promise M14 of CONTRACTS.md); for sends there is
    /// [`cancel_send`](Self::cancel_send).
    pub fn cancel(&mut self, request: Request) -> bool {
        let posted = self.requests.get(request.0).is_some_and(|state| state.phase == Phase::Posted);
        let cancelled = posted && self.matcher.unpost(request.0.slot());
        if cancelled {
            self.complete(request.0.slot(), Outcome::Cancelled);
        }
        cancelled
    }

    /// Refuses all messages that no receive has taken, and from now on all that find no posted receive: their sender is told if it
    /// waits for the match, and does not wait for credit. Messages with a tag in `except` are kept as before. For a caller that
    /// posts no further receives but goes on to make progress.
    #[cfg(feature = "refusals")]
    pub fn refuse_unexpected(&mut self, except: core::ops::Range<u32>) {
        self.kept_tags = except;
        for slot in 0..self.envelopes.touched() {
            let Some(envelope) = self.envelopes.at(slot).filter(|envelope| envelope.stage == EnvelopeStage::Queued)
            else {
                continue;
            };
            if self.refuses(envelope.tag) && self.matcher.remove_unexpected(slot) {
                self.refuse_further(slot);
            }
        }
    }

    /// Whether a message with this tag is refused if no receive is posted for it.
    #[inline]
    pub(in crate::pml) fn refuses(&self, tag: u32) -> bool {
        cfg!(feature = "refusals") && !self.kept_tags.contains(&tag) && tag != ANNOUNCEMENT_TAG
    }

    /// Drops all messages of a context that no receive has taken, and tells the senders that wait for their match. Posted
    /// receives of the context are cancelled.
    pub fn purge(&mut self, context: u32) {
        for slot in 0..self.envelopes.touched() {
            let queued = |e: &Unexpected| e.stage == EnvelopeStage::Queued && e.context == context;
            if self.envelopes.at(slot).is_some_and(queued) && self.matcher.remove_unexpected(slot) {
                self.refuse(slot, Reason::NoCommunicator);
            }
        }
        for slot in 0..self.requests.touched() {
            let posted = |state: &RequestState| state.phase == Phase::Posted && state.context == context;
            if self.requests.at(slot).is_some_and(posted) && self.matcher.unpost(slot) {
                self.complete(slot, Outcome::Cancelled);
            }
        }
    }
}
