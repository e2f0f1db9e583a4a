//! The models of `src/slots.rs`, which are built for loom alone: the rest of the crate does not exist then.
#![cfg(loom)]

#[allow(dead_code)] // the models do not use all of it
#[path = "../src/slots.rs"]
mod slots;
