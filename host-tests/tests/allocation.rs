//! Messages cause no allocation: the allocator of this test process counts its calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Sending, Source, Tag};
use towline_core::pml::{Config, Mode};
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::rail::{Peer, Rail as _};
use towline_core::time::Instant;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const UNEXPECTED: u32 = 100_000;

/// 100,000 unexpected messages are matched in reverse order of their tags, with a long message for each thousandth.
/// This file has one test, so that no other thread allocates meanwhile.
#[test]
fn p17_p32_a_hundred_thousand_unexpected_messages_take_no_allocation() {
    // A credit share holds at most 65535 messages, so each of three peers sends a part.
    let peers = 4u32;
    let config = Config {
        peers,
        requests: 64,
        unexpected: UNEXPECTED / 3 * peers + 64,
        units: UNEXPECTED / 3 * peers + 64,
        unit_bytes: 64,
        probes: 1,
        seed: 3,
        first_sequence: 0,
        rma: towline_core::rma::Config::OFF,
        rdma: towline_core::pml::rdma::Config::OFF,
    };
    let mut wires = vec![0u8; Hub::cost(peers, 64, 256) + 8];
    let hub =
        Hub::new(&mut Arena::new(&mut wires), peers, 64, 256).expect("the memory has the size that `Hub::cost` says");
    let bytes = Mtl::<[Rail<'_>; 1]>::bytes(&config, 1, &[&Hub::attributes(256)]) + 8;
    let mut memory: Vec<Vec<u8>> = (0..peers).map(|_| vec![0u8; bytes]).collect();
    let mut engines: Vec<(Mtl<'_, [Rail<'_>; 1]>, Comm)> = memory
        .iter_mut()
        .zip(0..)
        .map(|(memory, rank)| {
            let rail = hub.rail(rank).expect("the hub has an end for each rank");
            let mut mtl = Mtl::new(config, 1, &mut Arena::new(memory), [rail])
                .expect("the memory has the size that the configuration says");
            let params = mtl.params();
            for peer in (0..peers).map(Peer) {
                mtl.add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).expect("reachable");
            }
            let world = mtl.add_comm(1, Group::World { size: peers }, rank).expect("a free communicator");
            (mtl, world)
        })
        .collect();
    let (target, senders) = engines.split_first_mut().expect("four engines");

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let each = UNEXPECTED.div_ceil(3);
    for tag in 0..each {
        for (sender, world) in senders.iter_mut() {
            // SAFETY: a completed send does not access its memory any more, and these complete at once.
            let sending = unsafe { sender.isend(*world, 0, tag, Mode::Standard, Span::of(&tag.to_le_bytes())) };
            assert_eq!(sending, Ok(Sending::Complete));
        }
        while target.0.progress(Instant::ZERO) != 0 {}
    }
    let kept = target.0.pml().used()[1];
    assert!(kept >= UNEXPECTED, "only {kept} messages are unexpected");
    for tag in (0..each).rev() {
        for rank in 1..peers {
            let mut into = [0u8; 4];
            // SAFETY: the buffer outlives the request, whose outcome is taken right away.
            let request = unsafe {
                let sink = Span::contiguous(into.as_mut_ptr(), into.len());
                target.0.irecv(target.1, Source::Rank(rank), Tag::Is(tag), sink).expect("a free request")
            };
            target.0.test(request).expect("the message has arrived").expect("the message fits the buffer");
            assert_eq!(into, tag.to_le_bytes());
        }
        target.0.progress(Instant::ZERO);
    }
    let (long, mut into) = ([9u8; 5000], [0u8; 5000]);
    for (sender, world) in senders.iter_mut() {
        // SAFETY: both buffers outlive the loop below, which ends with both outcomes.
        unsafe {
            let sink = Span::contiguous(into.as_mut_ptr(), into.len());
            let receive = target.0.irecv(target.1, Source::Any, Tag::Any, sink).expect("a free request");
            let Ok(Sending::Pending(send)) = sender.isend(*world, 0, 1, Mode::Standard, Span::of(&long)) else {
                panic!("a long message takes a request");
            };
            let (mut sent, mut received) = (false, false);
            while !(sent && received) {
                target.0.progress(Instant::ZERO);
                sender.progress(Instant::ZERO);
                sent = sent || sender.test(send).is_some();
                received = received || target.0.test(receive).is_some();
            }
        }
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
