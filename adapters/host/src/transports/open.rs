//! Opens the rails of a context.

use std::time::Duration;

use towline_bootstrap::Job;
use towline_dpu::Matching;
use towline_dpu::frames::Frames;
use towline_settings::{InvalidSetting, Origin, Setting, entries};
use towline_sm::CleanUp;

use crate::errors::setup::SetupError;
use crate::settings::config::{Config, DPU, DPU_FRAMES, WITH_RAILS};
use crate::transports::linked::Linked;
use crate::transports::local::{is_oversubscribed, local_contexts};
use crate::transports::rails::AnyRail;
use crate::values::address::Grid;

/// The variables of the lists of interfaces.
const TCP_LISTS: [&str; 2] = ["TOWLINE_TCP_INCLUDE", "TOWLINE_TCP_EXCLUDE"];
const UDP_LISTS: [&str; 2] = ["TOWLINE_UDP_INCLUDE", "TOWLINE_UDP_EXCLUDE"];

/// The opened rails of a context, and the transports that do not work here, with the reasons.
pub(crate) struct OpenedRails {
    pub rails: Vec<AnyRail>,
    /// The DPU that matches messages, if it was asked for, and its card.
    pub dpu: Option<(Box<Matching>, Vec<u8>)>,
    pub failures: Vec<(String, String)>,
}

impl OpenedRails {
    /// The DPU of this context and what it does, for people.
    pub fn device(&self) -> Option<String> {
        let matching = self.dpu.as_ref().map(|(dpu, _)| format!("dpu matches and moves messages ({})", dpu.describe()));
        let carrying = || Some(format!("dpu-frames carries frames ({})", self.rails.iter().find_map(AnyRail::device)?));
        matching.or_else(carrying)
    }
}

/// Why a transport does not work here.
enum Failure {
    /// A setting cannot be kept.
    Setting(InvalidSetting),
    /// Another reason, and the variables whose settings may be the cause.
    Other(String, &'static [&'static str]),
}

impl Failure {
    /// A failure that no setting causes.
    fn other(why: impl ToString) -> Self {
        Self::Other(why.to_string(), &[])
    }
}

impl From<InvalidSetting> for Failure {
    fn from(why: InvalidSetting) -> Self {
        Self::Setting(why)
    }
}

/// Opens the transports that are asked for. Their rails identify the context by its number in the job. `progress_thread`: the
/// context will have a progress thread. `clean_up`: who removes files if this process does not. A transport that nobody has asked
/// for may fail; then it is left out. It is an error if a user has given a setting that causes the failure.
pub(crate) fn open(
    config: &Config,
    settings: &[Setting],
    job: &Job,
    grid: Grid,
    progress_thread: bool,
    clean_up: Option<&CleanUp>,
) -> Result<OpenedRails, SetupError> {
    let mut asked = entries(&config.transports);
    let named = asked.len();
    asked.retain(|name| name != DPU);
    let with_dpu = asked.len() != named;
    let given = |variable: &&str| {
        settings.iter().any(|setting| setting.variable == *variable && setting.origin != Origin::Default)
    };
    let mut opened = OpenedRails { rails: Vec::new(), dpu: None, failures: Vec::new() };
    if with_dpu {
        let dpu = open_dpu(config, job, grid);
        opened.dpu = Some(dpu.map_err(|why| SetupError::Transport { name: DPU.into(), why })?);
    }
    for name in WITH_RAILS {
        let wanted = asked.iter().any(|asked| asked == name);
        // A job of one context needs no rail to others, unless one was asked for.
        if !wanted && (!asked.is_empty() || grid.total() == 1 || matches!(name, "udp" | "verbs" | DPU_FRAMES)) {
            continue;
        }
        let links = if matches!(name, "sm" | DPU_FRAMES) { 1 } else { config.links };
        for link in 0..links {
            // Links of all transports are numbered together.
            let number = opened.rails.len() as u8;
            let rail = match name {
                "sm" => open_sm(config, job, grid, progress_thread, clean_up.cloned()),
                "tcp" => open_tcp(config, job, grid, link as u8, number, progress_thread),
                "udp" => open_udp(config, job, grid, link as u8, number, progress_thread),
                "verbs" => open_verbs(config, job, grid, link as u8, number, progress_thread),
                DPU_FRAMES => open_dpu_frames(config, job, grid, number, progress_thread),
                other => Err(Failure::other(format!("no function opens the transport {other}"))),
            };
            let (why, causes) = match rail {
                Ok(rail) => {
                    opened.rails.push(rail);
                    continue;
                }
                Err(Failure::Setting(why)) => {
                    let setting = settings.iter().find(|setting| setting.variable == why.variable);
                    return Err(why.with_origin(setting.map_or(Origin::Program, |setting| setting.origin)).into());
                }
                Err(Failure::Other(why, causes)) => (why, causes),
            };
            let why = if link == 0 { why } else { format!("link {link} of {links}: {why}") };
            let causes: Vec<_> = causes.iter().filter(|variable| given(variable)).copied().collect();
            let why = match &causes[..] {
                [] => why,
                causes => format!("{why}; correct or unset {}, or choose other transports", causes.join(" or ")),
            };
            // A number of links above 1 is a setting that was given.
            if wanted || link != 0 || !causes.is_empty() {
                return Err(SetupError::Transport { name: name.into(), why });
            }
            opened.failures.push((name.into(), why));
            break; // the other links would fail for the same reason
        }
    }
    Ok(opened)
}

