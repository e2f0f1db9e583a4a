//! A ring of 64-byte slots between one sender and one receiver.
mod sender;
pub use sender::*;
