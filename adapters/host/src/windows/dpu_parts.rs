//! Parts of windows in the memory of DPUs. The DPUs serve puts, gets and atomics on them, and the rank whose part it is makes no call.
//!
//! When a window is made, each rank says whether its DPU can be used for it, and the key of its own part, if that lies in the memory of
//! its DPU. If all ranks can, the parts that have a key are used by DPUs only, also by their owners, so that all atomics on a word are
//! done by one device. All other parts are used by the engines only. If a rank cannot, the ranks move their parts to ordinary memory and
//! agree again, since processors have no atomics on the memory of some devices. All ranks come to the same result, since it depends on
//! nothing but what they said.

use towline_core::rail::Peer;
use towline_core::rma::{BeginError, Transfer};
use towline_dpu::Matching;
use towline_dpu::one_sided::{Accessing, Key};
use towline_dpu::windows::{AccessRefusal, KeyRoom, PeerPart};

use crate::engine::Engine;
use crate::transports::memory::WindowMemory;

/// Bytes of a key.
const KEY: usize = 64;
/// Bytes that a rank publishes: what it has, and its key.
pub(super) const ENTRY: usize = 1 + KEY;
/// The rank's DPU can be used for this window.
const CAN: u8 = 1;
/// The rank's part lies in the memory of its DPU, whether that can be used or not, and has a key.
const IN_DPU: u8 = 2;

/// Whether a rank has said this.
fn says(entry: &[u8], flag: u8) -> bool {
    entry.first().is_some_and(|flags| flags & flag != 0)
}

/// The parts of a window that DPUs serve, by rank. Empty if there is none.
#[derive(Debug, Default)]
pub(crate) struct DpuParts {
    parts: Vec<Option<PeerPart>>,
    /// The most bytes of a put or get.
    pub piece: usize,
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

/// Whether there are parts in the memory of DPUs although not all ranks can use theirs, by what all ranks have said.
pub(super) fn must_move(said: &[Vec<u8>]) -> bool {
    said.iter().any(|entry| says(entry, IN_DPU)) && !said.iter().all(|entry| says(entry, CAN))
}

/// What this rank has said of its DPU: room for the keys, if it can be used.
pub(super) struct Offer(Option<KeyRoom>);

/// Says what this rank's DPU has for a window of these peers. `own`: the memory of the own part.
pub(super) fn offer(engine: &mut Engine, peers: &[Peer], own: Option<&WindowMemory>, entry: &mut [u8]) -> Offer {
    let knows = |dpu: &&mut Matching| dpu.has_peers(peers.iter().map(|peer| peer.0));
    let dpu = engine.mtl.pml().rails_mut().dpu_mut().filter(knows);
    let room = dpu.and_then(|dpu| dpu.key_room(peers.len() as u32).ok());
    if let Some((flags, key)) = entry.split_first_mut() {
        *flags = if room.is_some() { CAN } else { 0 };
        if let Some(WindowMemory::Dpu(part)) = own {
            *flags |= IN_DPU;
            key.copy_from_slice(&part.key().to_bytes());
        }
    }
    Offer(room)
}

impl Offer {
    /// The parts that DPUs serve, by what all ranks have said, of which none [must move](must_move). `None`: no window is made.
    pub fn settle(self, engine: &mut Engine, peers: &[Peer], said: Option<&Vec<Vec<u8>>>) -> DpuParts {
        let (Some(dpu), Some(mut room)) = (engine.mtl.pml().rails_mut().dpu_mut(), self.0) else {
            return DpuParts::default();
        };
        let said = said.filter(|said| said.len() == peers.len());
        let parts = said.into_iter().flatten().zip(peers).map(|(entry, peer)| {
            let key = Key::from_bytes(entry.get(1..)?).filter(|_| says(entry, IN_DPU))?;
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
