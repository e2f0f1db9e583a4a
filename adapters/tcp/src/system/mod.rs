//! The operating system: sockets, pipes, epoll and socket options.

pub(crate) mod epoll;
pub(crate) mod options;
pub(crate) mod socket;
