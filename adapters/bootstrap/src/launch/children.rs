//! The ranks of this host, as processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::output::{Sink, Source};
use super::reader::Pump;
use super::{files, signals};
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

/// The process that was started, or why none was, and the exit status that shells use for it.
pub(super) type Started = Result<u32, (String, u8)>;

struct Rank {
    child: Child,
    pid: Pid,
}

/// Ranks that are to be started, run, or have run. They are killed by the kernel if the thread that started them ends.
pub(super) struct Children {
    start: Start,
    /// Those of every rank, but for its number.
    variables: Vec<(&'static str, String)>,
    /// How many of the ranks have been started, in their order.
    started: usize,
    running: BTreeMap<u32, Rank>,
    ended: Vec<Rank>,
    pump: Pump,
}

impl Children {
    /// Makes ready, and starts none yet.
    pub(super) fn new(start: Start, sink: Arc<dyn Sink>) -> io::Result<Self> {
        let variables = start.environment.variables();
        let pump = Pump::start(sink)?;
        Ok(Self { start, variables, started: 0, running: BTreeMap::new(), ended: Vec::new(), pump })
    }

    /// Starts the next rank, in a process group of its own; none when all were started. To be called from a thread that
    /// lives as long as the ranks.
    pub(super) fn start_next(&mut self) -> Option<(u32, Started)> {
        let rank = *self.start.ranks.get(self.started)?;
        self.started += 1;
        Some((rank, self.start_again(rank)))
    }

    /// Starts a rank whose process has ended, as [`start_next`](Self::start_next) did before.
    pub(super) fn start_again(&mut self, rank: u32) -> Started {
        let started = self.spawn(rank).and_then(|child| {
            let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
            self.running.insert(rank, Rank { child, pid });
            Ok(pid.as_raw_nonzero().get() as u32)
        });
        started.map_err(|why| self.failure(&why))
    }

    /// Starts no more; gives the ranks that were not started.
    pub(super) fn start_no_more(&mut self) -> Vec<u32> {
        self.start.ranks.split_off(self.started)
    }

    fn failure(&self, why: &io::Error) -> (String, u8) {
        let code = match why.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::PermissionDenied => 126,
            _ => 1,
        };
        (format!("cannot start `{}`: {why}", self.start.program.to_string_lossy()), code)
    }

    /// Sends a signal to all that have not ended, with what they have started.
    pub(super) fn signal(&self, signal: Signal) {
        for rank in self.running.values() {
            // An error says that there is nobody left to hear it. The number cannot be another's: ended children
            // are kept until `finish`.
            let _ = rustix::process::kill_process_group(rank.pid, signal);
        }
    }

    /// The ranks that have ended since the last call, those first that were killed: what comes first is told as the cause.
    pub(super) fn ended(&mut self) -> Vec<(u32, End)> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let end = |rank: &Rank| {
            let status = rustix::process::waitid(WaitId::Pid(rank.pid), options).ok()??;
            match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Some(End::Exit(code)),
                (None, signal) => signal.map(End::Killed),
            }
        };
        let mut ended: Vec<_> =
            self.running.iter().filter_map(|(number, rank)| end(rank).map(|end| (*number, end))).collect();
        self.ended.extend(ended.iter().filter_map(|(number, _)| self.running.remove(number)));
        // Others may have ended because they lost a rank that was killed.
        ended.sort_by_key(|(_, end)| !matches!(end, End::Killed(_)));
        ended
    }

    /// Takes the rest of the output, and kills what ranks left behind.
    pub(super) fn finish(mut self) {
        let left_behind = !self.pump.wait(LEFTOVER_LIMIT);
        self.signal(Signal::KILL);
        if left_behind {
            for rank in &self.ended {
                let _ = rustix::process::kill_process_group(rank.pid, Signal::KILL);
            }
            self.pump.wait(LEFTOVER_LIMIT);
        }
        self.pump.stop();
        for rank in self.running.values_mut().chain(&mut self.ended) {
            // One that does not even die of SIGKILL is left to the system.
            let _ = rank.child.try_wait();
        }
    }

    fn spawn(&mut self, rank: u32) -> io::Result<Child> {
        let (out, rank_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (err, rank_err) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        self.pump.take(rank, Source::Stdout, out)?;
        self.pump.take(rank, Source::Stderr, err)?;
        let start = &self.start;
        // A terminal would stop the rank, which is not in its foreground group.
        let stdin = start.stdin && rank == 0 && !io::stdin().is_terminal();
        let mut command = Command::new(&start.program);
        command
            .args(&start.args)
            // This launcher serves, whatever job it may itself be a rank of.
            .env_remove("TOWLINE_LISTEN")
            .envs(start.variables.iter().map(|(name, value)| (name, value)))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("TOWLINE_RANK", rank.to_string())
            .stdin(if stdin { Stdio::inherit() } else { Stdio::null() })
            .stdout(rank_out)
            .stderr(rank_err)
            .process_group(0);
        if let Some(directory) = &start.directory {
            command.current_dir(directory);
        }
        attach(&mut command);
        command.spawn()
    }
}

/// Makes the kernel kill the command's process when the thread that starts it ends, and lets it begin with the signals
/// that programs expect to begin with, whatever this process was started with.
pub(super) fn attach(command: &mut Command) {
    let (parent, last_signal, files) = (rustix::process::getpid(), signals::last(), files::before());
    let hook = move || {
        signals::reset(last_signal)?;
        files::give_back(files.as_ref())?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe calls are allowed: two plain system
    // calls, `reset` and `give_back`, which are made for this, and errors that are plain numbers.
    unsafe { command.pre_exec(hook) };
}
