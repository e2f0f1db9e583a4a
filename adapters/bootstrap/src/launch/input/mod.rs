//! Standard input of ranks: a thread distributes one stream of bytes to several ranks and hosts.

mod backlog;
mod feeder;

pub(super) use backlog::Receiver;
pub(super) use feeder::{Feeder, Origin, Piece};
