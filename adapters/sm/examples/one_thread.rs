//! Sends 8-byte messages with 20-byte headers between two rails in one thread, to count instructions. Run it twice under
//! callgrind with different numbers of rounds. The difference of the counts, divided by the difference of the rounds, is
//! the cost of one message.
//!
//! `cargo build --release -p towline-sm --example one_thread`, then
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/one_thread ROUNDS`

use std::hint::black_box;

use towline_core::rail::{Event, Lane, Peer, Rail as _, Shape};
use towline_core::time::Instant;
use towline_sm::{Config, Rail};

fn main() {
    let rounds: u64 = std::env::args().nth(1).map_or(1000, |rounds| rounds.parse().expect("a number of rounds"));
    let job = u64::from(std::process::id());
    let mut left = Rail::open(Config::new(job, 0, 2)).expect("a rail");
    let mut right = Rail::open(Config::new(job, 1, 2)).expect("a rail");
    let to = left.add_peer(Peer(1), right.card()).expect("a peer");
    right.add_peer(Peer(0), left.card()).expect("a peer");
    for round in 0..rounds {
        send(&mut left, to, round);
        receive(&mut right);
    }
}

#[inline(never)]
fn send(rail: &mut Rail, to: towline_core::rail::Endpoint, round: u64) {
    let mut grant = rail.reserve(to, Shape { tag: 1, lane: Lane::Eager, header: 20, len: 28 }).expect("a free slot");
    grant.write(0, &[5; 20]);
    grant.write(20, &round.to_le_bytes());
    let ticket = grant.finish();
    rail.commit(ticket);
}

#[inline(never)]
fn receive(rail: &mut Rail) {
    let Some(Event::Frame(frame)) = rail.poll(Instant::ZERO) else { return };
    black_box(&frame);
}
