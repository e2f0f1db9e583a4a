//! Once connections are established, messages of any size are sent and received without the allocator.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Delivery, Event, Lane, Rail as _, SendError, Sent, Shape};
use towline_tcp::{Encrypt, Rail};

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: each call is passed on to the system's allocator; the counter is not allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: passed on from the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on from the caller.
        unsafe { System.dealloc(block, layout) }
    }
}

/// A rail with a small send buffer, so that frames wait.
fn narrow(rank: u32, encrypt: Encrypt) -> Rail {
    let mut config = config(rank);
    config.encrypt = encrypt;
    config.socket_send_buffer_bytes = Some(128 * 1024);
    Rail::new(config).unwrap()
}

#[test]
fn messages_of_all_sizes_need_no_allocator() {
    without_the_allocator(Encrypt::Off);
}

#[test]
fn encrypted_messages_of_all_sizes_need_no_allocator() {
    without_the_allocator(Encrypt::Always);
}

fn without_the_allocator(encrypt: Encrypt) {
    let (mut world, endpoints) = World::with_peers((0..3).map(|rank| narrow(rank, encrypt)).collect());
    for (from, row) in endpoints.iter().enumerate() {
        for to in (0..3).filter(|to| *to != from) {
            world.send(from, row[to], b"connect");
        }
    }
    world.until("all are connected", |world| world.observed.iter().all(|seen| seen.len() == 2));

    let before = CALLS.with(Cell::get);
    let counted = before > 0;
    let mut rails = std::mem::take(&mut world.rails);
    let body = vec![0x5A_u8; 1 << 20];
    let mut sink = vec![0_u8; 1 << 20];
    let before = if counted { CALLS.with(Cell::get) } else { panic!("the counter does not count") };
    let mut kinds = [0; 3];
    for turn in 0..600_usize {
        let (from, to) = (turn % 3, (turn + 1 + turn / 3 % 2) % 3);
        let len = [8, 57, 3000, 40_000, 300_000, (1 << 20) - 16][turn % 6];
        let lane = if len > 60_000 { Lane::Bulk } else { [Lane::Eager, Lane::Control][turn / 6 % 2] };
        let shape = Shape { tag: TAG, lane, header: 8, len: len as u32 };
        let mut in_place = loop {
            let body = Span::of(&body[..len - 8]);
            // SAFETY: the body lives to the end of the test.
            match unsafe { rails[from].send(endpoints[from][to], shape, &[1; 8], body, Cookie(1)) } {
                Ok(sent) => {
                    kinds[sent as usize] += 1;
                    break sent == Sent::InPlace;
                }
                Err(SendError::Busy) => drop(rails[from].poll(world.now)),
                Err(error) => panic!("{error}"),
            }
        };
        let mut missing = 1;
        if in_place {
            // A control frame behind it waits too.
            let shape = Shape { tag: TAG, lane: Lane::Control, header: 8, len: 8 };
            // SAFETY: there is no body.
            let sent = unsafe { rails[from].send(endpoints[from][to], shape, &[2; 8], Span::EMPTY, Cookie(3)) };
            kinds[sent.unwrap() as usize] += 1;
            missing += 1;
        }
        let limit = Limit::new();
        while missing > 0 || in_place {
            in_place &= !matches!(rails[from].poll(world.now), Some(Event::Sent(_)));
            match rails[to].poll(world.now) {
                Some(Event::Frame(frame)) if frame.is_whole() => missing -= 1,
                Some(Event::Frame(frame)) => {
                    let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
                    // SAFETY: the sink lives to the end of the test, and nobody reads it.
                    let delivery = unsafe { rails[to].deliver(frame.id, 8, span, Cookie(2)) };
                    missing -= i32::from(delivery == Delivery::Done);
                }
                Some(Event::Delivered(_)) => missing -= 1,
                _ => {}
            }
            limit.check(format_args!("turn {turn}"));
        }
    }
    assert_eq!(CALLS.with(Cell::get) - before, 0, "calls of the allocator");
    assert!(kinds.iter().all(|count| *count > 0), "all kinds of sends: {kinds:?}");
}
