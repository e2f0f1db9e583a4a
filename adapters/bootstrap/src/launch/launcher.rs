//! The launcher's main loop: one thread that hears of everything and decides.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGCHLD, SIGKILL, SIGPIPE, SIGTERM};

use super::children::{Children, End, Start};
use super::message::{self, Order, Report};
use super::options::Launch;
use super::output::Sink;
use super::remote::{Remote, Told};
use super::signals;
use super::standard_streams::Voice;
use crate::server::{self, Server};
use crate::{Address, Environment};

/// How long a remote shell may take until its agent reports.
const AGENT_LIMIT: Duration = Duration::from_secs(60);
/// How long a rank may live on after it closed its connection without finishing.
const LEFT_LIMIT: Duration = Duration::from_secs(2);
/// How long an abort is held back for news of a rank that was killed, which may be why others abort.
const ABORT_DELAY: Duration = Duration::from_millis(50);
/// How long ranks may take to vanish after SIGKILL, and agents to send the rest after their ranks have ended.
const KILLED_LIMIT: Duration = Duration::from_secs(5);
/// The exit status after the time limit, as of timeout(1).
const TIME_LIMIT_STATUS: u8 = 124;
/// Strangers who are reported one by one.
const STRANGERS_MAX: u32 = 10;

pub(super) enum Event {
    Signal(i32),
    Server(server::Event),
    Remote(usize, Told),
    /// Nobody reads the output any more.
    OutputBroken,
}

/// What a rank has come to.
#[derive(Default)]
pub(super) struct Rank {
    pub(super) host: usize,
    pub(super) pid: Option<u32>,
    pub(super) over: bool,
    pub(super) joined: bool,
    pub(super) finished: bool,
    pub(super) aborted: bool,
    /// How often it was started again.
    pub(super) restarts: u32,
}

/// A host, and the hands that the launcher has there.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) ranks: Vec<u32>,
    pub(super) hands: Hands,
}

pub(super) enum Hands {
    Here(Box<Children>),
    There(Remote),
    /// There are none yet, or no more.
    Nowhere,
}

/// How far the end is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Terminating { kill_at: Instant },
    Killing { give_up_at: Instant },
}

/// A rank has ended the job.
pub(super) struct Abort {
    pub(super) status: u8,
    pub(super) why: String,
    /// When it ends the job, unless a rank may turn out to have been killed; and when it does so in any case.
    pub(super) at: [Instant; 2],
}

pub(super) struct Conductor {
    pub(super) launch: Launch,
    pub(super) ranks: Vec<Rank>,
    /// Those that are not over.
    pub(super) left: usize,
    /// Those that closed their connection, and when they count as failed.
    pub(super) silent: BTreeMap<u32, Instant>,
    /// The first abort, until it ends the job.
    pub(super) abort: Option<Abort>,
    pub(super) places: Vec<Place>,
    /// The place whose ranks are being started: those before have been.
    pub(super) starting: usize,
    pub(super) server: Server,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) voice: Voice,
    pub(super) tell: mpsc::Sender<Event>,
    pub(super) environment: Environment,
    pub(super) phase: Phase,
    /// The exit status, where it is not 0.
    pub(super) status: Option<u8>,
    /// That of the first rank that failed while the others went on.
    pub(super) failed: Option<u8>,
    pub(super) time_limit: Option<Instant>,
    pub(super) strangers: u32,
    /// A signal or the time limit ends the job: whoever reads its output is not waited for.
    pub(super) hurry: Arc<AtomicBool>,
}

