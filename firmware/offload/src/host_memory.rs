//! Memory of the host outside the window, which some devices reach.
//!
//! The bodies of messages may lie there. The engine takes it for the memory of an accelerator: fragments are copied when they are sent or
//! have arrived, several of a message at once. A copy may fail, since only the host knows what is mapped.

use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::{Accelerator, Layout, Span};

use crate::numbers;
use crate::stage::{BYTES, Content, Stage};

/// How a board reaches memory of its host. A region is a range of it. It is used by one thread at a time.
pub trait HostMemory: Sync + fmt::Debug {
    /// Opens memory that the host describes, in the way of this board. The description comes from the host, so nothing of it is trusted.
    /// Returns a number for the other calls. `None`: this is no such description, or the board does not reach the memory, or has no more
    /// room.
    fn open(&self, description: &[u8]) -> Option<u32>;

    /// Closes memory, which is not accessed any more.
    fn close(&self, opened: u32);

    /// Copies memory of the host from an address on.
    ///
    /// # Errors
    /// [`BadMemory`]: the bytes of `into` are any.
    fn read(&self, opened: u32, from: u64, into: &mut [u8]) -> Result<(), BadMemory>;

    /// Copies bytes to memory of the host from an address on.
    ///
    /// # Errors
    /// [`BadMemory`]: some bytes may have been written.
    fn write(&self, opened: u32, from: &[u8], to: u64) -> Result<(), BadMemory>;
}

/// Memory of the host is not mapped, or not with the rights that an operation needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadMemory;

/// The body of an operation in progress, in memory of the host. It is used by one thread at a time; the fields are atomics, since an
/// accelerator may be shared.
#[derive(Debug)]
struct Transfer<'m> {
    memory: &'m dyn HostMemory,
    /// Its number.
    place: u32,
    /// The buffer that it shares with some others. An operation that finds it in use goes without.
    stage: &'m Stage<'m>,
    /// The session that the host asks for.
    wanted: &'m AtomicU32,
    /// The region, or 0 if the place is free.
    region: AtomicU32,
    /// The number of the board for the region.
    opened: AtomicU32,
    /// The session of the operation, as in the window. 0: the memory is not accessed any more.
    session: AtomicU32,
    /// The address of the body, the lower half first.
    address: [AtomicU32; 2],
    /// Bytes of the body.
    bytes: AtomicUsize,
    failures: AtomicU32,
}

impl<'m> Transfer<'m> {
    const fn new(memory: &'m dyn HostMemory, wanted: &'m AtomicU32, place: u32, stage: &'m Stage<'m>) -> Self {
        const fn zero() -> AtomicU32 {
            AtomicU32::new(0)
        }
        let (region, opened, session, failures) = (zero(), zero(), zero(), zero());
        let bytes = AtomicUsize::new(0);
        Self { memory, place, stage, wanted, region, opened, session, address: [zero(), zero()], bytes, failures }
    }

    /// The number of the board and the address of the byte at an offset in the body. The host has to want the session still: a firmware
    /// that has hung, and goes on after its host has given it up, begins no copy.
    fn place(&self, offset: usize) -> Result<(u32, u64), BadMemory> {
        let session = self.session.load(Ordering::Relaxed);
        if session == 0 || self.wanted.load(Ordering::Acquire) != session {
            return Err(BadMemory);
        }
        let [low, high] = self.address.each_ref().map(|half| u64::from(half.load(Ordering::Relaxed)));
        let address = (high << 32 | low).checked_add(offset as u64).ok_or(BadMemory)?;
        Ok((self.opened.load(Ordering::Relaxed), address))
    }

