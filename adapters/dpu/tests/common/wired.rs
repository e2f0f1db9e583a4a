//! Devices with the links of the firmware over UDP, which a thread runs.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

use datagram::{Address, Interface};
use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::time::{Duration, Instant};
use towline_dpu::mapping::Mapping;
use towline_host_tests::random::Random;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::layout::Layout;

const WINDOW: usize = 1 << 20;
const SLOTS: u32 = 256;
/// Most peers of the links.
const PEERS: u32 = 16;

/// A socket that loses some datagrams.
struct Udp {
    socket: UdpSocket,
    random: Random,
    /// How many of 100 are lost.
    loss: u64,
}

impl Udp {
    fn new(seed: u64, loss: u64) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, random: Random::new(seed), loss }
    }
}

fn bytes_of(address: SocketAddr) -> Option<Address> {
    let SocketAddr::V4(address) = address else { return None };
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    Some(Address::of_six([a, b, c, d, high, low]))
}

impl Interface for Udp {
    fn address(&self) -> Address {
        bytes_of(self.socket.local_addr().unwrap()).unwrap()
    }

    fn longest(&self) -> usize {
        1472
    }

    fn capacity(&self) -> usize {
        64
    }

    fn room(&mut self) -> usize {
        64
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        if let [a, b, c, d, high, low] = *to.bytes()
            && self.random.below(100) >= self.loss
        {
            let to = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]));
            // A datagram that the kernel refuses is lost, and the link sends it again.
            let _ = self.socket.send_to(datagram, to);
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        loop {
            match self.socket.recv_from(into) {
                Ok((len, from)) => return Some((len, bytes_of(from)?)),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(_) => return None,
            }
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.socket.peek(&mut []).is_ok()
    }
}

/// Devices, which a thread runs until this is dropped.
pub struct Wired {
    pub files: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Wired {
    /// Starts devices with these limits.
    pub fn start(count: usize, limits: Limits) -> Self {
        Self::start_with_loss(count, limits, 0, 0)
    }

    /// As [`start`](Self::start), over links that lose `loss` of 100 datagrams.
    pub fn start_with_loss(count: usize, limits: Limits, seed: u64, loss: u64) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let window = |node| {
            let path = std::env::temp_dir().join(format!("towline-wired-{}-{number}-{node}", std::process::id()));
            File::create(&path).unwrap().set_len(WINDOW as u64).unwrap();
            path
        };
        let files: Vec<_> = (0..count).map(window).collect();
        let (stop, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let thread = thread::spawn({
            let (files, stop, ready) = (files.clone(), stop.clone(), ready.clone());
            move || run(&files, limits, [seed, loss], &stop, &ready)
        });
        ready.wait();
        Self { files, stop, thread: Some(thread) }
    }
}

impl Drop for Wired {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.files.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn run(files: &[PathBuf], limits: Limits, [seed, loss]: [u64; 2], stop: &AtomicBool, ready: &Barrier) {
    let mut blocks: Vec<_> = files.iter().map(|_| (vec![0; 1 << 18], vec![0; 1 << 22])).collect();
    let mappings: Vec<_> = files.iter().map(|path| Mapping::open(path, 0).unwrap()).collect();
    let mut arenas: Vec<_> = blocks
        .iter_mut()
        .map(|(own, tables)| {
            let hub = dpu::rails::hub(&mut Arena::new(own)).unwrap();
            (hub, Arena::new(tables))
        })
        .collect();
    let devices = (1..).zip(mappings.iter().zip(&mut arenas));
    let mut servers: Vec<_> = devices
        .map(|(boot, (mapping, (hub, arena)))| {
            // SAFETY: the servers end before the mappings.
            let memory = unsafe { mapping.memory() }.unwrap();
            let patience = Duration::from_millis(1);
            let socket = Udp::new(seed << 8 | u64::from(boot), loss);
            let rails = dpu::rails::make(&*hub, PEERS, [Some(socket), None], boot, patience, arena).unwrap();
            let (operations, one_sided) = (limits.engine.requests, limits.engine.rma.operations);
            let about = About { boot, operations, one_sided, description: "test", doorbell: Doorbell::None };
            let device = Device::start(memory, Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
            Server::new(&limits, arena, rails, device).map_err(|(why, _)| why).unwrap()
        })
        .collect();
    ready.wait();
    let start = std::time::Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::from_nanos(start.elapsed().as_nanos() as u64);
        let events: u32 = servers.iter_mut().map(|server| server.poll(now)).sum();
        if events == 0 {
            thread::yield_now();
        }
    }
}
