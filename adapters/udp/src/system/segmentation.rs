//! Whether the kernel cuts and joins datagrams, so that many leave and come in one call.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::{SockAddr, SockAddrStorage, Socket};

use crate::system::socket::{Calls, Done, cut_and_join, open};

/// How long two datagrams take at most from a socket to itself.
const WITHIN: Duration = Duration::from_secs(1);
/// Datagrams of others that are waited out: whoever floods the port is not to hold up the start.
const STRANGERS: usize = 64;
/// What is sent to see it: cut in two.
const WHOLE: &[u8] = b"cut and join";
const CUT: u16 = 8;

/// Has the kernel cut and join the socket's datagrams; tells whether it does. `own` is an address of this host.
pub(crate) fn enable(socket: &Socket, own: IpAddr) -> bool {
    let enabled = try_it(own).and_then(|()| cut_and_join(socket));
    if let Err(why) = &enabled {
        log::debug!("udp: the kernel does not cut and join datagrams: {why}");
    }
    enabled.is_ok()
}

/// Sends datagrams that are to be cut from a socket to itself. That the kernel takes the options is not enough: what stands
/// between, such as an emulator of its calls, may not pass on what is said with each call. What leaves uncut is too long, and
/// what is joined without a word cannot be told apart, so that nothing ever arrives.
fn try_it(own: IpAddr) -> io::Result<()> {
    let socket = open(SocketAddr::new(own, 0))?;
    cut_and_join(&socket)?;
    let here = socket.local_addr()?;
    let mut calls = Calls::new(1);
    // SAFETY: the bytes are static, and the address lives until the call.
    unsafe { calls.add_send(&here, WHOLE.as_ptr(), WHOLE.len(), Some(CUT)) };
    match calls.send(socket.as_raw_fd()) {
        Done::Messages(1) => {}
        Done::Failed(number) => return Err(io::Error::from_raw_os_error(number)),
        Done::Messages(_) | Done::Nothing => return Err(io::Error::other("it does not send now")),
    }
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(WITHIN))?;
    // Others may send here too, and are not meant.
    let mut strangers = 0;
    while here.as_socket() != wait(&socket)?.as_socket() {
        strangers += 1;
        if strangers > STRANGERS {
            return Err(io::Error::other("others send to the port that tries it"));
        }
        socket.recv(&mut [MaybeUninit::uninit()])?;
    }
    let (mut name, mut into) = (SockAddrStorage::zeroed(), [0; 2 * WHOLE.len()]);
    calls.clear();
    // SAFETY: both live until the call.
    unsafe { calls.add_receive(&mut name, into.as_mut_ptr(), into.len()) };
    calls.receive(socket.as_raw_fd());
    // Joined, and told so; or not joined this time.
    let seen = calls.received(0);
    let cut = usize::from(CUT);
    if seen == Some((WHOLE.len(), cut)) || seen == Some((cut, cut)) {
        Ok(())
    } else {
        Err(io::Error::other("what is said with each call is lost on the way to it"))
    }
}

/// Waits for a datagram, and leaves it there; gives who sent it.
fn wait(socket: &Socket) -> io::Result<SockAddr> {
    socket.peek_from(&mut [MaybeUninit::uninit()]).map(|(_, from)| from)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// The kernel does both since 5.0, and is believed only after a try.
    #[test]
    fn kernels_that_cut_and_join_are_found_out() {
        assert!(try_it(Ipv4Addr::LOCALHOST.into()).is_ok(), "IPv4");
        if open(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)).is_ok() {
            assert!(try_it(Ipv6Addr::LOCALHOST.into()).is_ok(), "IPv6");
        }
    }
}
