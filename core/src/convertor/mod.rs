//! User memory of any layout, packed and unpacked from any byte offset, in pieces of any size.
//!
//! A [`Layout`] says where the bytes of a message lie; a [`Span`] is a window on its packed form at a base address; its
//! [`Runs`] are the stretches of memory behind the window, for scatter and gather without a copy.

mod accelerator;
pub(crate) mod copy;
mod layout;
mod runs;
mod span;
#[cfg(test)]
mod tests;

pub use accelerator::Accelerator;
pub use layout::{Layout, LayoutError, MAX_DEPTH, Misfit, Piece};
pub use runs::Runs;
pub(crate) use span::Parts;
pub use span::{Span, transfer};
