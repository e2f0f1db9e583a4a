//! Sends 8-byte messages between two engines in one thread over the loopback rail, the receive posted first: for
//! counting instructions (`valgrind --tool=callgrind`). The difference of two run lengths is the cost of the pairs alone.
//!
//! `cargo run --release -p towline-core --example pair -- 1000`

use towline_core::arena::Arena;
use towline_core::btl::loopback::{Hub, Rail};
use towline_core::btl::{Peer, Rail as _};
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Source, Tag};
use towline_core::pml::{Config, Mode, Sending};
use towline_core::time::Instant;

type Engine<'h> = Mtl<'static, [Rail<'h>; 1]>;

fn engine<'h>(hub: &'h Hub<'h>, rank: u32, params: &[u8]) -> (Engine<'h>, Comm) {
    let config = Config { peers: 2, requests: 64, unexpected: 64, units: 64, ..Config::SMALLEST };
    let memory = Box::leak(vec![0; Engine::bytes(&config, 1, 1) + 8].into_boxed_slice());
    let mut mtl =
        Mtl::new(config, 1, &mut Arena::new(memory), [hub.rail(rank).expect("two ends")]).expect("enough memory");
    let own = mtl.params();
    for peer in [Peer(0), Peer(1)] {
        let params = if params.is_empty() { &own[..] } else { params };
        mtl.add_peer(peer, params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).expect("reachable");
    }
    let world = mtl.add_comm(1, Group::World { size: 2 }, rank).expect("a free communicator");
    (mtl, world)
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    let mut wires = vec![0; Hub::cost(2, 64, 512) + 8];
    let hub = Hub::new(&mut Arena::new(&mut wires), 2, 64, 512).expect("enough memory");
    let (mut left, left_world) = engine(&hub, 0, &[]);
    let (mut right, right_world) = engine(&hub, 1, &[]);
    let mut sum = 0u64;
    for round in 0..rounds {
        let out = round.to_le_bytes();
        let mut into = [0u8; 8];
        // SAFETY: both buffers outlive the requests, which are over at the end of the round.
        let request = unsafe {
            let request = right.irecv(right_world, Source::Rank(0), Tag::Is(7), Span::contiguous(into.as_mut_ptr(), 8));
            let sending = left.isend(left_world, 1, 7, Mode::Standard, Span::of(&out));
            assert_eq!(sending, Ok(Sending::Complete));
            request.expect("a free request")
        };
        right.progress(Instant::ZERO);
        assert!(matches!(right.test(request), Some(Ok(status)) if status.delivered == 8));
        if round % 8 == 7 {
            left.progress(Instant::ZERO); // credit comes back, once for many messages
        }
        sum = sum.wrapping_add(u64::from_le_bytes(into));
    }
    println!("{rounds} rounds, checksum {sum}");
}
