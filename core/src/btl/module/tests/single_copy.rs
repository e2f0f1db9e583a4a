//! One-sided operations by single copy: bytes are exposed, and the other side reads them from where they lie.

use super::one_sided::{Results, bytes, forge, get, memory, params, put, register, small, source};
use super::{Mesh, leak, mesh};
use crate::convertor::Layout;
use crate::convertor::Span;
use crate::rail::SingleCopy;
use crate::rail::testing::{Answer, MOST_FETCHED};
use crate::rma::{Access, Denied, Failure, RemoteMemory};
use crate::time::Instant;
use std::{vec, vec::Vec};

/// Two modules over rails that expose memory.
fn exposing(window: u16) -> Mesh {
    let mesh = mesh(2, small(window));
    mesh.scripts.iter().for_each(|script| script.borrow_mut().exposes = true);
    mesh
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 1) as u8).collect()
}

/// The pieces that a module has read, and those that it could not read.
fn reads(mesh: &Mesh, at: usize) -> [u64; 2] {
    let counters = mesh.modules[at].rma_counters();
    [counters.single_copies, counters.single_copy_failures]
}

/// The lengths of the frames that a module has sent.
fn frames(mesh: &Mesh, at: usize) -> Vec<u32> {
    mesh.scripts[at].borrow().log.iter().map(|(_, _, len)| *len).collect()
}

#[test]
fn b19_b43_data_longer_than_a_frame_is_exposed() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(1000);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let data = pattern(1000);
    put(&mut mesh, [0, 1], source(&data), &remote, 0, params(results));
    mesh.drive();
    assert_eq!((results.only(), bytes(there)), (Ok(0), data.clone()));
    assert_eq!((reads(&mesh, 1), frames(&mesh, 0), frames(&mesh, 1)), ([1, 0], vec![56], vec![24]));
    // The initiator requests as much as it can read at a time. The rest fits into a frame.
    let (sink, at) = (memory(1000), MOST_FETCHED as usize);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 3 * at + 40), &remote, 10, params(results));
    mesh.drive();
    assert_eq!((results.only(), &bytes(sink)[..3 * at + 40]), (Ok(0), &data[10..3 * at + 50]));
    assert_eq!((reads(&mesh, 0), frames(&mesh, 1)[1..].to_vec()), ([3, 0], vec![40, 40, 40, 64]));
    // Data that fits into a frame is not exposed, and neither is data that is not contiguous.
    put(&mut mesh, [0, 1], source(&data[..80]), &remote, 0, params(results));
    mesh.drive();
    let rows = leak(Layout::vector(10, 50, 60).unwrap());
    // SAFETY: the data and the layout live until the process ends.
    let scattered = unsafe { Span::laid_out(data.leak().as_mut_ptr(), rows) };
    put(&mut mesh, [0, 1], scattered, &remote, 0, params(results));
    mesh.drive();
    assert_eq!((results.statuses(), reads(&mesh, 1)), (vec![Ok(0); 2], [1, 0]));
}

/// Data that cannot be read is requested again, in frames, and no byte is counted twice.
#[test]
fn b19_b43_data_that_cannot_be_read_comes_in_frames() {
    for (refused, window) in [(0, 8), (1, 8), (2, 8), (0, 1), (1, 1), (2, 1)] {
        let (mut mesh, results) = (exposing(window), Results::new());
        let there = memory(1000);
        let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
        let answers: Vec<bool> = (0..3).map(|at| at != refused).collect();
        let data = pattern(900);
        // One piece of three cannot be read. The others wait for their answers meanwhile, or are requested later.
        mesh.scripts[0].borrow_mut().fetches.extend(&answers);
        put(&mut mesh, [0, 1], source(&data), &remote, 0, params(results));
        mesh.drive();
        assert_eq!((results.only(), reads(&mesh, 1)), (Ok(0), [1, 0]));
        let sink = memory(900);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 900), &remote, 0, params(results));
        mesh.drive();
        assert_eq!((results.only(), bytes(sink)), (Ok(0), data.clone()), "{refused} {window}");
        assert_eq!(reads(&mesh, 0)[1], 1);
        let served = mesh.modules[1].rma_counters().served;
        // A frame has 88 bytes of data.
        assert!(served > 900u64.div_ceil(88), "{served}");
        mesh.scripts[1].borrow_mut().fetches.push_back(false);
        put(&mut mesh, [0, 1], source(&data[..500]), &remote, 400, params(results));
        mesh.drive();
        assert_eq!((results.only(), reads(&mesh, 1), &bytes(there)[400..900]), (Ok(0), [1, 1], &data[..500]));
        assert!(mesh.modules[0].flush(None) && mesh.modules[0].rma.used()[1][0] == 0);
    }
}

