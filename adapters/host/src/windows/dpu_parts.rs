//! Parts of windows in the memory of DPUs. The DPUs serve puts, gets and atomics on them, and the rank whose part it is makes no call.
//!
//! When a window is made, each rank says whether its DPU can be used for it, and the key of its own part, if that lies in the memory of
//! its DPU. If all ranks can, the parts that have a key are used by DPUs only, also by their owners, so that all atomics on a word are
//! done by one device. All other parts, and all parts if a rank cannot, are used by the engines only. All ranks come to the same result,
//! since it depends on nothing but what they said.

use towline_core::convertor::Span;
use towline_core::rail::Peer;
use towline_core::rma::{BeginError, Transfer};
use towline_dpu::Matching;
use towline_dpu::one_sided::{Accessing, Key};
use towline_dpu::windows::{AccessRefusal, KeyRoom, PeerPart};

use crate::engine::Engine;
use crate::engine::rma_ops::{OpFailure, OpId};
use crate::errors::error::Error;
use crate::threads::levels::Threads;
use crate::transports::memory::WindowMemory;
use crate::waiting::no_unwind::no_unwind;
use crate::windows::window::Window;

/// Bytes of a key.
const KEY: usize = 64;
/// Bytes that a rank publishes: what it has, and its key.
pub(super) const ENTRY: usize = 1 + KEY;
/// The rank's DPU can be used for this window.
const CAN: u8 = 1;
/// The rank's part has a key.
const HAS_KEY: u8 = 2;

/// The parts of a window that DPUs serve, by rank. Empty if there is none.
#[derive(Debug, Default)]
pub(crate) struct DpuParts {
    parts: Vec<Option<PeerPart>>,
    /// The most bytes of a put or get.
    piece: usize,
}

impl DpuParts {
    /// The part of a rank, if DPUs serve it.
    pub fn get(&self, rank: u32) -> Option<&PeerPart> {
        self.parts.get(rank as usize)?.as_ref()
    }

    /// Whether DPUs serve the part of a rank.
    pub fn has(&self, rank: u32) -> bool {
        self.get(rank).is_some()
    }

    /// The window ends.
    pub fn leave(&mut self, engine: &mut Engine) {
        if let Some(dpu) = engine.mtl.pml().rails_mut().dpu_mut() {
            self.parts.drain(..).flatten().for_each(|part| dpu.leave_window(part));
        }
    }
}

/// What this rank has said of its DPU: room for the keys, if it can be used.
pub(super) struct Offer(Option<KeyRoom>);

/// Says what this rank's DPU has for a window of these peers. `own`: the memory of the own part.
pub(super) fn offer(engine: &mut Engine, peers: &[Peer], own: Option<&WindowMemory>, entry: &mut [u8]) -> Offer {
    let knows = |dpu: &&mut Matching| dpu.has_peers(peers.iter().map(|peer| peer.0));
    let dpu = engine.mtl.pml().rails_mut().dpu_mut().filter(knows);
    let room = dpu.and_then(|dpu| dpu.key_room(peers.len() as u32).ok());
    if let Some((flags, key)) = entry.split_first_mut()
        && room.is_some()
    {
        *flags = CAN;
        if let Some(WindowMemory::Dpu(part)) = own {
            *flags |= HAS_KEY;
            key.copy_from_slice(&part.key().to_bytes());
        }
    }
    Offer(room)
}

impl Offer {
    /// The parts that DPUs serve, by what all ranks have said. `None`: no window is made.
    pub fn settle(self, engine: &mut Engine, peers: &[Peer], said: Option<&Vec<Vec<u8>>>) -> DpuParts {
        let (Some(dpu), Some(mut room)) = (engine.mtl.pml().rails_mut().dpu_mut(), self.0) else {
            return DpuParts::default();
        };
        let can = |entry: &Vec<u8>| entry.first().is_some_and(|flags| flags & CAN != 0);
        let said = said.filter(|said| said.len() == peers.len() && said.iter().all(can));
        let parts = said.into_iter().flatten().zip(peers).map(|(entry, peer)| {
            let (flags, key) = entry.split_first()?;
            let key = Key::from_bytes(key).filter(|_| flags & HAS_KEY != 0)?;
            dpu.reach_window(&mut room, peer.0, &key)
        });
        let parts = parts.collect();
        dpu.return_room(room);
        DpuParts { parts, piece: dpu.slot_bytes() as usize }
    }
}

