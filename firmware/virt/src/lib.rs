//! What the 64-bit boards share, which are machines `virt` of QEMU. Each is a DPU: its window is a part of its memory, which the emulator
//! shares with the host, its network is one or two virtio devices, and its doorbell is the UART.
//!
//! | module | subject |
//! |---|---|
//! | [`machine`] | what the boards differ in |
//! | [`card`] | the machine as a DPU |
//! | [`window`] | the memory of the window |
//! | [`fault`] | exceptions of the processor, and panics in drivers |
//! | [`times`] | how long the machine is awake, and how long it sleeps |
#![no_std]

pub mod card;
pub mod fault;
pub mod machine;
pub mod times;
pub mod window;

pub use card::Card;
pub use machine::Machine;
