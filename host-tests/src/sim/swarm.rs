//! Jobs by seed: a random shape, random limits, a random set of faults.

use towline_core::pml::{Config, Pool};

use super::faults::{FOR_EVER, Faults, Make, Outage, Partition, Window};
use super::job::{Death, Setting};
use super::plan::{Plan, Shape};
use super::ways::Links;
use crate::dice::Dice;

/// Messages of a seed, at least.
pub const MESSAGES: usize = 200;

/// The job that belongs to a seed. Every fourth has at least four nodes.
pub fn setting(seed: u64) -> Setting {
    let mut dice = Dice::new(seed);
    let nodes = if seed.is_multiple_of(4) { dice.between(4, 6) } else { dice.between(1, 4) } as u32;
    let makes: Vec<Make> = makes(&mut dice);
    let faults = if dice.chance(150) { Faults::default() } else { Faults::reliable(&mut dice) };
    let window = dice.pick(&[1, 2, 3, 4, 8, 16, 64, 256]).max(u32::from(nodes == 1) * 2);
    // Fragments are small at times: not too many of them.
    let fragment = makes.iter().map(|make| u64::from(make.max_send_size)).min().unwrap_or(1);
    let longest = dice.pick(&[0, 64, 1000, 10_000, 100_000, 300_000]).min(fragment * 300);
    let shape = Shape { nodes, messages: MESSAGES, window, longest, comms: dice.between(1, 3) as u32, wild: true };
    let config = config(nodes, window, &mut dice);
    let plan = Plan::new(shape, &mut dice);
    let pace = dice.pick(&[50, 500, 5000, 20_000]);
    let (deaths, severed) = (vec![], vec![]);
    Setting { config, makes, links: None, faults, deaths, severed, calm_at: None, plan, pace, dice }
}

/// Small limits, and numbers near their wrap.
fn config(nodes: u32, window: u32, dice: &mut Dice) -> Config {
    let unexpected = share(dice, nodes);
    let units = if dice.chance(500) { unexpected } else { share(dice, nodes) };
    Config {
        peers: nodes,
        requests: window,
        unexpected,
        units,
        unit_bytes: dice.pick(&[8, 64, 256, 1024, 8192]),
        probes: dice.pick(&[1, 1, 2, 8]),
        seed: 0,
        first_sequence: dice.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40, 1 << 33]),
    }
}

/// Envelopes or units for all peers together: at times fewer than one for each, at times one, at times plenty.
fn share(dice: &mut Dice, nodes: u32) -> u32 {
    match dice.below(4) {
        0 => 1,
        1 => nodes,
        _ => nodes * dice.pick(&[2, 3, 8, 64]),
    }
}

/// One to four rails, equal or not.
fn makes(dice: &mut Dice) -> Vec<Make> {
    let alike = dice.chance(300);
    let first = make(dice);
    (0..dice.between(1, 4)).map(|_| if alike { first } else { make(dice) }).collect()
}

fn make(dice: &mut Dice) -> Make {
    let eager_limit = dice.pick(&[64, 100, 1024, 4096, 16_384]);
    let max_send_size = dice.pick(&[64, 100, 1024, 8192, 65_536]);
    Make {
        latency: dice.pick(&[100, 100, 1000, 30_000]),
        bandwidth: dice.pick(&[100, 1000, 10_000]),
        eager_limit,
        rendezvous_eager_limit: dice.pick(&[0, 10, eager_limit]),
        min_fragment: dice.pick(&[1, max_send_size / 2, max_send_size]),
        max_send_size,
        slots: dice.pick(&[1, 2, 4, 16, 64]),
        frames_kept: dice.pick(&[1, 1, 2, 8]),
        datagrams: false,
    }
}

/// Whether frames of a link that is down go by the others.
const FAILOVER: bool = true;

