//! The rails of a context, in one type.

use std::os::fd::BorrowedFd;

use towline_core::btl::selection::Candidate;
use towline_core::pml::Rails;
use towline_core::pml::offload::Offload;
use towline_core::rail::access::Access;
use towline_core::rail::{Copied, FullRail, Rail, Short};
use towline_core::rail::{DeviceMemory, Failover, FastPath, Liveness, RequestCache, SingleCopy, loopback};
use towline_dpu::Matching;
use towline_dpu::frames::Frames;
use towline_sm::SingleCopyState;

use crate::transports::bundled::Bundled;
use crate::transports::linked::Linked;
use crate::transports::memory::{Mapping, WindowMemory};

/// Any rail. Calls of the library's own rails are dispatched by a match, so that they can be inlined on the message path; other
/// rails are boxed. Users of this crate see the type only in debug output.
#[derive(Debug)]
#[non_exhaustive]
// A rail is made once and never moved on the message path. A box for the larger rails would cost a load in each call.
#[allow(clippy::large_enum_variant)]
pub enum AnyRail {
    /// To the process itself.
    Loopback(loopback::Rail<'static>),
    /// Shared memory, to other processes on this host.
    Sm(towline_sm::Rail),
    /// TCP with one connection to each peer and without checksums.
    Tcp(towline_tcp::Rail),
    /// One of several TCP connections to each peer, or one with checksums. If it fails, the others resend its frames.
    LinkedTcp(Linked<towline_tcp::Rail>),
    /// UDP datagrams, with a link that makes them reliable.
    Udp(Linked<towline_udp::Rail>),
    /// An RDMA device with one connection to each peer and without checksums.
    Verbs(towline_verbs::Rail),
    /// One of several RDMA connections to each peer, or one with checksums. If it fails, the others resend its frames.
    LinkedVerbs(Linked<towline_verbs::Rail>),
    /// A DPU that carries frames, without another network beside it.
    Dpu(Frames),
    /// A DPU that carries frames, beside other networks, or with checksums. If it fails, the other networks resend its frames.
    LinkedDpu(Linked<Frames>),
    /// Several links of one transport as one rail, for the module of a runtime that does its own matching. If a link fails, the
    /// others resend its frames.
    Bundled(Bundled<Self>),
    /// A rail of the program's own: see [`Builder::rail`](crate::Builder::rail).
    Dyn(DynRail),
}

/// A rail of the program's own, known only by its trait.
pub struct DynRail(pub(crate) Box<dyn FullRail>);

impl std::fmt::Debug for DynRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DynRail").field(&self.0.attributes().name).finish()
    }
}

impl AnyRail {
    /// Whether this is a link: its frames can migrate to other links.
    pub(crate) fn is_link(&self) -> bool {
        matches!(self, Self::LinkedTcp(_) | Self::Udp(_) | Self::LinkedVerbs(_) | Self::LinkedDpu(_))
    }

    /// The DPU that carries the frames of this rail, for people.
    pub(crate) fn device(&self) -> Option<String> {
        match self {
            Self::Dpu(rail) => Some(rail.describe()),
            Self::LinkedDpu(rail) => Some(rail.raw().describe()),
            _ => None,
        }
    }

    /// Makes the end of this rail a failure for its peers, where the rail can tell them. Others end without a goodbye.
    pub(crate) fn end_as_failure(&mut self) {
        match self {
            Self::Sm(rail) => rail.end_as_failure(),
            Self::Tcp(rail) => rail.end_as_failure(),
            // The peers' links do not take a goodbye of the rail below for one of the link.
            Self::LinkedTcp(rail) => rail.end_as_failure(),
            Self::Udp(rail) => rail.end_as_failure(),
            Self::LinkedVerbs(rail) => rail.end_as_failure(),
            Self::Dpu(rail) => rail.end_as_failure(),
            Self::LinkedDpu(rail) => rail.end_as_failure(),
            Self::Bundled(rail) => rail.links_mut().iter_mut().for_each(Self::end_as_failure),
            Self::Loopback(_) | Self::Verbs(_) | Self::Dyn(_) => {}
        }
    }
}

/// Calls the rail. The quickest rail, shared memory, is compared first, and only its code is placed beside the comparison. With
/// one match over all rails, each call of shared memory saved the registers, and took the jumps, that the longest arm needs.
macro_rules! each {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            AnyRail::Sm($rail) => $call,
            other => out_of_line(move || match other {
                AnyRail::Sm($rail) => $call,
                AnyRail::Tcp($rail) => $call,
                AnyRail::LinkedTcp($rail) => $call,
                AnyRail::Udp($rail) => $call,
                AnyRail::Verbs($rail) => $call,
                AnyRail::LinkedVerbs($rail) => $call,
                AnyRail::Dpu($rail) => $call,
                AnyRail::LinkedDpu($rail) => $call,
                AnyRail::Bundled($rail) => $call,
                AnyRail::Loopback($rail) => $call,
                AnyRail::Dyn(DynRail($rail)) => $call,
            }),
        }
    };
}

/// Keeps the code of `call` out of the caller's.
#[inline(never)]
fn out_of_line<T>(call: impl FnOnce() -> T) -> T {
    call()
}

#[deny(clippy::missing_trait_methods)]
impl Rail for AnyRail {
    towline_core::forward_rail!(each);
}

#[deny(clippy::missing_trait_methods)]
impl FastPath for AnyRail {
    towline_core::forward_rail!(FastPath: each, except poll_short, poll_eager, poll_copied, is_idle);

