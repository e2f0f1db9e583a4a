//! Prepares a job: checks what was asked for, places ranks on hosts, and starts the server and the launcher's threads.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use super::error::LaunchError;
use super::hosts::{self, Host};
use super::launcher::{Conductor, Event, Hands, Phase, Place, Rank};
use super::options::Launch;
use super::output::Printer;
use super::standard_streams::{Patient, Voice};
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
    // Two pipes for each rank on this host, a connection for each rank, two pipes for each other host.
    let mine: usize = placed.iter().filter(|(name, _)| is_here(name)).map(|(_, ranks)| ranks.len()).sum();
    let files = (mine + placed.len()) as u64 * 2 + u64::from(launch.size);
    files::make_room(files, launch.size as usize)?;

    let (tell, events) = mpsc::channel();
    let of_signals = tell.clone();
    let hurry = Arc::new(AtomicBool::new(false));
    let hurried = Arc::clone(&hurry);
    let watched = signals::watch(move |signal| {
        // At once: whoever is to hear of the signal may be waiting for the reader.
        hurried.fetch_or(signals::ends(signal), Ordering::Relaxed);
        drop(of_signals.send(Event::Signal(signal)));
    });
    watched.map_err(|source| LaunchError::System { what: "watch signals", source })?;

    let mut environment = Environment { size: launch.size, ..Environment::singleton() };
    (environment.transports, environment.links) = (launch.transports.clone(), launch.links);
    let remote = placed.iter().any(|(name, _)| !is_here(name));
    let server = start_server(&environment, remote, tell.clone());
    let server = server.map_err(|source| LaunchError::System { what: "listen for ranks", source })?;

    let broken = tell.clone();
    let out = Patient::new(io::stdout(), Arc::clone(&hurry));
    let [err, own] = [(); 2].map(|()| Patient::new(io::stderr(), Arc::clone(&hurry)));
    let printer = Printer::new(launch.prefix, out, err, move || {
        // The conductor has ended where nobody hears it, and needs no telling.
        let _ = broken.send(Event::OutputBroken);
    });
    let mut ranks: Vec<_> = (0..launch.size).map(|_| Rank::default()).collect();
    for (index, (_, on_host)) in placed.iter().enumerate() {
        on_host.iter().for_each(|rank| ranks[*rank as usize].host = index);
    }
    let places = placed.into_iter().map(|(name, ranks)| Place { name, ranks, hands: Hands::Nowhere });
    let conductor = Conductor {
        left: ranks.len(),
        silent: BTreeMap::new(),
        abort: None,
        starting: 0,
        time_limit: launch.time_limit.and_then(|limit| Instant::now().checked_add(limit)),
        launch,
        ranks,
        places: places.collect(),
        server,
        sink: Arc::new(printer),
        voice: Voice::start(own).map_err(|source| LaunchError::System { what: "start a thread", source })?,
        tell,
        environment,
        phase: Phase::Running,
        status: None,
        failed: None,
        strangers: 0,
        hurry,
    };
    Ok(conductor.run(&events, is_here))
}

fn start_server(environment: &Environment, remote: bool, tell: mpsc::Sender<Event>) -> io::Result<Server> {
    let start = |listen: Option<IpAddr>| {
        let config = Config {
            size: environment.size,
            job: environment.job,
            key: environment.key.clone(),
            name: Some(format!("towline-{:016x}", environment.job)),
            listen: listen.map(|address| SocketAddr::new(address, 0)),
            left_is_gone: false,
        };
        let tell = tell.clone();
        Server::start(config, move |event| drop(tell.send(Event::Server(event))))
    };
    if !remote {
        return start(None);
    }
    // Hosts without IPv6 have no such address.
    start(Some(Ipv6Addr::UNSPECIFIED.into())).or_else(|_| start(Some(Ipv4Addr::UNSPECIFIED.into())))
}

impl Launch {
    /// Runs the job to its end; gives the exit status for the launcher. Reports what went wrong in the job on standard
    /// error. Watches this process's signals; to be called once, from the main thread.
    ///
    /// # Errors
    /// [`LaunchError`] where the job could not even begin.
    pub fn run(self) -> Result<u8, LaunchError> {
        run(self)
    }
}
