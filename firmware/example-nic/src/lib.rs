//! The example of `firmware/NEW-BOARD.md`: a network card that does not exist, as a board for the program of a DPU.
//!
//! | module | subject |
//! |---|---|
//! | [`frames`] | the driver of the frame device |
//! | `card` | where window and frame device are: the trait `dpu::Dpu` |
//! | `board` | console, time, log: the trait `runtime::Board` |
//! | `start` | what runs before the program, and after a fault |
//! | `devices` | registers of the UARTs, the timer and the processor |
//!
//! The card has a Cortex-M4F with its own memory, 16 MiB that the host maps by a BAR of PCI, and a device that sends and receives
//! frames. Memory, UARTs and timer are those of Arm's MPS2, so that an emulator runs the card. The tests are its wire and its host.
#![no_std]

#[cfg(feature = "board")]
mod board;
#[cfg(feature = "board")]
mod card;
#[cfg(feature = "board")]
mod devices;
pub mod frames;
#[cfg(feature = "board")]
mod start;

#[cfg(feature = "board")]
pub use board::Nic;
