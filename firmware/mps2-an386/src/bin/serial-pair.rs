//! The program `serial-pair` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    serial_pair::run::<mps2_an386::Machine>()
}
