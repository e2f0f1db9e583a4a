//! The command line of `towline dpu up`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::boards::Board;
use super::relay::{Cut, LINKS, Protocol, Rates};
use crate::names::one_of;
use crate::numbers::{long_number, number};
use crate::run::{seconds, transport};
use crate::transports::ALL;
use crate::variables;

/// The most DPUs, as many as the firmware has peers on the board that has most.
const DEVICES_MAX: u32 = 256;

/// Start N DPUs, a relay between them, and a job of N ranks that use them
///
/// Each DPU is a process of this host: the firmware as a program for Linux, or in QEMU. All messages between two ranks go
/// through their DPUs and the relay, which loses, doubles and reorders frames at random. DPUs and relay end with the job.
/// If a rank dies, its DPU forgets all that the rank has begun, and tells the other DPUs.
///
/// Exit status: that of the job, as for `towline run`, or 2 if DPUs, relay or job cannot be started.
#[derive(clap::Args, Debug)]
pub struct Up {
    /// Number of ranks, and of DPUs
    #[arg(
        short = 'n',
        long = "ranks",
        alias = "n",
        value_name = "N",
        value_parser = number(1, DEVICES_MAX),
        allow_negative_numbers = true
    )]
    pub ranks: u32,

    /// Board of the DPUs, one for all, or one for each: linux, virt-aarch64 or virt-riscv64
    #[arg(
        long,
        value_name = "BOARD,...",
        value_delimiter = ',',
        default_value = "linux",
        value_parser = one_of(&Board::NAMES, Board::parse),
        hide_possible_values = true
    )]
    pub board: Vec<Board>,

    /// Program of the DPUs, or the folder that has the programs of all boards [default: the folder `firmware` beside that of
    /// this program]
    #[arg(long, value_name = "PATH")]
    pub firmware: Option<PathBuf>,

    /// What the DPUs speak: udp, or ethernet, frames without IP, which no board linux speaks
    #[arg(
        long,
        value_name = "NAME",
        default_value = "udp",
        value_parser = one_of(&Protocol::NAMES, Protocol::parse),
        hide_possible_values = true
    )]
    pub protocol: Protocol,

    /// Links that each DPU has to each other one, which share the fragments of long messages
    #[arg(
        long,
        value_name = "LINKS",
        default_value_t = 1,
        value_parser = number(1, LINKS as u32),
        allow_negative_numbers = true
    )]
    pub links: u32,

    /// Let a link, 0 or 1, fail after that many frames of all links
    #[arg(long, value_name = "LINK:FRAMES", value_parser = cut)]
    pub cut: Option<Cut>,

    /// Frames of a hundred that the relay loses
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0", allow_negative_numbers = true)]
    pub lose: f64,

    /// Frames of a hundred that the relay sends twice
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0", allow_negative_numbers = true)]
    pub double: f64,

    /// Frames of a hundred that the relay holds back, so that some later ones arrive before
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0", allow_negative_numbers = true)]
    pub reorder: f64,

    /// Seed by which the relay chooses these frames
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 1,
        value_parser = long_number(0, u64::MAX),
        allow_negative_numbers = true
    )]
    pub seed: u64,

    /// How the ranks use the DPUs, and other transports beside that: dpu for the DPUs to match messages, dpu-frames for the ranks to do that
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "dpu",
        value_parser = one_of(&ALL, transport),
        hide_possible_values = true
    )]
    pub transport: Vec<String>,

    /// Set an environment variable for all ranks; NAME alone takes the value from this environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]", value_parser = variables::named)]
    pub variables: Vec<String>,

    /// End the job after this time, in seconds
    #[arg(long, value_name = "SECS", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,

    /// Let the other ranks go on when a rank fails
    #[arg(long)]
    pub keep_going: bool,

    /// Restart a rank that was killed or has failed, at most N times for each rank: see `towline run`
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = number(0, u32::MAX),
        allow_negative_numbers = true
    )]
    pub restart: u32,

    /// Print output unchanged, without the rank before each line
    #[arg(long)]
    pub no_prefix: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

impl Up {
    /// The faults of the relay.
    pub fn rates(&self) -> Rates {
        Rates { lose: self.lose / 100.0, double: self.double / 100.0, reorder: self.reorder / 100.0 }
    }

    /// The arguments of `towline run` for the job, whose ranks find their DPUs by `windows`.
    pub fn job(self, windows: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["run", "--transport"].map(Into::into).into();
        words.extend([self.transport.join(",").into(), "--ranks".into()]);
        words.push(self.ranks.to_string().into());
        for variable in self.variables {
            words.extend(["--env".into(), variable.into()]);
        }
        words.extend(["--env".into(), format!("TOWLINE_DPU_WINDOWS={windows}").into()]);
        if let Some(limit) = self.timeout {
            words.extend(["--timeout".into(), limit.as_secs_f64().to_string().into()]);
        }
        words.extend(self.keep_going.then(|| "--keep-going".into()));
        if self.restart != 0 {
            words.extend(["--restart".into(), self.restart.to_string().into()]);
        }
        words.extend(self.no_prefix.then(|| "--no-prefix".into()));
        words.push("--".into());
        words.extend(self.command);
        words
    }
}

fn cut(text: &str) -> Result<Cut, String> {
    let wrong =
        || format!("it is not a link and a number of frames, such as 1:500; possible links: 0 to {}", LINKS - 1);
    let (link, after) = text.split_once(':').ok_or_else(wrong)?;
    let (link, after) = (link.parse().map_err(|_| wrong())?, after.parse().map_err(|_| wrong())?);
    if link < LINKS { Ok(Cut { link, after }) } else { Err(wrong()) }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| "it is not a number of percent, such as 2.5".to_string())?;
    if (0.0..=100.0).contains(&percent) { Ok(percent) } else { Err("it is not a share; possible: 0 to 100".into()) }
}
