//! The launcher's agent on another host: `towline run --agent`, which the remote shell starts.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGKILL, SIGQUIT};

use super::children::{Children, RankInput, Start};
use super::cores::Cores;
use super::error::LaunchError;
use super::input::{Feeder, Origin, Receiver};
use super::lines::Source;
use super::message::{self, MARK, Order, Report};
use super::output::Sink;
use super::{files, signals};
use crate::rank::connect;
use crate::{Address, Environment, JobKey};

/// Time in which an address must be found at which the launcher answers.
const REACH_LIMIT: Duration = Duration::from_secs(20);

enum Event {
    Order(Order),
    /// The launcher has ended.
    LauncherGone,
    Signal(i32),
}

/// Runs an agent: takes a launcher's orders over standard input, and reports over standard output, until its ranks have
/// ended. Returns the exit status. Handles this process's signals, so it must be called from the main thread.
pub fn agent() -> u8 {
    match serve() {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("towline agent: {why}");
            1
        }
    }
}

fn serve() -> io::Result<()> {
    let (tell, events) = mpsc::channel();
    let of_signals = tell.clone();
    signals::watch(move |signal| drop(of_signals.send(Event::Signal(signal))))?;
    io::stdout().write_all(MARK)?;
    let reports = Arc::new(Reports { tell: Mutex::new(tell.clone()) });
    reports.send(&Report::Ready);
    std::thread::Builder::new().name("towline-orders".into()).spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(order)) = message::read(&mut stdin) {
            if tell.send(Event::Order(order)).is_err() {
                return;
            }
        }
        let _ = tell.send(Event::LauncherGone);
    })?;
    let start = loop {
        match events.recv().map_err(io::Error::other)? {
            Event::Order(Order::Start(start)) => break start,
            Event::Order(_) | Event::LauncherGone => return Ok(()),
            Event::Signal(signal) if signals::is_terminating(signal) => return Ok(()),
            Event::Signal(_) => {}
        }
    };
    let (mut left, mut awaits_restarts) = (start.ranks.len(), start.restarts);
    let enough_files =
        files::raise_limit(left as u64 * 2 + start.input.len() as u64, left).map_err(|why| why.to_string());
    let start = enough_files.and_then(|()| {
        let feeder = feed(&start, &reports)?;
        prepare(*start, feeder.clone()).map(|start| (start, feeder))
    });
    let (start, feeder) = match start {
        Ok(prepared) => prepared,
        Err(why) => {
            reports.send(&Report::Failed { why });
            return Ok(());
        }
    };
    let mut children = Children::new(start, Arc::clone(&reports) as _)?;
    let mut starting = true;
    while left > 0 || awaits_restarts {
        // Events are handled between two starts.
        let event = match events.try_recv() {
            Ok(event) => event,
            Err(_) if starting => {
                match children.start_next() {
                    Some((rank, Ok(pid))) => reports.send(&Report::Started { rank, pid }),
                    Some((rank, Err((why, code)))) => {
                        reports.send(&Report::NotStarted { rank, why, code });
                        break;
                    }
                    None => starting = false,
                }
                continue;
            }
            Err(_) => events.recv().map_err(io::Error::other)?,
        };
        match event {
            Event::Signal(SIGCHLD) => {
                for (rank, end) in children.ended() {
                    reports.send(&Report::Ended { rank, end });
                    left -= 1;
                }
            }
            Event::Signal(SIGQUIT) => {} // only the launcher makes reports
            Event::Order(Order::Signal(signal)) | Event::Signal(signal) => {
                signals::from_number(signal).into_iter().for_each(|signal| children.signal(signal));
                if signals::is_terminating(signal) || signal == SIGKILL {
                    left -= children.cancel_unstarted().len();
                    starting = false;
                }
            }
            Event::Order(Order::Restart(rank)) => match children.restart(rank) {
                Ok(pid) => {
                    reports.send(&Report::Started { rank, pid });
                    left += 1;
                }
                Err((why, code)) => {
                    reports.send(&Report::NotStarted { rank, why, code });
                    break;
                }
            },
            Event::Order(Order::NoMoreRestarts) => awaits_restarts = false,
            Event::Order(Order::Input(bytes)) => feeder.iter().for_each(|feeder| feeder.add(bytes.clone())),
            Event::Order(Order::Start(_)) | Event::LauncherGone => break,
        }
    }
    // Kills the ranks that still run.
    children.signal(Signal::KILL);
    children.finish();
    reports.send(&Report::Done);
    Ok(())
}

