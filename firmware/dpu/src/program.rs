//! Set-up, and the loop.

use core::convert::Infallible;
use core::ptr::NonNull;

use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::pml::{Config, Rails};
use towline_core::rma;
use towline_core::time::{Duration, Instant};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::fault::{Fault, report};
use towline_window::header::at;
use towline_window::layout::Layout;
use towline_window::memory::Memory;

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
/// Most regions of memory of the host outside the window.
const HOST_REGIONS: u32 = 16;
/// Most messages that probes have taken out.
const MESSAGES: u32 = 64;
/// Bytes of the log.
const LOG: u32 = 1 << 16;
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
    /// There is no network interface, or the first one is missing.
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

fn serve<B: Dpu>() -> Result<Infallible, Failed> {
    let memory = B::window().ok_or(Failed::Window)?;
    // The window may keep the state of an earlier start, so the host learns of it.
    serve_window::<B>(memory).inspect_err(|failed| {
        let _ = report(&memory, &Fault::of(*failed as u32)); // the memory of a window is not smaller than a header
        B::ring();
    })
}

fn serve_window<B: Dpu>(memory: Memory<'static>) -> Result<Infallible, Failed> {
    let interfaces = B::interfaces();
    if interfaces.first().is_none_or(Option::is_none) {
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
    let layout = Layout::plan(memory.bytes(), SLOTS, SLOTS).and_then(|layout| layout.with_log(LOG));
    let layout = layout.map_err(|_| Failed::Layout)?;
    let doorbell = B::doorbell();
    let about = About { boot, operations: OPERATIONS, one_sided: ONE_SIDED, description: DESCRIPTION, doorbell };
    let mut device = Device::start(memory, layout, &about).map_err(|_| Failed::Layout)?;
    if let Some(log) = device.take_log() {
        trace::to_window(log);
    }
    let mut server = match Server::new(&const { limits(B::PEERS) }, &mut arena, rails, device) {
        Ok(server) => server,
        Err(_) => return Err(Failed::Engine),
    };
    if let Some(memory) = B::host_memory() {
        // A device without room for these tables serves hosts that copy.
        if let Err(why) = server.reach_host(memory, HOST_REGIONS, OPERATIONS + MESSAGES, &mut arena) {
            B::print(format_args!("dpu: memory of the host is not reached: {why}\n"));
        }
    }
    let stack = B::stack().map_or(0, |stack| stack.deepest);
    B::print(format_args!("dpu: ready, {} bytes of tables left, {stack} bytes of stack used\n", arena.left()));
    defmt::info!("ready, start {=u32:x}, {=usize} bytes of tables left", boot, arena.left());
    let (mut idle, mut since): (u32, _) = (0, now::<B>());
    loop {
        let now = now::<B>();
        if poll::<B, _>(&mut server, now) != 0 {
            idle = 0;
            continue;
        }
        if idle == 0 {
            since = now;
        }
        idle = idle.saturating_add(1);
        let may_sleep = doorbell != Doorbell::None && server.device().is_rung();
        if may_sleep && now.since(since) >= B::awake() {
            if sleep::<B, _>(&mut server) != 0 {
                idle = 0;
            }
        } else if idle >= PATIENCE {
            B::pause();
        }
    }
}

fn now<B: Dpu>() -> Instant {
    Instant::from_nanos(B::micros().saturating_mul(1000))
}

/// Lets the server work, and wakes the host if it waits for what came. Returns the number of events.
fn poll<B: Dpu, R: Rails>(server: &mut Server<'_, '_, R>, now: Instant) -> u32 {
    let events = server.poll(now);
    if server.device_mut().must_ring() {
        B::ring();
    }
    events
}

/// Sleeps until there is work. Returns the number of events if there was work already.
fn sleep<B: Dpu, R: Rails>(server: &mut Server<'_, '_, R>) -> u32 {
    server.device_mut().announce_sleep();
    // What the host has written without ringing is seen now.
    let now = now::<B>();
    let events = poll::<B, _>(server, now);
    let may_sleep = events == 0 && server.device().is_rung() && server.arm();
    if may_sleep {
        B::sleep(server.poll_at().map(|due| due.since(now)));
    }
    server.device_mut().awake();
    if events == 0 && !may_sleep {
        // A frame waits for room, for example.
        B::pause();
    }
    events
}
