//! The program that checks the core on this card.
#![no_std]
#![no_main]

#[unsafe(no_mangle)]
fn program() -> u32 {
    pair::run::<example_nic::Nic>()
}
