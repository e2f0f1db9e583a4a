//! One-sided operations: memory that peers may read, write and change without anybody there receiving anything.
//!
//! Memory is registered with rights ([`Access`]), which yields a handle for its owner ([`Registration`]) and one for peers
//! ([`RemoteMemory`]), to be sent to them in whatever way. With that they put, get, and use atomics on words.
//!
//! # Emulation
//! Rails that only send have all of it by active messages (`MCA_BTL_FLAGS_PUT_AM`, `GET_AM`, `ATOMIC_AM_FOP`): the initiator
//! sends requests, the target does them when it makes progress, and answers each. So completion at the initiator means done at
//! the target (CONTRACTS B44), and atomics, done by the target's processor, are consistent with its own (`GLOB`).
//!
//! A long put or get is split into as many requests as the rail's frames want. A target keeps in mind a fixed number of
//! requests for each peer, the *window*, which every [`RemoteMemory`] tells; an initiator has no more unanswered. So there is
//! always a slot for an answer, and who has none to spare is one that breaks the rules: its requests are dropped and counted.
//! Answers that find no room on the rail wait in their slots, and requests that find none wait with their operation: whatever
//! is full, frames are taken in, so nobody waits for one who waits for them.
//!
//! # Rails that do it themselves
//! Where a rail has operations of its own ([`native`](crate::rail::native)), memory is registered with it, too, and whatever it can do
//! goes that way; the rest is emulated. A window's atomics have one mechanism: the device's where these do not agree with the
//! processor's, and then all of them, so that none is a wrong answer; what the device lacks is done by its compare and swap.
//!
//! # Loans
//! Where the rail [exposes memory](crate::rail::SingleCopy::expose), as shared memory does by way of the kernel, requests and answers bring a loan in the
//! place of long data, and the other side fetches the bytes from where they lie: the target those of a put, once it has checked
//! rights and bounds, and the initiator those of a get. What cannot be fetched is asked for once more, in frames. Memory that peers
//! were lent is recalled when it is deregistered, so what they fetch later is void, and the get is denied.
//!
//! Nothing is trusted: slot, generation, rights and bounds are checked by the target for each request, and an initiator takes
//! no byte beyond what it asked for.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::btl::endpoint::Proc;
//! use towline_core::btl::module::{Btl, Config, Terms};
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
//! // SAFETY: the words are left alone until the memory is deregistered.
//! let window = unsafe { btl.register_mem(None, words.as_mut_ptr().cast(), 16, Access::ANY) }.unwrap();
//! let remote = btl.remote_memory(window).unwrap(); // its bytes go to those who are to use it
//! let data = 40u64.to_ne_bytes();
//! // SAFETY: the data stays until the put is flushed.
//! unsafe { btl.put(myself, Span::of(&data), &remote, 0, Terms::NONE) }.unwrap();
//! let add = Atomic::Op(AtomicOp::Add, 2);
//! btl.atomic(myself, add, AtomicFlags::empty(), &remote, 8, Terms::NONE).unwrap();
//! while !btl.flush(Some(myself)) {
//!     btl.progress(Instant::ZERO);
//! }
//! btl.deregister_mem(window).unwrap();
//! assert_eq!(words, [40, 7]);
//! ```

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
mod registry;
mod target;
mod ways;

pub(crate) use self::device::device_owns;
pub(crate) use self::engine::Rma;
pub use self::engine::{Config, Counters};
pub use self::errors::{BeginError, Denied, Failure};
pub use self::handle::{HANDLE_BYTES, REG_HANDLE_MAX, RemoteMemory};
pub use self::operation::{Finished, Operation, Transfer};
pub use self::registry::{DeregisterError, Registration};
pub(crate) use self::ways::{Way, Ways};
pub use crate::rail::access::Access;
pub use crate::rail::atomics::{Atomic, AtomicFlags, AtomicOp, AtomicSupport, EMULATED};
