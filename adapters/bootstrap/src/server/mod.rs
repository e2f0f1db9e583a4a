//! The job's server. It accepts the ranks that hold the job key, and distributes their publications.
//!
//! `towline run` contains a server. Another launcher starts one where all ranks can reach it:
//!
//! ```
//! use std::time::{Duration, Instant};
//! use towline_bootstrap::server::{Config, Server};
//! use towline_bootstrap::{Environment, Job};
//!
//! let mut environment = Environment::singleton(); // a random job number and key
//! let listen = Some("127.0.0.1:0".parse().unwrap());
//! let config = Config { size: 1, job: environment.job, key: environment.key.clone(), name: None, listen, disconnect_ends_rank: true };
//! let server = Server::start(config, |event| println!("{event:?}"))?;
//! environment.root = server.addresses().to_vec();
//!
//! let mut job = Job::join(environment, Instant::now() + Duration::from_secs(10)).unwrap();
//! job.exchange(Instant::now() + Duration::from_secs(10)).unwrap();
//! job.finish().unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

mod config;
pub(crate) mod connection;
pub(crate) mod event_loop;
mod handle;
mod job_state;
mod listener;
#[cfg(test)]
mod tests;

pub use config::{Config, Event};
pub use handle::Server;
