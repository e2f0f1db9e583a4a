//! Starts the ranks of a job and exchanges their cards.
//!
//! A rank calls [`Job::from_env`], publishes the cards of its rails, exchanges, and reads what its peers published.
//! `towline run` ([`launch`]) starts ranks. Any other launcher may start them too, if it sets the environment below and
//! runs a [`server`]. A program that is started without this environment is a job of its own, of size 1.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use towline_bootstrap::{Environment, Job};
//! use towline_core::modex::{Component, Version};
//!
//! let v = Version::new(1, 0, 0);
//! let tcp = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
//! # let environment = Environment::singleton();
//! # let mut job = Job::join(environment, Instant::now() + Duration::from_secs(5))?;
//! # if false {
//! let mut job = Job::from_env()?;
//! # }
//! job.publish(&tcp, b"10.0.0.1:4000")?;
//! job.exchange(Instant::now() + Duration::from_secs(30))?;
//! for peer in 0..job.size() {
//!     assert_eq!(job.card(&tcp, peer).unwrap(), b"10.0.0.1:4000");
//! }
//! job.finish()?;
//! # Ok::<(), towline_bootstrap::Error>(())
//! ```
//!
//! # Environment
//!
//! | variable | meaning | if it is not set |
//! |---|---|---|
//! | `TOWLINE_RANK` | this process's rank, from 0 | a job of size 1, if no other variable of a job (the next five) is set |
//! | `TOWLINE_SIZE` | number of ranks | as above |
//! | `TOWLINE_ROOT` | where the server listens: `unix:/path`, `unix:@abstract`, `tcp:host:port`; several with commas are tried in order | as above |
//! | `TOWLINE_JOB` | the job's number, up to 16 hexadecimal digits, equal in all ranks | an error, except in a job of size 1 |
//! | `TOWLINE_KEY` | the job's secret, 64 hexadecimal digits, equal in all ranks; never put it on a command line, where other users can read it | an error, except in a job of size 1 |
//! | `TOWLINE_LISTEN` | where rank 0 itself runs the server, such as `0.0.0.0:4000`; the others ignore it | a launcher runs the server |
//! | `TOWLINE_TRANSPORTS` | transports to use, such as `sm,tcp` | `sm` and `tcp`, as far as they work |
//! | `TOWLINE_LINKS` | number of links to each peer, for transports that support several | 1 |
//! | `TOWLINE_HOST` | name of this host within the job | the system's host name |
//! | `TOWLINE_LOCAL` | ranks on this host, such as `0-3,8` | unknown |
//!
//! # Other exchanges
//!
//! The bootstrap has a server of its own. A launcher or runtime that carries bytes between its processes can take its
//! place: [`Job::over`] joins a job over an [`Exchange`]. The crate `towline-pmix` has that of PMIx launchers, such as mpirun. Where a
//! caller carries the publications of processes that come one by one, [`Job::carried`] waits for nobody.
//!
//! Under a launcher that does neither, rank 0 can run the server. Give every rank its number, and give all
//! of them `TOWLINE_SIZE`, `TOWLINE_JOB`, `TOWLINE_KEY`, `TOWLINE_ROOT=tcp:node0:4000` and
//! `TOWLINE_LISTEN=0.0.0.0:4000`, where rank 0 runs on `node0`. Rank 0's [`finish`](Job::finish) then waits until the
//! other ranks have disconnected.
//!
//! # The wire between rank and server
//!
//! All numbers are little-endian. The rank opens with 64 bytes: `TOWLBOOT`, version (2 bytes, 2), 2 zero bytes, rank
//! (4), size (4), 4 zero bytes, job (8), a random nonce (32). The server answers with 68 bytes: status (4; 0 to go on,
//! any other value is the reason for a refusal), its nonce (32), its proof (32). The rank answers with its proof (32).
//! A proof is HMAC-SHA-256 under the job key over `towline server 1` or `towline rank 1`, the opening and the server's
//! nonce. So each side knows that the other side holds the key, and neither side learns the key from the other. After
//! the handshake, frames go both ways: length of the payload (4), kind (2), 2 zero bytes, payload, tag (16). The tag is
//! the first 16 bytes of HMAC-SHA-256 under a session key over the direction, the number of the frame, and the frame. A
//! frame that does not match its tag ends the connection. Every length is checked against its limit before memory is
//! allocated for it, and every step has a deadline.
#![deny(missing_docs)]

mod address;
mod environment;
mod error;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

pub mod launch;
mod protocol;
mod rank;
pub mod report;
pub mod server;

pub use address::Address;
pub use environment::{Environment, RANKS_MAX, VARIABLES, format_ranks};
pub use error::{EnvironmentError, Error};
pub use exchange::{CleanUpFn, Exchange, ExchangeFailure, RankEnd};
pub use rank::{End, Job};

pub use towline_net::JobKey;
