//! DPUs as processes of their own, in an emulator for boards without an operating system, and their hosts in this process.
//! `scripts/firmware` builds the program, and sets `TOWLINE_FIRMWARE_BOARD` to the board and `TOWLINE_FIRMWARE_DPU` to the program's
//! path.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use towline_window::command::{ANY, Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::host::{Attaching, DeviceError, Host};
use towline_window::memory::Memory;
use towline_window::ring::Pushed;

const WINDOW: usize = 16 << 20;
/// Memory of an emulated board, and where in it the window is.
const BOARD: (u64, u64) = (64 << 20, 32 << 20);
/// A wait that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// A DPU as a process, and its window.
struct Dpu {
    process: Child,
    /// The files of the pair that it belongs to.
    folder: PathBuf,
    /// Its number in the pair.
    number: usize,
    memory: Memory<'static>,
}

/// Whether the board is emulated. The others are processes.
fn is_emulated() -> bool {
    board() != "linux"
}

fn board() -> String {
    std::env::var("TOWLINE_FIRMWARE_BOARD").expect("TOWLINE_FIRMWARE_BOARD is the name of a board")
}

/// Two DPUs that reach each other.
fn pair(name: &str) -> [Dpu; 2] {
    let folder = std::env::temp_dir().join(format!("towline-dpu-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    [0, 1].map(|number| Dpu::start(&folder, number))
}

impl Dpu {
    fn start(folder: &Path, number: usize) -> Self {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let window = options.open(Self::file(folder, number)).unwrap();
        let (bytes, offset) = if is_emulated() { BOARD } else { (WINDOW as u64, 0) };
        window.set_len(bytes).unwrap();
        // SAFETY: this maps new memory, which is never unmapped.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), WINDOW, access, libc::MAP_SHARED, window.as_raw_fd(), offset as i64)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the memory is mapped as long as this process lives, and no reference to it exists.
        let memory = unsafe { Memory::new(NonNull::new(base.cast()).unwrap(), WINDOW) }.unwrap();
        Self { process: Self::spawn(folder, number), folder: folder.into(), number, memory }
    }

    fn file(folder: &Path, number: usize) -> PathBuf {
        folder.join(format!("window-{number}"))
    }

    fn spawn(folder: &Path, number: usize) -> Child {
        let program =
            std::env::var_os("TOWLINE_FIRMWARE_DPU").expect("TOWLINE_FIRMWARE_DPU is the path of the program");
        let file = Self::file(folder, number);
        let mut process = match board().as_str() {
            "virt-aarch64" => emulator("qemu-system-aarch64", "virt,memory-backend=ram -cpu cortex-a72"),
            "virt-riscv64" => emulator("qemu-system-riscv64", "virt,memory-backend=ram -bios none"),
            _ => {
                let mut process = Process::new(&program);
                process.arg(&file).arg("127.0.0.1:0");
                process
            }
        };
        if is_emulated() {
            let (here, there) = (folder.join(number.to_string()), folder.join((1 - number).to_string()));
            let _ = fs::remove_file(&here);
            let ends = format!(
                "local.type=unix,local.path={},remote.type=unix,remote.path={}",
                here.display(),
                there.display()
            );
            process
                .arg("-kernel")
                .arg(program)
                .args(["-m", "64M", "-nodefaults", "-nographic", "-monitor", "none", "-serial", "stdio"])
                .args(["-semihosting-config", "enable=on,target=native"])
                .arg("-object")
                .arg(format!("memory-backend-file,id=ram,size=64M,share=on,mem-path={}", file.display()))
                .args(["-global", "virtio-mmio.force-legacy=false", "-netdev"])
                .arg(format!("dgram,id=n0,{ends}"))
                .args(["-device", &format!("virtio-net-device,netdev=n0,mac=52:54:00:00:00:0{number}")]);
        }
        process.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Kills the process, and starts another one with the same window.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Self::spawn(&self.folder, self.number);
    }

    fn attach(&self, session: u32) -> Host<'static> {
        let mut attaching = wait("the device is ready", || Attaching::new(self.memory, session).ok());
        wait("the device serves its host", || attaching.poll())
    }
}

impl Drop for Dpu {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn emulator(program: &str, machine: &str) -> Process {
    let mut process = Process::new(program);
    process.arg("-M").args(machine.split(' '));
    process
}

fn wait<T>(what: &str, mut until: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = until() {
            return result;
        }
        assert!(start.elapsed() < LIMIT, "this did not happen in time: {what}");
        std::thread::yield_now();
    }
}

/// Executes a command, and returns its result. No other command is in progress.
fn call(host: &mut Host<'_>, command: Command) -> Result<Done, Failure> {
    begin(host, 1, command);
    let completion = next(host);
    assert_eq!(completion.cookie, 1);
    completion.result
}

fn begin(host: &mut Host<'_>, cookie: u64, command: Command) {
    assert_eq!(host.command(cookie, &command), Ok(Pushed::Done));
}

fn next(host: &mut Host<'_>) -> Completion {
    wait("a command completes", || host.take().unwrap())
}

fn card(host: &mut Host<'_>) -> Vec<u8> {
    let at = host.card().layout.buffers;
    let length = call(host, Command::Publish { into: Body { region: 0, at, bytes: 1024 } }).unwrap().value;
    let mut card = vec![0; length as usize];
    host.memory().read(at, &mut card).unwrap();
    card
}

/// Introduces all devices to each other and to themselves, and returns the number of a communicator of all.
fn introduce<const N: usize>(hosts: &mut [Host<'_>; N]) -> [u32; N] {
    let cards: Vec<_> = hosts.iter_mut().map(card).collect();
    let mut comms = [0; N];
    for ((rank, host), comm) in (0..).zip(hosts).zip(&mut comms) {
        let at = host.card().layout.buffers;
        for (peer, card) in (0..).zip(&cards) {
            host.memory().write(at, card).unwrap();
            let card = Body { region: 0, at, bytes: card.len() as u64 };
            call(host, Command::AddPeer { peer, card }).unwrap();
        }
        let command = Command::AddCommunicator { context: 1, rank, size: N as u32, peers: Body::default() };
        *comm = call(host, command).unwrap().value;
    }
    comms
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed) as u8).collect()
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn two_devices_exchange_messages_while_their_hosts_make_no_call() {
    let dpus = pair("exchange");
    assert!(dpus[0].attach(3).card().description().starts_with("towline firmware "));
    // The session of the first host ends as if it had died.
    dpus[0]
        .memory
        .word(towline_window::header::at::WANTED)
        .unwrap()
        .store(0, towline_window::atomics::Ordering::Release);
    let mut hosts = [dpus[0].attach(7), dpus[1].attach(8)];
    let comms = introduce(&mut hosts);
    let at = hosts[0].card().layout.buffers;
    for (number, length) in (0..).zip([0, 1, 100, 1024, 1025, 5000, 100_000, 1_000_000]) {
        for (from, to) in [(0, 1), (1, 0), (0, 0)] {
            let bytes = pattern(length, number as usize);
            hosts[from].memory().write(at, &bytes).unwrap();
            let body = Body { region: 0, at, bytes: length as u64 };
            let sink = Body { at: at + (4 << 20), ..body };
            let receive = Command::Receive { comm: comms[to], source: from as u32, tag: ANY, body: sink };
            let mode = Mode::Synchronous;
            let send = Command::Send { comm: comms[from], dest: to as u32, tag: number, mode, body };
            begin(&mut hosts[to], 20, receive);
            begin(&mut hosts[from], 10, send);
            let mut ends = if from == to {
                vec![next(&mut hosts[to]), next(&mut hosts[to])]
            } else {
                vec![next(&mut hosts[from]), next(&mut hosts[to])]
            };
            ends.sort_by_key(|completion| completion.cookie);
            assert_eq!(ends[0], Completion { cookie: 10, result: Ok(Done::default()) });
            let length = length as u64;
            let done = Done { rank: from as u32, tag: number, received: length, delivered: length, value: 0 };
            assert_eq!(ends[1], Completion { cookie: 20, result: Ok(done) });
            let mut into = vec![0; bytes.len()];
            hosts[to].memory().read(sink.at, &mut into).unwrap();
            assert!(into == bytes, "{length} bytes from {from} to {to} were changed");
        }
    }
    // Long messages in both directions at the same time.
    let long = Body { region: 0, at, bytes: 1_000_000 };
    let sinks = Body { at: at + (4 << 20), ..long };
    for (me, host) in hosts.iter_mut().enumerate() {
        host.memory().write(at, &pattern(1_000_000, me)).unwrap();
        begin(host, 20, Command::Receive { comm: comms[me], source: 1 - me as u32, tag: 77, body: sinks });
    }
    for (me, host) in hosts.iter_mut().enumerate() {
        let dest = 1 - me as u32;
        begin(host, 10, Command::Send { comm: comms[me], dest, tag: 77, mode: Mode::Standard, body: long });
    }
    for (me, host) in hosts.iter_mut().enumerate() {
        let ends = [next(host), next(host)];
        assert!(ends.iter().all(|end| end.result.is_ok()), "{ends:?}");
        let mut into = vec![0; 1_000_000];
        host.memory().read(sinks.at, &mut into).unwrap();
        assert!(into == pattern(1_000_000, 1 - me));
    }
    let heartbeat = hosts[0].check().unwrap();
    wait("the heartbeat changes", || (hosts[0].check() != Ok(heartbeat)).then_some(()));
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_device_that_is_reset_serves_its_host_again() {
    let mut dpus = pair("reset");
    let mut hosts = [dpus[0].attach(7), dpus[1].attach(8)];
    let comms = introduce(&mut hosts);
    let body = Body { region: 0, at: hosts[0].card().layout.buffers, bytes: 4 };
    let receive = |comm, source| Command::Receive { comm, source, tag: 5, body };
    begin(&mut hosts[0], 2, receive(comms[0], 1));
    begin(&mut hosts[1], 3, receive(comms[1], 0));
    dpus[0].restart();
    let [old, mut other] = hosts;
    wait("the host notices the reset", || (old.check() == Err(DeviceError::Restarted)).then_some(()));
    old.detach();
    // The other device loses its peer, and says so.
    assert_eq!(next(&mut other), Completion { cookie: 3, result: Err(Failure::PeerFailed) });
    let mut host = dpus[0].attach(9);
    let card = card(&mut host);
    host.memory().write(body.at, &card).unwrap();
    let card = Body { bytes: card.len() as u64, ..body };
    call(&mut host, Command::AddPeer { peer: 0, card }).unwrap();
    let command = Command::AddCommunicator { context: 1, rank: 0, size: 1, peers: Body::default() };
    let comm = call(&mut host, command).unwrap().value;
    begin(&mut host, 2, receive(comm, 0));
    let send = Command::Send { comm, dest: 0, tag: 5, mode: Mode::Standard, body: Body { at: body.at + 64, ..body } };
    begin(&mut host, 3, send);
    let mut ends = [next(&mut host), next(&mut host)];
    ends.sort_by_key(|completion| completion.cookie);
    assert!(ends[0].result.is_ok() && ends[1].result.is_ok(), "{ends:?}");
}
