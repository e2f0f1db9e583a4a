//! Sends 8-byte messages between two contexts in one thread over the shared-memory rail, to count instructions. A round is
//! one `irecv`, one `isend`, one call of `progress` with an event, and both completions; the receive is posted first. The
//! difference of two runs with different numbers of rounds is the cost of the rounds (`host-tests/scripts/instructions`).
//!
//! `cargo run --release -p towline-sm --example pair -- 1000`

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Sending, Source, Tag};
use towline_core::pml::{Config, Mode};
use towline_core::rail::{Peer, Rail as _};
use towline_core::time::Instant;
use towline_sm::Rail;

type Engine = Mtl<'static, [Rail; 1]>;

fn engine(rank: u32, job: u64) -> Engine {
    let config = Config { peers: 2, requests: 64, unexpected: 1024, units: 1024, ..Config::SMALLEST };
    let rail = Rail::open(towline_sm::Config::new(job, rank, 2)).expect("enough shared memory");
    let memory = Box::leak(vec![0; Engine::bytes(&config, 1, &[rail.attributes()]) + 8].into_boxed_slice());
    Mtl::new(config, 1, &mut Arena::new(memory), [rail]).expect("enough memory")
}

fn connect(one: &mut Engine, rank: u32, other: &Engine) -> Comm {
    let peer = Peer(1 - rank);
    let (params, card) = (other.params(), other.rails()[0].card().to_vec());
    one.add_peer(peer, &params, |_, rail| rail.add_peer(peer, &card)).expect("reachable");
    one.add_comm(1, Group::World { size: 2 }, rank).expect("a free communicator")
}

fn round(left: &mut (Engine, Comm), right: &mut (Engine, Comm), number: u64) {
    let (out, mut into) = (number.to_le_bytes(), [0; 8]);
    let sink = Span::contiguous(into.as_mut_ptr(), into.len());
    // SAFETY: the buffer is kept until the request is complete, below.
    let request = unsafe { right.0.irecv(right.1, Source::Rank(0), Tag::Is(7), sink) }.expect("a free request");
    // SAFETY: the send is complete, as asserted below, so it does not access the buffer any more.
    let sending = unsafe { left.0.isend(left.1, 1, 7, Mode::Standard, Span::of(&out)) };
    assert_eq!(sending, Ok(Sending::Complete));
    while right.0.progress(Instant::ZERO) == 0 {}
    assert!(matches!(right.0.test(request), Some(Ok(status)) if status.delivered == 8));
    assert_eq!(into, out);
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let job = u64::from(std::process::id());
    let (mut left, mut right) = (engine(0, job), engine(1, job));
    let left_world = connect(&mut left, 0, &right);
    let right_world = connect(&mut right, 1, &left);
    let (mut left, mut right) = ((left, left_world), (right, right_world));
    for number in 0..rounds {
        round(&mut left, &mut right, number);
        if number % 256 == 255 {
            left.0.progress(Instant::ZERO); // receives the credit of many messages
        }
    }
    println!("{rounds} rounds");
}
