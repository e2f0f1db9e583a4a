//! How a side that sleeps is woken by the other one.
//!
//! Each side has a word that counts its sleeps: it is odd while the side sleeps, or is about to. The sleeper stores an odd number,
//! makes a fence, and looks once more for work. The other side writes work, makes a fence, and looks at the word. The fences are
//! sequentially consistent, so one of both sees what the other has written: the sleeper finds the work, or the other side rings.
//!
//! A side rings once for each number. A bell that comes late ends a later sleep early, and does no harm.

use crate::atomics::{AtomicU32, Ordering, fence};

/// What a device has as a doorbell, in [`at::DOORBELL`](crate::header::at::DOORBELL).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum Doorbell {
    /// None: the device looks for work by itself. A host takes a number that it does not know for this.
    #[default]
    None = 0,
    /// Two named pipes beside the window's file: see [`PIPE`] and [`HOST_PIPE`].
    Pipes = 1,
}

/// What the name of the window's file is followed by, in the name of the pipe that wakes the device.
pub const PIPE: &str = ".doorbell";
/// The same of the pipe that wakes the host.
pub const HOST_PIPE: &str = ".host-doorbell";

impl Doorbell {
    /// The doorbell of a number in a header.
    pub const fn of(number: u32) -> Self {
        match number {
            1 => Self::Pipes,
            _ => Self::None,
        }
    }
}

/// The side that sleeps.
#[derive(Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Sleeper {
    number: u32,
}

impl Sleeper {
    /// A side that is awake.
    pub const fn new() -> Self {
        Self { number: 0 }
    }

    /// Says that this side sleeps. The caller then looks for work, and sleeps only if there is none. It may call this again.
    pub fn announce(&mut self, word: &AtomicU32) {
        self.number = self.number.wrapping_add(1) | 1;
        word.store(self.number.to_le(), Ordering::Relaxed);
        // What the other side has written before it looks at the word is seen after this, or it sees the number.
        fence(Ordering::SeqCst);
    }

    /// Whether this side has said that it sleeps.
    pub const fn is_announced(&self) -> bool {
        self.number & 1 != 0
    }

    /// Says that this side is awake. Bells that were rung are taken before the next sleep is announced.
    pub fn awake(&mut self, word: &AtomicU32) {
        self.number = self.number.wrapping_add(self.number & 1);
        word.store(self.number.to_le(), Ordering::Relaxed);
    }
}

/// The side that wakes the other one.
#[derive(Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ringer {
    rung: u32,
}

impl Ringer {
    /// A side that has not rung.
    pub const fn new() -> Self {
        Self { rung: 0 }
    }

    /// Whether the other side has to be woken, after this one has written something for it. The caller rings then.
    pub fn must_ring(&mut self, word: &AtomicU32) -> bool {
        // As in `announce`.
        fence(Ordering::SeqCst);
        let number = u32::from_le(word.load(Ordering::Relaxed));
        let must = number & 1 != 0 && number != self.rung;
        if must {
            self.rung = number;
        }
        must
    }
}
