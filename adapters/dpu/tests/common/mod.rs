//! Devices that a thread of this process runs, with loopback rails between them.
#![allow(dead_code, reason = "each test uses a part")]

pub mod messages;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use offload::host_memory::HostTables;
use offload::{Limits, Server};
use processes::Processes;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use towline_core::arena::Arena;
use towline_core::pml::Config;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::time::Instant;
use towline_dpu::mapping::Mapping;
use towline_dpu::{Options, Transport};
use towline_window::device::{About, Device};
use towline_window::doorbell::{Doorbell, HOST_PIPE, PIPE};
use towline_window::layout;

pub const WINDOW: usize = 1 << 20;
pub const SLOTS: u32 = 64;
/// How long a device that has stopped is waited for. The thread of the devices may have to wait for a processor.
pub const SILENT: Duration = Duration::from_secs(1);
pub const ENGINE: Config =
    Config { peers: 2, requests: 16, unexpected: 16, units: 16, unit_bytes: 512, ..Config::SMALLEST };
const HOST_REGIONS: u32 = 2;
type Rails<'m> = [Loopback<'m>; 1];

/// Devices, which a thread runs.
pub struct Devices {
    pub files: Vec<PathBuf>,
    pipes: Vec<PathBuf>,
    /// Which devices are stopped.
    stopped: Arc<[AtomicBool]>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts two devices.
pub fn start() -> Devices {
    start_many(2, Limits { engine: ENGINE, communicators: 2, messages: 2 })
}

/// Starts devices with these limits.
pub fn start_many(count: u32, limits: Limits) -> Devices {
    start_with(count, limits, WINDOW)
}

/// Starts two devices that do not reach the memory of their hosts.
pub fn start_blind() -> Devices {
    start_blind_with(ENGINE)
}

/// The same, with engines of this configuration.
pub fn start_blind_with(engine: Config) -> Devices {
    launch(2, Limits { engine, communicators: 2, messages: 2 }, WINDOW, false, false)
}

/// Starts two devices with doorbells. They wake their hosts, and never sleep themselves.
pub fn start_ringing() -> Devices {
    launch(2, Limits { engine: ENGINE, communicators: 2, messages: 2 }, WINDOW, true, true)
}

/// As [`start_many`], with windows of `bytes` bytes.
pub fn start_with(count: u32, limits: Limits, bytes: usize) -> Devices {
    launch(count, limits, bytes, true, false)
}

fn launch(count: u32, limits: Limits, bytes: usize, reaches: bool, rings: bool) -> Devices {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let window = |node| {
        let path = std::env::temp_dir().join(format!("towline-window-{}-{number}-{node}", std::process::id()));
        File::create(&path).unwrap().set_len(bytes as u64).unwrap();
        path
    };
    let files: Vec<_> = (0..count).map(window).collect();
    let pipes = files.iter().filter(|_| rings).flat_map(|file| [HOST_PIPE, PIPE].map(|suffix| pipe(file, suffix)));
    let (pipes, bells): (Vec<_>, Vec<_>) = pipes.unzip();
    let stopped: Arc<[AtomicBool]> = files.iter().map(|_| AtomicBool::new(false)).collect();
    let (stop, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let thread = thread::spawn({
        let (files, stopped, stop, ready) = (files.clone(), stopped.clone(), stop.clone(), ready.clone());
        move || run(&files, limits, reaches, &bells, &stopped, &stop, &ready)
    });
    ready.wait();
    Devices { files, pipes, stopped, stop, thread: Some(thread) }
}

/// Makes a pipe beside a window. Returns its path, too.
fn pipe(window: &Path, suffix: &str) -> (PathBuf, File) {
    let mut path = window.as_os_str().to_owned();
    path.push(suffix);
    let path = PathBuf::from(path);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let flags = OFlags::NONBLOCK.bits() as i32;
    let pipe = File::options().read(true).write(true).custom_flags(flags).open(&path).unwrap();
    (path, pipe)
}

/// `bells` are the pipes of the hosts and of the devices in turn, or none.
fn run(
    files: &[PathBuf],
    limits: Limits,
    reaches: bool,
    bells: &[File],
    stopped: &[AtomicBool],
    stop: &AtomicBool,
    ready: &Barrier,
) {
    let bodies = limits.engine.requests;
    let server = Server::<'static, 'static, Rails<'static>>::bytes(&limits, &[&Hub::attributes(1024)])
        + HostTables::bytes(HOST_REGIONS, bodies);
    let bytes = Hub::cost(files.len() as u32, 8, 1024) + files.len() * server;
    let mut block = vec![0; bytes];
    let mut arena = Arena::new(&mut block);
    let hub = Hub::new(&mut arena, files.len() as u32, 8, 1024).unwrap();
    let processes: Vec<_> = files.iter().map(|path| Processes::new(&fs::metadata(path).unwrap())).collect();
    let mappings: Vec<_> = files.iter().map(|path| Mapping::open(path, 0).unwrap()).collect();
    let mut servers: Vec<_> = (0..)
        .zip(mappings.iter().zip(&processes))
        .map(|(me, (mapping, processes))| {
            // SAFETY: the servers end before the mappings.
            let memory = unsafe { mapping.memory() }.unwrap();
            let about = About {
                boot: me + 1,
                operations: limits.engine.requests,
                one_sided: limits.engine.rma.operations,
                description: "test 1",
                doorbell: if bells.is_empty() { Doorbell::None } else { Doorbell::Pipes },
            };
            let layout = layout::Layout::plan(memory.bytes(), SLOTS, SLOTS).unwrap();
            let device = Device::start(memory, layout, &about).unwrap();
            let server = Server::new(&limits, &mut arena, [hub.rail(me).unwrap()], device);
            let mut server = server.map_err(|(why, _)| why).unwrap();
            if reaches {
                server.reach_host(processes, HOST_REGIONS, bodies, &mut arena).unwrap();
            }
            server
        })
        .collect();
    ready.wait();
    let start = std::time::Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::from_nanos(start.elapsed().as_nanos() as u64);
        let running = servers.iter_mut().zip(stopped).filter(|(_, stopped)| !stopped.load(Ordering::Relaxed));
        let events: u32 = running.map(|(server, _)| server.poll(now)).sum();
        for (server, [bell, _]) in servers.iter_mut().zip(bells.as_chunks().0) {
            if server.device_mut().must_ring() {
                let _ = (&*bell).write(&[0]); // a full pipe wakes the host, too
            }
        }
        if events == 0 {
            thread::yield_now();
        }
    }
}

impl Devices {
    pub fn open(&self, node: usize) -> Transport {
        let options = Options { silent_for: SILENT, ..Options::default() };
        Transport::open(&self.files[node], options).unwrap()
    }

    /// As [`open`](Self::open), for a host that lets its device read and write all its messages where they lie.
    pub fn open_direct(&self, node: usize) -> Transport {
        let options = Options { silent_for: SILENT, direct_from: 1, ..Options::default() };
        let mut transport = Transport::open(&self.files[node], options).unwrap();
        assert_eq!(transport.reach_memory(), Ok(true));
        transport
    }

    /// A device stops, and says nothing.
    pub fn stop_one(&self, node: usize) {
        self.stopped[node].store(true, Ordering::Relaxed);
    }

    /// A device that has stopped goes on.
    pub fn resume_one(&self, node: usize) {
        self.stopped[node].store(false, Ordering::Relaxed);
    }

    /// The devices stop, and say nothing.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.files.iter().chain(&self.pipes).for_each(|path| drop(fs::remove_file(path)));
    }
}
