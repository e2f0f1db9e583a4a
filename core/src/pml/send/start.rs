//! Beginning a send: the fast path, and the way of all other sends.

use crate::convertor::{Parts, Span};
use crate::pml::engine::Pml;
use crate::pml::matching::Key;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::request::{Mode, Request, Sending};
use crate::pml::requests::state::{DRAIN, Outcome, Phase, READY, Remote, RequestState, SYNCHRONOUS};
use crate::pml::send::schedule::advance_turn;
use crate::pool::Handle;
use crate::rail::{COPIED, Endpoint, Peer, SHORTCUTS};
use crate::{ptl, wire};

impl<R: Rails> Pml<'_, R> {
    /// Begins to send `data` to a peer, as a message with `context` and `tag`. A short message is usually complete at once and
    /// uses no request. The tag [`ANY`](crate::pml::matching::ANY) is not for users, since no receive can name it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory of `data` stays readable and unchanged until this returns [`Sending::Complete`], or until the outcome of the
    /// request is taken with [`test`](Self::test).
    #[inline]
    pub unsafe fn isend(
        &mut self,
        to: Peer,
        context: u32,
        tag: u32,
        mode: Mode,
        data: Span,
    ) -> Result<Sending, Refusal> {
        let len = data.len();
        let count = self.rails.count();
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return Err(Refusal::NoPeer(to)) };
        // The fast path: a short message in the processor's memory, with credit and nothing held back before it.
        if SHORTCUTS
            && len <= u64::from(peer.eager_body)
            && peer.credit.is_open()
            && len <= COPIED
            && matches!(mode, Mode::Standard | Mode::Buffered)
            && data.accelerator().is_none()
            && let Some(rail) = self.rails.rail_mut(peer.route.rail as usize)
        {
            let words = wire::Match::words(context, tag, peer.credit.next_out, peer.granted.owed, peer.frame_out);
            // SAFETY: the body is copied before this returns; the caller vouches for it.
            if unsafe { ptl::eager(rail, Endpoint(peer.route.endpoint), words, data) }.is_ok() {
                peer.sent();
                if len == 0 {
                    peer.sent_message(false);
                } else {
                    peer.credit.next_out = peer.credit.next_out.wrapping_add(1); // within the credit
                }
                if count != 1 {
                    advance_turn(peer, self.links, to.0, count);
                }
                self.counters.eager_sent = self.counters.eager_sent.wrapping_add(1);
                return Ok(Sending::Complete);
            }
        }
        let parts = data.parts(); // otherwise the fast path would store the span for this call, even when it is not made
        self.isend_slow(to, context, tag, mode, parts)
    }

    /// Takes a request, queues it behind the held-back sends, and tries to send at once.
    fn isend_slow(&mut self, to: Peer, context: u32, tag: u32, mode: Mode, data: Parts) -> Result<Sending, Refusal> {
        let data = Span::of_parts(data);
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return Err(Refusal::NoPeer(to)) };
        match peer.status {
            PeerStatus::Up => {}
            PeerStatus::Unknown => return Err(Refusal::NoPeer(to)),
            PeerStatus::Lost => return Err(self.refusal_of_lost(to)),
        }
        let state = RequestState {
            phase: Phase::Held,
            flags: flags_of(mode),
            peer: to.0,
            context,
            tag,
            span: data,
            total: data.len(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        let Ok(handle) = self.requests.take(state) else { return Err(Refusal::Busy) };
        self.hold(to.0, handle);
        if self
            .requests
            .get(handle)
            .is_some_and(|state| state.phase == Phase::Done && state.outcome == Outcome::Success)
        {
            self.requests.free(handle);
            return Ok(Sending::Complete);
        }
        Ok(Sending::Pending(Request(handle)))
    }

    /// Queues a send to a peer that is up behind the held-back ones, and tries to send at once.
    pub(in crate::pml) fn hold(&mut self, to: u32, handle: Handle) {
        let Some(peer) = self.peers.get_mut(to as usize) else { return };
        peer.hold_send(&mut self.requests, handle.slot());
        self.take_cached(to, handle.slot());
        self.queue_work(to);
        self.push_held(to);
        // Only a send that stays is entered into the table, since most leave at once.
        if let Some(state) = self.requests.get_mut(handle).filter(|state| state.phase == Phase::Held) {
            state.remote.set(Remote::IN_TABLE);
            self.held_table.add(handle.slot(), Key { context: state.context, source: to, tag: state.tag });
        }
    }
}

/// The flags of a send.
pub(in crate::pml) const fn flags_of(mode: Mode) -> u8 {
    match mode {
        Mode::Standard | Mode::Buffered => 0,
        Mode::Complete => DRAIN,
        Mode::Synchronous => SYNCHRONOUS,
        Mode::Ready => SYNCHRONOUS | READY,
    }
}