impl Conductor {
    pub(super) fn run(mut self, events: &mpsc::Receiver<Event>, is_here: impl Fn(&str) -> bool) -> u8 {
        while self.left > 0 {
            // What happens is heard between one start and the next.
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
                Some(event) => self.hear(event),
                None => {}
            }
            self.late();
        }
        self.end_by_abort();
        let status = self.failed.or(self.status).unwrap_or(0);
        self.clean_up(events);
        status
    }

    /// Starts one rank more, or the agent of one host more; false where there is nothing to start.
    fn start_next(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        if self.phase != Phase::Running {
            return false;
        }
        let index = self.starting;
        let Some(place) = self.places.get_mut(index) else { return false };
        match &mut place.hands {
            Hands::Here(children) => match children.start_next() {
                Some((rank, Ok(pid))) => self.ranks[rank as usize].pid = Some(pid),
                Some((rank, Err((why, status)))) => {
                    let name = place.name.clone();
                    self.fail(status, &format!("rank {rank} on {name}: {why}"));
                    self.over(rank);
                }
                None => self.starting += 1,
            },
            _ if is_here(&place.name) => self.begin_here(index),
            _ => {
                self.start_there(index);
                self.starting += 1;
            }
        }
        true
    }

    fn begin_here(&mut self, index: usize) {
        let local = self.server.addresses().iter().filter(|address| matches!(address, Address::Abstract(_)));
        let place = &self.places[index];
        let start = Start {
            program: self.launch.program.clone(),
            args: self.launch.args.clone(),
            directory: None,
            variables: self.launch.variables.clone(),
            environment: Environment {
                root: local.cloned().collect(),
                host: place.name.clone(),
                local: Some(place.ranks.clone()),
                ..self.environment.clone()
            },
            ranks: place.ranks.clone(),
            stdin: true,
        };
        match Children::new(start, Arc::clone(&self.sink)) {
            Ok(children) => self.places[index].hands = Hands::Here(Box::new(children)),
            Err(why) => self.fail(1, &format!("cannot read what ranks print: {why}")),
        }
    }

    fn start_there(&mut self, place: usize) {
        let tell = self.tell.clone();
        let remote = Remote::start(
            &self.launch.shell,
            (&self.places[place].name, self.places[place].ranks.clone()),
            &self.launch.agent,
            Instant::now() + AGENT_LIMIT,
            Arc::clone(&self.sink),
            move |told| drop(tell.send(Event::Remote(place, told))),
        );
        match remote {
            Ok(remote) => self.places[place].hands = Hands::There(remote),
            Err(why) => {
                let shell = self.launch.shell.join(" ");
                self.fail(1, &format!("host {}: cannot run `{shell}`: {why}", self.places[place].name));
            }
        }
    }

    /// Ranks that are yet to be started are over, for the job ends before.
    fn start_no_more(&mut self) {
        let mut unstarted = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            match &mut place.hands {
                Hands::Here(children) => unstarted.extend(children.start_no_more()),
                Hands::Nowhere if index >= self.starting => unstarted.extend(&place.ranks),
                Hands::There(_) | Hands::Nowhere => {}
            }
        }
        // Whoever waits for all of them waits for the first.
        unstarted.first().into_iter().for_each(|rank| self.server.gone(*rank));
        for rank in unstarted {
            self.left -= usize::from(!std::mem::replace(&mut self.ranks[rank as usize].over, true));
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => self.time_limit,
            Phase::Terminating { kill_at } => Some(kill_at),
            Phase::Killing { give_up_at } => Some(give_up_at),
        };
        let agents = self.places.iter().filter_map(|place| match &place.hands {
            Hands::There(remote) => remote.ready_until,
            _ => None,
        });
        phase.into_iter().chain(agents).chain(self.silent.values().copied()).chain(self.abort_at()).min()
    }

    /// When an abort that is held back ends the job.
    fn abort_at(&self) -> Option<Instant> {
        self.abort.as_ref().map(|abort| abort.at[usize::from(self.may_be_effect())])
    }

    /// Whether it may turn out that a rank has aborted because another was killed: a process that is being killed closes its
    /// connections first, to ranks as well as to the launcher, and only then has it ended.
    fn may_be_effect(&self) -> bool {
        self.silent.keys().any(|rank| !self.ranks[*rank as usize].aborted)
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Signal(signal) => self.passed(signal),
            Event::Server(event) => self.served(event),
            Event::Remote(place, told) => self.told(place, told),
            Event::OutputBroken if self.phase == Phase::Running => {
                self.fail(141, "nobody reads the output any more");
            }
            Event::OutputBroken => {}
        }
    }

    /// Looks which ranks have ended. What they said before they ended is in the queue by then, and is heard first: a
    /// rank that has finished its part must not count as one that has not.
    fn reap(&mut self, events: &mpsc::Receiver<Event>) {
        let mut again = true;
        while std::mem::take(&mut again) {
            let mut ended = Vec::new();
            for place in &mut self.places {
                match &mut place.hands {
                    Hands::Here(children) => ended.extend(children.ended()),
                    Hands::There(remote) => drop(remote.ended()),
                    Hands::Nowhere => {}
                }
            }
            while let Ok(event) = events.try_recv() {
                match event {
                    Event::Signal(SIGCHLD) => again = true,
                    event => self.hear(event),
                }
            }
            for (rank, end) in ended {
                self.ended(rank, end);
            }
        }
    }

    /// A signal came from outside.
    fn passed(&mut self, signal: i32) {
        if !signals::ends(signal) {
            return self.signal_all(signal);
        }
        match self.phase {
            Phase::Running => {
                self.terminate(signal);
            }
            Phase::Terminating { .. } => self.kill_all(&format!("{} again", signals::name(signal))),
            Phase::Killing { .. } => {}
        }
    }

    fn served(&mut self, event: server::Event) {
        match event {
            server::Event::Joined { rank } => {
                self.silent.remove(&rank);
                let rank = &mut self.ranks[rank as usize];
                (rank.joined, rank.finished) = (true, false);
            }
            server::Event::Finished { rank } => self.ranks[rank as usize].finished = true,
            server::Event::Left { rank, .. } => {
                let of = &self.ranks[rank as usize];
                // What is heard of one that was started again before it has joined is of its last life.
                if of.joined && !of.finished && !of.over {
                    self.silent.insert(rank, Instant::now() + LEFT_LIMIT);
                }
            }
            server::Event::Aborted { rank, code, message } => {
                let status = if code & 0xff == 0 { 1 } else { (code & 0xff) as u8 };
                let message = if message.is_empty() { String::new() } else { format!(": {message}") };
                let why = format!("{} aborted the job with code {code}{message}", self.named(rank));
                let at = [ABORT_DELAY, LEFT_LIMIT].map(|delay| Instant::now() + delay);
                self.ranks[rank as usize].aborted = true;
                self.abort.get_or_insert(Abort { status, why, at });
            }
            server::Event::Refused { from, why } => {
                self.strangers += 1;
                if self.strangers <= STRANGERS_MAX {
                    self.voice.say(format!("refused a connection from {from}: {why}"));
                }
            }
        }
    }

    fn told(&mut self, place: usize, told: Told) {
        let name = self.places[place].name.clone();
        match told {
            Told::Noise(noise) => {
                self.voice.say(format!("{name} says: {}", String::from_utf8_lossy(&noise).trim_end()))
            }
            Told::Closed => self.closed(place),
            Told::Report(Report::Ready) => {
                let order = self.order(place);
                if let Hands::There(remote) = &mut self.places[place].hands {
                    remote.ready_until = None;
                    remote.order(&order);
                }
            }
            Told::Report(Report::Started { rank, pid }) if self.is_at(rank, place) => {
                self.ranks[rank as usize].pid = Some(pid);
            }
            Told::Report(Report::Ended { rank, end }) if self.is_at(rank, place) => self.ended(rank, end),
            Told::Report(Report::NotStarted { rank, why, code }) => {
                self.fail(code, &format!("rank {rank} on {name}: {why}"));
            }
            Told::Report(Report::Failed { why }) => self.fail(1, &format!("host {name}: {why}")),
            // What follows is the end of the stream. Other reports name ranks that are not there.
            Told::Report(_) => {}
        }
    }

    fn is_at(&self, rank: u32, place: usize) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.host == place)
    }

    /// An agent's stream has ended: so have its ranks, as far as can be known.
    fn closed(&mut self, place: usize) {
        let Hands::There(mut remote) = std::mem::replace(&mut self.places[place].hands, Hands::Nowhere) else { return };
        let ranks = self.places[place].ranks.clone();
        let lost: Vec<_> = ranks.iter().copied().filter(|rank| !self.ranks[*rank as usize].over).collect();
        if !lost.is_empty() && self.phase == Phase::Running {
            let ended =
                remote.ended().map_or_else(|| "closed its output".into(), |status| format!("ended with {status}"));
            let name = &self.places[place].name;
            let shell = self.launch.shell.join(" ");
            self.fail(1, &format!("host {name} is lost with rank {}: `{shell}` {ended}", lost[0]));
        }
        remote.kill();
        for rank in ranks {
            self.over(rank);
        }
    }

    fn order(&self, place: usize) -> Order {
        let tcp = self.server.addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => address.parse::<SocketAddr>().ok(),
            _ => None,
        });
        let bytes = OsString::into_vec;
        Order::Start(Box::new(message::Start {
            job: self.environment.job,
            key: *self.environment.key.bytes(),
            size: self.environment.size,
            ranks: self.places[place].ranks.clone(),
            restarts: self.launch.restarts != 0,
            host: self.places[place].name.clone(),
            roots: self.launch.address.clone().map_or_else(own_addresses, |address| vec![address]),
            port: tcp.map_or(0, |address| address.port()),
            transports: self.launch.transports.clone(),
            links: self.launch.links,
            program: bytes(self.launch.program.clone()),
            args: self.launch.args.iter().cloned().map(bytes).collect(),
            directory: std::env::current_dir().map(|path| bytes(path.into())).unwrap_or_else(|_| b"/".to_vec()),
            variables: self.launch.variables.iter().cloned().map(|(k, v)| (bytes(k), bytes(v))).collect(),
        }))
    }

    fn ended(&mut self, number: u32, end: End) {
        let rank = &self.ranks[number as usize];
        if rank.over {
            return;
        }
        if self.abort.is_some() && (rank.aborted || !matches!(end, End::Killed(signal) if signal != SIGPIPE)) {
            return self.over(number); // ends with the job, or for want of the rank that has aborted
        }
        let named = self.named(number);
        let (status, mut why) = match end {
            End::Exit(0) if rank.joined && !rank.finished => {
                (1, format!("{named} exited with status 0 before it finished its part in the job"))
            }
            End::Exit(0) => return self.over(number),
            End::Exit(code) => ((code & 0xff) as u8, format!("{named} exited with status {code}")),
            End::Killed(signal) => {
                let status = 128u8.saturating_add(signal.clamp(0, 127) as u8);
                (status, format!("{named} was killed by signal {signal} ({})", signals::name(signal)))
            }
        };
        if self.phase == Phase::Running && !rank.finished && self.launch.restarts != 0 && self.abort.is_none() {
            let most = self.launch.restarts;
            if rank.restarts < most {
                return self.start_again(number, &why);
            }
            let times = if most == 1 { "once".into() } else { format!("{most} times") };
            why = format!("{why}; it was started again {times}, as often as is allowed");
        }
        self.rank_failed(status, &why);
        self.over(number);
    }

    /// An abort that was held back ends the job.
    fn end_by_abort(&mut self) {
        if let Some(Abort { status, why, .. }) = self.abort.take() {
            self.fail(status, &why);
        }
    }

    /// A rank that has failed gets another process.
    fn start_again(&mut self, number: u32, why: &str) {
        let rank = &mut self.ranks[number as usize];
        rank.restarts += 1;
        (rank.pid, rank.joined) = (None, false);
        let (place, time) = (rank.host, rank.restarts);
        self.silent.remove(&number);
        self.voice.say(format!("{why}; starting it again, {time} of at most {} times", self.launch.restarts));
        // Before it can join.
        self.server.restarts(number);
        match &mut self.places[place].hands {
            Hands::Here(children) => match children.start_again(number) {
                Ok(pid) => self.ranks[number as usize].pid = Some(pid),
                Err((why, status)) => {
                    let name = self.places[place].name.clone();
                    self.fail(status, &format!("rank {number} on {name}: {why}"));
                    self.over(number);
                }
            },
            Hands::There(remote) => remote.order(&Order::Again(number)),
            Hands::Nowhere => self.over(number),
        }
    }

    fn over(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.ranks[rank as usize].over, true) {
            self.left -= 1;
            self.silent.remove(&rank);
            self.server.gone(rank);
        }
    }

    fn named(&self, number: u32) -> String {
        let rank = &self.ranks[number as usize];
        let pid = rank.pid.map_or_else(String::new, |pid| format!("pid {pid} "));
        format!("rank {number} ({pid}on {})", self.places[rank.host].name)
    }

    /// A rank has failed, and the job with it, unless the others are to go on.
    fn rank_failed(&mut self, status: u8, why: &str) {
        if !self.launch.keep_going || self.phase != Phase::Running || self.abort.is_some() {
            return self.fail(status, why);
        }
        self.failed.get_or_insert(status);
        self.voice.say(format!("{why}; the others go on"));
    }

    /// The job has failed: the first time, this is reported, decides the exit status, and ends all ranks.
    fn fail(&mut self, status: u8, why: &str) {
        if self.status.is_some() {
            return;
        }
        self.status = Some(status);
        if self.phase == Phase::Running {
            self.voice.say(format!("{why}; ending the job"));
            self.terminate(SIGTERM);
        } else {
            self.voice.say(why);
        }
    }

    /// Begins the end: ranks get the signal, and agents that have none yet are let go.
    fn terminate(&mut self, signal: i32) {
        self.phase = Phase::Terminating { kill_at: Instant::now() + self.launch.grace };
        self.signal_all(signal);
        self.start_no_more();
        for place in 0..self.places.len() {
            if matches!(&self.places[place].hands, Hands::There(remote) if remote.ready_until.is_some()) {
                self.closed(place);
            }
        }
    }

    fn signal_all(&mut self, signal: i32) {
        for place in &mut self.places {
            match &mut place.hands {
                Hands::Here(children) => {
                    signals::named(signal).into_iter().for_each(|signal| children.signal(signal));
                }
                Hands::There(remote) => remote.order(&Order::Signal(signal)),
                Hands::Nowhere => {}
            }
        }
    }

    fn kill_all(&mut self, why: &str) {
        self.voice.say(format!("{why}: killing {}", self.running()));
        self.signal_all(SIGKILL);
        self.phase = Phase::Killing { give_up_at: Instant::now() + KILLED_LIMIT };
    }

    /// A deadline may have passed.
    fn late(&mut self) {
        let now = Instant::now();
        if self.abort_at().is_some_and(|at| at <= now) {
            self.end_by_abort();
        }
        let silent = self.silent.iter().find(|(_, at)| **at <= now).map(|(rank, _)| *rank);
        if let Some(rank) = silent {
            self.silent.remove(&rank);
            let named = self.named(rank);
            self.rank_failed(1, &format!("{named} closed its connection before it finished its part in the job"));
        }
        for place in 0..self.places.len() {
            let Hands::There(remote) = &mut self.places[place].hands else { continue };
            if remote.ready_until.is_some_and(|at| at <= now) {
                remote.ready_until = None;
                let name = self.places[place].name.clone();
                self.fail(1, &format!("host {name}: no agent reported within {} s", AGENT_LIMIT.as_secs()));
                self.closed(place);
            }
        }
        match self.phase {
            Phase::Running if self.time_limit.is_some_and(|at| at <= now) => {
                self.hurry.store(true, Ordering::Relaxed);
                let limit = self.launch.time_limit.unwrap_or_default().as_secs_f64();
                self.fail(
                    TIME_LIMIT_STATUS,
                    &format!("the time limit of {limit} s has passed; {} ran", self.running()),
                );
            }
            Phase::Terminating { kill_at } if kill_at <= now => {
                self.kill_all(&format!("not ended within {} s", self.launch.grace.as_secs_f64()));
            }
            Phase::Killing { give_up_at } if give_up_at <= now => {
                self.voice.say(format!("even SIGKILL does not end {}: leaving them behind", self.running()));
                self.status.get_or_insert(1);
                (0..self.ranks.len() as u32).for_each(|rank| self.over(rank));
            }
            _ => {}
        }
    }

    fn running(&self) -> String {
        let running = (0..).zip(&self.ranks).filter(|(_, rank)| !rank.over).map(|(rank, _)| rank);
        let running: Vec<u32> = running.collect();
        let first: Vec<_> = running.iter().take(3).map(|rank| self.named(*rank)).collect();
        let more = running.len() - first.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{}{more}", first.join(", "))
    }

    /// All ranks are over: takes the rest of their output, here and from other hosts, and sees that it is printed. Whoever
    /// reads it is waited for, unless a signal or the time limit ends the job.
    fn clean_up(mut self, events: &mpsc::Receiver<Event>) {
        let until = Instant::now() + KILLED_LIMIT;
        for place in &mut self.places {
            if let Hands::There(remote) = &mut place.hands {
                remote.order(&Order::NoneAgain);
            }
        }
        while self.places.iter().any(|place| matches!(place.hands, Hands::There(_))) {
            match events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Remote(place, told)) => self.told(place, told),
                Ok(_) => {}
                Err(_) => (0..self.places.len()).for_each(|place| self.closed(place)),
            }
        }
        for place in self.places {
            if let Hands::Here(children) = place.hands {
                children.finish();
            }
        }
        if self.strangers > STRANGERS_MAX {
            self.voice.say(format!("refused {} connections in all", self.strangers));
        }
        self.voice.finish();
    }
}

/// Addresses at which this host may be reached from others, likely ones first.
fn own_addresses() -> Vec<String> {
    let mut addresses: Vec<IpAddr> =
        if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|interface| interface.ip()).collect();
    // An address of one link alone says nothing without the link's name.
    addresses.retain(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    let mut seen = HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    addresses.iter().map(ToString::to_string).collect()
}
