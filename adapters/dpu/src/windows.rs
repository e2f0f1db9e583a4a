//! Memory in the buffers of the device for windows of an engine's processes: puts, gets and atomics on it go to the devices, and the
//! process whose memory it is makes no call.
//!
//! Windows and [buffers](Matching::buffer) share a quarter of the device's memory. Puts and gets are copied to and from *slots*, which
//! are taken from that quarter once, so that no message can have their room. An operation that finds no free slot is refused with
//! [`AccessRefusal::Busy`], and slots become free without any call of other processes.

use towline_core::convertor::Span;
use towline_core::rma::{Denied, Transfer};
use towline_window::completion;

use crate::errors::{Failure, Refusal};
use crate::heap::{Part, taken};
use crate::matching::Matching;
use crate::one_sided::{Access, Accessing, Key, Registered, Remote};
pub use crate::window_operations::AccessFailure;
use crate::window_operations::Owner;

/// How many slots there are for the bytes of puts and gets.
const SLOTS: u64 = 8;
/// Bytes of the device's memory that a key takes.
const KEY_BYTES: u64 = taken(towline_window::command::KEY as u64);
/// The share of the device's memory that the slots have.
const SLOTS_SHARE: u64 = 32;
/// Slots begin at multiples of this.
const ALIGNMENT: u64 = 64;

/// Memory of this process in a window. Peers access it until it is [closed](Matching::close_window).
#[derive(Debug)]
#[must_use = "memory that is not closed stays registered until the session ends"]
pub struct OwnPart {
    registered: Registered,
    base: *mut u8,
}

// SAFETY: the address is that of mapped memory, which belongs to no thread.
unsafe impl Send for OwnPart {}
// SAFETY: the same; the value has no interior mutability.
unsafe impl Sync for OwnPart {}

impl OwnPart {
    /// The key by which peers reach it.
    pub const fn key(&self) -> Key {
        self.registered.key()
    }

    /// The address of its first byte, which is mapped as long as the [`Matching`] exists.
    pub const fn base(&self) -> *mut u8 {
        self.base
    }
}

/// Memory of a peer in a window.
#[derive(Debug)]
#[must_use = "memory that is not left keeps room in the device's memory until the session ends"]
pub struct PeerPart {
    remote: Remote,
    peer: u32,
}

/// Room in the device's memory for the keys of a window's parts, one for each rank.
#[derive(Debug)]
#[must_use = "room that is not used or returned is lost until the session ends"]
pub struct KeyRoom(Vec<Part>);

/// Why an operation was not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AccessRefusal {
    /// All slots are in use, or as many operations are in progress as the device can have: make progress, and try again.
    Busy,
    /// The device has failed.
    DeviceFailed,
    /// The put or get is longer than [`Matching::slot_bytes`], or is not contiguous, or the memory is of another session.
    Invalid,
}

impl Matching {
    /// Whether windows may use the device: it has one-sided operations, they were not switched off, and nothing has failed so far.
    pub fn has_windows(&self) -> bool {
        self.windows_allowed && !self.has_left && !self.is_cut_off && self.transport.check_one_sided().is_ok()
    }

    /// Whether the device knows all these peers.
    pub fn has_peers(&self, peers: impl IntoIterator<Item = u32>) -> bool {
        peers.into_iter().all(|peer| self.has_peer(peer))
    }

    /// Memory of this process for a window, filled with zeros. `access` as for [`Transport::register`](crate::Transport::register).
    ///
    /// # Errors
    /// As [`Transport::register`](crate::Transport::register). [`Refusal::Busy`] also if windows and buffers have their share of the
    /// device's memory.
    pub fn open_window(&mut self, bytes: u64, access: Access) -> Result<OwnPart, Refusal> {
        if !self.has_windows() {
            return Err(self.transport.check_one_sided().err().unwrap_or(Refusal::Invalid));
        }
        self.make_slots()?;
        let buffer = self.buffer(bytes)?;
        let base = self.transport.address_of(&buffer).as_ptr();
        // SAFETY: the part of the mapped window belongs to the new buffer alone.
        unsafe { base.write_bytes(0, bytes as usize) };
        match self.transport.register(buffer, access, None) {
            Ok(registered) => Ok(OwnPart { registered, base }),
            Err((why, buffer)) => {
                self.free(buffer);
                Err(why)
            }
        }
    }

