//! The families of jobs with random faults: any set of them, or one kind only.

use towline_core::pml::Config;

use super::disconnections::{disconnected, stalled_pairs};
use super::families::{MESSAGES, fault_free, with_windows};
use super::faults::{
    TIME, choose_stall_timeout, death, loss, missing, node, node_stall, one_to_four, outage, partition, toggle, window,
};
use super::limits::{config, linkable, links, random_rails};
use crate::random::Random;
use crate::sim::job::{LinkParams, Setting};
use crate::sim::network::faults::{Faults, RailParams, Window};
use crate::sim::plan::{Plan, Shape};

/// Faults that [`only`] can cause without any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SingleFault {
    /// Rails are disabled and enabled.
    Toggles,
    /// One rail loses half of its frames, for longer than links tolerate.
    LossyRail,
    /// Nodes are stalled, with a stall time-out.
    NodeStalls,
    /// Nodes are stalled at hosts that answer, for longer than a link tolerates silence. Others are lost with their
    /// host.
    Hosts,
    /// Nodes without a common rail.
    MissingRails,
}

/// The job of a seed with a random set of faults.
pub fn faulty(seed: u64) -> Setting {
    with_windows(random_faults(Random::new(seed ^ 0xfa17), None), &mut Random::new(seed ^ 0x0ab1))
}

/// A job with this fault only, besides the faults of frames that links tolerate.
pub fn only(seed: u64, fault: SingleFault) -> Setting {
    random_faults(Random::new(seed ^ 0x0417), Some(fault))
}

/// Draws the random numbers of a job step by step. A change of the order would change the jobs of all seeds.
fn random_faults(mut random: Random, only: Option<SingleFault>) -> Setting {
    let nodes = number_of_nodes(&mut random);
    let mut rail_params = random_rails(&mut random);
    if only == Some(SingleFault::LossyRail) && rail_params.len() == 1 {
        rail_params.push(rail_params[0]);
    }
    let mut links = has_links(only, &mut random).then(|| links(nodes, &mut random));
    let mut faults = frame_faults(links.is_some(), &mut rail_params, &mut random);
    let single = SingleFaults::choose(only, &mut random);
    if let Some(links) = links.as_mut().filter(|_| single.hosts || single.node_stalls) {
        faults.hosts_answer = true;
        faults.false_refusals = random.pick(&[0, 5, 50]);
        (links.patient, links.hello_attempts) = (true, 6);
        if single.node_stalls || only.is_some() {
            links.dead_after = links.dead_after.min(100_000_000);
        }
    }
    // The longest faults last as long as links tolerate, and longer.
    let time = links.map_or(TIME, |links| links.dead_after.max(TIME));
    let further = FurtherFaults::choose(only, &mut random);
    let rails = rail_params.len() as u32;
    further.add_to(&mut faults, nodes, rails, time, &mut random);
    let has_deaths = further.deaths || only == Some(SingleFault::Hosts);
    let deaths = if has_deaths { one_to_four(&mut random, |random| death(nodes, random)) } else { vec![] };
    let toggles =
        if single.toggles { one_to_four(&mut random, |random| toggle(nodes, rails, time, random)) } else { vec![] };
    if single.lossy_rail && rails > 1 && links.is_some() {
        faults.lossy_rail = Some(lossy_rail(&mut rail_params, time, &mut random));
    }
    if single.missing_rails {
        faults.missing = one_to_four(&mut random, |random| missing(nodes, rails, random));
        faults.missing.retain(|missing| missing.one != missing.other);
    }
    let stall_timeout = single.node_stalls.then(|| choose_stall_timeout(&faults, &toggles, links));
    if let (Some(links), Some(stall)) = (links.as_mut(), stall_timeout) {
        outlast_stalls(links, stall, nodes);
    }
    let has_node_stalls = single.node_stalls || faults.hosts_answer || random.chance(200);
    if has_node_stalls && only.is_none_or(|only| matches!(only, SingleFault::NodeStalls | SingleFault::Hosts)) {
        let dead_after = links.filter(|_| faults.hosts_answer).map(|links| links.dead_after);
        faults.node_stalls = one_to_four(&mut random, |random| node_stall(nodes, dead_after, stall_timeout, random));
    }
    let mut disconnected = disconnected(nodes, &rail_params, links, &faults);
    let stalled_pairs = stalled_pairs(nodes, &faults, stall_timeout, &mut disconnected);
    let faults_end_at = further.end.then(|| random.length(time));
    let wild = deaths.is_empty() && disconnected.is_empty();
    let (config, plan) = config_and_plan(nodes, &rail_params, wild, &mut random);
    let pace = random.pick(&[50, 500, 5000, 20_000]);
    let fault_free = fault_free(config, rail_params, faults, plan, pace, random);
    Setting { links, deaths, disconnected, stalled_pairs, toggles, stall_timeout, faults_end_at, ..fault_free }
}

