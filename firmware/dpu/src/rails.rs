//! The rails of a DPU: one to itself, and one to other DPUs.

use datagram::{Interface, Rail as Datagrams};
use towline_core::arena::{Arena, OutOfMemory};
use towline_core::forward_rail;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rail::{
    DeviceMemory, Endpoint, Failover, FastPath, Liveness, Peer, Rail, RequestCache, SingleCopy, Unreachable,
};
use towline_core::time::Duration;

/// Most peers, this device included.
pub const PEERS: u32 = 16;

/// Slots of the queue to itself, and bytes of a frame in it.
const OWN: (u32, u32) = (16, 4096);
const DATAGRAMS: datagram::Config = datagram::Config { peers: PEERS, held: 32, latency: 20_000, bandwidth: 1000 };

/// The link to other devices.
type Wire<'m, I> = Link<'m, Datagrams<'m, I>, Crc32c>;

/// One of the rails.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and there are two of them")]
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

/// The rails of a device with this network interface, whose answers may take at least the time `patience`. Returns `None` if the arena is too small.
pub fn make<'m, I: Interface>(
    hub: &'m Hub<'m>,
    interface: I,
    boot: u32,
    patience: Duration,
    arena: &mut Arena<'m>,
) -> Option<[AnyRail<'m, I>; 2]> {
    let raw = Datagrams::new(interface, &DATAGRAMS, arena).ok()?;
    let config = link::Config {
        peers: PEERS,
        slots: 128,
        control_slots: 32,
        window: 128,
        deliveries: 32,
        least_timeout: patience,
        ..link::Config::new(0, boot.into(), raw.attributes())
    };
    let wire = Link::new(raw, Crc32c, config, arena).ok()?;
    let card = Card::new(wire.card())?;
    Some([AnyRail::Own(hub.rail(0)?, card), AnyRail::Wire(wire)])
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
