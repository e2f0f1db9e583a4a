//! Probes, and receives of messages that matched probes have taken.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::matching::Pattern;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::Request;
use crate::pml::requests::state::{Outcome, Phase, RECEIVE, RequestState};
use crate::pml::unexpected::message::{Envelope, Message, MessageSource};
use crate::pml::unexpected::state::{EnvelopeStage, SEEN, Unexpected};
use crate::rail::{Lost, Peer};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Finds the first message that `pattern` accepts, and does not take it. `None` if there is none yet.
    pub fn iprobe(&mut self, pattern: Pattern) -> Option<Envelope> {
        let Some(slot) = self.find_unexpected(&pattern) else {
            self.want_probe(pattern);
            return None;
        };
        let envelope = self.envelopes.at_mut(slot)?;
        envelope.flags |= SEEN;
        Some(Envelope { peer: Peer(envelope.peer), tag: envelope.tag, len: envelope.total })
    }

    /// Takes the first message that `pattern` accepts out of the queues, so that no other receive gets it. `None` if there is
    /// none yet. If its sender holds the message back for lack of credit, it uses a request, as its receive would.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if there is such a held-back message and all requests are in use: the message is not taken.
    pub fn improbe(&mut self, pattern: Pattern) -> Result<Option<(Message, Envelope)>, Refusal> {
        let Some(slot) = self.find_unexpected(&pattern) else {
            self.want_probe(pattern);
            return Ok(None);
        };
        let (Some(handle), Some(envelope)) = (self.envelopes.handle(slot), self.envelopes.at_mut(slot)) else {
            return Ok(None);
        };
        let found = Envelope { peer: Peer(envelope.peer), tag: envelope.tag, len: envelope.total };
        if envelope.flags & wire::FLAG_ANSWER != 0 {
            return Ok(self.take_answer(handle)?.map(|request| (Message(MessageSource::Request(request)), found)));
        }
        envelope.stage = EnvelopeStage::Taken;
        self.matcher.remove_unexpected(slot);
        Ok(Some((Message(MessageSource::Envelope(handle)), found)))
    }

    /// Receives a message that [`improbe`](Self::improbe) took.
    ///
    /// # Errors
    /// The message is returned with the refusal. [`Refusal::Busy`] if all requests are in use. [`Refusal::Invalid`] for a message
    /// of another engine, or of a peer that was deleted since.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub unsafe fn imrecv(&mut self, message: Message, sink: Span) -> Result<Request, (Refusal, Message)> {
        let kept = match message.0 {
            MessageSource::Envelope(envelope) => envelope,
            MessageSource::Request(request) => {
                let taken = self.requests.get_mut(request).filter(|state| state.phase == Phase::Taken);
                let Some(state) = taken else { return Err((Refusal::Invalid, message)) };
                let outcome = state.outcome;
                state.span = sink;
                state.wanted = state.fits();
                state.phase = Phase::Responding;
                if outcome == Outcome::Success {
                    self.respond_or_queue(request.slot());
                } else {
                    self.complete(request.slot(), outcome);
                }
                return Ok(Request(request));
            }
        };
        let taken = |envelope: &&Unexpected| matches!(envelope.stage, EnvelopeStage::Taken | EnvelopeStage::Broken);
        let Some(envelope) = self.envelopes.get(kept).filter(taken) else {
            return Err((Refusal::Invalid, message));
        };
        let broken = envelope.stage == EnvelopeStage::Broken;
        let ended = self.why_lost(Peer(envelope.peer)) == Some(Lost::Closed);
        let state = RequestState {
            phase: Phase::Posted,
            flags: RECEIVE,
            peer: envelope.peer,
            context: envelope.context,
            tag: envelope.tag,
            span: sink,
            ..zerocopy::FromZeros::new_zeroed()
        };
        let Ok(handle) = self.requests.take(state) else { return Err((Refusal::Busy, message)) };
        if broken {
            self.give_back(kept, false);
            self.complete(handle.slot(), if ended { Outcome::PeerClosed } else { Outcome::PeerFailed });
        } else {
            self.claim(kept.slot(), handle.slot());
        }
        Ok(Request(handle))
    }
}
