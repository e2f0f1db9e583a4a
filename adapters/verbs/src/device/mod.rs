//! What the device has and does, in types that own it.
//!
//! # Lifetimes
//! Each object holds those that it rests on, by reference counts, so whatever is dropped first, the device loses them in the right
//! order: a queue pair, then the queues it reports to, the memory that its work names, the protection domain, the device itself.
//! A queue posts work in the [`Region`] that it was made with and holds, so that stays mapped and registered for as long as
//! there is a queue that could have the device touch it; for other memory, the user's, who posts the work vouches. An object that the device refuses to destroy is never freed, and
//! keeps all that it holds.

mod memory;
mod open;
mod queue;
mod queue_pair;

use std::io;

pub(crate) use memory::{Domain, Region, Registered};
pub(crate) use open::{Opened, Port, open};
pub(crate) use queue::{BATCH, Channel, Completions, Done, POSTS, SharedReceives, Work};
pub(crate) use queue_pair::{Datagrams, Destination, Fetch, Path, Place, Reliable, Route};
/// Memory of this side, in the device's words.
pub(crate) use rdma_mummy_sys::ibv_sge as Element;

/// The outcome of a call that answers 0 or an error's number.
pub(crate) fn checked(answer: libc::c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        // Old providers answer -1 and leave the number where C does.
        ..0 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}
