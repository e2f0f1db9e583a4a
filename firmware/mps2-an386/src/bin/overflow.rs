//! The program `overflow` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    overflow::run::<mps2_an386::Machine>()
}
