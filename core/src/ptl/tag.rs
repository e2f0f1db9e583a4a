//! The tag of the engine's frames.

/// The active-message tag of the engine's frames (`MCA_BTL_TAG_PML`).
pub const TAG: u8 = 0x40;