/// Exposed memory is revoked when it is deregistered: a peer that reads later gets no bytes.
#[test]
fn b25_deregistered_memory_is_not_read() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(300);
    let (registration, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    let sink = memory(300);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, params(results));
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(mesh.scripts[1].borrow().exposed.len(), 1);
    mesh.modules[1].deregister_mem(registration).unwrap();
    mesh.drive();
    assert_eq!(results.only(), Err(Failure::Denied(Denied::NoMemory)));
    assert_eq!(reads(&mesh, 0), [0, 1]);
    // The deregistration of memory that was not exposed does not revoke other memory.
    let (first, _) = register(&mut mesh.modules[1], memory(300), Access::REMOTE_READ);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, params(results));
    mesh.modules[1].progress(Instant::ZERO);
    mesh.modules[1].deregister_mem(first).unwrap();
    mesh.drive();
    assert_eq!((results.only(), reads(&mesh, 0)), (Ok(0), [1, 1]));
}

/// The bytes of a request to put exposed bytes.
fn put_exposed(remote: &RemoteMemory, len: u32, buffer: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x18, 0, 0, 0];
    frame.extend(len.to_le_bytes());
    frame.extend([7; 8]);
    frame.extend(&remote.to_bytes()[8..16]);
    frame.extend([0; 16]);
    frame.extend(buffer);
    frame
}

/// Denied memory is not exposed, even by a rail that exposes empty memory like any other.
#[test]
fn b24_b25_denied_memory_is_not_exposed() {
    for deregistered in [false, true] {
        let (mut mesh, results) = (exposing(8), Results::new());
        let there = memory(300);
        let access = if deregistered { Access::ANY } else { Access::REMOTE_WRITE };
        let (registration, remote) = register(&mut mesh.modules[1], there, access);
        let sink = memory(300);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, params(results));
        if deregistered {
            // The request has arrived, and its answer waits for room.
            mesh.scripts[1].borrow_mut().always = Some(Answer::Busy);
            mesh.modules[1].progress(Instant::ZERO);
            mesh.modules[1].deregister_mem(registration).unwrap();
            mesh.scripts[1].borrow_mut().always = None;
        }
        mesh.drive();
        let why = if deregistered { Denied::NoMemory } else { Denied::NoRight };
        assert_eq!(results.only(), Err(Failure::Denied(why)));
        assert_eq!((frames(&mesh, 1), bytes(sink)), (vec![24], vec![0; 300]));
    }
}

/// Data is not requested again before all first requests are answered: otherwise late data would count twice.
#[test]
fn b43_nothing_is_requested_again_while_answers_are_in_flight() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(600);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let sink = memory(600);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 600), &remote, 0, params(results));
    assert_eq!(frames(&mesh, 0), [40, 40], "two pieces");
    // The first piece cannot be read. The second one comes in frames, of which the last overtakes the others.
    let exposed = answer(&mesh, 0x1a, 0, 300, &[0x55; 16]);
    forge(&mut mesh, 1, 0, &exposed);
    let data = |mesh: &Mesh, last: u8, at: u64, len: u32| {
        let mut data = answer(mesh, 0x15, 0, len, &vec![9; len as usize]);
        data[2] = last;
        data[16..24].copy_from_slice(&at.to_le_bytes());
        data
    };
    for (last, at, len) in [(1, 500, 100), (0, 300, 100), (0, 400, 100)] {
        assert_eq!(frames(&mesh, 0), [40, 40], "{at}");
        let data = data(&mesh, last, at, len);
        forge(&mut mesh, 1, 0, &data);
        mesh.modules[0].progress(Instant::ZERO);
    }
    // All data is requested again: seven requests for data in frames. The two requests before were never served.
    assert_eq!(frames(&mesh, 0), [40; 2 + 7]);
    assert_eq!(mesh.modules[0].rma_counters().single_copy_failures, 1);
}

/// A put of exposed bytes needs the same rights as any put, and the target checks them before it reads.
#[test]
fn b24_rights_and_bounds_are_checked_before_exposed_bytes_are_read() {
    let mut mesh = exposing(8);
    let there = memory(300);
    let data = source(&pattern(300));
    let endpoint = mesh.modules[0].reachable(mesh.to[0][1]).unwrap().rail;
    let buffer = mesh.modules[0].rail.expose(endpoint, &data).unwrap().0;
    let (read_only, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 300, &buffer));
    mesh.drive();
    mesh.modules[1].deregister_mem(read_only).unwrap();
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 300, &buffer));
    mesh.drive();
    let (_, remote) = register(&mut mesh.modules[1], (there.0, 200), Access::ANY);
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 201, &buffer));
    mesh.drive();
    assert_eq!((mesh.modules[1].rma_counters().denied, reads(&mesh, 1)), (3, [0, 0]));
    // A longer copy would occupy the target for too long; and a remote buffer has a fixed length.
    forge(&mut mesh, 0, 1, &put_exposed(&remote, (1 << 20) + 1, &buffer));
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 200, &buffer[..15]));
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 200, &[buffer, buffer].concat()));
    mesh.drive();
    assert_eq!((mesh.modules[1].rma_counters().malformed, reads(&mesh, 1)), (3, [0, 0]));
    assert_eq!(bytes(there), [0; 300]);
    forge(&mut mesh, 0, 1, &put_exposed(&remote, 200, &buffer));
    mesh.drive();
    assert_eq!((reads(&mesh, 1), &bytes(there)[..201]), ([1, 0], &[&pattern(200)[..], &[0]].concat()[..]));
}

