//! Windows: memory of each rank that all ranks of a communicator read, write and change, without anybody there receiving.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use towline_core::convertor::Span;
use towline_core::rail::Peer;
use towline_core::rma::{
    Access, Atomic, AtomicFlags, AtomicOp, BeginError, Failure, HANDLE_BYTES, Operation, Registration, RemoteMemory,
    Transfer,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::transports::memory::WindowMemory;
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;

/// Bytes that are copied at once while others wait for the engine.
const PIECE: usize = 1 << 20;
/// Bytes that a rank tells of its part: its handle, and whether it has one.
const ENTRY: usize = HANDLE_BYTES + 1;

/// Memory of each rank of a communicator that all of them reach: made by [`Communicator::window`].
///
/// | to do | use | it is over |
/// |---|---|---|
/// | write there | [`put`](Self::put) | with the next flush |
/// | change words there | [`accumulate`](Self::accumulate) | with the next flush |
/// | read there | [`get`](Self::get) | when it comes back |
/// | change a word and know the old one | [`fetch_and_op`](Self::fetch_and_op), [`compare_and_swap`](Self::compare_and_swap) | when it comes back |
/// | look at the own part | [`read`](Self::read), [`write`](Self::write) | when it comes back |
///
/// Over means done at the target: whoever looks there from then on finds it. Operations of one rank may overtake each other until a
/// [`flush`](Self::flush); atomics are atomic to each other, whoever begins them, and to nothing else. What is put while somebody
/// gets it comes in any mixture of old and new bytes.
///
/// **Who makes progress.** Ranks of the target's host, which sm connects, reach into its part themselves, and wait for nobody,
/// where the system lets them: not in another namespace of processes, or without free descriptors, or where it counts memory strictly
/// (`TOWLINE_SM_WINDOWS` switches it off). Others' operations are done by the target, when it makes progress: in any blocking call of
/// its context, [`barrier`](Communicator::barrier) for one, or in [`progress`](crate::World::progress). A target that computes all the
/// time serves these not at all meanwhile, unless it has a [progress thread](crate::Builder::progress_thread). Over verbs the device can
/// put and get without it (`TOWLINE_VERBS_WINDOWS`), but ends the connection where a window is used that was dropped. Atomics are the
/// processor's either way, so whoever begins them agrees.
///
/// **Who is trusted.** A part with all rights, as [`window`](Communicator::window) makes it, is memory that processes of the same user
/// on this host can map: they can read and change all of it, whenever they like, and nothing beside it. One that others may only get
/// from is mapped to be read alone, and one with other rights by nobody: see [`window_with`](Communicator::window_with).
///
/// Memory that others write to is never seen as a slice: it is accessed by copies and atomics alone.
///
/// ```
/// use towline::AtomicOp;
///
/// let world = towline::init()?;
/// let window = world.window(64)?;
/// let next = (world.rank() + 1) % world.size();
/// window.put(next, 8, &[1.5f64, 2.5])?; // to bytes 8 to 24 of the next rank's part
/// window.accumulate(next, 0, AtomicOp::Add, &[1u64])?;
/// window.flush_all()?;
/// world.barrier()?; // all have done so
/// let mut mine = [0f64; 2];
/// window.read(8, &mut mine)?;
/// assert_eq!(mine, [1.5, 2.5]);
/// assert_eq!(window.fetch_and_op(next, 0, AtomicOp::Add, 0u64)?, 1);
/// window.close()?;
/// world.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Window<L: Threads = Single> {
    comm: OwnedCommunicator<L>,
    /// Its name in the engine.
    id: u64,
    registration: Registration,
    /// There until the window is dropped.
    memory: Option<WindowMemory>,
    len: usize,
    /// Each rank's part, and which peer it is.
    parts: Box<[(Peer, RemoteMemory)]>,
}

