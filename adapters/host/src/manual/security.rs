//! Security: who can read, change or forge what.
//!
//! # What is trusted
//!
//! Nothing that comes from a peer is trusted. Frames and cards are checked before they are used: lengths against the frame,
//! handles against the owner's table and the peer, offsets against the registered memory, credit against the share. Invalid
//! frames are counted and dropped. No input can make the core panic: a check at link time proves it. Words in shared memory
//! are read once and then checked.
//!
//! # The job's key
//!
//! All ranks of a job have a secret of 32 bytes, which the launcher makes and passes in the environment (`TOWLINE_KEY`). A
//! rank proves to the launcher that it knows the key, and so do both ends of a tcp connection, udp session or verbs
//! connection to each other. Until then, nothing else that the other side sends is used. The proof does not reveal the key.
//! Never put the key on a command line. Under a [PMIx launcher](super::launchers), rank 0 makes the key, and the launcher carries it
//! to the others: it is trusted, and whoever can read its traffic can learn the key.
//!
//! # What protects which traffic
//!
//! | traffic | peers are authenticated | protected against change | protected against reading |
//! |---|---|---|---|
//! | launcher and ranks | yes | yes: HMAC on each frame | no |
//! | `sm` | by file permissions: only processes of the same user | by the same | by the same |
//! | `tcp`, `udp` between hosts | yes | yes | yes: encrypted by default |
//! | `tcp`, `udp` within a host | yes | no; yes with `TOWLINE_ENCRYPT=always` | no; yes with `TOWLINE_ENCRYPT=always` |
//! | `tcp` between hosts with `TOWLINE_ENCRYPT=off` | yes, when connecting | no | no |
//! | `udp` between hosts with `TOWLINE_ENCRYPT=off` | yes | yes: each datagram is signed (`TOWLINE_UDP_SIGN`) | no |
//! | `verbs` | yes, when connecting | no | no |
//!
//! # Encryption
//!
//! `TOWLINE_ENCRYPT` is `between-hosts` (the default), `off` or `always`. Two ranks are on one host if both see the same boot
//! and the same network namespace, so containers that each have a network of their own count as hosts. Ranks whose settings
//! lead to different results refuse each other, and the error at each rank says which of the two encrypts. The choice is not
//! negotiated, since an attacker between two ranks could otherwise choose.
//!
//! ```
//! use towline::Encrypt;
//!
//! let world = towline::Builder::new().configure(|config| config.encrypt = Encrypt::Always).build()?;
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is [Noise](https://noiseprotocol.org) `NNpsk0` by the library `snow`. The job's key authenticates. Ephemeral
//! keys give forward secrecy: an attacker who learns the job's key later cannot decrypt traffic that was recorded before.
//! Over tcp the stream is divided into records of up to 32 KiB, each with a number, so that no record can be changed, left
//! out, repeated or moved; an invalid record ends the connection. Over udp each datagram is encrypted under a number that is
//! accepted once. Keys change after 2^22 records or datagrams. For the cost of encryption see [measuring](super::measuring).
//!
//! `verbs` does not work with `always`, since its devices cannot encrypt. Use it only on networks that are closed to others.
//!
//! # Memory that others can reach
//!
//! - A [window](crate::Window) with all rights is memory that processes of the same user on this host can map: they can read
//!   and write all of it at any time, and nothing else. A window that others may only read is mapped read-only. A window with
//!   other rights is not mapped. With `TOWLINE_SM_WINDOWS=false` no window is mapped.
//! - Single copies of sm read only memory that the peer has offered, from the process that the kernel names as the peer's.
//! - A registered buffer is accessed through a handle of slot and generation. The target checks rights and bounds. A device
//!   checks its own keys.
//!
//! # Flooding
//!
//! Each step of a handshake with a process that has not proved the key has a deadline and bounded memory. Replayed hellos of
//! encrypted tcp connections are answered at most 50 times a second. To such a process udp sends no datagram that is larger
//! than the one that it answers. The exception is a notice to the address of a peer that was given up, at most ten a second.
//! Memory for unexpected messages is bounded: see [messages](super::messages).
