//! `towline dpu log`: prints the log of a firmware.

use std::io::{self, Write as _, stdout};
use std::path::PathBuf;
use std::process::{ExitCode, exit};
use std::time::Duration;

use towline_dpu::log::{Found, Log};
use towline_dpu::settings::Place;
use towline_net::counted;

/// The time between two looks at the log.
const LOOK: Duration = Duration::from_millis(20);

/// Print the log of a DPU's firmware, as the bytes that defmt has encoded
///
/// Write them to the decoder: `towline dpu log WINDOW | defmt-print -e PROGRAM`, where PROGRAM is the program of the firmware. The
/// log begins with the lines that nobody has read. The DPU may serve a process meanwhile, and its firmware may have failed.
///
/// If nobody reads the log, it gets full, and new lines are lost and counted.
///
/// Exit status: 0, or 2 if the log cannot be read.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// File of the window, as in TOWLINE_DPU_WINDOWS: FILE, or FILE@OFFSET
    #[arg(value_name = "WINDOW", value_parser = place)]
    window: Place,

    /// Go on with new lines until the firmware fails. One that was killed may start again, so it is waited for
    #[arg(long, short)]
    follow: bool,
}

fn place(text: &str) -> Result<Place, String> {
    let path = std::path::absolute(PathBuf::from(text)).map_err(|why| why.to_string())?;
    let path = path.to_str().ok_or("it is not text")?;
    Place::parse(path).map_err(|why| format!("it {why}"))
}

/// Prints the log. Returns the exit status.
///
/// # Errors
/// A text that says why it cannot be read.
pub fn run(arguments: &Arguments) -> Result<ExitCode, String> {
    let Place { file, offset } = &arguments.window;
    let mut log = Log::open(file, *offset).map_err(|why| why.to_string())?;
    let (mut bytes, mut lost) = (vec![0; 1 << 16], 0);
    loop {
        let has_failed = log.has_failed(); // before the last look at what it has written
        let now_lost = log.lost(); // before the look that finds a new start
        let found = log.read(&mut bytes).map_err(|why| why.to_string())?;
        if now_lost != lost && found != Found::Restarted {
            eprintln!("towline: {} found no room in the log", counted(now_lost.wrapping_sub(lost), "line"));
            lost = now_lost;
        }
        match found {
            Found::Bytes(0) if !arguments.follow || has_failed => return Ok(ExitCode::SUCCESS),
            Found::Bytes(0) => std::thread::sleep(LOOK),
            Found::Bytes(count) => print(&bytes[..count])?,
            Found::Skipped => eprintln!("towline: lines were skipped, since a position of the log was wrong"),
            Found::Restarted => {
                eprintln!("towline: the firmware has started again");
                lost = 0;
            }
            _ => return Err("the log has an unknown state".into()),
        }
    }
}

fn print(bytes: &[u8]) -> Result<(), String> {
    match stdout().write_all(bytes).and_then(|()| stdout().flush()) {
        Ok(()) => Ok(()),
        // The reader has closed its end, as `head` does.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => exit(128 + rustix::process::Signal::PIPE.as_raw()),
        Err(why) => Err(format!("cannot write to standard output: {why}")),
    }
}