/// Words that [`Window::fetch_and_op`] and the like work on.
///
/// ```
/// use towline::{AtomicOp, Error};
///
/// let world = towline::init()?;
/// let window = world.window(8)?;
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Min, -5i32)?, 0);
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Swap, 0.5f32)?.to_bits(), (-5i32) as u32);
/// assert_eq!(window.fetch_and_op(0, 0, AtomicOp::Xor, 1f64), Err(Error::NoSuchOperation));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Word: sealed::Word + Copy {}

mod sealed {
    use towline_core::rma::{AtomicFlags, AtomicOp};

    pub trait Word {
        const FLAGS: AtomicFlags;
        fn to_word(self) -> u64;
        fn of_word(word: u64) -> Self;
        /// Whether such words have that operation.
        fn has(op: AtomicOp) -> bool;
    }
}

macro_rules! word {
    ($word:ty, $flags:expr, $ordered:expr, $to:expr, $of:expr) => {
        impl sealed::Word for $word {
            const FLAGS: AtomicFlags = $flags;

            fn to_word(self) -> u64 {
                $to(self)
            }

            fn of_word(word: u64) -> Self {
                $of(word)
            }

            fn has(op: AtomicOp) -> bool {
                op.takes($flags) && ($ordered || !matches!(op, AtomicOp::Min | AtomicOp::Max))
            }
        }

        impl Word for $word {}
    };
}

const FLOAT_32: AtomicFlags = AtomicFlags::BITS_32.union(AtomicFlags::FLOAT);

// Words are ordered as signed numbers, so unsigned ones have no least and no greatest.
word!(u64, AtomicFlags::empty(), false, |word| word, |word| word);
word!(i64, AtomicFlags::empty(), true, i64::cast_unsigned, u64::cast_signed);
word!(u32, AtomicFlags::BITS_32, false, u64::from, |word| word as u32);
word!(i32, AtomicFlags::BITS_32, true, |word: i32| word.cast_unsigned().into(), |word| (word as u32).cast_signed());
word!(f64, AtomicFlags::FLOAT, true, f64::to_bits, f64::from_bits);
word!(f32, FLOAT_32, true, |word: f32| word.to_bits().into(), |word| f32::from_bits(word as u32));

impl<L: Threads> Communicator<L> {
    /// Makes a window of so many bytes of each rank, which may differ, all zero. All ranks call it. Any of them may do anything in
    /// it; [`window_with`](Self::window_with) gives fewer rights.
    ///
    /// # Errors
    /// [`Error::NoWindow`] where a rank has no memory or too many windows, on all ranks; as [`dup`](Self::dup).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let window = world.window(1 << 20)?;
    /// assert_eq!(window.len(0)?, 1 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window(&self, bytes: usize) -> Result<Window<L>, Error> {
        self.window_with(bytes, Access::ANY)
    }

    /// As [`window`](Self::window); what others may do with this rank's part is `access`, by which each rank decides for itself.
    ///
    /// # Errors
    /// As [`window`](Self::window).
    ///
    /// ```
    /// use towline::{Access, Denied, Error};
    ///
    /// let world = towline::init()?;
    /// let window = world.window_with(16, Access::REMOTE_READ)?;
    /// window.get(0, 0, &mut [0u8; 16])?;
    /// window.put(0, 0, &[1u8; 16])?;
    /// assert_eq!(window.flush(0), Err(Error::Refused { rank: 0, why: Denied::NoRight }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window_with(&self, bytes: usize, access: Access) -> Result<Window<L>, Error> {
        let comm = self.dup()?;
        let mut engine = comm.handle.context.engine.lock();
        let id = engine.rma_ops.next_window();
        let pml = engine.mtl.pml();
        let made = pml.rails_mut().window_memory(bytes).ok().and_then(|memory| {
            // SAFETY: the mapping goes when the registration has ended (`retire`), or with the engine; it is accessed under the
            // engine's lock, by copies alone.
            let registration = unsafe { pml.register(memory.base(), bytes, access, None) }?;
            Some((registration, memory, pml.remote_memory(registration)?))
        });
        drop(engine);
        let mut mine = [0; ENTRY];
        if let Some((.., remote)) = &made {
            mine[..HANDLE_BYTES].copy_from_slice(&remote.to_bytes());
            mine[HANDLE_BYTES] = 1;
        }
        let told = comm.all_tell(&mine);
        let parts = told.and_then(|told| {
            let part = |(rank, entry): (u32, &[u8])| {
                let remote = RemoteMemory::from_bytes(&entry[..HANDLE_BYTES]).filter(|_| entry[HANDLE_BYTES] == 1);
                let peer = comm.handle.peer(rank).ok_or(Error::NoSuchRank { rank, size: comm.size() })?;
                Ok((peer, remote.ok_or(Error::NoWindow { rank })?))
            };
            (0..).zip(told.chunks_exact(ENTRY)).map(part).collect::<Result<Box<[_]>, Error>>()
        });
        match (made, parts) {
            (Some((registration, memory, _)), Ok(parts)) => {
                Ok(Window { comm, id, registration, memory: Some(memory), len: bytes, parts })
            }
            (Some((registration, memory, _)), Err(error)) => {
                comm.handle.context.engine.lock().retire_window(id, registration, memory);
                Err(error)
            }
            (None, parts) => Err(parts.err().unwrap_or(Error::NoWindow { rank: comm.rank() })),
        }
    }
}

