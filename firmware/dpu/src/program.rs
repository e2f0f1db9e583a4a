//! Set-up, and the loop.

use core::ptr::NonNull;

use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::pml::Config;
use towline_core::rma;
use towline_core::time::{Duration, Instant};
use towline_window::device::{About, Device};
use towline_window::header::at;
use towline_window::layout::Layout;

use crate::board::Dpu;
use crate::rails;

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
/// Most messages that probes have taken out.
const MESSAGES: u32 = 64;
/// Unexpected messages of a peer that find room, and as many units of 1024 bytes for them.
const UNEXPECTED: u32 = 16;

/// The limits of a device with that many peers.
const fn limits(peers: u32) -> Limits {
    let unexpected = peers.saturating_mul(UNEXPECTED);
    Limits {
        engine: Config {
            peers,
            requests: OPERATIONS + MESSAGES,
            unexpected,
            units: unexpected,
            unit_bytes: 1024,
            rma: rma::Config { regions: REGIONS, operations: ONE_SIDED, window: WINDOW },
            ..Config::SMALLEST
        },
        communicators: 64,
        messages: MESSAGES,
    }
}
/// Polls without an event before the program pauses.
const PATIENCE: u32 = 200;
const DESCRIPTION: &str = concat!("towline firmware ", env!("CARGO_PKG_VERSION"));

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
    let tables = B::tables().ok_or(Failed::Memory)?.into_bytes();
    // SAFETY: the bytes are borrowed uniquely for as long as the program runs, and nobody has written them, so they are zero.
    let mut arena = unsafe { Arena::from_zeroed(NonNull::from(&mut *tables).cast(), tables.len()) };
    let hub = rails::hub(&mut arena).map_err(|_| Failed::Memory)?;
    let rails = rails::make(&hub, B::PEERS, interfaces, boot, Duration::from_millis(B::PATIENCE_MILLIS), &mut arena)
        .ok_or(Failed::Memory)?;
    let layout = Layout::plan(memory.bytes(), SLOTS, SLOTS).map_err(|_| Failed::Layout)?;
    let about = About { boot, operations: OPERATIONS, one_sided: ONE_SIDED, description: DESCRIPTION };
    let device = Device::start(memory, layout, &about).map_err(|_| Failed::Layout)?;
    let mut server = match Server::new(&const { limits(B::PEERS) }, &mut arena, rails, device) {
        Ok(server) => server,
        Err((_, device)) => {
            // The host learns of it.
            let _ = device.fail(Failed::Engine as u32);
            return Err(Failed::Engine);
        }
    };
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
