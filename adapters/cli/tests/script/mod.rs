//! Scripts that tests write, and that other processes run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a script that can be run. Another process (`install`) writes it. If this process had the file open for writing,
/// a process that another test forks at that moment would have it open, too, and the system does not run a file that is
/// open for writing.
pub fn write(path: &Path, script: &str) {
    let mut command = Command::new("install");
    command.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