/// Starts to distribute the launcher's standard input, if ranks of this host read it.
fn feed(start: &message::Start, reports: &Arc<Reports>) -> Result<Option<Arc<Feeder>>, String> {
    if start.input.is_empty() {
        return Ok(None);
    }
    let reports = Arc::clone(reports);
    let origin = Origin::Orders(Box::new(move |count| reports.send(&Report::InputTaken(count))));
    let ranks = start.input.iter().map(|rank| Receiver::Rank(*rank));
    let feeder = Feeder::start(origin, ranks, start.restarts, |_| {});
    feeder.map(|feeder| Some(Arc::new(feeder))).map_err(|why| format!("cannot pass on the standard input: {why}"))
}

/// Finds the launcher, and prepares the ranks.
fn prepare(start: message::Start, feeder: Option<Arc<Feeder>>) -> Result<Start, String> {
    let text = OsString::from_vec;
    let ranks = start.ranks.len();
    let cores = Cores::of_this_host()
        .assign(ranks, start.mapping, start.binding)
        .map_err(|cores| LaunchError::TooFewCores { ranks, cores }.to_string())?;
    let directory = PathBuf::from(text(start.directory));
    if !directory.is_dir() {
        return Err(format!("the launcher's directory {} does not exist on this host", directory.display()));
    }
    // `ssh` gives the address of the host that called it. That is most likely the address of the launcher.
    let caller = std::env::var("SSH_CONNECTION").ok();
    let caller = caller.as_deref().and_then(|connection| connection.split_whitespace().next()).map(str::to_string);
    let mut roots: Vec<_> = caller.into_iter().chain(start.roots).collect();
    let mut seen = std::collections::HashSet::new();
    roots.retain(|root| seen.insert(root.clone()));
    let address = |host: &String| {
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Address::Tcp(format!("{host}:{}", start.port))
    };
    let mut environment = Environment {
        size: start.size,
        root: roots.iter().map(address).collect(),
        job: start.job,
        key: JobKey::new(start.key),
        transports: start.transports,
        links: start.links,
        host: start.host,
        local: Some(start.ranks.clone()),
        ..Environment::singleton()
    };
    let found = connect::probe(&environment, Instant::now() + REACH_LIMIT);
    environment.root = vec![found.map_err(|why| {
        format!("this host cannot reach the launcher: {why}; name an address of the launcher's host with `towline run --address`")
    })?];
    Ok(Start {
        program: text(start.program),
        args: start.args.into_iter().map(text).collect(),
        directory: Some(directory),
        variables: start.variables.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
        environment,
        ranks: start.ranks,
        input: feeder.map_or(RankInput::Empty, |feeder| RankInput::Fed(start.input, feeder)),
        cores,
    })
}

/// Sends reports to the launcher. May be used from any thread; reports do not mix.
struct Reports {
    tell: Mutex<mpsc::Sender<Event>>,
}

impl Reports {
    fn send(&self, report: &Report) {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        if message::write(&mut io::stdout().lock(), report).is_err() {
            let _ = tell.send(Event::LauncherGone);
        }
    }
}

impl Sink for Reports {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]) {
        self.send(&Report::Output { rank, source, bytes: bytes.to_vec() });
    }

    fn end(&self, rank: u32, source: Source) {
        self.send(&Report::OutputEnd { rank, source });
    }
}
