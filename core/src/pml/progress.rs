//! One round of progress: handles events of the rails, then sends waiting frames.

use crate::counts::value;
use crate::pml::counters::Counters;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::{ASKED, ASKING, CREDIT_DUE, HOLDING, MIGRATING, PROBE, REJECT_DUE};
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::pml::stall::liveness::{KEEPALIVE_DUE, KEEPALIVE_REPLY_DUE};
use crate::ptl;
use crate::rail::{Event, FastPath, Rail, SHORTCUTS, tags};
use crate::time::Instant;

impl<R: Rails> Pml<'_, R> {
    /// Handles one event of each rail, and sends waiting frames.
    ///
    /// Returns the number of events. It includes requests that ended by sending, and peers that were given up. 0 means that the
    /// engine is idle, and that no request has changed.
    ///
    /// `now` drives the rails' timers. It may be some microseconds old.
    #[inline(always)]
    pub fn progress(&mut self, now: Instant) -> u32 {
        let mut events = 0u32;
        for index in 0..self.rails.polled() {
            let Some(rail) = self.rails.rail_mut(index) else { continue };
            if !SHORTCUTS {
                events = events.wrapping_add(self.poll(index, now));
                continue;
            }
            events = events.wrapping_add(match rail.poll_short(ptl::TAG) {
                Some(short) => {
                    if !self.deliver_short(&short) {
                        self.poll_again_for_frame(index);
                    }
                    1
                }
                None if rail.is_idle() => 0,
                None => self.poll(index, now),
            });
        }
        if self.stall.is_due(now) {
            events = events.wrapping_add(self.check_stalled(now, events == 0));
        }
        if self.waiting {
            events = events.wrapping_add(self.send_waiting());
        }
        events
    }

    /// Pushes out frames that rails hold back to send them together with others ([`Rail::flush`](crate::rail::Rail::flush)). Call
    /// it before a longer time without [`progress`](Self::progress).
    pub fn flush(&mut self) {
        for index in 0..self.rails.polled() {
            if let Some(rail) = self.rails.rail_mut(index) {
                rail.flush();
            }
        }
    }

    /// The time by which [`progress`](Self::progress) must be called, even if nothing arrives. `None`: there is no such time.
    pub fn poll_at(&self) -> Option<Instant> {
        let rails = (0..self.rails.polled()).filter_map(|index| self.rails.rail(index)?.poll_at());
        rails.chain(self.stall_at()).min()
    }

    /// Prepares for a sleep on the rails' wait handles. `true`: nothing waits here, and an arrival makes a handle ready. `false`:
    /// make progress first.
    pub fn arm(&mut self) -> bool {
        let idle = self.active_is_waiting() && self.refused.is_none() && self.work_is_waiting();
        idle && !self.has_one_sided_to_send()
            && self.rails.offload().is_none_or(|device| device.arm())
            && self.arm_rails()
    }

    /// As [`arm`](Self::arm), for a short sleep while a frame waits here because no rail has room for it. A rail that reports new
    /// room may wake the caller earlier. `false`: something arrived.
    pub fn arm_rails(&mut self) -> bool {
        (0..self.rails.polled()).all(|index| self.rails.rail_mut(index).is_none_or(Rail::arm))
    }

    /// Whether this engine has sent all that it has to send: answers and credit are sent, the rails have drained, and so has the device
    /// that matches messages, if there is one. Then it may end while other engines go on: the messages of all sends that are over have
    /// arrived, or will arrive.
    pub fn is_drained(&mut self) -> bool {
        let said = self.active.is_empty()
            && self.refused.is_none()
            && self.work_is_waiting()
            && !self.has_one_sided_to_send()
            && self.has_device_sent_all();
        let all_said_to = |(peer, state): (u32, &PeerState)| {
            state.status != PeerStatus::Up || (self.drained(peer) && !state.has(REJECT_DUE) && !self.has_to_send(peer))
        };
        said && (0u32..).zip(self.peers.iter()).all(all_said_to)
    }

    /// Whether the device that matches messages has sent all that it was given. Without one it has.
    pub fn has_device_sent_all(&mut self) -> bool {
        self.offload().is_none_or(|device| device.has_sent_all())
    }

    /// Polls a rail. Returns the number of events, 0 or 1.
    #[inline(never)]
    fn poll(&mut self, index: usize, now: Instant) -> u32 {
        let Some(rail) = self.rails.rail_mut(index) else { return 0 };
        if SHORTCUTS && let Some(eager) = rail.poll_eager(ptl::TAG) {
            if !self.deliver_short(&eager) {
                self.poll_again_for_frame(index);
            }
            return 1;
        }
        // Borrowed, not moved: moving a frame costs as much as matching it.
        match &rail.poll(now) {
            None => return 0,
            Some(Event::Frame(frame)) if frame.tag == ptl::TAG => {
                // `poll` yields short frames as well. They take the same fast path.
                if !SHORTCUTS || !frame.short().is_some_and(|short| self.deliver_short(&short)) {
                    self.arrive(index, false, frame);
                }
            }
            // The rail repeats this report, and no request waits for it. It counts as an event only if the link is given up.
            Some(Event::Silent(peer, due)) => return self.link_silent(index, *peer, *due).into(),
            Some(event) => self.event(index, *event),
        }
        1
    }

    /// Handles the short frame that `deliver_short` has refused.
    #[inline(never)]
    fn poll_again_for_frame(&mut self, index: usize) {
        match self.rails.rail_mut(index).and_then(FastPath::poll_again) {
            None => {}
            Some(frame) if frame.tag == ptl::TAG => self.arrive(index, false, &frame),
            Some(frame) => self.event(index, Event::Frame(frame)),
        }
    }

    #[cold]
    fn event(&mut self, rail: usize, event: Event) {
        match event {
            Event::Frame(frame) if frame.tag == tags::BTL_BASE => self.one_sided_frame(rail, &frame),
            Event::Frame(frame) => {
                self.counters.unknown_tags = self.counters.unknown_tags.wrapping_add(1);
                self.drop_frame(rail, &frame);
            }
            Event::Sent(cookie) => self.body_sent(cookie),
            Event::Delivered(cookie) => self.body_delivered(cookie),
            Event::Performed(cookie, result) => self.performed(cookie, result),
            Event::Lost(peer, why) => self.rail_lost(rail, peer, why),
            Event::Down(peer, why) => self.link_down(rail, peer, why),
            Event::Up(peer) => self.link_up(rail, peer),
            Event::Silent(peer, due) => {
                self.link_silent(rail, peer, due);
            }
            Event::Migrated(origin, frame) => self.arrive_migrated(rail, origin, &frame),
        }
    }

    /// Sends waiting frames. Returns the number of requests that ended or may have ended by that.
    #[cold]
    fn send_waiting(&mut self) -> u32 {
        let before = self.ended;
        // First: at the other side new messages may have to wait for these frames, and streams would leave no room for them.
        if self.migrating && self.has_other_rails() {
            self.migrate_frames();
        }
        // There may be room for one of the two only. If the first one has sent something, it goes second the next time.
        let first = self.streams_first;
        for streams in [first, !first] {
            let carried = self.carried();
            if streams {
                self.run_active();
            } else {
                self.run_refused();
                self.run_work();
            }
            if streams == first && self.carried() != carried {
                self.streams_first = !first;
            }
        }
        let one_sided = self.push_out_one_sided();
        self.waiting = (self.active.first().bits() | self.work.first().bits() | self.refused.bits()) != 0 || one_sided;
        self.ended.wrapping_sub(before)
    }

    /// The number of fragments sent so far, first and later ones. In a build without counters all frames count, and the number wraps
    /// earlier: peers are few then.
    fn carried(&self) -> u64 {
        if !cfg!(feature = "counters") {
            return self.peers.iter().fold(0, |sum: u32, peer| sum.wrapping_add(peer.frame_out)).into();
        }
        let Counters { eager_sent, rendezvous_sent, answers_sent, fragments_sent, .. } = self.counters;
        let sent = [eager_sent, rendezvous_sent, answers_sent, fragments_sent].map(value);
        sent.into_iter().fold(0, u64::wrapping_add)
    }

    /// Whether all peers in the work list wait for the other side.
    fn work_is_waiting(&mut self) -> bool {
        let mut next = self.work.first();
        while let Some(index) = next.get()
            && let Some(peer) = self.peers.get(index as usize)
        {
            next = peer.work_next;
            if peer.route.links == 0 {
                continue; // it waits until a rail is enabled or a link is up again
            }
            if peer.has(HOLDING) && !peer.has(ASKING | REJECT_DUE) && peer.has(PROBE) {
                if let Some(peer) = self.peers.get_mut(index as usize) {
                    peer.asks.probes = u8::MAX; // the caller does not probe while it sleeps
                }
                self.expire_probes();
                return false;
            }
            if self.has_to_send(index) {
                return false;
            }
        }
        true
    }

    /// Whether something is to be sent to a peer and does not have to wait for the peer.
    fn has_to_send(&self, index: u32) -> bool {
        let last = self.next_posting.wrapping_sub(1);
        self.peers.get(index as usize).is_some_and(|peer| {
            // A peer that holds messages back is always in the work list, also while an ask is out or there is nothing to ask
            // for.
            let may_ask = peer.has(HOLDING) && !peer.has(ASKING);
            peer.has(CREDIT_DUE | MIGRATING)
                || peer.may_reject()
                || peer.liveness.has(KEEPALIVE_REPLY_DUE | KEEPALIVE_DUE)
                || (peer.has(ASKED) && peer.asked.answering.is_none())
                || (may_ask && !peer.has(REJECT_DUE) && peer.asks.cursor < last)
                || peer.is_held_up()
        })
    }
}
