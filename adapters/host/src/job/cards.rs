//! The publications of a rank at its start: its number of contexts, its limits, and the cards of its rails.

use towline_bootstrap::{Error, Job};
use towline_core::btl::selection::{Candidate, Report, Verdict, select};
use towline_core::modex::{Component, Version};
use towline_core::pml;
use towline_core::rail::{Attributes, Capabilities, Peer, Rail, Unreachable};
use towline_dpu::Matching;

use crate::errors::setup::SetupError;
use crate::settings::config::DPU;
use crate::transports::open::OpenedRails;
use crate::transports::rails::AnyRail;
use crate::values::address::Grid;

/// The component under which the engine's limits are published.
const ENGINE: &str = "engine";
/// The component under which the number of contexts is published.
const CONTEXTS: &str = "contexts";
/// The component under which a rank publishes which restarted ranks it has accepted: rank and incarnation of each. Ranks of other
/// versions know it by this name.
const REJOINED: &str = "taken back";

pub(crate) fn component(name: &str) -> Component<'_> {
    let version = Version::new(1, 0, 0);
    Component { mca: version, kind: "towline", kind_version: version, name, version }
}

/// The names under which the cards of a context's rails are published: the name of the rail, and its number among rails of that
/// name.
pub(crate) fn names(rails: &[AnyRail]) -> Vec<String> {
    let name = |(index, rail): (usize, &AnyRail)| {
        let name = rail.attributes().name;
        let before = rails[..index].iter().filter(|other| other.attributes().name == name).count();
        format!("{name}.{before}")
    };
    rails.iter().enumerate().map(name).collect()
}

/// Publishes the cards of all contexts of this process, in the order of their index.
pub(crate) fn publish(job: &mut Job, contexts: &[OpenedRails], limits: &pml::Config) -> Result<(), SetupError> {
    job.publish(&component(CONTEXTS), &(contexts.len() as u32).to_le_bytes())?;
    job.publish(&component(ENGINE), &limits.params())?;
    let mut all: Vec<String> = contexts.iter().flat_map(|opened| names(&opened.rails)).collect();
    all.sort_unstable();
    all.dedup();
    for name in all {
        let mut cards = Vec::new();
        for OpenedRails { rails, .. } in contexts {
            // A context without such a rail has an empty card.
            let place = names(rails).iter().position(|other| *other == name);
            let card = place.and_then(|place| rails.get(place)).map_or(&[][..], Rail::card);
            cards.extend_from_slice(&(card.len() as u32).to_le_bytes());
            cards.extend_from_slice(card);
        }
        job.publish(&component(&name), &cards)?;
    }
    if contexts.iter().any(|opened| opened.dpu.is_some()) {
        let cards = contexts.iter().map(|opened| opened.dpu.as_ref().map_or(&[][..], |(_, card)| card));
        let cards: Vec<u8> = cards.flat_map(|card| [&(card.len() as u32).to_le_bytes()[..], card].concat()).collect();
        job.publish(&component(DPU), &cards)?;
    }
    Ok(())
}

/// The card of the DPU of a context.
pub(crate) fn dpu_card(job: &Job, rank: u32, index: u32) -> Option<&[u8]> {
    card_of(job.card(&component(DPU), rank).ok()?, index)
}

/// Adds a peer to the DPU of this context, if it has one. The error says why the peer's DPU cannot be reached.
pub(crate) fn add_to_dpu(dpu: Option<&mut Matching>, peer: Peer, card: Option<&[u8]>) -> Result<(), String> {
    match (dpu, card) {
        (None, None) => Ok(()),
        (None, Some(_)) => {
            Err("it uses a DPU, and this process does not: name dpu in TOWLINE_TRANSPORTS of all processes".into())
        }
        (Some(_), None) => {
            Err("this process uses a DPU, and it does not: name dpu in TOWLINE_TRANSPORTS of all processes".into())
        }
        (Some(dpu), Some(card)) => dpu.add_peer(peer.0, card).map_err(|why| match why {
            why if why.is_full_of_peers() => {
                "the DPU of this process has no room for so many peers: start fewer ranks, use firmware that has room for more \
                 (PEERS of its board), or name other transports in TOWLINE_TRANSPORTS"
                    .into()
            }
            why => format!("its DPU: {why}"),
        }),
    }
}

