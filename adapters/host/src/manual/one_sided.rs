//! One-sided operations: read and change the memory of another rank without a receive there.
//!
//! A [`Window`](crate::Window) is memory of each rank of a communicator that all of them reach. All ranks make it together with
//! [`Communicator::window`](crate::Communicator::window), and it begins as zeros.
//!
//! ```
//! use towline::AtomicOp;
//!
//! let world = towline::init()?;
//! let window = world.window(64)?; // 64 bytes of each rank
//! let next = (world.rank() + 1) % world.size();
//!
//! window.put(next, 8, &[1.5f64, 2.5])?; // to bytes 8 to 24 of the next rank's part
//! window.accumulate(next, 0, AtomicOp::Add, &[1u64])?;
//! window.flush_all()?; // done at the targets
//! world.barrier()?; // all ranks have done so
//!
//! let mut mine = [0f64; 2];
//! window.read(8, &mut mine)?; // this rank's own part
//! assert_eq!(mine, [1.5, 2.5]);
//! assert_eq!(window.fetch_and_op(next, 0, AtomicOp::Add, 0u64)?, 1);
//! window.close()?;
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use | it is complete |
//! |---|---|---|
//! | write there | [`put`](crate::Window::put) | with the next flush |
//! | change words there | [`accumulate`](crate::Window::accumulate) | with the next flush |
//! | read there | [`get`](crate::Window::get) | when the call returns |
//! | change a word and learn the old one | [`fetch_and_op`](crate::Window::fetch_and_op), [`compare_and_swap`](crate::Window::compare_and_swap) | when the call returns |
//! | read and write this rank's own part | [`read`](crate::Window::read), [`write`](crate::Window::write) | when the call returns |
//!
//! *Complete* means done at the target: a rank that looks there afterwards finds it.
//!
//! # Order
//!
//! Operations of one rank may overtake each other until a [`flush`](crate::Window::flush). Atomics are atomic with respect to
//! each other, whichever rank begins them. Bytes that one rank puts while another one gets them come in any mixture of old and
//! new.
//!
//! # Who does the work
//!
//! | the target is | put and get are done by | the target has to make progress |
//! |---|---|---|
//! | a rank that sm connects (same host) | the initiator, which maps the target's part | no |
//! | a rank that only tcp or udp reaches | the target, which takes requests in active messages | yes: in a blocking call, or by a progress thread |
//! | a rank that verbs reaches | the target, as over tcp; the device, if `TOWLINE_VERBS_WINDOWS=true` | yes; no for the device |
//!
//! The initiator does not map a window where the system forbids it: in another process namespace, without a free file
//! descriptor, or where memory is accounted strictly. `TOWLINE_SM_WINDOWS=false` switches mapping off. Then, and for windows
//! with fewer rights that cannot be mapped, operations go by active messages; over sm, long data does not travel in them, as
//! the side that needs it reads it through the kernel from where it lies.
//!
//! Atomics are always the processor's own, at whichever side, so they agree with each other. The core has a face for other
//! consumers (`Btl`) in which a verbs device does 64-bit atomics itself.
//!
//! A device that puts or gets on a window ends the connection if the target has dropped the window meanwhile. That is why
//! devices are used for windows only when asked for.
//!
//! A target that computes all the time serves nobody by active messages. Give it a [progress
//! thread](crate::Builder::progress_thread).
//!
//! # Rights
//!
//! [`window_with`](crate::Communicator::window_with) gives other ranks fewer rights on this rank's part. An operation without
//! the right ends with [`Error::Refused`](crate::Error::Refused), at the flush for a put. A part with all rights can be mapped
//! by processes of the same user on this host: see [security](super::security).
//!
//! ```
//! use towline::{Access, Denied, Error};
//!
//! let world = towline::init()?;
//! let window = world.window_with(16, Access::REMOTE_READ)?;
//! let myself = world.rank();
//! window.get(myself, 0, &mut [0u8; 16])?;
//! window.put(myself, 0, &[1u8; 16])?;
//! assert_eq!(window.flush(myself), Err(Error::Refused { rank: myself, why: Denied::NoRight }));
//! # drop(window);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Faults
//!
//! Operations on a rank that dies end with [`Error::PeerFailed`](crate::Error::PeerFailed). Operations survive the death of a link
//! if another link to the rank is left, and each is done once; an operation that a *device* had begun when its link broke ends as
//! failed, since it is unknown whether it was done. After `rejoin` a window that was made before has no part of the new process:
//! drop it and make a new one.
