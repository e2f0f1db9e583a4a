//! Two contexts in one thread, connected by loopback rails.

use towline_core::arena::Arena;
use towline_core::mtl::{Comm, Group, Mtl};
use towline_core::pml::Config;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rail::{Peer, Rail};
use towline_core::time::Instant;

use crate::error::Failed;

/// Number of frames in a queue, and bytes of a frame.
const QUEUE: (u32, u32) = (8, 1024);
const CONTEXT: u32 = 1;
const CONFIG: Config = Config { peers: 2, requests: 8, unexpected: 8, units: 8, unit_bytes: 512, ..Config::SMALLEST };

/// Bytes of a context for one more peer, request, and unexpected message without and with its payload.
pub const EACH: [usize; 4] = {
    const fn bytes(config: Config) -> usize {
        Mtl::<'static, [Loopback<'static>; 1]>::bytes(&config, 1, &[&Hub::attributes(QUEUE.1)])
    }
    // Tables have a power of two of places.
    const COUNT: u32 = 64;
    const fn each(more: Config, less: Config) -> usize {
        (bytes(more) - bytes(less)) / COUNT as usize
    }
    let message =
        each(Config { unexpected: 2 * COUNT, probes: 0, ..CONFIG }, Config { unexpected: COUNT, probes: 0, ..CONFIG });
    let payload =
        each(Config { units: 2 * COUNT, unit_bytes: 64, ..CONFIG }, Config { units: COUNT, unit_bytes: 64, ..CONFIG });
    [
        each(Config { peers: 2 * COUNT, ..CONFIG }, Config { peers: COUNT, ..CONFIG }),
        each(Config { requests: 2 * COUNT, ..CONFIG }, Config { requests: COUNT, ..CONFIG }),
        message,
        message + payload,
    ]
};

/// One context: an engine, and a communicator of both contexts.
pub struct Context<'m> {
    pub mtl: Mtl<'m, [Loopback<'m>; 1]>,
    pub world: Comm,
}

/// Both contexts.
pub struct Contexts<'m> {
    pub sides: [Context<'m>; 2],
    /// The time in microseconds.
    micros: fn() -> u64,
}

/// Numbers of messages and fragments, summed over both contexts.
pub struct Counts {
    pub eager: u64,
    pub rendezvous: u64,
    pub fragments: u64,
}

impl<'m> Context<'m> {
    fn new(me: u32, arena: &mut Arena<'m>, hub: &'m Hub<'m>) -> Result<Self, Failed> {
        let rail = hub.rail(me).ok_or(Failed::SetUp)?;
        let mut mtl = Mtl::new(CONFIG, 1, arena, [rail]).map_err(|_| Failed::SetUp)?;
        let world = mtl.add_comm(CONTEXT, Group::World { size: 2 }, me).map_err(|_| Failed::SetUp)?;
        Ok(Self { mtl, world })
    }
}

/// Creates two contexts in the memory of `tables`, and calls `work` with them. `micros` is the time in microseconds.
pub fn with<T>(
    tables: &mut [u8],
    micros: fn() -> u64,
    work: impl FnOnce(&mut Contexts<'_>) -> Result<T, Failed>,
) -> Result<T, Failed> {
    let mut arena = Arena::new(tables);
    let hub = Hub::new(&mut arena, 2, QUEUE.0, QUEUE.1).map_err(|_| Failed::SetUp)?;
    let sides = [Context::new(0, &mut arena, &hub)?, Context::new(1, &mut arena, &hub)?];
    let mut contexts = Contexts { sides, micros };
    contexts.connect(&hub)?;
    work(&mut contexts)
}

impl Contexts<'_> {
    /// Bytes of all tables, of the queues and of the engines.
    pub const BYTES: usize = Hub::cost(2, QUEUE.0, QUEUE.1)
        + 2 * Mtl::<'static, [Loopback<'static>; 1]>::bytes(&CONFIG, 1, &[&Hub::attributes(QUEUE.1)]);

    /// Adds each context as a peer of the other.
    fn connect(&mut self, hub: &Hub<'_>) -> Result<(), Failed> {
        let [left, right] = &mut self.sides;
        let params = (left.mtl.params(), right.mtl.params());
        for (me, to, other) in [(left, 1, params.1), (right, 0, params.0)] {
            let card = hub.rail(to).ok_or(Failed::SetUp)?;
            let reach = |_: usize, rail: &mut Loopback<'_>| rail.add_peer(Peer(to), card.card());
            me.mtl.add_peer(Peer(to), &other, reach).map_err(|_| Failed::SetUp)?;
        }
        Ok(())
    }

    /// Both contexts make progress. Returns whether there was any event.
    pub fn progress(&mut self) -> bool {
        let now = Instant::from_nanos((self.micros)().saturating_mul(1000));
        let [left, right] = &mut self.sides;
        let events = (left.mtl.progress(now), right.mtl.progress(now));
        events != (0, 0)
    }

    /// Checks that no resources are in use, and that all kinds of messages and transitions occurred.
    pub fn finish(&mut self) -> Result<Counts, Failed> {
        while self.progress() {}
        let mut sum = Counts { eager: 0, rendezvous: 0, fragments: 0 };
        for side in &mut self.sides {
            if side.mtl.pml().used() != [0; 3] {
                return Err(Failed::Leak);
            }
            let counters = side.mtl.counters();
            defmt::info!("{}", counters);
            let seen = [
                counters.eager_sent,
                counters.rendezvous_sent,
                counters.fragments_sent,
                counters.acks_sent,
                counters.expected,
                counters.unexpected,
            ];
            if seen.contains(&0) || counters.malformed + counters.stale + counters.credit_violations != 0 {
                return Err(Failed::Untested);
            }
            sum.eager += counters.eager_sent;
            sum.rendezvous += counters.rendezvous_sent;
            sum.fragments += counters.fragments_sent;
        }
        Ok(sum)
    }
}
