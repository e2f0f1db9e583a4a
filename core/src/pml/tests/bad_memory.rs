//! Messages whose copies fail, since their memory is that of another machine, and is not mapped there.

use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::{vec, vec::Vec};

use super::basic::{Engine, WIDE, engines, memory, step};
use crate::arena::Arena;
use crate::convertor::{Accelerator, Layout, Span};
use crate::link::{Config as LinkConfig, Crc32c, Link};
use crate::pml::matching::Pattern;
use crate::pml::*;
use crate::rail::loopback::Hub;
use crate::rail::{FullRail, Peer, Rail};

/// Memory whose first bytes can be copied. Its addresses are those of the processor.
#[derive(Debug)]
pub(super) struct Mapped {
    until: usize,
    failures: AtomicU32,
    reads: AtomicU32,
}

impl Accelerator for Mapped {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if from.addr() + len > self.until {
            self.failures.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the caller vouches for the memory.
            return unsafe { to.write_bytes(0xbb, len) };
        }
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(from, len) };
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        if to.addr() + len > self.until {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // SAFETY: the caller vouches for the memory.
        unsafe { to.copy_from_nonoverlapping(from, len) };
    }

    fn failures(&self) -> Option<u32> {
        Some(self.failures.load(Ordering::Relaxed))
    }
}

/// Some memory, of which the first bytes are mapped.
pub(super) fn mapped(bytes: &'static mut [u8], until: usize) -> (Span, &'static Mapped) {
    let until = bytes.as_ptr().addr() + until;
    let mapped: &'static Mapped =
        Box::leak(Box::new(Mapped { until, failures: AtomicU32::new(0), reads: AtomicU32::new(0) }));
    let layout = Box::leak(Box::new(Layout::bytes(bytes.len() as u64).unwrap().on(mapped).unwrap()));
    // SAFETY: all of it lives as long as the program.
    (unsafe { Span::laid_out(bytes.as_mut_ptr(), layout) }, mapped)
}

pub(super) fn numbered(len: usize) -> &'static mut [u8] {
    (0..len).map(|at| at as u8 | 1).collect::<Vec<_>>().leak()
}

const PATTERN: Pattern = Pattern { context: 1, source: 0, tag: 2 };

/// The end of a receive whose message cannot be read by engine 0.
pub(super) fn aborted(tag: u32, len: u64) -> Failure {
    Failure::Aborted(Status { peer: Peer(0), tag, received: len, delivered: len })
}

/// Engine 0 sends, and engine 1 receives. Returns both outcomes.
fn pass<R: FullRail>(
    engines: &mut [Pml<'static, [R; 1]>],
    mode: Mode,
    data: Span,
    sink: Span,
) -> [Result<Status, Failure>; 2] {
    // SAFETY: the memory lives as long as the program.
    let (sent, received) = unsafe {
        let sent = engines[0].isend(Peer(1), 1, 2, mode, data).unwrap();
        (sent, engines[1].irecv(PATTERN, sink).unwrap())
    };
    let mut ends = [None, None];
    if sent == Sending::Complete {
        ends[0] = Some(Ok(Status { peer: Peer(1), tag: 2, received: data.len(), delivered: data.len() }));
    }
    for _ in 0..10_000 {
        step(engines);
        if let (Sending::Pending(request), None) = (sent, ends[0]) {
            ends[0] = engines[0].test(request);
        }
        if ends[1].is_none() {
            ends[1] = engines[1].test(received);
        }
        if let [Some(sent), Some(received)] = ends {
            return [sent, received];
        }
    }
    panic!("not over: {ends:?}");
}

#[test]
fn a_message_whose_memory_cannot_be_read_ends_at_both_sides() {
    for slots in [2, 8] {
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Complete] {
            for (len, until) in [(1, 0), (100, 99), (5000, 0), (5000, 2500), (5000, 4999)] {
                let mut engines: Vec<Engine> = engines(2, WIDE, slots, 256);
                let (data, copies) = mapped(numbered(len), until);
                let mut into = vec![0xee; len];
                let sink = Span::contiguous(into.as_mut_ptr(), len);
                let ends = pass(&mut engines, mode, data, sink);
                let both = [Failure::BadMemory, aborted(2, len as u64)];
                assert_eq!(ends, both.map(Err), "{until} of {len} bytes");
                assert_eq!(copies.failures(), Some(1), "no copy is tried again");
                let is_right = |(at, byte): (usize, &u8)| *byte == 0xee || (*byte == at as u8 | 1 && at < until);
                assert!(into.iter().enumerate().all(is_right), "{until} of {len} bytes");
                // Later messages arrive.
                let mut into = [0; 600];
                let sink = Span::contiguous(into.as_mut_ptr(), 600);
                let ends = pass(&mut engines, mode, Span::of(numbered(600)), sink);
                assert!(ends.iter().all(Result::is_ok) && into[..] == *numbered(600));
                assert_eq!(engines.iter().map(|engine| engine.used()).collect::<Vec<_>>(), [[0; 3]; 2]);
            }
        }
    }
}

