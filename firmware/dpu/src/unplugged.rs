//! A network interface without a network.

use core::hint::black_box;

use datagram::{Address, Interface};

/// An interface that sends nothing and receives nothing. A program with it is linked to prove that no panic is reachable, where the
/// driver of the real interface is of another project. The compiler cannot see that nothing is received.
#[derive(Debug)]
pub struct Unplugged;

impl Interface for Unplugged {
    fn address(&self) -> Address {
        Address::of_six(black_box([0; 6]))
    }

    fn longest(&self) -> usize {
        black_box(1500)
    }

    fn capacity(&self) -> usize {
        black_box(1)
    }

    fn room(&mut self) -> usize {
        black_box(1)
    }

    fn send(&mut self, _: &Address, _: &[u8]) {}

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        black_box(into);
        black_box(None)
    }

    fn has_arrived(&mut self) -> bool {
        black_box(false)
    }
}
