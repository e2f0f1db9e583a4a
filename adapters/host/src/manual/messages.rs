//! Messages and matching: which receive gets which message, and when a buffer is free again.
//!
//! # Matching
//!
//! A message has a source, a tag and a communicator. A receive names a source or [`Any`](crate::Any), and a tag or `Any`. It
//! matches the first message in its communicator that fits. The rules are those of MPI:
//!
//! - Messages from one rank to another that match one receive are received in the order in which they were sent.
//! - Of several posted receives that match a message, the one that was posted first gets it.
//! - Messages in one communicator never match receives in another.
//!
//! Programs may use tags up to [`TAG_MAX`](crate::TAG_MAX). Larger tags are reserved for the library. Matching without
//! wildcards takes the same time however many receives are posted and however many messages wait.
//!
//! ```
//! use towline::Any;
//!
//! let world = towline::init()?;
//! let myself = world.rank();
//! world.send(myself, 1, b"first")?;
//! world.send(myself, 2, b"second")?;
//!
//! let mut into = [0u8; 16];
//! let status = world.recv(myself, 2, &mut into)?; // by tag
//! assert_eq!(&into[..status.count::<u8>()], b"second");
//! let status = world.recv(Any, Any, &mut into)?; // whatever is next
//! assert_eq!((status.source, status.tag, status.bytes), (myself, 1, 5));
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! Data travels as bytes. Any plain data in the sense of the crate `zerocopy` can be sent: integers, floating-point numbers,
//! arrays and slices of them, and structures that derive its traits. The crate is re-exported as
//! [`towline::zerocopy`](crate::zerocopy), where an example derives them. Sender and receiver need not use the same type. Byte
//! order is not converted. The ranks of a job may have different byte orders; the program must then convert its data itself.
//!
//! # Four ways to send and receive
//!
//! | way | buffer | calls |
//! |---|---|---|
//! | blocking | borrowed for the call | [`send`](crate::Communicator::send), [`recv`](crate::Communicator::recv), [`sendrecv`](crate::Communicator::sendrecv), [`recv_vec`](crate::Communicator::recv_vec) |
//! | scoped | borrowed until the scope ends | [`scope`](crate::Communicator::scope) with [`isend`](crate::Scope::isend) and [`irecv`](crate::Scope::irecv) |
//! | owned | moved in, and returned at the end | [`isend`](crate::Communicator::isend), [`irecv`](crate::Communicator::irecv) |
//! | `async` | the same | `.await` on what `isend` and `irecv` return; see [threads and async](super::threads) |
//!
//! Safe code cannot change or free memory that is in use. Blocking and scoped operations allocate nothing.
//!
//! ```
//! let world = towline::init()?;
//! let (rank, size) = (world.rank(), world.size());
//! let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
//!
//! // Scoped: both receives are posted before anything is sent, so no rank waits for another in a circle.
//! let (mine, mut from_left, mut from_right) = ([rank; 1000], [0; 1000], [0; 1000]);
//! world.scope(|s| {
//!     s.irecv(left, 0, &mut from_left)?;
//!     s.irecv(right, 1, &mut from_right)?;
//!     s.isend(right, 0, &mine)?;
//!     s.isend(left, 1, &mine)?;
//!     Ok::<(), towline::Error>(())
//! })?;
//! assert_eq!((from_left[0], from_right[999]), (left, right));
//!
//! // Owned: the buffers come back.
//! let sending = world.isend(right, 2, vec![rank; 10])?;
//! let (numbers, status) = world.irecv(left, 2, vec![0u32; 20])?.wait()?;
//! assert_eq!((status.count::<u32>(), numbers[0]), (10, left));
//! sending.wait()?;
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Waiting for one of several
//!
//! [`wait_any`](crate::Communicator::wait_any) waits for one of several operations, [`wait_some`](crate::Communicator::wait_some)
//! for at least one, [`wait_all`](crate::Communicator::wait_all) for all of them; [`test_any`](crate::Communicator::test_any) does
//! not wait. They sleep when nothing comes, as every blocking call does. An operation that is started many times with the same
//! buffer can be prepared once: [`send_init`](crate::Communicator::send_init), [`recv_init`](crate::Communicator::recv_init). It
//! stays in the slice after its `wait`, and is skipped until it is started again. Each call looks at all operations of the slice, so
//! with thousands of them `wait_some` takes less time than `wait_any`.
//!
//! ```
//! let world = towline::init()?;
//! let myself = world.rank();
//! let mut receives: Vec<_> = (0..4).map(|tag| world.irecv(myself, tag, [0u32])).collect::<Result<_, _>>()?;
//! for tag in [2, 0, 3, 1] {
//!     world.send(myself, tag, &(10 * tag))?;
//! }
//! while let Some(index) = world.wait_any(&mut receives) {
//!     let (number, status) = receives.swap_remove(index).wait()?; // does not wait
//!     assert_eq!(number, [10 * status.tag]);
//! }
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When an operation is complete
//!
//! | operation | is complete when |
//! |---|---|
//! | `send`, `isend` (standard mode) | the buffer may be reused. A short message may still be on its way; a long one has been received |
//! | `ssend`, `issend` (synchronous mode) | a receive has matched the message |
//! | `recv`, `irecv` | the message is in the buffer |
//!
//! If a message is longer than the receive's buffer, the part that fits is delivered, and the receive ends with
//! [`Error::Truncated`](crate::Error::Truncated). A receive that has not matched can be
//! [cancelled](crate::RecvRequest::cancel). A send can be [cancelled](crate::SendRequest::cancel)
//! as long as it is held back. Buffered, ready and complete sends exist in the core only (`towline_core::mtl`).
//!
//! # Look before you receive
//!
//! [`probe`](crate::Communicator::probe) waits for a message and returns its source, tag and length. The message stays in the
//! queue. [`mprobe`](crate::Communicator::mprobe) takes the message out of the queue, so that no other receive gets it.
//! Programs with several receiving threads need that.
//!
//! ```
//! let world = towline::init()?;
//! world.send(world.rank(), 7, b"how long?")?;
//! let message = world.mprobe(towline::Any, towline::Any)?;
//! let mut into = vec![0u8; message.envelope().bytes as usize];
//! message.recv(&mut into[..])?;
//! assert_eq!(into, b"how long?");
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Messages without a receive
//!
//! A message that comes before its receive is *unexpected*. Memory for such messages is bounded, and each peer has an equal
//! share of it as credit. A sender without credit keeps the message, and sends it when a receive asks for it. So a flood of
//! messages costs the receiver no more memory than the bound, and no correct program deadlocks, however low the bound is. The
//! bounds are the settings `TOWLINE_UNEXPECTED`, `TOWLINE_UNITS` and `TOWLINE_UNIT_BYTES`.
//!
//! # Communicators
//!
//! [`World`](crate::World) is a [`Communicator`](crate::Communicator) of all ranks. [`dup`](crate::Communicator::dup) and
//! [`split`](crate::Communicator::split) make further communicators, whose messages are separate from all others. All ranks
//! get the communicator, or all get an error. Operations of all ranks together are the subject of [their own
//! page](super::collectives).
//!
//! ```
//! let world = towline::init()?;
//! let halves = world.split(Some(world.rank() % 2), 0)?; // color, and key for the order
//! if let Some(half) = &halves {
//!     half.barrier()?;
//! }
//! let mut word = if world.rank() == 0 { 42u32 } else { 0 };
//! world.broadcast(0, &mut word)?;
//! assert_eq!(word, 42);
//! # drop(halves);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
