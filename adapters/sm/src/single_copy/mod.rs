//! Single copy through the kernel: a receiver reads a long message directly from its sender's memory, with `process_vm_readv`.
//! Only the address, and the proof that the memory is still exposed, go through the ring.
//!
//! # Which process
//! A peer's own statement of its process id is not trusted. The maker of a ring holds a lock on the ring's file, and the kernel
//! names the process that holds the lock, by its process id in our namespace, regardless of containers. So a peer can make us
//! read only its own memory. The sender holds the lock until the receiver has checked the ring. The lock is an `fcntl` lock: it
//! belongs to a process, and is gone when that process closes any descriptor of the file. So a rail that looks for stale files
//! opens no ring whose sender lives.
//!
//! # Whether it works
//! The sender has a word in its own memory for each receiver, the *epoch word*, and writes its address and its first value to the
//! ring. The receiver tries to read the epoch word at that address. That fails where the system forbids it (Yama's
//! `ptrace_scope`, a container's filter, another user namespace). The receiver writes to the ring whether it worked, and the
//! sender exposes no memory before that.
//!
//! # Whether it is still the same memory
//! Each read of a message also reads the epoch word, in the same call and behind the message. The epoch word changes when the
//! sender revokes what it has exposed: when the engine asks for that, when the peer is deleted or lost, and when the rail closes.
//! The word does not exist in a process that was given the same process id later, or that runs another program. If the epoch word
//! does not have the expected value, the bytes are void. Only the kernel resolves the address, and it writes to the sink alone.

pub mod expose;
mod lock;
pub mod probe;
pub mod read;

pub use lock::holder;
