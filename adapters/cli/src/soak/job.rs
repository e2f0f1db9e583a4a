//! One job of real processes: starts it, sees to its faults, and judges what its ranks say.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use towline_host_tests::relay::{Datagrams, Streams, Troubled};

use super::faults::{Fault, KINDS, Plan};
use super::rank::clock;

/// Without a word of any rank for so long, a job hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a death may go unnoticed: what is promised, and as much for a machine that has much else to do.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// What all jobs have in common.
#[derive(Clone, Debug)]
pub struct Setting {
    pub transport: String,
    pub ranks: u32,
    pub links: u32,
    /// Longest message, in bytes.
    pub most: u64,
}

/// What came of clean jobs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Report {
    pub jobs: u64,
    pub messages: u64,
    pub bytes: u64,
    /// By [`KINDS`].
    pub faults: [u64; KINDS.len()],
    /// The longest time in which a death was noticed.
    pub noticed: Duration,
    /// Links down and up again, frames moved, doubles removed.
    pub links: [u64; 4],
    pub connections_cut: u64,
    pub troubled: Troubled,
}

impl Report {
    pub fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.noticed = self.noticed.max(other.noticed);
        self.connections_cut += other.connections_cut;
        self.faults.iter_mut().zip(other.faults).for_each(|(sum, more)| *sum += more);
        self.links.iter_mut().zip(other.links).for_each(|(sum, more)| *sum += more);
        let (sum, more) = (&mut self.troubled, other.troubled);
        sum.seen += more.seen;
        sum.lost += more.lost;
        sum.doubled += more.doubled;
        sum.delayed += more.delayed;
        sum.cut_off += more.cut_off;
    }
}

enum Relay {
    None,
    Streams(Streams),
    Datagrams(Datagrams),
}

/// Runs the job of a seed; why it failed.
pub fn run(seed: u64, setting: &Setting) -> Result<Report, String> {
    let plan = Plan::new(seed, &setting.transport, setting.ranks, setting.links, setting.most);
    let failed = |why: std::io::Error| format!("cannot start the relay: {why}");
    let relay = match setting.transport.as_str() {
        "tcp" => Relay::Streams(Streams::start(setting.ranks, setting.links, seed).map_err(failed)?),
        "udp" => Relay::Datagrams(Datagrams::start(setting.ranks, setting.links, seed).map_err(failed)?),
        _ => Relay::None,
    };
    let mut job = Job::start(plan, setting, relay)?;
    let outcome = job.watch().and_then(|()| job.judge());
    outcome.map_err(|why| format!("{why}\n{}", job.tell()))
}

/// What ranks said of the messages of a pair: how many, bytes, a hash of all.
type Tallies = BTreeMap<(u32, u32), [String; 3]>;

