//! What the program needs of its board.

use datagram::Interface;
use offload::host_memory::HostMemory;
use runtime::Board;
use towline_window::memory::Memory;

use crate::rails::LINKS;

/// A board with a window to a host and network interfaces.
pub trait Dpu: Board {
    /// The driver of a network interface.
    type Interface: Interface;

    /// Milliseconds that an answer of another device may take at least before it counts as lost: the longest time for which a device
    /// may stop without a fault.
    const PATIENCE_MILLIS: u64;

    /// The memory of the window. Returns `None` if there is none. It is called once.
    fn window() -> Option<Memory<'static>>;

    /// The network interfaces, in the same order as on the other devices: each reaches the one with the same place there. It is called
    /// once.
    fn interfaces() -> [Option<Self::Interface>; LINKS];

    /// How the board reaches memory of the host outside the window. `None`: it has no such means, and the host copies the bodies of
    /// messages to the window. It is called once, after [`window`](Self::window).
    fn host_memory() -> Option<&'static dyn HostMemory> {
        None
    }

    /// A number that is another one after each start, as far as the board can tell. The program adds what it finds in the window
    /// from before.
    fn boot() -> u32;

    /// Waits a moment for work, since there is none now. It may return at once.
    fn pause();
}
