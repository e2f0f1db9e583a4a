//! Order and priority, over rails on which frames overtake each other.

use super::{Mesh, TAG, descriptor, leak, mesh};
use crate::btl::descriptor::DescriptorFlags;
use crate::btl::descriptor::NO_ORDER;
use crate::btl::descriptor::ORDER;
use crate::btl::endpoint::Proc;
use crate::btl::errors::{AllocError, ImmediateError, SendError};
use crate::btl::module::*;
use crate::convertor::Span;
use crate::rail::FullRail;
use crate::rail::Lane;
use crate::rail::Peer;
use crate::rail::Shape;
use crate::rail::Unreachable;
use crate::rail::tags;
use crate::rail::testing::Answer;
use crate::rail::{Event, HEAD, Lost, Rail};
use crate::time::Instant;
use std::{cell::RefCell, vec, vec::Vec};

const NONE: DescriptorFlags = DescriptorFlags::empty();

/// Keeps the order values of completions.
#[derive(Debug, Default)]
struct Orders(RefCell<Vec<u8>>);

impl<R: FullRail> Completed<R> for Orders {
    fn completed(&self, _: &mut Btl<'_, R>, completion: Completion) {
        self.0.borrow_mut().push(completion.order);
    }
}

/// Two modules. The first frame to the second module is overtaken by others.
fn two() -> Mesh {
    let mesh = mesh(2, Config::default());
    mesh.scripts[1].borrow_mut().overtaken = 1;
    mesh
}

/// Sends `len` bytes of the value `byte`.
fn send(mesh: &mut Mesh, byte: u8, len: usize, order: u8, flags: DescriptorFlags) -> Outcome {
    let (btl, to) = (&mut mesh.modules[0], mesh.to[0][1]);
    let one = btl.alloc(to, order, len, flags | DescriptorFlags::BTL_OWNERSHIP).unwrap();
    btl.memory(one).unwrap().fill(byte);
    btl.send(to, one, TAG).unwrap()
}

const LONG: usize = 100;
const SHORT: usize = 20;

#[test]
fn b47_an_ordered_send_arrives_after_all_earlier_sends() {
    for ordered in [false, true] {
        let mut mesh = two();
        let inbox = mesh.inbox(1);
        assert_eq!(send(&mut mesh, 1, SHORT, NO_ORDER, NONE), Outcome::Sent);
        let order = if ordered { ORDER } else { NO_ORDER };
        let outcome = send(&mut mesh, 2, SHORT, order, NONE);
        assert_eq!(outcome, if ordered { Outcome::Queued } else { Outcome::Sent });
        // Later sends wait behind it.
        send(&mut mesh, 3, SHORT, NO_ORDER, NONE);
        for _ in 0..20 {
            mesh.progress();
        }
        let first = |inbox: &'static super::tests::Inbox| inbox.bytes().iter().map(|it| it[0]).collect::<Vec<u8>>();
        assert_eq!(first(inbox), if ordered { vec![] } else { vec![2, 3] }, "the first one is in flight");
        mesh.scripts[1].borrow_mut().overtaken = 0;
        mesh.drive();
        assert_eq!(first(inbox), if ordered { vec![1, 2, 3] } else { vec![2, 3, 1] });
        assert_eq!(mesh.modules[1].rma_counters().malformed, 0);
    }
}