impl<L: Threads> Window<L> {
    /// The communicator of the window's ranks: messages in it are apart from all others.
    pub fn communicator(&self) -> &Communicator<L> {
        &self.comm
    }

    /// Bytes of a rank's part.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn len(&self, rank: u32) -> Result<u64, Error> {
        Ok(self.part(rank)?.1.len())
    }

    /// Writes `data` to a rank's part, from byte `offset` on. It is copied before, so it may change at once; it is there after the
    /// next flush, which tells also of failures.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::OutOfWindow`], [`Error::PeerFailed`]; what the target says comes with the flush.
    pub fn put<T>(&self, rank: u32, offset: u64, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        let data = data.as_bytes();
        let put = |data: &[u8]| Transfer::Put(Span::of(data));
        // SAFETY: the bytes are borrowed until this returns.
        let done = unsafe { self.move_pieces(rank, offset, data.len(), |piece| put(&data[piece])) };
        self.begin_alone(rank, put, offset.wrapping_add(done as u64), &data[done..])
    }

    /// Reads a rank's part, from byte `offset` on, until `into` is full.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Refused`]. What `into` holds then is not said.
    pub fn get<T>(&self, rank: u32, offset: u64, into: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let into = into.as_mut_bytes();
        let (base, len) = (into.as_mut_ptr(), into.len());
        let get = |piece: Range<usize>| Transfer::Get(Span::contiguous(base.wrapping_add(piece.start), piece.len()));
        // SAFETY: `into` is borrowed until this returns, any bytes make a valid `T`, and the pieces lie within it.
        let done = unsafe { self.move_pieces(rank, offset, len, get) };
        // SAFETY: the same.
        unsafe { self.perform(rank, get(done..len), offset.wrapping_add(done as u64)) }.map(|_| ())
    }

    /// Changes words of a rank's part, from byte `offset` on, each to what `op` makes of it and its operand: each is one atomic
    /// operation, all of them together are none. Done after the next flush.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::NoSuchOperation`] where such words have no such operation, or the offset is no multiple of
    /// their size.
    pub fn accumulate<W: Word>(&self, rank: u32, offset: u64, op: AtomicOp, operands: &[W]) -> Result<(), Error> {
        for (index, operand) in (0..).zip(operands) {
            let what = Self::atomic::<W>(op, *operand)?;
            let at = offset.checked_add(index * size_of::<W>() as u64).ok_or(Error::OutOfWindow { rank })?;
            self.begin_alone(rank, |_| what, at, &[])?;
        }
        Ok(())
    }

    /// Changes a word of a rank's part to what `op` makes of it and `operand`; tells what it was.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`accumulate`](Self::accumulate).
    pub fn fetch_and_op<W: Word>(&self, rank: u32, offset: u64, op: AtomicOp, operand: W) -> Result<W, Error> {
        // SAFETY: no memory is involved.
        unsafe { self.perform(rank, Self::atomic::<W>(op, operand)?, offset) }.map(W::of_word)
    }

    /// Changes a word of a rank's part to `becomes` if it is `is`; tells what it was. Of integers; of floating-point numbers use those
    /// with their bits.
    ///
    /// # Errors
    /// As [`fetch_and_op`](Self::fetch_and_op).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let window = world.window(8)?;
    /// assert_eq!(window.compare_and_swap(0, 0, 0u64, 7)?, 0);
    /// assert_eq!(window.compare_and_swap(0, 0, 0u64, 8)?, 7); // it is not 0 any more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap<W: Word>(&self, rank: u32, offset: u64, is: W, becomes: W) -> Result<W, Error> {
        let what = Transfer::Atomic(Atomic::CompareSwap(is.to_word(), becomes.to_word()), W::FLAGS);
        // SAFETY: no memory is involved.
        unsafe { self.perform(rank, what, offset) }.map(W::of_word)
    }

    /// Waits until all operations of this process on a rank's part are done there.
    ///
    /// # Errors
    /// Of those since the last flush, what the first that failed failed with: [`Error::Refused`], [`Error::PeerFailed`].
    pub fn flush(&self, rank: u32) -> Result<(), Error> {
        self.part(rank)?;
        let settled = self.until(|engine| engine.rma_ops.take_detached(self.id, rank));
        settled.map_err(|failure| self.failure(rank, failure))
    }

    /// The same for all ranks.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), of the first rank where something failed.
    pub fn flush_all(&self) -> Result<(), Error> {
        (0..self.comm.size()).map(|rank| self.flush(rank)).fold(Ok(()), Result::and)
    }

    /// Copies from this rank's own part.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`].
    pub fn read<T>(&self, offset: usize, into: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let into = into.as_mut_bytes();
        let at = self.own(offset, into.len())?;
        let _engine = self.comm.handle.context.engine.lock();
        // SAFETY: within the mapping, as `own` has checked; who holds the engine is the only one that accesses it at that address.
        // What others change there at the same time is a mixture of bytes, and any bytes will do.
        unsafe { at.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        fence(Ordering::Acquire); // what is looked at next is no older, and read anew
        Ok(())
    }

    /// Copies to this rank's own part.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`].
    pub fn write<T>(&self, offset: usize, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        let data = data.as_bytes();
        let at = self.own(offset, data.len())?;
        let _engine = self.comm.handle.context.engine.lock();
        // SAFETY: as for `read`.
        unsafe { at.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        fence(Ordering::SeqCst); // others on this host look for themselves
        Ok(())
    }

    /// Ends the window: waits for all operations of all ranks. All ranks call it. One that is only dropped refuses what others still
    /// ask of it.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all) and [`barrier`](Communicator::barrier).
    pub fn close(self) -> Result<(), Error> {
        let flushed = self.flush_all();
        flushed.and(self.comm.barrier())
    }

    fn part(&self, rank: u32) -> Result<(Peer, RemoteMemory), Error> {
        self.parts.get(rank as usize).copied().ok_or(Error::NoSuchRank { rank, size: self.comm.size() })
    }

    /// Where bytes of this rank's own part are.
    fn own(&self, offset: usize, bytes: usize) -> Result<*mut u8, Error> {
        let memory = self.memory.as_ref().filter(|_| offset <= self.len && bytes <= self.len - offset);
        memory.map(|memory| memory.base().wrapping_add(offset)).ok_or(Error::OutOfWindow { rank: self.comm.rank() })
    }

    fn atomic<W: Word>(op: AtomicOp, operand: W) -> Result<Transfer, Error> {
        let what = Transfer::Atomic(Atomic::Op(op, operand.to_word()), W::FLAGS);
        if W::has(op) { Ok(what) } else { Err(Error::NoSuchOperation) }
    }

    /// Makes progress until `look` finds something; it is asked again when an operation has ended.
    fn until<T>(&self, mut look: impl FnMut(&mut Engine) -> Option<T>) -> T {
        let context = &self.comm.handle.context;
        let mut engine = context.engine.lock();
        let mut idle = Idle::default();
        engine.clock.renew_coarsely();
        let found = loop {
            engine.note_completed_rma_ops();
            let told = engine.rma_ops.completed;
            if let Some(found) = look(&mut engine) {
                break found;
            }
            engine.progress_or_wait(&mut idle, &Awaited::RmaOps(told), None);
        };
        drop(engine);
        context.run_callbacks();
        found
    }

    /// Begins an operation as soon as there is a slot for it; `None` where there is none.
    ///
    /// # Safety
    /// As for `Pml::begin`.
    unsafe fn begin(
        &self,
        engine: &mut Engine,
        rank: u32,
        what: Transfer,
        offset: u64,
    ) -> Option<Result<Operation, Error>> {
        let handle = &self.comm.handle;
        let (peer, remote) = match self.part(rank) {
            Ok(part) => part,
            Err(error) => return Some(Err(error)),
        };
        if handle.context.finished.load(Ordering::Relaxed) {
            return Some(Err(Error::Finished));
        }
        // Also one that is back since: its memory is another.
        if let Some(lost) = engine.mtl.failed(handle.comm, towline_core::mtl::Source::Rank(rank)) {
            return Some(Err(handle.peer_lost(engine, lost)));
        }
        // SAFETY: passed on from the caller.
        match unsafe { engine.mtl.pml().begin(peer, what, &remote, offset) } {
            Ok(operation) => Some(Ok(operation)),
            Err(BeginError::Full) => None,
            Err(BeginError::OutOfBounds) => Some(Err(Error::OutOfWindow { rank })),
            Err(BeginError::Unreachable) => Some(Err(Error::PeerFailed { rank })),
            Err(_) => Some(Err(Error::NoSuchOperation)),
        }
    }

    /// Does something with the bytes, or with none: at once, or later with a copy of them.
    fn begin_alone(&self, rank: u32, what: impl Fn(&[u8]) -> Transfer, offset: u64, data: &[u8]) -> Result<(), Error> {
        // SAFETY: the bytes are borrowed until this returns.
        if unsafe { self.at_once(rank, what(data), offset) }.is_some() {
            return Ok(());
        }
        let data: Box<[u8]> = data.into();
        let what = what(&data); // the box does not move what is in it
        let mut data = Some(data);
        self.until(|engine| {
            // SAFETY: the memory is the box's, which is kept until the operation is over, or beyond the rails' end.
            let begun = unsafe { self.begin(engine, rank, what, offset) }?;
            Some(begun.map(|operation| {
                engine.rma_ops.add_detached(operation, self.id, rank, data.take().unwrap_or_default());
            }))
        })
    }

    /// Has a rail put or get the first pieces of what is longer than one, if it reaches the rank's part itself: nobody waits for the
    /// engine longer than a piece takes. How many bytes that were.
    ///
    /// # Safety
    /// As [`at_once`](Self::at_once), of each piece of so many bytes that `what` is asked for.
    unsafe fn move_pieces(&self, rank: u32, offset: u64, len: usize, what: impl Fn(Range<usize>) -> Transfer) -> usize {
        let of_part = |end| self.part(rank).is_ok_and(|(_, remote)| end <= remote.len());
        let fits = offset.checked_add(len as u64).is_some_and(of_part);
        let mut done = 0;
        while fits && len - done > PIECE {
            // SAFETY: passed on from the caller.
            let moved = unsafe { self.at_once(rank, what(done..done + PIECE), offset + done as u64) };
            if moved.is_none() {
                break;
            }
            done += PIECE;
        }
        done
    }

    /// Has a rail do something that reaches the rank's part itself. `None`: nothing was done, and to begin it tells more.
    ///
    /// # Safety
    /// Its memory is as `Pml::at_once` wants it, until this returns.
    unsafe fn at_once(&self, rank: u32, what: Transfer, offset: u64) -> Option<u64> {
        let handle = &self.comm.handle;
        let (peer, remote) = self.parts.get(rank as usize)?;
        let mut engine = handle.context.engine.lock();
        let rank = towline_core::mtl::Source::Rank(rank);
        if handle.context.finished.load(Ordering::Relaxed) || engine.mtl.failed(handle.comm, rank).is_some() {
            return None;
        }
        // SAFETY: passed on from the caller.
        let old = unsafe { engine.mtl.pml().at_once(*peer, what, remote, offset) }?;
        let progress_is_due = engine.rma_ops.count_immediate();
        drop(engine);
        if progress_is_due {
            handle.context.progress();
        }
        Some(old)
    }

    /// Does something, and waits for its end.
    ///
    /// # Safety
    /// Its memory is as `Pml::begin` wants it, until this returns.
    unsafe fn perform(&self, rank: u32, what: Transfer, offset: u64) -> Result<u64, Error> {
        // SAFETY: passed on from the caller.
        if let Some(old) = unsafe { self.at_once(rank, what, offset) } {
            return Ok(old);
        }
        let mut begun = None;
        // Nothing unwinds while the operation has the memory.
        let result = no_unwind(|| {
            self.until(|engine| {
                let operation = match begun {
                    Some(operation) => operation,
                    None => {
                        // SAFETY: passed on from the caller; this does not return before the operation is over.
                        let operation = match unsafe { self.begin(engine, rank, what, offset) }? {
                            Ok(operation) => operation,
                            Err(error) => return Some(Err(error)),
                        };
                        engine.rma_ops.add_awaited(operation);
                        begun = Some(operation);
                        operation
                    }
                };
                engine.note_completed_rma_ops();
                engine.rma_ops.take(operation).map(Ok)
            })
        });
        result?.map_err(|failure| self.failure(rank, failure))
    }

    fn failure(&self, rank: u32, failure: Failure) -> Error {
        match failure {
            Failure::Denied(why) => Error::Refused { rank, why },
            _ => Error::PeerFailed { rank },
        }
    }
}

impl<L: Threads> Drop for Window<L> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.comm.handle.context.engine.lock().retire_window(self.id, self.registration, memory);
        }
    }
}

impl<L: Threads> fmt::Debug for Window<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("ranks", &self.comm.size()).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rma::Access;

    use crate::threads::lock::EngineLock;
    use crate::{Builder, Window};

    /// Some of the puts fail, and all are complete or in progress when their window is dropped.
    #[test]
    fn nothing_is_kept_of_dropped_windows() {
        let world = Builder::new().transports("loopback").build().unwrap();
        for access in [Access::ANY, Access::REMOTE_READ] {
            for (makes_progress, flushes) in [(false, false), (true, false), (true, true)] {
                let window: Window = world.window_with(64, access).unwrap();
                window.put(0, 0, &[1u64; 8]).unwrap();
                if makes_progress {
                    while world.progress() != 0 {}
                }
                assert_eq!(!flushes || window.flush(0).is_ok(), !flushes || access == Access::ANY);
                drop(window);
                while world.progress() != 0 {}
                let mut engine = world.handle.context.engine.lock();
                engine.note_completed_rma_ops();
                assert_eq!(engine.rma_ops.kept(), [0, 0], "{access:?}, {makes_progress}, {flushes}");
            }
        }
    }
}
