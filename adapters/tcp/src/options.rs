//! The options that sockets are given.

use std::io;
use std::time::Duration;

use socket2::{Socket, TcpKeepalive};

use crate::config::Config;

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
    let silence = config.dead_host_timeout;
    if !silence.is_zero() {
        let probe = (silence / 10).max(Duration::from_secs(1));
        let probes = TcpKeepalive::new().with_time(silence / 2).with_interval(probe).with_retries(5);
        socket.set_tcp_keepalive(&probes)?;
    }
    if !config.host_congestion_control.is_empty() && stays_here(socket)? {
        socket.set_tcp_congestion(config.host_congestion_control.as_bytes())?;
    }
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
    use crate::JobKey;

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
