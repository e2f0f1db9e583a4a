//! A rank's side of the bootstrap.

mod carried;
mod carrier;
pub(crate) mod connect;
mod job;
mod modex;
mod over;
mod own_server;
mod publication;
mod questions;
mod reports;
mod server;
mod sets;

pub use job::{End, Job};
