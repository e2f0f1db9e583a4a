//! The BTL face of one rail: descriptors, active messages and completion callbacks, for consumers other than the engine.
//!
//! A [`Btl`] owns its rail. Only [`Btl::progress`] makes callbacks; a send never does. Callbacks get the module itself, so they
//! may send, allocate and free.
//!
//! The module gives sends to one peer to the rail in the order in which they were made, except that sends with
//! [`PRIORITY`](crate::btl::descriptor::DescriptorFlags::PRIORITY) go before sends that wait. Frames may overtake each other on
//! a rail, so they may arrive in another order. A send with the [order](crate::btl::descriptor::ORDER) of a completion arrives
//! after all frames that were sent to that peer before.
//!
//! Each module has its own table of active-message tags: a consumer registers with the module of each rail that it takes frames
//! from, and a tag may have other consumers in other modules.
//!
//! ```
//! use core::cell::Cell;
//! use towline_core::arena::Arena;
//! use towline_core::btl::active::Received;
//! use towline_core::btl::descriptor::{DescriptorFlags, NO_ORDER};
//! use towline_core::btl::endpoint::Proc;
//! use towline_core::btl::module::{Btl, Config, Consumer, Outcome};
//! use towline_core::rail::{FullRail, Rail, Unreachable, loopback::Hub, tags};
//! use towline_core::time::Instant;
//!
//! #[derive(Debug)]
//! struct Count(Cell<usize>);
//! impl<R: FullRail> Consumer<R> for Count {
//!     fn receive(&self, _: &mut Btl<'_, R>, received: &Received<'_>) {
//!         self.0.set(self.0.get() + received.data().len());
//!     }
//! }
//!
//! let (mut queues, mut block) = ([0u8; 4096], vec![0u8; 65536]);
//! let hub = Hub::new(&mut Arena::new(&mut queues), 1, 4, 128).unwrap();
//! let rail = hub.rail(0).unwrap();
//! let card = rail.card().to_vec();
//! let bytes = Count(Cell::new(0));
//! let mut btl = Btl::new(Config::default(), &mut Arena::new(&mut block), rail).unwrap();
//! btl.register(tags::USR, &bytes).unwrap();
//! let mut myself = [Err(Unreachable::NoCard)];
//! btl.add_procs(&[Proc { id: 0, card: &card }], &mut myself, None);
//! let myself = myself[0].unwrap();
//!
//! let descriptor = btl.alloc(myself, NO_ORDER, 5, DescriptorFlags::BTL_OWNERSHIP).unwrap();
//! btl.memory(descriptor).unwrap().copy_from_slice(b"hello");
//! assert_eq!(btl.send(myself, descriptor, tags::USR), Ok(Outcome::Sent));
//! assert_eq!(btl.progress(Instant::ZERO), 1);
//! assert_eq!(bytes.0.get(), 5);
//! ```

mod dump;
mod one_sided;
mod order;
mod progress;
mod sending;
mod state;
#[cfg(test)]
mod tests;
mod types;

pub use self::dump::Dump;
pub use self::state::{Btl, Callback, Completed, Config, Consumer, ErrorHandler, RmaCallback, RmaCompleted};
pub use self::types::{
    Completion, Counters, ErrorFlags, Immediate, Outcome, RegisterMemoryError, RmaCompletion, RmaParams,
};
