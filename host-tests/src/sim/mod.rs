//! Whole jobs of the real engine in one thread and in virtual time, over rails that misbehave by seed.
//!
//! Types are below, behaviour is above: [`history`] records and checks a job's events, [`plan`] holds the programs, [`network`]
//! the rails, [`job`] runs a plan, [`seeds`] makes a job from a number, and [`soak`] and [`goodput`] run many jobs.

pub mod buffer;
pub mod goodput;
pub mod history;
pub mod job;
pub mod network;
pub mod plan;
pub mod seeds;
pub mod soak;
