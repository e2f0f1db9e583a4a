//! A process that is stopped for longer than its device may be silent.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use common::start_many;
use offload::Limits;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use towline_dpu::{Options, Source, Tag, Transport};

/// How long the device of the process may be silent.
const SILENT: Duration = Duration::from_millis(300);
/// Lines of the process begin with it.
const MARK: &str = "@ ";

/// The process that is stopped. It calls its device all the time, and answers each line of its input. Without a window, as in a normal
/// test run, it does nothing.
#[test]
#[ignore = "started by the other test as its process"]
fn as_process() {
    let Ok(window) = std::env::var("WINDOW") else { return };
    let options = Options { silent_for: SILENT, ..Options::default() };
    let mut transport = Transport::open(window.as_ref(), options).unwrap();
    let card = transport.card().unwrap();
    transport.add_peer(0, &card).unwrap();
    let comm = transport.add_comm(1, &[0], 0).unwrap();
    let (lines, asked) = channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|_| lines.send(())));
    println!("\n{MARK}ready");
    loop {
        assert_eq!(transport.iprobe(comm, Source::Any, Tag::Any), Ok(None));
        match asked.try_recv() {
            Ok(()) => println!("{MARK}works"),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

#[test]
fn a_process_that_was_stopped_in_a_call_does_not_blame_its_device() {
    let devices = start_many(1, Limits { engine: common::ENGINE, communicators: 2, messages: 2 });
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_process", "--ignored", "--nocapture"])
        .env("WINDOW", &devices.files[0])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut asks = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut next = || lines.find_map(|line| line.strip_prefix(MARK).map(str::to_owned));
    assert_eq!(next().as_deref(), Some("ready"));
    for stop in 0..5 {
        let process = Pid::from_child(&child);
        kill_process(process, Signal::STOP).unwrap();
        waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
        let start = Instant::now();
        while start.elapsed() < 2 * SILENT {
            std::thread::yield_now();
        }
        kill_process(process, Signal::CONT).unwrap();
        asks.write_all(b"works?\n").unwrap();
        assert_eq!(next().as_deref(), Some("works"), "stop {stop}");
    }
    drop(asks);
    assert!(child.wait().unwrap().success());
}
