//! The launcher's main loop. One thread handles all events and makes all decisions.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCHLD, SIGKILL, SIGPIPE, SIGQUIT, SIGTERM};
use towline_net::advice;

use super::children::{Children, End, RankInput, Start};
use super::cores::Cores;
use super::failures::{CAUSE_LIMIT, Failure, Failures, Kind, RankState};
use super::input::{Feeder, Piece};
use super::message::{self, Order, Report};
use super::options::Launch;
use super::output::Sink;
use super::remote::{Remote, RemoteEvent};
use super::reports::{Presence, ReportedRank, Reports};
use super::signals;
use super::standard_streams::Log;
use crate::report::Reason;
use crate::server::{self, Server};
use crate::{Address, Environment};

/// Time in which the agent behind a remote shell must report.
const AGENT_LIMIT: Duration = Duration::from_secs(60);
/// Time for which a rank may run on after it has closed its connection without finishing.
const DISCONNECTED_LIMIT: Duration = Duration::from_secs(2);
/// Time for which a rank may run on after it has reported that its program fails.
const FAILING_LIMIT: Duration = Duration::from_secs(1);
/// Time in which ranks must end after SIGKILL, and in which agents must send the rest of the output after their ranks
/// have ended.
const KILLED_LIMIT: Duration = Duration::from_secs(5);
/// Exit status after the time limit, the same as that of timeout(1).
const TIME_LIMIT_STATUS: u8 = 124;
/// Exit status if the job cannot begin.
const NOT_BEGUN_STATUS: u8 = 2;
/// Exit statuses of ranks that the launcher ends.
const SIGTERM_STATUS: u8 = 128 + SIGTERM as u8;
const SIGKILL_STATUS: u8 = 128 + SIGKILL as u8;
/// A delay that no job reaches: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Number of refused connections that are reported one by one.
const REFUSED_LOGGED_MAX: u32 = 10;

pub(super) enum Event {
    Signal(i32),
    Server(server::Event),
    Remote(usize, RemoteEvent),
    /// The reader of the output has closed it.
    OutputBroken,
    /// A file for output cannot be written.
    OutputFailed(String),
    /// Standard input for the ranks on another host.
    Input(Piece),
}

/// The state of a rank.
#[derive(Default)]
pub(super) struct Rank {
    pub(super) host: usize,
    pub(super) pid: Option<u32>,
    pub(super) ended: bool,
    pub(super) joined: bool,
    pub(super) finished: bool,
    pub(super) aborted: bool,
    /// Its connection is open, as far as is known.
    pub(super) connected: bool,
    /// How often it was restarted.
    pub(super) restarts: u32,
}

/// A host, its ranks, and how the launcher controls them.
pub(super) struct JobHost {
    pub(super) name: String,
    pub(super) ranks: Vec<u32>,
    pub(super) control: Control,
}

pub(super) enum Control {
    Local(Box<Children>),
    Remote(Remote),
    /// Not prepared yet, or closed.
    Unstarted,
}

/// How far the job has come towards its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Terminating { kill_at: Instant },
    Killing { give_up_at: Instant },
}

pub(super) struct Launcher {
    pub(super) launch: Launch,
    pub(super) ranks: Vec<Rank>,
    /// Number of ranks that have not ended.
    pub(super) remaining: usize,
    /// Ranks that closed their connection, and when each counts as failed.
    pub(super) disconnected: BTreeMap<u32, Instant>,
    /// Ranks whose program fails, and when each counts as failed although it still runs.
    pub(super) failing: BTreeMap<u32, Instant>,
    /// Failures whose cause is not known yet, and those that were reported.
    pub(super) failures: Failures,
    pub(super) hosts: Vec<JobHost>,
    /// Index of the host whose ranks are being started. All hosts before it are done.
    pub(super) starting: usize,
    pub(super) server: Server,
    pub(super) sink: Arc<dyn Sink>,
    /// The ranks that read the standard input.
    pub(super) readers: Vec<u32>,
    /// Distributes the standard input, unless no rank reads it or a rank inherits it.
    pub(super) feeder: Option<Arc<Feeder>>,
    pub(super) log: Log,
    pub(super) sender: mpsc::Sender<Event>,
    pub(super) environment: Environment,
    pub(super) phase: Phase,
    /// The exit status, if the job has failed.
    pub(super) status: Option<u8>,
    /// The exit status of the first rank that failed while the other ranks went on.
    pub(super) failed: Option<u8>,
    pub(super) time_limit: Option<Instant>,
    pub(super) refused: u32,
    pub(super) reports: Reports,
    /// Set when a signal or the time limit ends the job. Then the output is not held for a slow reader.
    pub(super) stop_waiting: Arc<AtomicBool>,
}

