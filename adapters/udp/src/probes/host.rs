//! Whether the host of a peer is alive, although the peer's process may be stopped.
//!
//! The probe is a TCP connection to a port where no process listens. The kernel of the host refuses it, with the sequence number
//! of the probe, which only an observer can forge. Unlike reports of closed UDP ports, of which a kernel sends one per second to
//! each address, refusals have no rate limit. One socket for probes is reserved from the beginning, so that a process without a
//! free descriptor can still probe, one host after the other.

use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use towline_core::time::{Duration, Instant};

use crate::system::socket as sys;

/// A port at which no host listens: that of a service which is not offered any more (tcpmux).
pub(crate) const CLOSED_PORT: u16 = 1;
/// Time between two probes of a host.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a probe is given up, as it may have been lost.
const TIMEOUT: Duration = Duration::from_millis(1000);
/// The same time for a probe that uses the reserved socket, since other probes wait for that socket.
const RESERVED_TIMEOUT: Duration = Duration::from_millis(250);

/// A host that is probed.
#[derive(Debug)]
pub(crate) struct HostProbe {
    pub(crate) at: SocketAddr,
    /// The socket of the probe that is in progress.
    pub(crate) socket: Option<ProbeSocket>,
    /// When the latest probe was sent.
    pub(crate) sent: Option<Instant>,
    /// When the latest probe that was answered had been sent: the host was alive then, or later.
    pub(crate) alive: Option<Instant>,
}

/// The socket of a probe.
#[derive(Debug)]
pub(crate) enum ProbeSocket {
    /// A socket of its own.
    Own(Socket),
    /// The reserved socket.
    Reserved,
}

/// The socket that is reserved for probes.
#[derive(Debug)]
pub(crate) struct ReservedSocket {
    socket: Socket,
    pub(crate) taken: bool,
}

impl ReservedSocket {
    /// # Errors
    /// The system's error, where there is no descriptor.
    pub(crate) fn new(from: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { socket: open(from)?, taken: false })
    }

    /// Disconnects the socket, so that it can be used again.
    fn give_back(&mut self) {
        self.taken = false;
        if let Err(why) = sys::disconnect(&self.socket) {
            log::debug!("udp: the reserved socket is still connected: {why}");
        }
    }
}

impl HostProbe {
    pub(crate) const fn new(at: SocketAddr) -> Self {
        Self { at, socket: None, sent: None, alive: None }
    }

    /// Looks for an answer, and sends another probe if that is due. `from` is the address of this rail.
    pub(crate) fn probe(&mut self, from: SocketAddr, reserved: &mut ReservedSocket, now: Instant) {
        self.check(reserved);
        let age = self.sent.map(|sent| now.since(sent));
        let wait = match self.socket {
            None => INTERVAL,
            Some(ProbeSocket::Own(_)) => TIMEOUT,
            Some(ProbeSocket::Reserved) => RESERVED_TIMEOUT,
        };
        if age.is_some_and(|age| age < wait) {
            return;
        }
        let had_reserved = matches!(self.socket, Some(ProbeSocket::Reserved));
        self.stop(reserved);
        if had_reserved {
            return; // other hosts come first
        }
        self.socket = match open(from) {
            Ok(socket) => Some(ProbeSocket::Own(socket)),
            Err(_) if !reserved.taken => {
                reserved.taken = true;
                Some(ProbeSocket::Reserved)
            }
            Err(why) => return log::debug!("udp: the probe of {} is delayed: {why}", self.at),
        };
        self.sent = Some(now);
        self.check(reserved); // begins the connection
        self.check(reserved); // within one host the connection is refused at once
    }

    /// Looks for the answer to the probe.
    fn check(&mut self, reserved: &mut ReservedSocket) {
        let socket = match &self.socket {
            None => return,
            Some(ProbeSocket::Own(socket)) => socket,
            Some(ProbeSocket::Reserved) => &reserved.socket,
        };
        let alive = match socket.connect(&self.at.into()).map_err(|why| why.raw_os_error()) {
            Err(Some(libc::EINPROGRESS | libc::EALREADY | libc::EAGAIN | libc::EINTR)) => return,
            Ok(()) | Err(Some(libc::EISCONN | libc::ECONNREFUSED | libc::ECONNRESET)) => true,
            Err(_) => false,
        };
        self.stop(reserved);
        if alive {
            self.alive = self.sent;
        }
    }

    /// Gives up the probe that is in progress, and its socket.
    pub(crate) fn stop(&mut self, reserved: &mut ReservedSocket) {
        if let Some(ProbeSocket::Reserved) = self.socket.take() {
            reserved.give_back();
        }
    }
}

/// A socket for a connection that is to be refused.
pub(crate) fn open(from: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(from), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address from which no answer comes: of a listener whose queue is full, so that the kernel drops further connections.
    struct DeadHost {
        listener: Socket,
        _queue: Vec<Socket>,
    }

    impl DeadHost {
        fn new() -> Self {
            let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let listener = open(loopback).unwrap();
            listener.listen(0).unwrap();
            let at = listener.local_addr().unwrap();
            let caller = |_| {
                let socket = open(loopback).unwrap();
                let in_progress = socket.connect(&at).unwrap_err();
                assert_eq!(in_progress.raw_os_error(), Some(libc::EINPROGRESS));
                socket
            };
            Self { listener, _queue: (0..4).map(caller).collect() }
        }

        fn at(&self) -> SocketAddr {
            self.listener.local_addr().unwrap().as_socket().unwrap()
        }
    }

    /// Probes without an answer are given up, and others are sent.
    #[test]
    fn p7_a_dead_host_does_not_answer() {
        let dead = DeadHost::new();
        let mut host = HostProbe::new(dead.at());
        let from = "0.0.0.0:0".parse().unwrap();
        let mut reserved = ReservedSocket::new(from).unwrap();
        for second in 1..5 {
            host.probe(from, &mut reserved, Instant::from_nanos(second * 1_000_000_000));
            assert_eq!(host.alive, None);
        }
    }

    /// Probes use the reserved socket one after the other, whether the probe before was refused, accepted, or neither.
    #[test]
    fn p1_p7_without_descriptors_hosts_are_probed_one_after_the_other() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let mut reserved = ReservedSocket::new(loopback).unwrap();
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = "127.0.0.1:1".parse().unwrap();
        let mut hosts = [closed, listening.local_addr().unwrap(), closed].map(HostProbe::new);
        // No socket can be opened at an address of another host.
        let elsewhere = "203.0.113.1:0".parse().unwrap();
        for round in 1..5 {
            let now = Instant::from_nanos(round * 1_000_000_000);
            for host in &mut hosts {
                host.probe(elsewhere, &mut reserved, now);
                assert_eq!((host.alive, reserved.taken), (Some(now), false), "{}", host.at);
            }
        }
        // A host that has the reserved socket gives it back in time, and its turn is after the others' then.
        let [first, second, _] = &mut hosts;
        let at = |millis: u64| Instant::from_nanos(10_000_000_000 + millis * 1_000_000);
        (reserved.taken, first.socket, first.sent) = (true, Some(ProbeSocket::Reserved), Some(at(0)));
        let dead = DeadHost::new();
        first.at = dead.at();
        second.probe(elsewhere, &mut reserved, at(100));
        assert!(second.alive < Some(at(0)), "it is not its turn");
        first.probe(elsewhere, &mut reserved, at(250));
        second.probe(elsewhere, &mut reserved, at(250));
        assert_eq!((second.alive, reserved.taken), (Some(at(250)), false));
    }
}
