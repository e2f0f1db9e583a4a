//! Random faults, one at a time.

use crate::dice::Dice;
use crate::sim::job::{Death, Links, Toggle};
use crate::sim::network::faults::{FOR_EVER, Faults, Missing, Outage, Partition, Window};

/// Some of what may befall datagrams.
pub(super) fn loss(faults: &mut Faults, dice: &mut Dice) {
    let mut one = |of: &[u32]| if dice.chance(600) { dice.pick(of) } else { 0 };
    faults.drop = one(&[5, 50, 100, 300]);
    faults.duplicate = one(&[5, 50, 300]);
    faults.corrupt = one(&[5, 50, 100]);
}

/// Nanoseconds in which mishaps begin.
pub(super) const TIME: u64 = 1 << 22;

/// One to four of a kind.
pub(super) fn some<T>(dice: &mut Dice, mut one: impl FnMut(&mut Dice) -> T) -> Vec<T> {
    (0..dice.between(1, 4)).map(|_| one(dice)).collect()
}

pub(super) fn node(nodes: u32, dice: &mut Dice) -> u32 {
    dice.below(nodes.into()) as u32
}

pub(super) fn window(time: u64, dice: &mut Dice) -> Window {
    let since = dice.length(time);
    (since, since + 1 + dice.length(time * 2))
}

pub(super) fn partition(nodes: u32, rails: u32, time: u64, dice: &mut Dice) -> Partition {
    let (from, to) = (node(nodes, dice), node(nodes, dice));
    let rail = dice.chance(500).then(|| node(rails, dice));
    Partition { from, to, both: dice.chance(500), rail, window: window(time, dice) }
}

pub(super) fn outage(nodes: u32, rails: u32, time: u64, dice: &mut Dice) -> Outage {
    let (node, rail) = (node(nodes, dice), dice.chance(700).then(|| node(rails, dice)));
    let window = window(time, dice);
    Outage { node, rail, window: if dice.chance(200) { (window.0, FOR_EVER) } else { window } }
}

pub(super) fn death(nodes: u32, dice: &mut Dice) -> Death {
    let back_after = dice.chance(600).then(|| dice.length(TIME / 4));
    let with_host = dice.chance(300);
    Death { node: node(nodes, dice), calls: 1 + dice.length(1 << 13), back_after, with_host }
}

pub(super) fn toggle(nodes: u32, rails: u32, time: u64, dice: &mut Dice) -> Toggle {
    let (node, rail) = (node(nodes, dice), node(rails, dice));
    Toggle { node, rail, calls: 1 + dice.length(1 << 12), span: 1 + dice.length(time * 2) }
}

pub(super) fn missing(nodes: u32, rails: u32, dice: &mut Dice) -> Missing {
    let (one, other) = (node(nodes, dice), node(nodes, dice));
    let rail = dice.chance(700).then(|| node(rails, dice));
    Missing { one: one.min(other), other: one.max(other), rail }
}

/// A stall time-out that is not reached but by a node that stands still: longer than all other silence together.
pub(super) fn patience(faults: &Faults, toggles: &[Toggle], links: Option<Links>) -> u64 {
    let windows = faults.partitions.iter().map(|part| part.window).chain(faults.stalls.iter().map(|stall| stall.2));
    let windows =
        windows.chain(faults.outages.iter().map(|outage| outage.window)).chain(faults.half.map(|half| half.1));
    let windows = windows.filter(|window| window.1 != FOR_EVER).map(|window| window.1 - window.0);
    let silence: u64 = windows.chain(toggles.iter().map(|toggle| toggle.span)).sum();
    2 * silence + links.map_or(TIME, |links| links.dead_after * 8)
}

/// With a stall time-out a rest is a fraction of it, or several times as long; else, where hosts answer, it may be longer than
/// a silent link lives.
pub(super) fn rest(nodes: u32, patience: Option<u64>, stall: Option<u64>, dice: &mut Dice) -> (u32, Window) {
    let since = dice.length(TIME / 2);
    let span = match (stall, patience) {
        (Some(stall), _) if dice.chance(400) => stall * 3 + dice.below(stall),
        (Some(stall), _) => stall / 16 + dice.below(stall / 16),
        (None, Some(patience)) if dice.chance(500) => patience + patience / 2 + dice.below(patience * 2),
        (None, _) => 1 + dice.length(TIME),
    };
    (node(nodes, dice), (since, since + span))
}
