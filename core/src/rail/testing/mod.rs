//! The scripted rail: a loopback rail whose answers a test chooses.

pub mod link;

use crate::arena::Arena;
use crate::convertor::{Accelerator, Span};
use crate::rail::access::Access;
use crate::rail::loopback::{Hub, Rail as Loopback};
use crate::rail::native::{KEY, Key, Local, Native, NativeError, Region, Work};
use crate::rail::*;
use crate::time::Instant;
use std::{boxed::Box, cell::RefCell, collections::VecDeque, rc::Rc, vec, vec::Vec};

/// What the rail does with the next frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Pass,
    Busy,
    /// Sends it, but is `drained` only when `Script::drained` is set.
    Staged,
    /// Reads the body in place, but not before `Script::reads` is set.
    InPlace,
    Unreachable,
}

/// When the device performs the next operation, or why it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// In the call of `perform`.
    Now,
    /// In the next poll.
    Late,
    Busy,
    NotAvailable,
}

/// Settings of a test, and events that the test observes.
#[derive(Debug, Default)]
pub struct Script {
    pub answers: VecDeque<Answer>,
    /// The answer when `answers` is empty.
    pub always: Option<Answer>,
    pub drained: bool,
    pub reads: bool,
    /// Deliveries of long frames are pending until a later poll.
    pub slow_delivery: bool,
    /// How many of the next short frames of users are overtaken by later ones.
    pub overtaken: u32,
    /// Frames arrive as migrated ones, which did not arrive by their first link.
    pub moved: bool,
    /// Whether the rail reports the loss of a peer that another rail has lost, and the reasons that it was given.
    pub ends_after_frames: bool,
    pub ends: Vec<Lost>,
    /// The answer of `has_closed`.
    pub closed: bool,
    /// The endpoints that were deleted.
    pub deleted: Vec<Endpoint>,
    /// The handshake is not over: `is_connected` returns `false`.
    pub unmet: bool,
    pub events: VecDeque<Event>,
    /// Frames that the next calls of `poll_copied` copy: sender, tag and bytes.
    pub copied: VecDeque<(Peer, u8, Vec<u8>)>,
    /// The answer of `is_idle`.
    pub idle: bool,
    /// Whether the rail exposes bodies. `exposed` has the address and length of each.
    pub exposes: bool,
    pub exposed: Vec<(usize, u64)>,
    /// Whether a read of an exposed body succeeds: the next answers. When the list is empty, it does.
    pub fetches: VecDeque<bool>,
    /// How many times exposed bodies were revoked.
    pub recalls: u32,
    /// How many bytes each read of an exposed body has copied.
    pub fetched: Vec<u64>,
    /// Frames that were sent: lane, header bytes, frame bytes.
    pub log: Vec<(Lane, u8, u32)>,
    /// How many frames had been sent at each call of `signal`.
    pub signals: Vec<usize>,
    pub on_demand: bool,
    /// The addresses of the bodies that were taken in place.
    pub in_place: Vec<usize>,
    /// The device: its next answers, its answer when the list is empty, and the operations that it has accepted.
    pub device: VecDeque<Device>,
    pub device_is_late: bool,
    pub performed: Vec<Native>,
    /// Whether the device registers memory: the next answers. When the list is empty, it does.
    pub registers: VecDeque<bool>,
}

impl Script {
    fn answer(&mut self) -> Answer {
        self.answers.pop_front().or(self.always).unwrap_or(Answer::Pass)
    }
}

#[derive(Debug)]
pub struct Scripted {
    inner: Loopback<'static>,
    pub attributes: Attributes,
    pub script: Rc<RefCell<Script>>,
    held: VecDeque<(Endpoint, Shape, Vec<u8>, Span, Cookie)>,
    coming: VecDeque<(FrameId, usize, Span, Cookie)>,
    overtaken: VecDeque<Frame>,
    staged: bool,
    /// The rail's number, which is also its end of the hub.
    end: u32,
    /// All exposed bodies of all rails: owner, memory, and whether it was revoked.
    exposed: Rc<RefCell<Vec<(u32, Span, bool)>>>,
    /// The memory that is registered with the device of any rail.
    memory: Rc<RefCell<Vec<Option<Memory>>>>,
    performing: VecDeque<(Endpoint, Native, Cookie)>,
}

/// An accelerator whose memory is the processor's, under addresses that the processor cannot access: no address of a process
/// has bit 55 as its only bit above the 48th.
#[derive(Debug)]
pub struct Far;

