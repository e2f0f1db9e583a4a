//! Floor 4: the matching transport: ranks and communicators over the engine of floor 3 (contract: mtl 2.0.0).
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::rail::{Peer, Rail, loopback::Hub};
//! use towline_core::convertor::Span;
//! use towline_core::mtl::{Group, Mtl, Source, Tag};
//! use towline_core::pml::{Config, Mode};
//! use towline_core::time::Instant;
//!
//! // A process of one rank that sends to itself.
//! let (mut wires, mut memory) = ([0u8; 4096], [0u8; 16384]);
//! let hub = Hub::new(&mut Arena::new(&mut wires), 1, 8, 256).unwrap();
//! let rail = hub.rail(0).unwrap();
//! let card = rail.card().to_vec();
//! let mut mtl = Mtl::new(Config::SMALLEST, 1, &mut Arena::new(&mut memory), [rail]).unwrap();
//! let params = mtl.params();
//! mtl.add_peer(Peer(0), &params, |_, rail| rail.add_peer(Peer(0), &card)).unwrap();
//! let world = mtl.add_comm(1, Group::World { size: 1 }, 0).unwrap();
//!
//! let (out, mut into) = (*b"hello", [0u8; 8]);
//! // SAFETY: both buffers outlive the requests.
//! let receive = unsafe {
//!     let receive = mtl.irecv(world, Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 8)).unwrap();
//!     let _ = mtl.isend(world, 0, 7, Mode::Standard, Span::of(&out)).unwrap();
//!     receive
//! };
//! let status = loop {
//!     mtl.progress(Instant::ZERO);
//!     if let Some(outcome) = mtl.test(receive) {
//!         break outcome.unwrap();
//!     }
//! };
//! assert_eq!((status.tag, status.delivered, &into[..5]), (7, 5, &b"hello"[..]));
//! ```

mod communicator;
mod errors;
mod fallback;
mod fallback_state;
mod offload;
mod rejoins;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod transport;

pub use communicator::{Comm, Group};
pub use errors::CommError;
pub use source::{Source, Tag};
pub use transport::{Attributes, Mtl};

pub use crate::pml::{
    Envelope, Failure, InProgress, Kind, Message, Mode, Refusal, Request, Sending, Stage, Status, Unreceived,
};
