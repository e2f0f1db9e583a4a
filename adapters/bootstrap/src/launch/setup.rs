//! Prepares a job: checks the options, places the ranks on hosts, and starts the server and the launcher's threads.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use super::error::LaunchError;
use super::failures::Failures;
use super::hosts::{self, Host};
use super::launcher::{Control, Event, JobHost, Launcher, Phase, Rank};
use super::options::Launch;
use super::output::Printer;
use super::reports::Reports;
use super::standard_streams::{Log, TimeoutWriter};
use super::{files, signals};
use crate::environment::host_name;
use crate::server::{Config, Server};
use crate::{Environment, RANKS_MAX};

/// Runs a job to its end.
fn run(launch: Launch) -> Result<u8, LaunchError> {
    if launch.size == 0 {
        return Err(LaunchError::NoRanks);
    }
    if launch.size > RANKS_MAX {
        return Err(LaunchError::TooManyRanks { ranks: launch.size });
    }
    let here = host_name();
    let hosts = if launch.hosts.is_empty() {
        vec![Host { name: here.clone(), slots: launch.size }]
    } else {
        launch.hosts.clone()
    };
    let placed = hosts::place(&hosts, launch.size);
    let placed = placed.map_err(|slots| LaunchError::TooFewSlots { ranks: launch.size, slots })?;
    let is_here = |name: &str| name == here || name == "localhost";
    // Two pipes for each rank on this host, one connection for each rank, and two pipes for each other host.
    let mine: usize = placed.iter().filter(|(name, _)| is_here(name)).map(|(_, ranks)| ranks.len()).sum();
    let files = (mine + placed.len()) as u64 * 2 + u64::from(launch.size);
    files::raise_limit(files, launch.size as usize)?;

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

    let broken = sender.clone();
    let out = TimeoutWriter::new(io::stdout(), Arc::clone(&stop_waiting));
    let [err, own] = [(); 2].map(|()| TimeoutWriter::new(io::stderr(), Arc::clone(&stop_waiting)));
    let printer = Printer::new(launch.prefix, out, err, move || {
        // Fails only if the launcher has ended, and then the event is not needed.
        let _ = broken.send(Event::OutputBroken);
    });
    let mut ranks: Vec<_> = (0..launch.size).map(|_| Rank::default()).collect();
    for (index, (_, on_host)) in placed.iter().enumerate() {
        on_host.iter().for_each(|rank| ranks[*rank as usize].host = index);
    }
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
        sink: Arc::new(printer),
        log: Log::start(own).map_err(|source| LaunchError::System { what: "start a thread", source })?,
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