#[test]
fn b47_an_order_that_is_not_known_yet_is_refused() {
    let mut mesh = two();
    mesh.inbox(1);
    let orders = leak(Orders::default());
    let to = mesh.to[0][1];
    let immediate =
        |order| Immediate { tag: TAG, header: b"now", payload: Span::EMPTY, order, flags: NONE, or_descriptor: true };
    mesh.scripts[0].borrow_mut().always = Some(Answer::Busy);
    let btl = &mut mesh.modules[0];
    let one = descriptor(btl, to, b"one", NONE);
    btl.properties_mut(one).unwrap().callback = Some(orders);
    assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Queued));
    for order in [ORDER, 1, 254] {
        assert_eq!(btl.alloc(to, order, 1, NONE), Err(AllocError::UnknownOrder));
        // SAFETY: there is no memory.
        unsafe {
            assert_eq!(btl.prepare_src(to, Span::EMPTY, order, 1, 0, NONE).err(), Some(AllocError::UnknownOrder));
            assert_eq!(btl.sendi(to, immediate(order)), Err(ImmediateError::UnknownOrder));
        }
    }
    mesh.scripts[0].borrow_mut().always = None;
    mesh.scripts[1].borrow_mut().overtaken = 0;
    mesh.drive();
    assert_eq!(*orders.0.borrow(), [ORDER]);
    let (btl, other) = (&mut mesh.modules[0], mesh.to[0][0]);
    assert_eq!(btl.alloc(to, 1, 1, NONE), Err(AllocError::UnknownOrder), "not the order of an operation");
    assert_eq!(
        btl.alloc(other, ORDER, 1, NONE),
        Err(AllocError::UnknownOrder),
        "the order of an operation to another peer"
    );
    assert!(btl.alloc(to, ORDER, 1, NONE).is_ok());
    // SAFETY: there is no memory.
    let given = unsafe { btl.sendi(to, immediate(ORDER)) };
    assert!(matches!(given, Err(ImmediateError::Busy(Some(_)))), "the first may not have arrived");
    mesh.drive();
    // SAFETY: as above.
    assert_eq!(unsafe { mesh.modules[0].sendi(to, immediate(ORDER)) }, Ok(()));
}

#[test]
fn b47_frames_without_a_consumer_do_not_delay_ordered_sends() {
    let mut mesh = mesh(2, Config::default());
    for len in [SHORT, LONG] {
        send(&mut mesh, 1, len, NO_ORDER, NONE);
        send(&mut mesh, 1, len, ORDER, NONE);
    }
    mesh.drive();
    assert_eq!(mesh.modules[1].counters().unregistered, 4);
}

#[test]
fn b47_full_rails_delay_count_requests_and_replies() {
    for turns in 0..6 {
        let mut mesh = two();
        let inbox = mesh.inbox(1);
        send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
        for script in &mesh.scripts {
            script.borrow_mut().answers.extend((0..turns).map(|turn| [Answer::Busy, Answer::Pass][turn % 2]));
        }
        for byte in 2..6 {
            send(&mut mesh, byte, SHORT, ORDER, NONE);
            assert!(!mesh.modules[0].arm(), "there is something to do");
        }
        mesh.scripts[1].borrow_mut().overtaken = 0;
        mesh.drive();
        assert!(inbox.bytes().iter().map(|it| it[0]).eq(1..6));
    }
}

#[test]
fn b47_ordered_sends_that_wait_end_with_their_peer() {
    for lost in [false, true] {
        let mut mesh = two();
        let to = mesh.to[0][1];
        let orders = leak(Orders::default());
        send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
        let btl = &mut mesh.modules[0];
        let one = btl.alloc(to, ORDER, 4, NONE).unwrap();
        btl.properties_mut(one).unwrap().callback = Some(orders);
        assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Queued));
        if lost {
            mesh.scripts[0].borrow_mut().events.push_back(Event::Lost(Peer(to.0.slot()), Lost::Broken));
        } else {
            btl.del_procs(&[to]);
        }
        mesh.modules[0].progress(Instant::ZERO);
        assert_eq!(orders.0.borrow().len(), 1, "its callback is made");
        assert!(mesh.modules[0].free(one).is_ok());
    }
}

/// Sends with priority go on, however many there are, and do not delay ordered sends.
#[test]
fn b46_b47_sends_with_priority_do_not_delay_ordered_sends() {
    let mut mesh = two();
    let inbox = mesh.inbox(1);
    send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
    send(&mut mesh, 2, SHORT, ORDER, NONE);
    mesh.scripts[1].borrow_mut().overtaken = 0;
    let mut turns = 0;
    while !inbox.bytes().iter().any(|it| it[0] == 2) {
        assert_eq!(send(&mut mesh, 9, SHORT, NO_ORDER, DescriptorFlags::PRIORITY), Outcome::Sent);
        mesh.progress();
        turns += 1;
        assert!(turns < 10, "it never leaves");
    }
    mesh.drive();
    assert_eq!(inbox.bytes().iter().map(|it| it[0]).find(|byte| *byte < 9), Some(1));
}

