//! The processes that are the DPUs.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use towline_bootstrap::launch::{Log, prepare_child};
use towline_net::advice;

use super::boards::Board;
use super::console;
use super::relay::{Network, hex};
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
    /// The addresses of a process, one for each link, once they are known.
    addresses: Vec<SocketAddr>,
}

/// The DPUs. They end when this is dropped, or when the thread that has started them ends.
#[derive(Debug)]
pub struct Devices(pub Vec<Device>);

impl Devices {
    /// Starts DPUs with their files in a folder, which reach each other by a network, and waits until they are ready. Returns what they
    /// print from then on, too. What else they print goes to the log.
    ///
    /// # Errors
    /// A text that says why not.
    pub fn start(
        boards: &[(Board, PathBuf)],
        folder: &Path,
        network: &Network,
        log: &Log,
    ) -> Result<(Self, Receiver<Said>), String> {
        let (sender, said) = channel();
        let mut this = Self(Vec::new());
        for (number, (board, program)) in boards.iter().enumerate() {
            let device = Device::start(number, *board, program, folder, network, sender.clone())?;
            this.0.push(device);
        }
        drop(sender);
        this.wait(&said, network, log)?;
        Ok((this, said))
    }

    /// The addresses of each DPU that is a process, one for each link.
    pub fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        self.0.iter().map(|device| device.addresses.clone()).collect()
    }

    fn wait(&mut self, said: &Receiver<Said>, network: &Network, log: &Log) -> Result<(), String> {
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
            if let Some(addresses) = line.strip_prefix("dpu: reached at ") {
                self.0[said.device].addresses = addresses.split(',').filter_map(|text| text.parse().ok()).collect();
            } else if line.starts_with("dpu: ready") {
                let device = &self.0[said.device];
                let links = network.addresses(said.device).len();
                if device.board == Board::Linux && device.addresses.len() != links {
                    let name = self.name(said.device);
                    return Err(format!(
                        "{name} does not print its addresses: build the firmware of this version of Towline"
                    ));
                }
                ready[said.device] = true;
            } else {
                // Why it cannot start, for example.
                log.print(format!("DPU {}: {line}", said.device));
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
            let mut at = format!("address {}", network.describe(number));
            if !device.addresses.is_empty() {
                let own: Vec<_> = device.addresses.iter().map(ToString::to_string).collect();
                at += &format!(" at the relay, in truth {}", own.join(" and "));
            }
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
        made.map_err(|why| format!("cannot make the window {}: {why}{}", file.display(), advice(&why)))?;
        let (mut command, missing) = if board.is_emulated() {
            let (mut command, missing) = board.machine(program, &file);
            for (link, plug) in network.plugs(number).iter().enumerate() {
                let [relay, emulator] = [&plug.relay, &plug.emulator].map(|path| path.display());
                let ends = format!("local.type=unix,local.path={emulator},remote.type=unix,remote.path={relay}");
                command.args(["-netdev", &format!("dgram,id=net{link},{ends}")]);
                let ethernet = hex(plug.ethernet);
                command.args(["-device", &format!("virtio-net-device,netdev=net{link},mac={ethernet}")]);
            }
            (command, missing)
        } else {
            let known: Vec<_> = network.addresses(number).iter().map(ToString::to_string).collect();
            let own = vec!["127.0.0.1:0"; known.len()];
            let mut command = Command::new(program);
            command.arg(&file).args([&own.join(","), DATAGRAM, &known.join(",")]);
            (command, String::new())
        };
        // A process makes the pipes itself.
        let bells = board.is_emulated().then(|| Ok((console::input(&file)?, console::host_bell(&file)?))).transpose();
        let bells = bells
            .map_err(|why: io::Error| format!("cannot make the pipes of {}: {why}{}", file.display(), advice(&why)))?;
        let (input, host) = bells.map_or((Stdio::null(), None), |(input, host)| (input.into(), Some(host)));
        command.current_dir(folder).stdin(input).stdout(Stdio::piped());
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
            if let Some(out) = out {
                console::listen(out, host.as_ref(), |line| {
                    let _ = sender.send(Said { device: number, line: Some(line) });
                });
            }
            sender.send(Said { device: number, line: None })
        });
        Ok(Self { board, file, process, addresses: Vec::new() })
    }
}
