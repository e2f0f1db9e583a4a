//! `towline run` with output that is not read: the pipe is full, and every writer waits.

mod script;

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

/// Two ranks that flood the standard output or error of a launcher. The test reads a little of it, and then nothing
/// more.
fn flood(arguments: &[&str], line: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("run").args(arguments).args(["--", "sh", "-c", line]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    if line.contains(">&2") {
        child.stderr.as_mut().unwrap().read_exact(&mut some).unwrap();
    } else {
        child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// Waits for the process. Returns its exit status.
fn ended(child: &mut Child) -> Option<i32> {
    // Becomes readable when the process has ended.
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut fds = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    if rustix::event::poll(&mut fds, Some(&limit)).unwrap() == 0 {
        child.kill().unwrap();
        panic!("the launcher goes on");
    }
    child.wait().unwrap().code()
}

#[test]
fn a_signal_ends_a_job_whose_output_is_not_read() {
    for line in ["exec yes", "exec yes >&2"] {
        let mut child = flood(&["-n", "2"], line);
        signal(&child, Signal::TERM);
        assert_eq!(ended(&mut child), Some(128 + 15), "{line}");
    }
}

#[test]
fn a_signal_ends_a_job_on_other_hosts_whose_output_is_not_read() {
    let directory = format!("{}/unread-{}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    fs::create_dir_all(&directory).unwrap();
    let (hosts, rsh) = (format!("{directory}/hosts"), format!("{directory}/rsh"));
    fs::write(&hosts, "node0 slots=1\nnode1 slots=1\n").unwrap();
    script::write(rsh.as_ref(), "#!/bin/sh\nshift; exec \"$@\"\n");
    for line in ["exec yes", "exec yes >&2"] {
        let mut child = flood(&["--hosts", &hosts, "--rsh", &rsh], line);
        signal(&child, Signal::TERM);
        assert_eq!(ended(&mut child), Some(128 + 15), "{line}");
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_time_limit_ends_a_job_whose_output_is_not_read() {
    let mut child = flood(&["-n", "2", "--timeout", "0.5"], "exec yes >&2");
    assert_eq!(ended(&mut child), Some(124));
}

#[test]
fn a_job_that_has_ended_waits_for_its_reader_until_a_signal_comes() {
    let line = "head -c 300000 /dev/zero; echo; exit 3";
    // Nothing is lost, although the reader is late.
    let mut child = flood(&["-n", "2", "--no-prefix"], line);
    let mut rest = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 300_000 - 100, "{}", rest.len());
    assert_eq!(ended(&mut child), Some(3));
    // A user who does not want the output can close it.
    let mut child = flood(&["-n", "2", "--no-prefix"], line);
    signal(&child, Signal::INT);
    ended(&mut child);
}
