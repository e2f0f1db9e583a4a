//! The frames that are kept: their memory, their number for each peer, and their end.

use super::checksum::Checksum;
use super::in_flight::{FINISHED, HEAD_ROOM, IN_PLACE, MIGRATED_ENTRY, READING};
use super::numbers::distance;
use super::paths::{SEVERAL, start};
use super::state::Link;
use crate::pool::Handle;
use crate::rail::{Cookie, FullRail, LATER};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Memory for a body, in the frame's slot or in a place for long grants. `None`: there is no room. `migrated`: the frame
    /// migrated here, and may use the reserve slot.
    pub(super) fn reserve_room(&mut self, handle: Handle, len: usize, migrated: bool) -> Option<*mut u8> {
        if len.wrapping_add(HEAD_ROOM) <= self.send.slots.each() {
            return Some(self.send.slots.at(handle.slot()).wrapping_add(HEAD_ROOM));
        }
        if !LATER || len > self.send.long.each() {
            return None;
        }
        // The last place is for the frame in the reserve slot.
        let kept_back = u32::from(self.has_several());
        if self.send.reserve_slot != handle && self.send.long_free.len() <= kept_back {
            if !migrated || self.send.reserve_slot != Handle::NONE {
                return None;
            }
            self.send.reserve_slot = handle;
        }
        let place = self.send.long_free.pop()?;
        match self.send.frames.get_mut(handle) {
            Some(frame) => frame.long = place.wrapping_add(1),
            None => self.send.long_free.push(place),
        }
        Some(self.send.long.at(place))
    }

    /// Adds `by` to the number of frames that are kept for a peer.
    pub(super) fn count(&mut self, at: u32, control: bool, by: i32) {
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        let window = &mut path.send;
        let before = (window.unacked_data() != 0, window.unacked_control != 0);
        window.unacked = window.unacked.wrapping_add_signed(by);
        window.unacked_control = window.unacked_control.wrapping_add_signed(if control { by } else { 0 });
        if !SEVERAL {
            return; // no other peer wants a share
        }
        let after = (window.unacked_data() != 0, window.unacked_control != 0);
        let change = |holders: u32, before, after| holders.wrapping_add(after).wrapping_sub(before);
        self.send.data_holders = change(self.send.data_holders, before.0.into(), after.0.into());
        self.send.control_holders = change(self.send.control_holders, before.1.into(), after.1.into());
    }

    /// The entry of a number in the send window.
    pub(super) fn window_entry_mut(&mut self, at: u32, number: u64) -> Option<&mut u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add(start(at, width));
        self.send.window.get_mut(place)
    }

    /// The slot of the frame with a number.
    pub(super) fn window_slot(&self, at: u32, number: u64) -> Option<u32> {
        let width = self.config.window as usize;
        let place = (number as usize & width.wrapping_sub(1)).wrapping_add(start(at, width));
        self.send.window.get(place).filter(|entry| **entry < MIGRATED_ENTRY)?.checked_sub(1)
    }

    /// The oldest frame that is kept for a peer.
    pub(super) fn oldest(&self, at: u32) -> Option<u32> {
        let window = self.peers.paths.get(at as usize).map(|path| &path.send).filter(|window| window.unacked != 0)?;
        let start = if distance(window.oldest, window.first) > 0 { window.oldest } else { window.first };
        let mut number = start;
        while number != window.next {
            if let Some(slot) = self.window_slot(at, number) {
                return Some(slot);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// A frame is acknowledged, or has migrated. It ends as soon as the rail below no longer reads its body.
    pub(super) fn finish_frame(&mut self, slot: u32) {
        let Some(frame) = self.send.frames.at_mut(slot) else { return };
        frame.flags |= FINISHED;
        if LATER && frame.flags & READING != 0 {
            return;
        }
        if LATER && frame.flags & IN_PLACE != 0 {
            self.send.done.push(slot);
        } else if let Some(handle) = self.send.frames.handle(slot) {
            self.free_frame(handle);
        }
    }

    /// The rail below no longer reads a body.
    pub(super) fn on_below_sent(&mut self, cookie: Cookie) {
        if !LATER {
            return;
        }
        let handle = Handle::from_bits(cookie.0);
        let Some(frame) = self.send.frames.get_mut(handle) else { return };
        if frame.flags & READING == 0 {
            return;
        }
        frame.flags &= !READING;
        if frame.flags & FINISHED != 0 {
            self.finish_frame(handle.slot());
        }
    }

    /// The next frame for which [`Event::Sent`](crate::rail::Event::Sent) is due.
    pub(super) fn next_sent(&mut self) -> Option<Cookie> {
        if !LATER {
            return None;
        }
        while let Some(slot) = self.send.done.pop() {
            let (Some(handle), Some(frame)) = (self.send.frames.handle(slot), self.send.frames.at(slot)) else {
                continue;
            };
            let cookie = Cookie(frame.cookie);
            self.free_frame(handle);
            return Some(cookie);
        }
        None
    }

    /// Drops the frame that was reserved and not committed.
    pub(super) fn drop_draft(&mut self) {
        let draft = core::mem::replace(&mut self.send.draft, Handle::NONE);
        if draft != Handle::NONE {
            self.free_frame(draft);
        }
    }

    pub(super) fn free_frame(&mut self, handle: Handle) {
        if self.send.reserve_slot == handle {
            self.send.reserve_slot = Handle::NONE;
        }
        if let Some(frame) = self.send.frames.free(handle)
            && LATER
            && let Some(long) = frame.long.checked_sub(1)
        {
            self.send.long_free.push(long);
        }
    }

    /// The rail below has deleted the peer: it no longer reads bodies for the peer.
    pub(super) fn end_reads(&mut self, at: u32) {
        if !LATER {
            return;
        }
        for slot in 0..self.send.frames.touched() {
            let Some(frame) = self.send.frames.at_mut(slot).filter(|frame| frame.path == at) else { continue };
            let read = frame.flags & READING != 0;
            frame.flags &= !READING;
            if read && frame.flags & FINISHED != 0 {
                self.finish_frame(slot);
            }
        }
    }

    /// Drops all frames that are kept for a peer.
    pub(super) fn drop_frames(&mut self, at: u32) {
        self.halt(at);
        for slot in 0..self.send.frames.touched() {
            if self.send.frames.at(slot).is_none_or(|frame| frame.path != at) {
                continue;
            }
            if let Some(handle) = self.send.frames.handle(slot) {
                if handle == self.send.draft {
                    self.send.draft = Handle::NONE;
                }
                self.free_frame(handle);
            }
        }
        while let Some(path) = self.peers.paths.get(at as usize).filter(|path| path.send.unacked != 0) {
            self.count(at, path.send.unacked_control != 0, -1);
        }
        if LATER {
            let frames = &self.send.frames;
            self.send.done.retain(|slot| frames.at(slot).is_some());
        }
        let width = self.config.window as usize;
        let start = start(at, width);
        if let Some(window) = self.send.window.get_mut(start..start.wrapping_add(width)) {
            window.fill(0);
        }
    }
}
