//! Security: who can read, change or forge what.
//!
//! # What is trusted
//!
//! Nothing that comes from a peer is trusted. Frames and cards are checked before they are used: lengths against the frame,
//! handles against the owner's table and the peer, offsets against the registered memory, credit against the share. What does
//! not fit is counted and dropped. No input can make the core panic: a link check proves it. Words in shared memory are read
//! once and then checked.
//!
//! # The job's key
//!
//! All ranks of a job have a secret of 32 bytes, which the launcher makes and passes in the environment (`TOWLINE_KEY`). A rank
//! proves to the launcher, and each end of a tcp connection, udp session or verbs connection proves to the other, that it knows
//! the key, before anything else is believed. Neither learns the key from that. Never put it on a command line.
//!
//! # What protects which traffic
//!
//! | traffic | peers are authenticated | protected against change | protected against reading |
//! |---|---|---|---|
//! | launcher and ranks | yes | yes: HMAC on each frame | no |
//! | `sm` | file permissions: processes of the same user | the same | the same |
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
//! come to different results refuse each other, and each says which of the two encrypts. The choice is not negotiated, since
//! an attacker between two ranks could then choose.
//!
//! ```
//! use towline::Encrypt;
//!
//! let world = towline::Builder::new().configure(|config| config.encrypt = Encrypt::Always).build()?;
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is [Noise](https://noiseprotocol.org) `NNpsk0` by the library `snow`. The job's key authenticates; ephemeral
//! keys protect what was recorded from somebody who learns the job's key later (forward secrecy). Over tcp the stream is
//! divided into records of up to 32 KiB with a number each, so that none can be changed, left out, repeated or moved; a bad
//! record ends the connection. Over udp each datagram is sealed under a number that is accepted once. Keys change every 2^22
//! seals. What it costs is told in [measuring](super::measuring).
//!
//! `verbs` does not work with `always`: what its devices send is never encrypted. Use it on networks that others do not reach.
//!
//! # Memory that others can reach
//!
//! - A [window](crate::Window) with all rights is memory that processes of the same user on this host can map: they can read
//!   and write all of it at any time, and nothing else. One that others may only read is mapped read-only. One with other
//!   rights is not mapped. `TOWLINE_SM_WINDOWS=false` maps none.
//! - Single copies of sm read only memory of the peer that offered it. The kernel names the process, not the peer.
//! - A registered buffer is reached by a handle of slot and generation, with rights and bounds checked at the target. A device
//!   checks its own keys.
//!
//! # Flooding
//!
//! Each step with a process without the key has a deadline and bounded memory. Replayed hellos of encrypted tcp connections are
//! answered at most 50 times a second. udp sends nothing to a process without the key that is larger than what came, but for a
//! notice to the address of a peer that was forgotten, at most ten a second. Memory for unexpected messages is bounded: see
//! [messages](super::messages).
