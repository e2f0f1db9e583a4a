//! How an engine uses devices.

/// How an engine uses devices that reach memory of peers and report later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Most messages that devices move at the same time; other messages go in frames. Each side has its own limit. A message is
    /// found by a walk through all slots that were ever in use, so a few dozen are meant.
    pub messages: u32,
    /// Most registrations that are kept when their message is over, for the next message in the same memory. Each covers one
    /// piece at most ([`Pipeline::piece`](crate::rail::native::Pipeline::piece)). Choose more than 0 only if
    /// [`Pml::forget_memory`](crate::pml::Pml::forget_memory) is called before any memory of messages is unmapped, and if peers
    /// are trusted not to write to memory of messages that are over.
    pub kept_pins: u32,
    /// Whether devices also execute puts and gets on [registered memory](crate::pml::Pml::register).
    pub windows: bool,
}

impl Config {
    /// Devices are not used.
    pub const OFF: Self = Self { messages: 0, kept_pins: 0, windows: false };
}
