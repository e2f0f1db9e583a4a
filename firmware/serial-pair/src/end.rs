//! One end of the line: an engine over a link over the line.

use core::mem::MaybeUninit;

use datagram::{Config as Datagrams, PREFIX, Rail as DatagramRail};
use serial::{Line, Port};
use towline_core::arena::Arena;
use towline_core::convertor::copy_slice;
use towline_core::link::{Config as LinkConfig, Link, SmallCrc32c};
use towline_core::mtl::{Comm, Group, Mtl};
use towline_core::pml::Config;
use towline_core::rail::stack::Placed;
use towline_core::rail::{Attributes, Peer, Rail as _, Unreachable};
use towline_core::time::{Duration, Instant};

use crate::error::Failed;

/// Bytes of the longest frame.
const FRAME: usize = 256;
/// The line's longest datagram.
const LONGEST: usize = FRAME + PREFIX;
/// 8 posted receives, and 2 sends at a time.
pub const CONFIG: Config =
    Config { peers: 2, requests: 10, unexpected: 8, units: 8, unit_bytes: 64, ..Config::SMALLEST };
/// The rail and the link reach one peer, at the other end. The other peer of the engine is this end.
const DATAGRAMS: Datagrams = Datagrams { peers: 1, held: 1, latency: 100_000, bandwidth: 1 };
/// Bytes of the card of an end.
const CARD: u32 = 2;
const COMMUNICATORS: u32 = 1;
const CONTEXT: u32 = 1;

type SerialRail<'m, P> = DatagramRail<'m, Line<'m, P, SmallCrc32c>>;
type Wire<'m, P> = Link<'m, SerialRail<'m, P>, SmallCrc32c>;
/// The engine. The link is in a place of its own.
type Engine<'m, P> = Mtl<'m, [Placed<'m, Wire<'m, P>>; 1]>;

/// One end of the line.
pub struct End<'m, P> {
    pub mtl: Engine<'m, P>,
    pub world: Option<Comm>,
    /// The time in microseconds.
    micros: fn() -> u64,
    /// Bytes of the tables, and of this.
    pub tables: usize,
}

impl<'m, P: Port> End<'m, P> {
    /// Bytes of the tables for one more peer, if the link can have one.
    pub const PEER: usize = {
        // Tables have a power of two of places, and a second peer makes a reserve necessary.
        const COUNT: u32 = 8;
        (bytes::<P>(2 * COUNT) - bytes::<P>(COUNT)) / COUNT as usize
    };

    /// The end with the number `me`, which is itself in `memory`, with its tables.
    pub fn new(memory: &'m mut [u8], port: P, me: u8, micros: fn() -> u64) -> Result<&'m mut Self, Failed> {
        let available = memory.len();
        let mut arena = Arena::new(memory);
        let wire = wire(&mut arena, port, me)?;
        let end = Self::place(&mut arena, wire, micros)?;
        end.connect(me)?;
        end.tables = available.saturating_sub(arena.left());
        Ok(end)
    }

    /// Makes the end, without a connection. Never inlined: what this takes of the stack is free afterwards. An engine is a value,
    /// which is moved to its place when it is complete.
    #[inline(never)]
    fn place(arena: &mut Arena<'m>, wire: &'m mut Wire<'m, P>, micros: fn() -> u64) -> Result<&'m mut Self, Failed> {
        let rails = [Placed { rail: wire }];
        let mtl = Mtl::new(CONFIG, COMMUNICATORS, arena, rails).map_err(|_| Failed::SetUp)?;
        put(arena, Self { mtl, world: None, micros, tables: 0 })
    }

    /// Connects the end with the other one.
    #[inline(never)]
    fn connect(&mut self, me: u8) -> Result<(), Failed> {
        let params = self.mtl.params();
        // Both ends have the same settings. So their parameters are equal, and their cards differ only in the last byte, the number of
        // the end.
        let reach = |_: usize, wire: &mut Placed<'m, Wire<'m, P>>| {
            let mut card = [0; 32];
            let own = wire.card();
            let card = card.get_mut(..own.len()).ok_or(Unreachable::BadCard)?;
            copy_slice(card, own);
            *card.last_mut().ok_or(Unreachable::BadCard)? = 1 - me.min(1);
            wire.add_peer(other(me), card)
        };
        self.mtl.add_peer(other(me), &params, reach).map_err(|_| Failed::SetUp)?;
        let world = self.mtl.add_comm(CONTEXT, Group::World { size: 2 }, me.into()).map_err(|_| Failed::SetUp)?;
        self.world = Some(world);
        Ok(())
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
        wire.rail.raw().interface()
    }
}

/// The other end of the line.
fn other(me: u8) -> Peer {
    Peer(1 - u32::from(me.min(1)))
}

/// Moves a value to a place in the arena.
fn put<'m, T>(arena: &mut Arena<'m>, value: T) -> Result<&'m mut T, Failed> {
    match arena.table::<MaybeUninit<T>>(1) {
        Ok([place]) => Ok(place.write(value)),
        _ => Err(Failed::SetUp),
    }
}

/// The link in its place. Never inlined, as [`End::place`].
#[inline(never)]
fn wire<'m, P: Port>(arena: &mut Arena<'m>, port: P, me: u8) -> Result<&'m mut Wire<'m, P>, Failed> {
    let set_up = |_| Failed::SetUp;
    let line = Line::new(port, me, LONGEST, SmallCrc32c, arena).map_err(set_up)?;
    let raw = DatagramRail::new(line, &DATAGRAMS, arena).map_err(set_up)?;
    let config = const { link(&SerialRail::<P>::attributes_of(&DATAGRAMS, LONGEST)) };
    let link = Link::new(raw, SmallCrc32c, config, arena).map_err(set_up)?;
    put(arena, link)
}

/// The limits of the link.
const fn link(rail: &Attributes) -> LinkConfig {
    LinkConfig {
        peers: DATAGRAMS.peers,
        window: 8,
        slots: 2,
        control_slots: 1,
        long_slots: 1,
        deliveries: 1,
        card_bytes: CARD,
        // An emulator may stop for some time.
        least_timeout: Duration::from_millis(50),
        initial_timeout: Duration::from_millis(100),
        // Both ends start at about the same time, once.
        ..LinkConfig::new(0, 1, rail)
    }
}

/// Bytes of the tables with this number of peers.
const fn bytes<P: Port>(peers: u32) -> usize {
    let attributes = SerialRail::<P>::attributes_of(&DATAGRAMS, LONGEST);
    let link = LinkConfig { peers, ..link(&attributes) }.bytes_over(&attributes, CARD as usize);
    let engine = Engine::<P>::bytes(&Config { peers, ..CONFIG }, COMMUNICATORS, &[&attributes]);
    link + engine + SerialRail::<P>::bytes(&Datagrams { peers, ..DATAGRAMS }, LONGEST)
}
