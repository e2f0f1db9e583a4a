//! `towline info`: shows how a program would join its job here, which transports are available and which would be chosen
//! and why, all settings, and the limits of the machine.
//!
//! The choice among ranks of this host comes from two real ranks ([`rank`]). The choice for a rank on another host
//! comes from the rails themselves.

use std::process::{Command, ExitCode, Stdio};

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use towline::{Config, Rail as _, Setting};
use towline_core::btl::selection::{Candidate, Report, select};
use towline_core::pml::SIZES;
use towline_core::rail::{Peer, Unreachable};
use towline_core::wire;
use towline_net::JobKey;
use towline_net::interfaces::{Filter, survey};

use crate::stdout::out;
use crate::variables::{Variable, unknown_here, warn_of_unknown_here};
use crate::{transports, version};
use selection::{Section, Selection};

mod selection;

/// Show how a program starts here, the transports, which of them would be chosen and why, all settings, and the limits of this machine
#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Show only these: a setting or its variable, a transport with its settings, or a section (start, transports,
    /// interfaces, chosen, machine, memory, settings)
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Show only rows that contain this text; upper and lower case are equal
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the information. Returns the exit status.
pub fn run(arguments: &Arguments) -> ExitCode {
    let reported = warn_of_unknown_here();
    match gather(arguments, reported) {
        Ok(info) => {
            let text = if arguments.json { format!("{:#}", info.json()) } else { info.text() };
            out!("{}\n", text.trim_matches('\n'));
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a rank of the job that [`chosen_here`] launches. The first rank prints what it has chosen.
pub fn rank() -> ExitCode {
    let asked = || {
        let world = towline::init()?;
        // The route of long messages is known only after one message has gone each way.
        let mut word = [0u8];
        let exchanged = match world.rank() {
            0 => world.send(1, 0, &word).and_then(|()| world.recv(1, 0, &mut word).map(drop)),
            1 => world.recv(0, 0, &mut word).and_then(|_| world.send(0, 0, &word)),
            _ => Ok(()),
        };
        if let Err(why) = exchanged {
            eprintln!("towline: {why}");
        }
        if world.rank() == 0 {
            world.transport_report().iter().for_each(|line| println!("{line}"));
        }
        world.finish()
    };
    asked().map_or_else(
        |why: towline::SetupError| {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Everything that is printed.
struct Info {
    selection: Selection,
    /// How a program joins its job: what, and the answer.
    start: Vec<(&'static str, String)>,
    /// Name, and what it uses here if there is something to say, or the reason if it does not work.
    transports: Vec<(String, Result<Option<String>, String>)>,
    /// Name, address, and the reason if tcp does not use it.
    interfaces: Vec<(String, String, Option<String>)>,
    /// The kind of peer, and what is chosen for it and why.
    chosen: Vec<(&'static str, String)>,
    /// Name, value, unit.
    machine: Vec<(&'static str, String, &'static str)>,
    /// Description, and bytes.
    sizes: Vec<(String, u64)>,
    settings: Vec<Setting>,
}

fn gather(arguments: &Arguments, reported: Option<Variable>) -> Result<Info, String> {
    let config = Config::default().with_environment().map_err(|why| why.to_string())?;
    let settings = Config::default().settings().map_err(|why| why.to_string())?;
    let selection = Selection::new(&arguments.names, arguments.filter.as_deref(), &settings)?;
    let filter = Filter::from_lists(&config.tcp.include, &config.tcp.exclude);
    let mut all = vec![("loopback".to_string(), Ok(None))];
    // What is not shown is not tried, since jobs take a while.
    if selection.wants(Section::Transports) {
        all.extend(transports::ALL.map(|name| (name.to_string(), transports::try_here(name))));
    }
    let interfaces = survey(&filter).map_err(|why| format!("cannot list the network interfaces: {why}"))?;
    let shown = interfaces.into_iter().map(|(it, verdict)| (it.name, it.address.to_string(), verdict.err())).collect();
    let mut chosen = Vec::new();
    if selection.wants(Section::Chosen) {
        chosen = chosen_here(reported);
        chosen.push(("other host", chosen_elsewhere(&filter)));
    }
    let mut sizes: Vec<_> = SIZES.iter().map(|(what, bytes)| ((*what).to_string(), *bytes as u64)).collect();
    sizes.push(("payload of an unexpected message, at most".into(), config.unit_bytes.into()));
    sizes.push((
        "shared memory for a peer that long messages are sent to, at most".into(),
        sm(&config).bytes_per_peer(),
    ));
    sizes.push(("staging of a tcp connection, at most".into(), tcp(&config).bytes_per_connection()));
    let key = JobKey::new([0; 32]); // nobody connects
    sizes.push(("buffers of a udp link, at most".into(), towline_udp::Config::new(0, 0, key).bytes()));
    let machine = machine(&config.sm.directory);
    let start = if selection.wants(Section::Start) { start(&config) } else { Vec::new() };
    let mut info = Info { selection, start, transports: all, interfaces: shown, chosen, machine, sizes, settings };
    info.select();
    if !info.selection.is_all() && info.is_empty() {
        let text = arguments.filter.as_deref().unwrap_or_default();
        return Err(format!("nothing contains `{text}`: shorten the text of --filter, or leave out names"));
    }
    Ok(info)
}

/// How a program that is started here joins its job, and the library that PMIx launchers need.
fn start(config: &Config) -> Vec<(&'static str, String)> {
    let pmix = match towline_pmix::library_version(&config.pmix_library) {
        Ok(version) => format!("version {version}"),
        Err(towline_pmix::Error::Library(why)) => format!("none: {why} (TOWLINE_PMIX_LIBRARY)"),
        Err(why) => why.to_string(),
    };
    vec![("bootstrap", config.chosen_bootstrap().to_string()), ("PMIx library", pmix)]
}

/// The choice of two ranks on this host, for themselves and for each other.
pub fn chosen_here(reported: Option<Variable>) -> Vec<(&'static str, String)> {
    let said = std::env::current_exe().and_then(|me| {
        let mut command = Command::new(&me);
        command
            .args(["run", "--ranks", "2", "--no-prefix", "--timeout", "60", "--"])
            .arg(&me)
            .arg("info-rank")
            .envs(reported);
        command.stdin(Stdio::null()).output()
    });
    let (out, why) = match said {
        Ok(output) => {
            let [out, why] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            let has_reason = output.status.success() || !why.trim().is_empty();
            (out, if has_reason { why } else { format!("a job of two ranks failed: {}", output.status) })
        }
        Err(why) => (String::new(), why.to_string()),
    };
    let of_peer = |peer: &str| {
        let line = out.lines().find_map(|line| line.strip_prefix(peer));
        line.map_or_else(|| format!("none: {}", why.trim_end()), |line| line.trim_start().to_string())
    };
    vec![("itself", of_peer("peer 0:")), ("same host", of_peer("peer 1:"))]
}

/// The choice for a rank on another host that is on the same networks.
fn chosen_elsewhere(filter: &Filter) -> String {
    let job = u64::from(std::process::id()) << 20;
    let key = JobKey::new([0; 32]); // nobody connects
    let mut config = towline_tcp::Config::new(job, 0, key);
    config.filter = filter.clone();
    let mut rail = match towline_tcp::Rail::new(config) {
        Ok(rail) => rail,
        Err(why) => return format!("none: tcp does not work here: {why}"),
    };
    let card = towline_net::card::Card::decode(rail.card()).map(|mut card| {
        (card.host, card.rank, card.instance) = (!card.host, 1, !card.instance);
        card.encode()
    });
    let mut candidates = vec![Candidate::of(rail.attributes())];
    // The sm rail always refuses a peer on another host, so it need not be asked.
    if let Ok(sm) = towline_sm::Rail::open(towline_sm::Config::new(job, 0, 2)) {
        candidates.push(Candidate::of(sm.attributes()));
    }
    select(&mut candidates, |index| match (index, &card) {
        (0, Ok(card)) => rail.add_peer(Peer(1), card),
        (0, Err(why)) => Err(*why),
        _ => Err(Unreachable::OtherHost),
    });
    let report = Report { peer: Peer(1), rails: &candidates }.to_string();
    report.trim_start_matches("peer 1:").trim_start().to_string()
}

/// The configuration of an sm rail with these settings.
fn sm(config: &Config) -> towline_sm::Config {
    let mut sm = towline_sm::Config::new(0, 0, 1);
    sm.apply(&config.sm);
    sm
}

/// The configuration of a tcp rail with these settings. Wrong addresses and ports do not matter for its size; the list of
/// transports reports them.
fn tcp(config: &Config) -> towline_tcp::Config {
    let mut tcp = towline_tcp::Config::new(0, 0, JobKey::new([0; 32])); // nobody connects
    let _ = tcp.apply(&config.tcp);
    tcp
}

fn machine(sm_directory: &str) -> Vec<(&'static str, String, &'static str)> {
    let unknown = || "unknown".to_string();
    let processors = std::thread::available_parallelism().map_or_else(|_| unknown(), |count| count.to_string());
    let shared = rustix::fs::statvfs(sm_directory).ok();
    let bytes = |blocks: fn(&rustix::fs::StatVfs) -> u64| {
        shared.as_ref().map_or_else(unknown, |about| (about.f_frsize * blocks(about)).to_string())
    };
    let system = |name| {
        let read = std::fs::read_to_string(std::path::Path::new("/proc/sys").join(name));
        read.map_or_else(|_| unknown(), |text| text.trim().to_string())
    };
    let limit = |resource| getrlimit(resource).current.map_or_else(|| "unlimited".into(), |most| most.to_string());
    vec![
        ("processors for this process", processors, ""),
        ("page", page_size().to_string(), "B"),
        ("shared memory in all", bytes(|about| about.f_blocks), "B"),
        ("shared memory free", bytes(|about| about.f_bavail), "B"),
        ("open files", limit(Resource::Nofile), ""),
        ("locked memory", limit(Resource::Memlock), "B"),
        ("a socket's receive buffer", system("net/core/rmem_max"), "B"),
        ("a socket's send buffer", system("net/core/wmem_max"), "B"),
    ]
}

impl Info {
    /// Drops the rows that are not shown.
    fn select(&mut self) {
        let Self { selection, start, transports, interfaces, chosen, machine, sizes, settings } = self;
        let text = |why: &Option<String>| why.clone().unwrap_or_default();
        let told = |here: &Result<Option<String>, String>| here.as_ref().map_or_else(Clone::clone, text);
        start.retain(|(what, answer)| selection.shows(Section::Start, what, &[answer]));
        transports.retain(|(name, here)| selection.shows(Section::Transports, name, &[&told(here)]));
        interfaces.retain(|(name, address, why)| selection.shows(Section::Interfaces, name, &[address, &text(why)]));
        chosen.retain(|(whom, what)| selection.shows(Section::Chosen, whom, &[what]));
        machine.retain(|(name, value, _)| selection.shows(Section::Machine, name, &[value]));
        sizes.retain(|(what, _)| selection.shows(Section::Memory, what, &[]));
        settings.retain(|it| selection.shows(Section::Settings, it.name, &[it.variable, &it.value, it.help]));
    }

    fn is_empty(&self) -> bool {
        let Self { start, transports, interfaces, chosen, machine, sizes, settings, .. } = self;
        let rows = [start.len(), transports.len(), interfaces.len(), chosen.len(), machine.len(), sizes.len()];
        rows == [0; 6] && settings.is_empty()
    }

    fn json(&self) -> Value {
        let transport = |(name, here): &(String, Result<Option<String>, String>)| {
            let device = here.as_ref().ok().and_then(Option::as_deref);
            json!({"name": name, "works": here.is_ok(), "why": here.as_ref().err(), "device": device})
        };
        let interface = |(name, address, why): &(String, String, Option<String>)| json!({"name": name, "address": address, "used": why.is_none(), "why": why});
        let setting = |it: &Setting| {
            json!({"name": it.name, "value": it.value, "unit": it.unit, "possible": it.possible, 
                "origin": it.origin.to_string(), "default": it.default, "variable": it.variable, "help": it.help})
        };
        let measured = |(name, value, unit): &(&str, String, &str)| json!({"name": name, "value": value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number)), "unit": unit});
        json!({
            "version": version::NUMBER,
            "commit": version::COMMIT,
            "features": version::features(),
            "wire_version": wire::VERSION,
            "start": self.start.iter().map(|(what, answer)| json!({"name": what, "value": answer})).collect::<Vec<_>>(),
            "transports": self.transports.iter().map(transport).collect::<Vec<_>>(),
            "tcp_interfaces": self.interfaces.iter().map(interface).collect::<Vec<_>>(),
            "chosen": self.chosen.iter().map(|(whom, what)| json!({"for": whom, "choice": what})).collect::<Vec<_>>(),
            "machine": self.machine.iter().map(measured).collect::<Vec<_>>(),
            "bytes": self.sizes.iter().map(|(what, bytes)| json!({"of": what, "bytes": bytes})).collect::<Vec<_>>(),
            "settings": self.settings.iter().map(setting).collect::<Vec<_>>(),
            "unknown_variables": unknown_here().iter().map(|it| json!({"name": it.name, "nearest": it.nearest})).collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if self.selection.is_all() {
            text = format!("towline {}, wire version {}\n", version::NUMBER, wire::VERSION);
        }
        let mut line = |line: String| {
            text.push_str(line.trim_end());
            text.push('\n');
        };
        let verdict =
            |why: &Option<String>, good: &str| why.clone().map_or_else(|| good.to_string(), |why| format!("no: {why}"));
        if !self.start.is_empty() {
            line("\nStart of a program here".into());
        }
        self.start.iter().for_each(|(what, answer)| line(format!("  {what:14} {answer}")));
        if !self.transports.is_empty() {
            line("\nTransports".into());
        }
        let works = |here: &Result<Option<String>, String>| match here {
            Ok(None) => "works".to_string(),
            Ok(Some(what)) => format!("works: {what}"),
            Err(why) => format!("no: {why}"),
        };
        self.transports.iter().for_each(|(name, here)| line(format!("  {name:10} {}", works(here))));
        if !self.interfaces.is_empty() {
            line("\nNetwork interfaces for tcp".into());
        }
        let name = |(name, address, _): &(String, String, Option<String>)| format!("{name} {address}");
        self.interfaces.iter().for_each(|it| line(format!("  {:28} {}", name(it), verdict(&it.2, "used"))));
        if !self.chosen.is_empty() {
            line("\nChosen for a rank that is".into());
        }
        self.chosen.iter().for_each(|(whom, what)| line(format!("  {whom:10} {what}")));
        if !self.machine.is_empty() {
            line("\nThis machine".into());
        }
        self.machine.iter().for_each(|(what, value, unit)| line(format!("  {what:28} {value:>14} {unit}")));
        if !self.sizes.is_empty() {
            line("\nMemory".into());
        }
        self.sizes.iter().for_each(|(what, bytes)| line(format!("  {what:66} {bytes:>8} B")));
        if !self.settings.is_empty() {
            line("\nSettings: set the environment variable to change a setting for all ranks".into());
        }
        for it in &self.settings {
            let value = if it.value.is_empty() { "-" } else { &it.value };
            let changed = if it.value == it.default { String::new() } else { format!(" [default: {}]", it.default) };
            let (origin, help) = (it.origin.to_string(), it.help);
            line(format!("  {:34} {value:>10} {:4} {origin:11} {help}{changed}", it.variable, it.unit));
        }
        text
    }
}
