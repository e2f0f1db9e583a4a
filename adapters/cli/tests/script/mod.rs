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

/// A directory for one test, with a hosts file and a remote shell that runs everything on this host. It is removed with
/// this value.
#[allow(dead_code, reason = "not every test program needs it")]
pub struct Folder(pub std::path::PathBuf);

#[allow(dead_code, reason = "not every test program needs it")]
impl Folder {
    pub fn new(name: &str, hosts: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        // A process with the same number may have left one.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts"), hosts).unwrap();
        write(&folder.join("rsh"), "#!/bin/sh\nshift; exec \"$@\"\n");
        Self(folder)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    /// The options for a job on the hosts of the file.
    pub fn hosts(&self) -> [String; 4] {
        ["--hosts".into(), self.path("hosts"), "--rsh".into(), self.path("rsh")]
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
