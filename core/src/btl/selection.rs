//! Selection: which rails carry messages to a peer.
//!
//! Rails are asked in the order of their exclusivity, highest first. Messages use the rails that can send, reach the peer, and
//! have the highest exclusivity among such rails. Rails of lower exclusivity carry no messages. A rail with put or get of its
//! own is asked in any case, since one-sided operations may use it although messages use other rails (`btl.h` 3.3.0,
//! `MCA_BTL_FLAGS_RDMA`). The result does not depend on the order in which rails were loaded.
//!
//! ```
//! use towline_core::btl::selection::{Candidate, Report, Verdict, select};
//! use towline_core::rail::{Capabilities, Endpoint, Peer, Unreachable};
//!
//! let mut rails = [
//!     Candidate::new("tcp", 0, Capabilities::SEND),
//!     Candidate::new("sm", 32768, Capabilities::SEND),
//! ];
//! // Peer 7 is on another host, so sm does not reach it.
//! let taken = select(&mut rails, |rail| if rail == 1 { Err(Unreachable::OtherHost) } else { Ok(Endpoint(0)) });
//! assert_eq!(taken, 1);
//! assert_eq!(rails[0].verdict, Verdict::Taken(Endpoint(0)));
//! assert_eq!(Report { peer: Peer(7), rails: &rails }.to_string(), "peer 7: \
//!     tcp taken (exclusivity 0), sm not taken (unreachable: the peer is on another host)");
//! ```

use core::fmt;

use crate::rail::attributes::{Attributes, Capabilities};
use crate::rail::{Endpoint, Peer, Unreachable};

/// A rail in the selection for one peer: the properties that count, and the verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Candidate {
    /// The rail's name.
    pub rail: &'static str,
    /// The rail's exclusivity.
    pub exclusivity: u32,
    /// The rail's capabilities.
    pub capabilities: Capabilities,
    /// The verdict on the rail, after [`select`].
    pub verdict: Verdict,
}

/// The result of the selection, for one rail and one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Verdict {
    /// [`select`] was not called.
    Undecided,
    /// The rail carries messages to the peer, and one-sided operations if it has any.
    Taken(Endpoint),
    /// The rail carries only one-sided operations: messages use a rail of higher exclusivity, or this rail cannot send.
    OneSided(Endpoint),
    /// The rail carries nothing so far. It carries messages once the rails that are taken take no more frames to the peer. Not a
    /// result of [`select`]: the caller chooses the spare among the outranked rails.
    Spare(Endpoint),
    /// The rail was not asked: a rail of higher exclusivity reaches the peer.
    Outranked {
        /// The name of the rail that reaches the peer. If there are several, the first by name.
        by: &'static str,
        /// The exclusivity of that rail.
        exclusivity: u32,
    },
    /// The rail does not reach the peer.
    Unreachable(Unreachable),
    /// The rail has neither send nor put nor get, so it was not asked.
    NoCapability,
}

impl Candidate {
    /// A rail before the selection.
    pub const fn new(rail: &'static str, exclusivity: u32, capabilities: Capabilities) -> Self {
        Self { rail, exclusivity, capabilities, verdict: Verdict::Undecided }
    }

    /// A rail with these attributes, before the selection.
    pub const fn of(attributes: &Attributes) -> Self {
        Self::new(attributes.name, attributes.exclusivity, attributes.capabilities)
    }

    /// The endpoint for messages, if the rail carries any.
    pub const fn for_messages(&self) -> Option<Endpoint> {
        match self.verdict {
            Verdict::Taken(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The endpoint for the time when the rails that carry messages take no more, if the rail is the spare.
    pub const fn for_spare(&self) -> Option<Endpoint> {
        match self.verdict {
            Verdict::Spare(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// The endpoint for put, get and atomics, if the rail reaches the peer and has such operations of its own.
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

/// Selects the rails for one peer. Returns how many carry messages; 0 means that the peer cannot be reached.
///
/// `ask` adds the peer to the rail with this index. It is called at most once per rail.
pub fn select(rails: &mut [Candidate], mut ask: impl FnMut(usize) -> Result<Endpoint, Unreachable>) -> u32 {
    let mut winner: Option<(&'static str, u32)> = None;
    let mut taken = 0;
    let mut rank = rails.iter().map(|rail| rail.exclusivity).max();
    while let Some(exclusivity) = rank {
        let mut first: Option<&'static str> = None;
        for (index, rail) in rails.iter_mut().enumerate().filter(|(_, rail)| rail.exclusivity == exclusivity) {
            let sends = rail.capabilities.contains(Capabilities::SEND);
            rail.verdict = match winner {
                _ if !sends && !rail.is_one_sided() => Verdict::NoCapability,
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

/// The selection for one peer, as text for people.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Report<'l> {
    /// The peer.
    pub peer: Peer,
    /// All rails, with their verdicts.
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
            Verdict::Spare(_) => {
                write!(f, "spare, for the time when the others take no more (exclusivity {})", self.exclusivity)
            }
            Verdict::Outranked { by, exclusivity } => {
                write!(f, "not taken (exclusivity {} is lower than {exclusivity} of {by})", self.exclusivity)
            }
            Verdict::Unreachable(reason) => write!(f, "not taken (unreachable: {reason})"),
            Verdict::NoCapability => f.write_str("not taken (it has neither send nor put nor get)"),
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
        // The exclusivity of LO, SM, IB, TCP as in the contract; which of them reach the peer; which carry messages then.
        let table: [([bool; 5], &[&str]); 8] = [
            ([true, true, true, true, true], &["lo"]),
            ([false, true, true, true, true], &["sm"]), // the highest exclusivity is unreachable
            ([false, false, true, true, true], &["ib", "ib2", "tcp"]), // equal exclusivity: both carry messages
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
            // Messages use all rails of the highest exclusivity that reaches the peer by send, and no others.
            let sends = |i: &usize| spec[*i].1 && caps(spec[*i].2).contains(SEND);
            let best = straight.iter().filter(|i| sends(i)).map(|i| spec[*i].0).max();
            for (i, rail) in rails.iter().enumerate() {
                prop_assert_eq!(rail.for_messages().is_some(), sends(&i) && Some(spec[i].0) == best);
                // B32: each rail that reaches the peer and has put or get is listed for one-sided operations.
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
    fn b32_rdma_rails_are_listed_for_one_sided_even_if_not_for_send() {
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
    fn p5_the_report_gives_the_reasons() {
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
            "peer 3: tcp not taken (exclusivity 0 is lower than 50 of sm), sm taken (exclusivity 50), \
             dpu not taken (unreachable: the peer published no card for this rail: its own log or warnings say why), \
             none not taken (it has neither send nor put nor get)"
        );
    }
}
