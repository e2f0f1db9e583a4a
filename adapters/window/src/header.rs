//! The words of the header.

/// Bytes of the header.
pub const HEADER: usize = 512;
/// The first 8 bytes of a window.
pub const MAGIC: [u8; 8] = *b"TOWLINEW";
/// The version of the layout: a major number in the upper 16 bits, and a minor number. Sides with different major numbers do not
/// work together. Devices of minor version 1 have the commands of one-sided operations, those of minor version 2 those of frames,
/// those of minor version 3 those of host regions, a log, and may have a doorbell, those of minor version 4 announcements, and those of minor
/// version 5 the command that keeps ready sends.
pub const VERSION: u32 = 1 << 16 | 5;
/// Bytes of the device's description, a text that ends with zeros.
pub const DESCRIPTION: usize = 64;
/// The most slots of a ring.
pub const MAX_SLOTS: u32 = 1 << 16;

/// Offsets of the words, and who writes them.
pub mod at {
    /// Device, before it is ready: [`MAGIC`](super::MAGIC).
    pub const MAGIC: u64 = 0;
    /// Device, before it is ready: [`VERSION`](super::VERSION).
    pub const VERSION: u64 = 8;
    /// Device, before it is ready: a number that is another one after each start.
    pub const BOOT: u64 = 12;
    /// Device, before it is ready: the number of slots of the ring of commands.
    pub const COMMAND_SLOTS: u64 = 16;
    /// Device, before it is ready: the number of slots of the ring of completions.
    pub const COMPLETION_SLOTS: u64 = 20;
    /// Device, before it is ready, 8 bytes: where the ring of commands begins.
    pub const COMMANDS: u64 = 24;
    /// Device, before it is ready, 8 bytes: where the ring of completions begins.
    pub const COMPLETIONS: u64 = 32;
    /// Device, before it is ready, 8 bytes: where the buffers begin.
    pub const BUFFERS: u64 = 40;
    /// Device, before it is ready, 8 bytes: the size of the buffers.
    pub const BUFFER_BYTES: u64 = 48;
    /// Device, before it is ready: the most sends and receives that may be in progress.
    pub const OPERATIONS: u64 = 56;
    /// Device, before it is ready: the most puts, gets and atomics that may be in progress. 0 if it has none, as before version 1.1.
    pub const ONE_SIDED: u64 = 60;
    /// Device, before it is ready: its description.
    pub const DESCRIPTION: u64 = 64;
    /// Device: its state.
    pub const STATE: u64 = 128;
    /// Device: the session of the host that it serves, or 0.
    pub const SESSION: u64 = 132;
    /// Device: a counter that grows while the firmware runs.
    pub const HEARTBEAT: u64 = 136;
    /// Device: why it failed.
    pub const FAULT: u64 = 140;
    /// Device, 8 bytes: the exception by which it failed, or 0.
    pub const CAUSE: u64 = 144;
    /// Device, 8 bytes: the instruction of this exception.
    pub const INSTRUCTION: u64 = 152;
    /// Device, 8 bytes: the address that it accessed.
    pub const ADDRESS: u64 = 160;
    /// Device, before it is ready, 8 bytes: where the log begins.
    pub const LOG: u64 = 168;
    /// Device, before it is ready: bytes of the log, or 0 if there is none.
    pub const LOG_BYTES: u64 = 176;
    /// Device, before it is ready: how it is woken ([`Doorbell`](crate::doorbell::Doorbell)).
    pub const DOORBELL: u64 = 180;
    /// Device: its position in the log.
    pub const LOG_WRITTEN: u64 = 184;
    /// Device: frames of the log that found no room.
    pub const LOG_LOST: u64 = 188;
    /// Host: the session that it asks for, or 0.
    pub const WANTED: u64 = 192;
    /// Host: the session that it has ended by itself.
    pub const LEFT: u64 = 196;
    /// Device: its position in the ring of commands.
    pub const COMMANDS_TAKEN: u64 = 256;
    /// Device: odd while it sleeps, and waits for the doorbell.
    pub const DEVICE_SLEEPS: u64 = 260;
    /// Host: its position in the ring of completions.
    pub const COMPLETIONS_TAKEN: u64 = 320;
    /// Host: its position in the log.
    pub const LOG_TAKEN: u64 = 324;
    /// Host: the session whose host rings the doorbell.
    pub const RINGS: u64 = 328;
    /// Host: odd while it sleeps, and waits for the device to ring.
    pub const HOST_SLEEPS: u64 = 332;
}

/// The state of the device, in [`at::STATE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u32)]
pub enum State {
    /// It has not written the header yet.
    Starting = 0,
    /// It serves a host, or waits for one.
    Ready = 1,
    /// It has ended, and says why in [`at::FAULT`].
    Failed = 2,
}
