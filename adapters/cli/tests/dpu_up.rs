//! `towline dpu up` with programs in place of the firmware, which is another workspace. `host-tests/tests/dpu_system.rs` has the tests with
//! the firmware.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

mod script;

/// A DPU that is ready and does nothing.
const READY: &str =
    "#!/bin/sh\necho \"dpu: reached at 127.0.0.1:9\"; echo \"dpu: ready, for a test\"; exec sleep 300\n";

/// `towline dpu up` with two DPUs and a script as their program. Temporary files are in a folder of its own.
fn up(folder: &script::Folder, firmware: &str) -> Command {
    script::write(&folder.0.join("firmware"), firmware);
    fs::create_dir_all(folder.0.join("tmp")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["dpu", "up", "--n", "2", "--timeout", "300", "--firmware", &folder.path("firmware")]);
    command.env("TMPDIR", folder.path("tmp")).stdin(Stdio::null());
    command
}

fn both(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// The names of the files that are left.
fn left(folder: &script::Folder) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder.0.join("tmp")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn each_rank_finds_its_window_and_the_status_is_that_of_the_job() {
    let folder = script::Folder::new("dpu-up-job", "");
    let script = r#"echo "$TOWLINE_TRANSPORTS in $TOWLINE_DPU_WINDOWS with $MORE"; stat --format=%s "${TOWLINE_DPU_WINDOWS%%@*}"; exit 7"#;
    let mut command = up(&folder, READY);
    let output = command.args(["-e", "MORE=this", "--keep-going", "--", "sh", "-c", script]).output().unwrap();
    let said = both(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let out = String::from_utf8(output.stdout).unwrap();
    for rank in 0..2 {
        let line = out.lines().find(|line| line.starts_with(&format!("[{rank}] dpu in "))).unwrap();
        let windows = line.split_whitespace().nth(3).unwrap();
        assert!(windows.split(',').count() == 2 && line.ends_with(" with this"), "{line}");
        assert!(out.contains(&format!("[{rank}] {}\n", 32 << 20)), "{out}");
        // What runs where.
        let window = windows.split(',').nth(rank).unwrap();
        let device = format!("towline: DPU {rank}: board linux, process ");
        let line = said.lines().find(|line| line.starts_with(&device)).unwrap();
        assert!(line.contains(&format!("window {window}, address 127.")), "{line}");
        assert!(line.ends_with(&format!(".{}:61100 at the relay, in truth 127.0.0.1:9", 2 + rank)), "{line}");
    }
    let mut command = up(&folder, READY);
    command.args(["--transport", "tcp,dpu-frames", "--", "sh", "-c", r#"echo "$TOWLINE_TRANSPORTS""#]);
    let told = both(&command.output().unwrap());
    assert!(told.contains("[0] tcp,dpu-frames\n"), "{told}");
    assert!(!said.contains("towline: link"), "{said}");
    assert!(said.contains("towline: relay: 0 frames, 0 lost, 0 doubled, 0 held back"), "{said}");
    assert!(left(&folder).is_empty());
}

/// Lines of this command wait for nobody at its end.
#[test]
fn a_signal_ends_a_system_whose_output_is_not_read() {
    let folder = script::Folder::new("dpu-up-unread", "");
    let mut command = up(&folder, READY);
    command.args(["--", "sh", "-c", "exec yes >&2"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 1 << 14]).unwrap();
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    // Its end closes the pipe, so this does not.
    let pipe = child.stderr.take();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    drop(pipe);
    assert!(left(&folder).is_empty());
}

#[test]
fn a_system_goes_on_without_a_standard_error() {
    let folder = script::Folder::new("dpu-up-closed", "");
    let mut child = up(&folder, READY).args(["--", "sh", "-c", "exit 7"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(left(&folder).is_empty());
}

#[test]
fn the_settings_of_the_firmware_are_known() {
    let folder = script::Folder::new("dpu-up-settings", "");
    let mut command = up(&folder, READY);
    command.env("TOWLINE_FIRMWARE_AWAKE_US", "0").env("TOWLINE_FIRMWARE_SLEEP_MS", "50").env("TOWLINE_STRICT", "true");
    let output = command.args(["--", "true"]).output().unwrap();
    assert!(output.status.success() && !both(&output).contains("no such setting"), "{}", both(&output));
}

#[test]
fn a_system_that_cannot_start_says_why() {
    let folder = script::Folder::new("dpu-up-errors", "");
    let refused = |firmware: &str, arguments: &[&str], why: &str| {
        let output = up(&folder, firmware).args(arguments).args(["--", "true"]).output().unwrap();
        let said = both(&output);
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
        assert!(left(&folder).is_empty());
    };
    refused("#!/bin/sh\necho nothing works; exit 3\n", &[], "(board linux) has ended: exit status: 3");
    refused("#!/bin/sh\necho dpu: ready; exec sleep 300\n", &[], "(board linux) does not print its addresses");
    refused(READY, &["--links", "2"], "(board linux) does not print its addresses");
    refused(READY, &["--links", "3"], "possible: 1 to 2");
    refused(READY, &["--protocol", "ethernet"], "not for board linux");
    refused(READY, &["--protocol", "ip"], "possible: udp, ethernet");
    refused(READY, &["--cut", "1:100"], "--cut names a link that --links does not make");
    refused(READY, &["--cut", "2:100"], "possible links: 0 to 1");
    refused(READY, &["--board", "linux,linux,linux"], "3 boards for 2 DPUs");
    refused(READY, &["--board", "linus"], "did you mean `linux`");
    refused(READY, &["--transport", "tcp"], "add dpu or dpu-frames");
    refused(READY, &["--transport", "dpu-frame"], "did you mean `dpu-frames`");
    refused(READY, &["--transport", "dpu,dpu-frames"], "names dpu and dpu-frames");
    refused(READY, &["--lose", "101"], "possible: 0 to 100");
    let mut command = up(&folder, READY);
    let output = command.args(["--board", "virt-aarch64", "--", "true"]).env("PATH", "/nowhere").output().unwrap();
    assert!(both(&output).contains("qemu-system-aarch64: install QEMU"), "{}", both(&output));
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .args(["dpu", "up", "-n", "1", "--board", "virt-aarch64", "--firmware", &folder.path("tmp"), "--", "true"])
        .output()
        .unwrap();
    assert!(both(&output).contains("host-tests/scripts/firmware virt-aarch64"), "{}", both(&output));
}

#[test]
fn two_links_have_two_addresses_and_counts() {
    let folder = script::Folder::new("dpu-up-links", "");
    let firmware = READY.replace("127.0.0.1:9", "127.0.0.1:9,127.0.0.1:10");
    let output = up(&folder, &firmware).args(["--links", "2", "--cut", "0:5", "--", "true"]).output().unwrap();
    let said = both(&output);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find(|line| line.starts_with("towline: DPU 1: ")).unwrap();
    assert!(line.ends_with(".3:61100 at the relay, in truth 127.0.0.1:9 and 127.0.0.1:10"), "{line}");
    assert!(said.contains("towline: link 0: 0 frames\ntowline: link 1: 0 frames\n"), "{said}");
    assert!(left(&folder).is_empty());
}

#[test]
fn a_dpu_that_ends_is_reported() {
    let folder = script::Folder::new("dpu-up-ended", "");
    let firmware = READY.replace("exec sleep 300", "exec 3<gate; exit 0");
    // The DPUs end when rank 0 has opened the other end of their pipe.
    let script = r#"[ "$TOWLINE_RANK" != 0 ] || exec 3>"$0/gate"; cat"#;
    let mut command = up(&folder, &firmware.replace("gate", &folder.path("gate")));
    assert!(Command::new("mkfifo").arg(folder.path("gate")).status().unwrap().success());
    command.args(["--", "sh", "-c", script]).arg(&folder.0).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("towline: DPU ") && line.ends_with(" has ended")));
    drop(job.stdin.take());
    assert!(job.wait().unwrap().success());
}

/// The DPUs end, and no file stays, before and while the job runs.
#[test]
fn a_signal_ends_everything() {
    let hello = "#!/bin/sh\necho hello; exec sleep 300\n";
    for (firmware, before, signal, status) in [
        (hello, "towline: DPU 0: hello", Signal::TERM, 2),
        (hello, "towline: DPU 0: hello", Signal::HUP, 2),
        (READY, "towline: DPU 1: board linux", Signal::TERM, 128 + Signal::TERM.as_raw()),
        (READY, "towline: DPU 1: board linux", Signal::HUP, 128 + Signal::HUP.as_raw()),
    ] {
        let folder = script::Folder::new("dpu-up-signal", "");
        let mut command = up(&folder, firmware);
        let mut job = command.args(["--", "sleep", "300"]).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(job.stderr.take().unwrap());
        let mut said = Vec::new();
        while !said.last().is_some_and(|line: &String| line.starts_with(before)) {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "{said:?}");
            said.push(line);
        }
        kill_process(Pid::from_child(&job), signal).unwrap();
        let status_of_job = job.wait().unwrap();
        let mut rest = String::new();
        // The DPUs have the same standard error, which is at its end only if they have ended.
        errors.read_to_string(&mut rest).unwrap();
        assert_eq!(status_of_job.code(), Some(status), "{said:?} {rest}");
        assert!(left(&folder).is_empty());
    }
}

#[test]
fn the_dpus_end_with_a_command_that_is_killed() {
    let folder = script::Folder::new("dpu-up-killed", "");
    let mut command = up(&folder, READY);
    let mut job = command.args(["--", "sleep", "300"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("towline: DPU 1: board linux")));
    kill_process(Pid::from_child(&job), Signal::KILL).unwrap();
    assert!(!job.wait().unwrap().success());
    // The processes of the DPUs hold it open as long as they run.
    lines.for_each(drop);
}
