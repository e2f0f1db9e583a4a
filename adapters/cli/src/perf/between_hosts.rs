//! A plain tcp connection between ranks on two hosts, to measure what sockets reach there.

use std::error::Error;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use towline::{Config, World};
use towline_net::interfaces::{Filter, survey};
use towline_net::random;

/// Time in which an address must answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// Time in which a connection must say what it is for.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of the message with addresses.
const ADDRESSES_MAX: usize = 4096;
/// Bytes that show that a connection belongs to this job.
const NONCE: usize = 16;

/// Connects rank 1 to rank 0, over the first address of rank 0 that rank 1 reaches. The addresses are those that tcp may use.
///
/// # Errors
/// If none of them can be reached.
pub fn connect(world: &World, tag: u32) -> Result<TcpStream, Box<dyn Error>> {
    if world.rank() == 0 { accept(world, tag) } else { dial(world, tag) }
}

fn accept(world: &World, tag: u32) -> Result<TcpStream, Box<dyn Error>> {
    // On hosts without IPv6 the IPv6 address cannot be bound.
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let nonce: [u8; NONCE] = random::bytes()?;
    let addresses: Vec<String> = addresses()?.into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect();
    let text = addresses.join(" ");
    let mut offer = [0u8; NONCE + ADDRESSES_MAX];
    offer[..NONCE].copy_from_slice(&nonce);
    let text = text.get(..ADDRESSES_MAX).unwrap_or(&text);
    offer[NONCE..NONCE + text.len()].copy_from_slice(text.as_bytes());
    world.send(1, tag, &offer)?;
    let mut connected = [0u8];
    world.recv(1, tag, &mut connected)?;
    if connected == [0] {
        return Err(format!(
            "rank 1 reaches rank 0 with Towline, but opens no plain tcp connection to {text}, so there is no limit to compare \
             with; a firewall may permit only the ports of TOWLINE_TCP_PORTS"
        )
        .into());
    }
    // The connection is waiting by now. Others may be, too.
    let deadline = Instant::now() + HELLO_LIMIT;
    loop {
        match listener.accept() {
            Ok((socket, _)) if says(&socket, &nonce) => return Ok(socket),
            Ok(_) => {}
            Err(why) if why.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => std::thread::yield_now(),
            Err(why) => return Err(why.into()),
        }
    }
}

fn dial(world: &World, tag: u32) -> Result<TcpStream, Box<dyn Error>> {
    let mut offer = [0u8; NONCE + ADDRESSES_MAX];
    world.recv(0, tag, &mut offer[..])?;
    let text = String::from_utf8_lossy(&offer[NONCE..]);
    let addresses = text.trim_end_matches('\0').split(' ').filter_map(|address| address.parse::<SocketAddr>().ok());
    let mut sockets = addresses.filter_map(|address| TcpStream::connect_timeout(&address, CONNECT_LIMIT).ok());
    let socket = sockets.find_map(|mut socket| socket.write_all(&offer[..NONCE]).is_ok().then_some(socket));
    world.send(0, tag, &[u8::from(socket.is_some())])?;
    socket.ok_or_else(|| "rank 0 cannot be reached by a plain tcp connection; its message says more".into())
}

/// Whether a connection begins with these bytes.
fn says(mut socket: &TcpStream, nonce: &[u8; NONCE]) -> bool {
    let mut said = [0u8; NONCE];
    let asked = socket.set_nonblocking(false).and_then(|()| socket.set_read_timeout(Some(HELLO_LIMIT)));
    asked.and_then(|()| socket.read_exact(&mut said)).is_ok() && said == *nonce
}

/// The addresses of this host that tcp may use: those of networks, or if there is none, those within the host.
fn addresses() -> Result<Vec<IpAddr>, Box<dyn Error>> {
    let config = Config::default().with_environment()?;
    let mut all = survey(&Filter::from_lists(&config.tcp.include, &config.tcp.exclude))?;
    all.retain(|(_, verdict)| verdict.is_ok());
    let networks = all.iter().any(|(interface, _)| !interface.loopback);
    all.retain(|(interface, _)| !networks || !interface.loopback);
    Ok(all.into_iter().map(|(interface, _)| interface.address).collect())
}