struct Job {
    plan: Plan,
    ranks: u32,
    relay: Relay,
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    pids: BTreeMap<u32, Pid>,
    /// The round that each rank has come to.
    at: BTreeMap<u32, u32>,
    /// What is to be put right, and when.
    amends: Vec<(Instant, Fault)>,
    /// Faults that are yet to come.
    coming: VecDeque<(u32, u32, Fault)>,
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
        command.args(["--transport", &setting.transport, "--links", &setting.links.to_string(), "--"]);
        command.arg(&me).args(["soak-rank", "--seed", &plan.seed.to_string(), "--rounds", &plan.rounds.to_string()]);
        command.args(["--most", &plan.most.to_string(), "--links", &setting.links.to_string()]);
        if let Some(victim) = plan.victim {
            command.args(["--victim", &victim.to_string()]);
        }
        if plan.thread {
            command.arg("--thread");
        }
        let ports = match &relay {
            Relay::None => None,
            Relay::Streams(relay) => Some((relay.real(), relay.told())),
            Relay::Datagrams(relay) => {
                relay.set(plan.trouble);
                Some((relay.real(), relay.told()))
            }
        };
        if let Some((real, told)) = ports {
            command.args(["--ports", &real.first.to_string(), &told.first.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("cannot start {}: {why}", me.display()))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            let mut said = BufReader::new(out).lines().map_while(Result::ok);
            std::thread::spawn(move || said.try_for_each(|line| sender.send(line)));
        }
        let errors = child.stderr.take().map(|mut errors| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                // What could be read is told.
                let _ = errors.read_to_end(&mut all);
                String::from_utf8_lossy(&all).into_owned()
            })
        });
        Ok(Self {
            coming: plan.faults.iter().copied().collect(),
            plan,
            ranks,
            relay,
            child,
            lines,
            errors,
            pids: BTreeMap::new(),
            at: BTreeMap::new(),
            amends: Vec::new(),
            killed_at: None,
            noticed: BTreeMap::new(),
            sent: Tallies::new(),
            received: Tallies::new(),
            over: Vec::new(),
            report: Report { jobs: 1, ..Report::default() },
            last: VecDeque::new(),
        })
    }

    /// Sees to the faults until all ranks have ended.
    fn watch(&mut self) -> Result<(), String> {
        let mut heard = Instant::now();
        loop {
            let now = Instant::now();
            while let Some(at) = self.amends.iter().position(|(due, _)| *due <= now) {
                let (_, fault) = self.amends.swap_remove(at);
                self.set(fault, false);
            }
            let next = self.amends.iter().map(|(due, _)| *due).min().unwrap_or(heard + PATIENCE);
            match self.lines.recv_timeout(next.min(heard + PATIENCE).saturating_duration_since(now)) {
                Ok(line) => {
                    heard = Instant::now();
                    self.hear(&line)?;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if heard.elapsed() >= PATIENCE => {
                    return Err(format!("no rank has got on for {} s", PATIENCE.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(())
    }

    fn hear(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<_> = line.strip_prefix("@ ").unwrap_or_default().split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word: &&str| word.parse::<u64>().ok());
        let rank = number(1).map_or(u32::MAX, |rank| rank as u32);
        match (words[0], number(2)) {
            ("ready", Some(pid)) => {
                self.pids.extend(Pid::from_raw(pid as i32).map(|pid| (rank, pid)));
            }
            ("at", Some(round)) => {
                self.at.insert(rank, round as u32);
                self.begin_faults();
                return Ok(());
            }
            ("noticed", Some(at)) => {
                let killed_at = self.killed_at.ok_or(format!("rank {rank} notices a death, and nobody died"))?;
                let after = Duration::from_nanos(at.saturating_sub(killed_at));
                self.report.noticed = self.report.noticed.max(after);
                self.noticed.insert(rank, after);
            }
            (which @ ("sent" | "received"), Some(other)) if words.len() == 6 => {
                let tally = [3, 4, 5].map(|at| words[at].to_string());
                let (tallies, pair) = match which {
                    "sent" => (&mut self.sent, (rank, other as u32)),
                    _ => (&mut self.received, (other as u32, rank)),
                };
                tallies.insert(pair, tally);
            }
            ("links", Some(_)) => {
                let counts = [2, 3, 4, 5].map(|at| number(at).unwrap_or(0));
                self.report.links.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
            }
            ("over", _) => self.over.push(rank),
            _ => {}
        }
        self.last.push_back(line.into());
        if self.last.len() > 50 {
            self.last.pop_front();
        }
        Ok(())
    }

    /// Begins the faults whose rank has come so far.
    fn begin_faults(&mut self) {
        while let Some((round, rank, fault)) = self.coming.front().copied() {
            // Whoever has died comes no further: then it is any other's turn.
            let dead = self.killed_at.is_some() && self.plan.victim == Some(rank);
            let at = if dead { self.at.values().max() } else { self.at.get(&rank) };
            if self.pids.len() < self.ranks as usize || at.is_none_or(|at| *at < round) {
                return;
            }
            self.coming.pop_front();
            if dead && matches!(fault, Fault::Stop { .. }) {
                continue;
            }
            self.report.faults[fault.kind()] += 1;
            self.set(fault, true);
            self.amends.extend(fault.span().map(|span| (Instant::now() + span, fault)));
        }
    }

    /// Has something go wrong, or puts it right.
    fn set(&mut self, fault: Fault, on: bool) {
        let signal = |rank: u32, signal| {
            // One that has just ended cannot be stopped.
            let _ = self.pids.get(&rank).map(|pid| kill_process(*pid, signal));
        };
        match (fault, &self.relay) {
            (Fault::Stop { rank, .. }, _) => signal(rank, if on { Signal::STOP } else { Signal::CONT }),
            (Fault::Kill { rank }, _) => {
                self.killed_at = Some(clock());
                signal(rank, Signal::KILL);
                // Its number may be another's soon.
                self.pids.remove(&rank);
                self.ranks -= 1;
            }
            (Fault::Cut { link }, Relay::Streams(relay)) => relay.cut(link),
            (Fault::Down { link, .. }, Relay::Streams(relay)) => relay.refuse(link, on),
            (Fault::Freeze { link, towards, .. }, Relay::Streams(relay)) => relay.freeze(link, towards, on),
            (Fault::Slow { link, .. }, Relay::Streams(relay)) => {
                relay.delay(link, if on { Duration::from_millis(2) } else { Duration::ZERO });
            }
            (Fault::Trouble { trouble, .. }, Relay::Datagrams(relay)) => {
                relay.set(if on { trouble } else { self.plan.trouble });
            }
            (Fault::Part { from, to, .. }, Relay::Datagrams(relay)) => relay.part(from, to, on),
            _ => {}
        }
    }

    /// Whether all came to its end as it had to.
    fn judge(&mut self) -> Result<Report, String> {
        let status = self.child.wait().map_err(|why| format!("cannot wait for the ranks: {why}"))?;
        let died = self.killed_at.is_some();
        if status.code() != Some(if died { 128 + 9 } else { 0 }) {
            return Err(format!("the ranks did not end well: {status}"));
        }
        let dead = self.plan.victim.filter(|_| died);
        let all = if died { self.ranks + 1 } else { self.ranks };
        for rank in (0..all).filter(|rank| Some(*rank) != dead) {
            if !self.over.contains(&rank) {
                return Err(format!("rank {rank} did not come to its end"));
            }
            match self.noticed.get(&rank) {
                None if died => return Err(format!("rank {rank} noticed no death")),
                Some(after) if *after > NOTICED_WITHIN => {
                    return Err(format!("rank {rank} noticed a death after {after:?}"));
                }
                _ => {}
            }
            for other in (0..all).filter(|other| *other != rank && Some(*other) != dead) {
                let (sent, received) = (self.sent.get(&(rank, other)), self.received.get(&(rank, other)));
                let (Some(sent), Some(received)) = (sent, received) else {
                    return Err(format!("ranks {rank} and {other} say nothing of their messages"));
                };
                if sent != received {
                    return Err(format!("rank {rank} sent {sent:?}, and rank {other} received {received:?}"));
                }
                let number = |at: usize| received[at].parse::<u64>().unwrap_or(0);
                self.report.messages += number(0);
                self.report.bytes += number(1);
            }
        }
        match &self.relay {
            Relay::None => {}
            Relay::Streams(relay) => self.report.connections_cut = relay.cuts(),
            Relay::Datagrams(relay) => self.report.troubled = relay.troubled(),
        }
        Ok(self.report)
    }

    /// What is known of a job that failed. Ends it.
    fn tell(&mut self) -> String {
        let rounds: Vec<_> = self.at.iter().map(|(rank, round)| format!("rank {rank} did round {round}")).collect();
        self.end();
        let errors = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        let last: Vec<_> = self.last.iter().map(|line| format!("  {line}")).collect();
        format!(
            "of {} rounds, {}; to come: {:?}\nsaid last:\n{}\n{errors}",
            self.plan.rounds,
            rounds.join(", "),
            self.coming,
            last.join("\n"),
        )
    }

    fn end(&mut self) {
        for pid in self.pids.values() {
            let _ = kill_process(*pid, Signal::CONT);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}