impl Launcher {
    pub(super) fn run(mut self, events: &mpsc::Receiver<Event>, is_here: impl Fn(&str) -> bool) -> u8 {
        while self.remaining > 0 || self.failures.holds_any() {
            // Events are handled between two starts.
            let event = match events.try_recv() {
                Err(_) if self.start_next(&is_here) => None,
                Err(_) => {
                    let timeout = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
                    events.recv_timeout(timeout.unwrap_or(Duration::MAX)).ok()
                }
                Ok(event) => Some(event),
            };
            match event {
                Some(Event::Signal(SIGCHLD)) => self.reap(events),
                Some(event) => self.handle(event),
                None => {}
            }
            self.check_deadlines();
        }
        // The last messages of ranks say which failures are consequences.
        let until = Instant::now() + CAUSE_LIMIT;
        while self.failures.lists_any(|rank| self.state(rank).connected)
            && let Some(left) = until.checked_duration_since(Instant::now())
            && let Ok(event) = events.recv_timeout(left)
        {
            self.handle(event);
        }
        if let Some(others) = self.failures.describe_others() {
            self.log.print(others);
        }
        self.print_reports();
        let status = self.failed.or(self.status).or_else(|| self.reports.print_unmatched(&self.log)).unwrap_or(0);
        self.clean_up(events);
        status
    }

    /// Starts the next rank, or the agent of the next host. `false` if nothing is left to start.
    fn start_next(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        if self.phase != Phase::Running {
            return false;
        }
        let index = self.starting;
        let Some(host) = self.hosts.get_mut(index) else { return false };
        match &mut host.control {
            Control::Local(children) => match children.start_next() {
                Some((rank, Ok(pid))) => self.ranks[rank as usize].pid = Some(pid),
                Some((rank, Err((why, status)))) => {
                    let name = host.name.clone();
                    self.fail(status, &format!("rank {rank} on {name}: {why}"));
                    self.set_ended(rank);
                }
                None => self.starting += 1,
            },
            _ if is_here(&host.name) => self.prepare_local(index),
            _ => {
                self.start_agent(index);
                self.starting += 1;
            }
        }
        true
    }

    fn prepare_local(&mut self, index: usize) {
        let local = self.server.addresses().iter().filter(|address| matches!(address, Address::Abstract(_)));
        let host = &self.hosts[index];
        let start = Start {
            program: self.launch.program.clone(),
            args: self.launch.args.clone(),
            directory: None,
            variables: self.launch.variables.clone(),
            environment: Environment {
                root: local.cloned().collect(),
                host: host.name.clone(),
                local: Some(host.ranks.clone()),
                ..self.environment.clone()
            },
            ranks: host.ranks.clone(),
            input: self.input_of(index),
            // The number of cores was checked before the launch.
            cores: Cores::of_this_host()
                .assign(host.ranks.len(), self.launch.mapping, self.launch.binding)
                .unwrap_or_default(),
        };
        match Children::new(start, Arc::clone(&self.sink)) {
            Ok(children) => self.hosts[index].control = Control::Local(Box::new(children)),
            Err(why) => self.fail(1, &format!("cannot read the output of ranks: {why}")),
        }
    }

