//! Which rails carry messages to a peer.
//!
//! Rails are asked rank by rank, highest exclusivity first. The first rank with a rail that reaches the peer gets it,
//! and all rails of that rank that reach it share it; lower ranks are left. A rail with put and get of its own is asked
//! in any case, since one-sided traffic may use it though messages go elsewhere (`btl.h` 3.3.0, `MCA_BTL_FLAGS_RDMA`).
//! The result does not depend on the order in which rails were loaded.
//!
//! ```
//! use towline_core::btl::selection::{Candidate, Report, Verdict, select};
//! use towline_core::rail::{Capabilities, Endpoint, Peer, Unreachable};
//!
//! let mut rails = [
//!     Candidate::new("tcp", 0, Capabilities::SEND),
//!     Candidate::new("sm", 32768, Capabilities::SEND),
//! ];
//! // Peer 7 is on another host, so sm says no.
//! let taken = select(&mut rails, |rail| if rail == 1 { Err(Unreachable::OtherHost) } else { Ok(Endpoint(0)) });
//! assert_eq!(taken, 1);
//! assert_eq!(rails[0].verdict, Verdict::Taken(Endpoint(0)));
//! assert_eq!(Report { peer: Peer(7), rails: &rails }.to_string(), "peer 7: \
//!     tcp taken (exclusivity 0), sm left (unreachable: the peer is on another host)");
//! ```

use core::fmt;

use crate::rail::attributes::{Attributes, Capabilities};
use crate::rail::{Endpoint, Peer, Unreachable};

/// One rail in the choice for one peer: what counts in the choice, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Candidate {
    /// The rail's name.
    pub rail: &'static str,
    /// Its rank.
    pub exclusivity: u32,
    /// What it promises.
    pub capabilities: Capabilities,
    /// What came of it, after [`select`].
    pub verdict: Verdict,
}

/// What came of one rail for one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Verdict {
    /// Nobody chose yet.
    Undecided,
    /// It carries messages to the peer, and one-sided operations if it can.
    Taken(Endpoint),
    /// It reaches the peer for put and get alone: messages go by a rail of higher exclusivity, or it has no send.
    OneSided(Endpoint),
    /// It was not asked: a rail of higher exclusivity has the peer.
    Outranked {
        /// That rail; the first by name where several share the peer.
        by: &'static str,
        /// That rail's exclusivity.
        exclusivity: u32,
    },
    /// It cannot reach the peer.
    Unreachable(Unreachable),
    /// It has neither send nor put nor get, so it was not asked.
    Useless,
}

impl Candidate {
    /// A rail that is up for choice.
    pub const fn new(rail: &'static str, exclusivity: u32, capabilities: Capabilities) -> Self {
        Self { rail, exclusivity, capabilities, verdict: Verdict::Undecided }
    }

    /// The rail with these attributes.
    pub const fn of(attributes: &Attributes) -> Self {
        Self::new(attributes.name, attributes.exclusivity, attributes.capabilities)
    }