impl Far {
    /// The accelerator's address of some memory, and back. Only the accelerator can access memory by that address.
    pub fn name(at: *mut u8) -> *mut u8 {
        at.map_addr(|at| at ^ 1 << 55)
    }
}

impl Accelerator for Far {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller guarantees that both sides are valid, and `from` is the accelerator's address of the processor's
        // memory.
        unsafe { Self::name(from.cast_mut()).copy_to_nonoverlapping(to, len) };
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as for `read`, with `to` as the accelerator's address.
        unsafe { Self::name(to).copy_from_nonoverlapping(from, len) };
    }
}

/// The processor's address of memory that was registered with these rights.
fn found(at: *mut u8, access: Access) -> *mut u8 {
    if access.contains(Access::ACCELERATOR) { Far::name(at) } else { at }
}

/// The most bytes of an exposed body that can be read at a time.
pub const MOST_FETCHED: u64 = 300;

/// Registered memory: address, length and rights.
type Memory = (usize, u64, Access);

/// `count` rails, each of which reaches all of them. Frames of up to 64 bytes are eager; none is longer than 128 bytes.
pub fn rails(count: u32) -> Vec<Scripted> {
    let block = vec![0u8; Hub::cost(count, 16, 128)].leak();
    let hub: &'static Hub<'static> = Box::leak(Box::new(Hub::new(&mut Arena::new(block), count, 16, 128).unwrap()));
    let memory: Rc<RefCell<Vec<Option<Memory>>>> = Rc::default();
    let exposed: Rc<RefCell<Vec<(u32, Span, bool)>>> = Rc::default();
    (0..count)
        .map(|end| {
            let inner = hub.rail(end).unwrap();
            let attributes = Attributes {
                name: "scripted",
                capabilities: Capabilities::SEND | Capabilities::SEND_INPLACE,
                eager_limit: 64,
                max_send_size: 128,
                ..*inner.attributes()
            };
            let script = Rc::new(RefCell::new(Script { drained: true, reads: true, ..Script::default() }));
            Scripted {
                inner,
                attributes,
                script,
                held: VecDeque::new(),
                coming: VecDeque::new(),
                overtaken: VecDeque::new(),
                staged: false,
                end,
                exposed: exposed.clone(),
                memory: memory.clone(),
                performing: VecDeque::new(),
            }
        })
        .collect()
}

impl Scripted {
    /// Bodies whose delivery is pending.
    pub fn coming(&self) -> usize {
        self.coming.len()
    }

    /// Regions that are registered with any of the rails.
    pub fn regions(&self) -> usize {
        self.memory.borrow().iter().flatten().count()
    }

    /// Performs an operation as a device does.
    fn reach(&self, native: &Native) -> Result<u64, NativeError> {
        let slot = u64::from_le_bytes(std::array::from_fn(|byte| native.key.0[byte]));
        let (base, len, access) =
            self.memory.borrow().get(slot as usize).copied().flatten().ok_or(NativeError::Refused)?;
        let (bytes, right) = match native.work {
            Work::Put(local) => (local.len, Access::REMOTE_WRITE),
            Work::Get(local) => (local.len, Access::REMOTE_READ),
            Work::Atomic(_, flags) => (flags.word_bytes(), Access::REMOTE_ATOMIC),
        };
        if !access.contains(right) || native.offset > len || bytes > len - native.offset {
            return Err(NativeError::Refused);
        }
        let at = found((base + native.offset as usize) as *mut u8, access);
        let own = |local: Local| {
            let region = local.region.and_then(|region| self.memory.borrow()[region.0 as usize]);
            found(local.base, region.map_or(Access::empty(), |region| region.2))
        };
        match native.work {
            // SAFETY: the memory is registered, and local memory is vouched for by the caller of `perform` until
            // its completion is reported.
            Work::Put(local) => unsafe { at.copy_from(own(local), bytes as usize) },
            // SAFETY: the same.
            Work::Get(local) => unsafe { own(local).copy_from(at, bytes as usize) },
            Work::Atomic(atomic, flags) => {
                assert!(self.attributes.one_sided.does(atomic, flags) && (at as u64).is_multiple_of(bytes));
                // SAFETY: the same; it is aligned.
                return Ok(unsafe { crate::rail::apply_atomic(at, atomic, flags) });
            }
        }
        Ok(0)
    }
}

