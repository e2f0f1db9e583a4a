//! The BTL face: the transports of a process for a runtime that does its own matching, such as Open MPI with its PML `ob1`.
//!
//! [`Builder::open_btl`](crate::Builder::open_btl) opens one [`Module`] for each rail. A module has no matching, no communicators and
//! no requests: it has peers, descriptors, active messages, and one-sided operations, with the contract of Open MPI's `btl.h`. The
//! module itself is [`Btl`], of the crate `towline-core`: its documentation says what each operation does.
//!
//! A link that is cut ends the module's connection to that peer. With [`Config::bundle`](crate::Config::bundle) all links of a
//! transport are one rail, and their module goes on while one of them works.
//!
//! The runtime carries [cards](Directory::card) between processes by its own means, as for [workers](crate::Worker). There is one card
//! for each module.
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! use towline::btl::{Btl, Consumer, DescriptorFlags, NO_ORDER, Received, tags};
//! use towline::{AnyRail, Builder, JobKey, Place};
//!
//! #[derive(Debug)]
//! struct Count(AtomicUsize);
//! impl Consumer<AnyRail> for Count {
//!     fn receive(&self, _: &mut Btl<'_>, received: &Received<'_>) {
//!         self.0.fetch_add(received.data().len(), Ordering::Relaxed);
//!     }
//! }
//! static BYTES: Count = Count(AtomicUsize::new(0));
//!
//! // Two processes of a runtime, here in one thread.
//! let open = |number| {
//!     let place = Place::new(0x1234, JobKey::new([7; 32]), number);
//!     Ok::<_, towline::SetupError>(Builder::new().transports("tcp").open_btl(place)?.remove(0))
//! };
//! let ((mut zero, mut to_one), (mut one, mut to_zero)) = (open(0)?, open(1)?);
//! let (there, _) = zero.with(|btl| to_one.add(btl, &to_zero.card()))?;
//! one.with(|btl| to_zero.add(btl, &to_one.card()))?;
//!
//! one.with(|btl| btl.register(tags::USR, &BYTES))?;
//! zero.with(|btl| {
//!     let descriptor = btl.alloc(there, NO_ORDER, 5, DescriptorFlags::BTL_OWNERSHIP)?;
//!     btl.memory(descriptor)?.copy_from_slice(b"hello");
//!     btl.send(there, descriptor, tags::USR)?;
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! while BYTES.0.load(Ordering::Relaxed) < 5 {
//!     zero.progress();
//!     one.progress();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod directory;
mod module;
mod open;

pub use crate::forks::owned::Process;
pub use directory::{AddError, Directory};
pub use module::{Btl, Module};
pub use towline_core::btl::active::{Received, RegisterError};
pub use towline_core::btl::descriptor::{
    Descriptor, DescriptorError, DescriptorFlags, MAX_SEGMENTS, NO_ORDER, Properties, REG_HANDLE_MAX, Segment,
};
pub use towline_core::btl::endpoint::EndpointId;
pub use towline_core::btl::errors::{AllocError, Failure, ImmediateError, SendError};
pub use towline_core::btl::module::{
    Callback, Completed, Completion, Consumer, Counters, ErrorFlags, ErrorHandler, Immediate, Outcome,
    RegisterMemoryError, RmaCallback, RmaCompleted, RmaCompletion, RmaParams,
};
pub use towline_core::convertor::Span;
pub use towline_core::rail::native::Reach;
pub use towline_core::rail::{Attributes, tags};
pub use towline_core::rma::{
    Access, Atomic, AtomicFlags, AtomicOp, AtomicSupport, BeginError, Denied, DeregisterError, Failure as RmaFailure,
    Registration, RemoteMemory, Transfer,
};
