//! Transports: which one is used, and how to choose.
//!
//! | transport | reaches | used | needs |
//! |---|---|---|---|
//! | `loopback` | the rank itself | always | nothing |
//! | `sm` | ranks of this host | by default | `/dev/shm`, or another file system in memory (`TOWLINE_SM_DIRECTORY`) |
//! | `tcp` | ranks of any host | by default | an IP network |
//! | `udp` | ranks of any host | if named | an IP network |
//! | `verbs` | ranks of any host | if named and built in (`--features verbs`) | an RDMA device and libibverbs |
//!
//! # How a transport is chosen
//!
//! Each rank publishes a *card* for each transport, which says where it can be reached. For each peer, the transports that
//! reach it are ranked by *exclusivity*, as Open MPI's BTLs are: loopback, then sm, then verbs, then tcp and udp. Only
//! transports of the highest rank are used for that peer. Among several rails of the same exclusivity, the first frames of messages go
//! round-robin over those of the lowest latency, and the rest of a long message is striped in proportion to bandwidth.
//!
//! To see the choice: `towline info` says for this host and for others which transports are there, which one would be chosen,
//! and why; [`World::report`](crate::World::report) says it for a running job.
//!
//! ```
//! let world = towline::init()?;
//! for line in world.report() {
//!     println!("{line}"); // such as: peer 0: loopback taken (exclusivity 65536)
//! }
//! assert_eq!(world.rails(), ["loopback"]); // alone, a rank needs no other
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To make the choice: `towline run --transport sm,tcp`, `TOWLINE_TRANSPORTS`, or
//! [`Builder::transports`](crate::Builder::transports). A transport that is named and does not work is an error; one that is
//! used by default and does not work is left out, and the report says why.
//!
//! # Which one to name
//!
//! - **Nothing**, for most jobs: sm within a host, tcp between hosts.
//! - **tcp with several links** (`--links 3`) where a network has several cables, or where a job must survive a broken
//!   connection. With several links, frames are acknowledged, and those of a link that breaks go by the others.
//! - **udp** where many peers talk in short messages: one socket serves all of them. A link above it makes each frame arrive
//!   once, whatever the network loses, duplicates or reorders. A progress thread sends again what was lost, and answers, while
//!   a rank computes.
//! - **verbs** on a network of RDMA devices that nobody else reaches: its traffic is neither signed nor encrypted.
//!
//! # sm
//!
//! Messages travel through lock-free rings in shared memory: short frames whole, long messages in pipelined fragments. Where
//! the kernel allows it (`process_vm_readv`), the receiver reads a long message from where it lies: a *single copy*. It is used
//! for messages from 8 KiB to 1 MiB that do not come in a stream, since for a stream two copies on two processors are faster. A
//! container's filter, Yama's `ptrace_scope` or another user namespace can forbid single copies; that is found out for each
//! pair of ranks, and the report says so. Waiting ranks sleep on a futex.
//!
//! If shared memory is full, setting up ends with an error that names the rank, never with a bus error.
//!
//! # tcp
//!
//! Connections are made on first use. Both ends prove that they know the job's key. Long bodies that lie in one piece leave
//! from where they lie, and arrive where they belong. Which interfaces are used: all but container bridges, or those of
//! `TOWLINE_TCP_INCLUDE`. Ranks behind something that forwards to them say so with `TOWLINE_TCP_ADVERTISE`. Within a host,
//! connections do without the system's congestion control if that is BBR, which is slower there
//! (`TOWLINE_TCP_HOST_CONGESTION`).
//!
//! `TOWLINE_CHECKSUM=true` adds a checksum (CRC-32C) to each frame. Long bodies that are summed leave without the kernel's
//! copy, by a pipe.
//!
//! # udp
//!
//! Datagrams are sent and received in batches that the kernel splits and joins (`UDP_SEGMENT`, `UDP_GRO`), if a trial shows
//! that it does. Frames are acknowledged and checked by a link. Lost frames are found by the order in which frames left (RACK,
//! RFC 8985).
//!
//! `towline soak --sim --goodput` measures how much of the bandwidth of a simulated rail is left when it loses frames: 96 % with 1 % lost,
//! 95 % with 5 %, 94 % with 10 %, 39 % with 30 %.
//!
//! # verbs
//!
//! Each peer has a reliable queue pair (RC); receive buffers are shared by all peers (SRQ), so memory does not grow with the
//! number of peers. Short frames are sent inline, and only each n-th send is signalled. Connections are made on first use by
//! datagrams of the device (UD) whose ends prove that they know the job's key. A host may have several ports and links.
//!
//! Devices move long messages from memory to memory without a copy, in pieces: over Soft-RoCE the receiver's device gets
//! messages from 64 KiB on; over other devices the sender's device puts messages from 1 MiB on, while the first bytes travel in
//! fragments as memory is being registered. `TOWLINE_VERBS_DIRECT_BYTES` and its neighbours choose otherwise. If a device
//! cannot go on, the rest of the message travels in fragments. Other links to the same peer carry their part in fragments.
//!
//! Building it takes cmake and libclang; libibverbs is looked up at run time. It is tested on Soft-RoCE (RoCE v2) in a virtual
//! machine (`host-tests/scripts/verbs`). RoCE v1, InfiniBand, devices with several ports and faults of a device itself have
//! unit tests only: nobody has run them.
//!
//! # A transport of your own
//!
//! A rail is an implementation of the trait [`Rail`](crate::Rail), in a crate of its own.
//! [`Builder::rail`](crate::Builder::rail) adds it to a world; `core/src/rail/README.md` in the repository says what it has to
//! keep, and the conformance kit in `host-tests/src/kit` checks it.
