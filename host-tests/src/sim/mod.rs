//! Whole jobs of the real engine in one thread and in virtual time, over rails that misbehave by seed.

pub mod faults;
pub mod net;
pub mod rail;
