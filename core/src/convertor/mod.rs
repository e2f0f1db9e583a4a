//! User memory of any layout, packed and unpacked from any byte offset, in pieces of any size.

mod span;

pub use span::Span;
