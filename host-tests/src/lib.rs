//! Tests of the project from outside: conformance kits that every rail and every matching transport must
//! pass, a simulator that runs whole jobs of the real engine in one thread and in virtual time, and relays that make the
//! network between real processes misbehave.
//!
//! No other crate needs this one to run a job. Every random choice comes from a [`random::Random`] with a seed, and every
//! failure names the seed that reproduces it.

pub mod kit;
pub mod pattern;
pub mod random;
pub mod relay;
pub mod sim;

/// The example of the firmware's serial lines. The firmware is a workspace of its own, whose documentation is not tested there.
#[cfg(doctest)]
#[doc = include_str!("../../firmware/serial/README.md")]
pub struct SerialLines;
