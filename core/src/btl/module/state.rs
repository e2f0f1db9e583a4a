//! A module: its tables, and whom it calls back.

use core::fmt;

use super::types::{Completion, Counters, ErrorFlags, Note, Performance};
use crate::arena::{Arena, OutOfMemory};
use crate::btl::active::{Active, Received};
use crate::btl::descriptor::Descriptors;
use crate::btl::endpoint::Reach;
use crate::btl::receives::Receives;
use crate::btl::sends::{Queue, Sends};
use crate::pool::Pool;
use crate::rail::{Attributes, FullRail};
use crate::rma::{self, Rma};

/// Sizes of a module's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Peers.
    pub endpoints: u32,
    /// Descriptors.
    pub descriptors: u32,
    /// Bytes of each descriptor's own memory; never more than the rail's longest frame. `alloc` gives no more.
    pub descriptor_bytes: u32,
    /// Sends that are not complete.
    pub sends: u32,
    /// Frames longer than [`HEAD`](crate::rail::HEAD) whose bytes may be coming in at once.
    pub receives: u32,
    /// One-sided operations.
    pub rma: rma::Config,
}

impl Default for Config {
    /// For a handful of peers.
    fn default() -> Self {
        let rma = rma::Config::default();
        Self { endpoints: 8, descriptors: 16, descriptor_bytes: u32::MAX, sends: 32, receives: 2, rma }
    }
}

impl Config {
    /// Bytes that a module takes from its arena at most.
    pub const fn bytes<R: FullRail>(&self, rail: &Attributes) -> usize {
        let longest = longest(rail);
        let own = if self.descriptor_bytes < longest { self.descriptor_bytes } else { longest };
        Active::<&dyn Consumer<R>>::cost()
            .saturating_add(Descriptors::<Callback<'_, R>>::cost(self.descriptors, own))
            .saturating_add(Sends::cost(self.sends))
            .saturating_add(Receives::cost(self.receives, longest, rail.frames_kept))
            .saturating_add(Pool::<Reach>::cost(self.endpoints))
            .saturating_add(self.rma.bytes(self.endpoints))
            .saturating_add(Arena::cost::<Note<Told<'_, R>>>(self.rma.operations as usize))
    }
}

/// The longest frame of a rail.
pub(super) const fn longest(rail: &Attributes) -> u32 {
    if rail.eager_limit > rail.max_send_size { rail.eager_limit } else { rail.max_send_size }
}

/// Takes the frames of the tags that it is registered for.
///
/// What arrived can be read inside the callback only; what is needed later is copied. The borrow does not let it escape:
///
/// ```compile_fail,E0521
/// use core::cell::Cell;
/// use towline_core::btl::{active::Received, module::{Btl, Consumer}};
/// use towline_core::rail::FullRail;
///
/// #[derive(Debug)]
/// struct Keeper<'k>(Cell<&'k [u8]>);
///
/// impl<R: FullRail> Consumer<R> for Keeper<'_> {
///     fn receive(&self, _: &mut Btl<'_, R>, received: &Received<'_>) {
///         self.0.set(received.data()); // does not live long enough
///     }
/// }
/// ```
pub trait Consumer<R: FullRail>: fmt::Debug {
    /// Called for each frame. May send, allocate, free and register by way of `btl`; progress inside is a no-op.
    fn receive(&self, btl: &mut Btl<'_, R>, received: &Received<'_>);
}

/// Told when a send is complete locally: the descriptor is idle, and the bytes move without further calls.
pub trait Completed<R: FullRail>: fmt::Debug {
    /// Called once for each send that was queued, and for each at all where the descriptor says
    /// [`SEND_ALWAYS_CALLBACK`](crate::btl::descriptor::DescriptorFlags::SEND_ALWAYS_CALLBACK). May send, allocate and free.
    fn completed(&self, btl: &mut Btl<'_, R>, completion: Completion);
}

/// Refers to whom to tell of a descriptor's completion.
pub type Callback<'m, R> = &'m dyn Completed<R>;

/// Told of errors that belong to no single send.
pub trait ErrorHandler<R: FullRail>: fmt::Debug {
    /// Called once for each peer that is lost; `proc` is its [`Proc::id`](crate::btl::endpoint::Proc::id).
    fn failed(&self, btl: &mut Btl<'_, R>, flags: ErrorFlags, proc: Option<u32>, info: &dyn fmt::Display);
}

/// Told when a one-sided operation is complete: done at the target, and local memory is the caller's again.
pub trait Performed<R: FullRail>: fmt::Debug {
    /// Called once for each operation that was queued. May begin others, send, register and deregister.
    fn performed(&self, btl: &mut Btl<'_, R>, performance: &Performance);
}

/// Refers to whom to tell of an operation's completion.
pub type Told<'m, R> = &'m dyn Performed<R>;

/// The BTL face of one rail. See the [module](super).
#[derive(Debug)]
pub struct Btl<'m, R: FullRail> {
    pub(super) rail: R,
    pub(super) active: Active<'m, &'m dyn Consumer<R>>,
    pub(super) on_error: Option<&'m dyn ErrorHandler<R>>,
    pub(super) endpoints: Pool<'m, Reach>,
    /// Processes were added.
    pub(super) has_added: bool,
    pub(super) descriptors: Descriptors<'m, Callback<'m, R>>,
    pub(super) receives: Receives<'m>,
    pub(super) sends: Sends<'m>,
    /// Sends that wait for room or to leave, in order; those with priority that wait.
    pub(super) pending: Queue,
    pub(super) urgent: Queue,
    /// Sends that are complete, callback due.
    pub(super) finished: Queue,
    pub(super) pass: u32,
    pub(super) rma: Rma<'m>,
    /// Of the operation in each slot.
    pub(super) notes: &'m mut [Note<Told<'m, R>>],
    /// There may be something to say of what has arrived.
    pub(super) counts_due: bool,
    pub(super) in_progress: bool,
    pub(super) counters: Counters,
}

impl<'m, R: FullRail> Btl<'m, R> {
    /// A module over `rail`, with tables cut from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; [`Config::bytes`] says how much is needed.
    pub fn new(config: Config, arena: &mut Arena<'m>, rail: R) -> Result<Self, OutOfMemory> {
        let attributes = rail.attributes();
        let longest = longest(attributes);
        Ok(Self {
            active: Active::new(arena)?,
            on_error: None,
            endpoints: Pool::new(arena, config.endpoints)?,
            has_added: false,
            descriptors: Descriptors::new(arena, config.descriptors, config.descriptor_bytes.min(longest))?,
            receives: Receives::new(arena, config.receives, longest, attributes.frames_kept)?,
            sends: Sends::new(arena, config.sends)?,
            pending: Queue::default(),
            urgent: Queue::default(),
            finished: Queue::default(),
            pass: 0,
            rma: Rma::new(config.rma, arena, config.endpoints)?,
            notes: arena.filled(config.rma.operations as usize, Note::NONE)?,
            counts_due: false,
            in_progress: false,
            counters: Counters::default(),
            rail,
        })
    }
}
