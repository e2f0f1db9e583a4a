//! Threads and async: four ways, from the cheapest to the most convenient.
//!
//! | way | for | cost on the message path |
//! |---|---|---|
//! | one thread ([`Single`](crate::Single), the default) | one rank, one thread | none |
//! | [contexts](crate::Builder::contexts) | threads with an address of their own each | none: nothing is shared |
//! | [`Multiple`](crate::Multiple) | several threads that use the same address | one lock, never held while waiting |
//! | a [progress thread](crate::Builder::progress_thread) | progress while the program computes | one lock |
//!
//! # One thread
//!
//! A [`World`](crate::World) stays in the thread that made it; the compiler refuses anything else. Operations make progress
//! only while the thread is in a call of the library. A rank that computes for long does not answer its peers meanwhile,
//! except over udp, where there is a progress thread by default. [`World::progress`](crate::World::progress) makes progress
//! and does nothing else.
//!
//! # Contexts: an address for each thread
//!
//! A context is an address (rank, index) with an engine and transports of its own. Contexts share nothing on the path of a
//! message, so no lock is taken.
//!
//! ```
//! use towline::{Address, Any, Builder};
//!
//! let contexts = Builder::new().contexts(3)?; // all ranks ask for the same number
//! std::thread::scope(|threads| {
//!     for context in contexts {
//!         threads.spawn(move || {
//!             let world = context.enter(); // the contexts of this index, one of each rank
//!             let all_contexts = world.all_contexts(); // all contexts of all ranks
//!             let mine = world.address();
//!             let next = Address { rank: mine.rank, index: (mine.index + 1) % 3 };
//!             all_contexts.send(all_contexts.rank_of(next)?, 7, b"hello")?;
//!             let mut into = [0u8; 5];
//!             all_contexts.recv(Any, 7, &mut into)?;
//!             assert_eq!(&into, b"hello");
//!             Ok::<(), towline::Error>(())
//!         });
//!     }
//! });
//! # Ok::<(), towline::SetupError>(())
//! ```
//!
//! # Many threads on one world
//!
//! [`Multiple`](crate::Multiple) is `MPI_THREAD_MULTIPLE`. The level that you ask for is the level that you get. The engine
//! is behind a lock, and no thread holds the lock while it waits. Of the threads that wait, one polls or sleeps for all; each
//! of the others sleeps until its own operation is complete. As in MPI, only one thread at a time may call collective
//! operations on a communicator, or make communicators from it.
//!
//! ```
//! use towline::{Builder, Multiple};
//!
//! let world = Builder::new().threads(Multiple).build()?;
//! std::thread::scope(|threads| {
//!     for tag in 0..4u32 {
//!         let world = &world;
//!         threads.spawn(move || {
//!             world.send(world.rank(), tag, &tag).unwrap();
//!             let mut word = 0u32;
//!             world.recv(world.rank(), tag, &mut word).unwrap();
//!             assert_eq!(word, tag);
//!         });
//!     }
//! });
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A progress thread
//!
//! A progress thread sleeps until a frame arrives. It then handles and answers frames, and completes operations while the
//! program computes. While other threads are in calls of the library, it leaves the engine to them. Each operation completes
//! once.
//!
//! A progress thread runs by default where udp is used: udp loses frames, which must be sent again, and silent hosts are
//! noticed by heartbeats. Over other transports, ask for it: [`Builder::progress_thread`](crate::Builder::progress_thread) or
//! `TOWLINE_PROGRESS_THREAD=always`. All ranks need the same setting.
//!
//! ```
//! let world = towline::Builder::new().progress_thread(true).build()?;
//! let (sending, receiving) = (world.isend(world.rank(), 1, vec![7u8; 100_000])?, world.irecv(world.rank(), 1, vec![0u8; 100_000])?);
//! // Both complete without a further call of the library.
//! assert_eq!(receiving.wait()?.0, sending.wait()?);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Async
//!
//! [`isend`](crate::Communicator::isend) and [`irecv`](crate::Communicator::irecv) return futures.
//! [`World::block_on`](crate::World::block_on) runs a future, makes progress for all operations of its context meanwhile, and
//! sleeps when there is nothing to do. The futures can also be awaited in any other executor. Their wakers are called when
//! the operation completes, so some thread must make progress, for example a progress thread.
//!
//! ```
//! let world = towline::init()?;
//! let myself = world.rank();
//! let text = world.block_on(async {
//!     let sending = world.isend(myself, 1, "over there".to_string())?;
//!     let (buffer, status) = world.irecv(myself, 1, vec![0u8; 100])?.await?;
//!     sending.await?;
//!     Ok::<_, towline::Error>(buffer[..status.count::<u8>()].to_vec())
//! })?;
//! assert_eq!(text, b"over there");
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A future may be dropped at any time. A dropped send continues, and keeps its buffer until the message has left. A dropped
//! receive is cancelled; if a message has matched it already, that message is received into the buffer and discarded.
//!
//! # How a thread waits
//!
//! A waiting thread first polls (`TOWLINE_SPIN_US`), then yields the processor after each poll (`TOWLINE_YIELD_US`), then
//! sleeps until a transport wakes it. Where ranks have to share processors, a waiting thread skips the first phase. The ranks of a
//! host compare their affinity masks at the start, so ranks that are bound to a processor each do not count as sharing.
//!
//! If other programs use the same processors, a yield gives them a time slice of some milliseconds. A thread notices that by the
//! time that a yield takes, and sleeps instead of yielding for a while, from 0.1 s up to 6.4 s. It gets the processor back as soon as it
//! is woken.
