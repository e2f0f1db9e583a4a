//! DPUs as processes that reach each other, and their windows.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use example_nic::frames;
use towline_window::host::{Attaching, Host};
use towline_window::memory::Memory;

use crate::console;
use crate::post::Post;

/// Where a board has its window.
#[derive(Clone, Copy)]
struct Place {
    /// Bytes of the file: the window, or memory of an emulated board.
    file: u64,
    /// Where the window begins in it.
    offset: u64,
    /// Bytes of the window.
    bytes: usize,
}

/// The boards, of which `linux` is the one that is not emulated.
fn window() -> Place {
    match board().as_str() {
        "linux" => Place { file: 16 << 20, offset: 0, bytes: 16 << 20 },
        EXAMPLE => Place { file: 16 << 20, offset: 0, bytes: 15 << 20 },
        _ => Place { file: 64 << 20, offset: 32 << 20, bytes: 16 << 20 },
    }
}

/// The board whose frame device is behind its window.
const EXAMPLE: &str = "example-nic";
/// A wait that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);

/// What the DPUs speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// UDP over IPv4.
    Udp,
    /// Ethernet frames with an ethertype of our own. Only the boards `virt` speak it.
    Ethernet,
}

impl Protocol {
    /// Those that the board speaks.
    pub fn all() -> &'static [Self] {
        match board().as_str() {
            "virt-aarch64" | "virt-riscv64" => &[Self::Udp, Self::Ethernet],
            _ => &[Self::Udp],
        }
    }

    /// The Ethernet address of an emulated board. With UDP it has the address 192.0.2.NUMBER.
    fn address(self, number: usize) -> String {
        match self {
            Self::Udp => format!("02:42:c0:00:02:{:02x}", 2 + number),
            Self::Ethernet => format!("52:54:00:00:00:{number:02x}"),
        }
    }
}

/// DPUs that reach each other. They end when this is dropped.
pub struct Dpus {
    setup: Setup,
    processes: Vec<Child>,
    memories: Vec<Memory<'static>>,
}

/// How they are started.
struct Setup {
    folder: PathBuf,
    protocol: Protocol,
    /// The firmware's settings.
    variables: Vec<(String, String)>,
    /// The pipes of each board in the emulator, by which it and its host wake each other. A process makes them itself.
    pipes: Vec<Pipes>,
}

/// The pipe of the device, which is the input of its console, and that of the host.
type Pipes = (File, Arc<File>);

/// Whether the board is emulated.
pub fn is_emulated() -> bool {
    board() != "linux"
}

/// Whether it is one of the boards `virt`.
pub fn is_virtual() -> bool {
    is_emulated() && board() != EXAMPLE
}

fn board() -> String {
    std::env::var("TOWLINE_FIRMWARE_BOARD").expect("TOWLINE_FIRMWARE_BOARD is the name of a board")
}

impl Dpus {
    /// Starts DPUs. `name` tells them from others of this process.
    pub fn start(name: &str, count: usize, protocol: Protocol) -> Self {
        Self::start_with(name, count, protocol, &[])
    }

    /// The same with settings of the firmware: variables in the environment of a process, words on the command line of the emulator.
    pub fn start_with(name: &str, count: usize, protocol: Protocol, variables: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("towline-dpu-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let memories =
            (0..count).map(|number| map(&make_file(&folder, number), window().offset, window().bytes)).collect();
        match board().as_str() {
            "linux" => {}
            EXAMPLE => deliver(&folder, count),
            _ => connect(&folder, count),
        }
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let pipes = |number| {
            let window = file(&folder, number);
            (console::input(&window).unwrap(), Arc::new(console::host_bell(&window).unwrap()))
        };
        let pipes = if is_virtual() { (0..count).map(pipes).collect() } else { Vec::new() };
        let setup = Setup { folder, protocol, variables, pipes };
        let processes = (0..count).map(|number| setup.spawn(number)).collect();
        Self { setup, processes, memories }
    }

    /// Whether the processors are those of the boards `virt`.
    pub fn are_virtual(&self) -> bool {
        is_virtual()
    }

    /// Sends a frame that no protocol knows to a board `virt`.
    pub fn send_unknown_frame(&self, number: usize) {
        // To all, with an ethertype for experiments.
        let mut frame = [0xff; 60];
        frame[12..14].copy_from_slice(&[0x88, 0xb6]);
        let socket = UnixDatagram::unbound().unwrap();
        assert_eq!(socket.send_to(&frame, end(&self.setup.folder, "board", number)).unwrap(), frame.len());
    }

    /// Whether they reach the memory of their hosts outside the windows.
    pub fn reach_hosts(&self) -> bool {
        !is_emulated()
    }

    /// The file of a window, and where the window begins in it.
    pub fn place(&self, number: usize) -> (PathBuf, u64) {
        (file(&self.setup.folder, number), window().offset)
    }

    /// The memory of a window.
    pub fn memory(&self, number: usize) -> Memory<'static> {
        self.memories[number]
    }

