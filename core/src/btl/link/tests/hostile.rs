//! A peer that says anything.

use super::bench::{Bench, bytes};
use super::wire::{Dice, Faults};
use crate::btl::*;
use std::vec::Vec;

#[test]
fn p15_any_bytes_are_no_panic_and_free_nothing() {
    let mut dice = Dice(5);
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    for number in 0..10 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 5000));
    }
    bench.settle();
    bench.faults(|faults| faults.silent = true);
    for number in 10..15 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    let kept = bench.ends[0].link.used();
    for _ in 0..20_000 {
        let len = dice.below(80) as usize;
        let frame: Vec<u8> = (0..len).map(|_| dice.word() as u8).collect();
        let tag = [0x11, 0x12, 0x80, dice.word() as u8][dice.below(4) as usize];
        bench.shared.borrow_mut().forge(1, 0, tag, &frame);
        bench.poll(0);
    }
    assert_eq!(bench.ends[0].link.used(), kept);
    assert!(bench.ends[0].got.is_empty());
    bench.faults(|faults| faults.silent = false);
    bench.settle();
    bench.check(0, 1, (0..15).collect());
}
