//! Tuning: every setting, and which ones matter.
//!
//! A setting is a field of [`Config`](crate::Config), set by the program with
//! [`Builder::configure`](crate::Builder::configure), and an environment variable of the same name, which overrides the
//! program. `towline info` lists all settings with their values, and whether the program or the environment set them.
//!
//! ```
//! let settings = towline::Config::default().settings()?;
//! let spin = settings.iter().find(|setting| setting.name == "spin_us").unwrap();
//! assert_eq!((spin.unit, spin.variable), ("us", "TOWLINE_SPIN_US"));
//! # Ok::<(), towline::SetupError>(())
//! ```
//!
//! # Wrong settings
//!
//! A value that the environment or the program gives is kept, or is an error: [`SetupError::Setting`](crate::SetupError::Setting)
//! names the variable, the value, the reason and the possible values. Most errors are found before a rank starts. Some depend on
//! the machine of a rank, such as a directory that does not exist, or a buffer above a limit of the system. A setting with its
//! default value adapts to the others: if `TOWLINE_TCP_EAGER_LIMIT_BYTES` is lower than the default of
//! `TOWLINE_TCP_RENDEZVOUS_BYTES`, for example, fewer bytes are sent with a rendezvous header.
//!
//! There are two warnings, and each is printed once per job, by the launcher or by rank 0. If the program has a logger (crate
//! `log`), rank 0 passes them to it.
//!
//! | warning | meaning |
//! |---|---|
//! | `TOWLINE_... is set, but this version of Towline has no such setting` | a misspelt name, or a setting of another version; the nearest name is suggested |
//! | `transport ... does not work here, and is left out` | no user named the transport, and it fails for a reason that is no setting; the text has the reason and the ranks |
//!
//! With `TOWLINE_STRICT=true` both are errors. Variables whose names begin with `TOWLINE_TEST_` are never settings.
//!
//! # What to try first
//!
//! | goal | settings |
//! |---|---|
//! | lowest latency, processors to spare | a larger `TOWLINE_SPIN_US` |
//! | more ranks than processors | nothing: waiting ranks do not poll then, and rings of sm are longer |
//! | less processor time while idle | a smaller `TOWLINE_SPIN_US` and `TOWLINE_YIELD_US` |
//! | less memory | `TOWLINE_UNITS`, `TOWLINE_UNEXPECTED`, `TOWLINE_SM_EAGER_RING_BYTES`, `TOWLINE_SM_BULK_RING_BYTES`, `TOWLINE_VERBS_RECEIVE_BUFFERS` |
//! | use one network only | `TOWLINE_TCP_INCLUDE`, `TOWLINE_UDP_INCLUDE`, `TOWLINE_VERBS_DEVICES` |
//! | notice silent hosts sooner | a smaller `TOWLINE_PEER_TIMEOUT_MS` |
//! | find messages that are never received | `TOWLINE_UNMATCHED=error` |
//! | give up ranks that hang | `TOWLINE_STALL_TIMEOUT_MS` |
//! | survive a broken link | `TOWLINE_LINKS` of 2 or more |
//! | find corrupted data | `TOWLINE_CHECKSUM` |
//!
//! The tables below are generated from the definitions of the settings, and a test compares them.
//!
//! # The job, memory and waiting
//!
//! <!-- settings -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_TRANSPORTS` | empty | Transports to use, such as `sm,tcp`; empty for these two, if they work here; udp, verbs, dpu and dpu-frames are used only if they are named; dpu alone stands for `sm,tcp,dpu` |
//! | `TOWLINE_LINKS` | `1` | Links of tcp, of udp and of verbs to each peer, over which long messages are striped: 1 to 64. With several links, the frames of a link that fails are sent by the others |
//! | `TOWLINE_BUNDLE` | `false` | Whether a runtime that does its own matching (BTL face) gets one module for all `links` of a transport, which goes on while one of them works, instead of one module for each. All processes need the same value. Ranks and workers need no bundle for that |
//! | `TOWLINE_STARTUP_TIMEOUT_MS` | `60000` ms | How long to wait for all ranks to start |
//! | `TOWLINE_FINISH_TIMEOUT_MS` | `60000` ms | How long to wait for all ranks to finish |
//! | `TOWLINE_PEER_TIMEOUT_MS` | `5000` ms | How long a host may be silent before its ranks count as lost; 0 leaves that to the kernel, whose limit is hours. RDMA devices use at most 30 s, also for 0, and may take up to four times the set time. A rank that computes or is stopped is not lost |
//! | `TOWLINE_STALL_TIMEOUT_MS` | `0` ms | A rank for which another one waits counts as dead when it has made no progress for this time, over any transport; this includes a rank that is stopped, or that computes without a progress thread; 0 for no limit |
//! | `TOWLINE_BOOTSTRAP` | `auto` | How ranks join their job: `own` by `towline run` or the variables of `TOWLINE_RANK`, `pmix` by a PMIx launcher (mpirun, prterun, srun), `auto` for the one that has started the process |
//! | `TOWLINE_PMIX_LIBRARY` | empty | Path of the PMIx library; empty for `libpmix.so.2`, where the system finds it |
//! | `TOWLINE_REQUESTS` | `65536` | Most operations in progress at a time; entries that were never used take no memory |
//! | `TOWLINE_UNEXPECTED` | `0` | Envelopes for messages that arrive before their receive is posted, for all peers together; 0 for 128 for each peer, and at least 4096 |
//! | `TOWLINE_UNITS` | `0` | Payload units for messages that arrive before their receive is posted, for all peers together; 0 for 32 for each peer, and at least 1024 |
//! | `TOWLINE_UNIT_BYTES` | `65536` B | Length of a payload unit: a longer message is sent to this process only after its receive is posted. Units are shorter if no transport sends as much in one frame. Unless this or `units` is set, they are also shorter if all units together would take more than 64 MiB, but at least 8 KiB |
//! | `TOWLINE_COMMUNICATORS` | `256` | Most communicators |
//! | `TOWLINE_SPIN_US` | `50` us | How long a waiting rank polls, and yields the processor now and then, if no rank has to share its processor |
//! | `TOWLINE_YIELD_US` | `200` us | How long a waiting rank then yields the processor after each poll, before it sleeps: for each rank that shares the processor; not where another program keeps the processor then |
//! | `TOWLINE_IDLE_SLEEP_MS` | `500` ms | Longest sleep of a waiting rank, if nothing wakes it |
//! | `TOWLINE_PROGRESS_THREAD` | `auto` | Whether a thread of the library makes progress while the program computes: `always`, `never`, or `auto`: only with udp, which loses frames and detects lost hosts by heartbeats. All ranks need the same value |
//! | `TOWLINE_UNWIND_TIMEOUT_MS` | `10000` ms | How long a panicking rank waits until messages from borrowed memory have been sent, before it aborts the process |
//! | `TOWLINE_FINISH_REPORT_MS` | `1000` ms | A rank that has waited in `finish` for this time makes the launcher print once for whom all ranks wait; 0 for never |
//! | `TOWLINE_UNMATCHED` | `warn` | What happens at the end for messages that no receive has taken: `warn` prints one line for the job, `error` also makes `finish` and the job fail, `ignore` does nothing |
//! | `TOWLINE_ENCRYPT` | `between-hosts` | When connections of tcp and udp are encrypted: `off`, `between-hosts` (not between ranks of one host; containers with a network of their own count as hosts) or `always`; two ranks for which this has different results refuse each other. Data sent by verbs is never encrypted, so verbs does not work with `always`. In any case peers prove that they know the job's key |
//! | `TOWLINE_CHECKSUM` | `false` | Whether frames of tcp have checksums of the library, beside those of the network; frames of udp always have them |
//! | `TOWLINE_LINK_WINDOW` | `256` | Most unacknowledged frames to one peer, for each link with acknowledgements: a power of two from 4 to 1024 |
//! | `TOWLINE_STRICT` | `false` | Whether warnings about the start of a job are errors: an unknown variable whose name begins with `TOWLINE_`, and a transport that is left out because it does not work |
//!
//! <!-- end -->
//!
//! # Shared memory
//!
//! <!-- settings SM_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_SM_DIRECTORY` | `/dev/shm` | File system in memory that holds the segments of sm |
//! | `TOWLINE_SM_EAGER_RING_BYTES` | `65536` B | Ring of sm for eager frames, for each peer that is sent to: a power of two; shorter where shared memory is short |
//! | `TOWLINE_SM_EAGER_LIMIT_BYTES` | `8248` B | Longest eager frame of sm, with its header |
//! | `TOWLINE_SM_BULK_RING_BYTES` | `0` B | Ring of sm for fragments of long messages, for each peer that is sent to: a power of two; 0 for 256 KiB, and for up to 4 MiB where there are more ranks than processors, so that there are fewer context switches; shorter where shared memory is short |
//! | `TOWLINE_SM_BULK_LIMIT_BYTES` | `16376` B | Longest fragment of a long message, with its header |
//! | `TOWLINE_SM_SINGLE_COPY_BYTES` | `0` B | The receiver reads messages of at least this length from the sender's memory through the kernel, in a single copy, where that works; 0 for none |
//! | `TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES` | `1048576` B | Messages longer than this are copied through a ring, as the receiver makes no other progress during a single copy |
//! | `TOWLINE_SM_WINDOWS` | `true` | Whether ranks that sm connects access each other's windows themselves; otherwise the target does that when it makes progress |
//! | `TOWLINE_SM_LIVENESS_MS` | `250` ms | Time between two checks of sm for dead peers |
//!
//! <!-- end -->
//!
//! # tcp
//!
//! <!-- settings TCP_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_TCP_INCLUDE` | empty | Interfaces or networks that tcp may use, such as `eth*,10.0.0.0/8`; empty for all |
//! | `TOWLINE_TCP_EXCLUDE` | empty | Interfaces or networks that tcp does not use; empty for container bridges |
//! | `TOWLINE_TCP_PORTS` | `0` | Ports on which tcp listens, such as `5000-5100`; 0 lets the system choose |
//! | `TOWLINE_TCP_ADVERTISE` | empty | Address and port of a forwarder to which other ranks connect instead; link n is reached at the n-th port after it; empty for none |
//! | `TOWLINE_TCP_EAGER_LIMIT_BYTES` | `65600` B | Longest eager or control frame of tcp, with its header |
//! | `TOWLINE_TCP_RENDEZVOUS_BYTES` | `8192` B | Bytes of a long message that are sent with its rendezvous header, before the receive is known |
//! | `TOWLINE_TCP_MAX_SEND_BYTES` | `1048576` B | Longest fragment of a long message, with its header |
//! | `TOWLINE_TCP_IN_PLACE_BYTES` | `8192` B | Bodies of at least this length are sent from the user's memory |
//! | `TOWLINE_TCP_SPLICE_BYTES` | `65536` B | Bodies of at least this length are sent without a copy in the kernel, through a pipe, where TOWLINE_CHECKSUM is on and the connection is not encrypted |
//! | `TOWLINE_TCP_PIPE_BYTES` | `1048576` B | Size of the pipe for TOWLINE_TCP_SPLICE_BYTES, one for each link, with two descriptors; 0 for none |
//! | `TOWLINE_TCP_SEND_STAGING_BYTES` | `262144` B | Staging memory for frames that wait to be sent, per connection |
//! | `TOWLINE_TCP_SOCKET_BYTES` | `0` B | The kernel's send and receive buffers of each connection; 0 leaves them to the kernel |
//! | `TOWLINE_TCP_HOST_CONGESTION` | `reno` | Congestion control of connections within a host, by its name in the kernel; empty leaves it to the system |
//! | `TOWLINE_TCP_EPOLL_POLLS` | `64` | Idle polls of tcp between two calls of epoll |
//! | `TOWLINE_TCP_BANDWIDTH_MB_S` | `3000` MB/s | Bandwidth of a tcp link, which decides its share in striping |
//! | `TOWLINE_TCP_CONNECT_TIMEOUT_MS` | `120000` ms | Time limit from the first message to a peer to its connection; a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # udp
//!
//! <!-- settings UDP_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_UDP_INCLUDE` | empty | Interfaces or networks that udp may use, such as `eth*,10.0.0.0/8`; empty for all. Each link uses one of them: the loopback interface where all ranks are on one host |
//! | `TOWLINE_UDP_EXCLUDE` | empty | Interfaces or networks that udp does not use; empty for container bridges |
//! | `TOWLINE_UDP_PORTS` | `0` | Ports that udp uses, such as `5000-5100`; 0 lets the system choose |
//! | `TOWLINE_UDP_ADVERTISE` | empty | Address and port of a forwarder to which other ranks send instead; link n is reached at the n-th port after it; empty for none |
//! | `TOWLINE_UDP_DATAGRAM_BYTES` | `0` B | Longest datagram; 0 for what passes the interface unfragmented, at most 16 KiB |
//! | `TOWLINE_UDP_SIGN` | `network` | When each datagram has a MAC, so that nobody on the path can change it: `always`, `never`, or `network` for all but datagrams within this host |
//! | `TOWLINE_UDP_SEGMENTATION` | `true` | Whether the kernel segments and coalesces datagrams, where it can |
//! | `TOWLINE_UDP_PACING_MB_S` | `0` MB/s | Highest rate at which a udp link sends; 0 for no limit |
//! | `TOWLINE_UDP_BANDWIDTH_MB_S` | `2000` MB/s | Bandwidth of a udp link, which decides its share in striping |
//! | `TOWLINE_UDP_SEND_BUFFER_BYTES` | `4194304` B | The kernel's send buffer of each socket; the system limits it (net.core.wmem_max) |
//! | `TOWLINE_UDP_RECEIVE_BUFFER_BYTES` | `4194304` B | The kernel's receive buffer of each socket; datagrams that arrive while it is full are lost and sent again; the system limits it (net.core.rmem_max) |
//! | `TOWLINE_UDP_CONNECT_TIMEOUT_MS` | `120000` ms | Time limit from the first message to a peer to its answer; a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # dpu
//!
//! <!-- settings DPU_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_DPU_WINDOWS` | empty | Windows of this host's DPUs, such as `/sys/bus/pci/devices/0000:03:00.0/resource2`; each process takes the first one that no other process uses, beginning with that of its place among the ranks of this host |
//! | `TOWLINE_DPU_OPEN_TIMEOUT_MS` | `10000` ms | How long a DPU may take to begin to serve a process |
//! | `TOWLINE_DPU_SILENCE_MS` | `5000` ms | A DPU whose firmware shows no sign of life for this time, or does not answer a command, has failed |
//! | `TOWLINE_DPU_ONE_SIDED` | `true` | Whether windows lie in the memory of DPUs, if all ranks of a window allow it and it fits: then a target serves operations while it makes no call |
//! | `TOWLINE_DPU_HOST_MEMORY` | `true` | Whether the DPU reads and writes long messages where they lie in the memory of a process, if it can: then the process does not copy them, and the DPU can access all memory of the process |
//!
//! <!-- end -->
//!
//! # verbs
//!
//! <!-- settings VERBS_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_VERBS_DEVICES` | empty | RDMA devices, or ports of them such as `mlx5_0:1`, that verbs may use; empty for all that are up. The links, and the ranks of a host, use the ports in turn; if there are several networks, link n uses the n-th network |
//! | `TOWLINE_VERBS_GID_INDEX` | empty | Index of the port's address (GID) that verbs uses; empty to choose: RoCE v2 before v1, IPv4 before IPv6 |
//! | `TOWLINE_VERBS_PATH_MTU` | `0` B | Longest packet; 0 for the longest that both ports carry |
//! | `TOWLINE_VERBS_TRAFFIC_CLASS` | `0` | Quality of service of packets in the network: the traffic class with RoCE, the service level with InfiniBand |
//! | `TOWLINE_VERBS_WINDOWS` | `false` | Whether the devices execute puts and gets on windows, where no rail maps the windows, so that the target need not make progress. A rank that uses a window after its owner has dropped it then loses the connection to the owner |
//! | `TOWLINE_VERBS_DIRECT_BYTES` | empty B | Messages to this rank of at least this length are moved by the devices, from the sender's memory to the receiver's without a copy; 0 for none; empty for what suits the device, which then also decides the next three settings |
//! | `TOWLINE_VERBS_DIRECT_AFTER_BYTES` | `65536` B | Bytes at the beginning of such a message that are sent in fragments while memory is registered for the first piece, where `TOWLINE_VERBS_DIRECT_BYTES` is set |
//! | `TOWLINE_VERBS_DIRECT_PIECE_BYTES` | `1048576` B | Longest piece of such a message: the memory that is registered and moved at a time, where `TOWLINE_VERBS_DIRECT_BYTES` is set |
//! | `TOWLINE_VERBS_DIRECT_GET` | `false` | Whether the receiver's device gets such messages, where `TOWLINE_VERBS_DIRECT_BYTES` is set; otherwise the sender's device puts them |
//! | `TOWLINE_VERBS_EAGER_LIMIT_BYTES` | `65600` B | Longest eager frame of verbs, with its header; lower where the devices move shorter messages than that |
//! | `TOWLINE_VERBS_MAX_SEND_BYTES` | `65600` B | Longest fragment of a long message, with its header |
//! | `TOWLINE_VERBS_INLINE_BYTES` | `220` B | Frames of at most this length are part of their work request, as far as the device can do that |
//! | `TOWLINE_VERBS_SIGNAL_EVERY` | `8` | The device reports the completion of one frame in this many |
//! | `TOWLINE_VERBS_RECEIVE_BUFFERS` | `128` | Receive buffers of a verbs link for all peers together, each as long as a fragment; their memory is locked |
//! | `TOWLINE_VERBS_BANDWIDTH_MB_S` | `6000` MB/s | Bandwidth of a verbs link, which decides its share in striping |
//! | `TOWLINE_VERBS_CONNECT_TIMEOUT_MS` | `120000` ms | Longest time from the first message to a peer until its connection is established; a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # Variables of the launcher
//!
//! Ranks also read `TOWLINE_RANK`, `TOWLINE_SIZE`, `TOWLINE_ROOT`, `TOWLINE_JOB`, `TOWLINE_KEY`, `TOWLINE_LISTEN`,
//! `TOWLINE_HOST` and `TOWLINE_LOCAL`, which `towline run` sets: see [`bootstrap`](crate::bootstrap). With `TOWLINE_TRACE=1`
//! the simulator (`towline soak --sim`) prints all its events.
