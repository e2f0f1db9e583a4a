//! Segmentation: whether the kernel segments and coalesces datagrams, so that one call sends or receives many.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockAddr, SockAddrStorage, Socket};

use crate::system::batch::{Batch, BatchResult};
use crate::system::socket::{enable_segmentation, open};

/// Longest time that the two datagrams may take from a socket to itself.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of foreign datagrams that are skipped: a flood of the port must not delay the start of the rail.
const FOREIGN: usize = 64;
/// The message of the test, which is cut in two.
const MESSAGE: &[u8] = b"cut and join";
const SEGMENT: u16 = 8;

/// Lets the kernel segment and coalesce the datagrams of a socket, and returns whether it does. `own` is an address of this host.
pub(crate) fn enable(socket: &Socket, own: IpAddr) -> bool {
    let enabled = test(own).and_then(|()| enable_segmentation(socket));
    if let Err(why) = &enabled {
        log::debug!("udp: the kernel does not segment and coalesce datagrams: {why}");
    }
    enabled.is_ok()
}

/// Tests segmentation with a message that a socket sends to itself. It is not enough that the kernel accepts the options: an
/// emulator of its system calls may drop the control data of each call. Then a message is not segmented and is too long, or
/// coalesced datagrams cannot be told apart, so that no frame ever arrives.
fn test(own: IpAddr) -> io::Result<()> {
    let socket = open(SocketAddr::new(own, 0))?;
    enable_segmentation(&socket)?;
    let here = socket.local_addr()?;
    let mut batch = Batch::new(1);
    // SAFETY: the bytes are static, and the address lives until the call.
    unsafe { batch.add_send(&here, MESSAGE.as_ptr(), MESSAGE.len(), Some(SEGMENT)) };
    match batch.send(socket.as_raw_fd()) {
        BatchResult::Messages(1) => {}
        BatchResult::Failed(number) => return Err(io::Error::from_raw_os_error(number)),
        BatchResult::Messages(_) | BatchResult::WouldBlock => {
            return Err(io::Error::other("the socket cannot send now"));
        }
    }
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    // Other senders may use the port too.
    let mut foreign = 0;
    while here.as_socket() != wait(&socket)?.as_socket() {
        foreign += 1;
        if foreign > FOREIGN {
            return Err(io::Error::other("other senders flood the port of the test"));
        }
        socket.recv(&mut [MaybeUninit::uninit()])?;
    }
    let (mut name, mut into) = (SockAddrStorage::zeroed(), [0; 2 * MESSAGE.len()]);
    batch.clear();
    // SAFETY: the name and the memory live until the call.
    unsafe { batch.add_receive(&mut name, into.as_mut_ptr(), into.len()) };
    batch.receive(socket.as_raw_fd());
    // The datagrams were coalesced with their segment size; or they were not coalesced this time.
    let received = batch.received(0);
    let segment = usize::from(SEGMENT);
    if received == Some((MESSAGE.len(), segment)) || received == Some((segment, segment)) {
        Ok(())
    } else {
        Err(io::Error::other("the control data of system calls is lost"))
    }
}

/// Waits for a datagram, leaves it in the socket, and returns its sender.
fn wait(socket: &Socket) -> io::Result<SockAddr> {
    loop {
        match socket.peek_from(&mut [MaybeUninit::uninit()]) {
            // A signal, or another thread that starts a process.
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome.map(|(_, from)| from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Linux segments and coalesces since 5.0.
    #[test]
    fn segmentation_is_detected() {
        assert!(test(Ipv4Addr::LOCALHOST.into()).is_ok(), "IPv4");
        if open(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)).is_ok() {
            assert!(test(Ipv6Addr::LOCALHOST.into()).is_ok(), "IPv6");
        }
    }
}
