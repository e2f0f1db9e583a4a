//! The ranks of this host, as processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::output::{Pump, Sink, Source};
use super::signals;
use crate::Environment;

/// How long pipes may stay open after all ranks have ended, because processes that they left behind hold them.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(2);

/// What to start.
pub(super) struct Start {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) directory: Option<PathBuf>,
    /// Variables of the user, beside those of the job.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The environment of each rank, but for its rank.
    pub(super) environment: Environment,
    pub(super) ranks: Vec<u32>,
    /// Whether rank 0 may read this process's standard input.
    pub(super) stdin: bool,
}

/// How a rank ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum End {
    Exit(i32),
    Killed(i32),
}

struct Rank {
    child: Child,
    pid: Pid,
    ended: bool,
}

/// Ranks that run, or have run. They are killed by the kernel if the thread that started them ends.
pub(super) struct Children {
    ranks: BTreeMap<u32, Rank>,
    pump: Pump,
}

impl Children {
    /// Starts the ranks, each in a process group of its own, and tells of each its process number or why it could not
    /// be started. To be called from a thread that lives as long as the ranks.
    pub(super) fn start(
        start: &Start,
        sink: Arc<dyn Sink>,
        mut tell: impl FnMut(u32, io::Result<u32>),
    ) -> io::Result<Self> {
        let (mut ranks, mut pipes) = (BTreeMap::new(), Vec::new());
        for rank in &start.ranks {
            match spawn(start, *rank, &mut pipes) {
                Ok(child) => {
                    tell(*rank, Ok(child.id()));
                    let Some(pid) = Pid::from_raw(child.id() as i32) else { continue };
                    ranks.insert(*rank, Rank { child, pid, ended: false });
                }
                Err(why) => {
                    // The others will fail in the same way.
                    tell(*rank, Err(why));
                    break;
                }
            }
        }
        Ok(Self { ranks, pump: Pump::start(pipes, sink)? })
    }

    /// Sends a signal to all that have not ended, with what they have started.
    pub(super) fn signal(&self, signal: Signal) {
        for rank in self.ranks.values().filter(|rank| !rank.ended) {
            // An error says that there is nobody left to hear it. The number cannot be another's: ended children
            // are kept until `finish`.
            let _ = rustix::process::kill_process_group(rank.pid, signal);
        }
    }

    /// The ranks that have ended since the last call, those first that were killed: what comes first is told as the cause.
    pub(super) fn ended(&mut self) -> Vec<(u32, End)> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut ended = Vec::new();
        for (number, rank) in self.ranks.iter_mut().filter(|(_, rank)| !rank.ended) {
            let Ok(Some(status)) = rustix::process::waitid(WaitId::Pid(rank.pid), options) else { continue };
            let end = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => End::Exit(code),
                (None, Some(signal)) => End::Killed(signal),
                (None, None) => continue,
            };
            rank.ended = true;
            ended.push((*number, end));
        }
        // Others may have ended because they lost a rank that was killed.
        ended.sort_by_key(|(_, end)| !matches!(end, End::Killed(_)));
        ended
    }

    /// Takes the rest of the output, and kills what ranks left behind.
    pub(super) fn finish(mut self) {
        let left_behind = !self.pump.wait(LEFTOVER_LIMIT);
        for rank in self.ranks.values() {
            if left_behind || !rank.ended {
                let _ = rustix::process::kill_process_group(rank.pid, Signal::KILL);
            }
        }
        if left_behind {
            self.pump.wait(LEFTOVER_LIMIT);
        }
        self.pump.stop();
        for rank in self.ranks.values_mut() {
            // One that does not even die of SIGKILL is left to the system.
            let _ = rank.child.try_wait();
        }
    }
}

fn spawn(start: &Start, rank: u32, pipes: &mut Vec<(u32, Source, OwnedFd)>) -> io::Result<Child> {
    let (out, rank_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (err, rank_err) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // A terminal would stop the rank, which is not in its foreground group.
    let stdin = start.stdin && rank == 0 && !io::stdin().is_terminal();
    let mut command = Command::new(&start.program);
    command
        .args(&start.args)
        // This launcher serves, whatever job it may itself be a rank of.
        .env_remove("TOWLINE_LISTEN")
        .envs(start.variables.iter().map(|(name, value)| (name, value)))
        .envs(Environment { rank, ..start.environment.clone() }.variables())
        .stdin(if stdin { Stdio::inherit() } else { Stdio::null() })
        .stdout(rank_out)
        .stderr(rank_err)
        .process_group(0);
    if let Some(directory) = &start.directory {
        command.current_dir(directory);
    }
    attach(&mut command);
    let child = command.spawn()?;
    pipes.push((rank, Source::Stdout, out));
    pipes.push((rank, Source::Stderr, err));
    Ok(child)
}

/// Makes the kernel kill the command's process when the thread that starts it ends, and lets it begin with the signals
/// that programs expect to begin with, whatever this process was started with.
pub(super) fn attach(command: &mut Command) {
    let (parent, last_signal) = (rustix::process::getpid(), signals::last());
    let hook = move || {
        signals::reset(last_signal)?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe calls are allowed: two plain system
    // calls, `reset`, which is made for this, and errors that are plain numbers.
    unsafe { command.pre_exec(hook) };
}
