//! The engine of one context, with what the host adds to it: memory, time, patience, and a table of buffers and wakers
//! beside the requests.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::task::Waker;

use towline_core::arena::Arena;
use towline_core::mtl::{Comm, CommError, Group, Mtl, Request};
use towline_core::rail::loopback::Hub;
use towline_core::time::{Duration, Instant};

use crate::absent::Absent;
use crate::clock::Clock;
use crate::idle::{Bed, Idle, Patience, Step, short_nap};
use crate::memory::Mapping;
use crate::performances::Performances;
use crate::rails::RailSet;
use crate::several::Call;

/// Frames that wait in the process's loop to itself.
const HUB_SLOTS: u32 = 32;

/// Everything that a context holds. The order of the fields is that in which they must go: the transport's rails let go of
/// users' memory before buffers are freed, and the memory of all goes last.
pub(crate) struct Engine {
    pub mtl: Mtl<'static, RailSet>,
    pub beside: Beside,
    pub performances: Performances,
    pub scoped: Scoped,
    /// Tables of communicators that are not the world.
    pub groups: Vec<(Comm, Table)>,
    pub clock: Clock,
    pub patience: Patience,
    pub bed: Bed,
    /// Some rail holds frames back for company, so that it is to be flushed.
    pub holds_back: bool,
    /// Where there are others.
    pub absent: Option<Absent>,
    /// Turns in which something came; wraps.
    pub busy: u32,
    /// The context that the next communicator gets at least.
    pub next_context: u32,
    pub _hub: HubBox,
    pub _memory: Mapping,
}

/// Turns with something in a row after which who is absent is looked for. A power of two.
const BUSY: u32 = 4096;

impl Engine {
    /// Adds a communicator of these peers, in which this context is rank `rank`; `lasting`: also of whoever comes after them.
    pub fn add_group(&mut self, context: u32, peers: Box<[u32]>, rank: u32, lasting: bool) -> Result<Comm, CommError> {
        let table = Table::new(peers);
        // SAFETY: the table is kept in `groups` until the communicator was deleted, or goes at once where none was made.
        let group = Group::Table(unsafe { table.get() });
        let made = match lasting {
            true => self.mtl.add_lasting_comm(context, group, rank),
            false => self.mtl.add_comm(context, group, rank),
        };
        made.inspect(|comm| self.groups.push((*comm, table)))
    }

    /// Makes progress once, and waits for a while if there is none. Tells whether there was.
    #[inline]
    pub fn turn(&mut self, idle: &mut Idle) -> bool {
        if self.mtl.progress(self.clock.now()) != 0 {
            idle.reset();
            self.note_busy();
            return true;
        }
        if idle.count() {
            self.be_idle(idle, || true);
        }
        false
    }

    /// Something came. Now and then who is absent is looked for all the same: what is waited for may be theirs.
    #[inline]
    pub fn note_busy(&mut self) {
        self.busy = self.busy.wrapping_add(1);
        if self.busy.is_multiple_of(BUSY) {
            self.look_for_absent();
        }
    }

    #[cold]
    fn look_for_absent(&mut self) {
        self.give_up_retired();
        let now = self.clock.renew();
        if let Some((lost, why)) = self.absent.as_mut().and_then(|absent| absent.next(now, Duration::from_nanos(0))) {
            self.mtl.pml().lose_peer(lost, why);
        }
    }

    /// Nothing came for a while: lets others run, or sleeps if `may_sleep` says so once all rails are armed.
    #[cold]
    pub fn be_idle(&mut self, idle: &mut Idle, may_sleep: impl FnOnce() -> bool) {
        self.give_up_retired();
        let now = self.clock.renew();
        if idle.is_broken(self.left()) {
            return;
        }
        let sleep = idle.step(&self.patience, now) == Step::Sleep;
        if sleep && let Some((lost, why)) = self.absent.as_mut().and_then(|absent| absent.next(now, idle.span(now))) {
            return self.mtl.pml().lose_peer(lost, why);
        }
        if !sleep {
            return;
        }
        if let Some(most) = self.arm(idle.span(now))
            && may_sleep()
        {
            self.bed.sleep(self.mtl.pml().rails_mut(), most, now);
            self.clock.renew();
        }
    }

