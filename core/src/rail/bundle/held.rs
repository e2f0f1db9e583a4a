//! The frames that the links of a bundle hold: which link holds a frame of the user, and frames that the user gets later.

use super::entries::{Held, Withheld};
use super::state::Bundle;
use crate::pool::Handle;
use crate::rail::{Event, Frame, FrameId, FullRail, Origin, Peer};

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'_, R, L> {
    /// The event for a frame of a link, if the user may have it now. Otherwise the frame is kept back.
    pub(super) fn hand_out(&mut self, link: usize, frame: Frame) -> Option<Event> {
        if frame.is_whole() {
            return self.reported(frame, frame.id);
        }
        let Some(handle) = self.hold(link, &frame) else {
            self.release_on(link, frame.id);
            return None;
        };
        if self.out < self.attributes.frames_kept {
            return self.take_out(handle, frame);
        }
        self.withhold(Withheld { handle, frame, doubtful: None });
        None
    }

    /// Keeps a migrated frame back until the user has delivered or released the frames that it holds.
    pub(super) fn doubt(&mut self, link: usize, origin: Origin, frame: Frame) {
        match self.hold(link, &frame) {
            Some(handle) => self.withhold(Withheld { handle, frame, doubtful: Some(origin) }),
            None => self.release_on(link, frame.id),
        }
    }

    /// The next frame that was kept back, and that the user may have now.
    pub(super) fn next_withheld(&mut self) -> Option<Event> {
        while let Some(place) = self.next_ready() {
            let next = self.withheld.get_mut(place).and_then(Option::take)?;
            self.withheld.get_mut(place..)?.rotate_left(1);
            let Some(held) = self.held.get(next.handle).copied() else { continue };
            let event = match next.doubtful {
                None => self.take_out(next.handle, next.frame),
                Some(origin) => {
                    self.held.free(next.handle);
                    self.arrive_migrated(held.link as usize, origin, next.frame, held.serial)
                }
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The place of the first frame that was kept back, and whose time has come.
    pub(super) fn next_ready(&self) -> Option<usize> {
        self.withheld.first()?.as_ref()?;
        let ready = |next: &Withheld| match next.doubtful {
            None => self.out < self.attributes.frames_kept,
            Some(_) => self.held.get(next.handle).is_none_or(|held| !self.user_holds(held.at, held.serial)),
        };
        self.withheld.iter().map_while(Option::as_ref).position(ready)
    }

    /// Whether the user holds a frame of a peer that arrived before the frame of this serial number.
    pub(super) fn user_holds(&self, at: u32, before: u64) -> bool {
        let earlier = |held: &Held| held.out && held.at == at && held.serial < before;
        self.out != 0 && (0..self.held.touched()).any(|slot| self.held.at(slot).is_some_and(earlier))
    }

    /// Whether no more frames can be kept back, so that links must not be polled.
    pub(super) fn is_full(&self) -> bool {
        self.withheld.last().is_none_or(Option::is_some)
    }

    /// Forgets all frames of a peer. The links drop them.
    pub(super) fn forget_frames(&mut self, at: u32) {
        for slot in 0..self.held.touched() {
            if let Some(handle) = self.held.handle(slot)
                && self.held.get(handle).is_some_and(|held| held.at == at)
            {
                self.let_go(handle);
            }
        }
        let mut kept = 0usize;
        for place in 0..self.withheld.len() {
            let Some(next) = self.withheld.get_mut(place).and_then(Option::take) else { break };
            if self.held.get(next.handle).is_some()
                && let Some(to) = self.withheld.get_mut(kept)
            {
                *to = Some(next);
                kept = kept.wrapping_add(1);
            }
        }
    }

    /// Takes a frame from the user, who delivers or releases it. Returns the link that holds it, and the link's name of it.
    pub(super) fn let_go(&mut self, handle: Handle) -> Option<(usize, FrameId)> {
        let held = self.held.free(handle)?;
        self.out = self.out.wrapping_sub(u32::from(held.out));
        Some((held.link as usize, FrameId(held.id)))
    }

    pub(super) fn release_on(&mut self, link: usize, frame: FrameId) {
        if let Some(link) = self.link_mut(link) {
            link.release(frame);
        }
    }

    fn hold(&mut self, link: usize, frame: &Frame) -> Option<Handle> {
        self.serial = self.serial.wrapping_add(1);
        let (id, at) = (frame.id.0, frame.from.0);
        self.held.take(Held { id, link: link as u32, at, serial: self.serial, out: false }).ok()
    }

    fn withhold(&mut self, next: Withheld) {
        if let Some(place) = self.withheld.iter_mut().find(|place| place.is_none()) {
            *place = Some(next);
        }
    }

    fn take_out(&mut self, handle: Handle, frame: Frame) -> Option<Event> {
        self.held.get_mut(handle)?.out = true;
        self.out = self.out.wrapping_add(1);
        self.reported(frame, FrameId(handle.to_bits()))
    }

    fn reported(&self, frame: Frame, id: FrameId) -> Option<Event> {
        let from = Peer(self.peers.at(frame.from.0)?.peer);
        Some(Event::Frame(Frame { id, from, ..frame }))
    }
}
