//! Set-up, and the loop.

use offload::{Limits, Server};
use runtime::Block;
use towline_core::arena::Arena;
use towline_core::pml::Config;
use towline_core::rma;
use towline_core::time::{Duration, Instant};
use towline_window::device::{About, Device};
use towline_window::header::at;
use towline_window::layout::Layout;

use crate::board::Dpu;
use crate::rails::{self, PEERS};

/// Words of static memory for all tables.
const WORDS: usize = 1 << 18;
/// Slots of the rings of commands and completions.
const SLOTS: u32 = 256;
/// Most sends and receives in progress. A message that a probe took out may keep a request, too.
const OPERATIONS: u32 = 2048;
/// Most puts, gets and atomics in progress.
const ONE_SIDED: u32 = 64;
/// Most registrations of memory.
const REGIONS: u32 = 64;
/// Most unanswered requests of a peer for puts, gets and atomics.
const WINDOW: u16 = 8;
/// Most regions of memory of the host outside the window.
const HOST_REGIONS: u32 = 16;
/// Most messages that probes have taken out.
const MESSAGES: u32 = 64;
const LIMITS: Limits = Limits {
    engine: Config {
        peers: PEERS,
        requests: OPERATIONS + MESSAGES,
        unexpected: 256,
        units: 256,
        unit_bytes: 1024,
        rma: rma::Config { regions: REGIONS, operations: ONE_SIDED, window: WINDOW },
        ..Config::SMALLEST
    },
    communicators: 64,
    messages: MESSAGES,
};
/// Polls without an event before the program pauses.
const PATIENCE: u32 = 200;
const DESCRIPTION: &str = concat!("towline firmware ", env!("CARGO_PKG_VERSION"));

static TABLES: Block<WORDS> = Block::new();

/// Why the program ended. The number is its exit status.
#[derive(Clone, Copy, Debug, defmt::Format)]
#[repr(u32)]
pub enum Failed {
    /// There is no window.
    Window = 1,
    /// There is no network interface.
    Interface = 2,
    /// Static memory is too small, or the program runs already.
    Memory = 3,
    /// The window is too small.
    Layout = 4,
    /// The engine refuses its limits.
    Engine = 5,
}

/// Runs the program on a board. It returns only if it cannot start, with the exit status: the number of a [`Failed`].
pub fn run<B: Dpu>() -> u32 {
    let failed = match serve::<B>() {
        Ok(never) => match never {},
        Err(failed) => failed,
    };
    B::print(format_args!("dpu: failed: {failed:?}\n"));
    failed as u32
}

fn serve<B: Dpu>() -> Result<core::convert::Infallible, Failed> {
    let memory = B::window().ok_or(Failed::Window)?;
    let interfaces = B::interfaces();
    if interfaces.iter().all(Option::is_none) {
        return Err(Failed::Interface);
    }
    // The window keeps the number of the start before, unless its memory was cleared.
    let mut before = [0; 4];
    memory.read(at::BOOT, &mut before).map_err(|_| Failed::Layout)?;
    let boot = u32::from_le_bytes(before).wrapping_add(1).wrapping_add(B::boot());
    let mut arena = Arena::new(TABLES.take().ok_or(Failed::Memory)?);
    let hub = rails::hub(&mut arena).map_err(|_| Failed::Memory)?;
    let rails = rails::make(&hub, interfaces, boot, Duration::from_millis(B::PATIENCE_MILLIS), &mut arena)
        .ok_or(Failed::Memory)?;
    let layout = Layout::plan(memory.bytes(), SLOTS, SLOTS).map_err(|_| Failed::Layout)?;
    let about = About { boot, operations: OPERATIONS, one_sided: ONE_SIDED, description: DESCRIPTION };
    let device = Device::start(memory, layout, &about).map_err(|_| Failed::Layout)?;
    let mut server = match Server::new(&LIMITS, &mut arena, rails, device) {
        Ok(server) => server,
        Err((_, device)) => {
            // The host learns of it.
            let _ = device.fail(Failed::Engine as u32);
            return Err(Failed::Engine);
        }
    };
    if let Some(memory) = B::host_memory()
        && server.reach_host(memory, HOST_REGIONS, LIMITS.engine.requests, &mut arena).is_err()
    {
        return Err(Failed::Memory);
    }
    let stack = B::stack().map_or(0, |stack| stack.deepest);
    B::print(format_args!("dpu: ready, {} bytes of tables left, {stack} bytes of stack used\n", arena.left()));
    let mut log = B::open_log(c"dpu.defmt");
    let mut idle: u32 = 0;
    loop {
        let now = Instant::from_nanos(B::micros().saturating_mul(1000));
        if server.poll(now) != 0 {
            idle = 0;
            continue;
        }
        idle = idle.saturating_add(1);
        if idle < PATIENCE {
            continue;
        }
        // A log that the host does not take stays in memory, and later lines are lost.
        if let Some(log) = &mut log {
            let _ = trace::drain(log);
        }
        B::pause();
    }
}