    /// Arms the rails; nanoseconds to sleep at most, after nothing came for `idle`. `None`: there is work.
    pub fn arm(&mut self, idle: Duration) -> Option<u64> {
        if self.mtl.pml().arm() {
            Some(self.patience.nap())
        } else {
            short_nap(idle).filter(|_| self.mtl.pml().arm_rails())
        }
    }

    /// Frames that have left so far; wraps.
    pub fn left(&self) -> u64 {
        let counters = self.mtl.counters();
        let messages = counters.eager_sent.wrapping_add(counters.rendezvous_sent);
        messages.wrapping_add(counters.fragments_sent).wrapping_add(counters.frames_migrated)
    }

    /// Makes progress once, at the present time.
    pub fn poll(&mut self) -> u32 {
        self.clock.renew_coarsely();
        self.give_up_retired();
        self.mtl.progress(self.clock.now())
    }

    /// The next thing that is to be done outside of the engine, since it runs code of users.
    pub fn next_done(&mut self) -> Option<Done> {
        while let Some(request) = self.mtl.pml().next_completed() {
            match self.beside.entries.remove(&request.to_bits()) {
                Some(Entry::Waker(waker)) => return Some(Done::Wake(waker)),
                Some(Entry::Thread(call)) => return Some(Done::Call(call)),
                Some(Entry::UnackedFrame(orphan)) => {
                    let _ = self.mtl.test(request); // over, and its slot is free now
                    return Some(Done::Free(orphan));
                }
                None => {}
            }
        }
        None
    }

    /// When a span of `millis` milliseconds from now will be over.
    pub fn deadline(&mut self, millis: u32) -> Instant {
        self.clock.renew() + Duration::from_millis(millis.into())
    }
}

/// What is kept beside requests: who waits for them, and the buffers of those that nobody waits for.
#[derive(Default)]
pub(crate) struct Beside {
    pub entries: HashMap<u64, Entry>,
}

pub(crate) enum Entry {
    /// Who is to be woken.
    Waker(Waker),
    /// A thread that waits, one of several.
    Thread(Call),
    /// Memory that is freed when the request is over.
    UnackedFrame(UnackedFrame),
}

/// What is to be done when a request is over.
pub(crate) enum Done {
    Wake(Waker),
    Call(Call),
    Free(UnackedFrame),
}

impl Done {
    /// Does it. Runs code of users.
    pub fn run(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Call(call) => call.call(),
            Self::Free(orphan) => drop(orphan),
        }
    }
}

/// A buffer on the heap whose owner went away while an operation used it.
pub(crate) struct UnackedFrame {
    buffer: NonNull<()>,
    free: unsafe fn(NonNull<()>),
}

impl UnackedFrame {
    /// Takes over a buffer.
    ///
    /// # Safety
    /// `buffer` came from a box, and nobody else frees it.
    pub unsafe fn new<B>(buffer: NonNull<B>) -> Self {
        /// # Safety
        /// As for `UnackedFrame::new`, and nobody uses the buffer any more.
        unsafe fn free<B>(buffer: NonNull<()>) {
            // SAFETY: `new` stored the address of a boxed `B` beside the function for `B`.
            drop(unsafe { Box::from_raw(buffer.cast::<B>().as_ptr()) });
        }
        Self { buffer: buffer.cast(), free: free::<B> }
    }
}

impl Drop for UnackedFrame {
    fn drop(&mut self) {
        // SAFETY: orphans are dropped when their request is over, or with the engine, whose rails went before.
        unsafe { (self.free)(self.buffer) }
    }
}

/// Requests of scopes: a list for each scope, over tables by request slot, so that no operation allocates.
pub(crate) struct Scoped {
    /// The request in each slot, 0 for none.
    bits: Box<[u64]>,
    /// Neighbours in the scope's list, as slot plus one.
    links: Box<[[u32; 2]]>,
}

impl Scoped {
    /// For so many requests. Untouched memory until it is used.
    pub fn new(requests: u32) -> Self {
        Self { bits: vec![0; requests as usize].into(), links: vec![[0; 2]; requests as usize].into() }
    }

