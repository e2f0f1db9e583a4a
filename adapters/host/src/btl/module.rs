//! A module: the BTL face of one rail, with the memory of its tables.

use std::fmt;
use std::time::{Duration, Instant};

use towline_core::btl::module::{Btl as CoreBtl, Config};
use towline_core::rail::Rail as _;
use towline_core::rma;

use crate::errors::setup::SetupError;
use crate::forks::owned::{Owned, Process};
use crate::transports::memory::Mapping;
use crate::transports::rails::AnyRail;
use crate::waiting::clock::Clock;

/// The BTL face of any rail of this crate.
pub type Btl<'m> = CoreBtl<'m, AnyRail>;

/// Descriptors of a module, which are also its sends in progress. Those that were never used take little memory.
const DESCRIPTORS: u32 = 4096;
/// The most long frames that arrive at a time. The rail holds others.
const RECEIVES: u32 = 16;
/// One-sided operations of a module. A runtime that gets no more makes progress, and tries again.
const OPERATIONS: u32 = 1024;
/// Registrations of a module. A runtime keeps some for each window, and one for each long message.
const REGIONS: u32 = 16_384;
/// Unanswered requests that a process accepts from each peer.
const WINDOW: u16 = 16;

/// A module: the BTL face of one rail. [`Builder::open_btl`](crate::Builder::open_btl) opens it.
///
/// A module belongs to the thread that opened it. A forked child has no use for the modules of its parent: it may only drop them.
pub struct Module {
    parts: Owned<Parts>,
    clock: Clock,
    /// Whether timers of the rail need the exact time.
    exact: bool,
}

struct Parts {
    // Dropped before the memory.
    btl: Btl<'static>,
    _memory: Mapping,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Module").field(&self.parts.btl.rail().attributes().name).finish()
    }
}

impl Module {
    /// A module over `rail`, for at most `peers` peers.
    pub(super) fn new(rail: AnyRail, peers: u32) -> Result<Self, SetupError> {
        let config = Config {
            endpoints: peers,
            descriptors: DESCRIPTORS,
            descriptor_bytes: u32::MAX,
            sends: DESCRIPTORS,
            receives: RECEIVES,
            rma: rma::Config { regions: REGIONS, operations: OPERATIONS, window: WINDOW },
        };
        // Peers of udp, verbs and several links are noticed, and their frames sent again, by timers. Those of tcp with one link have
        // limits of seconds only.
        let exact = !matches!(rail, AnyRail::Sm(_) | AnyRail::Tcp(_));
        let memory = Mapping::new(config.bytes::<AnyRail>(rail.attributes()));
        let memory = memory.map_err(|why| SetupError::System("map memory for a module", why))?;
        // SAFETY: called once; everything that is cut from the arena is in the module, which is dropped before the memory.
        let mut arena = unsafe { memory.arena() };
        let btl = Btl::new(config, &mut arena, rail).map_err(SetupError::Memory)?;
        Ok(Self { parts: Owned::new(Parts { btl, _memory: memory }), clock: Clock::new(), exact })
    }

    /// Uses the module. `use_it` gets it for any lifetime, so that it cannot take it away; callbacks that it registers live as long as
    /// the program.
    #[inline]
    pub fn with<T>(&mut self, use_it: impl for<'m> FnOnce(&mut Btl<'m>) -> T) -> T {
        use_it(&mut self.parts.btl)
    }

    /// Makes progress once, without waiting, and makes the callbacks that are due. Returns how many completions there were:
    /// [`Btl::progress`](CoreBtl::progress).
    #[inline]
    pub fn progress(&mut self) -> u32 {
        let (delivered, is_idle) = self.parts.btl.deliver();
        if is_idle {
            return delivered;
        }
        if self.exact {
            self.clock.renew();
        } else {
            self.clock.renew_coarsely();
        }
        delivered.wrapping_add(self.parts.btl.progress_after_delivery(self.clock.now()))
    }

    /// The process that opened the module. A forked child has no use for the module.
    pub fn process(&self) -> Process {
        self.parts.owner()
    }

    /// Makes progress until all that was sent has left, but for at most `time`. Returns whether it has. Dropping a module does not
    /// wait, so frames may be lost with it.
    pub fn drain(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while !self.parts.btl.is_drained() {
            if Instant::now() >= deadline {
                return false;
            }
            if self.progress() == 0 {
                std::thread::yield_now();
            }
        }
        true
    }
}