    fn note(&self, done: Result<(), BadMemory>) {
        if done.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads bytes of the body.
    fn read_now(&self, offset: usize, into: &mut [u8]) -> Result<(), BadMemory> {
        let (opened, address) = self.place(offset)?;
        self.memory.read(opened, address, into)
    }

    /// Writes bytes of the body.
    fn write_now(&self, offset: usize, from: &[u8]) -> Result<(), BadMemory> {
        let (opened, address) = self.place(offset)?;
        self.memory.write(opened, from, address)
    }

    /// Reads bytes of the body, and those behind them for the next fragments. Returns whether they came by the buffer.
    fn read_ahead(&self, content: &mut Content<'m>, offset: usize, into: &mut [u8]) -> bool {
        let is_own = content.owner == Some(self.place);
        if is_own && content.read(offset, into) {
            return true;
        }
        let left = self.bytes.load(Ordering::Relaxed).saturating_sub(offset).min(BYTES);
        if left <= into.len() || (content.owner.is_some() && content.is_outgoing) {
            return false;
        }
        let filled = content.fill(self.place, offset, left).is_some_and(|room| self.read_now(offset, room).is_ok());
        if !filled {
            content.owner = None; // a part of it may be readable
            return false;
        }
        content.read(offset, into)
    }

    /// Keeps bytes of the body, to write them together with others. Returns whether the buffer has taken them.
    fn keep(&self, content: &mut Content<'m>, offset: usize, from: &[u8]) -> bool {
        if content.owner == Some(self.place) {
            if content.append(offset, from) {
                return true;
            }
            self.flush(content);
        }
        let is_free = content.owner.is_none() || !content.is_outgoing;
        is_free && from.len() < BYTES && content.start(self.place, offset, from)
    }

    /// Writes what the buffer has kept for this operation, which leaves it.
    fn flush(&self, content: &mut Content<'m>) {
        if content.owner == Some(self.place) {
            if content.is_outgoing {
                self.note(self.write_now(content.begin, content.bytes()));
            }
            content.owner = None;
        }
    }

    fn revoke(&self) {
        self.session.store(0, Ordering::Relaxed);
    }
}

/// The addresses are offsets in the body. Bytes that are written may be kept until the operation ends. Nothing reads them before: the engine
/// does not, since copies may fail, and the host waits for the completion.
impl Accelerator for Transfer<'_> {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for the memory. It is that of a rail, which comes from an arena, or an array: it is initialised.
        let into = unsafe { core::slice::from_raw_parts_mut(to, len) };
        let offset = from.addr();
        let is_allowed = self.place(offset).is_ok();
        if is_allowed && self.stage.with(|content| self.read_ahead(content, offset, into)) == Some(true) {
            return;
        }
        let done = self.read_now(offset, into);
        if done.is_err() {
            into.fill(0);
        }
        self.note(done);
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller vouches for the memory.
        let bytes = unsafe { core::slice::from_raw_parts(from, len) };
        let offset = to.addr();
        if self.stage.with(|content| self.keep(content, offset, bytes)) != Some(true) {
            self.note(self.write_now(offset, bytes));
        }
    }

    fn failures(&self) -> Option<u32> {
        Some(self.failures.load(Ordering::Relaxed))
    }
}

/// A region that the host has registered.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// The number of the board.
    opened: u32,
    address: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    region: Option<Region>,
    /// Counts the uses of this place.
    uses: u16,
}

/// The regions of a session, and the bodies of operations in progress that lie there.
#[derive(Debug)]
pub struct HostTables<'m> {
    memory: &'m dyn HostMemory,
    regions: &'m mut [Place],
    transfers: &'m [Transfer<'m>],
    /// All memory, of each transfer.
    layouts: &'m [Layout<'m>],
    /// Where the next search for a free transfer begins.
    next: usize,
}

/// Why there is no body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBody {
    /// The range is in no region.
    OutOfBounds,
    /// As many bodies are in use as there can be.
    Full,
}

/// The place of a region, and its uses. Places of regions are from 1 on, so no number is 0.
const fn split(number: u32) -> (usize, u16) {
    let (place, uses) = numbers::split(number);
    (place.wrapping_sub(1), uses)
}

/// Buffers between fragments and the memory of the host. Operations that begin one after the other use different ones.
const STAGES: usize = 4;

/// The most bytes of a body: those that the processor has addresses for.
const LONGEST: u64 = isize::MAX as u64;

/// The most regions, since a number has 16 bits for the place.
const MOST: u32 = 0xffff;

