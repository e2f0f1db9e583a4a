//! One job of real processes: starts it, injects its faults, and checks the reports of its ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use towline_host_tests::relay::{DatagramCounts, Datagrams, StreamCounts, Streams, spawn};
use towline_net::counted;

use super::faults::{Fault, KINDS, Plan};
use super::process_handle::Process;
use super::rank::clock;

/// If no rank reports anything for this time, the job hangs.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Time within which the death of a rank must be noticed: twice the promised time, for a busy machine.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// Options that all jobs share.
#[derive(Clone, Debug)]
pub struct Setting {
    pub transport: String,
    pub ranks: u32,
    pub links: u32,
    /// Longest message, in bytes.
    pub most: u64,
    /// Program that starts each rank.
    pub through: Option<String>,
}

/// The results of jobs that passed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    pub jobs: u64,
    pub messages: u64,
    pub bytes: u64,
    /// Number of puts, gets and atomic operations.
    pub operations: u64,
    /// Number of ranks with little and big byte order.
    pub orders: [u64; 2],
    /// Number of planned faults.
    pub planned: u64,
    /// Number of faults that took effect, for each of [`KINDS`].
    pub faults: [u64; KINDS.len()],
    /// The longest time until a death was noticed.
    pub noticed: Duration,
    /// Number of ranks that were killed, restarted and accepted again, and of messages from and to them.
    pub rejoined: u64,
    pub after_rejoin: u64,
    /// Number of links that went down and came up again, of migrated frames, and of duplicates removed.
    pub links: [u64; 4],
    pub stream_counts: StreamCounts,
    pub datagram_counts: DatagramCounts,
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.operations += other.operations;
        self.orders.iter_mut().zip(other.orders).for_each(|(sum, more)| *sum += more);
        self.noticed = self.noticed.max(other.noticed);
        self.rejoined += other.rejoined;
        self.after_rejoin += other.after_rejoin;
        self.planned += other.planned;
        self.stream_counts += other.stream_counts;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
        self.links.iter_mut().zip(other.links).for_each(|(sum, more)| *sum += more);
        let (sum, more) = (&mut self.datagram_counts, other.datagram_counts);
        sum.seen += more.seen;
        sum.lost += more.lost;
        sum.duplicated += more.duplicated;
        sum.delayed += more.delayed;
        sum.cut_off += more.cut_off;
    }
}

enum Relay {
    None,
    Streams(Streams),
    Datagrams(Datagrams),
}

/// Runs the job of a seed. The error says why it failed.
pub fn run(seed: u64, setting: &Setting) -> Result<Report, String> {
    let plan = Plan::new(seed, &setting.transport, setting.ranks, setting.links, setting.most);
    let failed = |why: std::io::Error| format!("cannot start the relay: {why}");
    let relay = match setting.transport.as_str() {
        "tcp" => Relay::Streams(Streams::start(setting.ranks, setting.links, seed).map_err(failed)?),
        "udp" => Relay::Datagrams(Datagrams::start(setting.ranks, setting.links, seed).map_err(failed)?),
        _ => Relay::None,
    };
    let mut job = Job::start(plan, setting, relay)?;
    let outcome = job.watch().and_then(|()| job.check_results());
    outcome.map_err(|why| format!("{why}\n{}", job.failure_report()))
}

/// The ranks' reports about the messages of a pair, for each incarnation of the killed rank: number, bytes, and a hash.
type Tallies = BTreeMap<(u32, u32, u32), [String; 3]>;

struct Job {
    plan: Plan,
    ranks: u32,
    relay: Relay,
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    /// The launcher's standard error, once it has ended.
    said: String,
    /// Ranks that have not finished.
    processes: BTreeMap<u32, Process>,
    ready: BTreeSet<u32>,
    /// The killed rank has rejoined.
    rejoined: bool,
    /// The round that each rank has reached.
    at: BTreeMap<u32, u32>,
    /// Faults that last for a time: when each ends, and its [effects](Self::effects) before it began.
    active_faults: Vec<(Instant, Fault, u64)>,
    /// Faults that have not begun.
    planned_faults: Vec<(u32, u32, Fault)>,
    killed_at: Option<u64>,
    noticed: BTreeMap<u32, Duration>,
    sent: Tallies,
    received: Tallies,
    over: Vec<u32>,
    report: Report,
    last: VecDeque<String>,
}