/// A send that was not accepted, or has failed, has no effect on the order of later sends.
#[test]
fn b47_a_send_that_was_not_accepted_does_not_affect_order() {
    for refused in [false, true] {
        let mut mesh = mesh(2, Config { sends: 1, ..Config::default() });
        let (inbox, to) = (mesh.inbox(1), mesh.to[0][1]);
        send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
        mesh.drive();
        let btl = &mut mesh.modules[0];
        let one = btl.alloc(to, ORDER, SHORT, NONE).unwrap();
        if refused {
            // The count request leaves, and then the send is refused.
            mesh.scripts[0].borrow_mut().answers.extend([Answer::Pass, Answer::Unreachable]);
            assert_eq!(mesh.modules[0].send(to, one, TAG), Ok(Outcome::Queued));
            mesh.drive();
            assert!(mesh.modules[0].free(one).is_ok(), "the send has ended");
        } else {
            let (btl, other) = (&mut mesh.modules[0], mesh.to[0][0]);
            mesh.scripts[0].borrow_mut().answers.push_back(Answer::Busy);
            let fills = descriptor(btl, other, b"waits", NONE);
            assert_eq!(btl.send(other, fills, TAG), Ok(Outcome::Queued));
            assert_eq!(btl.send(to, one, TAG), Err(SendError::Full));
            mesh.drive();
        }
        let before = inbox.bytes().len();
        mesh.scripts[1].borrow_mut().overtaken = 1;
        send(&mut mesh, 3, SHORT, NO_ORDER, NONE);
        assert_eq!(send(&mut mesh, 4, SHORT, ORDER, NONE), Outcome::Queued, "the one before is in flight");
        mesh.scripts[1].borrow_mut().overtaken = 0;
        mesh.drive();
        assert!(inbox.bytes()[before..].iter().map(|it| it[0]).eq([3, 4]));
    }
}

/// A count request wakes the peer, and a module that waits only for the reply may sleep.
#[test]
fn b39_b47_a_count_request_and_its_reply_wake() {
    let mut mesh = two();
    let inbox = mesh.inbox(1);
    mesh.modules.iter_mut().for_each(|module| module.wake_on_demand(true));
    send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
    send(&mut mesh, 2, SHORT, ORDER, NONE);
    assert!(!mesh.modules[0].arm(), "the request has not left");
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(mesh.scripts[0].borrow().signals.len(), 1);
    assert!(mesh.modules[0].arm(), "it waits only for the reply");
    mesh.scripts[1].borrow_mut().overtaken = 0;
    mesh.modules[1].progress(Instant::ZERO);
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(mesh.scripts[1].borrow().signals.len(), 1);
    assert!(!mesh.modules[0].arm(), "the reply has arrived");
    mesh.drive();
    assert!(inbox.bytes().iter().map(|it| it[0]).eq([1, 2]));
}

/// Two modules that have removed each other, and add each other again, both count from 0.
#[test]
fn b5_b47_peers_that_are_added_again_count_from_0() {
    let mut mesh = mesh(2, Config::default());
    let inbox = mesh.inbox(1);
    send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
    mesh.drive();
    let to = mesh.to[0][1];
    mesh.modules[0].del_procs(&[to]);
    let back = mesh.to[1][0];
    mesh.modules[1].del_procs(&[back]);
    for at in 0..2 {
        let card = mesh.modules[1 - at].rail.card().to_vec();
        let mut reached = [Err(Unreachable::NoCard)];
        mesh.modules[at].add_procs(&[Proc { id: 9, card: &card }], &mut reached, None);
        mesh.to[at][1 - at] = reached[0].unwrap();
    }
    send(&mut mesh, 2, SHORT, NO_ORDER, NONE);
    send(&mut mesh, 3, SHORT, ORDER, NONE);
    mesh.drive();
    assert!(inbox.bytes().iter().map(|it| it[0]).eq([1, 2, 3]));
}

#[test]
fn b7_the_tag_of_modules_is_not_for_users() {
    let mut mesh = two();
    let (btl, to) = (&mut mesh.modules[0], mesh.to[0][1]);
    let one = descriptor(btl, to, b"one", NONE);
    let what = Immediate {
        tag: tags::BTL_BASE,
        header: b"now",
        payload: Span::EMPTY,
        order: NO_ORDER,
        flags: NONE,
        or_descriptor: false,
    };
    assert_eq!(btl.send(to, one, tags::BTL_BASE), Err(SendError::InvalidTag));
    // SAFETY: there is no memory.
    assert_eq!(unsafe { btl.sendi(to, what) }, Err(ImmediateError::InvalidTag));
}