impl Rail for Scripted {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        self.inner.card()
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.inner.add_peer(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.script.borrow_mut().deleted.push(endpoint);
        self.held.retain(|held| held.0 != endpoint);
        self.coming.clear();
        self.performing.retain(|performing| performing.0 != endpoint);
        self.inner.del_peer(endpoint);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let answer = self.script.borrow_mut().answer();
        match answer {
            Answer::Busy => return Err(SendError::Busy),
            Answer::Unreachable => return Err(SendError::Unreachable),
            _ => self.staged = answer == Answer::Staged,
        }
        self.script.borrow_mut().log.push((shape.lane, shape.header, shape.len));
        self.inner.reserve(to, shape)
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        self.inner.commit(ticket);
        if self.staged { Sent::Staged } else { Sent::Done }
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        assert_eq!(header.len() as u64 + body.len(), u64::from(shape.len));
        // A body that is as long as the description of an exposed buffer may be such a description, which is on the stack. It
        // is copied, as rails promise for short bodies.
        let next = self.script.borrow().answers.front().copied().or(self.script.borrow().always);
        if next == Some(Answer::InPlace) && body.len() != REMOTE_BUFFER_BYTES as u64 {
            let mut script = self.script.borrow_mut();
            script.answer();
            script.in_place.push(body.as_contiguous().map_or(0, |(base, _)| base as usize));
            script.log.push((shape.lane, shape.header, shape.len));
            self.held.push_back((to, shape, header.to_vec(), body, cookie));
            return Ok(Sent::InPlace);
        }
        // SAFETY: the caller guarantees that the body is valid.
        unsafe { crate::rail::send_by_grant(self, to, shape, header, body) }
    }

    fn drained(&self, _: Endpoint) -> bool {
        self.script.borrow().drained
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        if let Some(event) = self.script.borrow_mut().events.pop_front() {
            if let Event::Lost(..) = event {
                self.held.clear();
                self.coming.clear();
                self.performing.clear();
            }
            if let Event::Down(..) = event {
                self.performing.clear();
            }
            return Some(event);
        }
        if self.script.borrow().reads
            && let Some((to, shape, header, body, cookie)) = self.held.front()
            // SAFETY: in-place bodies are kept by the sender until their completion is reported.
            && unsafe { self.inner.send(*to, *shape, header, *body, *cookie) }.is_ok()
        {
            return self.held.pop_front().map(|held| Event::Sent(held.4));
        }
        if !self.script.borrow().device_is_late
            && let Some((_, native, cookie)) = self.performing.pop_front()
        {
            return Some(Event::Performed(cookie, self.reach(&native)));
        }
        if !self.script.borrow().slow_delivery
            && let Some((frame, skip, sink, cookie)) = self.coming.pop_front()
        {
            // SAFETY: the sink is kept by the receiver until its completion is reported.
            unsafe { self.inner.deliver(frame, skip, sink, cookie) };
            return Some(Event::Delivered(cookie));
        }
        if self.overtaken.len() > self.script.borrow().overtaken as usize {
            return self.overtaken.pop_front().map(Event::Frame);
        }
        match self.inner.poll(now)? {
            Event::Frame(frame)
                if frame.is_whole()
                    && frame.tag >= tags::USR
                    && self.overtaken.len() < self.script.borrow().overtaken as usize =>
            {
                self.overtaken.push_back(frame);
                None
            }
            Event::Frame(frame) if self.script.borrow().moved => {
                Some(Event::Migrated(Origin { link: 0, number: 0 }, frame))
            }
            event => Some(event),
        }
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        self.inner.read(frame, at, into)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        if self.script.borrow().slow_delivery {
            self.coming.push_back((frame, skip, sink, cookie));
            return Delivery::Pending;
        }
        // SAFETY: as promised to this function.
        unsafe { self.inner.deliver(frame, skip, sink, cookie) }
    }

    fn release(&mut self, frame: FrameId) {
        self.inner.release(frame);
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn wake_on_demand(&mut self, on: bool) {
        self.script.borrow_mut().on_demand = on;
    }

    fn signal(&mut self, _: Endpoint) {
        let script = &mut *self.script.borrow_mut();
        script.signals.push(script.log.len());
    }

    fn arm(&mut self) -> bool {
        self.held.is_empty() && self.coming.is_empty() && self.performing.is_empty() && self.inner.arm()
    }
}

impl SingleCopy for Scripted {
    fn expose(&mut self, _: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let mut script = self.script.borrow_mut();
        let (base, _) = body.as_contiguous().filter(|_| script.exposes)?;
        script.exposed.push((base as usize, body.len()));
        let mut exposed = self.exposed.borrow_mut();
        exposed.push((self.end, *body, false));
        let mut buffer = [0x55; REMOTE_BUFFER_BYTES];
        buffer[..8].copy_from_slice(&(exposed.len() as u64).to_le_bytes());
        Some(RemoteBuffer(buffer))
    }

