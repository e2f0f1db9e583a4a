//! Prepares a job: checks the options, places the ranks on hosts, and starts the server and the launcher's threads.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::cores::Cores;
use super::error::LaunchError;
use super::failures::Failures;
use super::hosts::{self, Host};
use super::input::{Feeder, Origin, Receiver};
use super::launcher::{Control, Event, JobHost, Launcher, Phase, Rank};
use super::options::{Input, Launch};
use super::output::{Printer, Sink, Stream};
use super::output_files::OutputFiles;
use super::reports::Reports;
use super::standard_streams::{Log, streams};
use super::{files, signals};
use crate::environment::host_name;
use crate::server::{Config, Server};
use crate::{Environment, RANKS_MAX};

/// Longest grace time. A clock cannot represent the end of much longer times.
const GRACE_MAX: Duration = Duration::from_secs(1 << 32);

/// Runs a job to its end.
fn run(launch: Launch) -> Result<u8, LaunchError> {
    if launch.size == 0 {
        return Err(LaunchError::NoRanks);
    }
    if launch.size > RANKS_MAX {
        return Err(LaunchError::TooManyRanks { ranks: launch.size });
    }
    let launch = Launch { grace: launch.grace.min(GRACE_MAX), ..launch };
    let here = host_name();
    let hosts = if launch.hosts.is_empty() {
        vec![Host { name: here.clone(), slots: launch.size }]
    } else {
        launch.hosts.clone()
    };
    let placed = hosts::place(&hosts, launch.size, launch.mapping);
    let placed = placed.map_err(|slots| LaunchError::TooFewSlots { ranks: launch.size, slots })?;
    let is_here = hosts::is_this_host;
    // Two pipes for each rank on this host, one connection for each rank, and two pipes for each other host.
    let mine: usize = placed.iter().filter(|(name, _)| is_here(name)).map(|(_, ranks)| ranks.len()).sum();
    // With an input for all ranks there is one more pipe, and with files for the output there are two for each rank.
    let fed = if launch.input == Input::All { mine } else { 0 };
    let written = if launch.folder.is_some() { 2 * u64::from(launch.size) } else { 0 };
    let files = (mine + placed.len()) as u64 * 2 + u64::from(launch.size) + fed as u64 + written;
    files::raise_limit(files, launch.size as usize)?;
    let cores = Cores::of_this_host().assign(mine, launch.mapping, launch.binding);
    cores.map_err(|cores| LaunchError::TooFewCores { ranks: mine, cores })?;
    let readers = readers(&launch)?;

    let (sender, events) = mpsc::channel();
    let of_signals = sender.clone();
    let stop_waiting = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stop_waiting);
    let watched = signals::watch(move |signal| {
        // This is set here at once, since the launcher's thread may itself be waiting for the reader of the output.
        stop.fetch_or(signals::is_terminating(signal), Ordering::Relaxed);
        drop(of_signals.send(Event::Signal(signal)));
    });
    watched.map_err(|source| LaunchError::System { what: "watch signals", source })?;

    let mut environment = Environment { size: launch.size, ..Environment::singleton() };
    (environment.transports, environment.links) = (launch.transports.clone(), launch.links);
    let remote = placed.iter().any(|(name, _)| !is_here(name));
    let server = start_server(&environment, remote, sender.clone());
    let server = server.map_err(|source| LaunchError::System { what: "listen for ranks", source })?;

    let [out, err] = streams(&stop_waiting);
    let sink = sink(&launch, out, err.clone(), &sender)?;
    let mut ranks: Vec<_> = (0..launch.size).map(|_| Rank::default()).collect();
    for (index, (_, on_host)) in placed.iter().enumerate() {
        on_host.iter().for_each(|rank| ranks[*rank as usize].host = index);
    }
    let feeder = feeder(&launch, &readers, &placed, is_here, &sender);
    let feeder = feeder.map_err(|source| LaunchError::System { what: "pass on the standard input", source })?;
    let hosts = placed.into_iter().map(|(name, ranks)| JobHost { name, ranks, control: Control::Unstarted });
    let launcher = Launcher {
        remaining: ranks.len(),
        disconnected: BTreeMap::new(),
        failing: BTreeMap::new(),
        failures: Failures::default(),
        starting: 0,
        time_limit: launch.time_limit.and_then(|limit| Instant::now().checked_add(limit)),
        launch,
        ranks,
        hosts: hosts.collect(),
        server,
        sink,
        readers,
        feeder,
        log: Log::start(err).map_err(|source| LaunchError::System { what: "start a thread", source })?,
        sender,
        environment,
        phase: Phase::Running,
        status: None,
        failed: None,
        refused: 0,
        reports: Reports::default(),
        stop_waiting,
    };
    Ok(launcher.run(&events, is_here))
}