/// A peer may report counts that were not requested, and request counts that are never reached.
#[test]
fn b47_forged_counts_change_nothing() {
    let mut mesh = two();
    let inbox = mesh.inbox(1);
    send(&mut mesh, 1, SHORT, NO_ORDER, NONE);
    send(&mut mesh, 2, SHORT, ORDER, NONE);
    mesh.modules[0].progress(Instant::ZERO); // this sends the count request
    let back = mesh.to[1][0];
    let mut send_raw = |bytes: &[u8]| {
        let state = *mesh.modules[1].reachable(back).unwrap();
        let shape = Shape {
            tag: tags::BTL_BASE,
            lane: Lane::Control,
            header: bytes.len().min(HEAD) as u8,
            len: bytes.len() as u32,
        };
        let rail = &mut mesh.modules[1].rail;
        let mut grant = rail.reserve(state.rail, shape).unwrap();
        grant.write(0, bytes);
        let ticket = grant.finish();
        rail.commit(ticket);
        mesh.modules[0].progress(Instant::ZERO);
    };
    for count in [0u32, 2, u32::MAX] {
        send_raw(&[&[0x17, 0, 0, 0][..], &count.to_le_bytes()].concat());
    }
    send_raw(&[0x17, 0, 0, 0, 1, 0, 0]);
    send_raw(&[0x16, 0, 0, 0, 9, 0, 0, 0]); // a request for more frames than will be sent
    assert!(inbox.bytes().is_empty());
    let waiting = mesh.modules[0].reachable(mesh.to[0][1]).unwrap().waiting;
    assert_eq!(waiting, 1, "the ordered send waits");
    mesh.scripts[1].borrow_mut().overtaken = 0;
    for _ in 0..20 {
        mesh.progress();
    }
    assert!(inbox.bytes().iter().map(|it| it[0]).eq([1, 2]));
}

#[test]
fn b46_sends_with_priority_go_before_sends_that_wait() {
    let mut mesh = mesh(2, Config::default());
    let inbox = mesh.inbox(1);
    mesh.scripts[0].borrow_mut().always = Some(Answer::Busy);
    for (byte, flags) in
        [(1, NONE), (2, NONE), (3, DescriptorFlags::PRIORITY), (4, NONE), (5, DescriptorFlags::PRIORITY)]
    {
        assert_eq!(send(&mut mesh, byte, LONG, NO_ORDER, flags), Outcome::Queued);
    }
    mesh.progress();
    mesh.scripts[0].borrow_mut().always = None;
    // A later send does not go before a send with priority, and neither does an immediate one.
    let to = mesh.to[0][1];
    assert_eq!(send(&mut mesh, 6, SHORT, NO_ORDER, DescriptorFlags::PRIORITY), Outcome::Queued);
    let what =
        Immediate { tag: TAG, header: b"7", payload: Span::EMPTY, order: NO_ORDER, flags: NONE, or_descriptor: false };
    let urgent = Immediate { flags: DescriptorFlags::PRIORITY, ..what };
    for what in [what, urgent] {
        // SAFETY: there is no memory.
        assert_eq!(unsafe { mesh.modules[0].sendi(to, what) }, Err(ImmediateError::Busy(None)));
    }
    mesh.drive();
    assert!(inbox.bytes().iter().map(|it| it[0]).eq([3, 5, 6, 1, 2, 4]));
    // A send with priority goes before others that wait already, even if it need not wait itself.
    mesh.scripts[0].borrow_mut().answers.push_back(Answer::Busy);
    assert_eq!(send(&mut mesh, 8, SHORT, NO_ORDER, NONE), Outcome::Queued);
    // SAFETY: there is no memory.
    assert_eq!(unsafe { mesh.modules[0].sendi(to, urgent) }, Ok(()));
    assert_eq!(send(&mut mesh, 9, SHORT, NO_ORDER, DescriptorFlags::PRIORITY), Outcome::Sent);
    mesh.drive();
    assert!(inbox.bytes()[6..].iter().map(|it| it[0]).eq([b'7', 9, 8]));
    assert_eq!(mesh.modules[0].finalize_count(), 0, "owned descriptors are freed once");
}