    /// Ends memory of this process. It waits for accesses of peers that have begun, and later ones are denied.
    pub fn close_window(&mut self, part: OwnPart) {
        let bytes = part.registered.buffer().len();
        match self.transport.deregister(part.registered) {
            Ok(buffer) => self.free(buffer),
            // The device has failed, and its memory is not used again.
            Err(_) => self.buffer_bytes = self.buffer_bytes.saturating_sub(taken(bytes)),
        }
    }

    /// Takes room for the keys of `count` parts, so that [`reach_window`](Self::reach_window) cannot fail for lack of it.
    ///
    /// # Errors
    /// As [`open_window`](Self::open_window).
    pub fn key_room(&mut self, count: u32) -> Result<KeyRoom, Refusal> {
        if !self.has_windows() {
            return Err(Refusal::Invalid);
        }
        self.make_slots()?;
        if self.buffer_bytes.saturating_add(u64::from(count) * KEY_BYTES) > self.transport.most_bytes() / 4 {
            return Err(Refusal::Busy);
        }
        let mut room = KeyRoom(Vec::new());
        for _ in 0..count {
            match self.transport.room(towline_window::command::KEY as u64) {
                Ok(part) => {
                    self.buffer_bytes += KEY_BYTES;
                    room.0.push(part);
                }
                Err(why) => {
                    self.return_room(room);
                    return Err(why);
                }
            }
        }
        Ok(room)
    }

    /// Returns room for keys that is not needed.
    pub fn return_room(&mut self, room: KeyRoom) {
        for part in room.0 {
            self.buffer_bytes = self.buffer_bytes.saturating_sub(KEY_BYTES);
            self.transport.give_back(part);
        }
    }

    /// Memory of a peer in a window, by the key that its owner has sent. `None`: `room` is used up.
    pub fn reach_window(&mut self, room: &mut KeyRoom, peer: u32, key: &Key) -> Option<PeerPart> {
        let part = room.0.pop()?;
        let Ok(remote) = self.transport.reach_in(part, peer, key) else {
            self.buffer_bytes = self.buffer_bytes.saturating_sub(KEY_BYTES);
            return None;
        };
        Some(PeerPart { remote, peer })
    }

    /// This process needs memory of a peer no more. Operations on it go on.
    pub fn leave_window(&mut self, part: PeerPart) {
        self.buffer_bytes = self.buffer_bytes.saturating_sub(KEY_BYTES);
        self.transport.forget_remote(part.remote);
    }

    /// The most bytes of a put or get.
    pub const fn slot_bytes(&self) -> u64 {
        self.windows.slot_bytes
    }

    /// Begins an operation on memory of a peer, from a byte on. The bytes of a put are copied now, and may be changed afterwards.
    /// [`next_access`](Self::next_access) tells its end.
    ///
    /// # Errors
    /// [`AccessRefusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The bytes of a put are readable during the call. Those of a get are writable, and nothing else accesses them, until the end was
    /// taken, or the engine has ended.
    pub unsafe fn access(&mut self, part: &PeerPart, what: Transfer, offset: u64) -> Result<Accessing, AccessRefusal> {
        self.transport.admit_access().map_err(refusal)?;
        let mut owner = Owner { peer: part.peer, slot: None, into: None };
        let begun = match what {
            Transfer::Atomic(atomic, flags) => self.transport.atomic(&part.remote, offset, atomic, flags),
            Transfer::Put(data) => {
                let (slot, memory) = self.take_slot(&data)?;
                owner.slot = Some(slot);
                let (base, bytes) = memory.as_contiguous().ok_or(AccessRefusal::Invalid)?;
                // SAFETY: the slot is in the mapped window and not in use for anything else; the caller vouches for the data.
                unsafe { data.pack(base, bytes) };
                // SAFETY: the slot stays until the operation is over.
                unsafe { self.transport.put(&part.remote, offset, memory) }
            }
            Transfer::Get(into) => {
                let (slot, memory) = self.take_slot(&into)?;
                (owner.slot, owner.into) = (Some(slot), Some(into));
                // SAFETY: the slot stays until the operation is over.
                unsafe { self.transport.get(&part.remote, offset, memory) }
            }
        };
        match begun {
            Ok(access) => {
                self.windows.owners.add(access.0, owner);
                Ok(access)
            }
            Err(why) => {
                self.windows.free.extend(owner.slot);
                Err(refusal(why))
            }
        }
    }

