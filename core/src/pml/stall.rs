//! Peers that are there and do nothing: when the patience for one that something is waited for ends.
//!
//! A rank that computes, or that is stopped, looks to its rails like one that lives: it has a connection, its host answers.
//! Whoever wants it to count as dead sets a stall time-out; there is none unless it is set. It is looked four times in that
//! time, whenever nothing else comes, for which peers something is *waited for*: a request that is not over and that only the
//! peer can bring forward (a message that is held back, an unanswered rendezvous, a rest that is coming or leaving, a receive
//! that names it; one from any source waits for all that anything was ever sent to), or a rail that has not drained to it.
//! Such a peer gives a *sign of life* with any frame and by taking what is on its way to it. It is also asked for one, by a
//! credit frame with [`FLAG_MARK`](crate::wire::FLAG_MARK), which an engine answers as soon as it makes progress: so who waits
//! for a message that is late has nothing to fear for a peer that waits, too. Question and answer go by all links in use, as
//! one of them may be dead without anybody knowing it yet; with a link that is found to be down the patience begins anew. Looks
//! do not count while no question can leave, because the first connection to the peer is still being made. One that gives no
//! sign for four looks is lost as [`Lost::Stalled`], in every way as if its rail had said so; it is told, as far as there
//! is a way, that it was given up, and takes that for an accident.
//!
//! Time alone proves nothing: this process may have been stopped itself. So looks count, each of which comes a quarter of the
//! time after the one before it, and when the rails have nothing more to bring. What a poll says of that is not enough, as
//! some rails do not ask the kernel each time: [`arm`](crate::rail::Rail::arm) says it. Where something comes all the time, the
//! rails have been polled many times since the look was due.

use zerocopy::FromZeros;

use super::engine::{Pml, Rails};
use super::peer::Standing;
use super::request::{Phase, State};
use crate::rail::{Lost, Peer};
use crate::time::{Duration, Instant};
use crate::wire;

/// Looks in the time after which a peer is given up.
const LOOKS: u8 = 4;
/// Rounds after which a look that is due takes place also if the rails are never idle: more than what may lie in them.
const ROUNDS: u32 = 1024;

/// What is known of a peer's progress: marks, and how many looks in a row were in vain.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct Signs(u8);

/// Something came, or left, since the last look. Short messages by the quick way do not set it: their numbers tell, in
/// `look_at`.
pub(super) const HEARD: u8 = 0x01;
/// A request waits for the peer.
const AWAITED: u8 = 0x02;
/// No sign, but kept with them: a message to the peer found no room.
pub(super) const CROWDED_OUT: u8 = 0x04;
/// The peer asks for one.
pub(super) const TO_ANSWER: u8 = 0x08;
/// One look in vain.
const SILENT: u8 = 0x10;
/// As many as there may be.
const SILENCE: u8 = 0x70;
/// The peer is to be asked for a sign as soon as there is room for the question.
pub(super) const TO_ASK: u8 = 0x80;

const _: () = assert!(LOOKS <= SILENCE / SILENT);

impl Signs {
    #[inline]
    pub const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    #[inline]
    pub const fn set(&mut self, mark: u8) {
        self.0 |= mark;
    }

    #[inline]
    pub const fn clear(&mut self, mark: u8) {
        self.0 &= !mark;
    }

    const fn silent(self) -> u8 {
        (self.0 & SILENCE) / SILENT
    }

    /// One more look, at a peer that something is waited for or not. The time begins with the first look at one that is.
    const fn look(&mut self, awaited: bool) {
        if !awaited {
            self.0 = (self.0 | HEARD) & !SILENCE;
        } else if self.has(HEARD) {
            self.0 &= !(HEARD | SILENCE);
        } else if self.silent() < LOOKS {
            self.0 = self.0.wrapping_add(SILENT);
        }
    }
}

/// When it is looked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// Nanoseconds between looks, 0 where there is no time-out.
    gap: u64,
    /// The next look; `u64::MAX` where there is no time-out.
    at: u64,
    /// Rounds since it was due.
    rounds: u32,
}

impl Stall {
    pub const OFF: Self = Self { gap: 0, at: u64::MAX, rounds: 0 };

    /// Whether a look is due.
    #[inline]
    pub const fn is_due(&self, now: Instant) -> bool {
        now.as_nanos() >= self.at
    }

    /// Whether looks are due at all.
    const fn is_on(&self) -> bool {
        self.gap != 0
    }
}

