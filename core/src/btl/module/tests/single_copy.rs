//! One-sided operations whose bytes are lent, and fetched from where they lie.

use super::one_sided::{Told, bytes, forge, get, memory, put, register, small, source, terms};
use super::{Mesh, leak, mesh};
use crate::convertor::Layout;
use crate::convertor::Span;
use crate::rail::SingleCopy;
use crate::rail::testing::{Answer, MOST_FETCHED};
use crate::rma::{Access, Denied, Failure, RemoteMemory};
use crate::time::Instant;
use std::{vec, vec::Vec};

/// Two modules over rails that lend.
fn lending(window: u16) -> Mesh {
    let mesh = mesh(2, small(window));
    mesh.scripts.iter().for_each(|script| script.borrow_mut().lends = true);
    mesh
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + 1) as u8).collect()
}

/// Pieces that were fetched, and that could not be, by a module.
fn fetched(mesh: &Mesh, at: usize) -> [u64; 2] {
    let counters = mesh.modules[at].rma_counters();
    [counters.fetched, counters.unfetched]
}

/// Bytes of the frames that a module has sent.
fn frames(mesh: &Mesh, at: usize) -> Vec<u32> {
    mesh.scripts[at].borrow().log.iter().map(|(_, _, len)| *len).collect()
}

#[test]
fn b19_b43_what_is_longer_than_a_frame_is_lent() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(1000);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let data = pattern(1000);
    put(&mut mesh, [0, 1], source(&data), &remote, 0, terms(told));
    mesh.drive();
    assert_eq!((told.only(), bytes(there)), (Ok(0), data.clone()));
    assert_eq!((fetched(&mesh, 1), frames(&mesh, 0), frames(&mesh, 1)), ([1, 0], vec![56], vec![24]));
    // The initiator asks for as much as it can fetch at a time; what is left fits a frame.
    let (sink, at) = (memory(1000), MOST_FETCHED as usize);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 3 * at + 40), &remote, 10, terms(told));
    mesh.drive();
    assert_eq!((told.only(), &bytes(sink)[..3 * at + 40]), (Ok(0), &data[10..3 * at + 50]));
    assert_eq!((fetched(&mesh, 0), frames(&mesh, 1)[1..].to_vec()), ([3, 0], vec![40, 40, 40, 64]));
    // What a frame brings is not lent, and neither is what does not lie in one run.
    put(&mut mesh, [0, 1], source(&data[..80]), &remote, 0, terms(told));
    mesh.drive();
    let rows = leak(Layout::vector(10, 50, 60).unwrap());
    // SAFETY: the data and the layout live for ever.
    let scattered = unsafe { Span::laid_out(data.leak().as_mut_ptr(), rows) };
    put(&mut mesh, [0, 1], scattered, &remote, 0, terms(told));
    mesh.drive();
    assert_eq!((told.statuses(), fetched(&mesh, 1)), (vec![Ok(0); 2], [1, 0]));
}

/// Whatever cannot be fetched is asked for again, in frames, and nothing is counted twice.
#[test]
fn b19_b43_what_cannot_be_fetched_comes_in_frames() {
    for (refused, window) in [(0, 8), (1, 8), (2, 8), (0, 1), (1, 1), (2, 1)] {
        let (mut mesh, told) = (lending(window), Told::new());
        let there = memory(1000);
        let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
        let answers: Vec<bool> = (0..3).map(|at| at != refused).collect();
        let data = pattern(900);
        // One piece of three; the others wait for their answers meanwhile, or come later.
        mesh.scripts[0].borrow_mut().fetches.extend(&answers);
        put(&mut mesh, [0, 1], source(&data), &remote, 0, terms(told));
        mesh.drive();
        assert_eq!((told.only(), fetched(&mesh, 1)), (Ok(0), [1, 0]));
        let sink = memory(900);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 900), &remote, 0, terms(told));
        mesh.drive();
        assert_eq!((told.only(), bytes(sink)), (Ok(0), data.clone()), "{refused} {window}");
        assert_eq!(fetched(&mesh, 0)[1], 1);
        let served = mesh.modules[1].rma_counters().served;
        // All that was asked for in frames is 88 bytes at a time.
        assert!(served > 900u64.div_ceil(88), "{served}");
        mesh.scripts[1].borrow_mut().fetches.push_back(false);
        put(&mut mesh, [0, 1], source(&data[..500]), &remote, 400, terms(told));
        mesh.drive();
        assert_eq!((told.only(), fetched(&mesh, 1), &bytes(there)[400..900]), (Ok(0), [1, 1], &data[..500]));
        assert!(mesh.modules[0].flush(None) && mesh.modules[0].rma.used()[1][0] == 0);
    }
}

