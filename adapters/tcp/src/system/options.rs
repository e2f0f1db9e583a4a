//! The options that sockets are given.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{Socket, TcpKeepalive};

use crate::config::Config;
use crate::system::socket as sys;

/// Sizes the kernel's buffers, before connecting so that the window scale knows of it; inbound ones inherit it.
pub(crate) fn set_buffers(config: &Config, socket: &Socket) -> io::Result<()> {
    if let Some(bytes) = config.socket_send_buffer_bytes {
        socket.set_send_buffer_size(bytes as usize)?;
    }
    if let Some(bytes) = config.socket_receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes as usize)?;
    }
    Ok(())
}

/// Readies a connection for frames: it sends at once, and notices a host that is gone without a word. A peer that merely
/// does not read is not gone: its kernel answers for it.
pub(crate) fn tune(config: &Config, socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    watch_host(config.dead_host_timeout, socket)?;
    if !config.host_congestion_control.is_empty() && stays_here(socket)? {
        socket.set_tcp_congestion(config.host_congestion_control.as_bytes())?;
    }
    Ok(())
}

/// Has the kernel find out that a host is gone: after `silence` where nothing is on its way to it. Where something is, it
/// goes on to send that, and [`watch`](crate::rail::dead_hosts) looks what comes of it.
///
/// `TCP_USER_TIMEOUT` is not for this: the kernel ends by it also connections whose peer reads nothing for so long, though
/// its host answers each time that it is asked whether there is room again. That is a peer that computes, or was stopped.
fn watch_host(silence: Duration, socket: &Socket) -> io::Result<()> {
    if silence.is_zero() {
        return Ok(());
    }
    // The kernel counts in seconds: half of the time to become curious, and as many questions as fit in the rest.
    let second = Duration::from_secs(1);
    let time = Duration::from_secs((silence / 2).as_secs()).max(second);
    let interval = Duration::from_secs((silence / 10).as_secs()).max(second);
    let questions = (silence.saturating_sub(time).as_secs() / interval.as_secs()).clamp(1, 127) as u32;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(questions))?;
    // Questions about room, and what is sent again, are to come often enough to tell; else they come up to two minutes
    // apart. Kernels before 6.15 do not know this, and notice a host that went while its rank read nothing later.
    let _ = sys::set_most_between_tries(socket.as_raw_fd(), (silence / 4).max(second));
    Ok(())
}

/// Whether both ends are on this host and no network is between them: both have the same address, or loopback ones.
fn stays_here(socket: &Socket) -> io::Result<bool> {
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

    /// What the system chose is left alone if that is asked for, and a name that no kernel knows is reported.
    #[test]
    fn within_a_host_both_ends_have_the_congestion_control_of_the_configuration() {
        let mut config = Config::new(1, 0, JobKey::new([1; 32]));
        let (one, other) = ends();
        let systems = control(&one);
        for end in [&one, &other] {
            tune(&config, end).unwrap();
            assert_eq!(control(end), "reno");
        }
        let (one, _other) = ends();
        config.host_congestion_control.clear();
        tune(&config, &one).unwrap();
        assert_eq!(control(&one), systems);
        config.host_congestion_control = "nonesuch".into();
        assert!(tune(&config, &one).is_err());
        assert!(one.tcp_nodelay().unwrap(), "all else is set nevertheless");
    }
}
