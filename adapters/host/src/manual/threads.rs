//! Threads and async: five ways, from the cheapest to the most convenient.
//!
//! | way | for | cost on the message path |
//! |---|---|---|
//! | one thread ([`Single`](crate::Single), the default) | one rank, one thread | none |
//! | [contexts](crate::Builder::contexts) | threads with an address of their own each | none: nothing is shared |
//! | [`Multiple`](crate::Multiple) | several threads that use the same address | one lock, never held while waiting |
//! | a [progress thread](crate::Builder::progress_thread) | progress while the program computes | one lock |
//! | [any executor](#async) | tasks that await operations beside other work | wake-ups of tasks |
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
//! [`isend`](crate::Communicator::isend) and [`irecv`](crate::Communicator::irecv) return futures, which complete in any executor,
//! without a setting.
//!
//! [`World::block_on`](crate::World::block_on) is the library's own executor, and the quickest. It runs a future, makes progress
//! for all operations of its context meanwhile, and sleeps when there is nothing to do.
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
//! Executors of other libraries (tokio, smol, pollster and others) do not know that someone must make progress. So a thread of the
//! library helps them: it sleeps until something comes, and wakes a task; the task polls its operation, and that makes progress.
//! The thread never uses the world itself, so worlds of one thread need no lock. The world of such tasks stays in one thread, as a
//! `LocalSet` of tokio keeps its tasks there; tasks that may change threads need [`Multiple`](crate::Multiple):
//!
//! ```
//! use std::sync::Arc;
//! use towline::{Builder, Multiple};
//!
//! let world = Arc::new(Builder::new().threads(Multiple).build()?);
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
//! runtime.block_on(async {
//!     let receiver = Arc::clone(&world);
//!     let task = tokio::spawn(async move { receiver.irecv(receiver.rank(), 1, [0u8; 5])?.await });
//!     world.isend(world.rank(), 1, b"hello".to_vec())?.await?;
//!     assert_eq!(&task.await??.0, b"hello");
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `tokio`, `World::attach_tokio` has a task of the runtime wait for the transports, by an `AsyncFd`. Then no
//! thread of the library is needed. The example `tokio` shows it.
//!
//! An operation takes longer in such an executor than in `block_on`: a message wakes the thread, and that wakes the executor. A
//! waker may be called in any thread that uses the world, in the progress thread, and in the thread that wakes tasks. The library
//! holds no lock meanwhile, so a waker may use the world.
//!
//! A future may be dropped at any time. A dropped send continues, and keeps its buffer until the message has left. A dropped
//! receive is cancelled; if a message has matched it already, that message is received into the buffer and discarded.
//!
//! Operations that outlive their world end with an error, a second after the end of the world at the latest, unless their message
//! was on the way.
//!
//! # The threads of the library
//!
//! | name | when it exists | what it does |
//! |---|---|---|
//! | `towline` | a progress thread was asked for, or udp is used; one for each context, until the end of its world | makes progress |
//! | `towline-reactor` | from the first time that a task of another executor awaits an operation; one for each context, as long as the world or its operations exist; none where there is a progress thread, or after `attach_tokio` | sleeps on the wait handles of the transports and on timers, and calls wakers |
//! | `towline-server` | in rank 0 of a job that no launcher serves | serves the ranks at set-up and at the end |
//!
//! All of them sleep while there is nothing to do. While a task waits, the reactor wakes it twice a second
//! (`TOWLINE_IDLE_SLEEP_MS`), and when a timer of a transport is due, so that it learns of lost ranks as a blocked thread does.
//! A rail of the program's own has no wait handle, so tasks poll it 5000 times a second while they wait.
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
