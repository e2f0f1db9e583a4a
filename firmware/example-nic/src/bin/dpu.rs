//! The program of a DPU on this card.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    dpu::run::<example_nic::Nic>()
}
