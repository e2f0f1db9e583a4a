//! The frames that are kept: where they lie, how many there are of each peer, and how they end.

use super::checksum::Checksum;
use super::in_flight::{AWAY, IN_PLACE, OVER, READING};
use super::numbers::distance;
use super::state::Link;
use crate::pool::Handle;
use crate::rail::{Cookie, FullRail};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A frame is kept for a peer, or one less is.
    pub(super) fn count(&mut self, at: u32, control: bool, by: i32) {
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        let before = (path.data() != 0, path.control != 0);
        path.kept = path.kept.wrapping_add_signed(by);
        path.control = path.control.wrapping_add_signed(if control { by } else { 0 });
        let after = (path.data() != 0, path.control != 0);
        let change = |holders: u32, before, after| holders.wrapping_add(after).wrapping_sub(before);
        self.data_holders = change(self.data_holders, before.0.into(), after.0.into());
        self.control_holders = change(self.control_holders, before.1.into(), after.1.into());
    }

    /// The window's entry of a number: the slot of the frame, plus one.
    pub(super) fn window_mut(&mut self, at: u32, number: u64) -> Option<&mut u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add((at as usize).wrapping_mul(width));
        self.ring.get_mut(place)
    }

    pub(super) fn window(&self, at: u32, number: u64) -> Option<u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add((at as usize).wrapping_mul(width));
        self.ring.get(place).filter(|entry| **entry < AWAY)?.checked_sub(1)
    }

    /// The oldest frame that is kept.
    pub(super) fn oldest(&self, at: u32) -> Option<u32> {
        let path = self.paths.get(at as usize).filter(|path| path.kept != 0)?;
        let start = if distance(path.oldest, path.first) > 0 { path.oldest } else { path.first };
        let mut number = start;
        while number != path.next {
            if let Some(slot) = self.window(at, number) {
                return Some(slot);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// A frame is done with, as soon as the rail below is.
    pub(super) fn over(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        kept.flags |= OVER;
        if kept.flags & READING != 0 {
            return;
        }
        if kept.flags & IN_PLACE != 0 {
            self.done.push(slot);
        } else if let Some(handle) = self.kept.handle(slot) {
            self.free_kept(handle);
        }
    }

    /// The rail below reads a body no more.
    pub(super) fn on_raw_sent(&mut self, cookie: Cookie) {
        let handle = Handle::from_bits(cookie.0);
        let Some(kept) = self.kept.get_mut(handle) else { return };
        if kept.flags & READING == 0 {
            return;
        }
        kept.flags &= !READING;
        if kept.flags & OVER != 0 {
            self.over(handle.slot());
        }
    }

    /// A body that is to be told of.
    pub(super) fn next_done(&mut self) -> Option<Cookie> {
        while let Some(slot) = self.done.pop() {
            let (Some(handle), Some(kept)) = (self.kept.handle(slot), self.kept.at(slot)) else { continue };
            let cookie = Cookie(kept.cookie);
            self.free_kept(handle);
            return Some(cookie);
        }
        None
    }

    pub(super) fn forget_draft(&mut self) {
        let draft = core::mem::replace(&mut self.draft, Handle::NONE);
        if draft != Handle::NONE {
            self.free_kept(draft);
        }
    }

    pub(super) fn free_kept(&mut self, handle: Handle) {
        if self.ferry == handle {
            self.ferry = Handle::NONE;
        }
        if let Some(kept) = self.kept.free(handle)
            && let Some(long) = kept.long.checked_sub(1)
        {
            self.long_free.push(long);
        }
    }

    /// The rail below has forgotten the peer: it reads no memory of it any more.
    pub(super) fn unread_all(&mut self, at: u32) {
        for slot in 0..self.kept.touched() {
            let Some(kept) = self.kept.at_mut(slot).filter(|kept| kept.path == at) else { continue };
            let read = kept.flags & READING != 0;
            kept.flags &= !READING;
            if read && kept.flags & OVER != 0 {
                self.over(slot);
            }
        }
    }

    /// Forgets all that is kept for a peer.
    pub(super) fn drop_kept(&mut self, at: u32) {
        self.halt(at);
        for slot in 0..self.kept.touched() {
            if self.kept.at(slot).is_none_or(|kept| kept.path != at) {
                continue;
            }
            if let Some(handle) = self.kept.handle(slot) {
                if handle == self.draft {
                    self.draft = Handle::NONE;
                }
                self.free_kept(handle);
            }
        }
        while let Some(path) = self.paths.get(at as usize).filter(|path| path.kept != 0) {
            self.count(at, path.control != 0, -1);
        }
        let kept = &self.kept;
        self.done.retain(|slot| kept.at(slot).is_some());
        let width = self.config.window as usize;
        let start = (at as usize).wrapping_mul(width);
        if let Some(window) = self.ring.get_mut(start..start.wrapping_add(width)) {
            window.fill(0);
        }
    }
}
