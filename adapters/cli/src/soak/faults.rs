//! The faults of a job of real processes, chosen by seed.

use std::time::Duration;

use towline_host_tests::random::Random;
use towline_host_tests::relay::{DatagramFaults, Direction};

/// A fault. A fault with a span ends after that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A rank is stopped.
    Stop { rank: u32, span: Duration },
    /// A rank is killed.
    Kill { rank: u32 },
    /// All connections of a link break while in use.
    Cut { link: u32 },
    /// All connections of a link break, and new ones are refused.
    Down { link: u32, span: Duration },
    /// Data on a link is held back.
    Freeze { link: u32, direction: Direction, span: Duration },
    /// Data on a link is delayed.
    Slow { link: u32, span: Duration },
    /// Datagrams are lost, duplicated and delayed.
    DatagramFaults { trouble: DatagramFaults, span: Duration },
    /// Nothing arrives from one rank at another, in this direction only.
    Part { from: u32, to: u32, span: Duration },
}

/// Names of the kinds of faults, for the counts.
pub const KINDS: [&str; 8] = [
    "ranks stopped",
    "ranks killed",
    "links cut",
    "links down for a while",
    "links frozen",
    "links slowed",
    "times of higher loss",
    "one-way partitions",
];

impl Fault {
    /// Its index in [`KINDS`].
    pub const fn kind(self) -> usize {
        match self {
            Self::Stop { .. } => 0,
            Self::Kill { .. } => 1,
            Self::Cut { .. } => 2,
            Self::Down { .. } => 3,
            Self::Freeze { .. } => 4,
            Self::Slow { .. } => 5,
            Self::DatagramFaults { .. } => 6,
            Self::Part { .. } => 7,
        }
    }

    /// Whether the end of one fault would also end the other.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Stop { rank: one, .. }, Self::Stop { rank: other, .. }) => one == other,
            (Self::Down { link: one, .. }, Self::Down { link: other, .. } | Self::Cut { link: other })
            | (Self::Freeze { link: one, .. }, Self::Freeze { link: other, .. })
            | (Self::Slow { link: one, .. }, Self::Slow { link: other, .. }) => one == other,
            (Self::DatagramFaults { .. }, Self::DatagramFaults { .. }) => true,
            (Self::Part { from, to, .. }, Self::Part { from: other, to: another, .. }) => {
                (from, to) == (other, another)
            }
            _ => false,
        }
    }

    /// How long it lasts.
    pub const fn span(self) -> Option<Duration> {
        match self {
            Self::Stop { span, .. }
            | Self::Down { span, .. }
            | Self::Freeze { span, .. }
            | Self::Slow { span, .. }
            | Self::DatagramFaults { span, .. }
            | Self::Part { span, .. } => Some(span),
            Self::Kill { .. } | Self::Cut { .. } => None,
        }
    }
}

/// The plan of a job, by its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub rounds: u32,
    /// Longest message, in bytes.
    pub most: u64,
    /// Whether each rank has a progress thread.
    pub thread: bool,
    pub victim: Option<u32>,
    /// Rounds after the victim was restarted; 0: it is not restarted.
    pub rounds_after_restart: u32,
    /// Faults of datagrams from the beginning.
    pub trouble: DatagramFaults,
    /// Each fault, with the round that a rank must have reached before it begins, and that rank.
    pub faults: Vec<(u32, u32, Fault)>,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64, transport: &str, ranks: u32, links: u32, most: u64) -> Self {
        let mut random = Random::new(seed);
        let rounds = random.between(10, 60) as u32;
        let thread = random.chance(500);
        let victim = random.chance(300).then(|| random.below(ranks.into()) as u32);
        let trouble = if transport == "udp" { trouble(&mut random, 50) } else { DatagramFaults::default() };
        let mut plan =
            Self { seed, rounds, most, thread, victim, rounds_after_restart: 0, trouble, faults: Vec::new() };
        // One link gets no fault: if all links broke at once, the peer would be lost.
        let spared = random.below(links.into()) as u32;
        for _ in 0..random.between(1, 6) {
            let rank = random.below(ranks.into()) as u32;
            let fault = plan.fault(&mut random, transport, (rank, ranks), (spared, links));
            plan.faults.push((random.below(rounds.into()) as u32, rank, fault));
        }
        if let Some(rank) = victim {
            plan.faults.push((random.below(rounds.into()) as u32, rank, Fault::Kill { rank }));
        }
        if victim.is_some() && random.chance(600) {
            plan.rounds_after_restart = random.between(5, 20) as u32;
            for _ in 0..random.below(3) {
                let rank = random.below(ranks.into()) as u32;
                let fault = plan.fault(&mut random, transport, (rank, ranks), (spared, links));
                plan.faults.push((rounds + random.below(plan.rounds_after_restart.into()) as u32, rank, fault));
            }
        }
        plan.faults.sort_by_key(|(round, ..)| *round);
        plan
    }

    fn fault(
        &self,
        random: &mut Random,
        transport: &str,
        (rank, ranks): (u32, u32),
        (spared, links): (u32, u32),
    ) -> Fault {
        let span = Duration::from_millis(random.between(1, 1000));
        let link = (spared + 1 + random.below(u64::from(links).saturating_sub(1)) as u32) % links;
        match (transport, random.below(6)) {
            ("sm", _) | (_, 0) => Fault::Stop { rank, span },
            ("udp", 1 | 2) => {
                let to = (rank + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks;
                Fault::Part { from: rank, to, span }
            }
            ("udp", _) => Fault::DatagramFaults { trouble: trouble(random, 300), span },
            (_, 1 | 2) if links > 1 => Fault::Cut { link },
            (_, 3) if links > 1 => Fault::Down { link, span: 2 * span },
            (_, 4) => Fault::Slow { link, span },
            _ => {
                let direction = random.pick(&[Direction::ToRank, Direction::ToCaller, Direction::Both]);
                // At times longer than the time-out of a rank, if a progress thread is there to notice.
                let long = links > 1 && self.thread && random.chance(150);
                Fault::Freeze { link, direction, span: if long { Duration::from_millis(6500) } else { span } }
            }
        }
    }
}

fn trouble(random: &mut Random, most: u64) -> DatagramFaults {
    let mut chance = |most| random.below(most + 1) as u32;
    let (lose, duplicate, delay) = (chance(most), chance(50), chance(200));
    DatagramFaults { lose, duplicate, delay, most_delay: Duration::from_micros(random.between(100, 20_000)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_gives_one_plan_and_all_faults_occur() {
        for (transport, links, kinds) in [("sm", 1, 2), ("tcp", 3, 6), ("tcp", 1, 4), ("udp", 1, 4)] {
            let mut seen = [false; KINDS.len()];
            for seed in 0..300 {
                let plan = Plan::new(seed, transport, 3, links, 100);
                assert_eq!(format!("{plan:?}"), format!("{:?}", Plan::new(seed, transport, 3, links, 100)));
                let mut touched = std::collections::HashSet::new();
                for (round, rank, fault) in plan.faults {
                    assert!(round < plan.rounds + plan.rounds_after_restart && rank < 3);
                    seen[fault.kind()] = true;
                    if let Fault::Cut { link } | Fault::Down { link, .. } = fault {
                        touched.insert(link);
                    }
                }
                assert!(touched.len() < links as usize, "one link has no fault");
            }
            assert_eq!(seen.iter().filter(|seen| **seen).count(), kinds, "{transport} with {links} links");
        }
    }
}