/// Begins an operation on a part of `len` bytes. The error is `None` if the DPU has failed.
///
/// # Safety
/// As for [`Matching::access`].
pub(super) unsafe fn begin(
    engine: &mut Engine,
    part: &PeerPart,
    what: Transfer,
    len: u64,
    offset: u64,
) -> Result<Accessing, Option<BeginError>> {
    let bytes = match &what {
        Transfer::Put(local) | Transfer::Get(local) => local.len(),
        Transfer::Atomic(_, flags) => flags.word_bytes(),
    };
    if offset.checked_add(bytes).is_none_or(|end| end > len) {
        return Err(Some(BeginError::OutOfBounds));
    }
    if let Transfer::Atomic(atomic, flags) = what
        && !(atomic.takes(flags) && offset.is_multiple_of(bytes))
    {
        return Err(Some(BeginError::NotAvailable));
    }
    let dpu = engine.mtl.pml().rails_mut().dpu_mut().ok_or(None)?;
    // SAFETY: passed on from the caller.
    unsafe { dpu.access(part, what, offset) }.map_err(|why| match why {
        AccessRefusal::Busy => Some(BeginError::Full),
        AccessRefusal::DeviceFailed => None,
        _ => Some(BeginError::NotAvailable),
    })
}

impl<L: Threads> Window<L> {
    /// Whether the DPUs serve a rank's part: then operations on it are done although the rank makes no call. That is so if the window was
    /// made by [`window`](crate::Communicator::window) or [`window_with`](crate::Communicator::window_with), if the part fits into the
    /// memory of its rank's DPU, and if the DPUs of all ranks can be used.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    ///
    /// ```
    /// let world = towline::init()?;
    /// let window = world.window(64)?;
    /// if !window.is_on_dpu(0)? {
    ///     println!("rank 0 has to make progress, unless sm connects it");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_on_dpu(&self, rank: u32) -> Result<bool, Error> {
        self.part(rank)?;
        Ok(self.dpu_parts.has(rank))
    }

    /// Checks that the own part can be accessed: its memory may be another's after a failure of its DPU.
    pub(super) fn check_own(&self, engine: &mut Engine) -> Result<(), Error> {
        if !self.is_in_dpu() {
            return Ok(());
        }
        let dpu = engine.mtl.pml().rails_mut().dpu_mut();
        if dpu.is_some_and(|dpu| dpu.transport().lost().is_none()) { Ok(()) } else { Err(Error::DeviceFailed) }
    }

    /// Checks that bytes are in a rank's part.
    fn check_bounds(&self, rank: u32, offset: u64, bytes: usize) -> Result<(), Error> {
        let (_, remote) = self.part(rank)?;
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= remote.len() => Ok(()),
            _ => Err(self.out_of_window(rank, offset, bytes as u64)),
        }
    }

    /// Puts bytes in pieces. They are in the memory of the DPU when this returns.
    pub(super) fn put_by_dpu(&self, rank: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check_bounds(rank, offset, data.len())?;
        let mut done = 0;
        loop {
            let piece = &data[done..data.len().min(done + self.dpu_parts.piece)];
            self.wait_until(|engine| {
                let what = Transfer::Put(Span::of(piece));
                // SAFETY: the bytes are copied during the call.
                let begun = unsafe { self.begin(engine, rank, what, offset + done as u64) }?;
                Some(begun.map(|operation| engine.rma_ops.add_detached(operation, self.id(), rank, Box::default())))
            })?;
            done += piece.len();
            if done == data.len() {
                return Ok(());
            }
        }
    }

    /// Gets bytes in pieces, several at a time.
    ///
    /// # Safety
    /// The memory of each piece that `get` names is writable, and nothing else accesses it, until this returns.
    pub(super) unsafe fn get_by_dpu(
        &self,
        rank: u32,
        offset: u64,
        len: usize,
        get: impl Fn(std::ops::Range<usize>) -> Transfer,
    ) -> Result<(), Error> {
        self.check_bounds(rank, offset, len)?;
        let (mut done, mut is_begun, mut failed) = (0, false, None);
        let mut in_progress: Vec<OpId> = Vec::new();
        // Nothing may unwind while operations use the memory.
        let failure: Option<Result<Error, OpFailure>> = no_unwind(|| {
            self.wait_until(|engine| {
                in_progress.retain(|operation| match engine.rma_ops.take(*operation) {
                    Some(outcome) => {
                        if let Err(why) = outcome {
                            failed.get_or_insert(Err(why));
                        }
                        false
                    }
                    None => true,
                });
                while !is_begun && failed.is_none() {
                    let end = len.min(done + self.dpu_parts.piece);
                    // SAFETY: the caller's promise; this does not return before all operations are complete.
                    match unsafe { self.begin(engine, rank, get(done..end), offset + done as u64) } {
                        Some(Ok(operation)) => {
                            engine.rma_ops.add_awaited(operation);
                            in_progress.push(operation);
                            (done, is_begun) = (end, end == len);
                        }
                        Some(Err(error)) => failed = Some(Ok(error)),
                        None => break, // there is no room now
                    }
                }
                let is_over = in_progress.is_empty() && (is_begun || failed.is_some());
                is_over.then(|| failed.take())
            })
        });
        match failure {
            None => Ok(()),
            Some(Ok(error)) => Err(error),
            Some(Err(why)) => Err(self.failure(rank, why)),
        }
    }
}