    unsafe fn read_exposed(&mut self, _: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let mut script = self.script.borrow_mut();
        let number = u64::from_le_bytes(std::array::from_fn(|byte| buffer.0[byte])) as usize;
        let found = number.checked_sub(1).and_then(|at| self.exposed.borrow().get(at).copied());
        // A forged or revoked buffer yields nothing.
        let found = found.filter(|(_, body, recalled)| !recalled && sink.len() <= body.len());
        let Some((_, body, _)) = found.filter(|_| script.fetches.pop_front() != Some(false)) else {
            // SAFETY: the sink is writable, as promised to this function; it may have been written in part.
            unsafe { sink.unpack([0xbb; 16].as_ptr(), 16) };
            return false;
        };
        script.fetched.push(sink.len());
        let (base, len) = body.as_contiguous().expect("exposed memory");
        // SAFETY: the owner keeps its memory until the answer arrives, or revokes it. The sink is writable, as the caller
        // guarantees.
        unsafe { sink.unpack(base, len) };
        true
    }

    fn read_limit(&self, _: Endpoint) -> u64 {
        if self.script.borrow().exposes { MOST_FETCHED } else { 0 }
    }

    fn revoke_exposed(&mut self) {
        self.script.borrow_mut().recalls += 1;
        self.exposed.borrow_mut().iter_mut().filter(|buffer| buffer.0 == self.end).for_each(|buffer| buffer.2 = true);
    }
}

impl DeviceMemory for Scripted {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        if self.script.borrow_mut().registers.pop_front() == Some(false) {
            return Err(NativeError::NotAvailable);
        }
        let mut memory = self.memory.borrow_mut();
        let slot = memory.len() as u64;
        memory.push(Some((base as usize, len as u64, access)));
        let mut key = [0; KEY];
        key[..8].copy_from_slice(&slot.to_le_bytes());
        Ok((Region(slot), Key(key)))
    }

    fn deregister(&mut self, region: Region) {
        self.memory.borrow_mut()[region.0 as usize].take().expect("it is registered");
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        let answer = self.script.borrow_mut().device.pop_front().unwrap_or(Device::Late);
        match answer {
            Device::Busy => return Err(NativeError::Busy),
            Device::NotAvailable => return Err(NativeError::NotAvailable),
            Device::Now | Device::Late => self.script.borrow_mut().performed.push(*native),
        }
        if let (Work::Put(local), can) | (Work::Get(local), can) = (native.work, self.attributes.one_sided) {
            let reach = if matches!(native.work, Work::Put(_)) { can.put } else { can.get };
            assert!(reach.takes(native.offset, local.base as u64, local.len) && local.len != 0);
            assert!(local.len < reach.local_registration || local.region.is_some());
            let memory = self.memory.borrow();
            let of_region = local.region.map(|region| memory[region.0 as usize].expect("it is registered"));
            let (first, last) = (local.base as usize, local.base as usize + local.len as usize);
            assert!(of_region.is_none_or(|(base, len, _)| base <= first && last <= base + len as usize));
        }
        if answer == Device::Now {
            return self.reach(native).map(Some);
        }
        self.performing.push_back((on, *native, cookie));
        Ok(None)
    }
}

impl Failover for Scripted {
    fn claim(&mut self, _: Endpoint, _: Origin) -> Option<Claim> {
        self.script.borrow().moved.then_some(Claim::New)
    }
}

impl Liveness for Scripted {
    fn end_after_frames(&mut self, _: Endpoint, why: Lost) -> bool {
        let mut script = self.script.borrow_mut();
        script.ends.push(why);
        script.ends_after_frames
    }

    fn has_closed(&mut self, _: Endpoint) -> bool {
        self.script.borrow().closed
    }

    fn is_connected(&self, _: Endpoint) -> bool {
        !self.script.borrow().unmet
    }
}

impl FastPath for Scripted {
    fn poll_copied(&mut self, except: u8, into: &mut [u8]) -> Option<Copied> {
        let mut script = self.script.borrow_mut();
        script.copied.front().filter(|(_, tag, bytes)| *tag != except && bytes.len() <= into.len())?;
        let (from, tag, bytes) = script.copied.pop_front()?;
        into[..bytes.len()].copy_from_slice(&bytes);
        Some(Copied { from, tag, len: bytes.len() as u32 })
    }

    fn is_idle(&mut self) -> bool {
        self.script.borrow().idle
    }
}
impl RequestCache for Scripted {}