impl<'m> HostTables<'m> {
    /// The bytes of tables for so many regions and bodies.
    pub const fn bytes(regions: u32, bodies: u32) -> usize {
        Arena::cost::<Place>(if regions > MOST { MOST } else { regions } as usize)
            .saturating_add(Arena::cost::<Transfer<'m>>(bodies as usize))
            .saturating_add(Arena::cost::<Layout<'m>>(bodies as usize))
            .saturating_add(Stage::cost(STAGES))
    }

    /// No regions, with room for `regions` of them, and for `bodies` operations at a time. `wanted` is the word of the window with the
    /// session that the host asks for.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        arena: &mut Arena<'m>,
        memory: &'m dyn HostMemory,
        wanted: &'m AtomicU32,
        regions: u32,
        bodies: u32,
    ) -> Result<Self, OutOfMemory> {
        let regions = arena.filled(regions.min(MOST) as usize, Place { region: None, uses: 0 })?;
        let stages: &'m [Stage<'m>] = arena.each(STAGES, |arena, _| Stage::new(arena))?;
        let transfers: &'m [Transfer<'m>] = arena.each(bodies as usize, |arena, place| {
            let none = OutOfMemory { asked: 0, left: arena.left() }; // never
            let stage = stages.get(place % STAGES).ok_or(none)?;
            Ok(Transfer::new(memory, wanted, place as u32, stage))
        })?;
        let layouts = arena.each(bodies as usize, |arena, index| {
            let none = || OutOfMemory { asked: 0, left: arena.left() };
            let all = Layout::bytes(LONGEST).map_err(|_| none())?;
            all.on(transfers.get(index).ok_or_else(none)?).map_err(|_| none())
        })?;
        Ok(Self { memory, regions, transfers, layouts, next: 0 })
    }

    /// How many regions there are, and how many bodies are in use.
    pub fn count(&self) -> [usize; 2] {
        let is_used = |transfer: &&Transfer<'_>| transfer.region.load(Ordering::Relaxed) != 0;
        let regions = self.regions.iter().filter(|place| place.region.is_some()).count();
        [regions, self.transfers.iter().filter(is_used).count()]
    }

    /// Whether there is room for one more region.
    pub fn has_room(&self) -> bool {
        self.regions.iter().any(|place| place.region.is_none())
    }

    /// Adds a region, and returns its number. The end of its range is an address. `None`: the board does not reach it, or there is no
    /// room.
    pub fn register(&mut self, address: u64, bytes: u64, description: &[u8]) -> Option<u32> {
        let (at, place) = (1_u32..).zip(self.regions.iter_mut()).find(|(_, place)| place.region.is_none())?;
        let opened = self.memory.open(description)?;
        place.region = Some(Region { opened, address, bytes });
        place.uses = place.uses.wrapping_add(1);
        Some(numbers::join(at, place.uses))
    }

    fn region(&self, number: u32) -> Option<Region> {
        let (at, uses) = split(number);
        self.regions.get(at).filter(|place| place.uses == uses)?.region
    }

    /// Ends a region: its memory is not accessed any more. Returns whether there was one.
    pub fn deregister(&mut self, number: u32) -> bool {
        let Some(region) = self.region(number) else { return false };
        self.transfers
            .iter()
            .filter(|transfer| transfer.region.load(Ordering::Relaxed) == number)
            .for_each(Transfer::revoke);
        self.memory.close(region.opened);
        if let Some(place) = self.regions.get_mut(split(number).0) {
            place.region = None;
        }
        true
    }

    /// Ends all regions. Bodies stay in use until their operations have ended.
    pub fn clear(&mut self) {
        self.transfers.iter().for_each(Transfer::revoke);
        for place in self.regions.iter_mut() {
            if let Some(region) = place.region.take() {
                self.memory.close(region.opened);
            }
        }
    }

    /// A body of an operation that begins, and its place, if it has a byte. `session`: that of the host, which is not 0.
    ///
    /// # Errors
    /// [`NoBody`].
    pub fn begin(&mut self, number: u32, at: u64, bytes: u64, session: u32) -> Result<(Span, Option<u32>), NoBody> {
        let region = self.region(number).ok_or(NoBody::OutOfBounds)?;
        let end = at.checked_add(bytes).ok_or(NoBody::OutOfBounds)?;
        if end > region.bytes || bytes > LONGEST {
            return Err(NoBody::OutOfBounds);
        }
        if bytes == 0 {
            return Ok((Span::EMPTY, None));
        }
        let address = region.address.checked_add(at).ok_or(NoBody::OutOfBounds)?;
        let is_free = |transfer: &Transfer<'_>| transfer.region.load(Ordering::Relaxed) == 0;
        let free_from = |from: usize| {
            let rest = self.transfers.get(from..).unwrap_or_default();
            rest.iter().position(is_free).map(|place| place.wrapping_add(from))
        };
        let place = free_from(self.next).or_else(|| free_from(0)).ok_or(NoBody::Full)?;
        let (Some(transfer), Some(layout)) = (self.transfers.get(place), self.layouts.get(place)) else {
            return Err(NoBody::Full);
        };
        self.next = place.wrapping_add(1);
        transfer.region.store(number, Ordering::Relaxed);
        transfer.opened.store(region.opened, Ordering::Relaxed);
        transfer.session.store(session.to_le(), Ordering::Relaxed);
        transfer.failures.store(0, Ordering::Relaxed);
        transfer.bytes.store(bytes as usize, Ordering::Relaxed);
        for (half, value) in transfer.address.iter().zip([address as u32, (address >> 32) as u32]) {
            half.store(value, Ordering::Relaxed);
        }
        // SAFETY: layouts and transfers are in memory of the engine, which outlives its operations, and a layout does not change.
        let all = unsafe { Span::laid_out(ptr::null_mut(), layout) };
        Ok((all.window(0, bytes), Some(place as u32)))
    }

    /// Ends the use of a body, whose operation has ended. Returns whether a copy has failed.
    pub fn end(&self, place: Option<u32>) -> bool {
        let Some(transfer) = place.and_then(|place| self.transfers.get(place as usize)) else { return false };
        // The buffer is free: nobody else has it while this table is used.
        let _ = transfer.stage.with(|content| transfer.flush(content));
        transfer.revoke();
        transfer.region.store(0, Ordering::Relaxed);
        transfer.failures.load(Ordering::Relaxed) != 0
    }
}