    /// Puts a request at the front of the list that begins at `head`.
    #[inline]
    pub fn push(&mut self, head: &mut u32, request: Request) {
        let bits = request.to_bits();
        let slot = bits as u32;
        self.bits[slot as usize] = bits;
        self.links[slot as usize] = [0, *head];
        if let Some(next) = head.checked_sub(1) {
            self.links[next as usize][0] = slot + 1;
        }
        *head = slot + 1;
    }

    /// Takes a request out of the list that begins at `head`; tells whether it was there.
    #[inline]
    pub fn remove(&mut self, head: &mut u32, request: Request) -> bool {
        let bits = request.to_bits();
        let slot = bits as u32 as usize;
        if self.bits.get(slot) != Some(&bits) {
            return false;
        }
        let [before, after] = self.links[slot];
        match before.checked_sub(1) {
            Some(before) => self.links[before as usize][1] = after,
            None => *head = after,
        }
        if let Some(after) = after.checked_sub(1) {
            self.links[after as usize][0] = before;
        }
        self.bits[slot] = 0;
        true
    }

    /// The request at `place` in a list, and the place after it.
    pub fn at(&self, place: u32) -> Option<(Request, u32)> {
        let slot = place.checked_sub(1)? as usize;
        Some((Request::from_bits(self.bits[slot]), self.links[slot][1]))
    }
}

/// Which peers the ranks of a communicator are, at an address of its own.
pub(crate) struct Table(NonNull<[u32]>);

impl Table {
    pub fn new(peers: Box<[u32]>) -> Self {
        Self(NonNull::from(Box::leak(peers)))
    }

    /// The peers, by rank.
    pub fn peers(&self) -> &[u32] {
        // SAFETY: a live box of ours, freed in `drop` only.
        unsafe { self.0.as_ref() }
    }

    /// The table, as if for ever.
    ///
    /// # Safety
    /// It is not used any more when this is dropped.
    pub unsafe fn get(&self) -> &'static [u32] {
        // SAFETY: a live box of ours, freed in `drop` only; the caller sees to the rest.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`; as `get` was promised, nobody refers to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The hub of the process's loop to itself, at an address of its own.
pub(crate) struct HubBox(NonNull<Hub<'static>>);

impl HubBox {
    /// Bytes that it takes from an arena.
    pub fn bytes(frame: u32) -> usize {
        Hub::cost(1, HUB_SLOTS, frame)
    }

    /// What its rail says of itself.
    pub fn attributes(frame: u32) -> towline_core::rail::Attributes {
        Hub::attributes(frame)
    }

    pub fn new(arena: &mut Arena<'static>, frame: u32) -> Result<Self, towline_core::arena::OutOfMemory> {
        let hub = Hub::new(arena, 1, HUB_SLOTS, frame)?;
        Ok(Self(NonNull::from(Box::leak(Box::new(hub)))))
    }

    /// The hub, as if for ever.
    ///
    /// # Safety
    /// What is made of it goes before this box does.
    pub unsafe fn hub(&self) -> &'static Hub<'static> {
        // SAFETY: a live box of ours, freed in `drop` only; the caller sees to the rest.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for HubBox {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`; as `hub` was promised, nobody refers to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scoped_requests_leave_their_list_in_any_order() {
        let mut scoped = Scoped::new(8);
        let requests: Vec<Request> = [3u64, 5, 1, 7].map(|slot| Request::from_bits(1 << 32 | slot)).into();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut head = 0;
            requests.iter().for_each(|request| scoped.push(&mut head, *request));
            for (gone, index) in order.into_iter().enumerate() {
                assert!(scoped.remove(&mut head, requests[index]));
                assert!(!scoped.remove(&mut head, requests[index]), "twice");
                let (mut place, mut left) = (head, 0);
                while let Some((request, next)) = scoped.at(place) {
                    assert!(order[gone + 1..].iter().any(|index| requests[*index] == request));
                    (place, left) = (next, left + 1);
                }
                assert_eq!(left, 3 - gone);
            }
            assert_eq!(head, 0);
        }
    }
}