/// Memory that peers were lent is recalled before it is anybody else's: who comes late gets what is there no more.
#[test]
fn b25_what_was_deregistered_is_fetched_no_more() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(300);
    let (registration, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    let sink = memory(300);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, terms(told));
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(mesh.scripts[1].borrow().lent.len(), 1);
    mesh.modules[1].deregister_mem(registration).unwrap();
    mesh.drive();
    assert_eq!(told.only(), Err(Failure::Denied(Denied::NoMemory)));
    assert_eq!(fetched(&mesh, 0), [0, 1]);
    // Memory that nobody was lent is no reason to recall what others were.
    let (first, _) = register(&mut mesh.modules[1], memory(300), Access::REMOTE_READ);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, terms(told));
    mesh.modules[1].progress(Instant::ZERO);
    mesh.modules[1].deregister_mem(first).unwrap();
    mesh.drive();
    assert_eq!((told.only(), fetched(&mesh, 0)), (Ok(0), [1, 1]));
}

/// The bytes of a request to put what is lent.
fn put_lent(remote: &RemoteMemory, len: u32, loan: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x18, 0, 0, 0];
    frame.extend(len.to_le_bytes());
    frame.extend([7; 8]);
    frame.extend(&remote.to_bytes()[8..16]);
    frame.extend([0; 16]);
    frame.extend(loan);
    frame
}

/// Of what is denied nothing is lent, also where a rail lends no bytes as well as any.
#[test]
fn b24_b25_what_is_denied_is_not_lent() {
    for deregistered in [false, true] {
        let (mut mesh, told) = (lending(8), Told::new());
        let there = memory(300);
        let access = if deregistered { Access::ANY } else { Access::REMOTE_WRITE };
        let (registration, remote) = register(&mut mesh.modules[1], there, access);
        let sink = memory(300);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, terms(told));
        if deregistered {
            // The request is there, and its answer waits for room.
            mesh.scripts[1].borrow_mut().always = Some(Answer::Busy);
            mesh.modules[1].progress(Instant::ZERO);
            mesh.modules[1].deregister_mem(registration).unwrap();
            mesh.scripts[1].borrow_mut().always = None;
        }
        mesh.drive();
        let why = if deregistered { Denied::NoMemory } else { Denied::NoRight };
        assert_eq!(told.only(), Err(Failure::Denied(why)));
        assert_eq!((frames(&mesh, 1), bytes(sink)), (vec![24], vec![0; 300]));
    }
}

/// What was asked for again is not asked for before all of the first time is known: data that comes late would count twice.
#[test]
fn b43_nothing_is_asked_for_again_while_something_is_on_its_way() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(600);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    let sink = memory(600);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, 600), &remote, 0, terms(told));
    assert_eq!(frames(&mesh, 0), [40, 40], "two pieces");
    // The first cannot be fetched. The second comes in frames, of which the last overtakes the others.
    let lent = answer(&mesh, 0x1a, 0, 300, &[0x55; 16]);
    forge(&mut mesh, 1, 0, &lent);
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
    // All again: seven requests for what frames bring, the first two of which were never served.
    assert_eq!(frames(&mesh, 0), [40; 2 + 7]);
    assert_eq!(mesh.modules[0].rma_counters().unfetched, 1);
}

