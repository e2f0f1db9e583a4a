//! The sockets of a relay: one for each DPU.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;

/// How long the relay waits for a DPU that takes no frames. Then the frame is lost.
const WAIT: Duration = Duration::from_millis(10);
/// Bytes of frames that a socket holds, if the system allows it.
const BUFFER: usize = 1 << 20;
/// What the Ethernet address of a DPU begins with. The rest is its number.
const LOCAL: [u8; 4] = [0x52, 0x54, 0x00, 0x00];

/// A frame on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The DPU that has sent it.
    pub from: usize,
    /// The DPU that it is for.
    pub to: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The sockets.
#[derive(Debug)]
pub enum Network {
    /// A DPU sends UDP datagrams for another DPU to the socket of that one. They go on through the socket of the sender, so that they
    /// come from the address at which the sender is known.
    Udp {
        /// The sockets, whose addresses the DPUs give to each other.
        sockets: Vec<UdpSocket>,
        /// The addresses of the DPUs themselves.
        devices: Vec<SocketAddr>,
    },
    /// Each DPU sends all its Ethernet frames to its own socket.
    Ethernet {
        /// The sockets.
        sockets: Vec<UnixDatagram>,
        /// The sockets of the emulators.
        devices: Vec<PathBuf>,
    },
}

/// The Ethernet address of a DPU.
pub fn ethernet_address(device: usize) -> [u8; 6] {
    let [a, b, c, d] = LOCAL;
    let [high, low] = (device as u16).to_be_bytes();
    [a, b, c, d, high, low]
}

/// The paths of two sockets in a folder: that of the relay, and that of the emulator.
pub fn paths(folder: &Path, device: usize) -> [PathBuf; 2] {
    ["relay", "net"].map(|end| folder.join(format!("{end}-{device}")))
}

