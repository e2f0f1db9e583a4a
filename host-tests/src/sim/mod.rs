//! Whole jobs of the real engine in one thread and in virtual time, over rails that misbehave by seed.

pub mod checker;
pub mod faults;
pub mod history;
pub mod job;
pub mod net;
pub mod plan;
pub mod rail;
pub mod room;
pub mod swarm;
