//! The rare parts of receiving: choosing the ring to look at, padding, and rings that a peer has made.

use towline_core::rail::{Event, FrameId, Lost};
use towline_core::time::Instant;

use super::incoming::Incoming;
use super::peer::{PeerState, is_out_of_descriptors};
use super::ring_pair::EAGER;
use super::state::{NO_RING, Rail};
use crate::doorbell;
use crate::error::OpenError;
use crate::single_copy;
use crate::single_copy::probe::{REFUSED, SUPPORTED};
use crate::single_copy::read::RemoteReader;

/// Number of polls that begin with the same ring, if each yields a frame. A poll that yields nothing may count twice: once in
/// `poll_short`, and once in `poll`.
const POLLS_PER_TURN: u32 = 255;
/// Turns between two rounds of maintenance.
const MAINTENANCE_TURNS: u32 = 1;

impl Rail {
    /// Takes a frame behind padding. It calls `take` again, but not without end: padding ends at the ring's start, where no
    /// padding is allowed.
    #[cold]
    pub(super) fn take_after_padding(&mut self, ring: u32) -> Option<Event> {
        self.take(ring)
    }

    /// An incoming ring held a value that no correct peer writes.
    #[cold]
    pub(super) fn protocol_violation(&mut self, ring: u32) -> Option<Event> {
        log::error!("rank {} violated the protocol: it wrote an impossible frame", self.rank_of(ring / 2));
        self.fail(ring / 2, Lost::Misbehaved);
        self.report()
    }