    // Inlined for the loopback rail, too, since the call costs more than the look, which nearly always finds nothing.
    #[inline]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        match self {
            Self::Loopback(_) => None,
            other => each!(other, rail => rail.poll_short(tag)),
        }
    }

    #[inline]
    fn poll_eager(&mut self, tag: u8) -> Option<Short> {
        match self {
            Self::Loopback(_) => None,
            other => each!(other, rail => rail.poll_eager(tag)),
        }
    }

    #[inline]
    fn poll_copied(&mut self, except: u8, into: &mut [u8]) -> Option<Copied> {
        match self {
            Self::Loopback(_) => None,
            other => each!(other, rail => rail.poll_copied(except, into)),
        }
    }

    #[inline]
    fn is_idle(&mut self) -> bool {
        match self {
            Self::Loopback(rail) => rail.is_idle(),
            other => each!(other, rail => rail.is_idle()),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl RequestCache for AnyRail {
    towline_core::forward_rail!(RequestCache: each);
}

#[deny(clippy::missing_trait_methods)]
impl SingleCopy for AnyRail {
    towline_core::forward_rail!(SingleCopy: each);
}

#[deny(clippy::missing_trait_methods)]
impl DeviceMemory for AnyRail {
    towline_core::forward_rail!(DeviceMemory: each);
}

#[deny(clippy::missing_trait_methods)]
impl Failover for AnyRail {
    towline_core::forward_rail!(Failover: each);
}

#[deny(clippy::missing_trait_methods)]
impl Liveness for AnyRail {
    towline_core::forward_rail!(Liveness: each);
}

/// The rails that an engine uses, in the order in which it polls them. The last ones may be spares, for peers to which shared
/// memory has no room. Beside them, the DPU that matches messages, if there is one.
#[derive(Debug, Default)]
pub(crate) struct RailSet(pub Vec<AnyRail>, Polled, Option<Box<Matching>>);

/// Which rails are polled.
#[derive(Debug, Default)]
struct Polled {
    /// How many: the first ones.
    count: usize,
    /// Whether some peer uses a spare.
    spares: bool,
}

impl RailSet {
    /// These rails, of which the first `polled` are polled.
    pub fn new(rails: Vec<AnyRail>, polled: usize, dpu: Option<Box<Matching>>) -> Self {
        Self(rails, Polled { count: polled, spares: false }, dpu)
    }

    /// The DPU that matches messages.
    pub fn dpu_mut(&mut self) -> Option<&mut Matching> {
        self.2.as_deref_mut()
    }

    /// Makes the end of these rails and of the DPU a failure for peers.
    pub fn end_as_failure(&mut self) {
        self.0.iter_mut().for_each(AnyRail::end_as_failure);
        if let Some(dpu) = self.dpu_mut() {
            dpu.transport().end_as_failure();
        }
    }

    /// The rails that are polled, and the descriptor by which the DPU wakes this process.
    pub fn watched_mut(&mut self) -> (&mut [AnyRail], Option<BorrowedFd<'_>>) {
        (self.0.get_mut(..self.1.count).unwrap_or_default(), self.2.as_deref().and_then(Matching::bell))
    }

    /// Whether some peer uses a spare.
    pub fn uses_spares(&self) -> bool {
        self.1.spares
    }

    /// Why shared memory is used no more to some peer, if that is so.
    pub fn warning(&self) -> Option<&str> {
        self.0.iter().find_map(|rail| match rail {
            AnyRail::Sm(rail) => rail.warning(),
            _ => None,
        })
    }

    /// Allocates memory for a window: with `on_dpu` in the memory of the DPU, if it fits there. Other memory is mapped by peers where a
    /// rail supports that.
    pub fn window_memory(&mut self, bytes: usize, access: Access, on_dpu: bool) -> std::io::Result<WindowMemory> {
        if let Some(dpu) = self.2.as_deref_mut().filter(|dpu| on_dpu && dpu.has_windows()) {
            match dpu.open_window(bytes as u64, access) {
                Ok(part) => return Ok(WindowMemory::Dpu(Box::new(part))),
                Err(why) => {
                    log::info!("a window's memory is not that of the DPU, so the DPU does not serve peers: {why}")
                }
            }
        }
        let log =
            |why: &_| log::info!("a window's memory is not shared with this host, so the target serves peers: {why}");
        let shared = self.0.iter_mut().find_map(|rail| match rail {
            AnyRail::Sm(rail) => rail.share(bytes).inspect_err(log).ok(),
            _ => None,
        });
        shared.map_or_else(|| Mapping::new(bytes).map(WindowMemory::Private), |area| Ok(WindowMemory::Shared(area)))
    }

    /// A remark for people about how long messages to a peer are copied, as far as that is known. `candidates`: the verdict on
    /// each rail for this peer.
    pub fn long_messages(&self, candidates: &[Candidate]) -> &'static str {
        let sm = self.0.iter().find_map(|rail| match rail {
            AnyRail::Sm(rail) => Some(rail),
            _ => None,
        });
        let taken = candidates.iter().find(|candidate| candidate.rail == "sm").and_then(Candidate::for_messages);
        match sm.zip(taken).map(|(sm, endpoint)| sm.sends_in_single_copy(endpoint)) {
            Some(SingleCopyState::Supported) => "; long messages in a single copy through the kernel",
            Some(SingleCopyState::LockLimit) => {
                "; long messages copied through memory: too many ranks connected at once"
            }
            Some(SingleCopyState::Refused) => "; long messages copied through memory: single copy is refused or off",
            _ => "", // unknown before the first message
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
    fn polled(&self) -> usize {
        self.1.count
    }

    #[inline]
    fn offload(&mut self) -> Option<&mut dyn Offload> {
        match &mut self.2 {
            Some(dpu) => Some(&mut **dpu),
            None => None,
        }
    }

    #[cold]
    fn poll_spares(&mut self) {
        self.1 = Polled { count: self.0.len(), spares: true };
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