/// The job with mishaps that belongs to a seed: a random set of them.
pub fn faulty(seed: u64) -> Setting {
    let mut dice = Dice::new(seed ^ 0xfa17);
    let nodes = match dice.below(10) {
        0 => dice.between(9, 16),
        1..4 => dice.between(4, 8),
        _ => dice.between(2, 4),
    } as u32;
    let mut makes = makes(&mut dice);
    let links = dice.chance(700).then(|| links(nodes, &mut dice));
    let mut faults = if dice.chance(300) { Faults::default() } else { Faults::reliable(&mut dice) };
    if links.is_some() {
        linkable(&mut makes, &mut dice);
        loss(&mut faults, &mut dice);
    }
    // The longest faults are as long as links put up with, and longer.
    let time = links.map_or(TIME, |links| links.dead_after.max(TIME));
    let mut mishap = |permille| dice.chance(permille);
    let [parts, stalls, outages, dies, calms] = [400, 400, 300, 400, 500].map(&mut mishap);
    let rails = makes.len() as u32;
    if parts {
        faults.partitions = some(&mut dice, |dice| partition(nodes, rails, time, dice));
    }
    if stalls {
        faults.stalls = some(&mut dice, |dice| (node(nodes, dice), node(rails, dice), window(time, dice)));
    }
    if outages {
        faults.outages = some(&mut dice, |dice| outage(nodes, rails, time, dice));
    }
    let deaths = if dies { some(&mut dice, |dice| death(nodes, dice)) } else { vec![] };
    let severed = severed(nodes, &makes, links, &faults);
    let calm_at = calms.then(|| dice.length(time));
    let window = dice.pick(&[1, 2, 3, 4, 8, 16, 64]);
    let fragment = makes.iter().map(|make| u64::from(make.max_send_size)).min().unwrap_or(1);
    let longest = dice.pick(&[64, 1000, 10_000, 100_000]).min(fragment * 100);
    let comms = dice.between(1, 3) as u32;
    let wild = deaths.is_empty() && severed.is_empty();
    let shape = Shape { nodes, messages: MESSAGES / 2, window, longest, comms, wild };
    let config = config(nodes, window, &mut dice);
    let plan = Plan::new(shape, &mut dice);
    let pace = dice.pick(&[50, 500, 5000, 20_000]);
    Setting { config, makes, links, faults, deaths, severed, calm_at, plan, pace, dice }
}

/// The pools of a job over links, each of which [`least`] can make as small as it may be.
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

/// A job with rails that lose, double, change and reorder frames, refuse them and stand still, until all of that stops; with
/// one of the [`POOLS`] at its least, or with all of them. No node is lost.
pub fn least(seed: u64, pool: Option<usize>) -> Setting {
    let mut dice = Dice::new(seed ^ 0x1ea5);
    let small = |at: usize| pool.is_none_or(|pool| pool == at);
    let nodes = dice.between(2, 4) as u32;
    let mut makes = makes(&mut dice);
    linkable(&mut makes, &mut dice);
    for make in &mut makes {
        make.slots = if small(5) { 1 } else { 16 };
        make.frames_kept = if small(6) { 1 } else { 8 };
    }
    let dead_after = 100_000_000;
    let mut links = links(nodes, &mut dice);
    links.dead_after = dead_after;
    links.window = if small(7) { 4 } else { 64 };
    links.slots = if small(8) { 1 } else { 64 * nodes };
    links.deliveries = if small(9) { 1 } else { 64 };
    let mut faults = Faults::reliable(&mut dice);
    loss(&mut faults, &mut dice);
    let rails = makes.len() as u32;
    // Too short to be taken for a death.
    let time = dead_after / 16;
    faults.partitions = vec![partition(nodes, rails, time, &mut dice)];
    faults.stalls = vec![(node(nodes, &mut dice), node(rails, &mut dice), window(time, &mut dice))];
    let one = |at: usize, least: u32, plenty: u32| if small(at) { least } else { plenty };
    let config = Config {
        peers: nodes,
        requests: one(0, Pool::Requests.least(), 64),
        unexpected: one(1, Pool::Envelopes.least(), nodes * 64),
        units: one(2, Pool::Units.least(), nodes * 64),
        unit_bytes: one(3, 0, 1024),
        probes: one(4, Pool::Spares.least(), 8),
        seed: 0,
        first_sequence: dice.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40]),
    };
    let fragment = makes.iter().map(|make| u64::from(make.max_send_size)).min().unwrap_or(1);
    let longest = dice.pick(&[64, 1000, 10_000]).min(fragment * 100);
    let shape = Shape { nodes, messages: MESSAGES / 4, window: config.requests, longest, comms: 2, wild: true };
    let plan = Plan::new(shape, &mut dice);
    let calm_at = Some(dice.length(time * 4));
    let (deaths, severed) = (vec![], vec![]);
    Setting { config, makes, links: Some(links), faults, deaths, severed, calm_at, plan, pace: 500, dice }
}

/// Links of all sizes, the smallest among them.
fn links(nodes: u32, dice: &mut Dice) -> Links {
    let window = dice.pick(&[4, 8, 32, 256]);
    Links {
        usual: false,
        dead_after: dice.pick(&[20_000_000, 100_000_000, 1_000_000_000]),
        least_timeout: dice.pick(&[100_000, 400_000]),
        ack_delay: dice.pick(&[0, 1000, 25_000]),
        window,
        slots: dice.pick(&[1, 2, 8, window * nodes]),
        deliveries: dice.pick(&[1, 2, 8, 64]),
        first_number: dice.pick(&[0, (1 << 16) - 3, (1 << 32) - 5, 1 << 40]),
    }
}

