//! The process as a DPU: its window is a file that the host maps, too, and its network is UDP, by one socket
//! or two.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

use datagram::{Address, Interface};
use dpu::Dpu;
use dpu::rails::LINKS;
use offload::host_memory::HostMemory;
use processes::Processes;
use runtime::{Block, Board, Zeros};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use towline_core::time::Duration;
use towline_window::doorbell::Doorbell;
use towline_window::memory::Memory;

use crate::Machine;
use crate::doorbell;

/// Bytes of the longest datagram, if the user says nothing else: what fits a frame of Ethernet.
const LONGEST: usize = 1472;
/// What the longest datagram may have: room for a frame of the engine, and what UDP carries.
const LENGTHS: RangeInclusive<usize> = 256..=65_507;
/// Datagrams that the kernel takes at least.
const CAPACITY: usize = 64;

/// Bytes of datagrams that wait in the kernel while this process does not run. A link of one peer has up to 128 datagrams on the way, which
/// take more than the kernel's default has room for, since it counts at least 2304 bytes for each.
const RECEIVED: usize = 4 << 20;

/// The window and the interfaces, until the program takes them.
static PARTS: Mutex<(Option<Memory<'static>>, [Option<Udp>; LINKS])> = Mutex::new((None, [const { None }; LINKS]));

/// Memory of the host, which has the window's file open.
static HOST: OnceLock<Processes> = OnceLock::new();

/// Opens window and network as the arguments of the program say: the file of the window, the addresses of the sockets, the length of the
/// longest datagram, and the addresses that other devices are told. Prints the addresses of the sockets.
///
/// # Errors
/// A text that says what is wrong.
pub fn configure(mut arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let usage = || String::from("usage: dpu WINDOW ADDRESS[,ADDRESS] [BYTES [ADVERTISED[,ADVERTISED]]]");
    let path = arguments.next().ok_or_else(usage)?;
    let addresses = arguments.next().ok_or_else(usage)?;
    let longest = match arguments.next() {
        None => LONGEST,
        Some(bytes) => bytes.parse().map_err(|why| format!("{bytes} is not a number of bytes: {why}"))?,
    };
    let advertised = arguments.next();
    if arguments.next().is_some() {
        return Err(usage());
    }
    if !LENGTHS.contains(&longest) {
        let (least, most) = LENGTHS.into_inner();
        return Err(format!("datagrams of {longest} bytes cannot be used: pass {least} to {most}"));
    }
    let memory = map(&path).map_err(|why| format!("the window {path} cannot be mapped: {why}"))?;
    let bind = |address: &str| Udp::bind(address, longest).map_err(|why| format!("{address} cannot be used: {why}"));
    let mut interfaces = addresses.split(',').map(bind).collect::<Result<Vec<_>, _>>()?;
    if interfaces.len() > LINKS {
        return Err(format!("{addresses} are too many addresses: pass up to {LINKS}"));
    }
    // Who starts the program with port 0 learns the port.
    let bound = interfaces.iter().map(|interface| interface.address.to_string()).collect::<Vec<_>>().join(",");
    Machine::print(format_args!("dpu: reached at {bound}\n"));
    if let Some(advertised) = advertised {
        let read = |text: &str| {
            let wrong = |why| format!("{text} is not an address and port of IPv4, such as 192.0.2.1:4000: {why}");
            text.parse::<SocketAddrV4>().map_err(wrong)
        };
        let told = advertised.split(',').map(read).collect::<Result<Vec<_>, _>>()?;
        if told.len() != interfaces.len() {
            return Err(format!("{addresses} and {advertised} differ in their number"));
        }
        interfaces.iter_mut().zip(told).for_each(|(interface, told)| interface.address = told);
    }
    if let Some(Udp { address, .. }) = interfaces.iter().find(|interface| !interface.is_reachable()) {
        return Err(format!(
            "other devices would be told the address {address}, which they cannot reach: pass an address of this machine, or the addresses that they are told"
        ));
    }
    let sockets = interfaces.iter().map(|interface| interface.socket.try_clone().map(Into::into));
    let sockets = sockets.collect::<Result<_, _>>().map_err(|why| format!("{addresses} cannot be used: {why}"))?;
    doorbell::make(&path, sockets)?;
    let mut interfaces = interfaces.into_iter();
    *PARTS.lock().map_err(|_| String::from("another thread has failed"))? =
        (Some(memory), std::array::from_fn(|_| interfaces.next()));
    Ok(())
}

/// Maps a file as a window.
fn map(path: &str) -> Result<Memory<'static>, std::io::Error> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let about = file.metadata()?;
    let bytes = usize::try_from(about.len()).map_err(std::io::Error::other)?;
    if bytes == 0 {
        return Err(std::io::Error::other("it is empty: make it as long as the window, such as by `truncate -s 16M`"));
    }
    // SAFETY: this maps new memory, which is never unmapped.
    let base = unsafe {
        mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file.as_fd(), 0)?
    };
    let _ = HOST.set(Processes::new(&about));
    let base = NonNull::new(base.cast()).ok_or_else(|| std::io::Error::other("it is at address 0"))?;
    // SAFETY: the memory is mapped as long as the process lives, and no reference to it exists. If the host makes the file shorter,
    // an access ends this process.
    unsafe { Memory::new(base, bytes) }.ok_or_else(|| std::io::Error::other("it is not at a multiple of 64"))
}

