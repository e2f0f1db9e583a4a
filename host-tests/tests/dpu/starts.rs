//! Starts of board linux that fail.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command as Process;

use towline_window::header::{State, at};

use crate::processes::{Dpus, Protocol, is_emulated, program};

fn word(file: &File, at: u64) -> u32 {
    let mut word = [0; 4];
    file.read_exact_at(&mut word, at).unwrap();
    u32::from_le_bytes(word)
}

/// Runs the program, which ends, and returns its exit status and what it says.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Process::new(program()).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn an_address_that_others_cannot_reach_and_an_empty_window_are_refused() {
    if is_emulated() {
        return;
    }
    let (status, text) = run(&["/dev/null", "127.0.0.1:0"]);
    assert!(status == Some(100) && text.contains("it is empty"), "{status:?}: {text}");
    let folder = tempfile::tempdir().unwrap();
    let window = folder.path().join("window");
    File::create(&window).unwrap().set_len(16 << 20).unwrap();
    let window = window.to_str().unwrap();
    for arguments in
        [&["0.0.0.0:0"][..], &["0.0.0.0:0", "1472", "0.0.0.0:4000"], &["127.0.0.1:0", "1472", "127.0.0.1:0"]]
    {
        let (status, text) = run(&[&[window], arguments].concat());
        assert_eq!(status, Some(100), "{text}");
        assert!(text.contains("which they cannot reach"), "{text}");
    }
}

/// The window keeps the state of the start before, which was ready.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_start_that_fails_is_in_the_window_of_the_start_before() {
    if is_emulated() {
        return;
    }
    let mut dpus = Dpus::start("small", 1, Protocol::Udp);
    dpus.attach(0, 7).detach();
    dpus.stop(0);
    let (path, _) = dpus.place(0);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    assert_ne!(word(&file, at::STATE), State::Failed as u32);
    // Too small for its rings.
    let small = path.with_extension("small");
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 0).unwrap();
    std::fs::write(&small, header).unwrap();
    let (status, text) = run(&[small.to_str().unwrap(), "127.0.0.1:0"]);
    assert_eq!(status, Some(4), "{text}");
    let file = File::open(&small).unwrap();
    assert_eq!((word(&file, at::STATE), word(&file, at::FAULT)), (State::Failed as u32, 4));
}

/// Two of them would both take the commands of the host.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_window_has_one_firmware() {
    if is_emulated() {
        return;
    }
    let mut dpus = Dpus::start("twice", 1, Protocol::Udp);
    let host = dpus.attach(0, 7);
    let (path, _) = dpus.place(0);
    let (status, text) = run(&[path.to_str().unwrap(), "127.0.0.1:0"]);
    assert!(status == Some(100) && text.contains("another firmware serves the window"), "{status:?}: {text}");
    assert!(host.check().is_ok(), "the first one goes on");
    // The next one may have it.
    dpus.restart(0);
    dpus.attach(0, 8);
}
