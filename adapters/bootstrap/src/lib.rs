//! Starting ranks and exchanging their business cards.
//!
//! A rank calls [`Job::from_env`], publishes what its rails say of themselves, exchanges, and reads what its peers
//! published. `towline run` ([`launch`]) starts ranks; so may any other launcher that sets the environment below and
//! runs a [`server`]. A program that is started with none of it is a job of its own, of size 1.
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
//! | variable | what | without it |
//! |---|---|---|
//! | `TOWLINE_RANK` | this process's rank, from 0 | a job of size 1, if `TOWLINE_SIZE` and `TOWLINE_ROOT` are unset too |
//! | `TOWLINE_SIZE` | number of ranks | as above |
//! | `TOWLINE_ROOT` | where the server listens: `unix:/path`, `unix:@abstract`, `tcp:host:port`; several with commas are tried in order | as above |
//! | `TOWLINE_JOB` | the job's number, up to 16 hexadecimal digits, equal in all ranks | an error, but in a job of size 1 |
//! | `TOWLINE_KEY` | the job's secret, 64 hexadecimal digits, equal in all ranks; never put it on a command line | an error, but in a job of size 1 |
//! | `TOWLINE_LISTEN` | where rank 0 itself runs the server, such as `0.0.0.0:4000`; the others ignore it | a launcher runs it |
//! | `TOWLINE_TRANSPORTS` | transports to use, such as `sm,tcp` | all that are there |
//! | `TOWLINE_LINKS` | links per peer of transports that can have several | the transport decides |
//! | `TOWLINE_HOST` | name of this host within the job | the system's host name |
//! | `TOWLINE_LOCAL` | ranks on this host, such as `0-3,8` | unknown |
//!
//! Under a launcher that knows nothing of Towline, let rank 0 serve: give every rank its number, and all of them
//! `TOWLINE_SIZE`, `TOWLINE_JOB`, `TOWLINE_KEY`, `TOWLINE_ROOT=tcp:node0:4000` and `TOWLINE_LISTEN=0.0.0.0:4000`, where
//! rank 0 runs on `node0`. Rank 0's [`finish`](Job::finish) then waits for those of the others.
//!
//! # The wire between rank and server
//!
//! All numbers are little-endian. The rank opens with 64 bytes: `TOWLBOOT`, version (2 bytes, 1), 2 zero bytes, rank
//! (4), size (4), 4 zero bytes, job (8), a random nonce (32). The server answers with 68: status (4; 0 to go on, else
//! why not), its nonce (32), its proof (32). The rank answers with its proof (32). A proof is HMAC-SHA-256 under the job
//! key over `towline server 1` or `towline rank 1`, the opening and the server's nonce, so each side knows that the
//! other holds the key, and neither learns it. After that, frames go both ways: length of the payload (4), kind (2), 2
//! zero bytes, payload, tag (16). The tag is the front of HMAC-SHA-256 under a key of the session over direction,
//! number of the frame, and frame; what does not fit ends the connection. Every length is bounded before memory is
//! taken for it, and every step has a deadline.
#![deny(missing_docs)]

mod address;
mod environment;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod key;
pub mod launch;
mod protocol;
mod rank;
pub mod server;

pub use address::Address;
pub use environment::{Environment, RANKS_MAX};
pub use error::{EnvironmentError, Error};
pub use key::Key;
pub use rank::{End, Job};
