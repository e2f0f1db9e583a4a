//! Scripts that tests write and have run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run. By another process: what this one has open for writing, a process that another test forks
/// off just then has, too, until it runs its program, and a file that is open for writing cannot be run.
pub fn write(path: &Path, script: &str) {
    let mut command = Command::new("install");
    command.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
