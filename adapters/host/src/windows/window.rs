//! Windows: memory of each rank that all ranks of a communicator read, write and change, without a receive at the target.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use towline_core::convertor::Span;
use towline_core::rail::Peer;
use towline_core::rma::{
    Access, Atomic, AtomicFlags, AtomicOp, BeginError, Denied, Failure, HANDLE_BYTES, Registration, RemoteMemory,
    Transfer,
};
use towline_dpu::windows::AccessFailure;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::context::state::ContextState;
use crate::engine::Engine;
use crate::engine::rma_ops::{OpFailure, OpId};
use crate::errors::error::Error;
use crate::operations::communicator::{Communicator, OwnedCommunicator};
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::transports::memory::WindowMemory;
use crate::values::shortage::Shortage;
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;
use crate::windows::dpu_parts::{self, DpuParts};
use crate::windows::word::Word;

/// The most bytes that are copied while other threads wait for the engine.
const PIECE: usize = 1 << 20;
/// Bytes that a rank publishes about its part: its handle, the [code](Shortage::code) of what it lacks, and what it says of its DPU.
const ENTRY: usize = HANDLE_BYTES + size_of::<u32>() + dpu_parts::ENTRY;

/// Memory of each rank of a communicator that all of them can access by one-sided operations, like an `MPI_Win`.
/// [`Communicator::window`] makes it. Offsets and lengths are in bytes.
///
/// | to do | use | complete |
/// |---|---|---|
/// | write remote memory | [`put`](Self::put) | after the next flush |
/// | change remote words | [`accumulate`](Self::accumulate) | after the next flush |
/// | read remote memory | [`get`](Self::get) | on return |
/// | change a remote word and get the old one | [`fetch_and_op`](Self::fetch_and_op), [`compare_and_swap`](Self::compare_and_swap) | on return |
/// | access this rank's part | [`read`](Self::read), [`write`](Self::write) | on return |
///
/// **Completion.** A complete operation is done at the target: any later read there sees its effect. Operations of one rank may
/// be reordered between two [flushes](Self::flush). Atomic operations are atomic with respect to each other, whichever rank
/// begins them, and to nothing else. A get that overlaps a put in time may return any mixture of old and new bytes.
///
/// **Progress.** Ranks on the target's host that are connected by sm access its part directly, and need no progress of the
/// target. The system may not allow that: between process namespaces, without free descriptors, or where it accounts memory
/// strictly. `TOWLINE_SM_WINDOWS` switches it off. The operations of other ranks are done by the target, when it makes progress:
/// in any blocking call of its context, such as [`barrier`](Communicator::barrier), or in [`progress`](crate::World::progress). A
/// target that only computes does not serve them, unless it has a [progress thread](crate::Builder::progress_thread). Over verbs
/// the device can put and get without the target (`TOWLINE_VERBS_WINDOWS`), but the connection ends if a window is used after its
/// owner has dropped it. Atomic operations are always done by a processor then, so operations of both kinds are atomic with respect to
/// each other. In a job over dpu, a part that the library allocates is served by DPUs if it fits into their memory:
/// [`is_on_dpu`](Self::is_on_dpu), and [the manual](crate::manual::one_sided).
///
/// **Trust.** Processes of the same user on this host can map a part with all rights, as [`window`](Communicator::window) makes
/// it: they can read and change all of it at any time, and nothing beside it. A part from which others may only get is mapped
/// read-only. A part with other rights is never mapped: see [`window_with`](Communicator::window_with).
///
/// **Soundness.** Memory that others write to is never exposed as a slice: it is accessed by copies and atomic operations only.
///
/// **Threads.** A window is used by one thread, or by several if its world is of [`Multiple`](crate::Multiple) threads.
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
/// world.barrier()?; // all ranks have done so
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
    /// Its number in the engine.
    id: u64,
    registration: Registration,
    /// `None` once the window is dropped.
    memory: Option<WindowMemory>,
    len: usize,
    /// Each rank's part, and the peer of that rank.
    parts: Box<[(Peer, RemoteMemory)]>,
    /// The parts that the DPUs serve.
    pub(super) dpu_parts: DpuParts,
}

