//! The console of a board: lines of text for the user, and bells. A board without files of its own has its doorbells there: what the host
//! writes into the pipe of the device is its input, and a character in its output rings for the host.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use towline_window::doorbell::{HOST_PIPE, PIPE};

/// The character that wakes the host.
const BELL: u8 = 0x07;
/// Bytes that are read at once.
const CHUNK: usize = 4096;

/// Makes the pipe that wakes the device of a window. It is the input of the device's console.
///
/// # Errors
/// Those of the operating system.
pub fn input(window: &Path) -> io::Result<File> {
    pipe(window, PIPE)
}

/// Makes the pipe that wakes the host of a window.
///
/// # Errors
/// As for [`input`].
pub fn host_bell(window: &Path) -> io::Result<File> {
    pipe(window, HOST_PIPE)
}

/// Opens a new pipe for reading and writing, so that it does not end with its other users.
fn pipe(window: &Path, suffix: &str) -> io::Result<File> {
    let mut path = window.as_os_str().to_owned();
    path.push(suffix);
    let path = PathBuf::from(path);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Reads the output of a console until it ends. Gives its lines to `line`, and rings for the host, if there is a pipe for that.
pub fn listen(mut output: impl Read, host: Option<&File>, mut line: impl FnMut(String)) {
    let mut chunk = [0; CHUNK];
    let mut begun = Vec::new();
    while let Ok(len) = output.read(&mut chunk)
        && let Some(bytes @ [_, ..]) = chunk.get(..len)
    {
        if let Some(mut host) = host.filter(|_| bytes.contains(&BELL)) {
            // A full pipe wakes the host, too.
            let _ = host.write(&[0]);
        }
        for &byte in bytes.iter().filter(|&&byte| byte != BELL) {
            if byte == b'\n' {
                line(text(&begun));
                begun.clear();
            } else {
                begun.push(byte);
            }
        }
    }
    if !begun.is_empty() {
        line(text(&begun));
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_between_the_characters_of_a_line_wakes_the_host_and_is_no_part_of_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let mut bell = host_bell(&folder.path().join("window")).unwrap();
        let mut lines = Vec::new();
        listen(&b"dpu: re\x07ady\r\nlast"[..], Some(&bell), |line| lines.push(line));
        assert_eq!(lines, ["dpu: ready", "last"]);
        assert_eq!(bell.read(&mut [0; 8]).unwrap(), 1);
        listen(&b"without\n"[..], Some(&bell), |line| lines.push(line));
        assert_eq!(bell.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
