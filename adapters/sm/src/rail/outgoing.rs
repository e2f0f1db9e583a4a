//! A ring to a peer.

use std::path::Path;

use crate::atomics::{AtomicU32, Ordering};
use crate::error::{OpenError, system_error};
use crate::host::Process;
use crate::ring::{RingMemory, SLOT, START, Sender};
use crate::segment::file::Segment;
use crate::segment::layout::{
    EPOCH_ADDRESS, FIRST_EPOCH, LIMIT, MAGIC, MAGIC_AT, NONCE, PAGE, PID, PID_NAMESPACE, PROBE, RING_BYTES, START_TIME,
    TO_NONCE, TO_PID, TO_START_TIME,
};
use crate::segment::names::unfinished;
use crate::segment::slots::Slots;
use crate::single_copy::expose::Exposure;
use crate::single_copy::probe::UNTRIED;
use crate::sleep;

/// Stands for the sleep word of a peer where every publication has to take the slow path.
static ALWAYS_ASLEEP: AtomicU32 = AtomicU32::new(sleep::ON_FUTEX);

/// The two ends of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender and its incarnation.
    pub from: (Process, u64),
    /// The receiver and its incarnation.
    pub to: (Process, u64),
}

/// A ring to a peer.
#[derive(Debug)]
pub struct Outgoing {
    pub sender: Sender,
    pub slots: Slots,
    /// One more than the bytes of the longest frame that may be sent now; 0 makes all frames take the slow path.
    pub len_bound: u32,
    /// Slots that only control frames may take.
    pub reserved: u32,
    /// Whether the engine got `Busy` since credit last arrived.
    pub wants_credit: bool,
    /// The peer's sleep word, or one that always says that the receiver may sleep.
    sleep_word: *const AtomicU32,
    /// For single copy: exposes memory to the peer. Only in rings for short frames.
    pub exposure: Option<Exposure>,
    segment: Option<Segment>,
}

// SAFETY: the addresses are of process-wide mappings, reached through atomics.
unsafe impl Send for Outgoing {}

impl Outgoing {
    /// No ring yet.
    pub fn none() -> Self {
        Self {
            sender: Sender::NONE,
            slots: Slots::none(),
            len_bound: 0,
            reserved: 0,
            wants_credit: false,
            sleep_word: &raw const ALWAYS_ASLEEP,
            exposure: None,
            segment: None,
        }
    }

    /// Makes the segment of a ring of `bytes` bytes, whose longest frame has `limit` bytes. Only control frames may take the last
    /// `reserved` slots.
    ///
    /// The file gets its name when it is complete, and replaces a file that an earlier process of this rank has left there. The
    /// receiver may look for the file at any time, since the doorbell may have announced the earlier one.
    pub fn create(path: &Path, ends: Ends, bytes: u32, limit: u32, reserved: u32) -> Result<Self, OpenError> {
        let unfinished = unfinished(path);
        // An earlier process of this rank may have died here.
        let _ = std::fs::remove_file(&unfinished);
        let segment = Segment::create(&unfinished, PAGE + bytes as usize)?;
        let write = |at, value| segment.word(at).store(value, Ordering::Relaxed);
        write(PID, u64::from(ends.from.0.pid));
        write(START_TIME, ends.from.0.start_time);
        write(PID_NAMESPACE, ends.from.0.pid_namespace);
        write(NONCE, ends.from.1);
        write(RING_BYTES, u64::from(bytes));
        write(LIMIT, u64::from(limit));
        write(TO_PID, u64::from(ends.to.0.pid));
        write(TO_START_TIME, ends.to.0.start_time);
        write(TO_NONCE, ends.to.1);
        let slots = bytes / SLOT as u32;
        // SAFETY: the segment is kept in the same struct, and dropped with it.
        let memory = unsafe { Slots::of(&segment, slots) };
        memory.credit().store(START, Ordering::Relaxed);
        segment.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        std::fs::rename(&unfinished, path).map_err(|error| {
            let _ = std::fs::remove_file(&unfinished);
            system_error("name", path, error)
        })?;
        Ok(Self {
            sender: Sender::new(slots, START),
            slots: memory,
            len_bound: limit + 1,
            reserved,
            wants_credit: false,
            sleep_word: &raw const ALWAYS_ASLEEP,
            exposure: None,
            segment: Some(segment),
        })
    }

    /// Makes every publication look at `word` from now on.
    ///
    /// # Safety
    /// The word outlives this ring's use, or another one is set before.
    pub unsafe fn set_sleep_word(&mut self, word: &AtomicU32) {
        self.sleep_word = word;
    }

    /// Whether the receiver may be asleep; to be called after each publication.
    #[inline]
    pub fn receiver_may_sleep(&self) -> bool {
        // SAFETY: a static, or a word that the caller of `set_sleep_word` vouched for.
        sleep::may_sleep(unsafe { &*self.sleep_word })
    }

    /// Whether there is a segment.
    pub fn exists(&self) -> bool {
        self.segment.is_some()
    }

    /// Writes the epoch word's address and value to the ring. Must be called before the ring is announced to the receiver.
    pub fn offer_single_copy(&mut self, exposure: Exposure) {
        if let Some(segment) = &self.segment {
            let (address, epoch) = exposure.epoch();
            segment.word(FIRST_EPOCH).store(epoch, Ordering::Relaxed);
            // The doorbell, rung afterwards, makes it visible.
            segment.word(EPOCH_ADDRESS).store(address, Ordering::Relaxed);
            self.exposure = Some(exposure);
        }
    }

    /// The result of the receiver's probe: whether it can read our memory.
    pub fn probe(&self) -> u64 {
        self.segment.as_ref().map_or(UNTRIED, |segment| segment.word(PROBE).load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use towline_core::rail::Peer;

    use super::{Ends, Outgoing};
    use crate::error::OpenError;
    use crate::host::Process;
    use crate::rail::incoming::Incoming;

    fn ends(nonce: u64) -> Ends {
        Ends { from: (Process::current(), nonce), to: (Process::current(), 1) }
    }

    /// The receiver has mapped the ring of the earlier process of a rank, and the new process has made its own meanwhile.
    #[test]
    fn x7_only_the_name_of_the_mapped_ring_is_removed() {
        let path = std::env::temp_dir().join(format!("towline-name-{}", std::process::id()));
        Outgoing::create(&path, ends(1), 8192, 1000, 0).unwrap();
        let earlier = Incoming::open(&path, 1, 1, Peer(0)).unwrap().unwrap();
        Outgoing::create(&path, ends(2), 8192, 1000, 0).unwrap();
        earlier.remove_name(&path);
        let new = Incoming::open(&path, 2, 1, Peer(0)).unwrap().unwrap();
        new.remove_name(&path);
        assert!(!path.exists());
    }

    /// A restarted rank makes a ring in the place of that of its earlier process, and the receiver looks for the ring meanwhile.
    #[test]
    fn x7_a_ring_is_complete_when_it_has_its_name() {
        let path = std::env::temp_dir().join(format!("towline-ring-{}", std::process::id()));
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for nonce in 0..2000 {
                    Outgoing::create(&path, ends(nonce), 8192, 1000, 0).unwrap();
                }
                over.store(true, Ordering::Relaxed);
            });
            while !over.load(Ordering::Relaxed) {
                match Incoming::open(&path, u64::MAX, 1, Peer(0)) {
                    Ok(None) => {}
                    Err(OpenError::System { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {}
                    other => panic!("{other:?}"),
                }
            }
        });
        std::fs::remove_file(&path).unwrap();
    }
}