impl Network {
    /// Sockets for `count` processes, whose addresses are not known yet.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn udp(count: usize) -> io::Result<Self> {
        let bind = |_| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            // Fewer frames fit if the system refuses.
            let _ = set_socket_recv_buffer_size(&socket, BUFFER);
            socket.set_read_timeout(Some(WAIT))?;
            socket.set_write_timeout(Some(WAIT))?;
            Ok(socket)
        };
        Ok(Self::Udp { sockets: (0..count).map(bind).collect::<io::Result<_>>()?, devices: Vec::new() })
    }

    /// Sockets for `count` machines, in a folder.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn ethernet(folder: &Path, count: usize) -> io::Result<Self> {
        let bind = |device| {
            let [path, _] = paths(folder, device);
            let socket = UnixDatagram::bind(path)?;
            socket.set_read_timeout(Some(WAIT))?;
            socket.set_write_timeout(Some(WAIT))?;
            Ok(socket)
        };
        let sockets = (0..count).map(bind).collect::<io::Result<_>>()?;
        Ok(Self::Ethernet { sockets, devices: (0..count).map(|device| paths(folder, device)[1].clone()).collect() })
    }

    /// The address of a socket, which a process gives to others as its own. `None` if there is no such address.
    pub fn advertised(&self, device: usize) -> Option<SocketAddr> {
        match self {
            Self::Udp { sockets, .. } => sockets.get(device)?.local_addr().ok(),
            Self::Ethernet { .. } => None,
        }
    }

    /// The processes are at these addresses.
    pub fn set_devices(&mut self, addresses: Vec<SocketAddr>) {
        match self {
            Self::Udp { devices, .. } => *devices = addresses,
            Self::Ethernet { .. } => {}
        }
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (udp, unix) = match self {
            Self::Udp { sockets, .. } => (&sockets[..], &[][..]),
            Self::Ethernet { sockets, .. } => (&[][..], &sockets[..]),
        };
        udp.iter().map(AsFd::as_fd).chain(unix.iter().map(AsFd::as_fd))
    }

    /// Takes a frame from a socket. `None` if there is none, or if it is from or for nobody that is known.
    pub fn receive(&self, at: usize, into: &mut [u8]) -> Option<Frame> {
        match self {
            Self::Udp { sockets, devices } => {
                let (len, sender) = sockets.get(at)?.recv_from(into).ok()?;
                let from = devices.iter().position(|device| *device == sender)?;
                Some(Frame { from, to: at, bytes: into.get(..len)?.into() })
            }
            Self::Ethernet { sockets, devices } => {
                let len = sockets.get(at)?.recv(into).ok()?;
                let bytes = into.get(..len)?;
                let destination = bytes.first_chunk::<6>()?;
                let to = (0..devices.len()).find(|device| ethernet_address(*device) == *destination)?;
                Some(Frame { from: at, to, bytes: bytes.into() })
            }
        }
    }

    /// Sends a frame to the DPU that it is for. A frame that cannot be sent is lost.
    pub fn send(&self, frame: &Frame) {
        match self {
            Self::Udp { sockets, devices } => {
                if let (Some(socket), Some(device)) = (sockets.get(frame.from), devices.get(frame.to)) {
                    let _ = socket.send_to(&frame.bytes, device);
                }
            }
            Self::Ethernet { sockets, devices } => {
                if let (Some(socket), Some(device)) = (sockets.get(frame.to), devices.get(frame.to)) {
                    let _ = socket.send_to(&frame.bytes, device);
                }
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Self::Ethernet { sockets, .. } = self {
            let addresses = sockets.iter().filter_map(|socket| socket.local_addr().ok());
            // A file of a socket stays until it is removed.
            addresses.for_each(|address| drop(address.as_pathname().map(fs::remove_file)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counts, Rates, Relay};
    use super::*;

    #[test]
    fn datagrams_seem_to_come_from_the_address_that_their_sender_advertises() {
        let devices = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut network = Network::udp(2).unwrap();
        network.set_devices(devices.iter().map(|device| device.local_addr().unwrap()).collect());
        let advertised = [0, 1].map(|device| network.advertised(device).unwrap());
        let relay = Relay::start(network, Rates { double: 1.0, ..Rates::default() }, 7).unwrap();
        let mut into = [0; 8];
        stranger.send_to(b"strange", advertised[1]).unwrap();
        devices[0].send_to(b"one", advertised[1]).unwrap();
        for _ in 0..2 {
            assert_eq!(devices[1].recv_from(&mut into).unwrap(), (3, advertised[0]));
            assert_eq!(into[..3], *b"one");
        }
        devices[1].send_to(b"back", advertised[0]).unwrap();
        assert_eq!(devices[0].recv_from(&mut into).unwrap(), (4, advertised[1]));
        assert_eq!(relay.end(), Counts { frames: 2, doubled: 2, ..Counts::default() });
    }

    #[test]
    fn ethernet_frames_go_to_the_machine_of_their_destination() {
        let folder = tempfile::tempdir().unwrap();
        let machines = [0, 1, 2].map(|device| UnixDatagram::bind(&paths(folder.path(), device)[1]).unwrap());
        let network = Network::ethernet(folder.path(), 3).unwrap();
        let relay = Relay::start(network, Rates { reorder: 1.0, ..Rates::default() }, 7).unwrap();
        let say = |from: usize, to: [u8; 6]| {
            let frame = [&to[..], &ethernet_address(from), b"hello"].concat();
            machines[from].send_to(&frame, &paths(folder.path(), from)[0]).unwrap();
            frame
        };
        let mut into = [0; 64];
        say(0, [0xff; 6]); // nobody is meant
        let frame = say(0, ethernet_address(2));
        let len = machines[2].recv(&mut into).unwrap();
        assert_eq!(into[..len], frame[..]);
        let frame = say(2, ethernet_address(1));
        let len = machines[1].recv(&mut into).unwrap();
        assert_eq!(into[..len], frame[..]);
        assert_eq!(relay.end(), Counts { frames: 2, held: 2, ..Counts::default() });
        assert!(!paths(folder.path(), 0)[0].exists());
    }
}
