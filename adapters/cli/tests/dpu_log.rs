//! `towline dpu log` with windows of devices in this process. `host-tests/tests/dpu/log.rs` has the logs of firmware.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use towline_dpu::mapping::Mapping;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::layout::Layout;
use towline_window::placed_log::DeviceLog;

const BYTES: u64 = 8192;
const ABOUT: About<'_> = About { boot: 1, operations: 1, one_sided: 0, description: "test", doorbell: Doorbell::None };

/// A window whose file is removed with this value.
struct Window {
    file: PathBuf,
    mapping: Mapping,
}

impl Window {
    fn new(name: &str) -> Self {
        let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        File::create(&file).unwrap().set_len(2 * BYTES).unwrap();
        // The second half of the file, as the memory of a machine has it.
        let mapping = Mapping::open(&file, BYTES).unwrap();
        Self { file, mapping }
    }

    /// Starts a device with a log of that many bytes.
    fn start(&self, log: u32) -> Device<'static> {
        // SAFETY: the tests use the device and its log while the window is there.
        let memory = unsafe { self.mapping.memory() }.unwrap();
        Device::start(memory, Layout::plan(BYTES as usize, 4, 4).unwrap().with_log(log).unwrap(), &ABOUT).unwrap()
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.args(["dpu", "log", &format!("{}@{BYTES}", self.file.display())]).args(options).stdin(Stdio::null());
        command
    }

    fn log(&self) -> Output {
        self.command(&[]).output().unwrap()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn write(log: &mut DeviceLog<'_>, frame: &[u8]) -> bool {
    log.append(frame);
    log.end()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into()
}

#[test]
fn prints_what_nobody_has_read_and_says_what_was_lost() {
    let window = Window::new("log");
    let mut device = window.start(64);
    let mut log = device.take_log().unwrap();
    assert!(write(&mut log, b"one\0") && write(&mut log, b"two\0"));
    let output = window.log();
    assert!(output.status.success());
    assert_eq!((output.stdout.as_slice(), said(&output).as_str()), (b"one\0two\0".as_slice(), ""));
    assert!(window.log().stdout.is_empty(), "it was read");
    assert!(write(&mut log, &[b'x'; 60]) && !write(&mut log, b"three\0"));
    device.fail(3).unwrap();
    let output = window.log();
    assert_eq!(output.stdout, [b'x'; 60], "the log of a firmware that has failed");
    assert!(said(&output).contains("1 line found no room in the log"), "{}", said(&output));
}

#[test]
fn follows_a_firmware_until_it_fails() {
    let window = Window::new("log-follow");
    let mut device = window.start(64);
    let mut log = device.take_log().unwrap();
    let child = window.command(&["--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than the log has room for: so the command has read some of it.
    for number in 0..100 {
        while !write(&mut log, &[number + 1, 0]) {
            std::thread::yield_now();
        }
    }
    device.fail(3).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let expected: Vec<u8> = (0..100).flat_map(|number| [number + 1, 0]).collect();
    assert_eq!(output.stdout, expected);
}

#[test]
fn says_why_a_log_cannot_be_read() {
    let window = Window::new("log-errors");
    let refused = |words: &str| {
        let output = window.log();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(words), "{words}: {}", said(&output));
    };
    refused("the device is not ready");
    let _device = window.start(0);
    refused("has no log there: use one whose window has version 1.3 or later");
    let output = Command::new(env!("CARGO_BIN_EXE_towline")).args(["dpu", "log", "/proc/no-file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("the window /proc/no-file cannot be mapped"), "{}", said(&output));
}
