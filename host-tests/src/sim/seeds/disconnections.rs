//! Computes which nodes may lose each other because of the faults of a job.

use std::collections::BTreeSet;

use crate::sim::job::LinkParams;
use crate::sim::network::faults::{Faults, RailParams, Window};

/// The pairs of nodes that may lose each other because of faults of their rails, and since when.
pub(super) fn disconnected(
    nodes: u32,
    rail_params: &[RailParams],
    links: Option<LinkParams>,
    faults: &Faults,
) -> Vec<(u32, u32, u64)> {
    let mut disconnected = vec![];
    for (one, other) in (0..nodes).flat_map(|one| (one..nodes).map(move |other| (one, other))) {
        let missing = |rail| faults.missing.iter().any(|missing| missing.holds(one, other, rail));
        let rails = (0u32..).zip(rail_params).filter(|(rail, _)| !missing(*rail));
        let out: Vec<Vec<Window>> = rails.map(|(rail, params)| out(one, other, rail, *params, links, faults)).collect();
        if out.is_empty() {
            disconnected.push((one, other, 0));
            continue;
        }
        let starts = out.iter().flatten().map(|window| window.0);
        let within = |at: u64| move |window: &Window| (window.0..window.1).contains(&at);
        // Frames of a link that is down are sent over other links.
        let since = if links.is_some() {
            starts.filter(|at| out.iter().all(|out| out.iter().any(within(*at)))).min()
        } else {
            starts.min()
        };
        disconnected.extend(since.map(|since| (one, other, since)));
    }
    disconnected
}

/// The windows in which a rail between two nodes may be down.
pub(super) fn out(
    one: u32,
    other: u32,
    rail: u32,
    params: RailParams,
    links: Option<LinkParams>,
    faults: &Faults,
) -> Vec<Window> {
    let ours = |node: u32| (node == one || node == other) && one != other;
    let outages = faults.outages.iter();
    let outages = outages.filter(|outage| ours(outage.node) && outage.rail.is_none_or(|other| other == rail));
    let outages: Vec<Window> = outages.map(|outage| outage.window).collect();
    let Some(links) = links else { return outages };
    let parts = faults.partitions.iter().filter(|part| {
        ours(part.from) && ours(part.to) && part.from != part.to && part.rail.is_none_or(|other| other == rail)
    });
    let stalls = faults.rail_stalls.iter().filter(|stall| [one, other].contains(&stall.0) && stall.1 == rail);
    let node_stalls = faults.node_stalls.iter().filter(|stall| !faults.hosts_answer && [one, other].contains(&stall.0));
    let lossy_rail = faults.lossy_rail.iter().filter(|lossy_rail| lossy_rail.0 == rail).map(|lossy_rail| lossy_rail.1);
    let silent =
        parts.map(|part| part.window).chain(stalls.map(|stall| stall.2)).chain(node_stalls.map(|stall| stall.1));
    let mut silent: Vec<Window> = silent.chain(lossy_rail).collect();
    let mut out = vec![];
    (if params.datagrams { &mut silent } else { &mut out }).extend(outages);
    // Links survive short silences, but several may follow each other.
    if silent.iter().map(|window| window.1 - window.0).fold(0, u64::saturating_add) >= links.dead_after / 2 {
        out.extend(silent);
    }
    out.iter_mut().for_each(|window| window.1 = window.1.saturating_add(links.slack()));
    out
}

/// The pairs that only a stall separates, the stalled node first. Adds them to `disconnected` too, with the lower node first.
pub(super) fn stalled_pairs(
    nodes: u32,
    faults: &Faults,
    stall: Option<u64>,
    disconnected: &mut Vec<(u32, u32, u64)>,
) -> BTreeSet<(u32, u32)> {
    let mut stalled_pairs = BTreeSet::new();
    let before = disconnected.clone();
    for (node, window) in &faults.node_stalls {
        let long = stall.is_some_and(|stall| window.1 - window.0 > stall);
        for other in (0..nodes).filter(|other| long && other != node) {
            let pair = (*node.min(&other), other.max(*node));
            disconnected.push((pair.0, pair.1, window.0));
            if !before.iter().any(|(one, other, _)| (*one, *other) == pair) {
                stalled_pairs.insert((*node, other));
            }
        }
    }
    stalled_pairs
}
