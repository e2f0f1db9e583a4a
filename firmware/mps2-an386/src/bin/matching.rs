//! The program `matching` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    matching::run::<mps2_an386::Machine>()
}
