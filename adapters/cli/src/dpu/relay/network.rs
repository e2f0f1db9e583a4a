//! The sockets of a relay: those of each DPU at each link.
//!
//! A DPU that is a process takes datagrams of UDP. One that is a machine in QEMU takes Ethernet frames: with UDP and IPv4 in them, or with
//! an ethertype of our own. The addresses of a link are a network of the loopback interface, 127.A.B.0/24, so a process and a
//! machine know a DPU by the same address.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::packets::{End, PORT, answer, unwrap, wrap};

/// How long the relay waits for a DPU that takes no frames. Then the frame is lost.
const WAIT: Duration = Duration::from_millis(10);
/// Bytes of frames that a socket holds, if the system allows it.
const BUFFER: usize = 1 << 20;
/// What the Ethernet address of a DPU without an IPv4 address begins with. Link and number follow.
const WITHOUT_IPV4: [u8; 3] = [0x52, 0x54, 0x00];
/// The number of the first DPU in its network. Number 1 is a router's.
const FIRST: u8 = 2;
/// Addresses of DPUs in a block of 256.
const BLOCK: usize = 250;
/// Networks of which the first one without a used address is taken.
const NETWORKS: u32 = 64;

/// What the DPUs speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// UDP over IPv4.
    Udp,
    /// Ethernet frames with an ethertype of our own. Only machines speak it.
    Ethernet,
}

impl Protocol {
    /// The names.
    pub const NAMES: [&str; 2] = ["udp", "ethernet"];

    /// The protocol of a name.
    ///
    /// # Errors
    /// What is possible.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "udp" => Ok(Self::Udp),
            "ethernet" => Ok(Self::Ethernet),
            _ => Err(format!("it is no protocol; possible: {}", Self::NAMES.join(", "))),
        }
    }
}

/// What is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// A datagram of UDP, from or for a process.
    Datagram(Vec<u8>),
    /// An Ethernet frame for a machine.
    Frame(Vec<u8>),
}

/// A frame on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The link.
    pub link: usize,
    /// The DPU that has sent it.
    pub from: usize,
    /// The DPU that it is for.
    pub to: usize,
    /// The bytes.
    pub content: Content,
}

/// A DPU at a link.
#[derive(Debug)]
struct Port {
    end: End,
    /// What is sent to the DPU's address arrives here. What comes from the DPU leaves here, so that it comes from that address.
    socket: Option<UdpSocket>,
    device: Device,
}

/// What takes the frames.
#[derive(Debug)]
enum Device {
    /// A process at this address, once that is known.
    Process(Option<SocketAddr>),
    /// A machine, whose emulator has a socket at this path, and sends to ours.
    Machine(UnixDatagram, PathBuf),
}

/// The sockets.
#[derive(Debug)]
pub struct Network {
    protocol: Protocol,
    /// The ports of each link.
    links: Vec<Vec<Port>>,
}

/// One of the sockets.
#[derive(Clone, Copy, Debug)]
pub struct Socket {
    link: usize,
    device: usize,
    has_frames: bool,
}

/// A link of a machine, for its emulator.
#[derive(Clone, Debug)]
pub struct Plug {
    /// The socket of the relay.
    pub relay: PathBuf,
    /// The socket of the emulator.
    pub emulator: PathBuf,
    /// The machine's Ethernet address.
    pub ethernet: [u8; 6],
}

/// The address of a DPU at a link, in the network of this number. Each link has two blocks of addresses, since one has too few numbers for
/// all DPUs.
fn address(network: u32, link: usize, device: usize) -> Ipv4Addr {
    let [a, b] = [1 + network % 254, (network / 254 % 64) * 4].map(|part| part as u8);
    let [block, number] = [2 * link + device / BLOCK, device % BLOCK].map(|part| part as u8);
    Ipv4Addr::new(127, a, b + block, FIRST + number)
}

/// The paths of two sockets in a folder: that of the relay, and that of the emulator.
fn paths(folder: &Path, link: usize, device: usize) -> [PathBuf; 2] {
    ["relay", "net"].map(|end| folder.join(format!("{end}-{device}-{link}")))
}

fn udp(address: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, PORT))?;
    // Fewer frames fit if the system refuses.
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    socket.set_read_timeout(Some(WAIT))?;
    socket.set_write_timeout(Some(WAIT))?;
    Ok(socket)
}