    /// Kills a process.
    pub fn stop(&mut self, number: usize) {
        self.processes[number].kill().unwrap();
        self.processes[number].wait().unwrap();
    }

    /// Waits until a process has ended by itself.
    pub fn wait(&mut self, number: usize) {
        self.processes[number].wait().unwrap();
    }

    /// Kills a process, and starts another one with the same window.
    pub fn restart(&mut self, number: usize) {
        self.stop(number);
        self.processes[number] = self.setup.spawn(number);
    }

    /// Has an emulated processor execute an instruction at an address without code, which it returns.
    pub fn crash(&self, number: usize) -> u64 {
        let address = if board() == EXAMPLE { 0xf000_0000 } else { 0 };
        self.jump(number, address);
        address
    }

    /// Has an emulated processor go on in the handler of panics in drivers, as if its argument were what the register has.
    pub fn panic(&self, number: usize) {
        let symbols = Process::new("readelf").arg("-sW").arg(program()).output().expect("readelf runs");
        let symbols = String::from_utf8(symbols.stdout).unwrap();
        // Its name in the program has the length in front.
        let handler = symbols.lines().find(|line| line.contains("8panicked")).expect("the program has the handler");
        let address = handler.split_whitespace().nth(1).expect("a symbol has a value");
        self.jump(number, u64::from_str_radix(address, 16).unwrap());
    }

    /// Has an emulated processor go on at an address, by the debugger stub of the emulator.
    fn jump(&self, number: usize, address: u64) {
        let mut stub =
            wait("the debugger stub listens", || UnixStream::connect(self.setup.folder.join(debugger(number))).ok());
        let registers = ask(&mut stub, "g");
        // The number of the program counter, and the bytes of a register. Each byte has two digits.
        let (counter, bytes) = if board() == EXAMPLE { (15, 4) } else { (32, 8) };
        let text: String = address.to_le_bytes()[..bytes].iter().map(|byte| format!("{byte:02x}")).collect();
        let (before, after) = (&registers[..counter * 2 * bytes], &registers[(counter + 1) * 2 * bytes..]);
        assert_eq!(ask(&mut stub, &format!("G{before}{text}{after}")), "OK");
        assert_eq!(ask(&mut stub, "D"), "OK");
    }

    /// Begins a session as the host of a DPU.
    pub fn attach(&self, number: usize, session: u32) -> Host<'static> {
        let mut attaching = wait("the device is ready", || Attaching::new(self.memories[number], session).ok());
        wait("the device serves its host", || attaching.poll())
    }
}

impl Drop for Dpus {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.setup.folder);
    }
}

/// Sends a packet to a debugger stub, and returns its answer. Packets are `$TEXT#SUM`, with a plus sign after those that were understood.
fn ask(stub: &mut UnixStream, command: &str) -> String {
    let sum = command.bytes().fold(0, u8::wrapping_add);
    stub.write_all(format!("${command}#{sum:02x}").as_bytes()).unwrap();
    loop {
        let (mut packet, mut byte) = (Vec::new(), [0]);
        while packet.iter().rev().nth(2) != Some(&b'#') {
            stub.read_exact(&mut byte).unwrap();
            packet.push(byte[0]);
        }
        let packet = String::from_utf8(packet).unwrap();
        let (_, text) = packet.split_once('$').unwrap();
        let text = &text[..text.len() - 3];
        // When it is asked first, it also tells that the processor has stopped.
        if !text.starts_with('T') {
            // After the last command the emulator may have ended.
            let _ = stub.write_all(b"+");
            return text.into();
        }
    }
}

/// The socket of an emulator's debugger stub.
fn debugger(number: usize) -> String {
    format!("debugger-{number}")
}

fn file(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("window-{number}"))
}

fn make_file(folder: &Path, number: usize) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let made = options.open(file(folder, number)).unwrap();
    made.set_len(window().file).unwrap();
    made
}

/// Maps a part of a file.
fn map(file: &File, offset: u64, bytes: usize) -> Memory<'static> {
    // SAFETY: this maps new memory, which is never unmapped.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), offset as i64)
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: the memory is mapped as long as this process lives, and no reference to it exists.
    unsafe { Memory::new(NonNull::new(base.cast()).unwrap(), bytes) }.unwrap()
}

