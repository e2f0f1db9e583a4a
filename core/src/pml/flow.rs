//! Bounded unexpected memory without deadlock: credit, notices of what is held back, asks and answers.
//!
//! A sender without credit holds its messages back and says so once ([`wire::Held`]). The receiver then asks, one ask
//! at a time and peer, for each posted receive that the peer could satisfy, in posting order ([`wire::Ask`]). The
//! sender answers with its first message that fits: a rendezvous header that takes neither credit nor a sequence
//! number, and nothing else goes to that peer until the answer is settled, so no message overtakes another with its
//! tag. An answer that comes before earlier messages, or finds its receive gone, is rejected and held back again, in the
//! first case when those have come: the next answer would be as early as this one, and so on at the speed of the link. With
//! [`wire::Nothing`] the sender says that it has none; the next message that it holds back brings a new notice, and the
//! receiver asks for all again. Probes ask too, for one thing once as long as there is no notice; their answers wait in spare envelopes beyond all credit
//! until they are received, or taken by a matched probe, which gives them to a request.
//!
//! What a peer does not say cannot be made up for: a send waits until its receiver acknowledges, finishes or refuses it,
//! or is lost. "Unmatched" is no refusal but what sends an answer back, so for any other send it is counted and ignored.

use zerocopy::FromZeros;

use super::engine::{Pml, Rails};
use super::matching::{ANY, Key, Pattern};
use super::peer::{
    ANNOUNCED, ASKED, ASKED_PROBE, ASKING, ASKING_PROBE, ASKING_WIDE, CREDIT_DUE, HOLDING, ORPHANED, PROBE, PeerState,
    QUEUED, REJECT_DUE, Standing, VAIN,
};
use super::request::{ANSWERING, List, Phase, RECEIVE, State};
use super::send::Refusal;
use super::stall::{TO_ANSWER, TO_ASK};
use super::unexpected::{NARROW, SEEN, Stage, Unexpected};
use crate::pool::Handle;
use crate::ptl::{self, First};
use crate::rail::{Endpoint, Frame, SendError};
use crate::wire::{self, Header, Reason};

/// Probes in vain, of whatever they look for, after which an answer that was kept for one of them may go back.
const PATIENCE: u32 = 256;

