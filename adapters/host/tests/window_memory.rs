//! Windows over memory of the program: borrowed for the run of a closure, or owned.

#[allow(dead_code)] // other tests use the rest
mod common;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/selection.rs"]
mod selection;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{jobs, ranks};
use pattern::pattern;
use selection::transports;
use towline::{Access, AtomicOp, Builder, Denied, Error, Multiple, Shortage, Threads, Window, World};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];
const LONG: usize = 300_000;

/// Each rank changes the parts of all ranks. Bytes 0 to 16 of a part count, the rest has a piece for each rank.
fn exercise<L: Threads>(world: &World<L>, window: &Window<L>) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    for target in 0..size {
        window.put(target, 16 + u64::from(rank) * LONG as u64, &pattern(LONG, rank)[..])?;
        window.accumulate(target, 0, AtomicOp::Add, &[u64::from(rank) + 1])?;
        window.fetch_and_op(target, 8, AtomicOp::Xor, 1u64 << rank)?;
    }
    window.flush_all()?;
    for target in 0..size {
        let mut back = vec![0u8; LONG];
        window.get(target, 16 + u64::from(rank) * LONG as u64, &mut back[..])?;
        assert!(back == pattern(LONG, rank), "from rank {target}");
    }
    world.barrier()?;
    let mut counters = [0u64; 2];
    window.read(0, &mut counters)?;
    assert_eq!(counters, counters_of(size));
    Ok(())
}

fn counters_of(size: u32) -> [u64; 2] {
    [u64::from(size * (size + 1) / 2), (1 << size) - 1]
}

/// What a part contains after [`exercise`].
fn assert_contents(words: &[u64], size: u32) {
    assert_eq!(words[..2], counters_of(size));
    let bytes: Vec<u8> = words[2..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (rank, piece) in (0..size).zip(bytes.chunks_exact(LONG)) {
        assert!(piece == pattern(LONG, rank), "the piece of rank {rank}");
    }
}

fn words(size: u32) -> usize {
    2 + size as usize * LONG / 8
}

#[test]
fn b25_memory_of_a_closure_is_a_window_for_its_run() {
    for transport in transports(&TRANSPORTS) {
        ranks(3, transport, |world| {
            let mut memory = vec![0u64; words(3)];
            for _ in 0..3 {
                memory.fill(0);
                world.window_scope(&mut memory[..], Access::ANY, |window| exercise(&world, window)).unwrap();
                assert_contents(&memory, 3);
            }
            // Only reads are allowed on the part of rank 1.
            let access = if world.rank() == 1 { Access::REMOTE_READ } else { Access::ANY };
            let done = world.window_scope(&mut memory[..4], access, |window| {
                let refused = window.put(1, 0, &[9u64]).and_then(|()| window.flush(1));
                assert_eq!(refused, Err(Error::Refused { rank: 1, why: Denied::NoRight }));
                window.get(1, 0, &mut [0u64; 4])?;
                let outside = Error::OutOfWindow { rank: 1, offset: 8, bytes: 32, len: 32 };
                assert_eq!(window.get(1, 8, &mut [0u64; 4]), Err(outside));
                window.len(1)
            });
            assert_eq!(done, Ok(32));
            assert_eq!(memory[..2], counters_of(3));
        });
    }
}

/// The address of the memory is at fault then, and not the offset.
#[test]
fn words_of_unaligned_memory_have_no_atomic_operations() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let (mut memory, other) = ([0u64; 9], 1 - world.rank());
            let unaligned = &mut towline::zerocopy::IntoBytes::as_mut_bytes(&mut memory)[4..68];
            let done = world.window_scope(unaligned, Access::ANY, |window| {
                let refused = Error::UnalignedPart { rank: other, word: 8 };
                assert_eq!(window.accumulate(other, 0, AtomicOp::Add, &[1u64]), Err(refused.clone()));
                assert_eq!(window.fetch_and_op(other, 8, AtomicOp::Add, 1u64), Err(refused));
                assert_eq!(window.fetch_and_op(other, 4, AtomicOp::Add, 1u32), Ok(0));
                let offset = Error::Unaligned { rank: other, offset: 2, word: 4, len: 64 };
                assert_eq!(window.fetch_and_op(other, 2, AtomicOp::Add, 1u32), Err(offset));
                Ok::<(), Error>(())
            });
            assert_eq!((done, memory), (Ok(()), [0, 1, 0, 0, 0, 0, 0, 0, 0]));
        });
    }
}

#[test]
fn b25_a_window_owns_its_buffer_until_it_is_closed() {
    for transport in transports(&TRANSPORTS) {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).threads(Multiple);
            let world = builder.job(job).build().unwrap();
            for _ in 0..3 {
                let window = world.window_over(vec![0u64; words(2)], Access::ANY).unwrap();
                exercise(&world, &window).unwrap();
                assert_contents(&window.close().unwrap(), 2);
            }
        });
    }
}

/// A buffer that counts how often one is freed.
struct Counted(Vec<u8>, Arc<AtomicU32>);

