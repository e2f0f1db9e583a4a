//! Operations on memory that the caller keeps valid: the base of language bindings, such as the C interface.
//!
//! The other operations of this crate borrow or own their memory, so that safe code cannot change it too early. A binding for
//! another language gets addresses, and hands out numbers for its requests. For such callers, [`isend_raw`] and [`irecv_raw`] take
//! memory without its owner, and return a [`RawRequest`]: a number, which any call may be given, and which is refused if it stands
//! for nothing.
//!
//! A runtime with many requests does not ask each of them whether it is complete. It gives each operation a word of its own
//! ([`isend_queued`], [`irecv_queued`]), and takes the words of those that have ended from a queue: [`poll_queue`].
//!
//! Blocking operations need no such variants: [`View::contiguous`](crate::View::contiguous) and
//! [`ViewMut::contiguous`](crate::ViewMut::contiguous) make views of addresses.
//!
//! ```
//! use towline::raw::Mode;
//! use towline::{View, ViewMut};
//!
//! let world = towline::init()?;
//! let (data, mut into) = ([1u8, 2, 3], [0u8; 8]);
//! // SAFETY: both buffers stay, and nothing else uses them, until the requests are complete.
//! let receive = unsafe {
//!     let receive = world.irecv_raw(0, 7, ViewMut::contiguous(into.as_mut_ptr(), into.len()))?;
//!     let send = world.isend_raw(0, 7, Mode::Standard, View::contiguous(data.as_ptr(), data.len()))?;
//!     send.map(|send| world.wait_raw(send)).transpose()?;
//!     receive
//! };
//! let number = receive.to_bits(); // to be kept by foreign code
//! let status = world.wait_raw(towline::raw::RawRequest::from_bits(number))?;
//! assert_eq!((status.bytes, &into[..3]), (3, &data[..]));
//! assert_eq!(world.wait_raw(receive), Err(towline::Error::NoRequest)); // its outcome was taken
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | other functions for foreign code | |
//! |---|---|
//! | sleep in an event loop of the program's own | [`wait_fd_raw`](crate::Communicator::wait_fd_raw), [`arm_raw`](crate::Communicator::arm_raw) |
//! | counters by name | [`counters_raw`](crate::Communicator::counters_raw) |
//! | a window over memory of the caller | [`window_raw`](crate::Communicator::window_raw) |
//! | collective calls without room for their result | [`refuse_comm_raw`](crate::Communicator::refuse_comm_raw), [`refuse_window_raw`](crate::Communicator::refuse_window_raw) |
//!
//! [`isend_raw`]: crate::Communicator::isend_raw
//! [`irecv_raw`]: crate::Communicator::irecv_raw
//! [`isend_queued`]: crate::Communicator::isend_queued
//! [`irecv_queued`]: crate::Communicator::irecv_queued
//! [`poll_queue`]: crate::Communicator::poll_queue

pub(crate) mod completion;
pub(crate) mod counters;
pub(crate) mod message;
pub(crate) mod request;
pub(crate) mod wait;

pub use completion::{Completion, Polled};
pub use counters::Counter;
pub use message::RawMessage;
pub use request::RawRequest;
pub use towline_core::convertor::Accelerator;
pub use towline_core::mtl::Mode;
