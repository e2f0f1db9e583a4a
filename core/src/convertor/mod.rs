//! User memory of any layout, packed and unpacked from any byte offset, in pieces of any size.
//!
//! A [`Layout`] has the places of the bytes of a message. A [`Span`] is a part of its packed form, at a base address. The
//! [`Runs`] of a span are its contiguous pieces of memory, for scatter and gather without a copy.

mod accelerator;
mod build;
pub(crate) mod copy;
#[cfg_attr(not(feature = "layouts"), path = "contiguous.rs")]
mod fields;
mod layout;
mod overlap;
mod runs;
mod span;
mod strides;
#[cfg(test)]
mod tests;

pub use accelerator::Accelerator;
pub use copy::copy_slice;
pub(crate) use fields::Parts;
pub use fields::Span;
pub(crate) use layout::LAYOUTS;
pub use layout::{BoundsError, Layout, LayoutError, MAX_DEPTH, Overlap, Piece};
pub use runs::Runs;
pub use span::transfer;
