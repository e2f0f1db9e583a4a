//! A module: its tables, and the traits of the callbacks that it makes.

use core::fmt;

use super::types::{Completion, Counters, ErrorFlags, RmaCompletion, RmaContext};
use crate::arena::{Arena, OutOfMemory};
use crate::btl::active::{Consumers, Received};
use crate::btl::descriptor::Descriptors;
use crate::btl::endpoint::EndpointState;
use crate::btl::receives::Receives;
use crate::btl::sends::{SendQueue, Sends};
use crate::pool::Pool;
use crate::rail::{Attributes, FullRail, Lost};
use crate::rma::{self, Rma};

/// The sizes of a module's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// The most peers.
    pub endpoints: u32,
    /// The most descriptors.
    pub descriptors: u32,
    /// Bytes of each descriptor's own memory, which `alloc` gives out; at most the rail's longest frame.
    pub descriptor_bytes: u32,
    /// The most sends in progress.
    pub sends: u32,
    /// The most frames longer than [`HEAD`](crate::rail::HEAD) bytes that are delivered at a time. More wait in the rail.
    pub receives: u32,
    /// The tables of one-sided operations.
    pub rma: rma::Config,
}

impl Default for Config {
    /// Sizes for a handful of peers.
    fn default() -> Self {
        let rma = rma::Config::default();
        Self { endpoints: 8, descriptors: 16, descriptor_bytes: u32::MAX, sends: 32, receives: 2, rma }
    }
}

impl Config {
    /// The most bytes that a module takes from its arena.
    pub const fn bytes<R: FullRail>(&self, rail: &Attributes) -> usize {
        let longest = longest(rail);
        let own = if self.descriptor_bytes < longest { self.descriptor_bytes } else { longest };
        Consumers::<&dyn Consumer<R>>::cost()
            .saturating_add(Descriptors::<Callback<'_, R>>::cost(self.descriptors, own))
            .saturating_add(Sends::cost(self.sends))
            .saturating_add(Receives::cost(self.receives, longest, rail.frames_kept))
            .saturating_add(Pool::<EndpointState>::cost(self.endpoints))
            .saturating_add(self.rma.bytes(self.endpoints))
            .saturating_add(Arena::cost::<RmaContext<RmaCallback<'_, R>>>(self.rma.operations as usize))
    }
}

/// The longest frame of a rail.
pub(super) const fn longest(rail: &Attributes) -> u32 {
    if rail.eager_limit > rail.max_send_size { rail.eager_limit } else { rail.max_send_size }
}

/// Consumes the frames of the tags that it is registered for.
///
/// The bytes of a frame can be read within the callback only; a consumer copies the bytes that it needs later. The borrow does
/// not let them escape:
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
    /// Called for each frame. It may use `btl` to send, allocate, free and register. [`Btl::progress`] within it does nothing.
    fn receive(&self, btl: &mut Btl<'_, R>, received: &Received<'_>);
}

/// The callback of a send that is complete locally: the descriptor can be used again, and the bytes leave without further
/// calls.
pub trait Completed<R: FullRail>: fmt::Debug {
    /// Called once for each send that was queued, and for every send if the descriptor has
    /// [`SEND_ALWAYS_CALLBACK`](crate::btl::descriptor::DescriptorFlags::SEND_ALWAYS_CALLBACK). It may send, allocate and free.
    fn completed(&self, btl: &mut Btl<'_, R>, completion: Completion);
}

/// The callback for the sends of a descriptor.
pub type Callback<'m, R> = &'m dyn Completed<R>;

/// The callback for errors that do not belong to a single send.
pub trait ErrorHandler<R: FullRail>: fmt::Debug {
    /// Called once for each peer that is lost. `proc` is its [`Proc::id`](crate::btl::endpoint::Proc::id). The text of `reason` is
    /// the `btlinfo` of Open MPI.
    fn failed(&self, btl: &mut Btl<'_, R>, flags: ErrorFlags, proc: Option<u32>, reason: Lost);
}

/// The callback of a one-sided operation that is complete: it is done at the target, and local memory is the caller's again.
pub trait RmaCompleted<R: FullRail>: fmt::Debug {
    /// Called once for each operation that was queued. It may begin other operations, send, register and deregister.
    fn rma_completed(&self, btl: &mut Btl<'_, R>, completion: &RmaCompletion);
}

/// The callback for a one-sided operation.
pub type RmaCallback<'m, R> = &'m dyn RmaCompleted<R>;

/// The BTL face of one rail. See the [module](super).
#[derive(Debug)]
pub struct Btl<'m, R: FullRail> {
    pub(super) rail: R,
    pub(super) consumers: Consumers<'m, &'m dyn Consumer<R>>,
    pub(super) on_error: Option<&'m dyn ErrorHandler<R>>,
    pub(super) endpoints: Pool<'m, EndpointState>,
    /// Whether processes were added before.
    pub(super) has_added: bool,
    pub(super) descriptors: Descriptors<'m, Callback<'m, R>>,
    pub(super) receives: Receives<'m>,
    pub(super) sends: Sends<'m>,
    /// Sends without priority that wait for room, and sends that are staged, in order.
    pub(super) pending: SendQueue,
    /// Sends with priority that wait for room.
    pub(super) urgent: SendQueue,
    /// Sends that are complete, and whose callback is due.
    pub(super) finished: SendQueue,
    /// Counts the passes of sending.
    pub(super) pass: u32,
    pub(super) rma: Rma<'m>,
    /// The context of the one-sided operation in each slot.
    pub(super) rma_contexts: &'m mut [RmaContext<RmaCallback<'m, R>>],
    /// Whether a count may be due to a peer.
    pub(super) counts_due: bool,
    pub(super) in_progress: bool,
    pub(super) counters: Counters,
}

impl<'m, R: FullRail> Btl<'m, R> {
    /// Makes a module over `rail`, with tables from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`]: [`Config::bytes`] returns how much is needed.
    pub fn new(config: Config, arena: &mut Arena<'m>, rail: R) -> Result<Self, OutOfMemory> {
        let attributes = rail.attributes();
        let longest = longest(attributes);
        Ok(Self {
            consumers: Consumers::new(arena)?,
            on_error: None,
            endpoints: Pool::new(arena, config.endpoints)?,
            has_added: false,
            descriptors: Descriptors::new(arena, config.descriptors, config.descriptor_bytes.min(longest))?,
            receives: Receives::new(arena, config.receives, longest, attributes.frames_kept)?,
            sends: Sends::new(arena, config.sends)?,
            pending: SendQueue::default(),
            urgent: SendQueue::default(),
            finished: SendQueue::default(),
            pass: 0,
            rma: Rma::new(config.rma, arena, config.endpoints)?,
            rma_contexts: arena.filled(config.rma.operations as usize, RmaContext::NONE)?,
            counts_due: false,
            in_progress: false,
            counters: Counters::default(),
            rail,
        })
    }
}
