//! The families of jobs, besides those with random faults. Each seed gives one job of each family.

use std::collections::BTreeSet;

use towline_core::pml::{Config, Pool, rdma};
use towline_core::rail::native::{OneSided, Pipeline, Reach};

use super::faults::{TIME, loss, node, one_to_four, partition, toggle, window};
use super::limits::{config, linkable, links, random_rails};
use crate::random::Random;
use crate::sim::job::{Setting, Windows};
use crate::sim::network::faults::{Faults, RailParams};
use crate::sim::plan::{Plan, Shape};

/// Least number of messages of a job.
pub const MESSAGES: usize = 200;

/// The job of a seed over reliable rails. Every fourth job has at least four nodes.
pub fn reliable(seed: u64) -> Setting {
    let mut random = Random::new(seed);
    let nodes = if seed.is_multiple_of(4) { random.between(4, 6) } else { random.between(1, 4) } as u32;
    let rail_params: Vec<RailParams> = random_rails(&mut random);
    let faults = if random.chance(150) { Faults::default() } else { Faults::reliable(&mut random) };
    let window = random.pick(&[1, 2, 3, 4, 8, 16, 64, 256]).max(u32::from(nodes == 1) * 2);
    // Fragments may be small, so the number of fragments is limited.
    let fragment = rail_params.iter().map(|params| u64::from(params.max_send_size)).min().unwrap_or(1);
    let longest = random.pick(&[0, 64, 1000, 10_000, 100_000, 300_000]).min(fragment * 300);
    let shape = Shape { nodes, messages: MESSAGES, window, longest, comms: random.between(1, 3) as u32, wild: true };
    let config = config(nodes, window, &mut random);
    let plan = Plan::new(shape, &mut random);
    let pace = random.pick(&[50, 500, 5000, 20_000]);
    let rails = rail_params.len() as u32;
    let toggles =
        if random.chance(200) { one_to_four(&mut random, |random| toggle(nodes, rails, TIME, random)) } else { vec![] };
    let setting = Setting { toggles, ..fault_free(config, rail_params, faults, plan, pace, random) };
    with_windows(setting, &mut Random::new(seed ^ 0x0117))
}

/// Adds windows to half of the jobs, and independently of that devices to half of them. The random choices made before stay
/// the same.
pub(super) fn with_windows(setting: Setting, random: &mut Random) -> Setting {
    let setting = with_devices(setting, &mut random.clone().fork());
    if !random.chance(500) {
        return setting;
    }
    let fragment = setting.rail_params.iter().map(|params| u64::from(params.max_send_size)).min().unwrap_or(1);
    let rma = Windows::config(random);
    let windows = Windows::any(setting.config.peers, fragment, random.fork());
    Setting { config: Config { rma, ..setting.config }, windows: Some(windows), ..setting }
}

/// Gives some rails devices that move messages.
fn with_devices(mut setting: Setting, random: &mut Random) -> Setting {
    if !random.chance(500) {
        return setting;
    }
    // A slow device moves large pieces, since otherwise a message would take seconds.
    let slow = random.chance(500);
    for params in &mut setting.rail_params {
        if random.chance(300) {
            continue;
        }
        let mut reach = || match random.below(6) {
            0 => Reach::NONE,
            1 => Reach { limit: 1 << 20, alignment: 8, local_registration: 0 },
            _ => Reach {
                limit: if slow { 1 << 20 } else { random.pick(&[100, 1 << 20]) },
                alignment: 1,
                local_registration: random.pick(&[0, 500, u64::MAX]),
            },
        };
        let (put, get) = (reach(), reach());
        let pipeline = Pipeline {
            least: random.pick(&[1, 500, 5000]),
            by_frames: random.pick(&[0, 100, 3000]),
            piece: random.pick(if slow { &[5000, 20_000] } else { &[64, 1000, 20_000] }),
            gets: random.chance(500),
        };
        params.device = OneSided { put, get, pipeline, ..OneSided::NONE };
    }
    let mut chance = |of: &[u32]| if random.chance(500) { random.pick(of) } else { 0 };
    let faults = &mut setting.faults;
    faults.device_delay = chance(if slow { &[1_000_000, 20_000_000] } else { &[1000, 10_000] }).into();
    faults.device_busy = chance(&[20, 300]);
    faults.device_refuses = chance(&[5, 100]);
    faults.device_breaks = chance(&[5, 100]);
    faults.unregistered = chance(&[5, 100]);
    // With links no pinned memory is kept: the receive buffers are checked after the end, and a disconnected node may
    // still write to kept pins.
    let kept_pins = if setting.links.is_none() { random.pick(&[0, 0, 1, 16]) } else { 0 };
    setting.config.rdma = rdma::Config { messages: random.pick(&[1, 2, 8, 64]), kept_pins, windows: false };
    setting
}

