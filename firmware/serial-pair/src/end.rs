//! One end of the line: an engine over a link over the line.

use core::mem::MaybeUninit;

use datagram::{Config as Datagrams, PREFIX, Rail as DatagramRail};
use serial::{Line, Port};
use towline_core::arena::Arena;
use towline_core::link::{Config as LinkConfig, Link, SmallCrc32c};
use towline_core::mtl::{Comm, Group, Mtl};
use towline_core::pml::Config;
use towline_core::rail::{Peer, Rail as _};
use towline_core::time::{Duration, Instant};

use crate::error::Failed;

/// Bytes of the longest frame.
const FRAME: usize = 256;
/// The line's longest datagram.
const LONGEST: usize = FRAME + PREFIX;
/// 8 posted receives, and 4 sends at a time.
pub const CONFIG: Config =
    Config { peers: 2, requests: 12, unexpected: 8, units: 8, unit_bytes: 64, ..Config::SMALLEST };
/// The rail and the link reach one peer, at the other end. The other peer of the engine is this end.
const DATAGRAMS: Datagrams = Datagrams { peers: 1, held: 2, latency: 100_000, bandwidth: 1 };
const COMMUNICATORS: u32 = 1;
const CONTEXT: u32 = 1;

type SerialRail<'m, P> = DatagramRail<'m, Line<'m, P, SmallCrc32c>>;
type Engine<'m, P> = Mtl<'m, [Link<'m, SerialRail<'m, P>, SmallCrc32c>; 1]>;

/// One end of the line.
pub struct End<'m, P> {
    pub mtl: Engine<'m, P>,
    pub world: Comm,
    /// The time in microseconds.
    micros: fn() -> u64,
    /// Bytes of the tables, and of this.
    pub tables: usize,
    /// Bytes of the tables for one more peer.
    pub peer: usize,
}

impl<'m, P: Port> End<'m, P> {
    /// The end with the number `me`, which is itself in `memory`, with its tables. Never inlined: what it takes of the stack is free
    /// afterwards.
    #[inline(never)]
    pub fn new(memory: &'m mut [u8], port: P, me: u8, micros: fn() -> u64) -> Result<&'m mut Self, Failed> {
        let set_up = |_| Failed::SetUp;
        let available = memory.len();
        let mut arena = Arena::new(memory);
        let line = Line::new(port, me, LONGEST, SmallCrc32c, &mut arena).map_err(set_up)?;
        let raw = DatagramRail::new(line, &DATAGRAMS, &mut arena).map_err(set_up)?;
        let config = link(&raw);
        let peer = peer(&raw, &config);
        let mut wire = Link::new(raw, SmallCrc32c, config, &mut arena).map_err(set_up)?;
        // Both ends have the same settings. So their cards differ only in the last byte, the number of the end, and their parameters
        // are equal.
        let mut card = [0; 32];
        let own = wire.card();
        let card = card.get_mut(..own.len()).ok_or(Failed::SetUp)?;
        card.iter_mut().zip(own).for_each(|(to, from)| *to = *from);
        *card.last_mut().ok_or(Failed::SetUp)? = 1 - me.min(1);
        let other = Peer(1 - u32::from(me.min(1)));
        let mut reached = wire.add_peer(other, card);

        let mut mtl = Mtl::new(CONFIG, COMMUNICATORS, &mut arena, [wire]).map_err(|_| Failed::SetUp)?;
        let params = mtl.params();
        let reach = |_: usize, _: &mut _| core::mem::replace(&mut reached, Err(towline_core::rail::Unreachable::Full));
        mtl.add_peer(other, &params, reach).map_err(|_| Failed::SetUp)?;
        let world = mtl.add_comm(CONTEXT, Group::World { size: 2 }, me.into()).map_err(|_| Failed::SetUp)?;
        let [place] = arena.table::<MaybeUninit<Self>>(1).map_err(set_up)? else { return Err(Failed::SetUp) };
        Ok(place.write(Self { mtl, world, micros, tables: available.saturating_sub(arena.left()), peer }))
    }

    /// Makes progress. Returns the time in microseconds.
    pub fn progress(&mut self) -> u64 {
        let now = (self.micros)();
        self.mtl.progress(Instant::from_nanos(now.saturating_mul(1000)));
        now
    }

    /// The line.
    pub fn line(&self) -> &Line<'m, P, SmallCrc32c> {
        let [wire] = self.mtl.rails();
        wire.raw().interface()
    }
}

/// The limits of the link.
fn link<P: Port>(raw: &SerialRail<'_, P>) -> LinkConfig {
    LinkConfig {
        peers: DATAGRAMS.peers,
        window: 8,
        slots: 4,
        control_slots: 2,
        long_slots: 1,
        deliveries: 2,
        card_bytes: 2,
        // An emulator may stop for some time.
        least_timeout: Duration::from_millis(50),
        initial_timeout: Duration::from_millis(100),
        // Both ends start at about the same time, once.
        ..LinkConfig::new(0, 1, raw.attributes())
    }
}

/// Bytes of the tables for one more peer.
fn peer<P: Port>(raw: &SerialRail<'_, P>, link: &LinkConfig) -> usize {
    // Tables have a power of two of places, and a second peer makes a reserve necessary.
    const COUNT: u32 = 8;
    let bytes = |peers| {
        let rail = SerialRail::<P>::bytes(&Datagrams { peers, ..DATAGRAMS }, LONGEST);
        let engine = Engine::<P>::bytes(&Config { peers, ..CONFIG }, COMMUNICATORS, &[raw.attributes()]);
        LinkConfig { peers, ..*link }.bytes(raw).saturating_add(rail).saturating_add(engine)
    };
    bytes(2 * COUNT).saturating_sub(bytes(COUNT)) / COUNT as usize
}