/// Rails that links can be put on: some of them lossy, and none with frames too short for a header of theirs.
fn linkable(makes: &mut [Make], dice: &mut Dice) {
    for make in makes {
        make.datagrams = dice.chance(700);
        make.eager_limit = make.eager_limit.max(128);
        make.max_send_size = make.max_send_size.max(128);
    }
}

/// Some of what may befall datagrams.
fn loss(faults: &mut Faults, dice: &mut Dice) {
    let mut one = |of: &[u32]| if dice.chance(600) { dice.pick(of) } else { 0 };
    faults.drop = one(&[5, 50, 100, 300]);
    faults.duplicate = one(&[5, 50, 300]);
    faults.corrupt = one(&[5, 50, 100]);
}

/// The pairs of nodes that may lose each other by faults of their rails, and from when on.
fn severed(nodes: u32, makes: &[Make], links: Option<Links>, faults: &Faults) -> Vec<(u32, u32, u64)> {
    let mut severed = vec![];
    for (one, other) in (0..nodes).flat_map(|one| (one..nodes).map(move |other| (one, other))) {
        let rails = (0u32..).zip(makes);
        let out: Vec<Vec<Window>> = rails.map(|(rail, make)| out(one, other, rail, *make, links, faults)).collect();
        let starts = out.iter().flatten().map(|window| window.0);
        let within = |at: u64| move |window: &Window| (window.0..window.1).contains(&at);
        let since = if links.is_some() && FAILOVER {
            starts.filter(|at| out.iter().all(|out| out.iter().any(within(*at)))).min()
        } else {
            starts.min()
        };
        severed.extend(since.map(|since| (one, other, since)));
    }
    severed
}

/// When a rail between two nodes may be down.
fn out(one: u32, other: u32, rail: u32, make: Make, links: Option<Links>, faults: &Faults) -> Vec<Window> {
    let ours = |node: u32| (node == one || node == other) && one != other;
    let outages = faults.outages.iter();
    let outages = outages.filter(|outage| ours(outage.node) && outage.rail.is_none_or(|other| other == rail));
    let outages: Vec<Window> = outages.map(|outage| outage.window).collect();
    let Some(links) = links else { return outages };
    let parts = faults.partitions.iter().filter(|part| {
        ours(part.from) && ours(part.to) && part.from != part.to && part.rail.is_none_or(|other| other == rail)
    });
    let stalls = faults.stalls.iter().filter(|stall| [one, other].contains(&stall.0) && stall.1 == rail);
    let mut silent: Vec<Window> = parts.map(|part| part.window).chain(stalls.map(|stall| stall.2)).collect();
    let mut out = vec![];
    (if make.datagrams { &mut silent } else { &mut out }).extend(outages);
    // Those that are over soon enough are survived; several may come one after the other.
    if silent.iter().map(|window| window.1 - window.0).fold(0, u64::saturating_add) >= links.dead_after / 2 {
        out.extend(silent);
    }
    out.iter_mut().for_each(|window| window.1 = window.1.saturating_add(links.slack()));
    out
}

/// Nanoseconds in which mishaps begin.
const TIME: u64 = 1 << 22;

/// One to four of a kind.
fn some<T>(dice: &mut Dice, mut one: impl FnMut(&mut Dice) -> T) -> Vec<T> {
    (0..dice.between(1, 4)).map(|_| one(dice)).collect()
}

fn node(nodes: u32, dice: &mut Dice) -> u32 {
    dice.below(nodes.into()) as u32
}

fn window(time: u64, dice: &mut Dice) -> Window {
    let since = dice.length(time);
    (since, since + 1 + dice.length(time * 2))
}

fn partition(nodes: u32, rails: u32, time: u64, dice: &mut Dice) -> Partition {
    let (from, to) = (node(nodes, dice), node(nodes, dice));
    let rail = dice.chance(500).then(|| node(rails, dice));
    Partition { from, to, both: dice.chance(500), rail, window: window(time, dice) }
}

fn outage(nodes: u32, rails: u32, time: u64, dice: &mut Dice) -> Outage {
    let (node, rail) = (node(nodes, dice), dice.chance(700).then(|| node(rails, dice)));
    let window = window(time, dice);
    Outage { node, rail, window: if dice.chance(200) { (window.0, FOR_EVER) } else { window } }
}

fn death(nodes: u32, dice: &mut Dice) -> Death {
    let back_after = dice.chance(600).then(|| dice.length(TIME / 4));
    Death { node: node(nodes, dice), calls: 1 + dice.length(1 << 13), back_after }
}

/// What a job is like, in a few lines.
pub fn describe(setting: &Setting) -> String {
    let Setting { config, makes, links, faults, deaths, calm_at, .. } = setting;
    let nodes = setting.plan.programs.len();
    format!("{nodes} nodes, {config:?}\n{makes:?}\n{links:?}\n{faults:?}\n{deaths:?}, calm at {calm_at:?}")
}