impl<R: Rails> Pml<'_, R> {
    /// Has peers count as dead ([`Lost::Stalled`]) that something is waited for and that give no sign of life for so long:
    /// also those that are stopped, or that compute without making progress. A zero time, as at first, lets all wait for ever.
    ///
    /// It is noticed by [`progress`](Self::progress), within five quarters of the time, if that is called often enough.
    pub fn set_stall_timeout(&mut self, time: Duration) {
        self.stall = Stall { gap: time.as_nanos().div_ceil(LOOKS.into()), ..Stall::OFF };
        if self.stall.is_on() {
            self.stall.at = 0; // the next call tells the time
        }
    }

    /// Why a peer was lost; `None` of one that was not.
    pub fn why_lost(&self, peer: Peer) -> Option<Lost> {
        let state = self.peers.get(peer.0 as usize).filter(|state| state.standing == Standing::Lost)?;
        Some(match state.turn {
            1 => Lost::Closed,
            2 => Lost::TimedOut,
            3 => Lost::Misbehaved,
            4 => Lost::Stalled,
            _ => Lost::Broken,
        })
    }

    /// The other way round.
    pub(super) const fn reason(why: Lost) -> u8 {
        match why {
            Lost::Broken => 0,
            Lost::Closed => 1,
            Lost::TimedOut => 2,
            Lost::Misbehaved => 3,
            Lost::Stalled => 4,
        }
    }

    /// When the next look is due.
    pub(super) fn stall_at(&self) -> Option<Instant> {
        self.stall.is_on().then_some(Instant::from_nanos(self.stall.at))
    }

    /// A look is due, after a round in which the rails had nothing, or something. Tells how many peers were given up.
    #[cold]
    #[inline(never)]
    pub(super) fn look_is_due(&mut self, now: Instant, nothing: bool) -> u32 {
        let first = self.stall.at == 0;
        self.stall.rounds = self.stall.rounds.saturating_add(1);
        if !first && self.stall.rounds < ROUNDS && !(nothing && self.arm_rails()) {
            return 0;
        }
        (self.stall.at, self.stall.rounds) = (now.as_nanos().saturating_add(self.stall.gap), 0);
        if first {
            return 0;
        }
        let before = self.counters.lost;
        let anyone = self.mark_awaited();
        for index in 0..self.peers.len() as u32 {
            self.look_at(index, anyone);
        }
        self.counters.lost.wrapping_sub(before) as u32
    }

    /// Marks the peers that requests wait for. Tells whether one waits for anybody.
    fn mark_awaited(&mut self) -> bool {
        self.peers.iter_mut().for_each(|state| state.signs.clear(AWAITED));
        let mut anyone = false;
        for slot in 0..self.requests.touched() {
            let Some(state) = self.requests.at(slot).filter(|state| waits(state)) else { continue };
            match self.peers.get_mut(state.peer as usize) {
                Some(peer) => peer.signs.set(AWAITED),
                None => anyone = true,
            }
        }
        for index in 0..self.peers.len() as u32 {
            if self.awaits_one_sided(index)
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.signs.set(AWAITED);
            }
        }
        anyone
    }

    fn look_at(&mut self, index: u32, anyone: bool) {
        let Some(peer) = self.peers.get(index as usize).filter(|peer| peer.standing == Standing::Up) else { return };
        let met = peer.frame_out != 0 || self.has_met_one_sided(index);
        // Where no rail is in use nothing can come, and it is not the peer's fault.
        let wanted = peer.signs.has(AWAITED) || (anyone && met) || !self.drained(index);
        let awaited = peer.links != 0 && wanted;
        let told = awaited && self.tell_by_all(index, question());
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        peer.signs.clear(TO_ASK);
        // Where nothing could ever leave, the connection is still being made; where it could and cannot now, nothing is taken, or
        // others have the room just now: the question is tried again until the next look.
        let asked = told || (awaited && met);
        let again = asked && !told;
        if again {
            peer.signs.set(TO_ASK);
        }
        // The quick way leaves no other mark. Of 256 messages exactly between two looks nothing is seen, four times in a row.
        let next_in = peer.next_in as u8;
        if core::mem::replace(&mut peer.seen_in, next_in) != next_in {
            peer.signs.set(HEARD);
        }
        peer.signs.look(asked);
        if peer.signs.silent() >= LOOKS {
            self.lost(Peer(index), Lost::Stalled);
        } else if again {
            self.put_to_work(index);
        }
    }

    /// Answers a peer that asked, and asks one for whom there was no room when it was looked.
    pub(super) fn tell_signs(&mut self, index: u32) {
        for (mark, word) in [(TO_ANSWER, wire::Credit::new()), (TO_ASK, question())] {
            if self.peers.get(index as usize).is_some_and(|peer| peer.signs.has(mark))
                && self.tell_by_all(index, word)
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.signs.clear(mark);
            }
        }
    }

    /// Sends a control frame by all links in use, of which any may be dead. Whether one of them took it.
    fn tell_by_all(&mut self, index: u32, credit: wire::Credit) -> bool {
        let links = self.peers.get(index as usize).map_or(0, |peer| peer.links);
        let mut told = false;
        for place in 0..usize::from(links) {
            told |= self.control_by(index, place, credit).is_ok();
        }
        told
    }

    /// Tells a peer that it is given up, if its rails have room for that.
    pub(super) fn tell_given_up(&mut self, index: u32) {
        let mut word = wire::Credit::new();
        word.common.flags = wire::FLAG_MARK | wire::FLAG_ANSWER;
        self.tell_by_all(index, word);
    }

    /// A peer asks whether this engine makes progress.
    pub(super) fn on_question(&mut self, from: u32) {
        let Some(peer) = self.peers.get_mut(from as usize).filter(|peer| peer.standing == Standing::Up) else { return };
        peer.signs.set(TO_ANSWER);
        self.put_to_work(from);
    }
}

/// Asks for a sign of life.
const fn question() -> wire::Credit {
    let mut question = wire::Credit::new();
    question.common.flags = wire::FLAG_MARK;
    question
}

/// Whether a request is not over before its peer has done something.
const fn waits(state: &State) -> bool {
    !matches!(state.phase, Phase::Done | Phase::Taken)
}
