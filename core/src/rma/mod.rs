//! One-sided operations: a process puts, gets, and uses atomics on memory of a peer, and the peer posts no receive for that.
//!
//! Memory is registered with rights ([`Access`]). That yields a handle for its owner ([`Registration`]) and a handle for peers
//! ([`RemoteMemory`]), whose bytes the owner sends to peers by any means. With this handle they put, get, and use atomics on
//! words.
//!
//! # Emulation
//! On rails that only send frames, all operations are emulated by active messages (`MCA_BTL_FLAGS_PUT_AM`, `GET_AM`,
//! `ATOMIC_AM_FOP`): the initiator sends requests; the target does each of them when it makes progress, and answers it. So an
//! operation that is complete at the initiator is done at the target (CONTRACTS B44). Atomics are done by the target's processor,
//! so they agree with its own atomics (`GLOB`).
//!
//! A long put or get is split into requests, each of which fits into a frame of the rail. A target accepts a fixed number of
//! unanswered requests from each peer, the *window*, and every [`RemoteMemory`] has that number. An initiator never has more
//! unanswered requests. So the target always has a slot for an answer. Requests beyond the window violate the protocol: they
//! are dropped and counted. Answers for which the rail has no room wait in their slots, and requests wait with their operation.
//! Frames are taken in even when everything is full, so two sides never wait for each other.
//!
//! # Operations of a device
//! If a rail has operations of its own ([`native`](crate::rail::native)), memory is registered with the rail, too. The rail's
//! device does what it can, and the rest is emulated. If the device's atomics do not agree with the processor's, one word must
//! not see both, or results would be wrong. So the device then does all atomics on registered memory: those that it does not
//! have, by its compare and swap.
//!
//! # Single copy
//! Some rails [expose memory](crate::rail::SingleCopy::expose): over shared memory the kernel copies from one process to
//! another. On such a rail, requests and answers have a remote buffer in place of long data, and the other side reads the bytes
//! where they are. The target reads the bytes of a put after it has checked rights and bounds. The initiator reads the bytes of
//! a get. If bytes cannot be read, the whole operation is done once more, in frames. Exposed memory is revoked when it is
//! deregistered. An initiator that reads after that gets nothing, and its get is denied.
//!
//! # Trust
//! The target checks slot, generation, rights and bounds of each request. An initiator accepts only bytes that it has asked
//! for.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::btl::endpoint::Proc;
//! use towline_core::btl::module::{Btl, Config, RmaParams};
//! use towline_core::rma::{Access, Atomic, AtomicFlags, AtomicOp};
//! use towline_core::rail::{Rail, Unreachable, loopback::Hub};
//! use towline_core::convertor::Span;
//! use towline_core::time::Instant;
//!
//! let (mut queues, mut block) = ([0u8; 4096], vec![0u8; 65536]);
//! let hub = Hub::new(&mut Arena::new(&mut queues), 1, 8, 128).unwrap();
//! let rail = hub.rail(0).unwrap();
//! let card = rail.card().to_vec();
//! let mut btl = Btl::new(Config::default(), &mut Arena::new(&mut block), rail).unwrap();
//! let mut myself = [Err(Unreachable::NoCard)];
//! btl.add_procs(&[Proc { id: 0, card: &card }], &mut myself, None);
//! let myself = myself[0].unwrap();
//!
//! let mut words = [0u64, 5];
//! // SAFETY: nobody else uses the words until the memory is deregistered.
//! let window = unsafe { btl.register_mem(None, words.as_mut_ptr().cast(), 16, Access::ANY) }.unwrap();
//! let remote = btl.remote_memory(window).unwrap(); // send its bytes to the peers that may use the memory
//! let data = 40u64.to_ne_bytes();
//! // SAFETY: the data stays until the put is flushed.
//! unsafe { btl.put(myself, Span::of(&data), &remote, 0, RmaParams::NONE) }.unwrap();
//! let add = Atomic::Op(AtomicOp::Add, 2);
//! btl.atomic(myself, add, AtomicFlags::empty(), &remote, 8, RmaParams::NONE).unwrap();
//! while !btl.flush(Some(myself)) {
//!     btl.progress(Instant::ZERO);
//! }
//! btl.deregister_mem(window).unwrap();
//! assert_eq!(words, [40, 7]);
//! ```

/// Whether engines have one-sided operations: the feature `one-sided`. Code behind this constant is not linked otherwise. The
/// module for BTLs always has them.
pub(crate) const ENABLED: bool = cfg!(feature = "one-sided");

mod answer;
mod arrival;
mod device;
mod direct;
mod engine;
mod errors;
mod frames;
mod handle;
mod initiator;
mod operation;
mod own;
mod registry;
mod routes;
mod target;

pub(crate) use self::device::device_owns;
pub(crate) use self::engine::Rma;
pub use self::engine::{Config, Counters};
pub use self::errors::{BeginError, Denied, Failure};
pub use self::handle::{HANDLE_BYTES, REG_HANDLE_MAX, RemoteMemory};
pub use self::operation::{Finished, Operation, Transfer};
pub use self::registry::{DeregisterError, Registration};
pub(crate) use self::routes::{Route, Routes};
pub use crate::rail::access::Access;
pub use crate::rail::atomics::{Atomic, AtomicFlags, AtomicOp, AtomicSupport, EMULATED};
