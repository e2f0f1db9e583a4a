//! The program `dpu` on this board.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    dpu::run::<virt::Card<virt_aarch64::Machine>>()
}
