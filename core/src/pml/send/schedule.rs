//! The schedule of fragments over the links of a peer.

use crate::pml::peers::link::PeerLink;
use crate::pml::peers::state::PeerState;
use crate::rail::MULTIRAIL;

/// Passes the turn on: first fragments take the links of the lowest latency in turn (P12).
#[inline]
pub(in crate::pml) fn advance_turn(peer: &mut PeerState, links: &[PeerLink], to: u32, count: usize) {
    if !MULTIRAIL || peer.route.firsts == 1 {
        return;
    }
    let turn = peer.route.turn.wrapping_add(1);
    peer.route.turn = if turn < peer.route.firsts { turn } else { 0 };
    if let Some(link) = links.get((to as usize).wrapping_mul(count).wrapping_add(peer.route.turn as usize)) {
        (peer.route.rail, peer.route.endpoint) = (link.rail, link.endpoint);
    }
}

/// The place of the link that has carried the least for its bandwidth, of those that were not busy in this round.
pub(in crate::pml) fn least_used(row: &[PeerLink], round: u16) -> Option<usize> {
    if !MULTIRAIL {
        return row.first().is_some_and(|link| link.busy_in != round).then_some(0);
    }
    let free = row.iter().enumerate().filter(|(_, link)| link.busy_in != round);
    free.min_by_key(|(_, link)| link.share).map(|(index, _)| index)
}

/// Charges a link for bytes that it took. A link that was busy meanwhile does not catch up later.
pub(in crate::pml) fn charge(row: &mut [PeerLink], index: usize, round: u16, bytes: u64) {
    if !MULTIRAIL {
        return;
    }
    let Some(link) = row.get_mut(index) else { return };
    // The bandwidth of a link is never 0 (see `add_peer`). `max` proves to the compiler that the division cannot panic.
    link.share = link.share.wrapping_add(bytes.wrapping_mul(1024) / u64::from(link.bandwidth.max(1)));
    let share = link.share;
    for link in row.iter_mut().filter(|link| link.busy_in == round) {
        link.share = link.share.max(share);
    }
}