fn number_of_nodes(random: &mut Random) -> u32 {
    let nodes = match random.below(10) {
        0 => random.between(9, 16),
        1..4 => random.between(4, 8),
        _ => random.between(2, 4),
    };
    nodes as u32
}

/// Whether rails are below links.
fn has_links(only: Option<SingleFault>, random: &mut Random) -> bool {
    match only {
        None => random.chance(700),
        Some(SingleFault::Toggles) => random.chance(500),
        Some(fault) => matches!(fault, SingleFault::LossyRail | SingleFault::Hosts),
    }
}

/// The faults of frames: those of reliable rails, and with links those of datagrams. Adapts rails for links.
fn frame_faults(has_links: bool, rail_params: &mut [RailParams], random: &mut Random) -> Faults {
    let mut faults = if random.chance(300) { Faults::default() } else { Faults::reliable(random) };
    if has_links {
        linkable(rail_params, random);
        loss(&mut faults, random);
    } else if faults.expose != 0 {
        faults.unreadable = faults.unreadable.max(300); // few rails expose bodies
    }
    faults
}

/// Which faults a job has of those that can be its only one: each with its own chance, or that one.
struct SingleFaults {
    toggles: bool,
    lossy_rail: bool,
    node_stalls: bool,
    hosts: bool,
    missing_rails: bool,
}

impl SingleFaults {
    fn choose(only: Option<SingleFault>, random: &mut Random) -> Self {
        let mut has = |fault: SingleFault, permille| only.map_or_else(|| random.chance(permille), |one| one == fault);
        Self {
            toggles: has(SingleFault::Toggles, 250),
            lossy_rail: has(SingleFault::LossyRail, 150),
            node_stalls: has(SingleFault::NodeStalls, 200),
            hosts: has(SingleFault::Hosts, 300),
            missing_rails: has(SingleFault::MissingRails, 150),
        }
    }
}

/// Which other faults a job has: none of them beside a single fault.
struct FurtherFaults {
    partitions: bool,
    rail_stalls: bool,
    outages: bool,
    deaths: bool,
    /// All faults end before the job does.
    end: bool,
}

impl FurtherFaults {
    fn choose(only: Option<SingleFault>, random: &mut Random) -> Self {
        // The numbers are drawn beside a single fault, too.
        let mut has = |permille| random.chance(permille) && only.is_none();
        Self { partitions: has(400), rail_stalls: has(400), outages: has(300), deaths: has(400), end: has(500) }
    }

    /// Adds the faults of the network.
    fn add_to(&self, faults: &mut Faults, nodes: u32, rails: u32, time: u64, random: &mut Random) {
        if self.partitions {
            faults.partitions = one_to_four(random, |random| partition(nodes, rails, time, random));
        }
        if self.rail_stalls {
            faults.rail_stalls =
                one_to_four(random, |random| (node(nodes, random), node(rails, random), window(time, random)));
        }
        if self.outages {
            faults.outages = one_to_four(random, |random| outage(nodes, rails, time, random));
        }
    }
}

/// A rail that loses half of its frames, and when.
fn lossy_rail(rail_params: &mut [RailParams], time: u64, random: &mut Random) -> (u32, Window) {
    let rail = node(rail_params.len() as u32, random);
    rail_params[rail as usize].datagrams = true;
    let at = random.length(time);
    (rail, (at, at + random.pick(&[1, 2, 4]) * time))
}

/// Sets links up for nodes that are stalled until the stall time-out.
fn outlast_stalls(links: &mut LinkParams, stall_timeout: u64, nodes: u32) {
    // A peer that was never connected is not given up as stalled.
    links.hello_attempts = stall_timeout / links.dead_after + 1;
    // With fewer slots, stalled nodes may hold all of them, and answers to other nodes wait.
    links.slots = links.slots.max(4 * nodes);
}

fn config_and_plan(nodes: u32, rail_params: &[RailParams], wild: bool, random: &mut Random) -> (Config, Plan) {
    let window = random.pick(&[1, 2, 3, 4, 8, 16, 64]);
    let fragment = rail_params.iter().map(|params| u64::from(params.max_send_size)).min().unwrap_or(1);
    let longest = random.pick(&[64, 1000, 10_000, 100_000]).min(fragment * 100);
    let comms = random.between(1, 3) as u32;
    let shape = Shape { nodes, messages: MESSAGES / 2, window, longest, comms, wild };
    let config = config(nodes, window, random);
    (config, Plan::new(shape, random))
}