    /// Looks at the active rings, beginning with `next_active`, and then at the doorbell and the quiet rings.
    pub(super) fn poll_rings(&mut self) -> Option<Event> {
        if self.held.is_full() {
            return None;
        }
        let mut at = self.schedule.next_active;
        for _ in 0..self.schedule.active.len() {
            at = if at < self.schedule.active.len() { at } else { 0 };
            if let Some(&ring) = self.schedule.active.get(at)
                && self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::has_frame)
            {
                (self.schedule.next_active, self.schedule.fast_ring) = (at, ring);
                return self.take(ring);
            }
            at += 1;
        }
        self.schedule.next_active = at; // no ring is looked at twice before all others
        self.schedule.fast_ring = self.schedule.active.get(at).copied().unwrap_or(NO_RING);
        self.poll_idle()
    }

    /// Whether [`poll_rings`](Self::poll_rings) would find nothing. If so, this call stands for it.
    pub(super) fn rings_are_idle(&mut self) -> bool {
        let has_frame = |&ring: &u32| self.rings.get(ring as usize).is_some_and(|ring| ring.incoming.has_frame());
        if self.schedule.active.iter().any(has_frame) || doorbell::has_rung(self.control.doorbell(), self.doorbell.seen)
        {
            return false;
        }
        if self.schedule.quiet.is_empty() {
            return true;
        }
        let next = self.schedule.after_quiet();
        let idle = !self.schedule.quiet.get(next).is_some_and(has_frame);
        if idle {
            self.schedule.next_quiet = next;
        }
        idle
    }

    /// Begins with another ring from now on: frames of one ring may come in so fast that the others would never be looked at.
    #[cold]
    #[inline(never)]
    pub(super) fn end_turn(&mut self, now: Instant) -> Option<Event> {
        self.schedule.polls_left = POLLS_PER_TURN;
        self.schedule.next_active = self.schedule.next_active.wrapping_add(1);
        match self.schedule.turns_left.checked_sub(1) {
            Some(turns) => self.schedule.turns_left = turns,
            None => {
                self.schedule.turns_left = MAINTENANCE_TURNS;
                if let Some(event) = self.maintain(now) {
                    return Some(event);
                }
            }
        }
        self.poll_rings()
    }

    /// No active ring had a frame: looks at the doorbell, and at one quiet ring.
    #[inline]
    fn poll_idle(&mut self) -> Option<Event> {
        if doorbell::has_rung(self.control.doorbell(), self.doorbell.seen) {
            return self.poll_after_doorbell();
        }
        if self.schedule.quiet.is_empty() { None } else { self.poll_quiet() }
    }

    #[cold]
    fn poll_after_doorbell(&mut self) -> Option<Event> {
        self.map_announced();
        (0..self.schedule.active.len()).find_map(|at| {
            let ring = *self.schedule.active.get(at)?;
            self.take(ring)
        })
    }

    #[cold]
    fn poll_quiet(&mut self) -> Option<Event> {
        self.schedule.next_quiet = self.schedule.after_quiet();
        let &ring = self.schedule.quiet.get(self.schedule.next_quiet)?;
        if !self.rings.get(ring as usize).map(|ring| &ring.incoming)?.has_frame() {
            return None;
        }
        self.schedule.quiet.swap_remove(self.schedule.next_quiet);
        self.schedule.active.push(ring);
        self.take(ring)
    }

    /// Takes the doorbell's bits, to be acted on by [`map_announced`](Self::map_announced).
    pub(super) fn take_doorbell_bits(&mut self) {
        let (announced, control) = (&mut self.doorbell.announced, &self.control);
        doorbell::take_bits(control.doorbell(), control.doorbell_bits(), &mut self.doorbell.seen, |bit| {
            if let Some(word) = announced.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        });
    }

    /// Maps the rings that peers have announced by the doorbell.
    #[cold]
    #[inline(never)]
    pub(super) fn map_announced(&mut self) {
        self.take_doorbell_bits();
        for word in 0..self.doorbell.announced.len() {
            let mut bits = self.doorbell.announced.get(word).copied().unwrap_or(0);
            while bits != 0 {
                let bit = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let endpoint = self.endpoints.get(bit / 2).copied().unwrap_or(0);
                if endpoint != 0 {
                    self.map_ring(endpoint - 1, bit % 2, bit);
                }
            }
        }
    }

    /// Maps the ring that bit `bit` announced, unless it has to wait until its sender is added. Before that, it looks whether the
    /// sender has departed, which the bit for short frames announces, too.
    fn map_ring(&mut self, endpoint: u32, class: usize, bit: usize) {
        if class == EAGER {
            self.follow_departure(endpoint);
        }
        let Some(peer) = self.peers.get(endpoint as usize) else { return };
        if !peer.status.receives() {
            return;
        }
        let ring = endpoint as usize * 2 + class;
        let exists = self.rings.get(ring).map(|ring| &ring.incoming).is_some_and(Incoming::exists);
        let path = self.identity.names.ring(peer.rank, self.identity.card.rank, class);
        let holder =
            (class == EAGER && !exists && self.config.single_copy_bytes != 0).then(|| single_copy::holder(&path));
        let (from, number) = (peer.nonce, peer.peer);
        let open = || Incoming::open(&path, from, self.identity.card.nonce, number);
        let mut opened = open();
        if is_out_of_descriptors(&opened)
            && self.peers.get_mut(endpoint as usize).is_some_and(PeerState::free_descriptor)
        {
            opened = open();
        }
        let Some(peer) = self.peers.get(endpoint as usize) else { return };
        match opened {
            Ok(None) => return, // the ring is of another incarnation, whose card is still to come
            Ok(Some(mut opened)) => {
                if class == EAGER && !exists {
                    let reader = match holder {
                        None => Err("single copy is switched off here".into()),
                        Some(holder) => RemoteReader::new(holder, opened.epoch()),
                    };
                    opened.set_probe(if reader.is_ok() { SUPPORTED } else { REFUSED });
                    opened.reader =
                        reader.map_err(|why| log::info!("long messages of rank {} are copied: {why}", peer.rank)).ok();
                }
                // No other process needs the name. A restarted process of that rank may have given it to a ring of its own.
                opened.remove_name(&path);
                if let (false, Some(incoming)) = (exists, self.rings.get_mut(ring).map(|ring| &mut ring.incoming)) {
                    *incoming = opened;
                    self.schedule.active.push(ring as u32);
                }
            }
            Err(OpenError::System { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {
                log::debug!("rank {} announced a ring that does not exist", peer.rank);
            }
            Err(error) => {
                // Frames of the peer may be in the ring already, so no other rail can take over.
                log::error!("frames of rank {} in shared memory cannot be read: {error}", peer.rank);
                let lost = if matches!(error, OpenError::Malformed(_)) { Lost::Misbehaved } else { Lost::Broken };
                self.fail(endpoint, lost);
            }
        }
        if let Some(word) = self.doorbell.announced.get_mut(bit / 64) {
            *word &= !(1 << (bit % 64));
        }
    }

    /// Address of a held frame's first byte, and the frame's length in bytes.
    #[inline]
    pub(super) fn held_frame(&self, frame: FrameId) -> Option<(*const u8, usize)> {
        let held = self.held.find(frame)?;
        let incoming = self.rings.get(held.ring as usize).map(|ring| &ring.incoming)?;
        Some((incoming.slots.frame(held.position).cast_const(), held.len as usize))
    }
}