/// The place of a context among those of the job on this host, each of which has a DPU.
fn place_on_host(job: &Job, grid: Grid) -> usize {
    let before = job.local_ranks().and_then(|local| local.iter().position(|rank| *rank == job.rank()));
    before.unwrap_or(0) * grid.contexts as usize + grid.own.index as usize
}

/// Opens the DPU of a context.
fn open_dpu(config: &Config, job: &Job, grid: Grid) -> Result<(Box<Matching>, Vec<u8>), String> {
    let mut dpu = Box::new(config.dpu.open(place_on_host(job, grid)).map_err(|why| why.to_string())?);
    let card = dpu.card().map_err(|why| why.to_string())?;
    Ok((dpu, card))
}

fn open_sm(
    config: &Config,
    job: &Job,
    grid: Grid,
    thread: bool,
    clean_up: Option<CleanUp>,
) -> Result<AnyRail, Failure> {
    let mut sm = towline_sm::Config::new(job.job_id(), grid.own_number(), grid.total());
    (sm.progress_thread, sm.clean_up) = (thread, clean_up);
    sm.apply(&config.sm);
    if config.sm.bulk_ring_bytes == 0 {
        sm.bulk_ring_bytes = bulk_ring(&sm.directory, sm.bulk_ring_bytes, local_contexts(job, grid));
    }
    sm.fit(local_contexts(job, grid));
    towline_sm::Rail::open(sm).map(AnyRail::Sm).map_err(|why| match why {
        towline_sm::OpenError::System { .. } => Failure::Other(why.to_string(), &["TOWLINE_SM_DIRECTORY"]),
        why => Failure::other(why),
    })
}