impl<L: Threads> Communicator<L> {
    /// Makes a window, with `bytes` bytes of this rank, zeroed: `MPI_Win_allocate`. All ranks call it; the number of bytes may
    /// differ. Each rank has all rights to it; [`window_with`](Self::window_with) gives fewer.
    ///
    /// # Errors
    /// [`Error::NoWindow`], on all ranks, if a rank has not enough memory or too many windows. Otherwise as [`dup`](Self::dup).
    /// Either all ranks make the window, or none.
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

    /// As [`window`](Self::window). `access` determines the operations of other ranks on this rank's part; each rank chooses it
    /// for its own part.
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
        self.handle.context.check_process()?;
        let comm = self.dup();
        let mut engine = self.handle.context.engine.lock();
        let id = engine.rma_ops.next_window();
        let made = allocate(&mut engine, bytes, access, true);
        drop(engine);
        Window::agree(self, comm, id, made, bytes, Some(access)).map_err(|(error, part)| {
            if let Some((registration, memory)) = part {
                self.handle.context.engine.lock().retire_window(registration, memory, None);
            }
            error
        })
    }
}

/// The memory of this rank in a window.
pub(super) type Part = (Registration, WindowMemory);

/// Memory for the part of this rank, filled with zeros: with `on_dpu` that of its DPU, if it fits there.
fn allocate(engine: &mut Engine, bytes: usize, access: Access, on_dpu: bool) -> Result<Part, Shortage> {
    let memory = engine.mtl.pml().rails_mut().window_memory(bytes, access, on_dpu).map_err(|_| Shortage::Memory)?;
    // SAFETY: the mapping is dropped when the registration has ended (`retire_window`), or with the engine. It is accessed under the
    // engine's lock, by copies only.
    match unsafe { engine.mtl.pml().register(memory.base(), bytes, access, None) } {
        Some(registration) => Ok((registration, memory)),
        None => {
            engine.free_window_memory(memory);
            Err(Shortage::Windows)
        }
    }
}

impl<L: Threads> Window<L> {
    /// Makes the window at all ranks, or at none. `made`: the part of this rank, which is given back with an error. The ranks agree
    /// in the communicator `all`, since some may have no `comm` if a rank was lost. `access`: what the window was asked for, if its parts
    /// may lie in the memory of DPUs; such parts move to other memory if not all ranks can use DPUs.
    pub(super) fn agree(
        all: &Communicator<L>,
        comm: Result<OwnedCommunicator<L>, Error>,
        id: u64,
        made: Result<Part, Shortage>,
        len: usize,
        access: Option<Access>,
    ) -> Result<Self, (Error, Option<Part>)> {
        Self::agree_once(all, comm, id, made, len, access, true)
    }

