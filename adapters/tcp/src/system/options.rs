//! Options of sockets.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{Socket, TcpKeepalive};

use crate::config::Config;
use crate::system::socket as sys;

/// Sets the sizes of the kernel's buffers. This must precede connecting, as the window scale depends on them; inbound
/// connections inherit them.
pub(crate) fn set_buffers(config: &Config, socket: &Socket) -> io::Result<()> {
    if let Some(bytes) = config.socket_send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = config.socket_receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(())
}

/// Prepares a connection for frames: it sends at once, and finds out if the host of the peer fails silently. A peer that merely
/// does not read has not failed: its kernel answers for it.
pub(crate) fn set_up(config: &Config, socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    set_keepalive(config.dead_host_timeout, socket)?;
    if !config.host_congestion_control.is_empty() && is_within_host(socket)? {
        socket.set_tcp_congestion(config.host_congestion_control.as_bytes())?;
    }
    Ok(())
}

/// Whether the kernel has a congestion control of this name that this user may choose.
pub(crate) fn check_congestion(name: &str) -> io::Result<()> {
    Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?.set_tcp_congestion(name.as_bytes())
}

/// Lets the kernel find out that a host has failed: after `silence` while no data is in flight to the host. While data is in
/// flight, the kernel retransmits instead, and `rail::dead_hosts` looks at the result.
///
/// `TCP_USER_TIMEOUT` is not suitable: with it the kernel also ends connections whose peer reads nothing for that time, although
/// the peer's host answers each window probe. Such a peer computes, or was stopped.
fn set_keepalive(silence: Duration, socket: &Socket) -> io::Result<()> {
    if silence.is_zero() {
        return Ok(());
    }
    // The kernel counts in seconds: half of the time passes before the first probe, and the rest has as many probes as fit.
    let second = Duration::from_secs(1);
    let time = Duration::from_secs((silence / 2).as_secs()).max(second);
    let interval = Duration::from_secs((silence / 10).as_secs()).max(second);
    let probes = (silence.saturating_sub(time).as_secs() / interval.as_secs()).clamp(1, 127) as u32;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(probes))?;
    // Window probes and retransmissions must be frequent enough to judge by; the kernel's default is up to two minutes between
    // two. Kernels before 6.15 do not have this option, and find out later that a host failed while its rank read nothing.
    let _ = sys::set_max_retransmission_timeout(socket.as_raw_fd(), (silence / 4).max(second));
    Ok(())
}

/// Whether both ends are on this host without a network between them: both have the same address, or loopback addresses.
fn is_within_host(socket: &Socket) -> io::Result<bool> {
    let ends = (socket.local_addr()?.as_socket(), socket.peer_addr()?.as_socket());
    let (Some(here), Some(there)) = ends else { return Ok(false) };
    Ok(here.ip() == there.ip() || here.ip().is_loopback() && there.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use towline_net::JobKey;

    fn ends() -> (Socket, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one.into(), listener.accept().unwrap().0.into())
    }

    fn control(socket: &Socket) -> String {
        let name = socket.tcp_congestion().unwrap();
        String::from_utf8(name).unwrap().trim_end_matches('\0').into()
    }

    /// An empty name leaves the system's choice, and a name that the kernel does not know is reported.
    #[test]
    fn within_a_host_both_ends_have_the_congestion_control_of_the_configuration() {
        let mut config = Config::new(1, 0, JobKey::new([1; 32]));
        let (one, other) = ends();
        let systems = control(&one);
        for end in [&one, &other] {
            set_up(&config, end).unwrap();
            assert_eq!(control(end), "reno");
        }
        let (one, _other) = ends();
        config.host_congestion_control.clear();
        set_up(&config, &one).unwrap();
        assert_eq!(control(&one), systems);
        config.host_congestion_control = "nonesuch".into();
        assert!(set_up(&config, &one).is_err());
        assert!(one.tcp_nodelay().unwrap(), "the other options are set nevertheless");
    }
}
