//! One-sided operations: read and change the memory of another rank without a receive there.
//!
//! In a [`Window`](crate::Window), each rank of a communicator has a part: memory that all ranks can access. All ranks make
//! the window together, with [`Communicator::window`](crate::Communicator::window). Its memory is zeroed.
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
//! | to do | use | complete |
//! |---|---|---|
//! | write remote memory | [`put`](crate::Window::put) | after the next flush |
//! | change remote words | [`accumulate`](crate::Window::accumulate) | after the next flush |
//! | read remote memory | [`get`](crate::Window::get) | when the call returns |
//! | change a remote word and get the old one | [`fetch_and_op`](crate::Window::fetch_and_op), [`compare_and_swap`](crate::Window::compare_and_swap) | when the call returns |
//! | read and write this rank's own part | [`read`](crate::Window::read), [`write`](crate::Window::write) | when the call returns |
//!
//! *Complete* means done at the target: any later read there sees the effect.
//!
//! # Windows over memory of the program
//!
//! [`window_scope`](crate::Communicator::window_scope) makes a window over borrowed memory for the run of a closure, and
//! [`window_over`](crate::Communicator::window_over) one that owns a buffer. Processes of other ranks cannot map such memory, so
//! the target always does the work.
//!
//! ```
//! use towline::Access;
//!
//! let world = towline::init()?;
//! let mut mine = [0u32; 4];
//! world.window_scope(&mut mine, Access::ANY, |window| {
//!     window.put((world.rank() + 1) % world.size(), 8, &[7u32])
//! })?; // ends when all operations of all ranks are complete
//! assert_eq!(mine, [0, 0, 7, 0]);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order
//!
//! Operations of one rank may overtake each other until a [`flush`](crate::Window::flush). Atomics are atomic with respect to
//! each other, whichever rank begins them. If one rank gets bytes while another one puts to them, the result is any mixture
//! of old and new bytes.
//!
//! # Which rank does the work
//!
//! | the target is | put and get are done by | the target has to make progress |
//! |---|---|---|
//! | a rank that sm connects (same host) | the initiator, which maps the target's part | no |
//! | a rank that only tcp or udp reaches | the target, which receives requests as active messages | yes: in a blocking call, or by a progress thread |
//! | a rank whose part lies in the memory of its DPU (transport `dpu`) | the DPUs | no |
//! | a rank that verbs reaches | the target, as over tcp; the device, if `TOWLINE_VERBS_WINDOWS=true` | yes; no for the device |
//!
//! The initiator does not map a window where the system forbids it: between process namespaces, without a free file
//! descriptor, or where the system accounts memory strictly (`vm.overcommit_memory` is 2). `TOWLINE_SM_WINDOWS=false`
//! switches mapping off. A window with fewer rights may not be mappable either. In all these cases operations use active
//! messages. Over sm, long data is not in these messages: the side that needs the data reads it through the kernel from the
//! memory of the other side.
//!
//! Atomics on windows are done by a processor, either the initiator's or the target's, or all of them by the target's DPU, so they are
//! atomic with respect to each other. (In the core's BTL interface for other runtimes, a verbs device does 64-bit atomics itself.)
//!
//! If a device puts to a window, or gets from it, after the target has dropped the window, the connection ends. That is why
//! devices are used for windows only if `TOWLINE_VERBS_WINDOWS` asks for it.
//!
//! # Windows in the memory of DPUs
//!
//! In a job over [`dpu`](super::transports), memory of [`window`](crate::Communicator::window) and
//! [`window_with`](crate::Communicator::window_with) is taken from the memory of the rank's DPU. The DPUs do all puts, gets and atomics on
//! it, and the rank need not be in a call. The rank itself also uses its DPU, except for [`read`](crate::Window::read) and
//! [`write`](crate::Window::write), so atomics of all ranks agree. [`is_on_dpu`](crate::Window::is_on_dpu) tells how a part is
//! served, and all ranks agree on that when the window is made:
//!
//! - A part is served by DPUs if it has a byte and a right, and fits: windows and device buffers of a rank may have a quarter of its DPU's
//!   memory. Other parts of the same window are served as in the table above.
//! - DPUs serve no part of a window if the DPU of one of its ranks cannot be used: its firmware has no one-sided operations, or has failed,
//!   its memory is full, or the rank's `TOWLINE_DPU_ONE_SIDED` is false. Then all parts lie in ordinary memory.
//! - DPUs serve no memory of the program.
//! - Each rank keeps 64 bytes of its DPU's memory for each part that DPUs serve.
//!
//! The example `mailbox` has ranks that only look at words of their window. If a DPU fails, operations on the part of its rank, and those
//! of its rank, end with [`Error::DeviceFailed`](crate::Error::DeviceFailed), which [`flush`](crate::Window::flush) reports for puts
//! and accumulates. The rank's own part cannot be read any more. Parts of other ranks stay usable by other ranks. Windows that are made
//! afterwards use the other transports.
//!
//! # A target that computes
//!
//! A target that only computes does not serve active messages. Give it a [progress thread](crate::Builder::progress_thread).
//!
//! # Wrong arguments
//!
//! An operation that reaches beyond the rank's part ends with [`Error::OutOfWindow`](crate::Error::OutOfWindow), an atomic one at
//! an offset that is not a multiple of its word with [`Error::Unaligned`](crate::Error::Unaligned), and one that words of the
//! type do not have with [`Error::NoSuchOperation`](crate::Error::NoSuchOperation). Each has the offset, the lengths or the names.
//!
//! # Rights
//!
//! [`window_with`](crate::Communicator::window_with) gives other ranks fewer rights on this rank's part. An operation without
//! the right ends with [`Error::Refused`](crate::Error::Refused); for a put, the next flush reports this. A part with all
//! rights can be mapped by processes of the same user on this host: see [security](super::security).
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
//! Operations on a rank that dies end with [`Error::PeerFailed`](crate::Error::PeerFailed). If a link breaks and another link
//! to the rank is left, operations go on over that link, and each is done once. The exception: an operation that a *device*
//! had begun when its link broke fails, since it is unknown whether it was done. After `rejoin`, the new process has no part
//! in a window that was made before: drop the window and make a new one.
