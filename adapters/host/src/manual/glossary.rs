//! Glossary: the terms of Towline, and their names in Open MPI, UCX, libfabric and elsewhere.
//!
//! # Jobs
//!
//! | term | meaning | Open MPI | UCX | libfabric and others |
//! |---|---|---|---|---|
//! | job | processes that are started together and share a secret key | job | - | - |
//! | rank | number of a process in a communicator | rank, proc | - | - |
//! | context | an address (rank, index) with an engine of its own, for one thread | - | worker (`ucp_worker_h`) | scalable endpoint context |
//! | launcher | starts the ranks and serves their exchange | `mpirun`, PRRTE | - | process manager (PMI, PMIx) |
//! | module exchange (modex) | what ranks publish and read before they talk | modex | worker address exchange | address vector insertion; PMI put, fence, get |
//! | card | what one rail publishes about itself: the addresses under which it can be reached | modex entry of a BTL | device and interface address | endpoint name (`fi_getname`); "business card" in MPICH |
//! | incarnation | the number of a rank's process: 1, and one more after each restart | - | - | ULFM: respawned process |
//!
//! # Transports
//!
//! | term | meaning | Open MPI | UCX | libfabric and others |
//! |---|---|---|---|---|
//! | rail | one path to peers: an implementation of the trait `Rail` | BTL module | UCT interface | endpoint (`fid_ep`) |
//! | link | what makes a rail reliable: numbers, acknowledgements, retransmission | (PML `dr`, removed) | reliability of `uct_ud` | RxD provider |
//! | endpoint | a rail's handle for one peer | BTL endpoint | `uct_ep_h` | `fi_addr_t` |
//! | exclusivity | priority of a rail in the selection: only rails of the highest exclusivity that reach a peer are used | `btl_exclusivity` | transport priority | provider order |
//! | capabilities | promises of a rail, as flags | `btl_flags` | `UCT_IFACE_FLAG_*` | `fi_info` caps and mode |
//! | lane | the purpose for which a rail is chosen: first frames, bulk data or control | `btl_eager`, `btl_send`, `btl_rdma` lists | lane | - |
//! | striping | a long message divided over several rails | striping (ob1) | multi-rail | multi-rail (mrail) |
//! | failover | other links carry the undelivered frames of a broken link | PML `bfo` (removed) | - | - |
//! | migrated frame | a frame that another link sends again after its first link broke | - | - | - |
//! | loopback | the rail of a rank to itself | `self` | `self` | - |
//! | frame | the unit that a rail carries: a tag, a header, a body | fragment, descriptor | active message | packet |
//! | active-message tag | the consumer at the receiver that a frame is for | `mca_btl_base_tag_t` | active message id | - |
//! | slot | a place in a table of fixed size, or in a ring; pools name it by number and generation | free-list item | memory pool element | - |
//! | grant | memory of a rail that a sender has reserved for one frame | - | `am_bcopy` buffer | `inject` buffer |
//! | sink | the memory into which a receiver lets a rail write a body | - | - | posted receive buffer |
//! | doorbell | a word in shared memory that tells a peer of something new | fast box, FIFO | - | doorbell of a device |
//! | floor | a layer of the code, which imports only from lower ones | - | - | - |
//! | progress | handling frames that have arrived, and sending frames that wait | `opal_progress` | `ucp_worker_progress` | reading a completion queue |
//! | wait handle | a file descriptor to sleep on until something comes | - | wakeup: `ucp_worker_get_efd` | wait object (`FI_WAIT_FD`) |
//! | progress thread | a thread of the library that makes progress | async progress | progress thread | `FI_PROGRESS_AUTO` |
//!
//! # Messages
//!
//! | term | meaning | Open MPI | UCX | libfabric and others |
//! |---|---|---|---|---|
//! | message | the data that one send passes to one receive | message | tagged message | tagged message |
//! | matching | finding the receive of a message by context, source and tag | matching (PML, MTL) | tag matching | `fi_trecv`; Portals match entry |
//! | envelope | source, tag and length of a message | match header | tag and length | `fi_cq_tagged_entry` |
//! | matched message | a message that a probe has taken | `MPI_Message` (mprobe) | `ucp_tag_message_h` | `FI_PEEK`, `FI_CLAIM` |
//! | unexpected message | a message that comes before its receive | unexpected fragment | unexpected descriptor | unexpected message |
//! | unit | a piece of memory for the payload of one unexpected message | - | - | - |
//! | credit | how many envelopes and units a sender may still use at a receiver | - | - | flow control; Portals `PT_DISABLED` |
//! | eager | a message that is sent whole, before the sender knows of its receive | eager, `btl_eager_limit` | eager | eager |
//! | rendezvous | a message whose header is sent first; the rest follows when a receive has matched it | rendezvous, RNDV | rendezvous | rendezvous |
//! | fragment | a part of a message | fragment | fragment | segment |
//! | layout | which bytes of a buffer make up a message, and in which order | datatype, convertor | datatype, IOV | iov |
//! | request | an operation in progress | request | request | operation context |
//! | handle | slot and generation of a request or registration; a stale handle is refused | pointer | pointer | index (`ofi_indexer`) |
//!
//! # One-sided operations
//!
//! | term | meaning | Open MPI | UCX | libfabric and others |
//! |---|---|---|---|---|
//! | one-sided operation | put, get or atomic | RMA, OSC | RMA: `ucp_put_nbx`, `ucp_get_nbx` | `fi_write`, `fi_read`, `fi_atomic` |
//! | window | memory of each rank that all ranks can access | `MPI_Win` | - | memory region |
//! | initiator, target | the rank that begins a one-sided operation, and the rank whose memory it accesses | origin, target | - | initiator, target |
//! | registration | memory that peers or devices may access, with rights | registration handle | `ucp_mem_h`, `ucp_rkey_h` | `fi_mr_reg`, key |
//! | flush | wait until operations are done at the target | `btl_flush`, `MPI_Win_flush` | `ucp_ep_flush_nbx` | `FI_DELIVERY_COMPLETE` |
//! | emulated | a one-sided operation that is done by active messages | `btl_base_am_rdma` | software RMA | emulated RMA (RxM, RxD) |
//! | native | a one-sided operation that is done by the device, or by the initiator in mapped memory | native | native | native |
//! | exposed memory | memory of a sender that a receiver may read by itself, described by a remote buffer of 16 bytes | single copy of vader | rendezvous with `rkey` | - |
//! | single copy | the receiver copies directly from the sender's memory | smsc: CMA, KNEM, XPMEM | rkey and get zcopy (CMA) | CMA, XPMEM (shm provider) |
//! | accelerator | a device with memory of its own | accelerator framework | memory type | `FI_HMEM` |
//!
//! # Reliability
//!
//! | term | meaning | elsewhere |
//! |---|---|---|
//! | acknowledgement (ack) | reports which frames have arrived | RFC 9293; selective: RFC 2018 |
//! | duplicate | a frame that has arrived before | D-SACK, RFC 2883 |
//! | reordering | a frame arrives before one that left earlier | RFC 8985 |
//! | gap | a number of a link with which no frame will come, because its frame migrated and names another link as its origin | - |
//! | nack | a receiver's request for frames that it refused or lost | NAK, RFC 4585 |
//! | probe | a frame that asks for an acknowledgement, to find the loss of the last frames or a silent peer | tail loss probe, RFC 8985 |
//! | hello | the first frame of a handshake | SYN, RFC 9293; ClientHello of TLS |
//! | loss detection | losses are found by the order in which frames left, and losses of the last frames by probes | RACK-TLP, RFC 8985 |
//! | retransmission time-out | the time without an acknowledgement after which a frame is sent again | RFC 6298 |
//! | congestion window | how many frames may be unacknowledged | RFC 5681 |
//! | replay window | the datagram numbers that have been seen, so that a replayed datagram is refused | RFC 4303 (ESP), RFC 6347 (DTLS) |
//! | RMA window | how many requests to one target may be unanswered | `max_rd_atomic` of verbs |
//! | heartbeat, keepalive | a frame that asks whether a peer is alive | UCX keepalive; RFC 9293 keep-alive |
//! | session | the connection of two ends since their last handshake; frames of earlier sessions are refused | connection id; epoch of DTLS |
//! | peer lost | a process that ended, or to which no path is left | process failure (ULFM) |
//! | stall | a process that is alive and makes no progress | - |
