//! Faults: what happens when a process, a link or a host fails, and how soon it is noticed.
//!
//! Every operation ends: with its message, or with an error that names the rank. In none of the cases below is a message lost
//! that two living ranks exchange.
//!
//! Each row is a test with real processes or sockets; most are in `adapters/host/tests` (death, network, exhaustion), and in
//! the tests of the crates `towline-tcp` and `towline-bootstrap`. A time is what such a test printed, in an unoptimised build
//! on two busy processors; "4.5 of 5 s" means 4.5 s where the setting was 5 s.
//!
//! # What the program sees
//!
//! | error | means |
//! |---|---|
//! | [`Error::PeerFailed`](crate::Error::PeerFailed) | the rank has ended, or no path to it is left. [`why_lost`](crate::Communicator::why_lost) gives the reason |
//! | [`Error::Restarted`](crate::Error::Restarted) | the rank was started again after this communicator was made: make a new one |
//!
//! A receive or probe from [`Any`](crate::Any) source ends with `PeerFailed` once a rank of the communicator has died, until
//! the program calls [`acknowledge_failures`](crate::Communicator::acknowledge_failures). This is the rule of fault-tolerant
//! MPI (ULFM). A message that is here is received first. A long message of the dead rank may have been lost with it while a
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
//! What the rank had sent is received. All other operations with it end with `PeerFailed`. Its descriptors, mappings and
//! registrations are given back, and ranks that do not talk to it notice nothing. A rank that panics counts as killed.
//!
//! | case | noticed after |
//! |---|---|
//! | a rank is killed while others sleep in a receive, or poll | sm 0.06 to 0.2 s (`TOWLINE_SM_LIVENESS_MS`, 250); tcp 0 to 16 ms; udp 0.9 to 1.2 s: its closed port refuses the next heartbeat, and what is sent after that to make sure |
//! | ... while others compute | with their next operation, at once; over udp the progress thread notices after 0.9 to 1.1 s |
//! | ... in the middle of an exchange of all ranks with all; sm, tcp with 1 and 3 links, udp with 1 and 2. Every byte that survivors exchange is compared | 0.01 to 1.4 s |
//! | ... and no connection to it was ever made; tcp and udp; perhaps while a third rank is stopped | 2.7 to 3.1 s: ranks ask the launcher, idle ones more often |
//! | ... over verbs, with 1 and 2 links (Soft-RoCE) | 2.5 to 5.2 of 5 s (`TOWLINE_PEER_TIMEOUT_MS`): its device does not answer any more |
//! | a rank dies during a barrier, broadcast or split | as above; the call ends at all ranks, with `PeerFailed` where the dead rank had a part in it |
//!
//! # A process is restarted
//!
//! `towline run --restart N` starts a rank again that was killed or failed. The other ranks accept it again with
//! [`World::rejoin`](crate::World::rejoin), which the new process waits for.
//!
//! ```no_run
//! # fn work(world: &towline::World) -> Result<(), towline::Error> { world.barrier() }
//! use std::time::Duration;
//!
//! let world = towline::init()?; // in a restarted process: returns when the other ranks have accepted it
//! println!("life number {}", world.incarnation());
//! while let Err(towline::Error::PeerFailed { rank }) = work(&world) {
//!     world.rejoin(rank, Duration::from_secs(60))?;
//! }
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | case | what happens |
//! |---|---|
//! | a rank is killed in the middle of an exchange of all with all, twice, and started again each time; sm, tcp with 1 and 3 links, udp with 1 and 2 | Operations with the old process end with `PeerFailed`. After `rejoin` the new process exchanges with all ranks, by new connections and from the start. Nothing of the old process is received any more. Barrier, broadcast, `dup` and the end work as if nobody had died. Descriptors, mappings and files are as many as before |
//! | ... in communicators that `dup` or `split` made before | operations with its rank end with `Restarted` |
//! | ... and it is back before anybody has noticed its death | the same: a rank that is back counts as dead first, also for receives from any source |
//! | a rank dies more often than N times | the job ends, and the launcher says why |
//!
//! There is no communicator of the survivors yet.
//!
//! # A process makes no progress
//!
//! | case | what happens |
//! |---|---|
//! | a rank is stopped (SIGSTOP), or computes, for three times the stall time-out, with more on its way to it than all buffers hold, while no stall time-out is set; sm, tcp, udp | Nothing: everything arrives when it goes on. Over udp its host has to answer for it, by refusing a tcp connection to port 1 (tested for 15 s, four ranks with two links each on one host and the stopped rank on another). A firewall that drops such connections, or an address that is forwarded (`TOWLINE_UDP_ADVERTISE`), makes the rank look lost |
//! | `TOWLINE_STALL_TIMEOUT_MS` is set, and a rank that another one waits for makes no progress for so long; sm, tcp, udp | All requests to it end with `PeerFailed`, and `why_lost` says `Stalled`, after 1.25 to 1.8 times the setting (on a machine with 15 busy tasks per processor). When the rank goes on, what it sends is dropped; it is told that it was given up; and its own requests to that rank, and receives from any source, end with an error |
//! | a stopped rank is given up, and the notice of that is lost; udp | What the rank sends when it goes on is answered by another notice, at most ten a second. It does not wait for a rank that has forgotten it |
//!
//! The stall time-out is off by default. A rank that computes without a progress thread makes no progress.
//!
//! # A link breaks
//!
//! With several links (`--links K`) the others carry on, including the frames that the broken link had not delivered.
//!
//! | case | what happens | noticed after |
//! |---|---|---|
//! | one of three tcp links is cut, frozen, or silent in one direction | The others carry on with what it had; it is used again when it answers. No progress thread is needed while both ranks wait or poll. A rank that computes is silent on all links, and none of them is given up for that | cut: at once; silent: `TOWLINE_PEER_TIMEOUT_MS` |
//! | one of two cables is unplugged and plugged in again; tcp | the same | the same |
//! | the same over verbs, twice, with messages in both directions | the same | 0.5 of 0.5 s |
//! | a queue pair of verbs goes to its error state | With a single link the peer is lost at both ends. With several, the link connects again and each frame arrives once. 200 times in the middle of frames of 64 KiB with eight receive buffers, no buffer is lost | not measured; by design with the next heartbeat, within two of its intervals (1 s), and at the other end with its own |
//! | the only cable is unplugged and plugged in again; tcp, udp | waits, and goes on | - |
//! | datagrams stop in one direction, and go on again | waits, and goes on | - |
//! | 1, 10 or 30 % of all datagrams are lost, 5 % duplicated, 10 % late | slower | - |
//!
//! # A host falls silent
//!
//! | case | what happens | noticed after |
//! |---|---|---|
//! | nothing is on its way to the host | its ranks are lost: over tcp its kernel is asked, over udp the rank and its kernel | 4.5 to 4.8 of 5 s (`TOWLINE_PEER_TIMEOUT_MS`) |
//! | ... and others compute, over udp | the same: progress threads ask | 4.6 to 4.7 of 5 s |
//! | messages are on their way to it | the same: nothing was acknowledged | tcp 5.1 to 6.0 of 5 s, udp 4.0 to 6.4 of 5 s |
//!
//! Over verbs a silent peer is given up after 30 s at most, whatever `TOWLINE_PEER_TIMEOUT_MS` says; a device may take four
//! times as long as it is asked to.
//!
//! Not covered yet: a host of several links that falls silent in the first seconds after the first contact, when some links
//! have met it and others have not; or after a link was enabled that nobody has used since. Such a host is given up when the
//! time to connect is over (two minutes, `TOWLINE_TCP_CONNECT_TIMEOUT_MS`).
//!
//! # Resources run out
//!
//! | case | what happens |
//! |---|---|
//! | no file descriptor is left when a rank is killed, or stopped for long | The death is noticed, and the stopped rank is not taken for dead: hosts are asked through a socket that is reserved for that |
//! | no descriptor is left to connect, or to accept | the connection is tried again until `TOWLINE_TCP_CONNECT_TIMEOUT_MS`, then `PeerFailed` |
//! | shared memory is full | an error that names the rank, at once; never a bus error |
//! | smallest rings, socket buffers and staging; pools of one | slower |
//! | as many operations as `TOWLINE_REQUESTS` are in progress | [`Error::Busy`](crate::Error::Busy); the buffer comes back |
//!
//! # Attacks
//!
//! | case | what happens |
//! |---|---|
//! | 10,000 callers without the key, slow ones and replayed hellos among them | they are refused and counted, in less than 32 MiB; ranks go on talking, and joining, meanwhile |
//! | somebody has a kernel report (ICMP) that the udp port of a living rank is closed | The rank is asked, and is not lost while it answers. Reports that do not quote a random word are ignored |
//! | a process writes any value to a shared segment of sm (fuzz target `segment`) | Nothing outside the segment is touched. The peer is lost as `Misbehaved` where its words make no sense, at the next look. A process of the same user that shortens the segment's file can end those that use it by a bus error, as it can by a signal |
