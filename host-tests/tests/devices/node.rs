//! A device with its window, and the host's end.

use std::ptr::NonNull;

use offload::{Limits, Server};
use towline_core::arena::Arena;
use towline_core::pml::Rails;
use towline_core::rail::Rail;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::time::{Duration, Instant};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::host::{Attaching, Host};
use towline_window::layout::Layout;
use towline_window::memory::Memory;

use crate::network::Port;

/// Bytes of a window.
pub const WINDOW: usize = 1 << 18;
/// Slots of each ring.
pub const SLOTS: u32 = 16;
/// Most peers of the firmware's links.
const PEERS: u32 = 16;

#[repr(align(64))]
struct Lines {
    _bytes: [u8; WINDOW],
}

/// The memory of a window, which outlives device and host.
pub struct Window(NonNull<Lines>);

impl Window {
    pub fn new() -> Self {
        // SAFETY: zeros are valid bytes.
        let lines = unsafe { Box::<Lines>::new_zeroed().assume_init() };
        Self(NonNull::from(Box::leak(lines)))
    }

    /// The memory, which may be used until the window is dropped.
    pub fn memory(&self) -> Memory<'static> {
        // SAFETY: nothing refers to the memory except the two ends of this window, which their owners drop before the window.
        unsafe { Memory::new(self.0.cast(), WINDOW) }.expect("it is at a multiple of 64")
    }

    /// Where the buffers begin.
    pub fn buffers() -> u64 {
        layout().buffers
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the memory is that of a box, and both ends of the window were dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn layout() -> Layout {
    Layout::plan(WINDOW, SLOTS, SLOTS).expect("the window is large enough")
}

/// The rails of a device in the simulator: those of the firmware.
pub type DeviceRails = dpu::rails::All<'static, Port>;

/// A device that runs. It is dropped before its window.
pub struct Dpu<R: 'static> {
    // Fields are dropped in this order: the server uses the hub, and both use the memory.
    pub server: Server<'static, 'static, R>,
    _hub: Option<Box<Hub<'static>>>,
    _memory: Vec<Box<[u64]>>,
}

/// An arena of new memory. The memory has to outlive all tables from the arena.
fn arena(bytes: usize, kept: &mut Vec<Box<[u64]>>) -> Arena<'static> {
    let mut memory = vec![0_u64; bytes.div_ceil(8) + 1].into_boxed_slice();
    let (begin, bytes) = (NonNull::from(&mut *memory).cast(), memory.len() * 8);
    kept.push(memory);
    // SAFETY: fresh zeros, used by nothing else, and kept by the caller for longer than the tables.
    unsafe { Arena::from_zeroed(begin, bytes) }
}

impl<R: Rails> Dpu<R> {
    fn start(
        window: &Window,
        limits: &Limits,
        boot: u32,
        rails: R,
        hub: Option<Box<Hub<'static>>>,
        mut kept: Vec<Box<[u64]>>,
    ) -> Self {
        let about = About {
            boot,
            operations: limits.engine.requests,
            one_sided: limits.engine.rma.operations,
            description: "test",
            doorbell: Doorbell::None,
        };
        let device = Device::start(window.memory(), layout(), &about).expect("the layout is valid");
        let attributes: Vec<_> = (0..rails.count()).filter_map(|at| rails.rail(at)).map(Rail::attributes).collect();
        let bytes = Server::<'static, 'static, R>::bytes(limits, &attributes);
        let mut arena = arena(bytes, &mut kept);
        let server = Server::new(limits, &mut arena, rails, device).map_err(|(why, _)| why);
        Self { server: server.expect("as much memory as it said"), _hub: hub, _memory: kept }
    }

    /// Takes commands and makes progress.
    pub fn poll(&mut self, now: u64) -> u32 {
        self.server.poll(Instant::from_nanos(now))
    }
}

impl Dpu<DeviceRails> {
    /// A device with the rails of the firmware over a port of the network.
    pub fn plugged(window: &Window, limits: &Limits, boot: u32, port: Port) -> Self {
        Self::plugged_twice(window, limits, boot, [Some(port), None])
    }

    /// A device with the rails of the firmware over up to two ports.
    pub fn plugged_twice(window: &Window, limits: &Limits, boot: u32, ports: [Option<Port>; 2]) -> Self {
        let mut kept = vec![];
        let mut arena = arena(1 << 21, &mut kept);
        let hub = Box::new(dpu::rails::hub(&mut arena).expect("enough memory"));
        // SAFETY: the hub is in a box, which this object drops after the rails.
        let shared = unsafe { &*std::ptr::from_ref(&*hub) };
        let rails = dpu::rails::make(shared, PEERS, ports, boot, Duration::from_millis(1), &mut arena);
        Self::start(window, limits, boot, rails.expect("enough memory"), Some(hub), kept)
    }
}

impl Dpu<[Loopback<'static>; 1]> {
    /// A device with an end of a hub that outlives it.
    pub fn looped(window: &Window, limits: &Limits, me: u32, hub: &'static Hub<'static>) -> Self {
        Self::start(window, limits, me + 1, [hub.rail(me).expect("an end")], None, vec![])
    }
}

/// A host that gets its session at once.
pub fn attach<R: Rails>(window: &Window, device: &mut Dpu<R>, session: u32, now: u64) -> Host<'static> {
    let mut attaching = Attaching::new(window.memory(), session).expect("the device is ready");
    device.poll(now);
    attaching.poll().expect("the device serves the session")
}
