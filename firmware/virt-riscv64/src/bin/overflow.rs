//! The program `overflow` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    overflow::run::<virt_riscv64::Machine>()
}
