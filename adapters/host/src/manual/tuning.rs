//! Tuning: every setting, and which ones matter.
//!
//! A setting is a field of [`Config`](crate::Config), set by the program with
//! [`Builder::configure`](crate::Builder::configure), and an environment variable with the same name, which has the last word.
//! `towline info` lists all settings with their values and says who set them.
//!
//! ```
//! let tunables = towline::Config::default().tunables()?;
//! let spin = tunables.iter().find(|tunable| tunable.name == "spin_us").unwrap();
//! assert_eq!((spin.unit, spin.variable), ("us", "TOWLINE_SPIN_US"));
//! # Ok::<(), towline::SetupError>(())
//! ```
//!
//! # What to try first
//!
//! | goal | settings |
//! |---|---|
//! | lowest latency, processors to spare | a larger `TOWLINE_SPIN_US` |
//! | more ranks than processors | nothing: waiting ranks then sleep at once, and rings of sm become longer |
//! | less processor time while idle | a smaller `TOWLINE_SPIN_US` and `TOWLINE_YIELD_US` |
//! | less memory | `TOWLINE_UNITS`, `TOWLINE_UNEXPECTED`, `TOWLINE_SM_EAGER_RING_BYTES`, `TOWLINE_SM_BULK_RING_BYTES`, `TOWLINE_VERBS_RECEIVE_BUFFERS` |
//! | use one network only | `TOWLINE_TCP_INCLUDE`, `TOWLINE_UDP_INCLUDE`, `TOWLINE_VERBS_DEVICES` |
//! | notice silent hosts sooner | a smaller `TOWLINE_PEER_TIMEOUT_MS` |
//! | give up ranks that hang | `TOWLINE_STALL_TIMEOUT_MS` |
//! | survive a broken link | `TOWLINE_LINKS` of 2 or more |
//! | find corrupted data | `TOWLINE_CHECKSUM` |
//!
//! The tables below are generated from the table of settings; a test compares them.
//!
//! # The job, memory and waiting
//!
//! <!-- settings -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_TRANSPORTS` | empty | Transports to use, such as `sm,tcp`; empty for these two, if they work here: udp and verbs are used only where they are named |
//! | `TOWLINE_LINKS` | `1` | Links of tcp, of udp and of verbs to each peer, over which long messages are striped: 1 to 64. Of several links, frames of one that breaks down go by the others |
//! | `TOWLINE_STARTUP_TIMEOUT_MS` | `60000` ms | How long to wait for all ranks to come up |
//! | `TOWLINE_FINISH_TIMEOUT_MS` | `60000` ms | How long to wait at the end for all ranks to come to their end |
//! | `TOWLINE_PEER_TIMEOUT_MS` | `5000` ms | How long a host may answer nothing before its ranks are given up; 0 leaves that to the kernel, whose limit is hours. RDMA devices are asked for 30 s at most, also for 0, and may take up to four times what they are asked for. A rank that computes or is stopped is not given up |
//! | `TOWLINE_STALL_TIMEOUT_MS` | `0` ms | How long a rank that something is waited for may make no progress before it counts as dead, whatever transport leads to it: also one that is stopped, or that computes without a progress thread; 0 waits for ever |
//! | `TOWLINE_REQUESTS` | `65536` | Operations under way at most; memory is taken as they are used |
//! | `TOWLINE_UNEXPECTED` | `0` | Envelopes for messages that come before their receive, shared among all peers; 0 for 128 a peer, 4096 at least |
//! | `TOWLINE_UNITS` | `0` | Payload units for messages that come before their receive, shared among all peers; 0 for 32 a peer, 1024 at least |
//! | `TOWLINE_UNIT_BYTES` | `65536` B | Bytes of a payload unit at most: no longer message goes to this process before its receive. Less where no transport sends as much at once, and, unless `units` is set, where all units would take over 64 MiB, down to 8 KiB |
//! | `TOWLINE_COMMUNICATORS` | `256` | Communicators at most |
//! | `TOWLINE_SPIN_US` | `50` us | How long a waiting rank polls, and lets others run now and then; not at all where ranks outnumber processors |
//! | `TOWLINE_YIELD_US` | `200` us | How long it then lets others run after each poll, before it sleeps; a tenth of it where ranks outnumber processors |
//! | `TOWLINE_IDLE_SLEEP_MS` | `500` ms | How long a waiting rank sleeps at a time, though nothing wakes it |
//! | `TOWLINE_PROGRESS_THREAD` | `auto` | Whether a thread of the library makes progress while the program computes: `always`, `never`, or `auto`: where udp is used, which loses frames and tells of lost hosts by heartbeats. The same for all ranks |
//! | `TOWLINE_UNWIND_TIMEOUT_MS` | `10000` ms | How long a panicking rank waits for messages from borrowed memory, before it ends the process |
//! | `TOWLINE_ENCRYPT` | `between-hosts` | When connections of tcp and udp are encrypted: `off`, `between-hosts` (not those of ranks on one host; containers with a network of their own count as hosts) or `always`; ranks where this comes to different things refuse each other. What goes by verbs is never encrypted, so verbs does not work with `always`. Peers prove in any case that they know the job's key |
//! | `TOWLINE_CHECKSUM` | `false` | Check tcp's frames by sums of our own, beyond the network's; udp's always are |
//! | `TOWLINE_LINK_WINDOW` | `256` | Frames to one peer that may be unacknowledged, by each link that acknowledges: a power of two from 4 to 1024 |
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
//! | `TOWLINE_SM_EAGER_RING_BYTES` | `65536` B | Ring of sm for short frames, per peer sent to: a power of two |
//! | `TOWLINE_SM_EAGER_LIMIT_BYTES` | `8248` B | Longest short frame of sm, header included |
//! | `TOWLINE_SM_BULK_RING_BYTES` | `0` B | Ring of sm for fragments of long messages, per peer sent to: a power of two; 0 for 256 KiB, and where ranks outnumber processors for up to 4 MiB, so that they take turns less often |
//! | `TOWLINE_SM_BULK_LIMIT_BYTES` | `16376` B | Longest fragment of sm, header included |
//! | `TOWLINE_SM_SINGLE_COPY_BYTES` | `8192` B | Messages from so many bytes on may be read by their receiver from where they lie, through the kernel, where that works; 0 for none |
//! | `TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES` | `1048576` B | Longer messages of sm are copied through a ring: the receiver does nothing else during a single copy |
//! | `TOWLINE_SM_WINDOWS` | `true` | Whether ranks that sm connects reach into each other's windows themselves; else the target does it when it makes progress |
//! | `TOWLINE_SM_LIVENESS_MS` | `250` ms | How often sm looks for dead peers |
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
//! | `TOWLINE_TCP_EXCLUDE` | empty | Interfaces or networks that tcp leaves alone; empty for container bridges |
//! | `TOWLINE_TCP_PORTS` | `0` | Ports that tcp listens on, such as `5000-5100`; 0 lets the system choose |
//! | `TOWLINE_TCP_ADVERTISE` | empty | Address and port that other ranks connect to instead, of something that forwards to this rank's: further links have the ports after it; empty for none |
//! | `TOWLINE_TCP_EAGER_LIMIT_BYTES` | `65600` B | Longest short frame of tcp, header included |
//! | `TOWLINE_TCP_RENDEZVOUS_BYTES` | `8192` B | What of a longer message goes ahead, before its receive is known |
//! | `TOWLINE_TCP_MAX_SEND_BYTES` | `1048576` B | Longest fragment of tcp, header included |
//! | `TOWLINE_TCP_IN_PLACE_BYTES` | `8192` B | Bodies from this size on leave from where they lie |
//! | `TOWLINE_TCP_SPLICE_BYTES` | `65536` B | Bodies from this size on leave without a copy, by a pipe, where TOWLINE_CHECKSUM is on and they are not encrypted |
//! | `TOWLINE_TCP_PIPE_BYTES` | `1048576` B | That pipe, one for each link, of two descriptors; 0 for none |
//! | `TOWLINE_TCP_SEND_STAGING_BYTES` | `262144` B | Staging of tcp for frames that wait to leave, per connection |
//! | `TOWLINE_TCP_SOCKET_BYTES` | `0` B | The kernel's send and receive buffers of each connection; 0 leaves them to the kernel |
//! | `TOWLINE_TCP_HOST_CONGESTION` | `reno` | Congestion control of connections within a host, by the kernel's name; empty leaves it to the system |
//! | `TOWLINE_TCP_EPOLL_POLLS` | `64` | Idle polls of tcp between two looks at all connections |
//! | `TOWLINE_TCP_BANDWIDTH_MB_S` | `3000` MB/s | Share of a tcp link in striping |
//! | `TOWLINE_TCP_CONNECT_TIMEOUT_MS` | `120000` ms | From the first message to a peer to the connection: a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # udp
//!
//! <!-- settings UDP_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_UDP_INCLUDE` | empty | Interfaces or networks that udp may use, such as `eth*,10.0.0.0/8`; empty for all. Each link uses one of them: the loopback where all ranks are on one host |
//! | `TOWLINE_UDP_EXCLUDE` | empty | Interfaces or networks that udp leaves alone; empty for container bridges |
//! | `TOWLINE_UDP_PORTS` | `0` | Ports that udp uses, such as `5000-5100`; 0 lets the system choose |
//! | `TOWLINE_UDP_ADVERTISE` | empty | Address and port that other ranks send to instead, of something that forwards to this rank's: further links have the ports after it; empty for none |
//! | `TOWLINE_UDP_DATAGRAM_BYTES` | `0` B | Longest datagram; 0 for what goes whole through the interface, up to 16 KiB |
//! | `TOWLINE_UDP_SIGN` | `network` | When each datagram is signed, so that nobody on the way can change any: `always`, `never`, or `network`: unless it stays on this host |
//! | `TOWLINE_UDP_SEGMENTATION` | `true` | Let the kernel cut and join datagrams, where it can |
//! | `TOWLINE_UDP_PACING_MB_S` | `0` MB/s | What a udp link sends at most; 0 for as much as it goes |
//! | `TOWLINE_UDP_BANDWIDTH_MB_S` | `2000` MB/s | Share of a udp link in striping |
//! | `TOWLINE_UDP_SEND_BUFFER_BYTES` | `4194304` B | The kernel's send buffer of each socket; the system bounds it (net.core.wmem_max) |
//! | `TOWLINE_UDP_RECEIVE_BUFFER_BYTES` | `4194304` B | The kernel's receive buffer of each socket: what comes while it is full has to come again; the system bounds it (net.core.rmem_max) |
//! | `TOWLINE_UDP_CONNECT_TIMEOUT_MS` | `120000` ms | From the first message to a peer to its answer: a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # verbs
//!
//! <!-- settings VERBS_ -->
//!
//! | variable | default | effect |
//! |---|---|---|
//! | `TOWLINE_VERBS_DEVICES` | empty | RDMA devices, or ports of them such as `mlx5_0:1`, that verbs may use; empty for all that are up. Links, and the ranks of a host, take turns on them; of several networks a link uses one, by its number |
//! | `TOWLINE_VERBS_GID_INDEX` | empty | Which of a port's addresses verbs uses, by its number; empty to choose: RoCE v2 before v1, IPv4 before IPv6 |
//! | `TOWLINE_VERBS_PATH_MTU` | `0` B | Bytes of a packet at most; 0 for as many as both ports carry |
//! | `TOWLINE_VERBS_TRAFFIC_CLASS` | `0` | Mark of packets for the network's quality of service: traffic class with RoCE, service level with InfiniBand |
//! | `TOWLINE_VERBS_WINDOWS` | `false` | Whether the devices put to windows and get from them by themselves, where no rail maps them, so that the target need not make progress; whoever then uses a window that its owner has dropped loses the connection to the owner |
//! | `TOWLINE_VERBS_DIRECT_BYTES` | empty B | From how many bytes on the devices move a message that this rank receives from the sender's memory to its own, without a copy; 0 for never; empty for what suits the device, which then says the next three, too |
//! | `TOWLINE_VERBS_DIRECT_AFTER_BYTES` | `65536` B | Bytes of such a message that go in fragments while memory is registered for the first piece, where `TOWLINE_VERBS_DIRECT_BYTES` is set |
//! | `TOWLINE_VERBS_DIRECT_PIECE_BYTES` | `1048576` B | Longest piece of such a message: so much memory is registered, and moved, at a time, where `TOWLINE_VERBS_DIRECT_BYTES` is set |
//! | `TOWLINE_VERBS_DIRECT_GET` | `false` | Whether the receiver's device gets such messages, where `TOWLINE_VERBS_DIRECT_BYTES` is set; else the sender's puts them |
//! | `TOWLINE_VERBS_EAGER_LIMIT_BYTES` | `65600` B | Longest short frame of verbs, header included; less where devices move shorter messages than that |
//! | `TOWLINE_VERBS_MAX_SEND_BYTES` | `65600` B | Longest fragment of verbs, header included |
//! | `TOWLINE_VERBS_INLINE_BYTES` | `220` B | Frames up to this length go within their work request, as far as the device can do that |
//! | `TOWLINE_VERBS_SIGNAL_EVERY` | `8` | The device tells of each so-many-th frame that it has arrived |
//! | `TOWLINE_VERBS_RECEIVE_BUFFERS` | `128` | Buffers of a verbs link for what comes from all peers, of a fragment each: memory that stays in place |
//! | `TOWLINE_VERBS_BANDWIDTH_MB_S` | `6000` MB/s | Share of a verbs link in striping |
//! | `TOWLINE_VERBS_CONNECT_TIMEOUT_MS` | `120000` ms | From the first message to a peer to the connection: a peer that computes answers late |
//!
//! <!-- end -->
//!
//! # Variables of the launcher
//!
//! Ranks also read `TOWLINE_RANK`, `TOWLINE_SIZE`, `TOWLINE_ROOT`, `TOWLINE_JOB`, `TOWLINE_KEY`, `TOWLINE_LISTEN`,
//! `TOWLINE_HOST` and `TOWLINE_LOCAL`, which `towline run` sets: see [`bootstrap`](crate::bootstrap). `TOWLINE_TRACE=1` has the
//! simulator (`towline soak --sim`) print everything that happens.
