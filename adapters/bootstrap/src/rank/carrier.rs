//! What connects a rank with the others.

use super::connect::Connection;
use crate::exchange::Exchange;

/// What carries publications between the ranks.
pub(crate) enum Carrier {
    /// Nothing: a job of size 1 without a launcher, a job whose caller carries the publications, or one that has finished.
    None,
    /// The bootstrap's own server.
    Server(Connection),
    /// The exchange of another launcher or runtime.
    Exchange {
        exchange: Box<dyn Exchange>,
        /// A call that all ranks make has failed.
        failed: bool,
    },
}

impl Carrier {
    /// The connection to the server, if there is one.
    pub(super) fn server(&mut self) -> Option<&mut Connection> {
        match self {
            Self::Server(connection) => Some(connection),
            _ => None,
        }
    }
}
