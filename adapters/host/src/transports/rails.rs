//! The rails of a process, in one type.

use towline_core::btl::selection::Candidate;
use towline_core::pml::Rails;
use towline_core::rail::loopback;
use towline_core::rail::{FullRail, Rail};
use towline_sm::SingleCopyState;

use crate::transports::linked::Linked;
use crate::transports::memory::{Mapping, WindowMemory};

/// Any rail. The known ones are dispatched to by a match, so that their calls can be inlined on the message path; others
/// come in the box.
#[derive(Debug)]
#[non_exhaustive]
// A rail is made once and never moved on the message path; a box for the larger ones would cost a load each time.
#[allow(clippy::large_enum_variant)]
pub enum AnyRail {
    /// The process itself.
    Loopback(loopback::Rail<'static>),
    /// Other processes of the host.
    Sm(towline_sm::Rail),
    /// The only TCP connection to each peer, unless sums are asked for.
    Tcp(towline_tcp::Rail),
    /// One of several TCP connections to each peer: the others carry on what it breaks down with.
    LinkedTcp(Linked<towline_tcp::Rail>),
    /// Datagrams, and what makes them arrive.
    Udp(Linked<towline_udp::Rail>),
    /// The only connection by verbs to each peer, unless sums are asked for.
    Verbs(towline_verbs::Rail),
    /// One of several connections by verbs to each peer: the others carry on what it breaks down with.
    LinkedVerbs(Linked<towline_verbs::Rail>),
    /// A rail that somebody else wrote: see [`Builder::rail`](crate::Builder::rail).
    Dyn(DynRail),
}

/// A rail of which nothing is known but the trait.
pub struct DynRail(pub(crate) Box<dyn FullRail>);

impl std::fmt::Debug for DynRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DynRail").field(&self.0.attributes().name).finish()
    }
}

/// Calls the rail. The quickest is told apart first, and only its code stands beside the comparison: a match of all of them
/// made each call of it save the registers and take the jumps that the longest of them needs.
macro_rules! each {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            AnyRail::Sm($rail) => $call,
            other => apart(move || match other {
                AnyRail::Sm($rail) => $call,
                AnyRail::Tcp($rail) => $call,
                AnyRail::LinkedTcp($rail) => $call,
                AnyRail::Udp($rail) => $call,
                AnyRail::Verbs($rail) => $call,
                AnyRail::LinkedVerbs($rail) => $call,
                AnyRail::Loopback($rail) => $call,
                AnyRail::Dyn(DynRail($rail)) => $call,
            }),
        }
    };
}

/// Keeps what is called out of its caller.
#[inline(never)]
fn apart<T>(call: impl FnOnce() -> T) -> T {
    call()
}

#[deny(clippy::missing_trait_methods)]
impl Rail for AnyRail {
    towline_core::forward_rail!(each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::FastPath for AnyRail {
    towline_core::forward_rail!(FastPath: each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::RequestCache for AnyRail {
    towline_core::forward_rail!(RequestCache: each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::SingleCopy for AnyRail {
    towline_core::forward_rail!(SingleCopy: each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::DeviceMemory for AnyRail {
    towline_core::forward_rail!(DeviceMemory: each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::Failover for AnyRail {
    towline_core::forward_rail!(Failover: each);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::Liveness for AnyRail {
    towline_core::forward_rail!(Liveness: each);
}

/// The rails that an engine uses, in the order in which it polls them.
#[derive(Debug, Default)]
pub(crate) struct RailSet(pub Vec<AnyRail>);

impl RailSet {
    /// Makes memory of a window: such as peers can map, where there is a rail for that.
    pub fn window_memory(&mut self, bytes: usize) -> std::io::Result<WindowMemory> {
        let shared = self.0.iter_mut().find_map(|rail| match rail {
            AnyRail::Sm(rail) => rail.share(bytes).inspect_err(|why| log::info!("a window is not shared: {why}")).ok(),
            _ => None,
        });
        shared.map_or_else(|| Mapping::new(bytes).map(WindowMemory::Private), |area| Ok(WindowMemory::Shared(area)))
    }

    /// How long messages go to the peer for whom `candidates` are what came of the choice, as far as it is known and
    /// worth telling.
    pub fn long_messages(&self, candidates: &[Candidate]) -> &'static str {
        let sm = self.0.iter().find_map(|rail| match rail {
            AnyRail::Sm(rail) => Some(rail),
            _ => None,
        });
        let taken = candidates.iter().find(|candidate| candidate.rail == "sm").and_then(Candidate::for_messages);
        match sm.zip(taken).map(|(sm, endpoint)| sm.sends_in_single_copy(endpoint)) {
            Some(SingleCopyState::Works) => "; long messages in a single copy through the kernel",
            Some(SingleCopyState::Crowded) => "; long messages copied through memory: too many ranks were met at once",
            Some(SingleCopyState::Refused) => "; long messages copied through memory: single copy is refused or off",
            _ => "", // not known before the first message
        }
    }
}

impl Rails for RailSet {
    type Rail = AnyRail;

    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&AnyRail> {
        self.0.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut AnyRail> {
        self.0.get_mut(index)
    }
}