impl<R: Rails> Pml<'_, R> {
    /// Sends a control frame on the peer's first link that has room. [`SendError::Unreachable`] where the peer is lost or
    /// unknown, for which there is nothing to wait; what its link answers may be made good by another, so that is to be
    /// tried again.
    ///
    /// After a message that found no room, it waits until one has left: rails let control frames into all of their room, and
    /// who answers all the time might leave none. Room for messages is freed by the other side's polls alone, so it is not
    /// for long.
    pub(super) fn control<H: Header + Copy>(&mut self, to: u32, header: H) -> Result<(), SendError> {
        let crowd = |peer: &PeerState| (if peer.is_crowded_out() { peer.firsts } else { 0 }, peer.links);
        let (from, links) = self.peers.get(to as usize).map_or((0, 0), crowd);
        if from != 0 && from >= links {
            return Err(SendError::Busy);
        }
        let mut sent = self.control_by(to, from.into(), header);
        for place in usize::from(from).saturating_add(1)..usize::from(links) {
            if sent != Err(SendError::Busy) {
                break;
            }
            sent = self.control_by(to, place, header); // the one before may not be connected, and not be for long
        }
        sent
    }

    /// The same on another one of the links in use.
    pub(super) fn control_by<H: Header>(&mut self, to: u32, place: usize, mut header: H) -> Result<(), SendError> {
        let link = *self.link(to, place).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        if peer.standing != Standing::Up {
            return Err(SendError::Unreachable);
        }
        if peer.links == 0 {
            return Err(SendError::Busy);
        }
        let rail = self.rails.rail_mut(link.rail as usize).ok_or(SendError::Unreachable)?;
        peer.stamp(header.common_mut());
        match ptl::control(rail, Endpoint(link.endpoint), &header) {
            Ok(_) => {
                peer.sent();
                Ok(())
            }
            Err(_) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                Err(SendError::Busy)
            }
        }
    }

    /// The same on the link in use of a certain rail, in its turn.
    pub(super) fn control_on<H: Header>(&mut self, to: u32, rail: usize, header: H) -> Result<(), SendError> {
        let peer = self.peers.get(to as usize).ok_or(SendError::Unreachable)?;
        let (crowded, firsts, links) = (peer.is_crowded_out(), usize::from(peer.firsts), usize::from(peer.links));
        let place = self.row(to).take(links).position(|link| link.is_of(rail)).ok_or(SendError::Unreachable)?;
        if crowded && place < firsts {
            return Err(SendError::Busy);
        }
        self.control_by(to, place, header)
    }

    /// Puts a peer into the list of those that have something to be told.
    pub(super) fn put_to_work(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        if peer.has(QUEUED) {
            return;
        }
        self.waiting = true;
        peer.set(QUEUED);
        peer.work_next = 0;
        append(self.peers, (&mut self.work_head, &mut self.work_tail), index);
    }

    /// Goes once through the peers that have something to be told. Those for whom there was room go behind the others then.
    pub(super) fn run_work(&mut self) {
        let last = self.work_tail;
        let (mut served, mut served_last) = (0, 0);
        let mut holding = false;
        while let Some(index) = self.work_head.checked_sub(1) {
            let Some(peer) = self.peers.get_mut(index as usize) else { return };
            self.work_head = peer.work_next;
            if self.work_head == 0 {
                self.work_tail = 0;
            }
            peer.clear(QUEUED);
            let before = peer.frame_out;
            if self.tell(index) {
                match self.peers.get_mut(index as usize) {
                    Some(peer) if peer.frame_out != before && !peer.has(QUEUED) => {
                        peer.set(QUEUED);
                        peer.work_next = 0;
                        append(self.peers, (&mut served, &mut served_last), index);
                    }
                    _ => self.put_to_work(index),
                }
            }
            holding |= self.peers.get(index as usize).is_some_and(|peer| peer.has(HOLDING));
            if index.wrapping_add(1) == last {
                break;
            }
        }
        if served != 0 {
            match self.work_tail.checked_sub(1).and_then(|tail| self.peers.get_mut(tail as usize)) {
                Some(tail) => tail.work_next = served,
                None => self.work_head = served,
            }
            self.work_tail = served_last;
        }
        // Peers that hold back are in the list all the time.
        self.posted.needed = holding;
    }

    /// Tells a peer what it has to be told; says whether something is left.
    fn tell(&mut self, index: u32) -> bool {
        let Some(peer) = self.peers.get(index as usize) else { return false };
        if peer.standing != Standing::Up {
            return false;
        }
        if peer.may_reject() {
            self.tell_reject(index);
        }
        self.tell_asked(index);
        self.push_held(index);
        self.tell_held(index);
        self.tell_signs(index);
        self.tell_credit(index);
        self.ask(index);
        let Some(peer) = self.peers.get(index as usize) else { return false };
        peer.is_held_up()
            || peer.signs.has(TO_ANSWER | TO_ASK)
            || peer.has(REJECT_DUE | ASKED | CREDIT_DUE | HOLDING | ORPHANED)
    }

    fn tell_reject(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if self.control(index, wire::Reject::new(peer.reject, Reason::Unmatched)).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(REJECT_DUE);
            self.counters.rejects_sent = self.counters.rejects_sent.wrapping_add(1);
        }
    }

    /// Gives credit back for which no frame came along.
    fn tell_credit(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        if !peer.has(CREDIT_DUE) {
            return;
        }
        if peer.owed == 0 {
            return peer.clear(CREDIT_DUE); // it rode on another frame
        }
        if self.control(index, wire::Credit::new()).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(CREDIT_DUE);
            self.counters.credits_sent = self.counters.credits_sent.wrapping_add(1);
        }
    }

    /// Says that messages are held back, once; also of those that wait for an answer to be settled, since that may take
    /// until a receive is asked for that only they satisfy.
    fn tell_held(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if peer.held.is_empty() || (peer.envelopes() != 0 && peer.answering == 0) || peer.has(ANNOUNCED) {
            return;
        }
        let notice = peer.notice_out.wrapping_add(1);
        if self.control(index, wire::Held::new(notice.into())).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.notice_out = notice;
            peer.set(ANNOUNCED);
            self.counters.notices_sent = self.counters.notices_sent.wrapping_add(1);
        }
    }

    /// Answers what the peer asked.
    fn tell_asked(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if !peer.has(ASKED) || peer.answering != 0 {
            return;
        }
        let pattern = Pattern { context: peer.ask_context, source: ANY, tag: peer.ask_tag };
        let mut next = peer.held.first();
        while let Some(slot) = next {
            next = List::after(&self.requests, slot);
            let fits = self.requests.at(slot).is_some_and(|state| {
                state.phase == Phase::Held
                    && pattern.accepts(&Key { context: state.context, source: 0, tag: state.tag })
            });
            if fits {
                if self.by_turns(index, |engine| engine.send_first(index, slot, true, None)).is_ok()
                    && let Some(peer) = self.peers.get_mut(index as usize)
                {
                    peer.clear(ASKED | ASKED_PROBE);
                }
                return;
            }
        }
        let mut header = wire::Nothing::new(peer.notice_out.into());
        if peer.held.is_empty() {
            header.common.flags = wire::FLAG_MARK;
        }
        if self.control(index, header).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(ASKED | ASKED_PROBE);
            peer.set(VAIN);
            self.counters.nothings_sent = self.counters.nothings_sent.wrapping_add(1);
        }
    }

    /// Asks a peer that holds messages back for the next receive that it could satisfy, or for a probe.
    fn ask(&mut self, from: u32) {
        let Some(peer) = self.peers.get(from as usize) else { return };
        if !peer.has(HOLDING) || peer.has(ASKING | REJECT_DUE) {
            return;
        }
        let (cursor, last) = (peer.cursor, self.posting.wrapping_sub(1));
        if cursor < last {
            if let Some((posting, pattern)) = self.posted_after(from, cursor) {
                return self.ask_for(from, pattern, Some(posting));
            }
            if let Some(peer) = self.peers.get_mut(from as usize) {
                peer.cursor = last;
            }
        }
        let Some(peer) = self.peers.get(from as usize) else { return };
        if peer.may_ask_for_probe() {
            let pattern = Pattern { context: peer.probe_context, source: from, tag: peer.probe_tag };
            self.ask_for(from, pattern, None);
        }
    }

    /// The receive that was posted next after posting number `after`, of those that a peer could satisfy.
    fn posted_after(&mut self, from: u32, after: u64) -> Option<(u64, Pattern)> {
        let requests = &mut self.requests;
        let mut steps = 0;
        if !self.posted.kept {
            steps = self.posted.make(requests);
            self.unusual = true;
        }
        let (of_peer, looked) = self.posted.next(requests, from, after);
        let (of_any, more) = self.posted.next(requests, ANY, after);
        steps = steps.wrapping_add(looked).wrapping_add(more);
        self.counters.ask_steps = self.counters.ask_steps.wrapping_add(steps);
        let found = [of_peer, of_any].into_iter().flatten().filter_map(|slot| requests.at(slot));
        let first = found.min_by_key(|state| state.remote)?;
        Some((first.remote, Pattern { context: first.context, source: first.peer, tag: first.tag }))
    }

    /// Sends an ask, for a posted receive or else for a probe.
    fn ask_for(&mut self, from: u32, pattern: Pattern, receive: Option<u64>) {
        if let Some(peer) = self.peers.get(from as usize)
            && let Some(slot) = peer.answered.checked_sub(1)
        {
            // The sender can settle one answer at a time: what was kept for a probe goes back.
            if receive.is_some() || self.gives_way(slot) {
                self.evict(slot);
            }
            return;
        }
        let mut header = wire::Ask::new(pattern.context, pattern.tag);
        if receive.is_none() {
            header.common.flags = wire::FLAG_MARK;
        }
        if self.control(from, header).is_err() {
            return;
        }
        self.counters.asks_sent = self.counters.asks_sent.wrapping_add(1);
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        peer.set(ASKING);
        if pattern.tag == ANY {
            peer.set(ASKING_WIDE);
        }
        match receive {
            Some(posting) => {
                peer.cursor = posting;
                peer.clear(ASKING_PROBE);
            }
            None => {
                peer.set(ASKING_PROBE);
                peer.clear(PROBE);
                peer.probes = 0;
            }
        }
    }

    /// The message that goes first of those here that a pattern accepts. An answer that was asked for by its tag gives way
    /// where any tag is looked for.
    #[inline]
    pub(super) fn find_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        loop {
            let slot = self.matcher.find_unexpected(pattern)?;
            let narrow = |envelope: &Unexpected| envelope.flags & NARROW != 0;
            if pattern.tag != ANY || !self.envelopes.at(slot).is_some_and(narrow) {
                return Some(slot);
            }
            self.evict(slot);
        }
    }

    /// Whether an answer that was kept for a probe may go back for another probe: it was found, or nobody seems to look
    /// for it any more. A program that looks for several things in turn must come round to it first.
    fn gives_way(&self, slot: u32) -> bool {
        self.envelopes.at(slot).is_none_or(|envelope| {
            envelope.flags & SEEN != 0 || self.vain_probes.wrapping_sub(envelope.sequence) >= PATIENCE
        })
    }

    /// A probe found nothing: peers that hold messages back are asked.
    pub(super) fn want_probe(&mut self, pattern: Pattern) {
        self.vain_probes = self.vain_probes.wrapping_add(1);
        if let Some(peer) = self.peers.get(pattern.source as usize) {
            if peer.has(HOLDING) {
                self.want_probe_of(pattern.source, pattern);
            }
        } else if self.work_head != 0 {
            // Any source: peers that hold back are always in the work list.
            let mut next = self.work_head;
            while let Some(index) = next.checked_sub(1) {
                let Some(peer) = self.peers.get(index as usize) else { return };
                next = peer.work_next;
                if peer.has(HOLDING) {
                    self.want_probe_of(index, pattern);
                }
            }
        }
    }

    /// Of all probes since the last ask one is drawn by lot: in any other order one of a program's probes might never have
    /// its turn.
    fn want_probe_of(&mut self, from: u32, pattern: Pattern) {
        let mut lot = (u64::from(self.vain_probes) ^ self.config.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lot = (lot ^ lot >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        let same = (peer.probe_context, peer.probe_tag) == (pattern.context, pattern.tag);
        if same && !peer.has(PROBE) && (peer.vain != 0 || peer.has(ASKING_PROBE)) {
            return; // it is being asked for, or was in vain, and there is no more since
        }
        peer.probes = peer.probes.saturating_add(1);
        if !peer.has(PROBE) || (lot >> 32).checked_rem(peer.probes.into()) == Some(0) {
            peer.set(PROBE);
            peer.probe_context = pattern.context;
            peer.probe_tag = pattern.tag;
        }
    }

    /// The caller is about to sleep: nobody comes round to what was kept for other probes.
    pub(super) fn lose_patience(&mut self) {
        self.vain_probes = self.vain_probes.wrapping_add(PATIENCE);
    }

    /// Sends an answer that was kept for a probe back to its sender.
    fn evict(&mut self, slot: u32) {
        if self.matcher.remove_unexpected(slot) {
            self.refuse(slot, Reason::Unmatched);
        }
    }

    /// A peer holds messages back: all receives are asked for anew.
    pub(super) fn on_held(&mut self, from: u32, header: wire::Held) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        let notice = header.notice.get() as u16;
        if notice.wrapping_sub(peer.notice_in) as i16 <= 0 {
            return; // an older one, overtaken
        }
        peer.notice_in = notice;
        peer.set(HOLDING);
        (peer.cursor, peer.vain) = (0, 0);
        self.put_to_work(from);
    }

    /// A peer asks for a message that is held back.
    pub(super) fn on_asked(&mut self, from: u32, header: wire::Ask) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        peer.ask_context = header.context.get();
        peer.ask_tag = header.tag.get();
        peer.set(ASKED);
        self.put_to_work(from);
    }

    /// A peer has nothing for what was asked.
    pub(super) fn on_nothing(&mut self, from: u32, header: wire::Nothing) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        if !peer.has(ASKING) {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return;
        }
        if peer.has(ASKING_PROBE) {
            peer.vain = peer.vain.saturating_add(1);
        }
        peer.clear(ASKING | ASKING_PROBE | ASKING_WIDE);
        if header.notice.get() as u16 != peer.notice_in {
            (peer.cursor, peer.vain) = (0, 0); // more was held back since: what was asked may be there now
        } else if header.common.flags & wire::FLAG_MARK != 0 {
            peer.clear(HOLDING);
        }
        self.put_to_work(from);
    }

    /// An answer: matched now, kept for a probe, or sent back.
    pub(super) fn on_answer(&mut self, rail: usize, frame: &Frame, first: First) -> bool {
        let from = frame.from.0;
        let Some(peer) = self.peers.get_mut(from as usize) else { return false };
        let (asking, probe, wide) = (peer.has(ASKING), peer.has(ASKING_PROBE), peer.has(ASKING_WIDE));
        peer.clear(ASKING | ASKING_PROBE | ASKING_WIDE);
        peer.vain = 0;
        let (in_turn, cursor) = (first.sequence == peer.next_in, peer.cursor);
        self.put_to_work(from);
        if asking && in_turn && first.rendezvous {
            let key = Key { context: first.context, source: from, tag: first.tag };
            // The answer is the first of the messages held that the ask accepts. A receive that accepts more must not
            // have it: one of the others may go first.
            let posted = self.matcher.peek_posted(&key);
            let fits = |slot| wide || self.requests.at(slot).is_some_and(|state| state.tag == first.tag);
            if let Some(slot) = posted.filter(|slot| fits(*slot)) {
                if self.requests.at(slot).is_none_or(|state| state.remote != cursor)
                    && let Some(peer) = self.peers.get_mut(from as usize)
                {
                    peer.cursor = 0; // another receive took it: ask again for the one that it was meant for
                }
                return self.arrive(rail, frame, first);
            }
            if posted.is_some()
                && let Some(peer) = self.peers.get_mut(from as usize)
            {
                peer.cursor = 0; // the receive that is in the way is asked for before all
            } else if probe && self.keep_answer(rail, frame, first, wide) {
                return false;
            }
        }
        self.drop_frame(rail, frame);
        let Some(peer) = self.peers.get_mut(from as usize) else { return false };
        if !in_turn {
            peer.cursor = 0;
            if probe {
                peer.set(PROBE);
            }
        }
        peer.reject = first.sender;
        // No honest peer is further ahead than its credit; who is has to be answered, too.
        let ahead = first.sequence.wrapping_sub(peer.next_in);
        peer.reject_at = if ahead <= i16::MAX as u32 { first.sequence } else { peer.next_in } as u16;
        peer.set(REJECT_DUE);
        false
    }

    /// Keeps an answer in a spare envelope, where a probe finds it.
    fn keep_answer(&mut self, rail: usize, frame: &Frame, first: First, wide: bool) -> bool {
        if self.spares_used >= self.config.probes {
            // Another peer's answer may give way.
            let mut next = self.matcher.next_unexpected(None);
            while let Some((slot, _)) = next {
                let answer = |envelope: &Unexpected| envelope.flags & wire::FLAG_ANSWER != 0;
                if self.envelopes.at(slot).is_some_and(answer) && self.gives_way(slot) {
                    self.evict(slot);
                    break;
                }
                next = self.matcher.next_unexpected(Some(slot));
            }
        }
        if self.spares_used >= self.config.probes {
            return false;
        }
        let Some(slot) = self.keep(rail, frame, first, Stage::Queued) else { return false };
        self.spares_used = self.spares_used.wrapping_add(1);
        if let Some(envelope) = self.envelopes.at_mut(slot) {
            envelope.flags |= if wide { 0 } else { NARROW };
            envelope.sequence = self.vain_probes;
        }
        if let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.answered = slot.wrapping_add(1);
            peer.probes = 0;
            peer.clear(PROBE); // or it would be sent back for the probe that it is for
        }
        let key = Key { context: first.context, source: frame.from.0, tag: first.tag };
        self.matcher.add_unexpected(slot, key);
        self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
        true
    }

    /// Gives an answer that a matched probe takes to a request, and frees its envelope; its sender goes on with other
    /// messages. `None` where the sender cannot be told yet.
    pub(super) fn take_answer(&mut self, handle: Handle) -> Result<Option<Handle>, Refusal> {
        let Some(envelope) = self.envelopes.get(handle) else { return Ok(None) };
        let (from, sender) = (envelope.peer, envelope.sender);
        let state = State {
            phase: Phase::Taken,
            flags: RECEIVE,
            peer: from,
            context: envelope.context,
            tag: envelope.tag,
            total: envelope.total,
            remote: sender,
            ..FromZeros::new_zeroed()
        };
        let request = self.requests.take(state).map_err(|_| Refusal::Busy)?;
        let mut header = wire::Ack::new(sender, Handle::NONE, 0);
        header.common.flags = wire::FLAG_MARK;
        if self.control(from, header).is_err() {
            self.requests.free(request);
            return Ok(None);
        }
        self.matcher.remove_unexpected(handle.slot());
        self.give_back(handle, true);
        Ok(Some(request))
    }

    /// An answer of ours is settled, or goes back to those held.
    pub(super) fn settle_answer(&mut self, slot: u32, taken: bool) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ANSWERING == 0 {
            return;
        }
        state.flags &= !ANSWERING;
        let to = state.peer;
        if !taken {
            state.phase = Phase::Held;
            state.moved = 0;
        }
        let Some(peer) = self.peers.get_mut(to as usize) else { return };
        peer.answering = 0;
        if taken {
            peer.let_go(&mut self.requests, slot);
        } else {
            self.forget_early_offer(slot);
        }
        self.put_to_work(to);
    }
}

/// Puts a peer, which is in no list, at the end of one.
fn append(peers: &mut [PeerState], (head, last): (&mut u32, &mut u32), index: u32) {
    let link = index.wrapping_add(1);
    match last.checked_sub(1).and_then(|last| peers.get_mut(last as usize)) {
        Some(before) => before.work_next = link,
        None => *head = link,
    }
    *last = link;
}
