//! Run your MPI program over Towline.
//!
//! Open MPI chooses among components at run time. `adapters/openmpi` of the repository has two for Towline, for Open MPI 4.1 and
//! 5.0. The program is not changed and not built again.
//!
//! ```text
//! git clone <address of this repository> towline && cd towline
//! adapters/openmpi/build                                  # for the Open MPI that `mpicc` belongs to
//! adapters/openmpi/install                                # into ~/.openmpi/components
//! mpirun -n 2 --mca pml cm --mca mtl towline ./program
//! ```
//!
//! The build needs Rust, a C compiler, and Open MPI's headers for developers: Debian's package `libopenmpi-dev` has them, and other
//! installations have them after `configure --with-devel-headers`. Debian 13's PMIx library hides the user's folder of components
//! from Open MPI 5.0; there, add `--mca mca_base_component_path ~/.openmpi/components`.
//!
//! # Which component
//!
//! | | options of `mpirun` | Towline does |
//! |---|---|---|
//! | MTL | `--mca pml cm --mca mtl towline` | everything: matching, order, long messages |
//! | BTL | `--mca pml ob1 --mca btl towline,self` | the moving of bytes; Open MPI matches |
//! | BTL for windows | also `--mca osc rdma,sm` | puts, gets and atomics of `MPI_Win`; `sm` serves `MPI_Win_allocate_shared` alone |
//!
//! Begin with the MTL: it is the shorter path. Choose the BTL for programs with one-sided communication.
//!
//! # Which transport
//!
//! `TOWLINE_TRANSPORTS=sm,tcp`, or `--mca mtl_towline_transports sm,tcp`, chooses the transports: `sm`, `tcp`, `udp`, `verbs` and `dpu-frames`, and for the MTL `dpu`. By
//! default they are `sm` and `tcp`, as far as they work: processes of one host use shared memory, and others use tcp. All other
//! [settings](super::tuning) can be given in both ways. `mpirun -x TOWLINE_TRANSPORTS` passes a variable on to other hosts, which
//! Open MPI does by itself with its own. `ompi_info --param mtl towline --level 9` lists the variables of the component.
//!
//! | variable of Open MPI | meaning |
//! |---|---|
//! | `mtl_towline_priority` | priority among MTLs: with `--mca pml cm`, the one with the highest is taken |
//! | `mtl_towline_peers` | how many processes a process may talk to; by default those of its job, and 64 that are spawned |
//! | `mtl_towline_numbers` | how many processes one `mpirun` may have, with all that it spawns; the same for all |
//! | `btl_towline_peers`, `btl_towline_numbers` | the same for the BTL |
//! | `btl_towline_tcp_include` and so on | each setting of Towline for the BTL: `tcp.include` here |
//! | `btl_towline_eager_limit`, `btl_towline_max_send_size`, `btl_towline_flags`, ... | what Open MPI has for each BTL; 0 stands for the value of the transport |
//! | `mtl_towline_transports`, `btl_towline_tcp_include`, ... | each [setting](super::tuning) of Towline, with `_` in place of `.` |
//!
//! # Is it used?
//!
//! `--mca mtl_base_verbose 100` prints `select: component towline selected`. With `TOWLINE_MPI_COUNTERS=/tmp/count` (and `-x
//! TOWLINE_MPI_COUNTERS`), each process writes what Towline has carried for it into `/tmp/count.<process id>` at its end.
//!
//! # What works
//!
//! All send modes, probes and matched probes, cancelled receives, inter-communicators, `MPI_Comm_spawn`, and all thread levels.
//! A send can be cancelled only while nothing of it has left, as the standard allows.
//!
//! Over the BTL also all kinds of windows with `--mca osc rdma,sm`: puts, gets and atomics of the BTL, with words of 32 and 64 bits.
//! Each rail is a module of its own: with several links of tcp, Open MPI divides long messages among them, but it does not replace a
//! link that is cut. The MTL does.
//!
//! Open MPI 5.0 makes no windows of the program's memory (`MPI_Win_create`, `MPI_Win_allocate` between hosts) under `pml cm`, whatever
//! the MTL is: it returns `MPI_ERR_WIN`. Such programs need the BTL there. Open MPI 4.1 has windows over both components.
//! Both components have the sessions of 5.0, with communicators from groups. A program that ends its last session and begins another
//! hangs in PMIx at that point now and then, over Open MPI's own components, too.
//! In both versions, a persistent buffered send (`MPI_Bsend_init`) that is started again fails or crashes under `pml cm`, over Open
//! MPI's own `mtl ofi`, too. Such programs need the BTL.
//!
//! # When a process dies
//!
//! `mpirun` notices it and ends the job. Operations with it fail in Towline, too: a process that waits prints `mtl towline: a receive
//! has failed`, or `btl towline: process 1 was lost`, with the reason, before Open MPI aborts.
//!
//! Open MPI's daemon on each host removes the job's files in shared memory when the job's processes there have ended, also if they
//! were killed or have aborted. The components name each file to it before they make it (PMIx, `PMIX_REGISTER_CLEANUP`). Files
//! `towline.*` stay in `/dev/shm` only if the daemon is killed, too, if it refuses, or if there is none, as in a program that was
//! started without `mpirun`. They also stay in a directory whose path has a comma. The next program of the user that opens shared
//! memory over Towline on that host removes them.
//!
//! # When a network is cut
//!
//! With `TOWLINE_LINKS=2` and `TOWLINE_TCP_INCLUDE=eth0,eth1`, two networks carry messages of the MTL, and a program goes on if one of
//! them is cut. Over the BTL, the job ends then: each link is a module of its own, and Open MPI does not replace one. With
//! `TOWLINE_BUNDLE=true`, or `--mca btl_towline_bundle true`, both links are one module of the BTL, and the program goes on. Open MPI
//! then leaves it to Towline how long messages are divided between the networks.
//!
//! # Security
//!
//! All processes of an `mpirun` share a secret: Open MPI 4.1 draws it, and with Open MPI 5.0 the first process does, and the others
//! get it through PMIx. Processes without it cannot connect: see [security](super::security).
