//! The program `pair` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    pair::run::<virt_riscv64::Machine>()
}
