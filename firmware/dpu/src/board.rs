//! What the program needs of its board.

use datagram::Interface;
use offload::host_memory::HostMemory;
use runtime::{Block, Board, Zeros};
use towline_core::time::Duration;
use towline_window::doorbell::Doorbell;
use towline_window::memory::Memory;

use crate::rails::LINKS;

/// A board with a window to a host and network interfaces.
pub trait Dpu: Board {
    /// The driver of a network interface.
    type Interface: Interface;

    /// Milliseconds that an answer of another device may take at least before it counts as lost: the longest time for which a device
    /// may stop without a fault.
    const PATIENCE_MILLIS: u64;

    /// Most peers, this device included. [`tables`](Self::tables) has to have room for them.
    const PEERS: u32 = 16;

    /// The memory of all tables. It is called once, and later calls return `None`. A board with other limits has its own;
    /// the program prints how much of it is left.
    fn tables() -> Option<Zeros> {
        /// 2 MiB.
        static TABLES: Block<{ 1 << 18 }> = Block::new();
        TABLES.take_zeros()
    }

    /// The memory of the window. Returns `None` if there is none. It is called once.
    fn window() -> Option<Memory<'static>>;

    /// The network interfaces, in the same order as on the other devices: each reaches the one with the same place there. So the program
    /// does not start with the second one alone. It is called once.
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

    /// How the host wakes the device. Without a doorbell, the program never sleeps, and [`pause`](Self::pause) is all that it waits.
    /// It is called once, after [`window`](Self::window).
    fn doorbell() -> Doorbell {
        Doorbell::None
    }

    /// How long the program looks for work before it sleeps, if there is a doorbell.
    fn awake() -> Duration {
        Duration::from_nanos(0)
    }

    /// Sleeps until the host rings, something arrives at an interface, or a time has passed, if there is one. It takes the bells that
    /// were rung. It may return early, and returns in time for a heartbeat that shows the host that the firmware runs.
    fn sleep(_most: Option<Duration>) {
        Self::pause();
    }

    /// Wakes the host.
    fn ring() {}
}