/// A socket for UDP.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    /// What other devices are told.
    address: SocketAddrV4,
    longest: usize,
}

/// The 6 bytes of an address.
fn bytes_of(address: SocketAddrV4) -> Address {
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    Address::of_six([a, b, c, d, high, low])
}

impl Udp {
    /// Whether others can send to the address that they are told.
    fn is_reachable(&self) -> bool {
        !self.address.ip().is_unspecified() && self.address.port() != 0
    }

    fn bind(address: &str, longest: usize) -> Result<Self, std::io::Error> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        // The kernel takes what it allows.
        set_socket_recv_buffer_size(&socket, RECEIVED)?;
        match socket.local_addr()? {
            std::net::SocketAddr::V4(address) => Ok(Self { socket, address, longest }),
            std::net::SocketAddr::V6(_) => Err(std::io::Error::other("it is not an address of IPv4")),
        }
    }
}

impl Interface for Udp {
    fn address(&self) -> Address {
        bytes_of(self.address)
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn capacity(&self) -> usize {
        CAPACITY
    }

    fn room(&mut self) -> usize {
        CAPACITY
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        if let [a, b, c, d, high, low] = *to.bytes() {
            let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
            // A datagram that the kernel refuses is lost, and the link sends it again.
            let _ = self.socket.send_to(datagram, to);
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        loop {
            match self.socket.recv_from(into) {
                Ok((len, std::net::SocketAddr::V4(from))) => return Some((len, bytes_of(from))),
                Ok((_, std::net::SocketAddr::V6(_))) => {}
                // The kernel reports that an earlier datagram found no receiver.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.socket.peek(&mut []).is_ok()
    }
}

impl Dpu for Machine {
    type Interface = Udp;

    const PATIENCE_MILLIS: u64 = 1;

    const PEERS: u32 = 256;

    /// The system has pages for the memory that is used, and no more.
    fn tables() -> Option<Zeros> {
        /// 32 MiB.
        static TABLES: Block<{ 1 << 22 }> = Block::new();
        TABLES.take_zeros()
    }

    fn window() -> Option<Memory<'static>> {
        PARTS.lock().ok()?.0.take()
    }

    fn interfaces() -> [Option<Udp>; LINKS] {
        PARTS.lock().map(|mut parts| std::mem::take(&mut parts.1)).unwrap_or_default()
    }

    fn host_memory() -> Option<&'static dyn HostMemory> {
        HOST.get().map(|memory| memory as &dyn HostMemory)
    }

    fn boot() -> u32 {
        // The time in units of 256 microseconds, and the number of the process.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        ((since.as_micros() >> 8) as u32).rotate_left(8) ^ std::process::id()
    }

    fn pause() {
        std::thread::yield_now();
    }

    fn doorbell() -> Doorbell {
        doorbell::kind()
    }

    fn awake() -> Duration {
        doorbell::awake()
    }

    fn sleep(most: Option<Duration>) {
        doorbell::sleep(most);
    }

    fn ring() {
        doorbell::ring();
    }
}
