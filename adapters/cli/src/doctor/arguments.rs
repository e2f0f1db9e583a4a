//! The arguments of `towline doctor`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::numbers::number;

/// Check what a job needs on this host and on others, and say what to change
///
/// Each line says whether it is good, a warning (jobs work, but are slower, or do not work in every case) or a problem
/// (jobs fail, or a transport cannot be used), what was found, and what to change. Checked are shared memory (its size and
/// number of files), limits (open files, file size, locked memory, processes), the clock, network interfaces, and a job of
/// two ranks, with the right to copy between processes. Of each host in a file: whether a command can be run there, the
/// version there, its clock, all of these checks, and a job over all hosts.
///
/// Exit status: 0 if there is no problem, 1 if there is one, 2 if the checks cannot be made.
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Number of ranks on each host for which limits are checked [default: the number of processors, or the slots of the
    /// host]
    #[arg(short = 'n', long, value_name = "N", value_parser = number(1, 1 << 20))]
    pub ranks: Option<u32>,

    /// Also check the hosts in a file: one `host [slots=N]` on each line
    #[arg(long, value_name = "FILE")]
    pub hosts: Option<PathBuf>,

    /// Remote shell: runs a command on a host, called as CMD HOST COMMAND...
    #[arg(long, value_name = "CMD", default_value = "ssh -o BatchMode=yes")]
    pub rsh: String,

    /// Path of towline on the other hosts [default: the path on this host]
    #[arg(long, value_name = "PATH")]
    pub remote_path: Option<OsString>,

    /// Name or address at which the other hosts can reach this host [default: all are tried]
    #[arg(long, value_name = "HOST")]
    pub address: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
