//! The rare parts of receiving: new rings, quiet rings, upkeep.

use towline_core::rail::{Event, FrameId, Lost};
use towline_core::time::{Duration, Instant};

use crate::doorbell;
use crate::error::OpenError;
use crate::rail::outgoing::Incoming;
use crate::rail::transport::{NO_RING, Rail, Stage};
use crate::single_copy::sender::{self as single, REFUSED, Reader, WORKS};

/// Polls that begin with one ring, if they yield frames all the time. Of those that yield nothing each may count twice: when
/// a short frame is looked for, and when any is.
const TURN_POLLS: u32 = 255;
/// Turns between two rounds of upkeep.
const UPKEEP_TURNS: u32 = 1;
/// Rings that are always polled, however quiet.
const ALWAYS_HOT: usize = 4;
/// Rounds of upkeep after which quiet rings are no longer polled each time.
const SORTING_ROUNDS: u32 = 64;

impl Rail {
    /// A frame behind padding. Padding never stands twice in a row, and what a liar writes there ends at its ring's start.
    #[cold]
    pub(crate) fn take_after_padding(&mut self, ring: u32) -> Option<Event> {
        self.take(ring)
    }

    /// An incoming ring held what no correct peer writes.
    #[cold]
    pub(crate) fn forged(&mut self, ring: u32) -> Option<Event> {
        log::error!("rank {} wrote a frame that cannot be", self.rank_of(ring / 2));
        self.fail(ring / 2, Lost::Misbehaved);
        self.report()
    }