/// Bytes of the ring for long messages: `least`, or up to 4 MiB where there are more contexts than processors, so that there are
/// fewer context switches. Rings longer than `least` together take at most a quarter of the free memory.
fn bulk_ring(directory: &std::path::Path, least: u32, contexts: usize) -> u32 {
    if !is_oversubscribed(contexts) {
        return least;
    }
    let free = rustix::fs::statvfs(directory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let pairs = (contexts as u64).saturating_mul(contexts as u64 - 1);
    let most = (16 << 20) / contexts as u64;
    let bytes = most.min(free / 4 / pairs).clamp(u64::from(least), 4 << 20);
    1 << bytes.ilog2()
}

fn open_tcp(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, Failure> {
    let mut tcp = towline_tcp::Config::new(job.job_id(), grid.own_number(), job.key().clone());
    tcp.link = link;
    tcp.progress_thread = thread;
    tcp.encrypt = config.encrypt;
    tcp.dead_host_timeout = Duration::from_millis(config.peer_timeout_ms.into());
    tcp.apply(&config.tcp)?;
    config.tcp.check_host()?;
    let rail = towline_tcp::Rail::new(tcp).map_err(|why| net_failure(why, &TCP_LISTS, &["TOWLINE_TCP_PORTS"]))?;
    if config.links == 1 && !config.checksum && !has_dpu_beside_others(config) {
        return Ok(AnyRail::Tcp(rail)); // without other links and checksums it needs no link layer
    }
    Linked::new(rail, number, config, grid, thread).map(AnyRail::LinkedTcp).map_err(Failure::other)
}

fn open_udp(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, Failure> {
    let mut udp = towline_udp::Config::new(job.job_id(), grid.own_number(), job.key().clone());
    udp.link = link;
    udp.progress_thread = thread;
    udp.encrypt = config.encrypt;
    udp.within_host = job.local_ranks().is_some_and(|local| local.len() == job.size() as usize);
    udp.apply(&config.udp)?;
    config.udp.check_host()?;
    let rail = towline_udp::Rail::new(udp).map_err(|why| net_failure(why, &UDP_LISTS, &["TOWLINE_UDP_PORTS"]))?;
    Linked::new(rail, number, config, grid, thread).map(AnyRail::Udp).map_err(Failure::other)
}

/// The failure of tcp or udp. `lists` and `ports` are the variables of the lists of interfaces, and of the ports.
fn net_failure(
    why: towline_net::SetupError,
    lists: &'static [&'static str],
    ports: &'static [&'static str],
) -> Failure {
    match why {
        towline_net::SetupError::Setting(why) => why.into(),
        towline_net::SetupError::NoInterface => Failure::Other(why.to_string(), lists),
        why => Failure::Other(why.to_string(), ports),
    }
}

fn open_verbs(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, Failure> {
    let key = job.key().clone();
    let mut verbs = towline_verbs::Config::new(job.job_id(), grid.own_number(), key);
    verbs.link = link;
    // The ranks of a host are distributed over its ports, each with all its links.
    let before = job.local_ranks().and_then(|local| local.iter().position(|rank| *rank == job.rank()));
    verbs.turn = before.unwrap_or(0) as u32 * config.links + u32::from(link);
    verbs.progress_thread = thread;
    verbs.apply(&config.verbs)?;
    verbs.peer_timeout = Duration::from_millis(config.peer_timeout_ms.into());
    if config.peer_timeout_ms == 0 {
        verbs.heartbeat = Duration::ZERO;
    }
    let rail = towline_verbs::Rail::new(verbs).map_err(|why| match why {
        towline_verbs::SetupError::Setting(why) => why.into(),
        why => Failure::other(why),
    })?;
    if config.links == 1 && !config.checksum && !has_dpu_beside_others(config) {
        return Ok(AnyRail::Verbs(rail)); // as for tcp
    }
    Linked::new(rail, number, config, grid, thread).map(AnyRail::LinkedVerbs).map_err(Failure::other)
}

/// Whether a DPU carries frames beside other networks. Then all of them are links, so that the frames of one that fails go by the others.
fn has_dpu_beside_others(config: &Config) -> bool {
    let asked = entries(&config.transports);
    let names = |name: &str| asked.iter().any(|asked| asked == name);
    names(DPU_FRAMES) && ["tcp", "udp", "verbs"].iter().any(|name| names(name))
}

fn open_dpu_frames(config: &Config, job: &Job, grid: Grid, number: u8, thread: bool) -> Result<AnyRail, Failure> {
    let transport = config.dpu.open_transport(place_on_host(job, grid)).map_err(Failure::other)?;
    let rail = Frames::new(transport, towline_dpu::frames::Config::default()).map_err(Failure::other)?;
    if !has_dpu_beside_others(config) && !config.checksum {
        return Ok(AnyRail::Dpu(rail)); // its frames are messages of the devices, which are reliable
    }
    Linked::new(rail, number, config, grid, thread).map(AnyRail::LinkedDpu).map_err(Failure::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_grow_only_where_processors_are_oversubscribed_and_never_beyond_free_memory() {
        let here = std::path::Path::new("/dev/shm");
        assert_eq!(bulk_ring(here, 1 << 18, 1), 1 << 18);
        for ranks in [1000, 100_000] {
            assert_eq!(bulk_ring(here, 1 << 18, ranks), 1 << 18, "16 MiB in all for {ranks} ranks");
        }
        assert_eq!(bulk_ring(std::path::Path::new("/nowhere"), 1 << 18, 1000), 1 << 18);
    }
}