/// Publishes which restarted ranks this rank has accepted.
pub(crate) fn publish_rejoined(job: &mut Job, ranks: impl Iterator<Item = (u32, u32)>) -> Result<(), Error> {
    let words = ranks.flat_map(|(rank, incarnation)| [rank, incarnation]);
    let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    job.publish(&component(REJOINED), &bytes)
}

/// Whether `by` has accepted a restarted rank in this incarnation.
pub(crate) fn has_rejoined(job: &Job, by: u32, (rank, incarnation): (u32, u32)) -> bool {
    let words = job.card(&component(REJOINED), by).unwrap_or_default();
    let wanted = [rank.to_le_bytes(), incarnation.to_le_bytes()].concat();
    words.as_chunks::<8>().0.iter().any(|pair| pair[..] == wanted[..])
}

/// The card of a context, from the cards that its rank published.
fn card_of(mut cards: &[u8], index: u32) -> Option<&[u8]> {
    for at in 0..=index {
        let (len, rest) = cards.split_first_chunk()?;
        let (card, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        if at == index && !card.is_empty() {
            return Some(card);
        }
        cards = rest;
    }
    None
}

/// The card of the only context of a process, under the name of a rail.
pub(crate) fn card_in<'j>(job: &'j Job, name: &str, number: u32) -> Option<&'j [u8]> {
    card_of(job.card(&component(name), number).ok()?, 0)
}

/// Checks that all ranks have the same number of contexts.
pub(crate) fn check_contexts(job: &Job) -> Result<(), SetupError> {
    let count = |rank| {
        let bytes = job.card(&component(CONTEXTS), rank).map_err(|why| SetupError::Card { rank, why })?;
        Ok(bytes.try_into().map_or(0, u32::from_le_bytes))
    };
    let counts = (0..job.size()).map(count).collect::<Result<Vec<_>, SetupError>>()?;
    disagreement(&counts).map_or(Ok(()), Err)
}

/// The error for the first rank whose number of contexts is not that of most ranks. Where two numbers are equally common, the
/// number of the lowest rank that has one of them counts as right.
fn disagreement(counts: &[u32]) -> Option<SetupError> {
    let votes = |count: u32| counts.iter().filter(|other| **other == count).count();
    // The usual case, in which all ranks agree, is quick. The other case may be slow.
    let odd = |right: u32| counts.iter().position(|count| *count != right);
    odd(*counts.first()?)?;
    let right = (0..counts.len()).rev().max_by_key(|rank| votes(counts[*rank]))?;
    let rank = odd(counts[right])?;
    Some(SetupError::Contexts { rank: rank as u32, contexts: counts[rank], other: right as u32, others: counts[right] })
}

/// The engine limits that a rank published.
pub(crate) fn engine_limits(job: &Job, rank: u32) -> Result<&[u8], SetupError> {
    job.card(&component(ENGINE), rank).map_err(|why| SetupError::Card { rank, why })
}

/// Chooses a context's rails for each address, in the order of their numbers. Candidates are in the order of the rails, loopback
/// last. No rank leaves its job before all have chosen, so an address that no rail reaches is an error. Only a restarted process may
/// find that other ranks have ended.
pub(crate) fn choose(job: &Job, grid: Grid, rails: &mut [AnyRail]) -> Result<Vec<Vec<Candidate>>, SetupError> {
    let names = names(rails);
    let mut choices = Vec::with_capacity(grid.total() as usize);
    for number in 0..grid.total() {
        let candidates = choose_one(job, grid, number, &names, rails);
        let reached = candidates.iter().any(|candidate| candidate.for_messages().is_some());
        let rank = grid.address(number).rank;
        if !reached && (rank == grid.own.rank || job.incarnation() == 1) {
            let report = Report { peer: Peer(number), rails: &candidates }.to_string();
            return Err(SetupError::Unreachable { rank, report });
        }
        choices.push(candidates);
    }
    Ok(choices)
}