    /// `may_move`: whether parts may still move to other memory.
    fn agree_once(
        all: &Communicator<L>,
        comm: Result<OwnedCommunicator<L>, Error>,
        id: u64,
        made: Result<Part, Shortage>,
        len: usize,
        access: Option<Access>,
        may_move: bool,
    ) -> Result<Self, (Error, Option<Part>)> {
        let context = &all.handle.context;
        let mut mine = [0; ENTRY];
        let (handle, rest) = mine.split_at_mut(HANDLE_BYTES);
        let (code, of_dpu) = rest.split_at_mut(size_of::<u32>());
        let mut shortage = made.as_ref().err().copied();
        if let Ok((registration, _)) = &made {
            match context.engine.lock().mtl.pml().remote_memory(*registration) {
                Some(remote) => handle.copy_from_slice(&remote.to_bytes()),
                None => shortage = Some(Shortage::Unknown),
            }
        }
        code.copy_from_slice(&Shortage::code(shortage).to_le_bytes());
        let peers: Vec<Peer> = (0..all.size()).filter_map(|rank| all.handle.peer(rank)).collect();
        let own = made.as_ref().ok().map(|(_, memory)| memory);
        let offer = dpu_parts::offer(&mut context.engine.lock(), &peers, own, of_dpu);
        let mut dpu_entries = Vec::new();
        let parts = all.agree(&mine, comm.as_ref().err().cloned()).and_then(|entries| {
            let part = |(rank, entry): (u32, &[u8])| {
                let (handle, rest) = entry.split_at(HANDLE_BYTES);
                let (code, of_dpu) = rest.split_at(size_of::<u32>());
                dpu_entries.push(of_dpu.to_vec());
                let code = u32::from_le_bytes(code.try_into().unwrap_or([0xff; 4]));
                if let Some(why) = Shortage::of_code(code) {
                    return Err(Error::NoWindow { rank, why });
                }
                let peer = all.handle.peer(rank).ok_or(Error::NoSuchRank { rank, size: all.size() })?;
                let remote = RemoteMemory::from_bytes(handle);
                Ok((peer, remote.ok_or(Error::NoWindow { rank, why: Shortage::Unknown })?))
            };
            (0..).zip(entries.chunks_exact(ENTRY)).map(part).collect::<Result<Box<[_]>, Error>>()
        });
        if may_move && parts.is_ok() && dpu_parts::must_move(&dpu_entries) {
            let mut engine = context.engine.lock();
            let _ = offer.settle(&mut engine, &peers, None);
            let made = match (made, access) {
                (Ok((registration, memory @ WindowMemory::Dpu(_))), Some(access)) => {
                    engine.retire_window(registration, memory, None);
                    allocate(&mut engine, len, access, false)
                }
                (made, _) => made,
            };
            drop(engine);
            return Self::agree_once(all, comm, id, made, len, access, false);
        }
        let parts = parts.and_then(|parts| Ok((parts, comm?)));
        let is_made = made.is_ok() && parts.is_ok();
        let dpu_parts = offer.settle(&mut context.engine.lock(), &peers, is_made.then_some(&dpu_entries));
        match (made, parts) {
            (Ok((registration, memory)), Ok((parts, comm))) => {
                Ok(Window { comm, id, registration, memory: Some(memory), len, parts, dpu_parts })
            }
            (Ok(part), Err(error)) => Err((error, Some(part))),
            (Err(why), parts) => Err((parts.err().unwrap_or(Error::NoWindow { rank: all.rank(), why }), None)),
        }
    }
}

impl<L: Threads> Window<L> {
    /// The communicator of the window's ranks. Its messages are separate from all others.
    pub fn communicator(&self) -> &Communicator<L> {
        &self.comm
    }

