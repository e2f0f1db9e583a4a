//! A rank's side of the bootstrap.

mod carried;
pub(crate) mod connect;
mod job;
mod modex;
mod own_server;
mod publication;
mod questions;
mod reports;

pub use job::{End, Job};