    /// Standard input of the ranks on this host.
    fn input_of(&self, host: usize) -> RankInput {
        let mine = self.readers_on(host);
        match (&mine[..], &self.feeder) {
            ([], _) => RankInput::Empty,
            (_, Some(feeder)) => RankInput::Fed(mine, Arc::clone(feeder)),
            ([reader, ..], None) => RankInput::Inherited(*reader),
        }
    }

    /// The ranks on a host that read the standard input.
    fn readers_on(&self, host: usize) -> Vec<u32> {
        self.readers.iter().copied().filter(|rank| self.ranks[*rank as usize].host == host).collect()
    }

    fn start_agent(&mut self, host: usize) {
        let sender = self.sender.clone();
        let remote = Remote::start(
            &self.launch.shell,
            (&self.hosts[host].name, self.hosts[host].ranks.clone()),
            &self.launch.agent,
            Instant::now() + AGENT_LIMIT,
            Arc::clone(&self.sink),
            move |told| drop(sender.send(Event::Remote(host, told))),
        );
        match remote {
            Ok(remote) => self.hosts[host].control = Control::Remote(remote),
            Err(why) => {
                let shell = self.launch.shell.join(" ");
                let name = &self.hosts[host].name;
                let what =
                    format!("host {name}: cannot run the remote shell `{shell}` of --rsh: {why}{}", advice(&why));
                self.fail(NOT_BEGUN_STATUS, &what);
            }
        }
    }