    /// The endpoint for messages, if the rail was taken.
    pub const fn for_messages(&self) -> Option<Endpoint> {
        match self.verdict {
            Verdict::Taken(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The endpoint for put, get and atomics, if the rail reaches the peer and has any of its own.
    pub fn for_one_sided(&self) -> Option<Endpoint> {
        match self.verdict {
            Verdict::Taken(endpoint) if self.is_one_sided() => Some(endpoint),
            Verdict::OneSided(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    const fn is_one_sided(&self) -> bool {
        self.capabilities.intersects(Capabilities::PUT.union(Capabilities::GET))
    }
}

/// Chooses the rails for one peer; returns how many carry messages, so 0 says that the peer cannot be reached.
///
/// `ask` adds the peer to the rail of that index, and is called at most once per rail.
pub fn select(rails: &mut [Candidate], mut ask: impl FnMut(usize) -> Result<Endpoint, Unreachable>) -> u32 {
    let mut winner: Option<(&'static str, u32)> = None;
    let mut taken = 0;
    let mut rank = rails.iter().map(|rail| rail.exclusivity).max();
    while let Some(exclusivity) = rank {
        let mut first: Option<&'static str> = None;
        for (index, rail) in rails.iter_mut().enumerate().filter(|(_, rail)| rail.exclusivity == exclusivity) {
            let sends = rail.capabilities.contains(Capabilities::SEND);
            rail.verdict = match winner {
                _ if !sends && !rail.is_one_sided() => Verdict::Useless,
                Some((by, exclusivity)) if !rail.is_one_sided() => Verdict::Outranked { by, exclusivity },
                _ => match ask(index) {
                    Err(reason) => Verdict::Unreachable(reason),
                    Ok(endpoint) if winner.is_some() || !sends => Verdict::OneSided(endpoint),
                    Ok(endpoint) => {
                        taken += 1;
                        first = Some(first.map_or(rail.rail, |first| first.min(rail.rail)));
                        Verdict::Taken(endpoint)
                    }
                },
            };
        }
        winner = winner.or(first.map(|first| (first, exclusivity)));
        rank = rails.iter().map(|rail| rail.exclusivity).filter(|lower| *lower < exclusivity).max();
    }
    taken
}

/// The choice for one peer, to be shown to people.
#[derive(Clone, Copy, Debug)]
pub struct Report<'l> {
    /// The peer.
    pub peer: Peer,
    /// All rails, with verdicts.
    pub rails: &'l [Candidate],
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}:", self.peer.0)?;
        for (index, rail) in self.rails.iter().enumerate() {
            write!(f, "{}{rail}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.rail)?;
        match self.verdict {
            Verdict::Undecided => f.write_str("not asked yet"),
            Verdict::Taken(_) => write!(f, "taken (exclusivity {})", self.exclusivity),
            Verdict::OneSided(_) => write!(f, "taken for put and get (exclusivity {})", self.exclusivity),
            Verdict::Outranked { by, exclusivity } => {
                write!(f, "left (exclusivity {} is lower than {exclusivity} of {by})", self.exclusivity)
            }
            Verdict::Unreachable(reason) => write!(f, "left (unreachable: {reason})"),
            Verdict::Useless => f.write_str("left (it promises neither send nor put nor get)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail::attributes::{EXCLUSIVITY_DEFAULT, EXCLUSIVITY_HIGH, EXCLUSIVITY_HOST, EXCLUSIVITY_LOW};
    use proptest::prelude::*;
    use std::{string::ToString, vec::Vec};

    const SEND: Capabilities = Capabilities::SEND;

    /// Names of the rails that carry messages, sorted.
    fn taken(rails: &[Candidate]) -> Vec<&'static str> {
        let mut names: Vec<_> = rails.iter().filter(|rail| rail.for_messages().is_some()).map(|r| r.rail).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn p5_truth_table() {
        // Ranks of LO, SM, IB, TCP as in the contract, which of them reach the peer, and which carry it then.
        let table: [([bool; 5], &[&str]); 8] = [
            ([true, true, true, true, true], &["lo"]),
            ([false, true, true, true, true], &["sm"]), // highest rank unreachable
            ([false, false, true, true, true], &["ib", "ib2", "tcp"]), // ties share
            ([false, false, true, false, true], &["ib", "tcp"]),
            ([false, false, false, false, true], &["tcp"]),
            ([true, false, false, false, false], &["lo"]),
            ([false, true, false, false, true], &["sm"]),
            ([false, false, false, false, false], &[]),
        ];
        for (reach, expected) in table {
            let mut rails = [("lo", 100), ("sm", 50), ("ib", 0), ("ib2", 0), ("tcp", 0)]
                .map(|(name, rank)| Candidate::new(name, rank, SEND));
            let answer = |rail: usize| {
                if reach[rail] { Ok(Endpoint(rail as u32)) } else { Err(Unreachable::NoNetwork) }
            };
            assert_eq!(select(&mut rails, answer) as usize, expected.len());
            assert_eq!(taken(&rails), expected, "{reach:?}");
        }
    }

    proptest! {
        #[test]
        fn p5_result_does_not_depend_on_load_order(
            spec in prop::collection::vec((0u32..4, any::<bool>(), 0u32..4), 1..7), order in any::<u64>(),
        ) {
            const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
            let caps = |bits: u32| [SEND, SEND | Capabilities::PUT, Capabilities::GET, Capabilities::empty()][bits as usize];
            let run = |indices: &[usize]| {
                let mut rails: Vec<_> =
                    indices.iter().map(|i| Candidate::new(NAMES[*i], spec[*i].0, caps(spec[*i].2))).collect();
                let mut asked = Vec::new();
                let count = select(&mut rails, |at| {
                    asked.push(at);
                    let i = indices[at];
                    if spec[i].1 { Ok(Endpoint(i as u32)) } else { Err(Unreachable::NoNetwork) }
                });
                asked.sort_unstable();
                assert!(asked.windows(2).all(|pair| pair[0] < pair[1]), "asked twice");
                rails.sort_by_key(|rail| rail.rail);
                (count, rails)
            };
            let straight: Vec<usize> = (0..spec.len()).collect();
            let mut shuffled = straight.clone();
            shuffled.sort_by_key(|i| order.rotate_left(*i as u32 * 9) & 0xff);
            let (count, rails) = run(&straight);
            prop_assert_eq!((count, rails.clone()), run(&shuffled));
            // What is taken is the best rank that reaches the peer by send, all of it and nothing else.
            let sends = |i: &usize| spec[*i].1 && caps(spec[*i].2).contains(SEND);
            let best = straight.iter().filter(|i| sends(i)).map(|i| spec[*i].0).max();
            for (i, rail) in rails.iter().enumerate() {
                prop_assert_eq!(rail.for_messages().is_some(), sends(&i) && Some(spec[i].0) == best);
                // B32: whatever reaches the peer and has put or get is listed for one-sided traffic.
                let one_sided = caps(spec[i].2).intersects(Capabilities::PUT | Capabilities::GET);
                prop_assert_eq!(rail.for_one_sided().is_some(), one_sided && spec[i].1);
            }
        }
    }

    #[test]
    fn b3_self_before_sm_before_network_before_last_resort() {
        assert_eq!((EXCLUSIVITY_HIGH, EXCLUSIVITY_DEFAULT, EXCLUSIVITY_LOW), (64 * 1024, 1024, 0));
        let all = [
            ("tcp", EXCLUSIVITY_LOW),
            ("verbs", EXCLUSIVITY_DEFAULT),
            ("self", EXCLUSIVITY_HIGH),
            ("sm", EXCLUSIVITY_HOST),
        ];
        let mut lost = Vec::new();
        for expected in ["self", "sm", "verbs", "tcp"] {
            let mut rails = all.map(|(name, rank)| Candidate::new(name, rank, SEND));
            select(
                &mut rails,
                |rail| {
                    if lost.contains(&all[rail].0) { Err(Unreachable::OtherHost) } else { Ok(Endpoint(0)) }
                },
            );
            assert_eq!(taken(&rails), [expected]);
            lost.push(expected);
        }
    }

    #[test]
    fn b32_rdma_rails_are_listed_for_one_sided_though_not_for_send() {
        let mut rails = [
            Candidate::new("sm", 50, SEND),
            Candidate::new("verbs", 10, SEND | Capabilities::PUT | Capabilities::GET),
            Candidate::new("dma", 99, Capabilities::GET),
            Candidate::new("tcp", 0, SEND),
        ];
        assert_eq!(select(&mut rails, |rail| Ok(Endpoint(rail as u32))), 1);
        assert_eq!(taken(&rails), ["sm"]);
        assert_eq!(rails.map(|rail| rail.for_one_sided()), [None, Some(Endpoint(1)), Some(Endpoint(2)), None]);
    }

    #[test]
    fn p5_the_report_says_why() {
        let mut rails = [
            Candidate::new("tcp", 0, SEND),
            Candidate::new("sm", 50, SEND),
            Candidate::new("dpu", 60, SEND),
            Candidate::new("none", 60, Capabilities::empty()),
        ];
        let ask = |rail| if rail == 2 { Err(Unreachable::NoCard) } else { Ok(Endpoint(9)) };
        select(&mut rails, ask);
        assert_eq!(
            Report { peer: Peer(3), rails: &rails }.to_string(),
            "peer 3: tcp left (exclusivity 0 is lower than 50 of sm), sm taken (exclusivity 50), \
             dpu left (unreachable: the peer published no card for this rail), \
             none left (it promises neither send nor put nor get)"
        );
    }
}
