//! Measuring: how fast it is here, and how fast it could be.
//!
//! # towline perf
//!
//! ```text
//! cargo run --release -- perf                                  # sm and tcp, less than a minute
//! towline perf --transport udp --sizes 8,64K,4M --repeat 9
//! towline perf --transport sm --mode put,put-bandwidth,get,fetch-add,add-rate --sizes 8,64K,4M
//! ```
//!
//! `towline perf` measures half a round trip, bandwidth and message rate between two pinned processes. Each figure stands
//! beside its *limit*, which two bare processes reach in the same run:
//!
//! | transport | limit |
//! |---|---|
//! | `sm` | a bouncing cache line, and bytes copied in and out of a ring |
//! | `tcp`, `udp` | bare tcp sockets |
//! | one-sided operations | one process that does the same to shared memory, or sockets that ask and answer |
//!
//! A repetition counts only if the bare bounce before and after it differs by at most 10 %. `--json` writes all values,
//! `--plot` draws a chart. Ratios to a limit or to a peer, measured in turns, hold better than figures: a virtual machine
//! changes its speed within seconds.
//!
//! # In the program
//!
//! [`World::counters`](crate::World::counters) tells what the engine did, [`World::report`](crate::World::report) which
//! transports it used.
//!
//! ```
//! let world = towline::init()?;
//! world.send(world.rank(), 1, b"x")?;
//! world.recv(world.rank(), 1, &mut [0u8])?;
//! assert_eq!(world.counters().eager_sent, 1);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to expect
//!
//! `host-tests/README.md` of the repository has the figures, with the machine and the command of each: beside Open MPI, and of
//! one-sided operations, encryption, verbs, checksums and lost frames. `host-tests/bench/run` measures Towline beside Open MPI
//! 4.1 and 5.0, MPICH and UCX, all pinned and in turns; six of its figures are in the README. In short:
//!
//! - Encryption costs tcp a tenth of the latency of short messages, and half or more of the bandwidth of streams within a host.
//! - Checksums on tcp cost streams no bandwidth, since summed bodies leave without a copy. A single message of 1 MiB becomes
//!   slower.
//! - Single copies make long puts and gets faster over sm where windows are not mapped, except for a lone put of 64 KiB.
//! - A udp link that loses 5 % of its frames keeps 95 % of its bandwidth (simulated: `towline soak --sim --goodput`).
//!
//! # Instructions and memory
//!
//! A send and receive pair of 8 bytes over sm takes at most 300 instructions. One request takes 104 bytes; a peer 112 bytes,
//! and 24 for each link; an unexpected message 88 bytes, with its place in the matcher. An engine for 4 peers with 16 requests
//! and 32 unexpected messages of 64 bytes fits in 8 KiB. `towline info` prints the sizes of this build.