impl towline::BufferMut for Counted {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn b25_a_window_that_is_dropped_frees_its_buffer_and_one_that_is_leaked_keeps_it() {
    for transport in transports(&TRANSPORTS) {
        let freed = Arc::new(AtomicU32::new(0));
        ranks(2, transport, |world| {
            let (window_of, other) = (|| Counted(vec![0; 200_000], Arc::clone(&freed)), 1 - world.rank());
            let dropped = world.window_over(window_of(), Access::ANY).unwrap();
            dropped.put(other, 0, &[1u8; 100]).unwrap();
            dropped.flush(other).unwrap();
            world.barrier().unwrap();
            drop(dropped);
            while freed.load(Ordering::SeqCst) < 2 {
                world.progress();
            }
            world.barrier().unwrap();
            let leaked = world.window_over(window_of(), Access::ANY).unwrap();
            let data = pattern(200_000, world.rank());
            let remote = if world.rank() == 0 {
                std::mem::forget(leaked);
                None
            } else {
                Some(leaked)
            };
            world.barrier().unwrap();
            if let Some(window) = remote {
                // The memory is still there.
                window.put(0, 0, &data[..]).unwrap();
                window.flush(0).unwrap();
                let mut back = vec![0; data.len()];
                window.get(0, 0, &mut back[..]).unwrap();
                assert!(back == data);
            }
            world.barrier().unwrap();
        });
        assert_eq!(freed.load(Ordering::SeqCst), 3, "two that were dropped before, and one at the end");
    }
}

#[test]
fn b25_after_a_panic_in_the_closure_nothing_is_written_any_more() {
    for transport in transports(&TRANSPORTS) {
        ranks(2, transport, |world| {
            let mut memory = vec![0u8; 500_000];
            if world.rank() == 0 {
                let unwound = catch_unwind(AssertUnwindSafe(|| {
                    world.window_scope(&mut memory[..], Access::ANY, |window| {
                        world.barrier()?;
                        window.put(1, 0, &[1u8])?;
                        std::panic::resume_unwind(Box::new("as it was asked to"))
                    })
                }));
                let panic: Box<dyn std::any::Any + Send> = unwound.map(|done: Result<(), Error>| done).unwrap_err();
                assert!(panic.is::<&str>());
                let before = memory.clone();
                world.send(1, 1, b"gone").unwrap();
                world.recv(1, 2, &mut [0u8; 4]).unwrap();
                assert!(memory == before);
            } else {
                // The other rank does not reach the end of its closure, so this one leaves without a window.
                let window = world.window_over(memory, Access::ANY).unwrap();
                world.barrier().unwrap();
                world.recv(0, 1, &mut [0u8; 4]).unwrap();
                let refused = window.put(0, 0, &pattern(400_000, 3)[..]).and_then(|()| window.flush(0));
                assert_eq!(refused, Err(Error::Refused { rank: 0, why: Denied::NoMemory }));
                world.send(0, 2, b"done").unwrap();
                drop(window);
            }
            world.barrier().unwrap();
        });
    }
}

#[test]
fn the_error_of_the_closure_is_returned_and_the_others_end_too() {
    ranks(3, "sm", |world| {
        let mut memory = [7u32; 4];
        let done = world.window_scope(&mut memory, Access::ANY, |window| {
            window.put((world.rank() + 1) % 3, 0, &[world.rank()])?;
            if world.rank() == 1 { Err(Error::Cancelled) } else { Ok(()) }
        });
        assert_eq!(done, if world.rank() == 1 { Err(Error::Cancelled) } else { Ok(()) });
        assert_eq!(memory, [(world.rank() + 2) % 3, 7, 7, 7]);
    });
}

#[test]
fn a_window_over_own_memory_is_made_at_all_ranks_or_at_none() {
    ranks(3, "sm", |world| {
        let alone = world.split(Some(world.rank()), 0).unwrap().unwrap();
        let mut taken: Vec<Window> =
            if world.rank() == 2 { std::iter::from_fn(|| alone.window(8).ok()).collect() } else { Vec::new() };
        for _ in 0..100 {
            let refused = Error::NoWindow { rank: 2, why: Shortage::Windows };
            let failed = world.window_over(vec![3u8; 9], Access::ANY).unwrap_err();
            assert_eq!((failed.error, failed.buffer), (refused.clone(), vec![3; 9]));
            let mut memory = [1u8; 3];
            let done: Result<(), Error> = world.window_scope(&mut memory, Access::ANY, |_| panic!("there is none"));
            assert_eq!((done, memory), (Err(refused), [1; 3]));
        }
        taken.clear();
        assert_eq!(world.window_over(vec![3u8; 9], Access::ANY).unwrap().close().unwrap(), [3; 9]);
    });
}

#[test]
fn an_empty_part_is_possible() {
    ranks(2, "sm", |world| {
        let mut memory = vec![0u64; if world.rank() == 0 { 1 } else { 0 }];
        let done = world.window_scope(&mut memory[..], Access::ANY, |window| {
            window.accumulate(0, 0, AtomicOp::Add, &[1u64])?;
            let outside = Error::OutOfWindow { rank: 1, offset: 0, bytes: 1, len: 0 };
            assert_eq!(window.put(1, 0, &[1u8]).and_then(|()| window.flush(1)), Err(outside));
            Ok::<(), Error>(())
        });
        done.unwrap();
        assert!(world.rank() == 1 || memory == [2]);
    });
}
