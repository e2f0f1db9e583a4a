//! Random faults, one at a time.

use crate::random::Random;
use crate::sim::job::{Death, LinkParams, Toggle};
use crate::sim::network::faults::{FOR_EVER, Faults, Missing, Outage, Partition, Window};

/// Random faults of datagrams.
pub(super) fn loss(faults: &mut Faults, random: &mut Random) {
    let mut one = |of: &[u32]| if random.chance(600) { random.pick(of) } else { 0 };
    faults.drop = one(&[5, 50, 100, 300]);
    faults.duplicate = one(&[5, 50, 300]);
    faults.corrupt = one(&[5, 50, 100]);
}

/// Nanoseconds in which faults begin.
pub(super) const TIME: u64 = 1 << 22;

/// One to four faults of a kind.
pub(super) fn one_to_four<T>(random: &mut Random, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
    (0..random.between(1, 4)).map(|_| one(random)).collect()
}

pub(super) fn node(nodes: u32, random: &mut Random) -> u32 {
    random.below(nodes.into()) as u32
}

pub(super) fn window(time: u64, random: &mut Random) -> Window {
    let since = random.length(time);
    (since, since + 1 + random.length(time * 2))
}

pub(super) fn partition(nodes: u32, rails: u32, time: u64, random: &mut Random) -> Partition {
    let (from, to) = (node(nodes, random), node(nodes, random));
    let rail = random.chance(500).then(|| node(rails, random));
    Partition { from, to, both: random.chance(500), rail, window: window(time, random) }
}

pub(super) fn outage(nodes: u32, rails: u32, time: u64, random: &mut Random) -> Outage {
    let (node, rail) = (node(nodes, random), random.chance(700).then(|| node(rails, random)));
    let window = window(time, random);
    Outage { node, rail, window: if random.chance(200) { (window.0, FOR_EVER) } else { window } }
}

pub(super) fn death(nodes: u32, random: &mut Random) -> Death {
    let back_after = random.chance(600).then(|| random.length(TIME / 4));
    let with_host = random.chance(300);
    Death { node: node(nodes, random), calls: 1 + random.length(1 << 13), back_after, with_host }
}

pub(super) fn toggle(nodes: u32, rails: u32, time: u64, random: &mut Random) -> Toggle {
    let (node, rail) = (node(nodes, random), node(rails, random));
    Toggle { node, rail, calls: 1 + random.length(1 << 12), span: 1 + random.length(time * 2) }
}

pub(super) fn missing(nodes: u32, rails: u32, random: &mut Random) -> Missing {
    let (one, other) = (node(nodes, random), node(nodes, random));
    let rail = random.chance(700).then(|| node(rails, random));
    Missing { one: one.min(other), other: one.max(other), rail }
}

/// A stall time-out that only a stalled node reaches: longer than all other silence together.
pub(super) fn choose_stall_timeout(faults: &Faults, toggles: &[Toggle], links: Option<LinkParams>) -> u64 {
    let windows =
        faults.partitions.iter().map(|part| part.window).chain(faults.rail_stalls.iter().map(|stall| stall.2));
    let windows = windows
        .chain(faults.outages.iter().map(|outage| outage.window))
        .chain(faults.lossy_rail.map(|lossy_rail| lossy_rail.1));
    let windows = windows.filter(|window| window.1 != FOR_EVER).map(|window| window.1 - window.0);
    let silence: u64 = windows.chain(toggles.iter().map(|toggle| toggle.span)).sum();
    2 * silence + links.map_or(TIME, |links| links.dead_after * 8)
}

/// A stall of a node. With a stall time-out it is a fraction of it, or several times as long. Otherwise, if hosts
/// answer, it may be longer than a link tolerates silence.
pub(super) fn node_stall(
    nodes: u32,
    dead_after: Option<u64>,
    stall: Option<u64>,
    random: &mut Random,
) -> (u32, Window) {
    let since = random.length(TIME / 2);
    let span = match (stall, dead_after) {
        (Some(stall), _) if random.chance(400) => stall * 3 + random.below(stall),
        (Some(stall), _) => stall / 16 + random.below(stall / 16),
        (None, Some(dead_after)) if random.chance(500) => dead_after + dead_after / 2 + random.below(dead_after * 2),
        (None, _) => 1 + random.length(TIME),
    };
    (node(nodes, random), (since, since + span))
}
