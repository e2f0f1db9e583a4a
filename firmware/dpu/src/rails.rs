//! The rails of a DPU: one to itself, and one to other DPUs for each network interface.

use datagram::{Interface, Rail as Datagrams};
use towline_core::arena::{Arena, OutOfMemory};
use towline_core::forward_rail;
use towline_core::link::{self, Crc32c, Link};
use towline_core::pml::Rails;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rail::{
    DeviceMemory, Endpoint, Failover, FastPath, Liveness, Peer, Rail, RequestCache, SingleCopy, Unreachable,
};
use towline_core::time::Duration;

/// Most network interfaces.
pub const LINKS: usize = 2;

/// Slots of the queue to itself, and bytes of a frame in it.
const OWN: (u32, u32) = (16, 4096);
/// Slots of a link for frames that are not acknowledged: this many, and at least some for each peer, so that peers that answer nothing
/// leave room to the others. The same for control frames.
const SLOTS: u32 = 128;
const SLOTS_OF_PEER: u32 = 4;
const CONTROL_SLOTS: u32 = 32;
const CONTROL_SLOTS_OF_PEER: u32 = 2;

/// The link to other devices.
type Wire<'m, I> = Link<'m, Datagrams<'m, I>, Crc32c>;

/// One of the rails.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and there are few of them")]
pub enum AnyRail<'m, I> {
    /// To this device itself. Its card is that of the wire.
    Own(Loopback<'m>, Card),
    /// To other devices.
    Wire(Wire<'m, I>),
}

/// The card of the wire, which is another one for each device.
#[derive(Debug)]
pub struct Card {
    bytes: [u8; 64],
    len: usize,
}

impl Card {
    fn new(card: &[u8]) -> Option<Self> {
        let mut bytes = [0; 64];
        bytes.get_mut(..card.len())?.copy_from_slice(card);
        Some(Self { bytes, len: card.len() })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The memory of the queue to itself. It has to outlive the rails.
///
/// # Errors
/// [`OutOfMemory`].
pub fn hub<'m>(arena: &mut Arena<'m>) -> Result<Hub<'m>, OutOfMemory> {
    Hub::new(arena, 1, OWN.0, OWN.1)
}

/// The rails of a device. The first one is to itself.
#[derive(Debug)]
pub struct All<'m, I> {
    own: AnyRail<'m, I>,
    wires: [Option<AnyRail<'m, I>>; LINKS],
    /// How many wires there are. They are the first ones.
    count: usize,
}

impl<'m, I: Interface> Rails for All<'m, I> {
    type Rail = AnyRail<'m, I>;

    fn count(&self) -> usize {
        self.count.saturating_add(1)
    }

    fn rail(&self, index: usize) -> Option<&AnyRail<'m, I>> {
        match index.checked_sub(1) {
            None => Some(&self.own),
            Some(wire) => self.wires.get(wire)?.as_ref(),
        }
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut AnyRail<'m, I>> {
        match index.checked_sub(1) {
            None => Some(&mut self.own),
            Some(wire) => self.wires.get_mut(wire)?.as_mut(),
        }
    }
}

/// The rails of a device with these network interfaces, for at most `peers` peers, this device included. Answers of others may take at
/// least the time `patience`. Returns `None` if the arena is too small, or if there is no interface.
// Inlined, so that the compiler knows the number of peers, by which it finds that no panic is reachable.
#[inline(always)]
pub fn make<'m, I: Interface>(
    hub: &'m Hub<'m>,
    peers: u32,
    interfaces: [Option<I>; LINKS],
    boot: u32,
    patience: Duration,
    arena: &mut Arena<'m>,
) -> Option<All<'m, I>> {
    let mut wires = [const { None }; LINKS];
    let mut count: usize = 0;
    for (interface, place) in interfaces.into_iter().flatten().zip(&mut wires) {
        let datagrams = datagram::Config { peers, held: 32, latency: 20_000, bandwidth: 1000 };
        let raw = Datagrams::new(interface, &datagrams, arena).ok()?;
        let config = link::Config {
            peers,
            slots: peers.saturating_mul(SLOTS_OF_PEER).max(SLOTS),
            control_slots: peers.saturating_mul(CONTROL_SLOTS_OF_PEER).max(CONTROL_SLOTS),
            window: 128,
            deliveries: 32,
            least_timeout: patience,
            ..link::Config::new(count as u8, boot.into(), raw.attributes())
        };
        *place = Some(AnyRail::Wire(Link::new(raw, Crc32c, config, arena).ok()?));
        count = count.saturating_add(1);
    }
    let card = Card::new(wires.first()?.as_ref()?.card())?;
    Some(All { own: AnyRail::Own(hub.rail(0)?, card), wires, count })
}

/// Finds the rail below: `below!(rail, it => call)` evaluates `call` with `it` as a reference to it.
macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            AnyRail::Own($rail, _) => $call,
            AnyRail::Wire($rail) => $call,
        }
    };
}

impl<I: Interface> Rail for AnyRail<'_, I> {
    forward_rail!(below, except card, add_peer);

    fn card(&self) -> &[u8] {
        match self {
            Self::Own(_, card) => card.bytes(),
            Self::Wire(rail) => rail.card(),
        }
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        match self {
            Self::Own(rail, own) if own.bytes() == card => {
                let [a, b, c, d] = *rail.card() else { return Err(Unreachable::BadCard) };
                rail.add_peer(peer, &[a, b, c, d])
            }
            Self::Own(..) => Err(Unreachable::OtherProcess),
            Self::Wire(rail) if rail.card() == card => Err(Unreachable::OtherHost),
            Self::Wire(rail) => rail.add_peer(peer, card),
        }
    }
}

impl<I: Interface> FastPath for AnyRail<'_, I> {
    forward_rail!(FastPath: below);
}

impl<I: Interface> RequestCache for AnyRail<'_, I> {
    forward_rail!(RequestCache: below);
}

impl<I: Interface> SingleCopy for AnyRail<'_, I> {
    forward_rail!(SingleCopy: below);
}

impl<I: Interface> DeviceMemory for AnyRail<'_, I> {
    forward_rail!(DeviceMemory: below);
}

impl<I: Interface> Failover for AnyRail<'_, I> {
    forward_rail!(Failover: below);
}

impl<I: Interface> Liveness for AnyRail<'_, I> {
    forward_rail!(Liveness: below);
}