    /// Marks ranks that were not started yet as ended, since the job ends before they start. Returns whether these are all.
    fn cancel_unstarted(&mut self) -> bool {
        let mut unstarted = Vec::new();
        for (index, host) in self.hosts.iter_mut().enumerate() {
            match &mut host.control {
                Control::Local(children) => unstarted.extend(children.cancel_unstarted()),
                Control::Unstarted if index >= self.starting => unstarted.extend(&host.ranks),
                Control::Remote(_) | Control::Unstarted => {}
            }
        }
        // A report of one of them is enough: a rank that waits for all of them also waits for the first.
        unstarted.first().into_iter().for_each(|rank| self.server.rank_ended(*rank));
        for rank in &unstarted {
            self.remaining -= usize::from(!std::mem::replace(&mut self.ranks[*rank as usize].ended, true));
        }
        unstarted.len() == self.ranks.len()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => self.time_limit,
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
        };
        let agents = self.hosts.iter().filter_map(|host| match &host.control {
            Control::Remote(remote) => remote.ready_until,
            _ => None,
        });
        let failures = self.failures.next_deadline(|rank| self.state(rank), self.ranks.len() as u32);
        let failing = self.failing.values().copied();
        phase
            .into_iter()
            .chain(agents)
            .chain(self.disconnected.values().copied())
            .chain(failing)
            .chain(failures)
            .chain(self.reports.until())
            .min()
    }

    /// What is known of a rank, for the search for the cause of a failure.
    fn state(&self, rank: u32) -> RankState {
        let of = &self.ranks[rank as usize];
        RankState { runs: !of.ended, dying: self.disconnected.contains_key(&rank), connected: of.connected }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Signal(signal) => self.handle_signal(signal),
            Event::Server(event) => self.handle_server(event),
            Event::Remote(host, told) => self.handle_remote(host, told),
            Event::OutputBroken if self.phase == Phase::Running => {
                self.fail(141, "the reader of the output has closed it");
            }
            Event::OutputBroken => {}
            Event::OutputFailed(why) => self.fail(1, &why),
            Event::Input(Piece { host, bytes }) => {
                if let Control::Remote(remote) = &mut self.hosts[host].control {
                    remote.order(&Order::Input(bytes));
                }
            }
        }
    }

    /// Collects the ranks that have ended. Events from before their end are in the queue by now and are handled first,
    /// so that a rank that has finished does not count as one that has not.
    fn reap(&mut self, events: &mpsc::Receiver<Event>) {
        let mut again = true;
        while std::mem::take(&mut again) {
            let mut ended = Vec::new();
            for host in &mut self.hosts {
                match &mut host.control {
                    Control::Local(children) => ended.extend(children.ended()),
                    Control::Remote(remote) => drop(remote.ended()),
                    Control::Unstarted => {}
                }
            }
            while let Ok(event) = events.try_recv() {
                match event {
                    Event::Signal(SIGCHLD) => again = true,
                    event => self.handle(event),
                }
            }
            for (rank, end) in ended {
                self.rank_exited(rank, end);
            }
        }
    }

    /// Handles a signal to the launcher.
    fn handle_signal(&mut self, signal: i32) {
        if signal == SIGQUIT {
            return self.ask_for_reports(Reason::Asked);
        }
        if !signals::is_terminating(signal) {
            return self.signal_all(signal);
        }
        match self.phase {
            Phase::Running => {
                // Ranks that run say by their own status whether the signal has disturbed them. A job that has not begun did not end
                // well.
                if self.terminate(signal) {
                    self.fail(128 + signal as u8, &format!("{} before any rank had started", signals::name(signal)));
                }
            }
            Phase::Terminating { .. } => self.kill_all(&format!("{} again", signals::name(signal))),
            Phase::Killing { .. } => {}
        }
    }

    fn handle_server(&mut self, event: server::Event) {
        match event {
            server::Event::Joined { rank } => {
                self.disconnected.remove(&rank);
                let rank = &mut self.ranks[rank as usize];
                (rank.joined, rank.finished, rank.connected) = (true, false, true);
            }
            server::Event::Finished { rank } => self.ranks[rank as usize].finished = true,
            server::Event::Disconnected { rank, .. } => {
                let of = &mut self.ranks[rank as usize];
                of.connected = false;
                // An event of a restarted rank that has not joined yet belongs to its previous process.
                if of.joined && !of.finished && !of.ended {
                    self.disconnected.insert(rank, Instant::now() + DISCONNECTED_LIMIT);
                }
            }
            server::Event::Aborted { rank, code, message } => {
                let status = if code & 0xff == 0 { 1 } else { (code & 0xff) as u8 };
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                let why = format!("{} aborted the job with code {code}{message}", self.describe(rank));
                self.ranks[rank as usize].aborted = true;
                let brief = format!("code {code}");
                self.rank_failed(Failure { rank, status, what: why, brief, kind: Kind::Aborted, at: Instant::now() });
            }
            server::Event::LostPeer { rank, peer } => self.failures.note_lost(rank, peer),
            server::Event::Failing { rank, panic, text } => {
                self.failures.note_text(rank, panic, &text);
                self.failing.entry(rank).or_insert(Instant::now() + FAILING_LIMIT);
            }
            server::Event::Reported { rank, question, report } => {
                if let Some(reason) = self.reports.take(rank, question, *report) {
                    self.ask_for_reports(reason);
                }
            }
            server::Event::Unmatched { unmatched, policy, .. } => self.reports.add_unmatched(unmatched, policy),
            server::Event::Warned { rank, text } => {
                // The text may contain anything.
                let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
                self.log.print(format!("warning: {}: {text}", self.describe(rank)));
            }
            server::Event::Refused { from, why } => {
                self.refused += 1;
                if self.refused <= REFUSED_LOGGED_MAX {
                    self.log.print(format!("refused a connection from {from}: {why}"));
                }
            }
        }
    }

    fn handle_remote(&mut self, host: usize, event: RemoteEvent) {
        let name = self.hosts[host].name.clone();
        match event {
            RemoteEvent::StartupText(text) => {
                self.log.print(format!("{name} says: {}", String::from_utf8_lossy(&text).trim_end()))
            }
            RemoteEvent::Closed => self.host_closed(host),
            RemoteEvent::Report(Report::Ready) => {
                let order = self.start_order(host);
                if let Control::Remote(remote) = &mut self.hosts[host].control {
                    remote.ready_until = None;
                    remote.order(&order);
                    self.feeder.iter().for_each(|feeder| feeder.ready(host));
                }
            }
            RemoteEvent::Report(Report::Started { rank, pid }) if self.runs_on(rank, host) => {
                self.ranks[rank as usize].pid = Some(pid);
            }
            RemoteEvent::Report(Report::Ended { rank, end }) if self.runs_on(rank, host) => self.rank_exited(rank, end),
            RemoteEvent::Report(Report::NotStarted { rank, why, code }) => {
                self.fail(code, &format!("rank {rank} on {name}: {why}"));
            }
            RemoteEvent::Report(Report::InputTaken(count)) => {
                self.feeder.iter().for_each(|feeder| feeder.taken(host, count));
            }
            RemoteEvent::Report(Report::Failed { why }) => self.fail(1, &format!("host {name}: {why}")),
            // `Done` is followed by the end of the stream. Other reports name ranks that do not run on that host.
            RemoteEvent::Report(_) => {}
        }
    }

    fn runs_on(&self, rank: u32, host: usize) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.host == host)
    }

    /// An agent's stream has ended. Its ranks count as ended, since nothing more can be known of them.
    fn host_closed(&mut self, host: usize) {
        let Control::Remote(mut remote) = std::mem::replace(&mut self.hosts[host].control, Control::Unstarted) else {
            return;
        };
        self.feeder.iter().for_each(|feeder| feeder.leave(host));
        let ranks = self.hosts[host].ranks.clone();
        let lost: Vec<_> = ranks.iter().copied().filter(|rank| !self.ranks[*rank as usize].ended).collect();
        if !lost.is_empty() && self.phase == Phase::Running {
            let ended =
                remote.ended().map_or_else(|| "closed its output".into(), |status| format!("ended with {status}"));
            let name = &self.hosts[host].name;
            let shell = self.launch.shell.join(" ");
            self.fail(1, &format!("host {name} is lost, and rank {} with it: `{shell}` {ended}", lost[0]));
        }
        remote.kill();
        for rank in ranks {
            self.set_ended(rank);
        }
    }

    fn start_order(&self, host: usize) -> Order {
        let tcp = self.server.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => address.parse::<SocketAddr>().ok(),
            _ => None,
        });
        let bytes = OsString::into_vec;
        Order::Start(Box::new(message::Start {
            job: self.environment.job,
            key: *self.environment.key.bytes(),
            size: self.environment.size,
            ranks: self.hosts[host].ranks.clone(),
            restarts: self.launch.restarts != 0,
            host: self.hosts[host].name.clone(),
            roots: self.launch.address.clone().map_or_else(own_addresses, |address| vec![address]),
            port: tcp.map_or(0, |address| address.port()),
            transports: self.launch.transports.clone(),
            links: self.launch.links,
            input: self.readers_on(host),
            mapping: self.launch.mapping,
            binding: self.launch.binding,
            program: bytes(self.launch.program.clone()),
            args: self.launch.args.iter().cloned().map(bytes).collect(),
            directory: std::env::current_dir().map(|path| bytes(path.into())).unwrap_or_else(|_| b"/".to_vec()),
            variables: self.launch.variables.iter().cloned().map(|(k, v)| (bytes(k), bytes(v))).collect(),
        }))
    }

    fn rank_exited(&mut self, number: u32, end: End) {
        let rank = &self.ranks[number as usize];
        if rank.ended {
            return;
        }
        let named = self.describe(number);
        let kind = if matches!(end, End::Killed(signal) if signal != SIGPIPE) { Kind::Killed } else { Kind::Ended };
        let (status, mut what, brief) = match end {
            End::Exit(0) if rank.joined && !rank.finished => (
                1,
                format!(
                    "{named} exited with status 0 without calling `finish` or dropping its world, so messages that it has sent \
                     may be lost"
                ),
                "no `finish`".into(),
            ),
            End::Exit(0) => return self.set_ended(number),
            End::Exit(code) => {
                ((code & 0xff) as u8, format!("{named} exited with status {code}"), format!("status {code}"))
            }
            End::Killed(signal) => {
                let status = 128u8.saturating_add(signal.clamp(0, 127) as u8);
                let name = signals::name(signal);
                (status, format!("{named} was killed by signal {signal} ({name})"), name)
            }
        };
        if self.phase == Phase::Running && !rank.finished && self.launch.restarts != 0 && !self.failures.holds_abort() {
            let most = self.launch.restarts;
            if rank.restarts < most {
                return self.restart(number, &what);
            }
            let times = if most == 1 { "once".into() } else { format!("{most} times") };
            what = format!("{what}; it was restarted {times}, which is the limit");
        }
        self.rank_failed(Failure { rank: number, status, what, brief, kind, at: Instant::now() });
        self.set_ended(number);
    }

    /// Handles a failed rank. While the job runs, the failure is held until its cause is known.
    fn rank_failed(&mut self, failure: Failure) {
        match self.phase {
            Phase::Running => self.failures.hold(failure),
            _ if self.status.is_none() => {
                self.fail(failure.status, &failure.what);
            }
            // The launcher has ended it.
            _ if matches!(failure.status, SIGTERM_STATUS | SIGKILL_STATUS) => {}
            _ => self.failures.add_late(failure),
        }
    }

    /// Reports the failures that are held, if their cause is known: the job fails with them, unless the other ranks are to go
    /// on.
    fn report_failures(&mut self) {
        if !self.failures.holds_any() {
            return;
        }
        let mut failures = std::mem::take(&mut self.failures);
        let taken = failures.take(Instant::now(), |rank| self.state(rank), self.ranks.len() as u32);
        self.failures = failures;
        let Some(taken) = taken else { return };
        let Some(cause) = taken.first() else { return };
        let aborts = taken.iter().any(|failure| failure.kind == Kind::Aborted);
        if self.launch.keep_going && !aborts && self.phase == Phase::Running {
            self.failed.get_or_insert(cause.status);
            for failure in &taken {
                self.log.print(format!("{}; the other ranks go on", self.failures.describe(failure)));
            }
            return;
        }
        let why = self.failures.describe(cause);
        self.failures.list(&taken[1..]);
        self.fail(cause.status, &why);
    }

    /// Restarts a rank that has failed.
    fn restart(&mut self, number: u32, why: &str) {
        let rank = &mut self.ranks[number as usize];
        rank.restarts += 1;
        (rank.pid, rank.joined) = (None, false);
        let (host, time) = (rank.host, rank.restarts);
        self.disconnected.remove(&number);
        self.failing.remove(&number);
        self.failures.forget(number);
        self.log.print(format!("{why}; restarting it ({time} of at most {})", self.launch.restarts));
        // This must precede the start, so that the server has it before the new process joins.
        self.server.rank_restarts(number);
        match &mut self.hosts[host].control {
            Control::Local(children) => match children.restart(number) {
                Ok(pid) => self.ranks[number as usize].pid = Some(pid),
                Err((why, status)) => {
                    let name = self.hosts[host].name.clone();
                    self.fail(status, &format!("rank {number} on {name}: {why}"));
                    self.set_ended(number);
                }
            },
            Control::Remote(remote) => remote.order(&Order::Restart(number)),
            Control::Unstarted => self.set_ended(number),
        }
    }

    fn set_ended(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.ranks[rank as usize].ended, true) {
            self.remaining -= 1;
            self.disconnected.remove(&rank);
            self.failing.remove(&rank);
            self.server.rank_ended(rank);
        }
    }

    fn describe(&self, number: u32) -> String {
        let rank = &self.ranks[number as usize];
        let pid = rank.pid.map_or_else(String::new, |pid| format!("pid {pid} "));
        format!("rank {number} ({pid}on {})", self.hosts[rank.host].name)
    }

    /// Handles a failure of the job. The first one decides the exit status and ends all ranks.
    fn fail(&mut self, status: u8, why: &str) {
        if self.status.is_some() {
            return;
        }
        self.status = Some(status);
        self.failures.give_up_holding();
        if self.phase == Phase::Running {
            self.log.print(format!("{why}; ending the job"));
            self.terminate(SIGTERM);
        } else {
            self.log.print(why);
        }
    }

    /// Begins to end the job: all ranks get the signal, and agents that have no orders yet are closed. Returns whether no rank had been
    /// started.
    fn terminate(&mut self, signal: i32) -> bool {
        self.phase = Phase::Terminating { kill_at: later(self.launch.grace) };
        self.signal_all(signal);
        let none_was_started = self.cancel_unstarted();
        for host in 0..self.hosts.len() {
            if matches!(&self.hosts[host].control, Control::Remote(remote) if remote.ready_until.is_some()) {
                self.host_closed(host);
            }
        }
        none_was_started
    }

    fn signal_all(&mut self, signal: i32) {
        for host in &mut self.hosts {
            match &mut host.control {
                Control::Local(children) => {
                    signals::from_number(signal).into_iter().for_each(|signal| children.signal(signal));
                }
                Control::Remote(remote) => remote.order(&Order::Signal(signal)),
                Control::Unstarted => {}
            }
        }
    }

    fn kill_all(&mut self, why: &str) {
        self.log.print(format!("{why}: killing {}", self.describe_running()));
        self.signal_all(SIGKILL);
        self.phase = Phase::Killing { give_up_at: Instant::now() + KILLED_LIMIT };
    }

    /// Handles deadlines that have passed.
    fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.check_reports(now);
        let late = self.disconnected.iter().find(|(_, at)| **at <= now).map(|(rank, _)| *rank);
        if let Some(rank) = late {
            self.disconnected.remove(&rank);
            let what =
                format!("{} closed its connection without calling `finish`, and still runs", self.describe(rank));
            self.rank_failed(Failure { rank, status: 1, what, brief: "runs on".into(), kind: Kind::Ended, at: now });
        }
        let late = self.failing.iter().find(|(_, at)| **at <= now).map(|(rank, _)| *rank);
        if let Some(rank) = late {
            self.failing.remove(&rank);
            let what = format!("{} has failed, and still runs", self.describe(rank));
            // It has said so itself, so no later message of it changes the cause.
            self.rank_failed(Failure { rank, status: 1, what, brief: "status 1".into(), kind: Kind::Failing, at: now });
        }
        self.report_failures();
        for host in 0..self.hosts.len() {
            let Control::Remote(remote) = &mut self.hosts[host].control else { continue };
            if remote.ready_until.is_some_and(|at| at <= now) {
                remote.ready_until = None;
                let name = self.hosts[host].name.clone();
                let (limit, shell) = (AGENT_LIMIT.as_secs(), self.launch.shell.join(" "));
                self.fail(
                    1,
                    &format!(
                        "host {name}: the agent did not report within {limit} s; check that `{shell} {name}` runs a command \
                         there without asking for a password"
                    ),
                );
                self.host_closed(host);
            }
        }
        match self.phase {
            Phase::Running if self.time_limit.is_some_and(|at| at <= now) => {
                self.stop_waiting.store(true, Ordering::Relaxed);
                self.time_limit = None;
                self.ask_for_reports(Reason::TimeLimit);
                self.check_reports(now);
            }
            Phase::Terminating { kill_at } if kill_at <= now => {
                self.kill_all(&format!("not all ranks ended within {} s", self.launch.grace.as_secs_f64()));
            }
            Phase::Killing { give_up_at } if give_up_at <= now => {
                self.log
                    .print(format!("SIGKILL does not end {}: the processes are left behind", self.describe_running()));
                self.status.get_or_insert(1);
                (0..self.ranks.len() as u32).for_each(|rank| self.set_ended(rank));
            }
            _ => {}
        }
    }

    fn ask_for_reports(&mut self, reason: Reason) {
        if self.phase == Phase::Running {
            self.reports.ask(reason, &self.server, self.launch.report_wait);
        }
    }

    /// The ranks for a report.
    fn reported_ranks(&self) -> impl Iterator<Item = ReportedRank<'_>> {
        (0..).zip(&self.ranks).map(|(rank, of)| {
            let presence = match of {
                of if of.ended => Presence::Ended,
                of if of.finished => Presence::Finished,
                of if of.joined => Presence::Running,
                _ => Presence::NotJoined,
            };
            ReportedRank { rank, pid: of.pid, host: &self.hosts[of.host].name, presence }
        })
    }

    fn check_reports(&mut self, now: Instant) {
        let running = self.reported_ranks().filter(|it| it.presence == Presence::Running).map(|it| it.rank);
        if self.reports.is_due(now, running) {
            self.print_reports();
        }
    }

    /// Prints the open report, if there is one. If the time limit has caused it, the job ends.
    fn print_reports(&mut self) {
        let mut reports = std::mem::take(&mut self.reports);
        let reason = reports.print(self.reported_ranks(), &self.log, self.launch.report_file.as_deref());
        self.reports = reports;
        if reason == Some(Reason::TimeLimit) {
            self.end_by_time_limit();
        }
    }

    /// The time limit has passed, and the ranks had their time to report.
    fn end_by_time_limit(&mut self) {
        let limit = self.launch.time_limit.unwrap_or_default().as_secs_f64();
        let running = self.describe_running();
        self.fail(TIME_LIMIT_STATUS, &format!("the time limit of {limit} s has passed; still running: {running}"));
    }

    fn describe_running(&self) -> String {
        let running = (0..).zip(&self.ranks).filter(|(_, rank)| !rank.ended).map(|(rank, _)| rank);
        let running: Vec<u32> = running.collect();
        let first: Vec<_> = running.iter().take(3).map(|rank| self.describe(*rank)).collect();
        let more = running.len() - first.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{}{more}", first.join(", "))
    }

    /// All ranks have ended. Collects the rest of their output, from this host and from others, and prints it. Waits
    /// for the reader of the output, unless a signal or the time limit has ended the job.
    fn clean_up(mut self, events: &mpsc::Receiver<Event>) {
        let until = Instant::now() + KILLED_LIMIT;
        for host in &mut self.hosts {
            if let Control::Remote(remote) = &mut host.control {
                remote.order(&Order::NoMoreRestarts);
            }
        }
        while self.hosts.iter().any(|host| matches!(host.control, Control::Remote(_))) {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Remote(host, told)) => self.handle_remote(host, told),
                Ok(_) => {}
                Err(_) => (0..self.hosts.len()).for_each(|host| self.host_closed(host)),
            }
        }
        for host in self.hosts {
            if let Control::Local(children) = host.control {
                children.finish();
            }
        }
        if self.refused > REFUSED_LOGGED_MAX {
            self.log.print(format!("refused {} connections in total", self.refused));
        }
        drop(self.log);
    }
}

/// The time `delay` from now, or a time that never comes if there is no such time.
fn later(delay: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(delay).unwrap_or(now + NEVER)
}

/// Addresses at which other hosts may reach this one, likely ones first.
fn own_addresses() -> Vec<String> {
    let mut addresses: Vec<IpAddr> =
        if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|interface| interface.ip()).collect();
    // A link-local address is useless without the name of its interface.
    addresses.retain(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    let mut seen = HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    addresses.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_without_end_is_no_overflow() {
        assert!(later(Duration::MAX) > Instant::now() + NEVER / 2);
        assert!(later(Duration::from_secs(5)) < Instant::now() + NEVER / 2);
    }
}
