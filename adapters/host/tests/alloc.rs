//! Blocking operations and those of a scope allocate nothing once a world is up and its ranks are connected.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use towline::{Any, Builder, Communicator, Error, View, World, vector};

struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::SeqCst);
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// All operations that are documented to allocate nothing, `rounds` times.
fn exercise(world: &Communicator, rounds: u32, mine: &[u8], theirs: &mut [u8], matrix: &[f64]) -> Result<(), Error> {
    let other = 1 - world.rank();
    for tag in 0..rounds {
        for len in [0, 8, 500, 8192, 100_000] {
            if world.rank() == 0 {
                world.send(other, tag, &mine[..len])?;
                world.recv(Any, tag, &mut theirs[..len])?;
            } else {
                world.recv(other, Any, &mut theirs[..len])?;
                world.send(other, tag, &mine[..len])?;
            }
            world.sendrecv(&mine[..len], other, tag, &mut theirs[..len], other, tag)?;
            world.scope(|s| {
                let (front, back) = theirs.split_at_mut(len);
                let receive = s.irecv(other, 1, front)?;
                s.irecv(other, 2, &mut back[..len])?;
                s.issend(other, 2, &mine[..len])?;
                s.isend(other, 1, &mine[..len])?.wait()?;
                receive.wait().map(|_| ())
            })?;
        }
        let column = vector::<f64>(40, 1, 50)?;
        world.scope(|s| {
            s.irecv(other, 1, &mut theirs[..320])?;
            s.isend_view(other, 1, View::new(matrix, 3, &column)?)?;
            Ok::<(), Error>(())
        })?;
        world.probe(world.rank(), 99).map_or(Ok(()), |_| Ok::<(), Error>(()))?;
    }
    world.barrier()
}

/// How many exercises there are; one of them must do without an allocation. On a busy machine, a heartbeat to a silent peer or a
/// new number of waiting threads may allocate during an exercise, so a single exercise proves nothing. After the first ones,
/// exercises are shorter, so that one of them is over before such an event.
const ATTEMPTS: u32 = 40;

/// The allocations of both ranks in the exercise that has the fewest. The first exercise does not count.
fn counted(ranks: &Communicator) -> u64 {
    let (mine, mut theirs, matrix) = (vec![1u8; 100_000], vec![0u8; 200_000], vec![1f64; 2000]);
    // For the probe: a message of this rank to itself that is not received.
    ranks.send(ranks.rank(), 99, b"here").unwrap();
    // The first use makes connections, rings and whatever else is needed.
    exercise(ranks, 50, &mine, &mut theirs, &matrix).unwrap();
    let mut calls = u64::MAX;
    for attempt in 0..ATTEMPTS {
        let before = CALLS.load(Ordering::SeqCst);
        ranks.barrier().unwrap();
        exercise(ranks, if attempt < 3 { 50 } else { 5 }, &mine, &mut theirs, &matrix).unwrap();
        calls = calls.min(CALLS.load(Ordering::SeqCst) - before);
        ranks.barrier().unwrap();
        // Both ranks go on until each has seen an exercise without an allocation.
        let (other, mut most) = (1 - ranks.rank(), [0u64]);
        ranks.sendrecv(&[calls], other, 98, &mut most, other, 98).unwrap();
        if calls.max(most[0]) == 0 {
            break;
        }
    }
    ranks.recv(ranks.rank(), 99, &mut [0u8; 4]).unwrap();
    calls
}

#[test]
fn blocking_and_scoped_operations_allocate_nothing() {
    for transport in ["sm", "tcp", "udp"] {
        assert_eq!(common::ranks(2, transport, |world: World| counted(&world)), [0, 0], "{transport}");
        // Contexts of one process do not allocate either.
        let contexts = Builder::new().transports(transport).contexts(2).unwrap();
        let threads =
            contexts.into_iter().map(|context| std::thread::spawn(|| counted(context.enter().all_contexts())));
        let threads: Vec<_> = threads.collect();
        let calls: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(calls, [0, 0], "{transport}, contexts");
    }
}
