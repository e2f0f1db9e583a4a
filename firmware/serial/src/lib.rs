#![doc = include_str!("../README.md")]
#![no_std]

mod counters;
mod incoming;
mod line;
mod outgoing;

pub use counters::Counters;
pub use line::{Line, Port};