    /// The length of a rank's part, in bytes.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    pub fn len(&self, rank: u32) -> Result<u64, Error> {
        Ok(self.part(rank)?.1.len())
    }

    /// Writes `data` to a rank's part, from byte `offset` on: `MPI_Put`. `data` may be changed on return. The write is complete
    /// after the next flush, which also reports failures at the target.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::OutOfWindow`], [`Error::PeerFailed`], [`Error::DeviceFailed`].
    pub fn put<T>(&self, rank: u32, offset: u64, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        let data = data.as_bytes();
        let put = |data: &[u8]| Transfer::Put(Span::of(data));
        if self.dpu_parts.has(rank) {
            return self.put_by_dpu(rank, offset, data);
        }
        // SAFETY: the bytes are borrowed until this returns.
        let done = unsafe { self.move_pieces(rank, offset, data.len(), |piece| put(&data[piece])) };
        self.begin_detached(rank, put, offset.wrapping_add(done as u64), &data[done..])
    }

    /// Reads a rank's part, from byte `offset` on, until `into` is full: `MPI_Get`.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Refused`]. After an error the contents of `into` are unspecified.
    pub fn get<T>(&self, rank: u32, offset: u64, into: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let into = into.as_mut_bytes();
        let (base, len) = (into.as_mut_ptr(), into.len());
        let get = |piece: Range<usize>| Transfer::Get(Span::contiguous(base.wrapping_add(piece.start), piece.len()));
        if self.dpu_parts.has(rank) {
            // SAFETY: `into` is borrowed until this returns, and any bytes make a valid `T`.
            return unsafe { self.get_by_dpu(rank, offset, len, get) };
        }
        // SAFETY: `into` is borrowed until this returns, any bytes make a valid `T`, and the pieces lie within it.
        let done = unsafe { self.move_pieces(rank, offset, len, get) };
        // SAFETY: the same.
        unsafe { self.complete(rank, get(done..len), offset.wrapping_add(done as u64)) }.map(|_| ())
    }

    /// Combines words of a rank's part, from byte `offset` on, with operands by `op`: `MPI_Accumulate`. Each word is changed by
    /// one atomic operation; all of them together are not atomic. Complete after the next flush. After an error, words before the
    /// one that failed may have been changed.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::NoSuchOperation`] if words of this type have no such operation, and
    /// [`Error::Unaligned`] if the offset is not a multiple of their size, or [`Error::UnalignedPart`] if the part's address is not.
    pub fn accumulate<W: Word>(&self, rank: u32, offset: u64, op: AtomicOp, operands: &[W]) -> Result<(), Error> {
        for (index, operand) in (0..).zip(operands) {
            let what = Self::atomic::<W>(op, *operand)?;
            let at = offset.checked_add(index * size_of::<W>() as u64);
            let at = at.ok_or_else(|| self.out_of_window(rank, offset, size_of_val(operands) as u64))?;
            self.begin_detached(rank, |_| what, at, &[])?;
        }
        Ok(())
    }

    /// Combines a word of a rank's part with `operand` by `op`, and returns the old word: `MPI_Fetch_and_op`.
    ///
    /// # Errors
    /// As [`get`](Self::get) and [`accumulate`](Self::accumulate).
    pub fn fetch_and_op<W: Word>(&self, rank: u32, offset: u64, op: AtomicOp, operand: W) -> Result<W, Error> {
        // SAFETY: no memory is involved.
        unsafe { self.complete(rank, Self::atomic::<W>(op, operand)?, offset) }.map(W::of_word)
    }

    /// Changes a word of a rank's part to `new` if it is `expected`, and returns the old word: `MPI_Compare_and_swap`. It is for
    /// integers; use the bits of floating-point numbers.
    ///
    /// # Errors
    /// As [`fetch_and_op`](Self::fetch_and_op).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let window = world.window(8)?;
    /// assert_eq!(window.compare_and_swap(0, 0, 0u64, 7)?, 0);
    /// assert_eq!(window.compare_and_swap(0, 0, 0u64, 8)?, 7); // the word is not 0 any more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap<W: Word>(&self, rank: u32, offset: u64, expected: W, new: W) -> Result<W, Error> {
        let what = Transfer::Atomic(Atomic::CompareSwap(expected.to_word(), new.to_word()), W::FLAGS);
        // SAFETY: no memory is involved.
        unsafe { self.complete(rank, what, offset) }.map(W::of_word)
    }

    /// Waits until all operations of this process on a rank's part are complete: `MPI_Win_flush`.
    ///
    /// # Errors
    /// The first failure of an operation since the last flush: [`Error::Refused`], [`Error::PeerFailed`] or [`Error::DeviceFailed`].
    pub fn flush(&self, rank: u32) -> Result<(), Error> {
        self.context().check_process()?;
        self.part(rank)?;
        let settled = self.wait_until(|engine| engine.rma_ops.take_detached(self.id, rank));
        settled.map_err(|failure| self.failure(rank, failure))
    }

    /// As [`flush`](Self::flush), for the parts of all ranks: `MPI_Win_flush_all`.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), for the first rank where an operation failed.
    pub fn flush_all(&self) -> Result<(), Error> {
        (0..self.comm.size()).map(|rank| self.flush(rank)).fold(Ok(()), Result::and)
    }

    /// Copies from this rank's own part, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`]; [`Error::DeviceFailed`] if the part lies in the memory of a DPU that has failed.
    pub fn read<T>(&self, offset: usize, into: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        self.context().check_process()?;
        let into = into.as_mut_bytes();
        let at = self.own(offset, into.len())?;
        let mut engine = self.comm.handle.context.engine.lock();
        self.check_own(&mut engine)?;
        // SAFETY: within the mapping, as `own` has checked. Only the thread that holds the engine's lock accesses it at that
        // address. If others change it at the same time the result is a mixture of bytes, and any bytes are valid.
        unsafe { at.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        fence(Ordering::Acquire); // later reads are not older, and read memory again
        Ok(())
    }

    /// Copies to this rank's own part, from byte `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`]; [`Error::DeviceFailed`] if the part lies in the memory of a DPU that has failed.
    pub fn write<T>(&self, offset: usize, data: &T) -> Result<(), Error>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        self.context().check_process()?;
        let data = data.as_bytes();
        let at = self.own(offset, data.len())?;
        let mut engine = self.comm.handle.context.engine.lock();
        self.check_own(&mut engine)?;
        // SAFETY: as for `read`.
        unsafe { at.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        fence(Ordering::SeqCst); // other processes on this host read the memory directly
        Ok(())
    }

    /// Ends the window, after all operations of all ranks are complete: `MPI_Win_free`. All ranks call it. A window that is only
    /// dropped refuses operations that other ranks still begin.
    ///
    /// # Errors
    /// As [`flush_all`](Self::flush_all) and [`barrier`](Communicator::barrier).
    pub fn close(self) -> Result<(), Error> {
        self.complete_all()
    }

    /// Waits until all operations of all ranks are complete.
    pub(super) fn complete_all(&self) -> Result<(), Error> {
        let flushed = self.flush_all();
        // Other ranks wait for this one.
        let reached = self.comm.barrier();
        flushed.and(reached)
    }

    /// Takes the memory of this rank's part. The window refuses all operations on it from now on.
    pub(super) fn take_part(&mut self) -> Option<Part> {
        let memory = self.memory.take()?;
        self.comm.handle.context.engine.lock().rma_ops.forget_window(self.id);
        self.dpu_parts.leave(&mut self.comm.handle.context.engine.lock());
        Some((self.registration, memory))
    }

    /// The window's number in the engine.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether the own part lies in the memory of the DPU.
    pub(super) fn is_in_dpu(&self) -> bool {
        matches!(self.memory, Some(WindowMemory::Dpu(_)))
    }

    pub(super) fn context(&self) -> &ContextState<L> {
        &self.comm.handle.context
    }

    pub(super) fn part(&self, rank: u32) -> Result<(Peer, RemoteMemory), Error> {
        self.parts.get(rank as usize).copied().ok_or(Error::NoSuchRank { rank, size: self.comm.size() })
    }

    /// The address of bytes of this rank's own part.
    pub(super) fn own(&self, offset: usize, bytes: usize) -> Result<*mut u8, Error> {
        let memory = self.memory.as_ref().filter(|_| offset <= self.len && bytes <= self.len - offset);
        let out = || self.out_of_window(self.comm.rank(), offset as u64, bytes as u64);
        memory.map(|memory| memory.base().wrapping_add(offset)).ok_or_else(out)
    }

    fn atomic<W: Word>(op: AtomicOp, operand: W) -> Result<Transfer, Error> {
        let what = Transfer::Atomic(Atomic::Op(op, operand.to_word()), W::FLAGS);
        if W::has(op) { Ok(what) } else { Err(no_such_operation(Atomic::Op(op, 0), std::any::type_name::<W>())) }
    }

    #[cold]
    pub(super) fn out_of_window(&self, rank: u32, offset: u64, bytes: u64) -> Error {
        let len = self.part(rank).map_or(0, |(_, remote)| remote.len());
        Error::OutOfWindow { rank, offset, bytes, len }
    }

    /// The error for an operation that was not begun because of its arguments.
    #[cold]
    fn bad_arguments(&self, rank: u32, what: Transfer, offset: u64, why: BeginError) -> Error {
        let bytes = match &what {
            Transfer::Put(local) | Transfer::Get(local) => local.len(),
            Transfer::Atomic(_, flags) => flags.word_bytes(),
        };
        match what {
            _ if why == BeginError::OutOfBounds => self.out_of_window(rank, offset, bytes),
            Transfer::Atomic(atomic, flags) if atomic.takes(flags) => {
                let len = self.part(rank).map_or(0, |(_, remote)| remote.len());
                match offset % bytes {
                    0 => Error::UnalignedPart { rank, word: bytes },
                    _ => Error::Unaligned { rank, offset, word: bytes, len },
                }
            }
            Transfer::Atomic(atomic, flags) => no_such_operation(atomic, word_name(flags)),
            // Puts and gets of any length and offset exist.
            _ => Error::Refused { rank, why: Denied::NotAvailable },
        }
    }

    /// Makes progress until `look` finds something. `look` is called again whenever an operation has completed.
    pub(super) fn wait_until<T>(&self, mut look: impl FnMut(&mut Engine) -> Option<T>) -> T {
        let context = &self.comm.handle.context;
        let mut engine = context.engine.lock();
        let mut idle = Idle::default();
        engine.clock.renew_coarsely();
        let found = loop {
            engine.note_completed_rma_ops();
            let completed = engine.rma_ops.completed;
            if let Some(found) = look(&mut engine) {
                break found;
            }
            engine.progress_or_wait(&mut idle, &Awaited::RmaOps(completed), None);
        };
        drop(engine);
        context.run_callbacks();
        found
    }

    /// Begins an operation, if there is a free slot for it; `None` otherwise.
    ///
    /// # Safety
    /// As for `Pml::begin`.
    pub(super) unsafe fn begin(
        &self,
        engine: &mut Engine,
        rank: u32,
        what: Transfer,
        offset: u64,
    ) -> Option<Result<OpId, Error>> {
        let handle = &self.comm.handle;
        let (peer, remote) = match self.part(rank) {
            Ok(part) => part,
            Err(error) => return Some(Err(error)),
        };
        if let Err(forked) = handle.context.check_process() {
            return Some(Err(forked));
        }
        if handle.context.finished.load(Ordering::Relaxed) {
            return Some(Err(Error::Finished));
        }
        // A rank that was restarted counts as lost, too: its new process has no part in the window.
        if let Some(lost) = engine.mtl.failed(handle.comm, towline_core::mtl::Source::Rank(rank)) {
            return Some(Err(handle.peer_lost(engine, lost)));
        }
        let begun = match self.dpu_parts.get(rank) {
            // SAFETY: the caller's promise.
            Some(part) => match unsafe { dpu_parts::begin(engine, part, what, remote.len(), offset) } {
                Ok(access) => Ok(OpId::Dpu(access)),
                Err(None) => return Some(Err(Error::DeviceFailed)),
                Err(Some(why)) => Err(why),
            },
            // SAFETY: the caller's promise.
            None => unsafe { engine.mtl.pml().begin(peer, what, &remote, offset) }.map(OpId::Engine),
        };
        match begun {
            Ok(operation) => Some(Ok(operation)),
            Err(BeginError::Full) => None,
            Err(BeginError::Unreachable) => Some(Err(handle.failed(engine, peer))),
            Err(why) => Some(Err(self.bad_arguments(rank, what, offset, why))),
        }
    }

    /// Does an operation with the bytes `data`, which may be empty: immediately, or later with a copy of them.
    fn begin_detached(
        &self,
        rank: u32,
        what: impl Fn(&[u8]) -> Transfer,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Error> {
        // SAFETY: the bytes are borrowed until this returns.
        if unsafe { self.try_immediate(rank, what(data), offset) }.is_some() {
            return Ok(());
        }
        let data: Box<[u8]> = data.into();
        let what = what(&data); // the bytes in a box keep their address
        let mut data = Some(data);
        self.wait_until(|engine| {
            // SAFETY: the memory is that of the box, which is kept until the operation is complete, or until the rails are
            // dropped.
            let begun = unsafe { self.begin(engine, rank, what, offset) }?;
            Some(begun.map(|operation| {
                engine.rma_ops.add_detached(operation, self.id, rank, data.take().unwrap_or_default());
            }))
        })
    }

    /// Has a rail put or get the first pieces of a longer operation, if the rail accesses the rank's part directly. So no thread
    /// waits for the engine longer than one piece takes. Returns how many bytes were done.
    ///
    /// # Safety
    /// As [`try_immediate`](Self::try_immediate), for each piece for which `what` is called.
    unsafe fn move_pieces(&self, rank: u32, offset: u64, len: usize, what: impl Fn(Range<usize>) -> Transfer) -> usize {
        let of_part = |end| self.part(rank).is_ok_and(|(_, remote)| end <= remote.len());
        let fits = offset.checked_add(len as u64).is_some_and(of_part);
        let mut done = 0;
        while fits && len - done > PIECE {
            // SAFETY: the caller's promise.
            let moved = unsafe { self.try_immediate(rank, what(done..done + PIECE), offset + done as u64) };
            if moved.is_none() {
                break;
            }
            done += PIECE;
        }
        done
    }

    /// Has a rail do an operation immediately, if the rail accesses the rank's part directly. `None`: nothing was done, and
    /// `begin` says why.
    ///
    /// # Safety
    /// The memory is as `Pml::at_once` requires, until this returns.
    unsafe fn try_immediate(&self, rank: u32, what: Transfer, offset: u64) -> Option<u64> {
        let handle = &self.comm.handle;
        let (peer, remote) = self.parts.get(rank as usize).filter(|_| !self.dpu_parts.has(rank))?;
        let mut engine = handle.context.engine.lock();
        let rank = towline_core::mtl::Source::Rank(rank);
        if handle.context.finished.load(Ordering::Relaxed) || engine.mtl.failed(handle.comm, rank).is_some() {
            return None;
        }
        // SAFETY: the caller's promise.
        let old = unsafe { engine.mtl.pml().at_once(*peer, what, remote, offset) }?;
        let progress_is_due = engine.rma_ops.count_immediate();
        drop(engine);
        if progress_is_due {
            handle.context.progress();
        }
        Some(old)
    }

    /// Does an operation, and waits until it is complete.
    ///
    /// # Safety
    /// The memory is as `Pml::begin` requires, until this returns.
    unsafe fn complete(&self, rank: u32, what: Transfer, offset: u64) -> Result<u64, Error> {
        // SAFETY: the caller's promise.
        if let Some(old) = unsafe { self.try_immediate(rank, what, offset) } {
            return Ok(old);
        }
        let mut begun = None;
        // Nothing may unwind while the operation uses the memory.
        let result = no_unwind(|| {
            self.wait_until(|engine| {
                let operation = match begun {
                    Some(operation) => operation,
                    None => {
                        // SAFETY: the caller's promise; this does not return before the operation is complete.
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

    pub(super) fn failure(&self, rank: u32, failure: OpFailure) -> Error {
        match failure {
            OpFailure::Dpu(AccessFailure::DeviceFailed) => Error::DeviceFailed,
            OpFailure::Engine(Failure::Denied(why)) | OpFailure::Dpu(AccessFailure::Denied(why)) => {
                Error::Refused { rank, why }
            }
            _ => match self.part(rank) {
                Ok((peer, _)) => self.comm.handle.peer_lost(&self.comm.handle.context.engine.lock(), peer),
                Err(error) => error,
            },
        }
    }
}

/// The error for an atomic operation that words of this type do not have.
fn no_such_operation(atomic: Atomic, word: &'static str) -> Error {
    let operation = match atomic {
        Atomic::CompareSwap(..) => "CompareAndSwap",
        Atomic::Op(op, _) => match op {
            AtomicOp::Add => "Add",
            AtomicOp::And => "And",
            AtomicOp::Or => "Or",
            AtomicOp::Xor => "Xor",
            AtomicOp::LogicalAnd => "LogicalAnd",
            AtomicOp::LogicalOr => "LogicalOr",
            AtomicOp::LogicalXor => "LogicalXor",
            AtomicOp::Swap => "Swap",
            AtomicOp::Min => "Min",
            AtomicOp::Max => "Max",
        },
    };
    Error::NoSuchOperation { operation, word }
}

/// The type of words with these flags.
fn word_name(flags: AtomicFlags) -> &'static str {
    match (flags.contains(AtomicFlags::FLOAT), flags.word_bytes()) {
        (true, 4) => "f32",
        (true, _) => "f64",
        (false, 4) => "u32",
        (false, _) => "u64",
    }
}

impl<L: Threads> Drop for Window<L> {
    fn drop(&mut self) {
        if let Some((registration, memory)) = self.take_part() {
            self.context().engine.lock().retire_window(registration, memory, None);
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
    fn dropped_windows_leave_nothing() {
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
