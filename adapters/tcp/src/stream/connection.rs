//! An established connection: its socket, its inbox and its outbox.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;

use crate::stream::channel::Channel;
use crate::stream::inbox::Inbox;
use crate::stream::outbox::Outbox;
use crate::stream::records::RecordLayer;

/// A connection that carries frames.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) remote: SocketAddr,
    /// Its token in epoll.
    pub(crate) token: u64,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    /// Encryption, where the connection is encrypted.
    pub(crate) records: Option<Box<RecordLayer>>,
    /// Whether epoll reports room to write.
    pub(crate) watches_writes: bool,
}

impl Connection {
    /// The channel to the socket, the inbox and the outbox.
    #[inline]
    pub(crate) fn parts(&mut self) -> (Channel<'_>, &mut Inbox, &mut Outbox) {
        let channel =
            Channel { socket: self.socket.as_raw_fd(), token: self.token, records: self.records.as_deref_mut() };
        (channel, &mut self.inbox, &mut self.outbox)
    }
}
