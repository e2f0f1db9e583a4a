//! How an engine uses devices.

/// How an engine uses devices that reach memory of peers, and tell later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Messages at most that devices move at the same time; others go in frames. Each side counts its own. A slot is found by
    /// looking at all that were ever in use, so this is meant to be a few dozen.
    pub messages: u32,
    /// Registrations that stay when their message is over, for the next one with the same memory: each of a piece at most
    /// ([`Pipeline::piece`](crate::rail::native::Pipeline::piece)). Not 0 only where [`Pml::forget_memory`](crate::pml::Pml::forget_memory) is called before any memory of messages is unmapped, and
    /// peers may be trusted not to write to memory of messages that are over.
    pub kept_pins: u32,
    /// Devices also put to [registered memory](crate::pml::Pml::register) and get from it.
    pub windows: bool,
}

impl Config {
    /// They are not used.
    pub const OFF: Self = Self { messages: 0, kept_pins: 0, windows: false };
}
