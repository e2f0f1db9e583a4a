//! Measuring: how fast it is here, and how fast it could be.
//!
//! # towline perf
//!
//! ```text
//! cargo run --release -- perf                                  # sm and tcp, less than a minute
//! towline perf --transport udp --sizes 8,64K,4M --repeat 9
//! towline perf --transport sm --mode put,put-bandwidth,get,fetch-add,add-rate --sizes 8,64K,4M
//! towline perf --mode bandwidth,bandwidth-one-buffer           # a buffer for each message, and one for all
//! towline perf --hosts FILE --transport tcp,udp                # between the first two hosts of the file
//! ```
//!
//! `towline perf` measures half a round trip, bandwidth and message rate between two pinned processes. Beside each figure it
//! prints a *limit*: the figure that two processes without Towline reach in the same run.
//!
//! | transport | limit |
//! |---|---|
//! | `sm` | a cache line that goes back and forth; bytes that are copied twice (a ring) or once, whichever is faster |
//! | `tcp`, `udp` | plain tcp sockets |
//! | one-sided operations | the same operation by one process on shared memory, or a request and a reply over sockets |
//!
//! In the modes `bandwidth` and `rate`, each message of a window has a buffer of its own, as in programs. `osu_bw` and
//! `ucx_perftest` use one buffer for all messages, which stays in the processor's cache. The modes `bandwidth-one-buffer` and
//! `rate-one-buffer` do the same. Compare figures of other libraries with these modes.
//!
//! Beside the median there are percentiles of single operations: 50, 90, 99, 99.9, and the maximum. Each operation is timed by
//! itself for them, so each time contains one reading of the clock (`towline doctor` shows how long that takes). The time of a
//! stream is that of a message, on average over each window.
//!
//! Between two hosts there is no common memory. The bounce is then half a round trip of one byte over a plain tcp socket, and the
//! limits are those of plain tcp sockets.
//!
//! A repetition counts only if the limits for half a round trip before and after it differ by at most 10 %. If none of a
//! measurement does, its medians are of all repetitions, and the table marks it as `unsteady`. `--json` and `--csv` write all
//! values. `--plot` draws a chart with a panel each for times, bandwidths and rates. Compare ratios rather than figures: a virtual machine changes its speed within
//! seconds, but a ratio to a limit, or to another library that is measured in turns, stays similar.
//!
//! # In the program
//!
//! [`World::counters`](crate::World::counters) returns counts of the engine's events. [`World::report`](crate::World::report)
//! says which transports it uses.
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
//! `host-tests/README.md` of the repository has all figures, each with its machine and command: comparisons with Open MPI,
//! and figures of one-sided operations, encryption, verbs, checksums and lost frames. `host-tests/bench/run` measures
//! Towline, Open MPI 4.1 and 5.0, MPICH and UCX in turns, with all processes pinned; six of its figures are in the README. In
//! short:
//!
//! - Encryption costs tcp a tenth of the latency of short messages, and half or more of the bandwidth of streams within a host.
//! - Checksums on tcp cost streams no bandwidth, since bodies with a checksum are sent without a copy. A single message of 1
//!   MiB becomes slower.
//! - Single copies make long puts and gets faster over sm where windows are not mapped, except for a single put of 64 KiB.
//! - A udp link that loses 5 % of its frames keeps 95 % of its bandwidth (simulated: `towline soak --sim --goodput`).
//!
//! # Instructions and memory
//!
//! A send and receive pair of 8 bytes over sm takes at most 300 instructions. One request takes 104 bytes; a peer 112 bytes,
//! and 24 for each link; an unexpected message 88 bytes, with its place in the matcher. An engine for 4 peers with 16 requests
//! and 32 unexpected messages of 64 bytes fits in 8 KiB. `towline info` prints the sizes of this build.