#[test]
fn a_receive_into_memory_that_cannot_be_written_counts_the_failures() {
    for (len, until) in [(40, 0), (5000, 2500)] {
        let mut engines: Vec<Engine> = engines(2, WIDE, 8, 256);
        let (sink, copies) = mapped(vec![0; len].leak(), until);
        let ends = pass(&mut engines, Mode::Standard, Span::of(numbered(len)), sink);
        assert!(ends.iter().all(Result::is_ok));
        assert_ne!(copies.failures(), Some(0));
    }
}

/// Links that check bodies. The memory is read once for each frame, and never after it was written.
#[test]
fn links_do_not_read_such_memory_again() {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(2, 64, 256))), 2, 64, 256).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let links = [0, 1].map(|end| {
        let raw = hub.rail(end).unwrap();
        let config = LinkConfig {
            peers: 2,
            slots: 16,
            control_slots: 8,
            window: 16,
            sums: true,
            ..LinkConfig::new(1, u64::from(end) + 1, raw.attributes())
        };
        let arena = memory(config.bytes(&raw));
        Link::new(raw, Crc32c, config, &mut Arena::new(arena)).unwrap()
    });
    let cards = links.each_ref().map(|link| link.card().to_vec());
    let config = Config { peers: 2, ..WIDE };
    let mut engines: Vec<_> = links
        .map(|link| {
            let block = memory(config.bytes(&[link.attributes()]));
            Pml::new(config, &mut Arena::new(block), [link]).unwrap()
        })
        .into();
    let params: Vec<_> = engines.iter().map(Pml::params).collect();
    for me in 0..2 {
        let peer = Peer(1 - me as u32);
        engines[me].add_peer(peer, &params[1 - me], |_, rail| rail.add_peer(peer, &cards[1 - me])).unwrap();
    }
    let ((data, from), (sink, to)) = (mapped(numbered(5000), 5000), mapped(vec![0; 5000].leak(), 5000));
    let ends = pass(&mut engines, Mode::Standard, data, sink);
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    let mut into = [0; 5000];
    // SAFETY: the array has the bytes of the span.
    unsafe { sink.pack(into.as_mut_ptr(), 5000) };
    assert!(into[..] == *numbered(5000));
    assert_eq!(to.reads.load(Ordering::Relaxed), 1, "only this test has read what was received");
    let fragments = engines[0].counters().fragments_sent;
    assert_eq!(u64::from(from.reads.load(Ordering::Relaxed)), fragments, "one copy for each fragment");
    let (data, _) = mapped(numbered(5000), 3000);
    let ends = pass(&mut engines, Mode::Standard, data, sink);
    assert_eq!(ends, [Err(Failure::BadMemory), Err(aborted(2, 5000))]);
}