/// A job in which no node or rail is lost.
pub(super) fn fault_free(
    config: Config,
    rail_params: Vec<RailParams>,
    faults: Faults,
    plan: Plan,
    pace: u64,
    random: Random,
) -> Setting {
    let (deaths, disconnected, stalled_pairs, toggles) = (vec![], vec![], BTreeSet::new(), vec![]);
    let (links, stall_timeout, faults_end_at, windows) = (None, None, None, None);
    Setting {
        config,
        rail_params,
        links,
        faults,
        deaths,
        disconnected,
        stalled_pairs,
        toggles,
        stall_timeout,
        faults_end_at,
        cancels_sends: false,
        plan,
        windows,
        pace,
        random,
    }
}

/// The pools of a job over links. [`smallest_pools`] can make each of them as small as possible.
pub const POOLS: [&str; 10] = [
    "requests",
    "envelopes",
    "units",
    "unit bytes",
    "probes",
    "rail slots",
    "frames kept",
    "link window",
    "link slots",
    "deliveries",
];

/// A job with rails that lose, duplicate, corrupt, reorder and refuse frames and are stalled, until these faults end.
/// One of the [`POOLS`] is as small as possible, or all of them. No node is lost.
pub fn smallest_pools(seed: u64, pool: Option<usize>) -> Setting {
    let mut random = Random::new(seed ^ 0x1ea5);
    let small = |at: usize| pool.is_none_or(|pool| pool == at);
    let nodes = random.between(2, 4) as u32;
    let mut rail_params = random_rails(&mut random);
    linkable(&mut rail_params, &mut random);
    for params in &mut rail_params {
        params.slots = if small(5) { 1 } else { 16 };
        params.frames_kept = if small(6) { 1 } else { 8 };
    }
    let dead_after = 100_000_000;
    let mut links = links(nodes, &mut random);
    links.dead_after = dead_after;
    links.window = if small(7) { 4 } else { 64 };
    links.slots = if small(8) { 1 } else { 64 * nodes };
    links.deliveries = if small(9) { 1 } else { 64 };
    let mut faults = Faults::reliable(&mut random);
    loss(&mut faults, &mut random);
    let rails = rail_params.len() as u32;
    // Too short to be taken for a loss.
    let time = dead_after / 16;
    faults.partitions = vec![partition(nodes, rails, time, &mut random)];
    faults.rail_stalls = vec![(node(nodes, &mut random), node(rails, &mut random), window(time, &mut random))];
    let one = |at: usize, least: u32, plenty: u32| if small(at) { least } else { plenty };
    let config = Config {
        peers: nodes,
        requests: one(0, Pool::Requests.least(), 64),
        unexpected: one(1, Pool::Envelopes.least(), nodes * 64),
        units: one(2, Pool::Units.least(), nodes * 64),
        unit_bytes: one(3, 0, 1024),
        probes: one(4, Pool::Spares.least(), 8),
        seed: 0,
        first_sequence: random.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40]),
        rma: towline_core::rma::Config::OFF,
        rdma: rdma::Config::OFF,
    };
    let fragment = rail_params.iter().map(|params| u64::from(params.max_send_size)).min().unwrap_or(1);
    let longest = random.pick(&[64, 1000, 10_000]).min(fragment * 100);
    let shape = Shape { nodes, messages: MESSAGES / 4, window: config.requests, longest, comms: 2, wild: true };
    let plan = Plan::new(shape, &mut random);
    let faults_end_at = Some(random.length(time * 4));
    let setting =
        Setting { links: Some(links), faults_end_at, ..fault_free(config, rail_params, faults, plan, 500, random) };
    with_windows(setting, &mut Random::new(seed ^ 0x0517))
}

/// Describes a job in a few lines.
pub fn describe(setting: &Setting) -> String {
    let Setting { config, rail_params, links, faults, deaths, toggles, stall_timeout, faults_end_at, .. } = setting;
    let nodes = setting.plan.programs.len();
    format!(
        "{nodes} nodes, {config:?}\n{rail_params:?}\n{links:?}\n{faults:?}\n{deaths:?}, {toggles:?}, stall time-out {stall_timeout:?}, faults end at {faults_end_at:?}"
    )
}