/// The bytes of an answer to the only operation of the first module.
fn answer(mesh: &Mesh, kind: u8, status: u8, len: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind, status, 1, 0];
    frame.extend(len.to_le_bytes());
    frame.extend(mesh.modules[0].rma.only_operation().to_bits().to_le_bytes());
    frame.extend([0; 8]);
    frame.extend(body);
    frame
}

/// A target that could not read gets frames. If it reports the same for frames, the operation is denied.
#[test]
fn b43_a_target_that_cannot_read_gets_one_more_request() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(300);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern(300)), &remote, 0, params(results));
    let not_read = answer(&mesh, 0x14, 0xff, 300, &[]);
    forge(&mut mesh, 1, 0, &not_read);
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(frames(&mesh, 0), [56, 128, 128, 128, 76]);
    forge(&mut mesh, 1, 0, &not_read);
    mesh.drive();
    assert_eq!(results.only(), Err(Failure::Denied(Denied::NotAvailable)));
}

/// The initiator does not read bytes that the target exposes without a request, or only in part.
#[test]
fn b43_remote_buffers_without_a_request_are_dropped() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(300);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern(300)), &remote, 0, params(results));
    let exposed = answer(&mesh, 0x1a, 0, 300, &[1; 16]);
    forge(&mut mesh, 1, 0, &exposed);
    mesh.modules[0].progress(Instant::ZERO);
    mesh.modules[0].del_procs(&[mesh.to[0][1]]);
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(results.only(), Err(Failure::Removed));
    assert_eq!((mesh.modules[0].rma_counters().malformed, reads(&mesh, 0)), (1, [0, 0]));

    for (len, body, last) in [(301, 16, 1), (0, 16, 1), (300, 15, 1), (300, 17, 1), (300, 16, 0)] {
        let (mut mesh, results) = (exposing(8), Results::new());
        let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
        let sink = memory(300);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, params(results));
        let mut exposed = answer(&mesh, 0x1a, 0, len, &vec![0x55; body]);
        exposed[2] = last;
        forge(&mut mesh, 1, 0, &exposed);
        mesh.modules[0].progress(Instant::ZERO);
        let counters = mesh.modules[0].rma_counters();
        assert_eq!((counters.single_copies, bytes(sink)), (0, vec![0; 300]), "{len} {body}");
        assert_eq!(counters.malformed + counters.single_copy_failures, 1, "{len} {body}");
        assert!(last == 1 || counters.malformed == 1, "it is not the answer to a request");
    }

    // A longer copy than any request asks for would occupy the initiator for too long.
    let (mut mesh, results) = (exposing(8), Results::new());
    let long = memory((1 << 20) + 600);
    let (_, remote) = register(&mut mesh.modules[1], long, Access::ANY);
    let sink = memory(long.1);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, long.1), &remote, 0, params(results));
    let exposed = answer(&mesh, 0x1a, 0, (1 << 20) + 1, &[0x55; 16]);
    forge(&mut mesh, 1, 0, &exposed);
    mesh.modules[0].progress(Instant::ZERO);
    let counters = mesh.modules[0].rma_counters();
    assert_eq!((counters.malformed, counters.single_copies, counters.single_copy_failures), (1, 0, 0));
}

/// An operation with a denied piece ends when the other pieces are answered: until then the target may read them.
#[test]
fn b18_exposed_memory_is_free_again_when_all_requests_are_answered() {
    let (mut mesh, results) = (exposing(8), Results::new());
    let there = memory(2 << 20);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern((1 << 20) + 300)), &remote, 0, params(results));
    assert_eq!(frames(&mesh, 0), [56, 56], "two pieces");
    let denied = answer(&mesh, 0x14, 2, 0, &[]);
    forge(&mut mesh, 1, 0, &denied);
    mesh.modules[0].progress(Instant::ZERO);
    assert!(results.statuses().is_empty());
    mesh.drive();
    assert_eq!(results.only(), Err(Failure::Denied(Denied::NoRight)));
}
