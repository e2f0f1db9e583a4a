//! Contexts in one thread, over loopback rails.

use core::fmt::{self, Arguments};

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::mtl::Mtl;
use towline_core::pml::{Config, SetUpError};
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rail::{Peer, Rail, Unreachable};
use towline_core::time::Instant;

use crate::direct::Direct;
use crate::replay::{Replay, Stopped};

/// Contexts of a trace.
pub const CONTEXTS: u32 = 3;
/// Most communicators of a context.
pub const COMMUNICATORS: u32 = 4;
/// Communicators of named peers that a trace may make, at all contexts together.
pub const TABLES: usize = 16;
/// The limits of each engine. The results of the trace depend on them.
pub const CONFIG: Config =
    Config { peers: CONTEXTS, requests: 16, unexpected: 24, units: 12, unit_bytes: 128, ..Config::SMALLEST };
/// Number of frames in a queue, and bytes of a frame.
const QUEUE: (u32, u32) = (8, 512);

type Rails<'m> = [Loopback<'m>; 1];

/// Why the trace was not replayed to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayError {
    /// The memory is too small.
    OutOfMemory,
    /// The engine refuses its limits.
    SetUp(SetUpError),
    /// The contexts do not reach each other.
    Unreachable(Unreachable),
    /// The replay stopped.
    Stopped(Stopped),
    /// A request, an envelope or a unit of a context is still in use at the end.
    Leak(u32),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("the memory is too small: give it loopback::BYTES"),
            Self::SetUp(why) => why.fmt(f),
            Self::Unreachable(why) => why.fmt(f),
            Self::Stopped(why) => why.fmt(f),
            Self::Leak(at) => write!(f, "context {at} still uses something at the end"),
        }
    }
}

impl core::error::Error for ReplayError {}

impl From<OutOfMemory> for ReplayError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<SetUpError> for ReplayError {
    fn from(why: SetUpError) -> Self {
        Self::SetUp(why)
    }
}

/// The bytes of all tables.
pub const BYTES: usize = Hub::cost(CONTEXTS, QUEUE.0, QUEUE.1)
    + CONTEXTS as usize * Mtl::<'static, Rails<'static>>::bytes(&CONFIG, COMMUNICATORS, &[&Hub::attributes(QUEUE.1)])
    + Direct::<'static, 'static, Rails<'static>, fn() -> Instant>::bytes(TABLES)
    + Replay::BYTES;

/// Replays a trace, with all tables in `tables`, which has [`BYTES`], and with `memory` for messages, which has
/// [`MEMORY`](crate::replay::MEMORY). `micros` is the time in microseconds. Gives each result to `print`.
///
/// # Errors
/// [`ReplayError`].
pub fn replay(
    trace: &[u8],
    tables: &mut [u8],
    memory: &mut [u8],
    micros: fn() -> u64,
    print: impl FnMut(Arguments<'_>),
) -> Result<(), ReplayError> {
    let mut arena = Arena::new(tables);
    let hub = Hub::new(&mut arena, CONTEXTS, QUEUE.0, QUEUE.1)?;
    let mut sides = [context(0, &mut arena, &hub)?, context(1, &mut arena, &hub)?, context(2, &mut arena, &hub)?];
    for side in &mut sides {
        for peer in 0..CONTEXTS {
            // The parameters depend on the limits only, which are the same everywhere.
            let params = side.params();
            let card = hub.rail(peer).ok_or(Unreachable::BadCard).map_err(ReplayError::Unreachable)?;
            let reach = |_: usize, rail: &mut Loopback<'_>| rail.add_peer(Peer(peer), card.card());
            side.add_peer(Peer(peer), &params, reach).map_err(ReplayError::Unreachable)?;
        }
    }
    let mut replay = Replay::new(&mut arena)?;
    let now = || Instant::from_nanos(micros().saturating_mul(1000));
    let mut contexts = Direct::new(&mut sides, memory, arena, now)?;
    replay.run(trace, &mut contexts, print).map_err(ReplayError::Stopped)?;
    for (at, side) in (0..).zip(contexts.sides()) {
        if side.pml().used() != [0; 3] {
            return Err(ReplayError::Leak(at));
        }
    }
    Ok(())
}

/// A context that knows no peer yet.
fn context<'m>(me: u32, arena: &mut Arena<'m>, hub: &'m Hub<'m>) -> Result<Mtl<'m, Rails<'m>>, ReplayError> {
    let rail = hub.rail(me).ok_or(ReplayError::OutOfMemory)?;
    Ok(Mtl::new(CONFIG, COMMUNICATORS, arena, [rail])?)
}
