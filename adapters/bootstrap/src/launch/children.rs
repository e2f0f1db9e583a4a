//! The rank processes on this host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;

use super::cores;
use super::input::Feeder;
use super::lines::Source;
use super::output::Sink;
use super::reader::OutputReader;
use super::{files, signals};
use crate::Environment;

/// Time for which pipes may stay open after all ranks have ended, because processes that ranks left behind hold them.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(2);

/// A program to start, with its arguments and environment.
pub(super) struct Start {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) directory: Option<PathBuf>,
    /// The user's variables, in addition to those of the job.
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The environment of every rank, except for the rank number.
    pub(super) environment: Environment,
    pub(super) ranks: Vec<u32>,
    /// Standard input of ranks.
    pub(super) input: RankInput,
    /// The processors of each rank, in the order of `ranks`; empty if ranks are not bound.
    pub(super) cores: Vec<CpuSet>,
}

/// Where ranks of this host get their standard input from.
pub(super) enum RankInput {
    /// Nowhere: it is empty.
    Empty,
    /// One rank inherits that of this process.
    Inherited(u32),
    /// Some ranks get what a feeder distributes.
    Fed(Vec<u32>, Arc<Feeder>),
}

/// How a rank ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum End {
    Exit(i32),
    Killed(i32),
}

/// The id of the process that was started, or why it was not started, with the exit status that shells use for that.
pub(super) type Started = Result<u32, (String, u8)>;

struct Rank {
    child: Child,
    pid: Pid,
}

/// The ranks of this host: not started yet, running, or ended. The kernel kills them if the thread that started them
/// ends.
pub(super) struct Children {
    start: Start,
    /// The variables of every rank, except for the rank number.
    variables: Vec<(&'static str, String)>,
    /// Number of ranks that have been started, in their order.
    started: usize,
    running: BTreeMap<u32, Rank>,
    ended: Vec<Rank>,
    reader: OutputReader,
}

impl Children {
    /// Prepares, and starts no rank yet.
    pub(super) fn new(start: Start, sink: Arc<dyn Sink>) -> io::Result<Self> {
        let variables = start.environment.variables();
        let reader = OutputReader::start(sink)?;
        Ok(Self { start, variables, started: 0, running: BTreeMap::new(), ended: Vec::new(), reader })
    }

    /// Starts the next rank in a process group of its own. `None` when all were started. Must be called from a thread
    /// that lives as long as the ranks.
    pub(super) fn start_next(&mut self) -> Option<(u32, Started)> {
        let rank = *self.start.ranks.get(self.started)?;
        self.started += 1;
        Some((rank, self.restart(rank)))
    }

    /// Restarts a rank whose process has ended, as [`start_next`](Self::start_next) started it before.
    pub(super) fn restart(&mut self, rank: u32) -> Started {
        let started = self.spawn(rank).and_then(|child| {
            let pid = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
            self.running.insert(rank, Rank { child, pid });
            Ok(pid.as_raw_nonzero().get() as u32)
        });
        started.map_err(|why| self.failure(&why))
    }

    /// Starts no further rank. Returns the ranks that were not started.
    pub(super) fn cancel_unstarted(&mut self) -> Vec<u32> {
        self.start.ranks.split_off(self.started)
    }

    fn failure(&self, why: &io::Error) -> (String, u8) {
        let code = match why.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::PermissionDenied => 126,
            _ => 1,
        };
        let advice = match code {
            127 => "; check its name and path (a program in this directory is `./NAME`)",
            126 => "; make it executable by `chmod +x`",
            _ => towline_net::advice(why),
        };
        (format!("cannot start `{}`: {why}{advice}", self.start.program.to_string_lossy()), code)
    }

    /// Sends a signal to the process groups of all ranks that have not ended.
    pub(super) fn signal(&self, signal: Signal) {
        for rank in self.running.values() {
            // An error means that the group has no process left. The id cannot belong to another process: ended
            // children are kept until `finish`.
            let _ = rustix::process::kill_process_group(rank.pid, signal);
        }
    }

    /// The ranks that have ended since the last call. Killed ranks come first, since the first one is reported as the
    /// cause.
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
        // Other ranks may have ended because they lost a rank that was killed.
        ended.sort_by_key(|(_, end)| !matches!(end, End::Killed(_)));
        ended
    }

    /// Reads the rest of the output, and kills processes that ranks left behind.
    pub(super) fn finish(mut self) {
        let left_behind = !self.reader.wait(LEFTOVER_LIMIT);
        self.signal(Signal::KILL);
        if left_behind {
            for rank in &self.ended {
                let _ = rustix::process::kill_process_group(rank.pid, Signal::KILL);
            }
            self.reader.wait(LEFTOVER_LIMIT);
        }
        self.reader.stop();
        for rank in self.running.values_mut().chain(&mut self.ended) {
            // A process that does not even die of SIGKILL is left to the system.
            let _ = rank.child.try_wait();
        }
    }

    fn spawn(&mut self, rank: u32) -> io::Result<Child> {
        let (out, rank_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (err, rank_err) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        self.reader.take(rank, Source::Stdout, out)?;
        self.reader.take(rank, Source::Stderr, err)?;
        let start = &self.start;
        let stdin = match &start.input {
            RankInput::Inherited(reader) if *reader == rank => Stdio::inherit(),
            RankInput::Fed(readers, feeder) if readers.contains(&rank) => feeder.pipe(rank)?.into(),
            RankInput::Empty | RankInput::Inherited(_) | RankInput::Fed(..) => Stdio::null(),
        };
        let mut command = Command::new(&start.program);
        command
            .args(&start.args)
            // This launcher runs the server. If it is itself a rank of another job, its environment may say that rank 0
            // does.
            .env_remove("TOWLINE_LISTEN")
            .envs(start.variables.iter().map(|(name, value)| (name, value)))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("TOWLINE_RANK", rank.to_string())
            .stdin(stdin)
            .stdout(rank_out)
            .stderr(rank_err)
            .process_group(0);
        if let Some(directory) = &start.directory {
            command.current_dir(directory);
        }
        prepare_child(&mut command);
        let place = start.ranks.iter().position(|other| *other == rank);
        if let Some(set) = place.and_then(|place| start.cores.get(place)).copied() {
            let hook = move || cores::bind(&set);
            // SAFETY: the hook makes one system call, which is async-signal-safe, and its error is a plain number.
            unsafe { command.pre_exec(hook) };
        }
        command.spawn()
    }
}

/// Makes the kernel kill the command's process when the thread that starts it ends. The process starts with the signal
/// state that programs expect, regardless of the state of this process.
pub fn prepare_child(command: &mut Command) {
    let (parent, last_signal, files) = (rustix::process::getpid(), signals::last(), files::original());
    let hook = move || {
        signals::reset(last_signal)?;
        files::restore(files.as_ref())?;
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the previous call.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(())
    };
    // SAFETY: the hook runs between fork and exec, where only async-signal-safe calls are allowed. It makes two plain
    // system calls, calls `reset` and `restore`, which are async-signal-safe, and its errors are plain numbers.
    unsafe { command.pre_exec(hook) };
}
