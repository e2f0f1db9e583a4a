//! Whole jobs of the real engine in one thread and in virtual time, over rails that misbehave by seed.

pub mod checker;
mod clock;
mod devices;
pub mod faults;
pub mod goodput;
pub mod history;
pub mod job;
mod mishaps;
pub mod net;
mod node;
pub mod onesided;
pub mod plan;
pub mod rail;
mod rests;
pub mod room;
pub mod soak;
mod steps;
pub mod swarm;
pub mod ways;
pub mod windows;
