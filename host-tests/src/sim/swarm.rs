//! Jobs by seed: a random shape, random limits, a random set of faults.

use towline_core::pml::Config;

use super::faults::{FOR_EVER, Faults, Make, Outage, Partition, Window};
use super::job::{Death, Setting};
use super::plan::{Plan, Shape};
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
    Setting { config, makes, faults, deaths: vec![], severed: vec![], calm_at: None, plan, pace, dice }
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

/// The job with mishaps that belongs to a seed: a random set of them.
pub fn faulty(seed: u64) -> Setting {
    let mut dice = Dice::new(seed ^ 0xfa17);
    let nodes = match dice.below(10) {
        0 => dice.between(9, 16),
        1..4 => dice.between(4, 8),
        _ => dice.between(2, 4),
    } as u32;
    let makes = makes(&mut dice);
    let mut faults = if dice.chance(300) { Faults::default() } else { Faults::reliable(&mut dice) };
    let mut mishap = |permille| dice.chance(permille);
    let [parts, stalls, outages, dies, calms] = [400, 400, 200, 500, 500].map(&mut mishap);
    let rails = makes.len() as u32;
    if parts {
        faults.partitions = some(&mut dice, |dice| partition(nodes, rails, dice));
    }
    if stalls {
        faults.stalls = some(&mut dice, |dice| (node(nodes, dice), node(rails, dice), window(dice)));
    }
    if outages {
        faults.outages = some(&mut dice, |dice| outage(nodes, rails, dice));
    }
    let deaths = if dies { some(&mut dice, |dice| death(nodes, dice)) } else { vec![] };
    // A connection that breaks takes the peer with it where nothing mends it.
    let severed = faults.outages.iter().flat_map(|outage| {
        (0..nodes).filter(|other| *other != outage.node).map(|other| (outage.node, other, outage.window.0))
    });
    let severed: Vec<_> = severed.collect();
    let calm_at = calms.then(|| dice.length(TIME));
    let window = dice.pick(&[1, 2, 3, 4, 8, 16, 64]);
    let fragment = makes.iter().map(|make| u64::from(make.max_send_size)).min().unwrap_or(1);
    let longest = dice.pick(&[64, 1000, 10_000, 100_000]).min(fragment * 100);
    let comms = dice.between(1, 3) as u32;
    let wild = deaths.is_empty() && severed.is_empty();
    let shape = Shape { nodes, messages: MESSAGES / 2, window, longest, comms, wild };
    let config = config(nodes, window, &mut dice);
    let plan = Plan::new(shape, &mut dice);
    let pace = dice.pick(&[50, 500, 5000, 20_000]);
    Setting { config, makes, faults, deaths, severed, calm_at, plan, pace, dice }
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

fn window(dice: &mut Dice) -> Window {
    let since = dice.length(TIME);
    (since, since + 1 + dice.length(TIME))
}

fn partition(nodes: u32, rails: u32, dice: &mut Dice) -> Partition {
    let (from, to) = (node(nodes, dice), node(nodes, dice));
    let rail = dice.chance(500).then(|| node(rails, dice));
    Partition { from, to, both: dice.chance(500), rail, window: window(dice) }
}

fn outage(nodes: u32, rails: u32, dice: &mut Dice) -> Outage {
    let (node, rail) = (node(nodes, dice), dice.chance(700).then(|| node(rails, dice)));
    let window = window(dice);
    Outage { node, rail, window: if dice.chance(200) { (window.0, FOR_EVER) } else { window } }
}

fn death(nodes: u32, dice: &mut Dice) -> Death {
    let back_after = dice.chance(600).then(|| dice.length(TIME / 4));
    Death { node: node(nodes, dice), calls: 1 + dice.length(1 << 13), back_after }
}

/// What a job is like, in a few lines.
pub fn describe(setting: &Setting) -> String {
    let Setting { config, makes, faults, deaths, calm_at, .. } = setting;
    let nodes = setting.plan.programs.len();
    format!("{nodes} nodes, {config:?}\n{makes:?}\n{faults:?}\n{deaths:?}, calm at {calm_at:?}")
}
