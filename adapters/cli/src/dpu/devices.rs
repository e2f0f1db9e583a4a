//! The processes that are the DPUs.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use towline_bootstrap::launch::prepare_child;

use super::boards::Board;
use super::relay::{Network, ethernet_address, paths};
use super::signals;

/// The longest time until all DPUs are ready. An emulator on a busy machine is slow.
const LIMIT: Duration = Duration::from_secs(60);
/// The time between two looks at signals.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a datagram: what fits a frame of Ethernet.
const DATAGRAM: &str = "1472";

/// What the program of a DPU prints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Which DPU.
    pub device: usize,
    /// A line. `None`: it has ended.
    pub line: Option<String>,
}

/// A DPU.
#[derive(Debug)]
pub struct Device {
    /// Its board.
    pub board: Board,
    /// The file of its window.
    pub file: PathBuf,
    process: Child,
    /// The address of a process, once it is known.
    address: Option<SocketAddr>,
}

/// The DPUs. They end when this is dropped, or when the thread that has started them ends.
#[derive(Debug)]
pub struct Devices(pub Vec<Device>);

impl Devices {
    /// Starts DPUs with their files in a folder, which reach each other by a network, and waits until they are ready. Returns what they
    /// print from then on, too.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn start(
        boards: &[(Board, PathBuf)],
        folder: &Path,
        network: &Network,
    ) -> Result<(Self, Receiver<Said>), String> {
        let (sender, said) = channel();
        let mut this = Self(Vec::new());
        for (number, (board, program)) in boards.iter().enumerate() {
            let device = Device::start(number, *board, program, folder, network, sender.clone())?;
            this.0.push(device);
        }
        drop(sender);
        this.wait(&said)?;
        Ok((this, said))
    }

    /// The addresses of processes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|device| device.address).collect()
    }

    fn wait(&mut self, said: &Receiver<Said>) -> Result<(), String> {
        let (start, mut ready) = (Instant::now(), vec![false; self.0.len()]);
        while let Some(late) = ready.iter().position(|is_ready| !is_ready) {
            if signals::waiting().is_some() {
                return Err("interrupted before the DPUs were ready".into());
            }
            if start.elapsed() > LIMIT {
                return Err(format!("{} is not ready after {} s", self.name(late), LIMIT.as_secs()));
            }
            let said = match said.recv_timeout(LOOK) {
                Ok(said) => said,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err("all DPUs have ended".into()),
            };
            let Some(line) = said.line else { return Err(self.ended(said.device)) };
            if let Some(address) = line.strip_prefix("dpu: reached at ") {
                self.0[said.device].address = address.parse().ok();
            } else if line.starts_with("dpu: ready") {
                let device = &self.0[said.device];
                if device.board == Board::Linux && device.address.is_none() {
                    let name = self.name(said.device);
                    return Err(format!(
                        "{name} does not print its address: build the firmware of this version of Towline"
                    ));
                }
                ready[said.device] = true;
            } else {
                // Why it cannot start, for example.
                eprintln!("towline: DPU {}: {line}", said.device);
            }
        }
        Ok(())
    }

    fn name(&self, device: usize) -> String {
        format!("DPU {device} (board {})", self.0[device].board.name())
    }

    /// Text for a DPU that has closed its output.
    pub fn ended(&mut self, device: usize) -> String {
        let name = self.name(device);
        // It may run a little longer than its output is open.
        match self.0[device].process.wait() {
            Ok(status) => format!("{name} has ended: {status}"),
            Err(why) => format!("{name} has ended: {why}"),
        }
    }

    /// One line for each DPU: what runs where.
    pub fn describe(&self, network: &Network) -> Vec<String> {
        let describe = |(number, device): (usize, &Device)| {
            let at = match (device.address, network.advertised(number)) {
                (Some(address), Some(relay)) => format!("address {address}, by the relay at {relay}"),
                _ => {
                    let hex = ethernet_address(number).map(|byte| format!("{byte:02x}")).join(":");
                    format!("address {hex}")
                }
            };
            let (board, process) = (device.board.name(), device.process.id());
            format!("DPU {number}: board {board}, process {process}, window {}, {at}", device.place())
        };
        self.0.iter().enumerate().map(describe).collect()
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for device in &mut self.0 {
            // The process has no state to save. An error means that it has ended.
            let _ = device.process.kill();
            let _ = device.process.wait();
        }
    }
}

impl Device {
    /// Its window, as the ranks' setting names it.
    pub fn place(&self) -> String {
        format!("{}@{}", self.file.display(), self.board.window().offset)
    }

    fn start(
        number: usize,
        board: Board,
        program: &Path,
        folder: &Path,
        network: &Network,
        sender: Sender<Said>,
    ) -> Result<Self, String> {
        let file = folder.join(format!("window-{number}"));
        let made = File::create_new(&file).and_then(|made| made.set_len(board.window().bytes));
        made.map_err(|why| format!("cannot make the window {}: {why}", file.display()))?;
        let (mut command, missing) = match (board, network.advertised(number)) {
            (Board::Linux, Some(advertised)) => {
                let mut command = Command::new(program);
                command.arg(&file).args(["127.0.0.1:0", DATAGRAM, &advertised.to_string()]);
                (command, String::new())
            }
            _ => {
                let (mut command, missing) = board.machine(program, &file);
                let [relay, here] = paths(folder, number);
                let ends = format!(
                    "local.type=unix,local.path={},remote.type=unix,remote.path={}",
                    here.display(),
                    relay.display()
                );
                let hex = ethernet_address(number).map(|byte| format!("{byte:02x}")).join(":");
                command.args(["-netdev", &format!("dgram,id=net,{ends}")]);
                command.args(["-device", &format!("virtio-net-device,netdev=net,mac={hex}")]);
                (command, missing)
            }
        };
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
        // A signal of the terminal reaches the job, which needs the DPUs until it ends.
        command.process_group(0);
        prepare_child(&mut command);
        let mut process = command.spawn().map_err(|why| match why.kind() {
            io::ErrorKind::NotFound if !missing.is_empty() => missing,
            _ => format!("cannot start DPU {number}, {}: {why}", program.display()),
        })?;
        let out = process.stdout.take();
        std::thread::spawn(move || {
            // A process whose output nobody reads would stop at some time.
            for line in out.into_iter().flat_map(|out| BufReader::new(out).split(b'\n').map_while(Result::ok)) {
                let line = String::from_utf8_lossy(&line).trim_end().to_string();
                let _ = sender.send(Said { device: number, line: Some(line) });
            }
            sender.send(Said { device: number, line: None })
        });
        Ok(Self { board, file, process, address: None })
    }
}
