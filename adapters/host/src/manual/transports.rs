//! Transports: which one is used, and how to choose.
//!
//! | transport | reaches | used | needs |
//! |---|---|---|---|
//! | `loopback` | the rank itself | always | nothing |
//! | `sm` | ranks of this host | by default | `/dev/shm`, or another file system in memory (`TOWLINE_SM_DIRECTORY`) |
//! | `tcp` | ranks of any host | by default | an IP network |
//! | `udp` | ranks of any host | if named | an IP network |
//! | `verbs` | ranks of any host | if named and built in (`--features verbs`) | an RDMA device and libibverbs |
//! | `dpu` | ranks with a DPU, of any host | if named | a DPU with Towline's firmware for each rank (`TOWLINE_DPU_WINDOWS`) |
//! | `dpu-frames` | ranks with a DPU, of any host | if named | the same |
//!
//! # How a transport is chosen
//!
//! Each rank publishes a *card* for each transport, which says where it can be reached. For each peer, the transports that
//! reach it are ordered by *exclusivity*, as Open MPI's BTLs are: loopback, then sm, then verbs, then tcp, udp and dpu-frames. Only
//! transports of the highest exclusivity are used for that peer. For ranks that sm reaches, the next transport is a *spare*: it is
//! used if sm has no room. If these are several rails, the first frames of messages go
//! round-robin over the rails of the lowest latency, and the rest of a long message is striped in proportion to bandwidth.
//!
//! To see the choice: `towline info` lists the transports that work here, and says which one would be chosen for ranks of
//! this host and of others, and why. [`World::transport_report`](crate::World::transport_report) says the same about a running
//! job.
//!
//! ```
//! let world = towline::init()?;
//! for line in world.transport_report() {
//!     println!("{line}"); // such as: peer 0: loopback taken (exclusivity 65536)
//! }
//! assert_eq!(world.rails(), ["loopback"]); // alone, a rank needs no other
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To change the choice: `towline run --transport sm,tcp`, `TOWLINE_TRANSPORTS`, or
//! [`Builder::transports`](crate::Builder::transports). If a transport that was named does not work, that is an error. If a
//! transport that is used by default does not work, it is left out, and the report says why.
//!
//! # Which one to name
//!
//! - **Nothing**, for most jobs: sm within a host, tcp between hosts.
//! - **tcp with several links** (`--links 3`) where a network has several cables, or where a job must survive a broken
//!   connection. With several links, frames are acknowledged, and the other links resend those of a link that breaks.
//! - **udp** where a rank exchanges short messages with many peers: one socket serves all of them. A link above it delivers
//!   each frame once, even if the network loses, duplicates or reorders datagrams. While a rank computes, a progress thread
//!   resends lost frames and answers peers.
//! - **verbs** on a network of RDMA devices that is closed to others, since its traffic is not signed and not encrypted.
//!
//! # sm
//!
//! Messages travel through lock-free rings in shared memory: short frames whole, long messages in pipelined fragments. Where
//! the kernel allows it (`process_vm_readv`), the receiver can read a long message directly from the sender's memory: a *single
//! copy*. It is off by default, since two copies on two processors, which stay in the cache, were faster at all lengths wherever
//! they were measured lately. `TOWLINE_SM_SINGLE_COPY_BYTES=8192` switches it on for messages from 8 KiB to 1 MiB that do not come
//! in a stream; `towline perf` shows which is faster. A container's system call filter, Yama's `ptrace_scope` or another user
//! namespace can forbid single copies. Each pair of ranks tests this, and the report says so. Waiting ranks sleep on a futex.
//!
//! **Room.** A pair of ranks takes up to 656 KiB of `/dev/shm`: two rings in each direction, made with the first short frame and with
//! the first long message. Containers often have 64 MB. Where the free room is less than all pairs of this host could take, rings
//! shrink, from 256 to 64 KiB for long messages first, and in the end to 4 KiB each; so the settings of ring sizes are upper limits.
//! Sixteen ranks communicate by sm in 64 MB.
//!
//! If a ring finds no room all the same (no bytes, no inode, the limit of file sizes, no descriptor), the two ranks use the
//! next transport from then on, which is tcp by default. Nothing is lost, and the launcher prints one warning for the job: how much
//! was needed, how much was free, and which setting helps. If no other transport was named, both ranks get
//! [`Error::NoSharedMemory`](crate::Error::NoSharedMemory) at once. A rank that cannot even make its control segment (4 KiB) uses
//! the other transports from the beginning. For that, ranks keep tcp's listening socket open. They do not poll it before it is
//! needed.
//!
//! A limit on the size of files (`ulimit -f`) applies to rings, too. Rings shrink to it. Below 8 KiB sm does not work, and the memory
//! of windows is not shared, so that the target serves peers.
//!
//! # tcp
//!
//! Connections are made on first use. Both ends prove that they know the job's key. Long contiguous bodies are sent directly
//! from the user's memory, and received directly into it. tcp uses all interfaces except container bridges, or those of
//! `TOWLINE_TCP_INCLUDE`. For a rank behind a forwarder, set `TOWLINE_TCP_ADVERTISE` to the forwarder's address. Within a
//! host, connections use the congestion control that `TOWLINE_TCP_HOST_CONGESTION` names, since the system's may be slow
//! there (BBR is).
//!
//! `TOWLINE_CHECKSUM=true` adds a checksum (CRC-32C) to each frame. Long bodies with a checksum are sent without the kernel's
//! copy, through a pipe.
//!
//! # udp
//!
//! Datagrams are sent and received in batches that the kernel splits and joins (`UDP_SEGMENT`, `UDP_GRO`), if a test at start
//! shows that it can. A link acknowledges frames and verifies their checksums. Lost frames are found by the order in which
//! frames left (RACK, RFC 8985).
//!
//! If a simulated rail loses frames, this share of its bandwidth is left (`towline soak --sim --goodput`): 96 % with 1 %
//! lost, 95 % with 5 %, 94 % with 10 %, 39 % with 30 %.
//!
//! # verbs
//!
//! Each peer has a reliable queue pair (RC); receive buffers are shared by all peers (SRQ), so memory does not grow with the
//! number of peers. Short frames are sent inline, and only every n-th send is signalled. Connections are made on first use,
//! by datagrams of the device (UD). Both ends prove that they know the job's key. A host may have several ports and links.
//!
//! Devices move long messages from memory to memory without a copy, in pieces. Over Soft-RoCE the receiver's device gets
//! messages of 64 KiB and more. With other devices, the sender's device puts messages of 1 MiB and more; the first bytes are
//! sent in fragments while memory is registered. The settings `TOWLINE_VERBS_DIRECT_...` change this. If a device cannot go
//! on, the rest of the message is sent in fragments. Other links to the same peer carry their share in fragments.
//!
//! Building it takes cmake and libclang; libibverbs is looked up at run time. It is tested on Soft-RoCE (RoCE v2) in a
//! virtual machine (`host-tests/scripts/verbs`). RoCE v1, InfiniBand, devices with several ports and faults of a device
//! itself are covered by unit tests only; they have never run on hardware.
//!
//! # dpu
//!
//! A DPU matches and moves all messages of the job's communicators. The rank posts commands and reads completions, so messages make
//! progress while it computes: `towline perf --mode overlap` measures that. All ranks name `dpu`, and each needs a window of its own
//! in `TOWLINE_DPU_WINDOWS`. Windows that the library allocates lie in the memory of the DPUs, which serve
//! [one-sided operations](super::one_sided) on them. Other windows use the other transports, which are sm and tcp if no other one is named.
//!
//! A DPU that reaches the memory of its rank reads and writes messages of 64 KiB or more where they lie, if they are one piece of memory:
//! a process of the same machine does, such as the DPU of board linux. Then it can access all memory of the process, so its
//! firmware is trusted with that; `TOWLINE_DPU_HOST_MEMORY=false` denies it. Under Linux the kernel must let the DPU's process access
//! that of the rank: both run as the same user, and `kernel.yama.ptrace_scope` is 0, or the DPU's process has the capability
//! `CAP_SYS_PTRACE`. If the DPU cannot access the memory of an operation, this ends with [`Error::BadMemory`](crate::Error::BadMemory), and
//! at a receiver with [`Error::Aborted`](crate::Error::Aborted): memory of other devices, for example, needs the setting.
//!
//! All other messages are copied to and from the memory of the DPU, unless they lie in it:
//! [`Communicator::device_buffer`](crate::Communicator::device_buffer). A message that is copied may have about a third of the DPU's
//! memory. A longer one goes in pieces, for which both ranks have to make calls. If the firmware is too old for that (its window has a version
//! before 1.4), it is refused with [`Error::TooLong`](crate::Error::TooLong). If the DPU has no room for more posted receives, the rank takes
//! them over, so that none waits for another.
//!
//! If a firmware fails or is reset, the operations of its rank and of others with it end with
//! [`Error::DeviceFailed`](crate::Error::DeviceFailed). All ranks go on by the other transports, each from its next call on, and messages
//! keep their order. If messages were lost although their sends were complete, a receive says so once and names their sender:
//! [`Error::MessagesLost`](crate::Error::MessagesLost). The example `tasks` repeats what was lost. Two limits: no rank receives by the other
//! transports before all ranks have made a call, and a rank that lets more messages of another one wait than its DPU has room for
//! (`unexpected`) must receive them first.
//!
//! A job has at most as many ranks as the firmware has room for: 256 on a board that runs Linux, 16 on the others. With more, each rank ends
//! at its start, with an error that says so. A rank that was restarted is accepted again, unless a DPU has failed before, or ranks have
//! several contexts. Messages that no receive has taken at the end are reported as with other transports (`TOWLINE_UNMATCHED`), but a rank
//! that waits to send such a message gets no error: its message counts as received. Messages of communicators that were dropped before are
//! not counted. More than 1024
//! sends of a rank that wait for their receives keep its later sends in the host, also those to other ranks. Traffic between DPUs is not signed and not
//! encrypted, so their network must be closed to others. Without hardware, `towline dpu up` starts DPUs as processes.
//!
//! A firmware for Linux, or for a board that `towline dpu up` starts in the emulator, sleeps while it has nothing to do, and so does a rank
//! that waits for its DPU: each wakes the other by a pipe beside the window. Other firmware looks for work at any time, and a rank that waits for it looks for its end about once in a millisecond.
//! `towline dpu log WINDOW | defmt-print -e PROGRAM` prints the log of a firmware, also of one that has failed.
//!
//! # dpu-frames
//!
//! A DPU carries the frames of an engine in the host, as a network card does, and the rank matches its messages itself. So all operations
//! of the library go over it, one-sided operations and runtimes with the BTL face too. It is slower than `dpu` and makes no progress
//! while a rank computes, unless it has a progress thread. A job has `dpu` or `dpu-frames`, not both. A process needs a window of its own, as
//! for `dpu`; `towline info` shows which DPU it gets.
//!
//! - **Alone**: `--transport dpu-frames`. Frames are messages between the DPUs, which are reliable. If a firmware fails, operations with
//!   all ranks that only it reaches end with [`Error::DeviceFailed`](crate::Error::DeviceFailed), and these ranks are lost.
//! - **Beside others**: `--transport tcp,dpu-frames`. Both are links then: long messages are striped over them, and if a firmware fails,
//!   tcp sends its frames again, so nothing is lost. Where sm is named, too, it carries the messages within a host.
//!
//! A rank that makes no call of the library keeps at most half of the buffers of another rank's rail. The limits of ranks are those of
//! `dpu`, and restarted ranks are accepted.
//!
//! # A transport of your own
//!
//! A rail is an implementation of the trait [`Rail`](crate::Rail), in a crate of its own.
//! [`Builder::rail`](crate::Builder::rail) adds it to a world; `core/src/rail/README.md` in the repository describes the
//! contract of a rail, and the conformance kit in `host-tests/src/kit` checks it.
