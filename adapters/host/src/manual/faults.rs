//! Faults: what happens when a process, a link or a host fails, and how soon it is noticed.
//!
//! No operation waits forever for a rank that has failed: it ends with an error that names the rank. In all cases below, no
//! message between two living ranks is lost.
//!
//! Each row is a test with real processes or sockets. Most of these tests are in `adapters/host/tests` (`death.rs`,
//! `network.rs`, `exhaustion.rs`, `stall.rs`), the others in the crates `towline-tcp` and `towline-bootstrap`. Times are
//! those that the tests printed, in an unoptimised build on two busy processors. "4.5 of 5 s" means 4.5 s where the setting
//! was 5 s.
//!
//! The launcher is `towline run`. Under [other launchers](super::launchers), ranks without a connection learn of an end only as far as
//! the launcher tells them.
//!
//! # What the program sees
//!
//! | error | means |
//! |---|---|
//! | [`Error::PeerFailed`](crate::Error::PeerFailed) | the rank has ended, or no path to it is left. [`why_lost`](crate::Communicator::why_lost) gives the reason |
//! | [`Error::PeerFinished`](crate::Error::PeerFinished) | the rank has finished, or has dropped its world: it receives nothing more, and sends nothing more. Messages that it had sent are received |
//! | [`Error::NoSharedMemory`](crate::Error::NoSharedMemory) | shared memory has no room for messages to or from the rank, and no other transport is in use |
//! | [`Error::Restarted`](crate::Error::Restarted) | the rank was started again after this communicator was made: make a new one |
//!
//! A receive or probe from [`Any`](crate::Any) source ends with `PeerFailed` once a rank of the communicator has died, until
//! the program calls [`acknowledge_failures`](crate::Communicator::acknowledge_failures). This is the rule of fault-tolerant
//! MPI (ULFM). Messages that have arrived before are still received. A long message of the dead rank may be lost, while a
//! later, shorter one is still received.
//!
//! ```
//! let world = towline::init()?;
//! assert!(world.lost().is_empty()); // ranks that were lost so far
//! assert_eq!(world.why_lost(0), None);
//! world.acknowledge_failures(); // wildcard receives go on without the lost ranks
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A process ends
//!
//! Messages that the rank had sent completely are received. All other operations with it end with `PeerFailed`. The other
//! ranks free the descriptors, mappings and registrations that they held for it. Ranks that do not communicate with it are
//! not disturbed. A rank that panics counts as killed.
//!
//! | case | noticed after |
//! |---|---|
//! | a rank is killed while others sleep in a receive, or poll | sm 0.06 to 0.2 s (`TOWLINE_SM_LIVENESS_MS`, 250); tcp 0 to 16 ms; udp 0.9 to 1.2 s: its closed port refuses the next heartbeat, and then a second one that confirms this |
//! | ... while others compute | with their next operation, at once; over udp the progress thread notices after 0.9 to 1.1 s |
//! | ... in the middle of an exchange of all ranks with all; sm, tcp with 1 and 3 links, udp with 1 and 2. Every byte that survivors exchange is compared | 0.01 to 1.4 s |
//! | ... and no connection to it was ever made; tcp and udp; also while a third rank is stopped | 2.7 to 3.1 s: ranks ask the launcher, idle ones more often |
//! | ... over verbs, with 1 and 2 links (Soft-RoCE) | 2.5 to 5.2 of 5 s (`TOWLINE_PEER_TIMEOUT_MS`): its device does not answer any more |
//! | a rank dies during a barrier, broadcast or split | as above; the call ends at all ranks, with `PeerFailed` at those that communicate with the dead rank in it |
//!
//! # A process leaves early
//!
//! A rank that drops its world without [`finish`](crate::World::finish), as `?` in `main` does, leaves the job early. This is no
//! failure; the exit status of the process decides whether the launcher counts one.
//!
//! | case | what happens | noticed after |
//! |---|---|---|
//! | a rank leaves while others wait for a message from it; sm, tcp, udp | What it had sent is received. Then receives from it end with `PeerFinished`, and the other ranks go on | connected ranks at once; others up to 0.65 s, as the launcher tells them |
//! | ... and a message that it has begun to send finds no receive | it waits half a second for the receive; then the message is lost | 0.5 to 0.65 s |
//! | a rank sends a long or synchronous message to a rank that has finished, or has left | the send ends with `PeerFinished`, which names the tag and the length | at once |
//! | a rank fails, and others fail because they lost it | the launcher names the first one as the cause, with its text, and the others in one line after it | it waits up to 2 s for the cause |
//!
//! These are the tests of `adapters/cli/tests/ends.rs`.
//!
//! # A process forks
//!
//! A world belongs to the process that made it. In a child that was forked, all its operations end with
//! [`Forked`](crate::Error::Forked), and dropping it does nothing: see [`World`](crate::World#forks).
//!
//! | case | what happens |
//! |---|---|
//! | a child uses the world, drops it, or panics with it; sm, tcp, udp, with one thread, several, and a progress thread | Each call ends with `Forked`. The parent and the other ranks notice nothing, also while messages are on the way |
//! | a child runs another program, at once or after a fork | it does not get descriptors or shared memory of the world |
//! | a rank is killed while a child of it goes on | the other ranks learn from the launcher that the rank has ended, since the child keeps its connections open |
//! | a child calls [`init`](crate::init) | it ends with `Forked` if its parent is a rank of a launcher's job; a launcher starts each rank itself |
//!
//! These are the tests of `adapters/cli/tests/forks.rs`.
//!
//! # A process is restarted
//!
//! `towline run --restart N` restarts a rank that was killed or failed. The other ranks accept its new process with
//! [`World::rejoin`](crate::World::rejoin); the new process waits for that.
//!
//! ```no_run
//! # fn work(world: &towline::World) -> Result<(), towline::Error> { world.barrier() }
//! use std::time::Duration;
//!
//! let world = towline::init()?; // in a restarted process: returns when the other ranks have accepted it
//! println!("incarnation {}", world.incarnation());
//! while let Err(towline::Error::PeerFailed { rank }) = work(&world) {
//!     world.rejoin(rank, Duration::from_secs(60))?;
//! }
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | case | what happens |
//! |---|---|
//! | a rank is killed in the middle of an exchange of all ranks with all, and restarted, twice; sm, tcp with 1 and 3 links, udp with 1 and 2 | Operations with the old process end with `PeerFailed`. After `rejoin` the new process exchanges messages with all ranks, over new connections and with new message numbers. No message of the old process is received any more. Barrier, broadcast, `dup` and `finish` work as if no rank had died. No descriptor, mapping or file is leaked |
//! | ... in communicators that `dup` or `split` made before | operations with its rank end with `Restarted` |
//! | ... and its new process is up before any rank has noticed the death | the same: the old process counts as dead first, also for receives from any source |
//! | a rank dies more often than N times | the job ends, and the launcher says why |
//!
//! There is no communicator of the survivors yet.
//!
//! # A process makes no progress
//!
//! | case | what happens |
//! |---|---|
//! | a rank is stopped (SIGSTOP), or computes, for three times the peer time-out, while more messages are sent to it than all buffers hold, and no stall time-out is set; sm, tcp, udp | Nothing fails: all messages arrive when the rank goes on. Over udp the host of the rank must show that it is alive, by refusing a tcp connection to port 1 (tested for 15 s, four ranks with two links each on one host and the stopped rank on another). If a firewall drops such connections, or the address is that of a forwarder (`TOWLINE_UDP_ADVERTISE`), the rank counts as lost |
//! | `TOWLINE_STALL_TIMEOUT_MS` is set, and a rank that another one waits for makes no progress for that time; sm, tcp, udp | All requests to it end with `PeerFailed`, and `why_lost` says `Stalled`, after 1.25 to 1.8 times the setting (on a machine with 15 busy tasks per processor). When the stopped rank goes on, the frames that it sends are dropped, and it is notified that it was given up. Its own requests to the rank that gave it up, and its receives from any source, end with an error |
//! | a stopped rank is given up, and the notice of that is lost; udp | Frames that the rank sends when it goes on are answered by further notices, at most ten a second. So the rank does not wait for one that has given it up |
//!
//! The stall time-out is off by default. A rank that computes without a progress thread makes no progress.
//!
//! # A link breaks
//!
//! With several links (`--links K`) the other links go on, and resend the frames that the broken link had not delivered.
//!
//! | case | what happens | noticed after |
//! |---|---|---|
//! | one of three tcp links is cut, frozen, or silent in one direction | The other links resend its frames. The link is used again when its peer answers. No progress thread is needed while both ranks wait or poll. A rank that computes is silent on all links, so none of them is given up | cut: at once; silent: `TOWLINE_PEER_TIMEOUT_MS` |
//! | one of two cables is unplugged and plugged in again; tcp | the same | the same |
//! | the same over verbs, twice, with messages in both directions | the same | 0.5 of 0.5 s |
//! | a queue pair of verbs goes to its error state | With a single link the peer is lost at both ends. With several, the link connects again and each frame arrives once. 200 times in the middle of frames of 64 KiB with eight receive buffers, no buffer is lost | not measured; by design with the next heartbeat of each end, within two heartbeat intervals (1 s) |
//! | the only cable is unplugged and plugged in again; tcp, udp | messages wait, and arrive when the cable is back | - |
//! | datagrams are lost in one direction for a while | messages wait, and arrive afterwards | - |
//! | 1, 10 or 30 % of all datagrams are lost, 5 % duplicated, 10 % late | all messages arrive, more slowly | - |
//!
//! # A host falls silent
//!
//! | case | what happens | noticed after |
//! |---|---|---|
//! | no message is on its way to the host | its ranks are lost: over tcp heartbeats ask the kernel of the host, over udp the rank and the kernel | 4.5 to 4.8 of 5 s (`TOWLINE_PEER_TIMEOUT_MS`) |
//! | ... and the other ranks compute, over udp | the same: progress threads send heartbeats | 4.6 to 4.7 of 5 s |
//! | messages are on their way to the host | its ranks are lost: nothing is acknowledged | tcp 5.1 to 6.0 of 5 s, udp 4.0 to 6.4 of 5 s |
//!
//! Over verbs a silent peer is given up after 30 s at most, whatever `TOWLINE_PEER_TIMEOUT_MS` says. A device may take up to
//! four times as long as it is told to.
//!
//! Two cases with several links are not covered yet. In the first, a host falls silent in the first seconds after the first
//! contact, when only some links are connected. In the second, it falls silent after a link was enabled and before that link
//! was used. Such a host is given up when the time to connect is over (two minutes, `TOWLINE_TCP_CONNECT_TIMEOUT_MS`).
//!
//! # Resources run out
//!
//! | case | what happens |
//! |---|---|
//! | no file descriptor is left when a rank is killed, or stopped for long | The death is noticed, and the stopped rank does not count as dead: a socket is reserved for asking hosts |
//! | no descriptor is left to connect, or to accept | the connection is tried again until `TOWLINE_TCP_CONNECT_TIMEOUT_MS`, then `PeerFailed` |
//! | shared memory is full, has no inode left, or files may not be long (`ulimit -f`); sm and tcp | Rings shrink. A pair of ranks that gets no ring uses tcp from then on. Everything arrives, and the launcher prints one warning for the job. Tested with 2 to 16 ranks, 4 KiB to 64 MiB, and messages of 1 B to 4 MiB |
//! | the same, and only sm is named | both ranks of the pair get [`Error::NoSharedMemory`](crate::Error::NoSharedMemory), at once; never a bus error or a signal |
//! | no descriptor is left to wake a rank that sleeps on its descriptor; sm | the descriptor that watches the peer's process is used for that, or the rank is woken when one is free |
//! | the smallest rings, socket buffers and staging memory; pools of one entry | all messages arrive, more slowly |
//! | as many operations as `TOWLINE_REQUESTS` are in progress | a further one ends with [`Error::Busy`](crate::Error::Busy), and its buffer is returned; a blocking call first waits for operations that were dropped, or for which other threads wait. Collective operations have requests of their own |
//!
//! # Attacks
//!
//! | case | what happens |
//! |---|---|
//! | 10,000 callers without the key, among them slow ones and replayed hellos | they are refused and counted, in less than 32 MiB of memory; meanwhile ranks communicate and join as usual |
//! | an attacker makes a kernel report (by ICMP) that the udp port of a living rank is closed | The rank is asked, and is not lost while it answers. Reports that do not quote a random word of the datagram are ignored |
//! | a process writes any value to a shared segment of sm (fuzz target `segment`) | Nothing outside the segment is touched. If the peer's words make no sense, it is lost as `Misbehaved` at the next poll. A process of the same user that truncates the segment's file can end the processes that use it by a bus error, just as it can by a signal |