impl Network {
    /// Sockets for DPUs at `links` links, at most 4, in a folder. `are_machines` says which DPUs are machines. The addresses of the
    /// processes are not known yet.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(folder: &Path, are_machines: &[bool], links: usize, protocol: Protocol) -> io::Result<Self> {
        let first = std::process::id();
        let mut result = Self::in_network(first, folder, are_machines, links, protocol);
        for network in (1..NETWORKS).map(|number| first.wrapping_add(number)) {
            if !result.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::AddrInUse) {
                break;
            }
            result = Self::in_network(network, folder, are_machines, links, protocol);
        }
        result
    }

    fn in_network(
        network: u32,
        folder: &Path,
        are_machines: &[bool],
        links: usize,
        protocol: Protocol,
    ) -> io::Result<Self> {
        let mut this = Self { protocol, links: Vec::new() };
        let has_processes = are_machines.contains(&false);
        for link in 0..links {
            this.links.push(Vec::new());
            for (device, is_machine) in are_machines.iter().enumerate() {
                let ip = address(network, link, device);
                let socket = has_processes.then(|| udp(ip)).transpose()?;
                let end = match protocol {
                    Protocol::Udp => End::with(ip),
                    Protocol::Ethernet => {
                        let [a, b, c] = WITHOUT_IPV4;
                        let [high, low] = (device as u16).to_be_bytes();
                        End { ethernet: [a, b, c, link as u8, high, low], ip }
                    }
                };
                let device = if *is_machine {
                    let [relay, emulator] = paths(folder, link, device);
                    let socket = UnixDatagram::bind(relay)?;
                    socket.set_read_timeout(Some(WAIT))?;
                    socket.set_write_timeout(Some(WAIT))?;
                    Device::Machine(socket, emulator)
                } else {
                    Device::Process(None)
                };
                this.links[link].push(Port { end, socket, device });
            }
        }
        Ok(this)
    }

    /// The ports of a DPU, one at each link.
    fn ports(&self, device: usize) -> impl Iterator<Item = &Port> {
        self.links.iter().filter_map(move |ports| ports.get(device))
    }

    /// The addresses by which a DPU is known, one at each link.
    pub fn addresses(&self, device: usize) -> Vec<SocketAddr> {
        self.ports(device).map(|port| SocketAddrV4::new(port.end.ip, PORT).into()).collect()
    }

    /// What a DPU is called by others, as text for users.
    pub fn describe(&self, device: usize) -> String {
        let describe = |port: &Port| match self.protocol {
            Protocol::Udp => SocketAddrV4::new(port.end.ip, PORT).to_string(),
            Protocol::Ethernet => hex(port.end.ethernet),
        };
        self.ports(device).map(describe).collect::<Vec<_>>().join(" and ")
    }

    /// The links of a machine.
    pub fn plugs(&self, device: usize) -> Vec<Plug> {
        let plug = |port: &Port| match &port.device {
            Device::Machine(socket, emulator) => Some(Plug {
                relay: socket.local_addr().ok()?.as_pathname()?.into(),
                emulator: emulator.clone(),
                ethernet: port.end.ethernet,
            }),
            Device::Process(_) => None,
        };
        self.ports(device).filter_map(plug).collect()
    }

    /// The processes are at these addresses, one for each DPU and link. A machine has none.
    pub fn set_processes(&mut self, addresses: &[Vec<SocketAddr>]) {
        for (link, ports) in self.links.iter_mut().enumerate() {
            for (port, known) in ports.iter_mut().zip(addresses) {
                if let Device::Process(address) = &mut port.device {
                    *address = known.get(link).copied();
                }
            }
        }
    }

    /// The sockets.
    pub fn sockets(&self) -> Vec<(Socket, BorrowedFd<'_>)> {
        let mut sockets = Vec::new();
        for (link, ports) in self.links.iter().enumerate() {
            for (device, port) in ports.iter().enumerate() {
                if let Some(socket) = &port.socket {
                    sockets.push((Socket { link, device, has_frames: false }, socket.as_fd()));
                }
                if let Device::Machine(socket, _) = &port.device {
                    sockets.push((Socket { link, device, has_frames: true }, socket.as_fd()));
                }
            }
        }
        sockets
    }

    /// Takes a frame from a socket. Returns what it becomes: nothing if it is from or for nobody that is known, and a frame for each
    /// receiver if it is for all.
    pub fn receive(&self, at: Socket, into: &mut [u8]) -> Vec<Frame> {
        let Socket { link, device, has_frames } = at;
        let found = if has_frames { self.of_machine(link, device, into) } else { self.of_process(link, device, into) };
        found.unwrap_or_default()
    }

    /// A datagram of a process for the DPU whose address the socket has.
    fn of_process(&self, link: usize, to: usize, into: &mut [u8]) -> Option<Vec<Frame>> {
        let ports = self.links.get(link)?;
        let (len, sender) = ports.get(to)?.socket.as_ref()?.recv_from(into).ok()?;
        let is_sender = |port: &Port| matches!(port.device, Device::Process(Some(address)) if address == sender);
        let from = ports.iter().position(is_sender)?;
        Some(vec![Frame { link, from, to, content: Content::Datagram(into.get(..len)?.into()) }])
    }

    /// A frame of a machine.
    fn of_machine(&self, link: usize, from: usize, into: &mut [u8]) -> Option<Vec<Frame>> {
        let ports = self.links.get(link)?;
        let sender = ports.get(from)?;
        let Device::Machine(socket, _) = &sender.device else { return None };
        let len = socket.recv(into).ok()?;
        let bytes = into.get(..len)?;
        let destination = bytes.first_chunk::<6>()?;
        let is_for_all = destination[0] & 1 == 1;
        let frame = |from, to, content| Some(Frame { link, from, to, content });
        let others = ports.iter().enumerate().filter(|(device, _)| *device != from);
        let frames = others.filter_map(|(to, port)| match &port.device {
            Device::Machine(..) if is_for_all || port.end.ethernet == *destination => {
                frame(from, to, Content::Frame(bytes.into()))
            }
            Device::Machine(..) => None,
            // The relay is the network card of a process.
            Device::Process(_) => match answer(bytes, &port.end) {
                Some(reply) => frame(to, from, Content::Frame(reply)),
                None => frame(from, to, Content::Datagram(unwrap(bytes, &sender.end, &port.end)?.into())),
            },
        });
        Some(frames.collect())
    }

    /// Sends a frame to the DPU that it is for. A frame that cannot be sent is lost.
    pub fn send(&self, Frame { link, from, to, content }: &Frame) {
        let ports = self.links.get(*link);
        let port = |device: &usize| ports.and_then(|ports| ports.get(*device));
        let (Some(from), Some(to)) = (port(from), port(to)) else { return };
        let _ = match (&to.device, &from.socket, content) {
            (Device::Process(Some(address)), Some(socket), Content::Datagram(bytes)) => socket.send_to(bytes, address),
            (Device::Machine(socket, path), _, Content::Frame(bytes)) => socket.send_to(bytes, path),
            (Device::Machine(socket, path), _, Content::Datagram(bytes)) => {
                socket.send_to(&wrap(&from.end, &to.end, bytes), path)
            }
            _ => return,
        };
    }
}

