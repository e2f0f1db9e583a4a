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
//! `towline perf` measures half a round trip, bandwidth and message rate between two pinned processes, and each figure beside
//! its *limit*: what two bare processes reach in the same run. For sm that is a bouncing cache line and bytes copied in and out
//! of a ring; for tcp and udp, bare tcp sockets; for one-sided operations, a process that does the same to shared memory. A
//! repetition counts only if the bare bounce before and after it differs by at most 10 %. `--json` writes all values, `--plot`
//! draws a chart.
//!
//! Ratios to the limit, and to a peer measured in turns, hold better than figures: a virtual machine changes its speed within
//! seconds.
//!
//! In the program: [`World::counters`](crate::World::counters) tells what the engine did,
//! [`World::report`](crate::World::report) which transports it used.
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
//! # Beside other libraries
//!
//! `host-tests/bench/run` measures Towline beside Open MPI 4.1 and 5.0, MPICH and UCX, all pinned, in turns, and prints
//! medians. The README has six of its figures. An earlier run beside Open MPI 4.1.4 alone, on two cores of a shared virtual
//! machine (Xeon, one thread a core; a bare cache line bounced in 45 to 75 ns, two lines in 85 to 160), medians of nine
//! repetitions or more; below 1 is better for latency, above 1 for bandwidth and rate:
//!
//! | | Towline | Open MPI | ratio |
//! |---|---|---|---|
//! | sm, 8 B half round trip | 158 ns | 316 ns | 0.50 |
//! | sm, 1 KiB half round trip | 666 ns | 723 ns | 0.92 |
//! | sm, 8 KiB half round trip | 1.58 us | 1.54 us | 1.03 |
//! | sm, 64 KiB half round trip | 3.82 us | 3.86 us | 0.99 |
//! | sm, 4 MiB stream | 12.3 GB/s | 11.3 GB/s | 1.08 |
//! | sm, 8 B messages | 14.8 M/s | 6.1 M/s | 2.4 |
//! | tcp, 8 B half round trip | 3.22 us | 3.70 us | 0.87 |
//! | tcp, 8 KiB half round trip | 5.30 us | 6.31 us | 0.84 |
//! | tcp, 64 KiB half round trip | 14.9 us | 24.6 us | 0.60 |
//! | tcp, 4 MiB stream | 9.1 GB/s | 7.9 GB/s | 1.15 |
//!
//! The system's congestion control was BBR, which Towline does without within a host (`TOWLINE_TCP_HOST_CONGESTION`). Open MPI
//! made to do the same streams as fast as Towline, and both as fast as bare sockets.
//!
//! # One-sided operations over sm
//!
//! The initiator reaches into the target's window itself ("mapped"), beside a process that does the same to shared memory
//! without Towline ("bare"), and by active messages to a target that waits in a receive (`TOWLINE_SM_WINDOWS=false`). Least and
//! most of four runs, in turns:
//!
//! | | mapped | bare | by active messages |
//! |---|---|---|---|
//! | put of 8 B, flushed | 67 to 73 ns | 2.4 ns | 1.1 to 2.2 us |
//! | put of 64 KiB, flushed | 1.3 to 2.3 us | 1.3 us | 21 to 89 us |
//! | get of 8 B | 29 to 44 ns | 2.4 ns | 1.7 to 2.1 us |
//! | fetch-and-add | 48 to 50 ns | 2.1 ns | 0.5 to 1.6 us |
//! | adds | 22 to 35 M/s | 350 to 490 M/s | 0.3 to 0.4 M/s |
//! | puts of 4 MiB | 18 to 23 GB/s | 15 to 23 GB/s | 0.5 to 0.7 GB/s |
//!
//! Since then, bytes beyond 8 KiB are read through the kernel (`TOWLINE_SM_SINGLE_COPY_BYTES`) where operations go by active
//! messages; with 0 they are copied into the rings and out. On another machine (EPYC, two cores), medians of three runs each,
//! in turns:
//!
//! | | read through the kernel | copied |
//! |---|---|---|
//! | get of 64 KiB | 7.3 us | 9.5 us |
//! | get of 4 MiB | 0.42 ms | 0.52 ms |
//! | put of 4 MiB | 0.54 ms | 0.62 ms |
//! | puts of 64 KiB | 8.2 GB/s | 5.8 GB/s |
//! | a lone put of 64 KiB | 15 us | 10 us |
//!
//! # Encryption
//!
//! Both ranks on one host, where the network costs nothing and encryption shows most. Medians of three runs each, eight of the
//! long stream, nine of udp, in turns, on two processors that others used at the same time. The command is
//! `TOWLINE_ENCRYPT=always towline perf --quick --transport tcp --sizes 8,8K,64K,1M,4M --repeat 1`.
//!
//! | | off | always |
//! |---|---|---|
//! | tcp, 8 B half round trip | 3.64 us | 3.92 us |
//! | tcp, 8 KiB half round trip | 6.07 us | 8.71 us |
//! | tcp, 64 KiB half round trip | 17.6 us | 32.2 us |
//! | tcp, 64 KiB stream | 5.2 GB/s | 2.4 GB/s |
//! | tcp, 4 MiB stream | 7.2 GB/s (4.2 to 8.1) | 2.4 GB/s (0.9 to 2.9) |
//! | tcp, 8 B messages | 374 k/s | 339 k/s |
//! | udp, 8 B half round trip | 3.90 us | 4.20 us |
//! | udp, 64 KiB half round trip | 41.5 us | 66.8 us |
//! | udp, 4 MiB stream | 2.5 GB/s (2.3 to 3.1) | 1.9 GB/s (0.9 to 2.1) |
//! | udp, 8 B messages | 1.36 M/s | 1.01 M/s |
//!
//! # Checksums on tcp
//!
//! `TOWLINE_CHECKSUM=true` costs the 4 MiB stream of an acknowledged link no bandwidth: on a quiet machine it had 1.22 of the
//! bandwidth without (median of 9 pairs, 5.3 and 5.0 GB/s; single pairs 0.92 to 1.40), and 1.06 and 1.00 while other work ran
//! (0.58 to 1.78). `host-tests/bench/checksum` prints it. Bodies that are summed leave without the kernel's copy, by a pipe.
//! With the copy (`TOWLINE_TCP_PIPE_BYTES=0`) the ratio was 0.91 in the same hour as the latter (0.83 to 1.11), and 0.76 on
//! another day. A single message of 1 MiB gains nothing: its half round trip is 180 us with the pipe, 157 us with the copy, and
//! 104 us without sums, medians of 9 jobs each, in turns (`TOWLINE_CHECKSUM=true towline perf --transport tcp --mode latency
//! --sizes 1M`).
//!
//! # verbs
//!
//! Between two Soft-RoCE devices of the emulated virtual machine, half a round trip of 8 B takes 1.13 of the time of
//! `ibv_rc_pingpong`, and 0.88 of that of `ib_send_lat`. Messages of 64 KiB have 1.04 of the bandwidth of `ib_write_bw`, of 1
//! MiB 1.58. Each is the median of the ratios of nine turns, of means. `host-tests/bench/verbs` measures it.
//!
//! # Instructions and memory
//!
//! A send and receive pair of 8 bytes over sm takes at most 300 instructions. `host-tests/scripts/instructions` counts them and
//! fails above the bounds of `host-tests/instructions.txt`.
//!
//! One request takes 104 bytes; a peer 112 bytes, and 24 for each link; an unexpected message 88 bytes, with its place in the
//! matcher. An engine for 4 peers with 16 requests and 32 unexpected messages of 64 bytes fits in 8 KiB. `towline info` prints
//! the sizes of this build.