/// A put that is lent takes the same rights as any, and nothing is fetched before they were looked at.
#[test]
fn b24_rights_and_bounds_come_before_what_is_lent() {
    let mut mesh = lending(8);
    let there = memory(300);
    let data = source(&pattern(300));
    let endpoint = mesh.modules[0].reach(mesh.to[0][1]).unwrap().rail;
    let loan = mesh.modules[0].rail.expose(endpoint, &data).unwrap().0;
    let (read_only, remote) = register(&mut mesh.modules[1], there, Access::REMOTE_READ);
    forge(&mut mesh, 0, 1, &put_lent(&remote, 300, &loan));
    mesh.drive();
    mesh.modules[1].deregister_mem(read_only).unwrap();
    forge(&mut mesh, 0, 1, &put_lent(&remote, 300, &loan));
    mesh.drive();
    let (_, remote) = register(&mut mesh.modules[1], (there.0, 200), Access::ANY);
    forge(&mut mesh, 0, 1, &put_lent(&remote, 201, &loan));
    mesh.drive();
    assert_eq!((mesh.modules[1].rma_counters().denied, fetched(&mesh, 1)), (3, [0, 0]));
    // So long a copy would keep the target from all else; and a loan is neither shorter nor longer.
    forge(&mut mesh, 0, 1, &put_lent(&remote, (1 << 20) + 1, &loan));
    forge(&mut mesh, 0, 1, &put_lent(&remote, 200, &loan[..15]));
    forge(&mut mesh, 0, 1, &put_lent(&remote, 200, &[loan, loan].concat()));
    mesh.drive();
    assert_eq!((mesh.modules[1].rma_counters().malformed, fetched(&mesh, 1)), (3, [0, 0]));
    assert_eq!(bytes(there), [0; 300]);
    forge(&mut mesh, 0, 1, &put_lent(&remote, 200, &loan));
    mesh.drive();
    assert_eq!((fetched(&mesh, 1), &bytes(there)[..201]), ([1, 0], &[&pattern(200)[..], &[0]].concat()[..]));
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

/// A target that could not fetch is sent frames. One that says so of frames has no more to say.
#[test]
fn b43_a_target_that_does_not_fetch_is_asked_once_more_and_that_is_it() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(300);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern(300)), &remote, 0, terms(told));
    let unfetched = answer(&mesh, 0x14, 0xff, 300, &[]);
    forge(&mut mesh, 1, 0, &unfetched);
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(frames(&mesh, 0), [56, 128, 128, 128, 76]);
    forge(&mut mesh, 1, 0, &unfetched);
    mesh.drive();
    assert_eq!(told.only(), Err(Failure::Denied(Denied::NotAvailable)));
}

/// What a target lends without being asked for it, or in part, is not fetched.
#[test]
fn b43_loans_that_nobody_asked_for_are_dropped() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(300);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern(300)), &remote, 0, terms(told));
    let lent = answer(&mesh, 0x1a, 0, 300, &[1; 16]);
    forge(&mut mesh, 1, 0, &lent);
    mesh.modules[0].progress(Instant::ZERO);
    mesh.modules[0].del_procs(&[mesh.to[0][1]]);
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(told.only(), Err(Failure::Removed));
    assert_eq!((mesh.modules[0].rma_counters().malformed, fetched(&mesh, 0)), (1, [0, 0]));

    for (len, body, last) in [(301, 16, 1), (0, 16, 1), (300, 15, 1), (300, 17, 1), (300, 16, 0)] {
        let (mut mesh, told) = (lending(8), Told::new());
        let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
        let sink = memory(300);
        get(&mut mesh, [0, 1], Span::contiguous(sink.0, 300), &remote, 0, terms(told));
        let mut lent = answer(&mesh, 0x1a, 0, len, &vec![0x55; body]);
        lent[2] = last;
        forge(&mut mesh, 1, 0, &lent);
        mesh.modules[0].progress(Instant::ZERO);
        let counters = mesh.modules[0].rma_counters();
        assert_eq!((counters.fetched, bytes(sink)), (0, vec![0; 300]), "{len} {body}");
        assert_eq!(counters.malformed + counters.unfetched, 1, "{len} {body}");
        assert!(last == 1 || counters.malformed == 1, "it answers nothing");
    }

    // More than anybody asks for at a time would keep the initiator from all else.
    let (mut mesh, told) = (lending(8), Told::new());
    let long = memory((1 << 20) + 600);
    let (_, remote) = register(&mut mesh.modules[1], long, Access::ANY);
    let sink = memory(long.1);
    get(&mut mesh, [0, 1], Span::contiguous(sink.0, long.1), &remote, 0, terms(told));
    let lent = answer(&mesh, 0x1a, 0, (1 << 20) + 1, &[0x55; 16]);
    forge(&mut mesh, 1, 0, &lent);
    mesh.modules[0].progress(Instant::ZERO);
    let counters = mesh.modules[0].rma_counters();
    assert_eq!((counters.malformed, counters.fetched, counters.unfetched), (1, 0, 0));
}

/// An operation of which one piece was denied is told when the others are answered: until then they may be fetched.
#[test]
fn b18_memory_that_is_lent_is_the_users_again_when_all_was_answered() {
    let (mut mesh, told) = (lending(8), Told::new());
    let there = memory(2 << 20);
    let (_, remote) = register(&mut mesh.modules[1], there, Access::ANY);
    put(&mut mesh, [0, 1], source(&pattern((1 << 20) + 300)), &remote, 0, terms(told));
    assert_eq!(frames(&mesh, 0), [56, 56], "two pieces");
    let denied = answer(&mesh, 0x14, 2, 0, &[]);
    forge(&mut mesh, 1, 0, &denied);
    mesh.modules[0].progress(Instant::ZERO);
    assert!(told.statuses().is_empty());
    mesh.drive();
    assert_eq!(told.only(), Err(Failure::Denied(Denied::NoRight)));
}
