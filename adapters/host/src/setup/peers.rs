//! Adding a peer to an engine that runs.

use towline_core::btl::selection::{Candidate, Report, Verdict};
use towline_core::rail::{Peer, Rail as _, Unreachable};

use crate::engine::Engine;
use crate::job::cards;
use crate::transports::rails::AnyRail;

/// Adds a peer by the rails that were chosen for it. Returns the choice. The error is the verdict on each rail, as text; the rails
/// have forgotten the peer then.
pub(crate) fn add_chosen_peer(
    engine: &mut Engine,
    peer: Peer,
    limits: &[u8],
    dpu_card: Option<&[u8]>,
    chosen: Vec<Candidate>,
) -> Result<Vec<Candidate>, String> {
    let reach =
        |rail: usize, _: &mut AnyRail| chosen.get(rail).and_then(Candidate::for_messages).ok_or(Unreachable::NoCard);
    let added = engine.mtl.add_peer(peer, limits, reach).map_err(|why| why.to_string()).and_then(|()| {
        let added = cards::add_to_dpu(engine.mtl.pml().rails_mut().dpu_mut(), peer, dpu_card);
        added.inspect_err(|_| engine.mtl.del_peer(peer))
    });
    if let Err(why) = added {
        for (rail, candidate) in engine.mtl.pml().rails_mut().0.iter_mut().zip(&chosen) {
            if let Verdict::Taken(endpoint) | Verdict::OneSided(endpoint) | Verdict::Spare(endpoint) = candidate.verdict
            {
                rail.del_peer(endpoint);
            }
        }
        return Err(format!("{why}; {}", Report { peer, rails: &chosen }));
    }
    for (rail, candidate) in chosen.iter().enumerate() {
        if let Some(endpoint) = candidate.for_spare() {
            let _ = engine.mtl.pml().add_spare(peer, rail, endpoint); // the peer was added just now
        }
    }
    Ok(chosen)
}

impl Engine {
    /// Has all rails polled, if one that was not polled so far is chosen for a peer.
    pub fn use_rails(&mut self, chosen: &[Candidate]) {
        let rails = self.mtl.pml().rails_mut();
        let polled = towline_core::pml::Rails::polled(rails);
        if chosen.iter().skip(polled).any(|candidate| candidate.for_messages().is_some()) {
            towline_core::pml::Rails::poll_spares(rails);
            self.needs_flush |= rails.0.iter().any(|rail| matches!(rail, AnyRail::Udp(_) | AnyRail::Dyn(_)));
        }
    }
}
