//! What the project proves about itself from outside: conformance kits that every rail and every matching transport
//! must pass, a simulator that runs whole jobs of the real engine in one thread and in virtual time, and relays that make
//! the network between real processes misbehave.
//!
//! Nothing here is part of a running job. Every random choice comes from a [`dice::Dice`] with a seed, and every failure
//! names the seed that brings it back.

pub mod dice;
pub mod kit;
pub mod relay;
pub mod sim;
