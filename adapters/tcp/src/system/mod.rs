//! The operating system: sockets, pipes, epoll and socket options.

pub(crate) mod epoll;
pub(crate) mod options;
mod possible;
pub(crate) mod socket;