impl Setup {
    fn spawn(&self, number: usize) -> Child {
        let Self { folder, protocol, variables, pipes } = self;
        let (program, file) = (program(), file(folder, number));
        let mut process = match board().as_str() {
            "virt-aarch64" => emulator("qemu-system-aarch64", "virt,memory-backend=ram -cpu cortex-a72"),
            "virt-riscv64" => emulator("qemu-system-riscv64", "virt,memory-backend=ram -bios none"),
            EXAMPLE => emulator("qemu-system-arm", "mps2-an386,memory-backend=ram"),
            _ => {
                let mut process = Process::new(&program);
                process.arg(&file).arg("127.0.0.1:0").envs(variables.iter().cloned());
                process
            }
        };
        if is_emulated() {
            let memory = window().file;
            let line: String = variables.iter().map(|(name, value)| format!(",arg={name}={value}")).collect();
            process
                .arg("-kernel")
                .arg(program)
                .args(["-nodefaults", "-nographic", "-monitor", "none", "-serial", "stdio"])
                .args(["-semihosting-config", &format!("enable=on,target=native,arg=dpu{line}")])
                .args(["-m", &format!("{memory}B"), "-object"])
                .arg(format!("memory-backend-file,id=ram,size={memory}B,share=on,mem-path={}", file.display()))
                .args(["-gdb", &format!("unix:{},server=on,wait=off", folder.join(debugger(number)).display())]);
        }
        if is_virtual() {
            let [board, network] = ["board", "hub"].map(|side| end(folder, side, number));
            let _ = fs::remove_file(&board);
            let ends = format!(
                "local.type=unix,local.path={},remote.type=unix,remote.path={}",
                board.display(),
                network.display()
            );
            process
                .args(["-global", "virtio-mmio.force-legacy=false", "-netdev"])
                .arg(format!("dgram,id=n0,{ends}"))
                .args(["-device", &format!("virtio-net-device,netdev=n0,mac={}", protocol.address(number))]);
        }
        process.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((device, _)) = pipes.get(number) {
            process.stdin(device.try_clone().unwrap()).stdout(Stdio::piped());
        }
        // SAFETY: the call is one that a child may make before it runs its program.
        unsafe {
            process.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let mut child = start(process);
        if let (Some((_, host)), Some(output)) = (pipes.get(number), child.stdout.take()) {
            let host = host.clone();
            // It ends with the output.
            thread::spawn(move || console::listen(output, Some(&host), |_| ()));
        }
        child
    }
}

/// The program of a DPU.
pub fn program() -> OsString {
    std::env::var_os("TOWLINE_FIRMWARE_DPU").expect("TOWLINE_FIRMWARE_DPU is the path of the program")
}

/// Starts a process that ends with this one. The system ends it with the thread that has started it, so that thread starts all of
/// them, and never ends.
fn start(process: Process) -> Child {
    type Order = (Process, mpsc::Sender<std::io::Result<Child>>);
    static STARTER: LazyLock<Mutex<mpsc::Sender<Order>>> = LazyLock::new(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        thread::spawn(move || orders.iter().for_each(|(mut process, reply)| drop(reply.send(process.spawn()))));
        Mutex::new(sender)
    });
    let (reply, child) = mpsc::channel();
    STARTER.lock().unwrap().send((process, reply)).unwrap();
    child.recv().unwrap().unwrap()
}

fn emulator(program: &str, machine: &str) -> Process {
    let mut process = Process::new(program);
    process.arg("-M").args(machine.split(' '));
    process
}

/// The socket of one side of a board's network.
fn end(folder: &Path, side: &str, number: usize) -> PathBuf {
    folder.join(format!("{side}-{number}"))
}

/// Makes the network of boards of the example: the other end of their frame devices.
fn deliver(folder: &Path, count: usize) {
    let device = |number| {
        let file = File::options().read(true).write(true).open(file(folder, number)).unwrap();
        map(&file, window().bytes as u64, frames::BYTES)
    };
    let mut post = Post::new((0..count).map(device), 0);
    // It ends with the process.
    thread::spawn(move || {
        loop {
            post.pass();
            thread::yield_now();
        }
    });
}

/// Makes the network of emulated boards: a hub, which passes each frame to all other boards.
fn connect(folder: &Path, count: usize) {
    for number in 0..count {
        let socket = UnixDatagram::bind(end(folder, "hub", number)).unwrap();
        let others: Vec<_> =
            (0..count).filter(|other| *other != number).map(|other| end(folder, "board", other)).collect();
        // It ends with the process.
        thread::spawn(move || {
            let mut frame = [0; 4096];
            while let Ok(length) = socket.recv(&mut frame) {
                for other in &others {
                    // A board that does not run loses frames.
                    let _ = socket.send_to(&frame[..length], other);
                }
            }
        });
    }
}

/// Waits until something has happened.
pub fn wait<T>(what: &str, mut until: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = until() {
            return result;
        }
        assert!(start.elapsed() < LIMIT, "this did not happen in time: {what}");
        thread::yield_now();
    }
}
