//! How an engine uses devices.

/// How an engine uses devices that reach memory of peers and report later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Most messages that devices move at the same time; others go in frames. Each side counts its own. A message is found by
    /// looking at all slots that were ever in use, so this is meant to be a few dozen.
    pub messages: u32,
    /// Registrations that stay when their message is over, for the next message in the same memory, each of one piece at most
    /// ([`Pipeline::piece`](crate::rail::native::Pipeline::piece)). It may be more than 0 only if
    /// [`Pml::forget_memory`](crate::pml::Pml::forget_memory) is called before any memory of messages is unmapped, and if peers are
    /// trusted not to write to memory of messages that are over.
    pub kept_pins: u32,
    /// Devices also put to [registered memory](crate::pml::Pml::register) and get from it.
    pub windows: bool,
}

impl Config {
    /// Devices are not used.
    pub const OFF: Self = Self { messages: 0, kept_pins: 0, windows: false };
}