/// Chooses a context's rails for one address, by the cards that the rank of that address has published under the rails' names.
pub(crate) fn choose_one(
    job: &Job,
    grid: Grid,
    number: u32,
    names: &[String],
    rails: &mut [AnyRail],
) -> Vec<Candidate> {
    let address = grid.address(number);
    choose_by(rails, grid.peer(number), address == grid.own, |index| {
        let ended = job.incarnation() > 1 && job.has_ended(address.rank);
        let name = names.get(index).filter(|_| !ended)?;
        card_of(job.card(&component(name), address.rank).ok()?, address.index)
    })
}

/// Chooses the rails to a peer, by its card for each rail. `is_self`: the peer is this context.
pub(crate) fn choose_by<'c>(
    rails: &mut [AnyRail],
    peer: Peer,
    is_self: bool,
    card: impl Fn(usize) -> Option<&'c [u8]>,
) -> Vec<Candidate> {
    // The engine uses a device's puts and gets only to peers that the device's rail carries messages to. So no rail is chosen for
    // puts and gets alone.
    let candidate = |rail: &AnyRail| {
        let Attributes { name, exclusivity, capabilities, .. } = *rail.attributes();
        Candidate::new(name, exclusivity, capabilities - (Capabilities::PUT | Capabilities::GET))
    };
    let mut candidates: Vec<_> = rails.iter().map(candidate).collect();
    let ask = |rails: &mut [AnyRail], index: usize| match &mut rails[index] {
        AnyRail::Loopback(_) if !is_self => Err(Unreachable::OtherProcess),
        AnyRail::Loopback(rail) => {
            let card = rail.card().to_vec();
            rail.add_peer(peer, &card)
        }
        rail => rail.add_peer(peer, card(index).ok_or(Unreachable::NoCard)?),
    };
    select(&mut candidates, |index| ask(rails, index));
    let uses_sm = (0..rails.len())
        .any(|index| matches!(rails[index], AnyRail::Sm(_)) && candidates[index].for_messages().is_some());
    if uses_sm {
        // Shared memory may have no room for this peer later. Both sides choose the first rail in the order of the transports.
        for index in 0..rails.len() {
            let may_be = matches!(candidates[index].verdict, Verdict::Outranked { .. }) && is_spare(&rails[index]);
            if may_be && let Ok(endpoint) = ask(rails, index) {
                candidates[index].verdict = Verdict::Spare(endpoint);
                break;
            }
        }
    }
    candidates
}

/// Whether a rail can be a spare: a rail of the library that leaves the process.
fn is_spare(rail: &AnyRail) -> bool {
    !matches!(rail, AnyRail::Loopback(_) | AnyRail::Sm(_) | AnyRail::Dyn(_))
}

/// Whether a rank has this number of contexts.
pub(crate) fn has_contexts(job: &Job, rank: u32, contexts: u32) -> bool {
    job.card(&component(CONTEXTS), rank).is_ok_and(|bytes| bytes == contexts.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_by_index_and_malformed_ones_are_ignored() {
        let cards = [&[2, 0, 0, 0, 7, 8][..], &[0; 4], &[1, 0, 0, 0, 9]].concat();
        assert_eq!(card_of(&cards, 0), Some(&[7, 8][..]));
        assert_eq!(card_of(&cards, 1), None, "an empty card");
        assert_eq!(card_of(&cards, 2), Some(&[9][..]));
        assert_eq!(card_of(&cards, 3), None);
        for cut in 0..cards.len() {
            assert_eq!(card_of(&cards[..cut], 2), None);
        }
        assert_eq!(card_of(&[255; 40], 0), None);
    }

    #[test]
    fn the_rank_with_another_number_of_contexts_is_named() {
        let odd = |counts: &[u32]| match disagreement(counts) {
            Some(SetupError::Contexts { rank, contexts, other, others }) => Some((rank, contexts, other, others)),
            _ => None,
        };
        assert_eq!(odd(&[3]), None);
        assert_eq!(odd(&[3; 5]), None);
        assert_eq!(odd(&[3, 2]), Some((1, 2, 0, 3)));
        assert_eq!(odd(&[1, 2, 2]), Some((0, 1, 1, 2)));
        assert_eq!(odd(&[2, 2, 4, 2, 4]), Some((2, 4, 0, 2)));
    }
}
