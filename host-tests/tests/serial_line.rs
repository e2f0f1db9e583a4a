//! Two boards in emulators, whose serial lines are connected: the program `serial-pair` at both ends. The script
//! `host-tests/scripts/firmware` builds the program and runs these tests.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use towline_host_tests::random::Random;

/// The environment variable with the path of the program for board mps2-an386.
const PROGRAM: &str = "TOWLINE_FIRMWARE_SERIAL_PAIR";
/// The environment variable with the path of the same program with other parts of the core.
const OTHER: &str = "TOWLINE_FIRMWARE_SERIAL_PAIR_OTHER";
/// Ends a run that hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// An emulator, which ends with this value.
struct Board(Child);

impl Board {
    /// Starts the board at an end of the line, with the program that an environment variable names. Its serial line is the socket, and
    /// its report goes to the folder.
    fn start(program: &str, folder: &Path, socket: &Path, end: usize) -> Self {
        let program = std::env::var_os(program).unwrap_or_else(|| panic!("{program} is not set"));
        let child = Command::new("qemu-system-arm")
            .current_dir(folder)
            .args(["-M", "mps2-an386", "-nodefaults", "-nographic", "-monitor", "none", "-serial", "null"])
            .args(["-chardev", &format!("socket,id=line,path={}", socket.display()), "-serial", "chardev:line"])
            .args(["-semihosting-config", "enable=on,target=native"])
            .args(["-device", &format!("loader,addr=0x203ffff8,data={end},data-len=4")])
            .arg("-kernel")
            .arg(program)
            .stdin(Stdio::null())
            .spawn();
        Self(child.expect("qemu-system-arm starts"))
    }

    /// The exit status.
    fn wait(&mut self) -> Option<i32> {
        let begin = Instant::now();
        while begin.elapsed() < LIMIT {
            if let Some(status) = self.0.try_wait().expect("a child of this process") {
                return status.code();
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The socket that an emulator connects to.
fn accept(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).expect("a socket");
    let begin = Instant::now();
    loop {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).expect("a socket");
            return stream;
        }
        assert!(begin.elapsed() < LIMIT, "the emulator does not connect");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Copies what arrives, and loses, changes or adds one byte in `rate`. 0: none.
fn relay(mut from: UnixStream, mut to: UnixStream, rate: u64, mut random: Random) {
    let mut buffer = [0; 256];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let mut out = Vec::with_capacity(2 * len);
        for byte in &buffer[..len] {
            match if rate == 0 { u64::MAX } else { random.below(3 * rate) } {
                0 => {}
                1 => out.push(byte ^ 1 << random.below(8)),
                2 => out.extend([*byte, random.word() as u8]),
                _ => out.push(*byte),
            }
        }
        if to.write_all(&out).is_err() {
            return;
        }
    }
}

/// Runs both ends, with their programs, over a relay. Returns their reports.
fn run(name: &str, programs: [&str; 2], rate: u64, seed: u64) -> [String; 2] {
    let base = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("serial-line-{name}-{}", std::process::id()));
    let folders = [0, 1].map(|end| base.join(end.to_string()));
    folders.iter().for_each(|folder| std::fs::create_dir_all(folder).expect("a folder"));
    // The path of a socket may not be long.
    let sockets = [0, 1].map(|end| std::env::temp_dir().join(format!("tl-{name}-{end}-{}", std::process::id())));
    let listeners = sockets.each_ref().map(|socket| UnixListener::bind(socket).expect("a socket"));
    let mut boards = [0, 1].map(|end| Board::start(programs[end], &folders[end], &sockets[end], end));
    let lines = listeners.map(|listener| accept(&listener));
    sockets.iter().for_each(|socket| std::fs::remove_file(socket).expect("it exists"));
    let mut random = Random::new(seed);
    for (from, to) in [(0, 1), (1, 0)] {
        let (from, to, random) =
            (lines[from].try_clone().expect("a handle"), lines[to].try_clone().expect("a handle"), random.fork());
        thread::spawn(move || relay(from, to, rate, random));
    }
    let statuses = boards.each_mut().map(Board::wait);
    let reports = folders.map(|folder| std::fs::read_to_string(folder.join("serial-pair.txt")).unwrap_or_default());
    println!("{name}, seed {seed}\n{}", reports.join("---\n"));
    assert_eq!(statuses, [Some(0); 2], "{name}, seed {seed}: exit statuses");
    std::fs::remove_dir_all(&base).expect("the folder exists");
    reports
}

/// The first number of a line of the report.
fn figure(report: &str, name: &str) -> u64 {
    let line = report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {report}"));
    let digits: String = line.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
#[ignore = "host-tests/scripts/firmware builds the program and runs it"]
fn all_messages_arrive_over_a_line_without_faults() {
    for report in run("good", [PROGRAM; 2], 0, 0) {
        assert_eq!(figure(&report, "damaged frames"), 0);
    }
}

#[test]
#[ignore = "host-tests/scripts/firmware builds the program and runs it"]
fn all_messages_arrive_over_a_line_that_loses_changes_and_adds_bytes() {
    for report in run("bad", [PROGRAM; 2], 3000, 1) {
        assert!(figure(&report, "damaged frames") > 0);
    }
}

/// The bytes on the wire are the same for all parts of the core, and what a build lacks, its peer does without.
#[test]
#[ignore = "host-tests/scripts/firmware builds the program and runs it"]
fn boards_with_few_and_with_all_parts_of_the_core_exchange_messages() {
    for report in run("mixed", [PROGRAM, OTHER], 0, 0) {
        assert_eq!(figure(&report, "damaged frames"), 0);
    }
    for report in run("mixed-bad", [OTHER, PROGRAM], 3000, 2) {
        assert!(figure(&report, "damaged frames") > 0);
    }
}