    /// An operation that has ended, with the old word of an atomic, or 0. Each is told once.
    pub fn next_access(&mut self) -> Option<(Accessing, Result<u64, AccessFailure>)> {
        self.windows.ended.pop_front()
    }

    /// Passes on the operations that the device has ended.
    pub(crate) fn take_accesses(&mut self) {
        while let Some(access) = self.transport.next_ended_access().map(Accessing) {
            let outcome = self.transport.test_access(access).unwrap_or(Err(Failure::NoRequest));
            let Some(owner) = self.windows.owners.remove(access.0) else { continue };
            if let (Some(slot), Some(into), Ok(_)) = (owner.slot, owner.into, &outcome)
                && let Some(memory) = self.memory_of_slot(slot, into.len())
                && let Some((base, bytes)) = memory.as_contiguous()
            {
                // SAFETY: the slot is in the mapped window, and the caller of the get vouches for the memory.
                unsafe { into.unpack(base, bytes) };
            }
            self.windows.free.extend(owner.slot);
            let outcome = outcome.map_err(|why| self.access_failure(why, owner.peer));
            self.windows.ended.push_back((access, outcome));
        }
    }

    /// Takes the memory of the slots.
    fn make_slots(&mut self) -> Result<(), Refusal> {
        if self.windows.slots.is_some() {
            return Ok(());
        }
        let share = self.transport.most_bytes() / SLOTS_SHARE / SLOTS;
        let slot_bytes = (share - share % ALIGNMENT).max(ALIGNMENT);
        let buffer = self.buffer(slot_bytes * SLOTS)?;
        self.windows.slot_bytes = slot_bytes;
        self.windows.free = (0..SLOTS).collect();
        self.windows.slots = Some(buffer);
        Ok(())
    }

    /// A free slot, and its first bytes, as many as `data` has.
    fn take_slot(&mut self, data: &Span) -> Result<(u64, Span), AccessRefusal> {
        if data.len() > self.windows.slot_bytes {
            return Err(AccessRefusal::Invalid);
        }
        let slot = self.windows.free.pop().ok_or(AccessRefusal::Busy)?;
        match self.memory_of_slot(slot, data.len()) {
            Some(memory) => Ok((slot, memory)),
            None => Err(AccessRefusal::Invalid),
        }
    }

    /// The first bytes of a slot.
    fn memory_of_slot(&self, slot: u64, bytes: u64) -> Option<Span> {
        let base = self.transport.address_of(self.windows.slots.as_ref()?).as_ptr();
        let at = slot.checked_mul(self.windows.slot_bytes)?;
        Some(Span::contiguous(base.wrapping_add(at as usize), bytes as usize))
    }

    /// Why an operation on memory of a peer has failed.
    fn access_failure(&mut self, why: Failure, number: u32) -> AccessFailure {
        let Failure::Operation(why) = why else { return AccessFailure::DeviceFailed };
        let has_left = self.has_left;
        let peer = self.peers.get_mut(number);
        match why {
            completion::Failure::StaleKey => AccessFailure::Denied(Denied::NoMemory),
            completion::Failure::NoRight => AccessFailure::Denied(Denied::NoRight),
            completion::Failure::OutOfMemory => AccessFailure::Denied(Denied::OutOfBounds),
            completion::Failure::NotAvailable => AccessFailure::Denied(Denied::NotAvailable),
            completion::Failure::PeerFinished => AccessFailure::PeerLost,
            // The device forgets a peer that this process has deleted, or has told it to forget since that one's device has failed.
            completion::Failure::PeerFailed | completion::Failure::NoSuchThing => match peer {
                Some(peer) if peer.is_cut_off() || (has_left && !peer.is_gone) => AccessFailure::DeviceFailed,
                _ => AccessFailure::PeerLost,
            },
            completion::Failure::Unreachable => {
                self.is_cut_off = true;
                if let Some(peer) = peer {
                    peer.is_unreachable = true;
                }
                AccessFailure::DeviceFailed
            }
            _ => AccessFailure::DeviceFailed,
        }
    }
}

const fn refusal(why: Refusal) -> AccessRefusal {
    match why {
        Refusal::Busy | Refusal::Device(completion::Failure::Full) => AccessRefusal::Busy,
        Refusal::Lost(_) | Refusal::NoOneSided(_) => AccessRefusal::DeviceFailed,
        Refusal::TooLong | Refusal::Invalid | Refusal::Device(_) => AccessRefusal::Invalid,
    }
}