impl Job {
    fn start(plan: Plan, setting: &Setting, relay: Relay) -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
        let ranks = setting.ranks;
        let mut command = Command::new(&me);
        command.args(["run", "--no-prefix", "--keep-going", "--ranks", &ranks.to_string()]);
        command.args(["--restart", if plan.rounds_after_restart == 0 { "0" } else { "1" }]);
        command.args(["--transport", &setting.transport, "--links", &setting.links.to_string(), "--"]);
        command.args(&setting.through);
        command.arg(&me).args(["soak-rank", "--seed", &plan.seed.to_string(), "--rounds", &plan.rounds.to_string()]);
        command.args(["--rounds-after-restart", &plan.rounds_after_restart.to_string()]);
        command.args(["--most", &plan.most.to_string(), "--links", &setting.links.to_string()]);
        if let Some(victim) = plan.victim {
            command.args(["--victim", &victim.to_string()]);
        }
        if plan.thread {
            command.arg("--thread");
        }
        let ports = match &relay {
            Relay::None => None,
            Relay::Streams(relay) => Some((relay.real(), relay.advertised())),
            Relay::Datagrams(relay) => {
                relay.set(plan.trouble);
                Some((relay.real(), relay.advertised()))
            }
        };
        if let Some((real, told)) = ports {
            command.args(["--ports", &real.first.to_string(), &told.first.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command).map_err(|why| format!("cannot start {}: {why}", me.display()))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            let mut said = BufReader::new(out).lines().map_while(Result::ok);
            std::thread::spawn(move || said.try_for_each(|line| sender.send(line)));
        }
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                // On an error, the bytes read so far are kept.
                let _ = errors.read_to_end(&mut all);
                String::from_utf8_lossy(&all).into_owned()
            })
        });
        Ok(Self {
            planned_faults: plan.faults.clone(),
            report: Report { jobs: 1, planned: plan.faults.len() as u64, ..Report::default() },
            plan,
            ranks,
            relay,
            child,
            lines,
            errors,
            said: String::new(),
            processes: BTreeMap::new(),
            ready: BTreeSet::new(),
            rejoined: false,
            at: BTreeMap::new(),
            active_faults: Vec::new(),
            killed_at: None,
            noticed: BTreeMap::new(),
            sent: Tallies::new(),
            received: Tallies::new(),
            over: Vec::new(),
            last: VecDeque::new(),
        })
    }

    /// Injects the faults until all ranks have ended.
    fn watch(&mut self) -> Result<(), String> {
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            self.end_faults(|due| due <= now);
            // Faults that had to wait for the end of another one.
            self.begin_faults();
            let next = self.active_faults.iter().map(|(due, ..)| *due).min().unwrap_or(heard + SILENCE_LIMIT);
            match self.lines.recv_timeout(next.min(heard + SILENCE_LIMIT).saturating_duration_since(now)) {
                Ok(line) => {
                    heard = Instant::now();
                    self.handle_line(&line)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if heard.elapsed() >= SILENCE_LIMIT => {
                    return Err(format!("no rank has made progress for {} s", SILENCE_LIMIT.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(())
    }

    fn handle_line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.strip_prefix("@ ").unwrap_or_default().split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word: &&str| word.parse::<u64>().ok());
        let rank = number(1).map_or(u32::MAX, |rank| rank as u32);
        match (words[0], number(2)) {
            ("ready", Some(pid)) => {
                let process = Process::open(pid, self.child.id()).map_err(|why| format!("rank {rank}: {why}"))?;
                self.processes.insert(rank, process);
                self.report.orders[usize::from(words.get(3) == Some(&"big"))] += 1;
                if !self.ready.insert(rank) {
                    if !self.is_dead(rank) {
                        return Err(format!("rank {rank} was restarted, although it had not died"));
                    }
                    (self.rejoined, self.report.rejoined) = (true, 1);
                }
            }
            ("at", Some(round)) => {
                self.at.insert(rank, round as u32);
                self.begin_faults();
                return Ok(());
            }
            ("noticed", Some(at)) => {
                let killed_at = self.killed_at.ok_or(format!("rank {rank} reports a death, but no rank was killed"))?;
                let after = Duration::from_nanos(at.saturating_sub(killed_at));
                self.report.noticed = self.report.noticed.max(after);
                self.noticed.insert(rank, after);
            }
            (which @ ("sent" | "received"), Some(other)) if words.len() == 7 => {
                let life = number(6).unwrap_or(0) as u32;
                let tally = [3, 4, 5].map(|at| words[at].to_string());
                let (tallies, pair) = match which {
                    "sent" => (&mut self.sent, (rank, other as u32, life)),
                    _ => (&mut self.received, (other as u32, rank, life)),
                };
                tallies.insert(pair, tally);
            }
            ("links", Some(_)) => {
                let counts = [2, 3, 4, 5].map(|at| number(at).unwrap_or(0));
                self.report.links.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
            }
            ("shared", Some(operations)) => self.report.operations += operations,
            ("over", _) => {
                self.over.push(rank);
                // The rank need not run any more, and it must not stay stopped.
                self.end_faults_of(rank);
                self.processes.remove(&rank);
            }
            _ => {}
        }
        self.last.push_back(line.into());
        if self.last.len() > 50 {
            self.last.pop_front();
        }
        Ok(())
    }

    /// Begins the faults whose rank has reached their round.
    fn begin_faults(&mut self) {
        while let Some(at) = self.planned_faults.iter().position(|planned| self.may_begin(planned)) {
            let (_, rank, fault) = self.planned_faults.remove(at);
            if self.is_dead(rank) && matches!(fault, Fault::Stop { .. }) {
                continue;
            }
            let touched = self.effects(fault);
            match (fault, fault.span()) {
                (Fault::Kill { rank }, _) => {
                    let now = clock();
                    if self.processes.remove(&rank).is_some_and(|process| process.signal(Signal::KILL)) {
                        self.killed_at = Some(now);
                        self.report.faults[fault.kind()] += 1;
                    }
                }
                (_, None) => {
                    self.set(fault, true);
                    self.report.faults[fault.kind()] += u64::from(self.effects(fault) > touched);
                }
                (_, Some(span)) => {
                    self.set(fault, true);
                    self.active_faults.push((Instant::now() + span, fault, touched));
                }
            }
        }
    }

    /// Whether a rank is dead. A dead rank makes no progress. Its faults begin when another rank has reached their round.
    fn is_dead(&self, rank: u32) -> bool {
        self.killed_at.is_some() && self.plan.victim == Some(rank) && !self.rejoined
    }

    /// Whether the rank of a fault has reached its round, and no active fault conflicts with it.
    fn may_begin(&self, (round, rank, fault): &(u32, u32, Fault)) -> bool {
        let at = if self.is_dead(*rank) { self.at.values().max() } else { self.at.get(rank) };
        self.ready.len() == self.ranks as usize
            && at.is_some_and(|at| at >= round)
            && !self.active_faults.iter().any(|(_, other, _)| other.conflicts_with(fault))
    }

    /// Ends the faults that are due.
    fn end_faults(&mut self, is_due: impl Fn(Instant) -> bool) {
        while let Some(at) = self.active_faults.iter().position(|(due, ..)| is_due(*due)) {
            self.end_fault(at);
        }
    }

    /// Ends the faults of a rank itself.
    fn end_faults_of(&mut self, rank: u32) {
        let of = |fault: &Fault| matches!(fault, Fault::Stop { rank: stopped, .. } if *stopped == rank);
        while let Some(at) = self.active_faults.iter().position(|(_, fault, _)| of(fault)) {
            self.end_fault(at);
        }
    }

    fn end_fault(&mut self, at: usize) {
        let (_, fault, before) = self.active_faults.swap_remove(at);
        // The fault took effect if the rank is still stopped, or if the relay has counted something.
        let stopped = match fault {
            Fault::Stop { rank, .. } => self.processes.get(&rank).is_some_and(Process::is_stopped),
            _ => false,
        };
        self.set(fault, false);
        self.report.faults[fault.kind()] += u64::from(stopped || self.effects(fault) > before);
    }

    /// How many effects of such a fault a relay has counted so far.
    fn effects(&self, fault: Fault) -> u64 {
        match (fault, &self.relay) {
            (Fault::Cut { link }, Relay::Streams(relay)) => relay.link_counts(link).cut,
            (Fault::Down { link, .. }, Relay::Streams(relay)) => {
                let StreamCounts { cut, refused, .. } = relay.link_counts(link);
                cut + refused
            }
            (Fault::Freeze { link, .. }, Relay::Streams(relay)) => relay.link_counts(link).held,
            (Fault::Slow { link, .. }, Relay::Streams(relay)) => relay.link_counts(link).delayed,
            (Fault::DatagramFaults { .. }, Relay::Datagrams(relay)) => {
                let DatagramCounts { lost, duplicated, delayed, .. } = relay.counts();
                lost + duplicated + delayed
            }
            (Fault::Part { from, to, .. }, Relay::Datagrams(relay)) => relay.cut_off(from, to),
            _ => 0,
        }
    }

    /// Begins or ends a fault.
    fn set(&mut self, fault: Fault, on: bool) {
        match (fault, &self.relay) {
            (Fault::Stop { rank, .. }, _) => {
                // Fails if the process has just ended.
                let signal = if on { Signal::STOP } else { Signal::CONT };
                let _ = self.processes.get(&rank).map(|process| process.signal(signal));
            }
            (Fault::Cut { link }, Relay::Streams(relay)) => relay.cut(link),
            (Fault::Down { link, .. }, Relay::Streams(relay)) => relay.refuse(link, on),
            (Fault::Freeze { link, direction, .. }, Relay::Streams(relay)) => relay.freeze(link, direction, on),
            (Fault::Slow { link, .. }, Relay::Streams(relay)) => {
                relay.delay(link, if on { Duration::from_millis(2) } else { Duration::ZERO });
            }
            (Fault::DatagramFaults { trouble, .. }, Relay::Datagrams(relay)) => {
                relay.set(if on { trouble } else { self.plan.trouble });
            }
            (Fault::Part { from, to, .. }, Relay::Datagrams(relay)) => relay.partition(from, to, on),
            _ => {}
        }
    }

    /// Checks the results of all ranks.
    fn check_results(&mut self) -> Result<Report, String> {
        let status = self.child.wait().map_err(|why| format!("cannot wait for the ranks: {why}"))?;
        self.end_faults(|_| true);
        if self.ready.is_empty() {
            return Err(format!("no rank has started: the job ended with {status}"));
        }
        let died = self.killed_at.is_some();
        if self.plan.victim.is_some() && !died {
            return Err("the rank that was to be killed had already ended".into());
        }
        let rounds_after_restart = self.plan.rounds_after_restart != 0;
        if status.code() != Some(if died && !rounds_after_restart { 128 + 9 } else { 0 }) {
            return Err(format!("the job failed: {status}"));
        }
        let dead = self.plan.victim.filter(|_| died);
        let all = self.ranks;
        self.errors_of_others(dead)?;
        if rounds_after_restart && !self.rejoined {
            return Err("the rank that died was not restarted".into());
        }
        if let Some(dead) = dead.filter(|dead| rounds_after_restart && !self.over.contains(dead)) {
            return Err(format!("rank {dead}, which was restarted, did not finish"));
        }
        for rank in (0..all).filter(|rank| Some(*rank) != dead) {
            if !self.over.contains(&rank) {
                return Err(format!("rank {rank} did not finish"));
            }
            match self.noticed.get(&rank) {
                None if died => return Err(format!("rank {rank} did not notice the death")),
                Some(after) if *after > NOTICE_LIMIT => {
                    return Err(format!("rank {rank} noticed the death only after {after:?}"));
                }
                _ => {}
            }
        }
        for (from, to) in (0..all).flat_map(|from| (0..all).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let of_dead = [from, to].into_iter().any(|rank| Some(rank) == dead);
            if !of_dead {
                self.compare(from, to, 1)?;
            }
            if rounds_after_restart {
                let messages = self.compare(from, to, 2)?;
                self.report.after_rejoin += if of_dead { messages } else { 0 };
            }
        }
        match &self.relay {
            Relay::None => {}
            Relay::Streams(relay) => self.report.stream_counts = relay.counts(),
            Relay::Datagrams(relay) => self.report.datagram_counts = relay.counts(),
        }
        let Report { stream_counts, datagram_counts, .. } = self.report;
        let bypassed = match &self.relay {
            Relay::None => false,
            Relay::Streams(_) => stream_counts.connections == 0 || stream_counts.chunks == 0,
            Relay::Datagrams(_) => datagram_counts.seen == 0,
        };
        if bypassed {
            return Err("no message went through the relay, so no fault could affect one".into());
        }
        Ok(self.report)
    }

    /// Checks that one rank has received all that another sent, in an incarnation of the killed rank. Returns the number
    /// of messages.
    fn compare(&mut self, from: u32, to: u32, life: u32) -> Result<u64, String> {
        let (sent, received) = (self.sent.get(&(from, to, life)), self.received.get(&(from, to, life)));
        let (Some(sent), Some(received)) = (sent, received) else {
            return Err(format!("ranks {from} and {to} did not report their messages in incarnation {life}"));
        };
        if sent != received {
            return Err(format!("rank {from} sent {sent:?}, and rank {to} received {received:?} in life {life}"));
        }
        let number = |at: usize| received[at].parse::<u64>().unwrap_or(0);
        let (messages, bytes) = (number(0), number(1));
        self.report.messages += messages;
        self.report.bytes += bytes;
        Ok(messages)
    }

    /// The launcher's status is that of the first rank that failed, which is the killed one. Its standard error names
    /// other ranks that failed.
    fn errors_of_others(&mut self, dead: Option<u32>) -> Result<(), String> {
        self.said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let dead = dead.map(|dead| format!("rank {dead} ("));
        let of_dead = |line: &str| dead.as_ref().is_some_and(|dead| line.contains(dead));
        match self.said.lines().find(|line| line.contains("; the other ranks go on") && !of_dead(line)) {
            Some(line) => Err(format!("a surviving rank failed: {line}")),
            None => Ok(()),
        }
    }

    /// Describes a job that failed, and ends it.
    fn failure_report(&mut self) -> String {
        let rounds = describe_rounds(&self.plan, &self.at);
        self.end();
        let later = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let errors = format!("{}{later}", self.said);
        let last: Vec<_> = self.last.iter().map(|line| format!("  {line}")).collect();
        format!(
            "{rounds}; faults not begun: {:?}\nlast reports of the ranks:\n{}\n{errors}",
            self.planned_faults,
            last.join("\n"),
        )
    }

    fn end(&mut self) {
        for process in self.processes.values() {
            process.signal(Signal::CONT);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// How far the ranks have come.
fn describe_rounds(plan: &Plan, at: &BTreeMap<u32, u32>) -> String {
    let finished: Vec<_> = at.iter().map(|(rank, round)| format!("rank {rank} finished round {round}")).collect();
    let finished = if finished.is_empty() { "no rank finished one".into() } else { finished.join(", ") };
    let rounds = counted(plan.rounds, "round");
    format!("of {rounds} and {} after a restart, {finished}", plan.rounds_after_restart)
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_how_far_the_ranks_have_come() {
        let plan = Plan { rounds: 13, rounds_after_restart: 0, ..Plan::new(1, "sm", 2, 1, 100) };
        let none = describe_rounds(&plan, &BTreeMap::new());
        assert_eq!(none, "of 13 rounds and 0 after a restart, no rank finished one");
        let some = describe_rounds(&plan, &BTreeMap::from([(0, 3), (1, 2)]));
        assert_eq!(some, "of 13 rounds and 0 after a restart, rank 0 finished round 3, rank 1 finished round 2");
    }
}
