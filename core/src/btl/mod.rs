//! The BTL face: the contract of Open MPI's byte transfer layer on top of one rail, for consumers other than the engine.
//!
//! [`module::Btl`] is a module with its endpoints, descriptors, active messages and one-sided operations; [`selection`] chooses
//! the rails for a peer.

/// Gives a handle of a module the form of a word.
macro_rules! word_handle {
    ($handle:ident) => {
        impl $handle {
            /// The handle as one word, which is never 0. For callers that keep words.
            pub const fn to_bits(self) -> u64 {
                self.0.to_bits()
            }

            /// The handle from the result of [`to_bits`](Self::to_bits). Any other word is a stale handle.
            pub const fn from_bits(bits: u64) -> Self {
                Self(Handle::from_bits(bits))
            }
        }
    };
}
use word_handle;

pub mod active;
mod counts;
pub mod descriptor;
pub mod endpoint;
pub mod errors;
pub mod module;
mod receives;
pub mod selection;
mod sends;