/// The ranks that read the standard input.
fn readers(launch: &Launch) -> Result<Vec<u32>, LaunchError> {
    match launch.input {
        // A terminal would stop the rank if it read, since the rank is not in the terminal's foreground group.
        Input::Standard if io::stdin().is_terminal() => Ok(Vec::new()),
        Input::Standard => Ok(vec![0]),
        Input::None => Ok(Vec::new()),
        Input::Rank(rank) if rank >= launch.size => Err(LaunchError::NoSuchRank { rank, ranks: launch.size }),
        Input::Rank(rank) => Ok(vec![rank]),
        Input::All => Ok((0..launch.size).collect()),
    }
}

/// Starts to distribute the standard input. `None` if no rank reads it, or if one rank on this host can inherit it.
fn feeder(
    launch: &Launch,
    readers: &[u32],
    placed: &[(String, Vec<u32>)],
    is_here: impl Fn(&str) -> bool,
    sender: &mpsc::Sender<Event>,
) -> io::Result<Option<Arc<Feeder>>> {
    let mut receivers = Vec::new();
    for (index, (name, ranks)) in placed.iter().enumerate() {
        let reading = ranks.iter().filter(|rank| readers.contains(rank));
        if is_here(name) {
            receivers.extend(reading.map(|rank| Receiver::Rank(*rank)));
        } else if reading.count() != 0 {
            receivers.push(Receiver::Host(index));
        }
    }
    match receivers[..] {
        [] => return Ok(None),
        [Receiver::Rank(_)] if !io::stdin().is_terminal() => return Ok(None),
        _ => {}
    }
    let from = Origin::File(io::stdin().as_fd().try_clone_to_owned()?);
    let sender = sender.clone();
    let send = move |piece| drop(sender.send(Event::Input(piece)));
    Feeder::start(from, receivers, launch.restarts != 0, send).map(|feeder| Some(Arc::new(feeder)))
}

/// Where the output of ranks goes.
fn sink(launch: &Launch, out: Stream, err: Stream, sender: &mpsc::Sender<Event>) -> Result<Arc<dyn Sink>, LaunchError> {
    // Sending fails only if the launcher has ended, and then the event is not needed.
    let sender = sender.clone();
    if let Some(folder) = &launch.folder {
        let files = OutputFiles::create(folder, launch.size, move |why| drop(sender.send(Event::OutputFailed(why))));
        return Ok(Arc::new(files.map_err(|(path, source)| LaunchError::Output { path, source })?));
    }
    Ok(Arc::new(Printer::new(launch.label, out, err, move || drop(sender.send(Event::OutputBroken)))))
}

fn start_server(environment: &Environment, remote: bool, sender: mpsc::Sender<Event>) -> io::Result<Server> {
    let start = |listen: Option<IpAddr>| {
        let config = Config {
            size: environment.size,
            job: environment.job,
            key: environment.key.clone(),
            name: Some(format!("towline-{:016x}", environment.job)),
            listen: listen.map(|address| SocketAddr::new(address, 0)),
            disconnect_ends_rank: false,
        };
        let sender = sender.clone();
        Server::start(config, move |event| drop(sender.send(Event::Server(event))))
    };
    if !remote {
        return start(None);
    }
    // On hosts without IPv6 the IPv6 address cannot be bound.
    start(Some(Ipv6Addr::UNSPECIFIED.into())).or_else(|_| start(Some(Ipv4Addr::UNSPECIFIED.into())))
}

impl Launch {
    /// Runs the job to its end. Returns the exit status for the launcher. Failures of the job are reported on standard
    /// error. Handles this process's signals, so it must be called once, from the main thread, before other threads
    /// start.
    ///
    /// # Errors
    /// [`LaunchError`] if the job could not be started.
    pub fn run(self) -> Result<u8, LaunchError> {
        run(self)
    }
}
