//! Link Towline into your runtime: an MPI library, a task runtime, a language binding. In Rust or C.
//!
//! # Who starts the processes?
//!
//! | your runtime | use | C |
//! |---|---|---|
//! | has no launcher | `towline run`, and [`towline::init`](crate::init) | `towline_init` |
//! | has a launcher and an exchange of its own | a [`Worker`](crate::Worker) by [`Builder::open`](crate::Builder::open): it starts alone, and you carry cards | `towline_worker_open` |
//! | does its own matching, and needs only transports | [modules](crate::btl) by [`Builder::open_btl`](crate::Builder::open_btl) | `towline_btl_open` |
//!
//! # A worker, step by step
//!
//! 1. **Place.** Each process gets a number that no other running process of the job has: its rank, for example. All processes share
//!    a job number and a key. [`Place::from_secret`](crate::Place::from_secret) makes both from a secret that they share.
//! 2. **Open.** [`Builder::open`](crate::Builder::open) opens the transports, contacts nobody, and does not wait.
//! 3. **Exchange.** [`Worker::card`](crate::Worker::card) is some hundred bytes. Bring it to the others, by whatever your runtime
//!    has, and add theirs with [`Worker::add_peer`](crate::Worker::add_peer). Peers may come and go later, as with
//!    `MPI_Comm_spawn`.
//! 4. **Communicators.** [`Worker::communicator`](crate::Worker::communicator) makes one of any peers, without a message. All
//!    members give the same id. Messages that arrive before a member has made it are kept.
//! 5. **Messages.** The operations of a [`Communicator`](crate::Communicator); tags above 2^31 are yours in such communicators, and
//!    a receive of any tag does not match them.
//! 6. **The end.** [`Worker::finish`](crate::Worker::finish) delivers what was sent. It waits for no other process: a runtime has a
//!    barrier of its own at its end.
//!
//! A process that is killed leaves files in shared memory, until a program of the same user opens shared memory over Towline on that
//! host. If your runtime has a daemon there, give the place a [`CleanUp`](crate::CleanUp), which names the files to it.
//!
//! The page of [`Worker`](crate::Worker) has a complete example.
//!
//! # Many operations in progress
//!
//! A runtime does not ask each request whether it is complete. [`raw`](crate::raw) has operations on memory that you keep valid
//! ([`isend_queued`](crate::Communicator::isend_queued), [`irecv_queued`](crate::Communicator::irecv_queued)); each gets a word, such
//! as the address of your request. [`poll_queue`](crate::Communicator::poll_queue) makes progress, and passes on the words of the
//! operations that have ended, with their outcomes. It also returns how many events there were: a runtime that gives its processor away
//! while nothing happens keeps it if there were any.
//!
//! In C:
//!
//! ```c
//! towline_completion_t ended[16];
//! size_t count;
//! uint32_t events;
//! towline_irecv_queued(comm, buffer, bytes, TOWLINE_BYTES, source, tag, (uint64_t)(uintptr_t)my_request);
//! ...
//! towline_poll_queue(context, ended, 16, &count, &events); /* in your progress function */
//! for (size_t i = 0; i < count; i++)
//!     my_request_is_done((void *)(uintptr_t)ended[i].user, &ended[i].status);
//! ```
//!
//! `adapters/openmpi/mtl` of the repository is such a runtime's side in some hundred lines: the MTL of Open MPI.
//!
//! # The C interface
//!
//! `adapters/c/include/towline.h` is its reference, and `adapters/c/README.md` says how to install it, with a pkg-config file.
//! Handles are small structures that are passed by value. A stale handle is refused and never crashes. Each function returns a code,
//! and `towline_error_text` says what happened, whose fault it is, and what to do.
//!
//! # Threads
//!
//! A worker or world is of one thread, or of [several](crate::Multiple): see [threads](super::threads). In C, the four levels of
//! MPI are the first argument of `towline_worker_open` and `towline_init`.