    /// Looks at the hot rings, from the one whose turn it is on, and then elsewhere.
    pub(crate) fn look(&mut self) -> Option<Event> {
        if self.kept.is_full() {
            return None;
        }
        let mut at = self.turn;
        for _ in 0..self.hot.len() {
            at = if at < self.hot.len() { at } else { 0 };
            if let Some(&ring) = self.hot.get(at)
                && self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::waits)
            {
                (self.turn, self.front) = (at, ring);
                return self.take(ring);
            }
            at += 1;
        }
        self.turn = at; // nobody is looked at twice before all others
        self.front = self.hot.get(at).copied().unwrap_or(NO_RING);
        self.idle()
    }

    /// It is another ring's turn: frames of one may come in so fast that the others are never looked at.
    #[cold]
    #[inline(never)]
    pub(crate) fn turn_over(&mut self, now: Instant) -> Option<Event> {
        self.countdown = TURN_POLLS;
        self.turn = self.turn.wrapping_add(1);
        match self.turns.checked_sub(1) {
            Some(turns) => self.turns = turns,
            None => {
                self.turns = UPKEEP_TURNS;
                if let Some(event) = self.upkeep(now) {
                    return Some(event);
                }
            }
        }
        self.look()
    }

    /// No hot ring had anything: the doorbell, and one quiet ring.
    #[inline]
    fn idle(&mut self) -> Option<Event> {
        if doorbell::rang(self.board.bell(), self.bell_seen) {
            return self.idle_rung();
        }
        if self.warm.is_empty() { None } else { self.idle_warm() }
    }

    #[cold]
    fn idle_rung(&mut self) -> Option<Event> {
        self.answer();
        (0..self.hot.len()).find_map(|at| {
            let ring = *self.hot.get(at)?;
            self.take(ring)
        })
    }

    #[cold]
    fn idle_warm(&mut self) -> Option<Event> {
        self.warm_turn = if self.warm_turn + 1 < self.warm.len() { self.warm_turn + 1 } else { 0 };
        let &ring = self.warm.get(self.warm_turn)?;
        if !self.rings.get(ring as usize).map(|ring| &ring.incoming)?.waits() {
            return None;
        }
        self.warm.swap_remove(self.warm_turn);
        self.hot.push(ring);
        self.take(ring)
    }

    /// What is due now and then.
    #[cold]
    #[inline(never)]
    pub(crate) fn upkeep(&mut self, now: Instant) -> Option<Event> {
        let woken = self.armed;
        if woken {
            self.wake_up();
        }
        if doorbell::rang(self.board.bell(), self.bell_seen) {
            self.answer();
        }
        let due = now >= self.next_check;
        if due {
            let interval = u64::try_from(self.config.liveness_interval.as_nanos()).unwrap_or(u64::MAX);
            self.next_check = now + Duration::from_nanos(interval);
        }
        if due || woken {
            self.check_peers(due);
        }
        if due {
            self.unmap_windows();
        }
        if self.locks != 0 {
            self.unlock_rings();
        }
        self.sort_rings();
        if self.failing == 0 {
            return None;
        }
        self.turns = 0;
        self.report()
    }

    /// Moves rings that have frames to the hot list, and quiet ones off it.
    fn sort_rings(&mut self) {
        let mut at = 0;
        while let Some(&ring) = self.warm.get(at) {
            if self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::waits) {
                self.warm.swap_remove(at);
                self.hot.push(ring);
            } else {
                at += 1;
            }
        }
        self.rounds = self.rounds.wrapping_add(1);
        if !self.rounds.is_multiple_of(SORTING_ROUNDS) {
            return;
        }
        let mut at = 0;
        while let Some(&ring) = self.hot.get(at) {
            let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming) else { break };
            let quiet = incoming.seen == incoming.receiver.position();
            incoming.seen = incoming.receiver.position();
            if quiet && self.hot.len() > ALWAYS_HOT {
                self.hot.swap_remove(at);
                self.front = NO_RING;
                self.warm.push(ring);
            } else {
                at += 1;
            }
        }
    }

    /// Maps the rings that were announced since.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer(&mut self) {
        let (early, board) = (&mut self.early, &self.board);
        doorbell::answer(board.bell(), board.bits(), &mut self.bell_seen, |bit| {
            if let Some(word) = early.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        });
        for word in 0..self.early.len() {
            let mut bits = self.early.get(word).copied().unwrap_or(0);
            while bits != 0 {
                let bit = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let endpoint = self.endpoints.get(bit / 2).copied().unwrap_or(0);
                if endpoint != 0 {
                    self.attach(endpoint - 1, bit % 2, bit);
                }
            }
        }
    }

    /// Maps the ring that bit `bit` announced, unless it has to wait for its sender to be added.
    fn attach(&mut self, endpoint: u32, lane: usize, bit: usize) {
        let Some(peer) = self.peers.get(endpoint as usize) else { return };
        if !matches!(peer.stage, Stage::Live | Stage::Failing(_)) {
            return;
        }
        let ring = endpoint as usize * 2 + lane;
        let exists = self.rings.get(ring).map(|ring| &ring.incoming).is_some_and(Incoming::exists);
        let path = self.names.ring(peer.rank, self.card.rank, lane);
        let holder = (lane == 0 && !exists && self.config.single_copy_bytes != 0).then(|| single::holder(&path));
        let opened = Incoming::open(&path, peer.nonce, self.card.nonce, peer.peer);
        match opened {
            Ok(None) => return, // of another incarnation: its card is still to come
            Ok(Some(mut opened)) => {
                if lane == 0 && !exists {
                    let read = match holder {
                        None => Err("switched off here".into()),
                        Some(holder) => Reader::new(holder, opened.pledge()),
                    };
                    opened.tell(if read.is_ok() { WORKS } else { REFUSED });
                    opened.reader =
                        read.map_err(|why| log::info!("messages of rank {} are copied: {why}", peer.rank)).ok();
                }
                // Nobody else needs the name.
                let _ = std::fs::remove_file(&path);
                if let (false, Some(incoming)) = (exists, self.rings.get_mut(ring).map(|ring| &mut ring.incoming)) {
                    *incoming = opened;
                    self.hot.push(ring as u32);
                }
            }
            Err(OpenError::System { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {
                log::debug!("rank {} announced a ring that is not there", peer.rank);
            }
            Err(error) => {
                log::error!("rank {} is out of reach through shared memory: {error}", peer.rank);
                let lost = if matches!(error, OpenError::Malformed(_)) { Lost::Misbehaved } else { Lost::Broken };
                self.fail(endpoint, lost);
            }
        }
        if let Some(word) = self.early.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// A held frame: its first byte, and how many there are.
    #[inline]
    pub(crate) fn held(&self, frame: FrameId) -> Option<(*const u8, usize)> {
        let held = self.kept.find(frame)?;
        let incoming = self.rings.get(held.ring as usize).map(|ring| &ring.incoming)?;
        Some((incoming.slots.frame(held.position).cast_const(), held.len as usize))
    }
}