/// An Ethernet address as text.
pub fn hex(ethernet: [u8; 6]) -> String {
    ethernet.map(|byte| format!("{byte:02x}")).join(":")
}

impl Drop for Network {
    fn drop(&mut self) {
        for port in self.links.iter().flatten() {
            // A file of a socket stays until it is removed.
            if let Device::Machine(socket, _) = &port.device
                && let Ok(address) = socket.local_addr()
            {
                let _ = address.as_pathname().map(fs::remove_file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counts, LINKS, Rates, Relay};
    use super::*;

    const NOWHERE: &str = "/nowhere";
    const DOUBLE: Rates = Rates { lose: 0.0, double: 1.0, reorder: 0.0 };

    fn process() -> UdpSocket {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    }

    #[test]
    fn each_of_the_most_dpus_has_an_address_of_its_own() {
        let all = (0..LINKS).flat_map(|link| (0..256).map(move |device| address(77, link, device)));
        let all: std::collections::HashSet<_> = all.collect();
        assert_eq!(all.len(), 256 * LINKS);
        assert!(all.iter().all(|address| !matches!(address.octets()[3], 0 | 1 | 255)), "{all:?}");
    }

    #[test]
    fn datagrams_seem_to_come_from_the_address_by_which_their_sender_is_known() {
        let devices = [(); 2].map(|()| process());
        let stranger = process();
        let mut network = Network::new(Path::new(NOWHERE), &[false; 2], 1, Protocol::Udp).unwrap();
        network.set_processes(&devices.each_ref().map(|device| vec![device.local_addr().unwrap()]));
        let known = [0, 1].map(|device| network.addresses(device)[0]);
        let relay = Relay::start(network, DOUBLE, 7, None).unwrap();
        let mut into = [0; 8];
        stranger.send_to(b"strange", known[1]).unwrap();
        devices[0].send_to(b"one", known[1]).unwrap();
        for _ in 0..2 {
            assert_eq!(devices[1].recv_from(&mut into).unwrap(), (3, known[0]));
            assert_eq!(into[..3], *b"one");
        }
        devices[1].send_to(b"back", known[0]).unwrap();
        assert_eq!(devices[0].recv_from(&mut into).unwrap(), (4, known[1]));
        assert_eq!(relay.end(), Counts { frames: 2, doubled: 2, by_link: [2, 0], ..Counts::default() });
    }

    #[test]
    fn two_systems_have_different_networks() {
        let networks = [(); 2].map(|()| Network::new(Path::new(NOWHERE), &[false; 2], 2, Protocol::Udp).unwrap());
        let mut addresses: Vec<_> =
            networks.iter().flat_map(|network| [0, 1].map(|device| network.addresses(device)).concat()).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), 8);
    }

    #[test]
    fn ethernet_frames_go_to_the_machine_of_their_destination_or_to_all() {
        let folder = tempfile::tempdir().unwrap();
        let network = Network::new(folder.path(), &[true; 3], 2, Protocol::Ethernet).unwrap();
        let plugs = [0, 1, 2].map(|device| network.plugs(device));
        let machines = plugs.each_ref().map(|plugs| UnixDatagram::bind(&plugs[1].emulator).unwrap());
        let relay = Relay::start(network, Rates { reorder: 1.0, ..Rates::default() }, 7, None).unwrap();
        let say = |from: usize, to: [u8; 6]| {
            let frame = [&to[..], &plugs[from][1].ethernet, b"hello"].concat();
            machines[from].send_to(&frame, &plugs[from][1].relay).unwrap();
            frame
        };
        let hear = |device: usize| {
            let mut into = [0; 64];
            let len = machines[device].recv(&mut into).unwrap();
            into[..len].to_vec()
        };
        say(0, plugs[1][0].ethernet); // at the other link
        let frame = say(0, plugs[2][1].ethernet);
        assert_eq!(hear(2), frame);
        let frame = say(2, plugs[1][1].ethernet);
        assert_eq!(hear(1), frame);
        let frame = say(1, [0xff; 6]);
        assert_eq!([hear(0), hear(2)], [frame.clone(), frame]);
        assert_eq!(relay.end(), Counts { frames: 4, held: 4, by_link: [0, 4], ..Counts::default() });
        assert!(!plugs[0][1].relay.exists());
    }

    /// The relay is the network card of a process: it answers ARP, and takes the datagrams out of the frames.
    #[test]
    fn a_machine_and_a_process_exchange_datagrams() {
        let folder = tempfile::tempdir().unwrap();
        let process = process();
        let mut network = Network::new(folder.path(), &[true, false], 1, Protocol::Udp).unwrap();
        network.set_processes(&[vec![], vec![process.local_addr().unwrap()]]);
        let plug = network.plugs(0).remove(0);
        let machine = UnixDatagram::bind(&plug.emulator).unwrap();
        let known = [0, 1].map(|device| network.addresses(device)[0]);
        let ends = known.map(|address| match address.ip() {
            std::net::IpAddr::V4(ip) => End::with(ip),
            std::net::IpAddr::V6(_) => unreachable!("it has IPv4 addresses"),
        });
        assert_eq!(plug.ethernet, ends[0].ethernet);
        let relay = Relay::start(network, Rates::default(), 7, None).unwrap();
        let mut into = [0; 2048];
        let [mine, other] = ends.map(|end| end.ip.octets());
        let request = [&[0xff; 6][..], &plug.ethernet, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &plug.ethernet];
        let request = [&request.concat()[..], &mine, &[0; 6], &other].concat();
        machine.send_to(&request, &plug.relay).unwrap();
        let len = machine.recv(&mut into).unwrap();
        assert_eq!((into[20..22].to_vec(), into[22..28].to_vec(), len), (vec![0, 2], ends[1].ethernet.to_vec(), 42));
        machine.send_to(&wrap(&ends[0], &ends[1], b"from the machine"), &plug.relay).unwrap();
        assert_eq!(process.recv_from(&mut into).unwrap(), (16, known[0]));
        assert_eq!(into[..16], *b"from the machine");
        process.send_to(b"from the process", known[0]).unwrap();
        let len = machine.recv(&mut into).unwrap();
        assert_eq!(unwrap(&into[..len], &ends[1], &ends[0]), Some(&b"from the process"[..]));
        assert_eq!(relay.end().frames, 3);
    }
}
