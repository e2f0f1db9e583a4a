//! The rows of the BTL contract, over a scripted rail: the test chooses how the rail answers each send.

mod one_sided;
mod order;
mod single_copy;

use crate::arena::Arena;
use crate::btl::active::{Received, RegisterError};
use crate::btl::descriptor::*;
use crate::btl::endpoint::{EndpointId, Proc};
use crate::btl::errors::*;
use crate::btl::module::*;
use crate::convertor::{Layout, Span};
use crate::rail::Capabilities;
use crate::rail::native::OneSided;
use crate::rail::testing::{Answer, Script, Scripted, rails};
use crate::rail::{Event, Frame, FrameId, FullRail, HEAD, Lane, Lost, Peer, Rail, Unreachable, tags};
use crate::time::Instant;
use proptest::prelude::*;
use std::{boxed::Box, cell::RefCell, format, rc::Rc, string::String, string::ToString, vec, vec::Vec};

pub(super) type Module = Btl<'static, Scripted>;
pub(super) const TAG: u8 = tags::USR;
const NONE: DescriptorFlags = DescriptorFlags::empty();

/// Modules that reach each other and themselves. `to[i][j]` is the endpoint of module `j` in module `i`.
pub(super) struct Mesh {
    pub modules: Vec<Module>,
    pub scripts: Vec<Rc<RefCell<Script>>>,
    pub to: Vec<Vec<EndpointId>>,
}

pub(super) fn mesh(count: u32, config: Config) -> Mesh {
    mesh_of(count, config, OneSided::NONE)
}

/// The same, over rails with operations of their own.
pub(super) fn mesh_of(count: u32, config: Config, one_sided: OneSided) -> Mesh {
    let mut rails = rails(count);
    rails.iter_mut().for_each(|rail| rail.attributes.one_sided = one_sided);
    let cards: Vec<Vec<u8>> = rails.iter().map(|rail| rail.card().to_vec()).collect();
    let scripts = rails.iter().map(|rail| rail.script.clone()).collect();
    let mut modules: Vec<Module> = rails
        .into_iter()
        .map(|rail| {
            let bytes = config.bytes::<Scripted>(rail.attributes());
            Btl::new(config, &mut Arena::new(vec![0; bytes].leak()), rail).unwrap()
        })
        .collect();
    let procs: Vec<Proc<'_>> = cards.iter().enumerate().map(|(id, card)| Proc { id: id as u32 + 100, card }).collect();
    let to = modules
        .iter_mut()
        .map(|module| {
            let mut endpoints = vec![Err(Unreachable::NoCard); procs.len()];
            assert_eq!(module.add_procs(&procs, &mut endpoints, None), count);
            endpoints.into_iter().map(Result::unwrap).collect()
        })
        .collect();
    Mesh { modules, scripts, to }
}

pub(super) fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Keeps copies of the frames that arrive.
#[derive(Debug, Default)]
pub(super) struct Inbox(RefCell<Vec<Arrival>>);

/// A frame: its sender, its tag and its bytes.
type Arrival = (Option<EndpointId>, u8, Vec<u8>);

impl Inbox {
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        self.0.borrow().iter().map(|frame| frame.2.clone()).collect()
    }
}

impl<R: FullRail> Consumer<R> for Inbox {
    fn receive(&self, _: &mut Btl<'_, R>, received: &Received<'_>) {
        let [segment] = received.segments() else { panic!("one base segment") };
        assert_eq!((segment.addr, segment.len), (received.data().as_ptr() as u64, received.data().len() as u64));
        self.0.borrow_mut().push((received.endpoint(), received.tag(), received.data().to_vec()));
    }
}

/// Keeps completions, and can overwrite the descriptor or free it.
#[derive(Debug, Default)]
struct Done {
    seen: RefCell<Vec<Completion>>,
    overwrites: bool,
    frees: bool,
}

impl<R: FullRail> Completed<R> for Done {
    fn completed(&self, btl: &mut Btl<'_, R>, completion: Completion) {
        self.seen.borrow_mut().push(completion);
        if self.overwrites {
            btl.memory(completion.descriptor).unwrap().fill(0xff);
        }
        if self.frees {
            btl.free(completion.descriptor).unwrap();
        }
    }
}

pub(super) fn descriptor(btl: &mut Module, to: EndpointId, bytes: &[u8], flags: DescriptorFlags) -> Descriptor {
    let descriptor = btl.alloc(to, NO_ORDER, bytes.len(), flags).unwrap();
    btl.memory(descriptor).unwrap().copy_from_slice(bytes);
    descriptor
}

impl Mesh {
    pub fn progress(&mut self) -> u32 {
        self.modules.iter_mut().map(|module| module.progress(Instant::ZERO)).sum()
    }

    pub fn drive(&mut self) -> u32 {
        let mut total = 0;
        for _ in 0..100 {
            let count = self.progress();
            total += count;
            if count == 0 && self.modules.iter_mut().all(|module| module.arm()) {
                return total;
            }
        }
        panic!("never idle");
    }

    pub fn inbox(&mut self, module: usize) -> &'static Inbox {
        let inbox = leak(Inbox::default());
        self.modules[module].register(TAG, inbox).unwrap();
        inbox
    }
}

#[test]
fn b2_progress_returns_the_count_of_completions() {
    let mut mesh = mesh(2, Config::default());
    let inbox = mesh.inbox(1);
    assert_eq!(mesh.progress(), 0);
    for _ in 0..3 {
        let to = mesh.to[0][1];
        let flags = DescriptorFlags::SEND_ALWAYS_CALLBACK | DescriptorFlags::BTL_OWNERSHIP;
        let one = descriptor(&mut mesh.modules[0], to, b"x", flags);
        mesh.modules[0].send(to, one, TAG).unwrap();
    }
    assert_eq!(mesh.drive(), 3 + 3); // three complete sends, three frames consumed
    assert_eq!(inbox.bytes().len(), 3);
    assert_eq!(mesh.progress(), 0);
}

#[test]
fn b41_a_rail_that_takes_all_processes_at_once_takes_no_second_call() {
    for single in [false, true] {
        let mut rails = rails(3);
        let cards: Vec<Vec<u8>> = rails.iter().map(|rail| rail.card().to_vec()).collect();
        let mut rail = rails.remove(0);
        if single {
            rail.attributes.capabilities |= Capabilities::SINGLE_ADD_PROCS;
        }
        let bytes = Config::default().bytes::<Scripted>(rail.attributes());
        let mut btl = Btl::new(Config::default(), &mut Arena::new(vec![0; bytes].leak()), rail).unwrap();
        let procs = [1, 2].map(|id| Proc { id, card: &cards[id as usize] });
        assert_eq!(btl.add_procs(&[], &mut [], None), 0);
        let mut first = [Err(Unreachable::NoCard); 2];
        assert_eq!(btl.add_procs(&procs, &mut first, None), 2);
        btl.del_procs(&[first[1].unwrap()]);
        let mut second = [Err(Unreachable::NoCard)];
        let mut mask = [u64::MAX];
        let count = btl.add_procs(&procs[1..], &mut second, Some(&mut mask));
        assert_eq!((count, mask[0] & 1), if single { (0, 0) } else { (1, 1) });
        assert_eq!(second[0].err(), single.then_some(Unreachable::TooLate));
    }
}

#[test]
fn b4_p6_add_procs_with_and_without_a_mask() {
    let mut rails = rails(3);
    let cards: Vec<Vec<u8>> = rails.iter().map(|rail| rail.card().to_vec()).collect();
    let config = Config { endpoints: 3, ..Config::default() };
    let block = vec![0; config.bytes::<Scripted>(rails[0].attributes())].leak();
    let mut btl = Btl::new(config, &mut Arena::new(block), rails.remove(0)).unwrap();
    let bad = [0u8; 3];
    let procs = [Proc { id: 1, card: &cards[1] }, Proc { id: 9, card: &bad }, Proc { id: 2, card: &cards[2] }];
    let mut endpoints = [Err(Unreachable::NoCard); 3];
    let mut mask = [!0u64];
    assert_eq!(btl.add_procs(&procs, &mut endpoints, Some(&mut mask)), 2);
    assert_eq!(mask[0], !0b010);
    assert_eq!(endpoints[1], Err(Unreachable::BadCard));
    assert!(btl.is_reachable(endpoints[0].unwrap()) && btl.is_reachable(endpoints[2].unwrap()));
    // One more process, later and without a mask; then one too many.
    let mut late = [Err(Unreachable::NoCard); 1];
    assert_eq!(btl.add_procs(&[Proc { id: 0, card: &cards[0] }], &mut late, None), 1);
    let mut one_more = late;
    assert_eq!(btl.add_procs(&procs[..1], &mut one_more, None), 0);
    assert_eq!(one_more, [Err(Unreachable::Full)]);
}

#[test]
fn b5_p7_removal_ends_operations_and_frees_everything() {
    let mut mesh = mesh(2, Config::default());
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    let done: &Done = leak(Done { frees: true, ..Done::default() });
    // One send is read in place, one is staged, one waits.
    mesh.scripts[0].borrow_mut().answers.extend([Answer::InPlace, Answer::Staged, Answer::Busy]);
    (mesh.scripts[0].borrow_mut().reads, mesh.scripts[0].borrow_mut().drained) = (false, false);
    for _ in 0..3 {
        let btl = &mut mesh.modules[0];
        let one = descriptor(btl, to, b"payload", NONE);
        btl.properties_mut(one).unwrap().callback = Some(done);
        assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Queued));
        assert_eq!(btl.free(one), Err(DescriptorError::InFlight));
    }
    let btl = &mut mesh.modules[0];
    assert_eq!(btl.del_procs(&[to]), 1);
    assert_eq!(btl.del_procs(&[to]), 0);
    assert_eq!(btl.progress(Instant::ZERO), 3);
    assert!(done.seen.borrow().iter().all(|done| done.status == Err(Failure::Removed) && done.endpoint == to));
    assert_eq!(done.seen.borrow().len(), 3);
    assert!(btl.dump(None, false).to_string().contains(r#""descriptors":[0,16],"sends":[0,32]"#));
    assert_eq!(btl.alloc(to, NO_ORDER, 1, NONE), Err(AllocError::Unreachable));
    // Added again, the peer is reachable again, by another endpoint.
    let card = mesh.modules[1].rail().card().to_vec();
    let mut again = [Err(Unreachable::NoCard)];
    mesh.modules[0].add_procs(&[Proc { id: 1, card: &card }], &mut again, None);
    let again = again[0].unwrap();
    assert_ne!(again, to);
    let one = descriptor(&mut mesh.modules[0], again, b"again", NONE);
    mesh.modules[0].send(again, one, TAG).unwrap();
    mesh.drive();
    assert_eq!(inbox.bytes().last().unwrap(), b"again");
}

#[test]
fn b5_p8_finalize_makes_the_callbacks_that_are_due() {
    let mut mesh = mesh(1, Config::default());
    let to = mesh.to[0][0];
    let done: &Done = leak(Done::default());
    mesh.scripts[0].borrow_mut().answers.extend([Answer::Pass, Answer::Busy, Answer::InPlace]);
    let mut btl = mesh.modules.remove(0);
    for flags in [DescriptorFlags::SEND_ALWAYS_CALLBACK, DescriptorFlags::BTL_OWNERSHIP, NONE] {
        let one = descriptor(&mut btl, to, b"x", flags);
        btl.properties_mut(one).unwrap().callback = Some(done);
        btl.send(to, one, TAG).unwrap();
    }
    let (_, kept) = btl.finalize();
    assert_eq!(kept, 2);
    let status: Vec<_> = done.seen.borrow().iter().map(|done| done.status).collect();
    assert_eq!(status.len(), 3);
    assert_eq!(status.iter().filter(|status| status.is_ok()).count(), 1);
}

#[test]
fn b6_b7_one_consumer_per_tag_and_others_are_dropped_and_counted() {
    let mut mesh = mesh(2, Config::default());
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    let other: &Inbox = leak(Inbox::default());
    let btl = &mut mesh.modules[1];
    assert_eq!(btl.register(TAG, other), Err(RegisterError::Taken));
    assert_eq!(btl.register(tags::MAX, other), Err(RegisterError::InvalidTag));
    btl.register(254, other).unwrap();
    btl.register(0, other).unwrap();
    let one = descriptor(&mut mesh.modules[0], to, b"short", NONE);
    let long = descriptor(&mut mesh.modules[0], to, &[7; 100], NONE);
    for tag in [TAG, 254, TAG + 1, 0] {
        assert_eq!(mesh.modules[0].send(to, one, tag), Ok(Outcome::Sent));
        assert_eq!(mesh.modules[0].send(to, long, tag), Ok(Outcome::Sent));
    }
    assert_eq!(mesh.modules[0].send(to, one, tags::MAX), Err(SendError::InvalidTag));
    mesh.drive();
    assert_eq!(inbox.bytes().len(), 2);
    assert_eq!(other.0.borrow().iter().map(|frame| frame.1).collect::<Vec<_>>(), [254, 254, 0, 0]);
    assert_eq!(mesh.modules[1].counters().unregistered, 2);
    // A tag whose consumer was removed can get another one.
    assert!(mesh.modules[1].unregister(TAG) && !mesh.modules[1].unregister(TAG));
    mesh.modules[1].register(TAG, other).unwrap();
}

#[test]
fn b9_received_data_is_whole_inside_the_callback() {
    let mut mesh = mesh(2, Config { receives: 1, ..Config::default() });
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    // With one slot for deliveries and slow delivery, later long frames have to wait in the rail.
    mesh.scripts[1].borrow_mut().slow_delivery = true;
    let lengths = [0, 1, 55, 56, 57, 100, 128];
    for len in lengths {
        let bytes: Vec<u8> = (0..len).collect();
        let one = descriptor(&mut mesh.modules[0], to, &bytes, DescriptorFlags::BTL_OWNERSHIP);
        mesh.modules[0].send(to, one, TAG).unwrap();
        mesh.modules[1].progress(Instant::ZERO);
    }
    assert!(!mesh.modules[1].arm());
    mesh.scripts[1].borrow_mut().slow_delivery = false;
    mesh.drive();
    let mut got = inbox.bytes();
    got.sort_by_key(Vec::len);
    assert_eq!(got, lengths.map(|len| (0..len).collect::<Vec<u8>>()));
    assert!(inbox.0.borrow().iter().all(|frame| frame.0 == Some(mesh.to[1][0])));
}

#[test]
fn p7_a_peer_has_ended_once_it_is_lost_or_has_closed_and_its_frames_are_gone() {
    let mut mesh = mesh(3, Config { receives: 1, ..Config::default() });
    let (inbox, script, peers) = (mesh.inbox(1), mesh.scripts[1].clone(), [mesh.to[1][0], mesh.to[1][2]]);
    assert!(peers.iter().all(|peer| !mesh.modules[1].has_ended(*peer)));
    script.borrow_mut().closed = true;
    script.borrow_mut().slow_delivery = true;
    let to = mesh.to[0][1];
    let one = descriptor(&mut mesh.modules[0], to, &[1; 100], DescriptorFlags::BTL_OWNERSHIP);
    mesh.modules[0].send(to, one, TAG).unwrap();
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(peers.map(|peer| mesh.modules[1].has_ended(peer)), [false, true], "a frame is being delivered");
    let waits = Frame { id: FrameId(9), from: Peer(peers[1].slot()), tag: TAG, valid: 0, len: 100, head: [0; HEAD] };
    script.borrow_mut().events.push_back(Event::Frame(waits));
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(peers.map(|peer| mesh.modules[1].has_ended(peer)), [false; 2], "a second frame waits for a slot");
    script.borrow_mut().slow_delivery = false;
    mesh.drive();
    assert_eq!(inbox.bytes().len(), 2);
    assert_eq!(peers.map(|peer| mesh.modules[1].has_ended(peer)), [true; 2]);

    script.borrow_mut().closed = false;
    script.borrow_mut().events.push_back(Event::Lost(Peer(peers[0].slot()), Lost::Closed));
    mesh.modules[1].progress(Instant::ZERO);
    assert_eq!(peers.map(|peer| mesh.modules[1].has_ended(peer)), [true, false]);
    mesh.modules[1].del_procs(&peers);
    assert_eq!(peers.map(|peer| mesh.modules[1].has_ended(peer)), [true; 2], "the endpoints are stale");
}

/// A link gives the place of a peer that was deleted to the next peer.
#[test]
fn p7_a_peer_whose_link_went_down_is_deleted_from_the_rail_once() {
    for event in [Event::Down(Peer(1), Lost::TimedOut), Event::Lost(Peer(1), Lost::Broken)] {
        let mut mesh = mesh(2, Config::default());
        let to = mesh.to[0][1];
        mesh.scripts[0].borrow_mut().events.extend([event, event]);
        mesh.modules[0].progress(Instant::ZERO);
        assert_eq!(mesh.modules[0].del_procs(&[to]), 1);
        assert_eq!(mesh.scripts[0].borrow().deleted.len(), 1, "{event:?}");
    }
}

/// Makes progress within its callback, which does nothing.
#[derive(Debug)]
struct Impatient;

impl<R: FullRail> Consumer<R> for Impatient {
    fn receive(&self, btl: &mut Btl<'_, R>, _: &Received<'_>) {
        assert_eq!((btl.deliver(), btl.progress_after_delivery(Instant::ZERO)), ((0, true), 0));
    }
}

#[test]
fn b9_frames_that_the_rail_copies_reach_their_consumers_as_others_do() {
    let mut mesh = mesh(2, Config::default());
    let inbox = mesh.inbox(1);
    let (script, known) = (mesh.scripts[1].clone(), mesh.to[1][0]);
    let btl = &mut mesh.modules[1];
    btl.register(TAG + 1, leak(Impatient)).unwrap();
    assert_eq!(btl.deliver(), (0, false), "there may be other work");
    script.borrow_mut().idle = true;
    assert_eq!(btl.deliver(), (0, true));
    let lengths = [0, 1, 56, 57, 128];
    for len in lengths {
        script.borrow_mut().copied.push_back((Peer(0), TAG, (0..len).collect()));
    }
    script.borrow_mut().copied.push_back((Peer(7), TAG, vec![9]));
    script.borrow_mut().copied.push_back((Peer(0), TAG + 1, vec![9]));
    script.borrow_mut().copied.push_back((Peer(0), TAG + 2, vec![9]));
    assert_eq!(btl.deliver(), (lengths.len() as u32 + 2, true));
    let expected = lengths.map(|len| (Some(known), TAG, (0..len).collect::<Vec<u8>>()));
    assert_eq!(*inbox.0.borrow(), [&expected[..], &[(None, TAG, vec![9])]].concat());
    assert_eq!((btl.counters().received, btl.counters().unregistered), (7, 1));
    // The module's own frames, and those for which there is no room, come by `poll`.
    for (tag, len) in [(tags::BTL_BASE, 1), (TAG, 129)] {
        script.borrow_mut().copied.push_back((Peer(0), tag, vec![0; len]));
        assert_eq!(btl.deliver(), (0, true));
        assert_eq!(script.borrow_mut().copied.drain(..).len(), 1);
    }
    // What comes by `poll` is not left out while frames arrive, nor is other work.
    script.borrow_mut().idle = false;
    script.borrow_mut().copied.push_back((Peer(0), TAG, vec![9]));
    assert_eq!(btl.deliver(), (1, false));
    script.borrow_mut().copied.push_back((Peer(0), TAG, vec![9]));
    let head = [7; HEAD];
    script.borrow_mut().events.push_back(Event::Frame(Frame {
        id: FrameId(0),
        from: Peer(0),
        tag: TAG,
        valid: 3,
        len: 3,
        head,
    }));
    assert_eq!((btl.progress(Instant::ZERO), inbox.bytes().last().unwrap().len()), (2, 3));
    script.borrow_mut().idle = true;
    script.borrow_mut().answers.push_back(Answer::Busy);
    let one = descriptor(btl, known, b"waits", DescriptorFlags::BTL_OWNERSHIP);
    assert_eq!(btl.send(known, one, TAG), Ok(Outcome::Queued));
    script.borrow_mut().copied.push_back((Peer(0), TAG, vec![9]));
    assert_eq!(btl.deliver(), (0, false));
    assert_eq!(btl.progress(Instant::ZERO), 1, "the send is complete");
    assert_eq!((btl.deliver(), btl.counters().received), ((1, true), 11));
}

#[test]
fn b8_a_frame_of_a_peer_that_is_not_known_has_no_endpoint() {
    let mut mesh = mesh(1, Config::default());
    let inbox = mesh.inbox(0);
    let frame = Frame { id: FrameId(0), from: Peer(7), tag: TAG, valid: 4, len: 3, head: [9; HEAD] };
    mesh.scripts[0].borrow_mut().events.push_back(Event::Frame(frame));
    mesh.drive();
    assert_eq!(*inbox.0.borrow(), [(None, TAG, vec![9; 3])]);
}

/// Keeps error callbacks.
#[derive(Debug, Default)]
struct Errors(RefCell<Vec<(ErrorFlags, Option<u32>, String)>>);

impl<R: FullRail> ErrorHandler<R> for Errors {
    fn failed(&self, _: &mut Btl<'_, R>, flags: ErrorFlags, proc: Option<u32>, reason: Lost) {
        self.0.borrow_mut().push((flags, proc, reason.to_string()));
    }
}

#[test]
fn b10_a_lost_peer_is_reported_once_and_its_sends_end() {
    let mut mesh = mesh(3, Config::default());
    let errors: &Errors = leak(Errors::default());
    let done: &Done = leak(Done { frees: true, ..Done::default() });
    let (to, other) = (mesh.to[0][1], mesh.to[0][2]);
    mesh.modules[0].register_error(errors);
    mesh.scripts[0].borrow_mut().reads = false;
    mesh.scripts[0].borrow_mut().answers.extend([Answer::InPlace, Answer::Busy]);
    for _ in 0..2 {
        let one = descriptor(&mut mesh.modules[0], to, b"never", NONE);
        mesh.modules[0].properties_mut(one).unwrap().callback = Some(done);
        mesh.modules[0].send(to, one, TAG).unwrap();
    }
    let broken = [Event::Lost(Peer(1), Lost::Broken), Event::Lost(Peer(1), Lost::Broken)];
    mesh.scripts[0].borrow_mut().events.extend(broken);
    assert_eq!(mesh.modules[0].progress(Instant::ZERO), 2);
    assert!(done.seen.borrow().iter().all(|done| done.status == Err(Failure::Lost)));
    assert_eq!(*errors.0.borrow(), [(ErrorFlags::FATAL, Some(101), Lost::Broken.to_string())]);
    let one = descriptor(&mut mesh.modules[0], other, b"x", NONE);
    assert_eq!(mesh.modules[0].send(to, one, TAG), Err(SendError::Unreachable));
    assert_eq!(mesh.modules[0].send(other, one, TAG), Ok(Outcome::Sent));
    // A peer that closes the connection is not a fatal error.
    mesh.scripts[0].borrow_mut().events.push_back(Event::Lost(Peer(2), Lost::Closed));
    mesh.modules[0].progress(Instant::ZERO);
    assert_eq!(errors.0.borrow()[1].0, ErrorFlags::NONFATAL);
    assert_eq!((ErrorFlags::FATAL.bits(), ErrorFlags::NONFATAL.bits()), (1, 2));
    assert_eq!(ErrorFlags::ADD_ACCELERATOR_IPC.bits(), 4);
}

/// If the link goes down, the module has lost the peer, since it has no other rail. A user with several modules goes on with the
/// others, so this is not a fatal error.
#[test]
fn b10_b37_a_link_that_goes_down_is_reported_once_and_is_not_fatal() {
    use crate::rail::testing::link::{Link, LinkFailure, links};
    let (net, [own, other]) = links(1);
    let (rail, other) = (own.into_iter().next().unwrap(), other.into_iter().next().unwrap());
    let config = Config::default();
    let block = vec![0u8; config.bytes::<Link>(rail.attributes())].leak();
    let mut btl: Btl<'static, Link> = Btl::new(config, &mut Arena::new(block), rail).unwrap();
    let errors: &Errors = leak(Errors::default());
    let done: &Done = leak(Done::default());
    btl.register_error(errors);
    let mut to = [Err(Unreachable::NoCard)];
    btl.add_procs(&[Proc { id: 101, card: other.card() }], &mut to, None);
    let to = to[0].unwrap();
    let one = btl.alloc(to, NO_ORDER, 90, DescriptorFlags::SEND_ALWAYS_CALLBACK).unwrap();
    btl.properties_mut(one).unwrap().callback = Some(done);
    assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Sent));
    for _ in 0..2 {
        net.borrow_mut().fail_link(0, LinkFailure::CLEAN);
        for _ in 0..10 {
            btl.progress(Instant::ZERO);
        }
        assert_eq!(*errors.0.borrow(), [(ErrorFlags::NONFATAL, Some(101), Lost::TimedOut.to_string())]);
        assert_eq!(btl.send(to, one, TAG), Err(SendError::Unreachable));
        net.borrow_mut().restore(0); // a lost peer does not come back by itself
    }
}

#[test]
fn b11_alloc_may_give_less_and_runs_out_without_panic() {
    let mut mesh = mesh(1, Config { descriptors: 2, descriptor_bytes: 40, ..Config::default() });
    let to = mesh.to[0][0];
    let btl = &mut mesh.modules[0];
    let short = btl.alloc(to, NO_ORDER, 1000, NONE).unwrap();
    assert_eq!(btl.segment(short, 0).unwrap().len, 40);
    assert_eq!(btl.memory(short).unwrap().len(), 40);
    let none = btl.alloc(to, NO_ORDER, 0, NONE).unwrap();
    assert_eq!(btl.segment(none, 0).unwrap().len, 0);
    assert_eq!(btl.alloc(to, NO_ORDER, 1, NONE), Err(AllocError::Exhausted));
    btl.free(none).unwrap();
    btl.alloc(to, NO_ORDER, 1, NONE).unwrap();
}

#[test]
fn b12_free_is_refused_while_a_send_is_in_progress() {
    let mut mesh = mesh(1, Config::default());
    let (to, _) = (mesh.to[0][0], mesh.inbox(0));
    mesh.scripts[0].borrow_mut().answers.push_back(Answer::InPlace);
    let btl = &mut mesh.modules[0];
    let one = descriptor(btl, to, &[1; 60], NONE);
    assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Queued));
    assert_eq!(btl.free(one), Err(DescriptorError::InFlight));
    assert_eq!(btl.memory(one).unwrap_err(), DescriptorError::InFlight);
    assert_eq!(btl.shorten(one, 1), Err(DescriptorError::InFlight));
    // SAFETY: it is refused, and the memory is static.
    assert_eq!(unsafe { btl.attach(one, Span::of(b"more")) }, Err(DescriptorError::InFlight));
    btl.progress(Instant::ZERO);
    assert_eq!(btl.free(one), Ok(()));
    assert_eq!(btl.free(one), Err(DescriptorError::Stale));
    assert_eq!(btl.send(to, one, TAG), Err(SendError::Stale));
    assert!(btl.properties(one).is_none() && btl.segment(one, 0).is_none());
}

#[test]
fn b13_prepare_src_packs_any_layout_behind_the_reserve() {
    let mut mesh = mesh(1, Config { descriptor_bytes: 50, ..Config::default() });
    let (to, inbox) = (mesh.to[0][0], mesh.inbox(0));
    let mut bytes: Vec<u8> = (0..=255).collect();
    let vector = Layout::vector(40, 3, 5).unwrap();
    let expected: Vec<u8> = (0..40u8).flat_map(|i| [i * 5, i * 5 + 1, i * 5 + 2]).collect();
    // SAFETY: layout and buffer live longer than the module uses them.
    let data = unsafe { Span::laid_out(bytes.as_mut_ptr(), &vector) };
    let mut done = 0;
    while done < data.len() {
        let btl = &mut mesh.modules[0];
        let rest = data.window(done, u64::MAX);
        // SAFETY: as above.
        let (one, took) =
            unsafe { btl.prepare_src(to, rest, NO_ORDER, 8, rest.len(), DescriptorFlags::BTL_OWNERSHIP) }.unwrap();
        assert!(took > 0 && took <= 50 - 8);
        let before = if done == 0 { [0; 8] } else { *b"reserved" };
        assert_eq!(btl.memory(one).unwrap()[..8], before, "the reserve is not written by packing");
        btl.memory(one).unwrap()[..8].copy_from_slice(b"reserved");
        btl.send(to, one, TAG).unwrap();
        mesh.drive();
        done += took;
    }
    let got = inbox.bytes();
    assert!(got.iter().all(|frame| frame.starts_with(b"reserved")));
    assert_eq!(got.iter().flat_map(|frame| frame[8..].to_vec()).collect::<Vec<u8>>(), expected);

    // Contiguous memory is referred to, and may be as long as a frame. A reserve that does not fit is refused.
    let btl = &mut mesh.modules[0];
    // SAFETY: the buffer lives longer than the module uses it.
    let (one, took) = unsafe { btl.prepare_src(to, Span::of(&bytes), NO_ORDER, 10, 256, NONE) }.unwrap();
    assert_eq!((took, btl.segment(one, 0).unwrap().len), (118, 10));
    assert_eq!(btl.segment(one, 1), Some(Segment { addr: bytes.as_ptr() as u64, len: 118 }));
    for reserve in [57, 129, usize::MAX] {
        // SAFETY: as above.
        let refused = unsafe { btl.prepare_src(to, Span::of(&bytes), NO_ORDER, reserve, 256, NONE) };
        assert_eq!(refused, Err(AllocError::TooLong));
    }
    // Neither is one that leaves no room for any data: a caller that goes on with the rest would never end.
    for (data, reserve) in [(Span::of(&bytes), 128), (data, 50)] {
        let btl = &mut mesh.modules[0];
        // SAFETY: as above.
        let refused = unsafe { btl.prepare_src(to, data, NO_ORDER, reserve, 256, NONE) };
        assert_eq!(refused, Err(AllocError::TooLong), "{reserve}");
    }
}

proptest! {
    #[test]
    fn b14_exactly_one_of_sent_and_callback(
        answers in prop::collection::vec((0u8..5, 0u8..4, 0usize..100), 1..40), sends in 2u32..8,
    ) {
        let mut mesh = mesh(2, Config { sends, descriptors: 64, ..Config::default() });
        let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
        let done: &Done = leak(Done::default());
        (mesh.scripts[0].borrow_mut().reads, mesh.scripts[0].borrow_mut().drained) = (false, false);
        let (mut sent, mut forced, mut queued, mut expected) = (0, 0, 0, Vec::new());
        for (number, (answer, flags, len)) in answers.into_iter().enumerate() {
            let answer = [Answer::Pass, Answer::Busy, Answer::Staged, Answer::InPlace, Answer::Unreachable][answer as usize];
            mesh.scripts[0].borrow_mut().answers.push_back(answer);
            let flags = DescriptorFlags::from_bits_truncate(u32::from(flags) << 1); // BTL_OWNERSHIP and SEND_ALWAYS_CALLBACK
            let bytes = vec![number as u8; len];
            let one = descriptor(&mut mesh.modules[0], to, &bytes, flags);
            mesh.modules[0].properties_mut(one).unwrap().callback = Some(done);
            match mesh.modules[0].send(to, one, TAG) {
                Ok(Outcome::Sent) => {
                    sent += 1;
                    forced += usize::from(flags.contains(DescriptorFlags::SEND_ALWAYS_CALLBACK));
                    expected.push(bytes);
                }
                Ok(Outcome::Queued) => {
                    queued += 1;
                    expected.push(bytes);
                }
                Err(SendError::Full) => {
                    prop_assert_eq!(mesh.modules[0].free(one), Ok(()));
                    mesh.scripts[0].borrow_mut().answers.clear();
                    mesh.scripts[0].borrow_mut().reads = true;
                    mesh.scripts[0].borrow_mut().drained = true;
                    mesh.drive();
                    mesh.scripts[0].borrow_mut().drained = false;
                }
                Err(error) => {
                    prop_assert_eq!(error, SendError::Unreachable);
                    prop_assert_eq!(mesh.modules[0].free(one), Ok(()), "after an error the descriptor is the caller's");
                }
            }
            if number % 3 == 2 {
                mesh.progress();
            }
        }
        {
            let mut script = mesh.scripts[0].borrow_mut();
            script.answers.clear();
            (script.reads, script.drained) = (true, true);
        }
        mesh.drive();
        let failed = done.seen.borrow().iter().filter(|done| done.status.is_err()).count();
        prop_assert_eq!(done.seen.borrow().len(), queued + forced);
        // Each frame arrives, except those whose callback reports a failure.
        let mut got = inbox.bytes();
        prop_assert_eq!(got.len() + failed, expected.len());
        got.sort();
        expected.sort();
        prop_assert!(got.iter().all(|frame| expected.binary_search(frame).is_ok()));
        prop_assert_eq!(mesh.modules[0].counters().completed as usize, sent + queued);
    }
}

#[test]
fn b15_one_descriptor_to_three_peers_at_once() {
    let mut mesh = mesh(4, Config::default());
    let inboxes: Vec<_> = (1..4).map(|peer| mesh.inbox(peer)).collect();
    let done: &Done = leak(Done { frees: false, ..Done::default() });
    mesh.scripts[0].borrow_mut().answers.extend([Answer::InPlace, Answer::Staged, Answer::Busy]);
    (mesh.scripts[0].borrow_mut().reads, mesh.scripts[0].borrow_mut().drained) = (false, false);
    let one = descriptor(&mut mesh.modules[0], mesh.to[0][1], &[42; 90], DescriptorFlags::BTL_OWNERSHIP);
    mesh.modules[0].properties_mut(one).unwrap().callback = Some(done);
    for peer in 1..4 {
        let to = mesh.to[0][peer];
        assert_eq!(mesh.modules[0].send(to, one, TAG), Ok(Outcome::Queued));
    }
    mesh.progress();
    assert_eq!(mesh.modules[0].free(one), Err(DescriptorError::InFlight));
    (mesh.scripts[0].borrow_mut().reads, mesh.scripts[0].borrow_mut().drained) = (true, true);
    mesh.drive();
    assert_eq!(done.seen.borrow().len(), 3);
    for inbox in inboxes {
        assert_eq!(inbox.bytes(), [vec![42; 90]]);
    }
    // The module owns the descriptor: it is freed once, with the last completion.
    assert_eq!(mesh.modules[0].free(one), Err(DescriptorError::Stale));
    assert_eq!(mesh.modules[0].finalize_count(), 0);
}

impl Module {
    pub(super) fn finalize_count(&self) -> u32 {
        let dump = self.dump(None, false).to_string();
        let (_, rest) = dump.split_once(r#""descriptors":["#).unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }
}

#[test]
fn b16_sendi_sends_now_or_gives_a_descriptor() {
    let mut mesh = mesh(2, Config { descriptors: 1, ..Config::default() });
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    let payload = [9u8; 30];
    let what = |header: &'static [u8], payload: Span, or_descriptor| Immediate {
        tag: TAG,
        header,
        payload,
        order: NO_ORDER,
        flags: DescriptorFlags::SIGNAL,
        or_descriptor,
    };
    let full = what(&[1; 34], Span::of(&payload), true); // 64 bytes: the eager limit
    let btl = &mut mesh.modules[0];
    // SAFETY: the payload is a local that outlives each call.
    unsafe {
        assert_eq!(btl.sendi(to, full), Ok(()));
        assert_eq!(btl.sendi(to, what(&[2; 64], Span::EMPTY, false)), Ok(())); // header at the limit, no payload
        assert_eq!(btl.sendi(to, what(b"", Span::of(&payload), false)), Ok(()));
        assert_eq!(btl.sendi(to, what(&[3; 35], Span::of(&payload), true)), Err(ImmediateError::TooLong));
        assert_eq!(btl.sendi(to, Immediate { tag: 255, ..full }), Err(ImmediateError::InvalidTag));
    }
    mesh.scripts[0].borrow_mut().always = Some(Answer::Busy);
    let btl = &mut mesh.modules[0];
    // SAFETY: as above.
    let given = unsafe {
        assert_eq!(btl.sendi(to, what(&[1; 34], Span::of(&payload), false)), Err(ImmediateError::Busy(None)));
        match btl.sendi(to, full) {
            Err(ImmediateError::Busy(Some(given))) => given,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(btl.segment(given, 0).unwrap().len, 64);
    assert_eq!(btl.properties(given).map(|own| (own.order, own.flags)), Some((NO_ORDER, DescriptorFlags::SIGNAL)));
    // SAFETY: as above. No descriptor is left to be given.
    assert_eq!(unsafe { btl.sendi(to, full) }, Err(ImmediateError::Busy(None)));
    // An immediate send does not overtake sends that wait, although the rail has room again.
    btl.memory(given).unwrap().fill(5);
    assert_eq!(btl.send(to, given, TAG), Ok(Outcome::Queued));
    mesh.scripts[0].borrow_mut().always = None;
    // SAFETY: as above.
    assert_eq!(unsafe { mesh.modules[0].sendi(to, full) }, Err(ImmediateError::Busy(None)));
    mesh.drive();
    let full: Vec<u8> = [[1; 34].as_slice(), &payload].concat();
    assert_eq!(inbox.bytes(), [full, vec![2; 64], payload.to_vec(), vec![5; 64]]);
}

#[test]
fn b17_the_callback_may_overwrite_the_memory_and_the_peer_gets_the_old_bytes() {
    for answer in [Answer::Pass, Answer::InPlace, Answer::Staged, Answer::Busy] {
        let mut mesh = mesh(2, Config::default());
        let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
        let done: &Done = leak(Done { overwrites: true, ..Done::default() });
        mesh.scripts[0].borrow_mut().answers.push_back(answer);
        mesh.scripts[0].borrow_mut().drained = false;
        let one = descriptor(&mut mesh.modules[0], to, &[7; 120], DescriptorFlags::SEND_ALWAYS_CALLBACK);
        mesh.modules[0].properties_mut(one).unwrap().callback = Some(done);
        mesh.modules[0].send(to, one, TAG).unwrap();
        mesh.modules[0].progress(Instant::ZERO);
        if answer == Answer::Staged {
            assert!(done.seen.borrow().is_empty(), "the rail has not sent it yet");
            mesh.scripts[0].borrow_mut().drained = true;
            mesh.modules[0].progress(Instant::ZERO);
        }
        assert_eq!(done.seen.borrow().len(), 1, "{answer:?}");
        assert_eq!(mesh.modules[0].memory(one).unwrap(), [0xff; 120]);
        mesh.drive();
        assert_eq!(inbox.bytes(), [vec![7; 120]], "{answer:?}");
    }
}

/// Sends each frame back, one byte shorter, until no byte is left.
#[derive(Debug)]
struct Echo;

impl<R: FullRail> Consumer<R> for Echo {
    fn receive(&self, btl: &mut Btl<'_, R>, received: &Received<'_>) {
        assert_eq!(btl.progress(Instant::ZERO), 0, "progress inside a callback does nothing");
        let Some((_, rest)) = received.data().split_first() else { return };
        let to = received.endpoint().unwrap();
        let one = btl.alloc(to, NO_ORDER, rest.len(), DescriptorFlags::BTL_OWNERSHIP).unwrap();
        btl.memory(one).unwrap().copy_from_slice(rest);
        btl.send(to, one, TAG).unwrap();
        assert!(btl.dump(Some(to), true).to_string().contains("\"proc\":"));
    }
}

#[test]
fn b17_p30_callbacks_may_send() {
    let mut mesh = mesh(2, Config::default());
    mesh.modules[0].register(TAG, &Echo).unwrap();
    mesh.modules[1].register(TAG, &Echo).unwrap();
    let to = mesh.to[0][1];
    let one = descriptor(&mut mesh.modules[0], to, &[0; 100], DescriptorFlags::BTL_OWNERSHIP);
    mesh.modules[0].send(to, one, TAG).unwrap();
    assert_eq!(mesh.drive(), 101);
}

#[test]
fn b29_dump_is_stable_and_may_be_asked_for_at_any_time() {
    let mut mesh = mesh(2, Config::default());
    let to = mesh.to[0][1];
    mesh.scripts[0].borrow_mut().answers.push_back(Answer::Busy);
    let one = descriptor(&mut mesh.modules[0], to, b"x", NONE);
    mesh.modules[0].send(to, one, TAG).unwrap();
    let btl = &mut mesh.modules[0];
    assert_eq!(
        btl.dump(None, false).to_string(),
        concat!(
            r#"{"rail":"scripted","endpoints":[2,8],"descriptors":[1,16],"sends":[1,32],"#,
            r#""regions":[0,16],"operations":[0,32],"answers":[0,64]}"#
        )
    );
    assert_eq!(
        btl.dump(Some(to), true).to_string(),
        concat!(
            r#"{"rail":"scripted","endpoint":{"proc":101,"waiting":1,"lost":false},"endpoints":[2,8],"#,
            r#""descriptors":[1,16],"sends":[1,32],"regions":[0,16],"operations":[0,32],"answers":[0,64],"#,
            r#""most_descriptors":1,"pending":1,"finished":0,"received":0,"sent":1,"#,
            r#""completed":0,"unregistered":0,"oversize":0}"#
        )
    );
    btl.del_procs(&[to]);
    assert!(btl.dump(Some(to), false).to_string().contains(r#""endpoint":null"#));
    assert!(!format!("{btl:?}").is_empty());
}

#[test]
fn b33_user_memory_is_sent_without_a_copy() {
    let mut mesh = mesh(2, Config::default());
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    mesh.scripts[0].borrow_mut().always = Some(Answer::InPlace);
    let bytes = [6u8; 100];
    let btl = &mut mesh.modules[0];
    // SAFETY: the buffer lives longer than the module uses it.
    let (one, took) = unsafe { btl.prepare_src(to, Span::of(&bytes), NO_ORDER, 4, 100, NONE) }.unwrap();
    assert_eq!(took, 100);
    btl.memory(one).unwrap().copy_from_slice(b"head");
    assert_eq!(btl.send(to, one, TAG), Ok(Outcome::Queued));
    assert_eq!(mesh.scripts[0].borrow().in_place, [bytes.as_ptr() as usize]);
    mesh.drive();
    assert_eq!(inbox.bytes(), [[b"head".as_slice(), &bytes].concat()]);
}

#[test]
fn b45_all_properties_that_an_owner_sets_come_back() {
    let mut mesh = mesh(1, Config::default());
    let (to, _) = (mesh.to[0][0], mesh.inbox(0));
    let flags = DescriptorFlags::SEND_ALWAYS_CALLBACK | DescriptorFlags::SIGNAL;
    let btl = &mut mesh.modules[0];
    let one = btl.alloc(to, NO_ORDER, 6, flags).unwrap();
    let seen: &Opaque = leak(Opaque::default());
    let own = btl.properties_mut(one).unwrap();
    own.callback = Some(seen);
    (own.cbdata, own.context) = (0xdead, usize::MAX);
    btl.send(to, one, TAG).unwrap();
    btl.progress(Instant::ZERO);
    assert_eq!(*seen.0.borrow(), Some((0xdead, usize::MAX, NO_ORDER, flags, 6)));
    // The next owner of the descriptor gets default properties.
    btl.free(one).unwrap();
    let next = btl.alloc(to, NO_ORDER, 6, NONE).unwrap();
    let own = btl.properties(next).unwrap();
    assert!(own.callback.is_none());
    assert_eq!((own.cbdata, own.context, own.order, own.flags), (0, 0, NO_ORDER, NONE));
    let values = [
        DescriptorFlags::PRIORITY,
        DescriptorFlags::BTL_OWNERSHIP,
        DescriptorFlags::SEND_ALWAYS_CALLBACK,
        DescriptorFlags::ACCELERATOR_COPY_ASYNC,
        DescriptorFlags::PUT,
        DescriptorFlags::GET,
        DescriptorFlags::SIGNAL,
    ];
    assert_eq!(values.map(|flag| flag.bits()), [1, 2, 4, 8, 0x10, 0x20, 0x40]);
}

#[test]
fn b39_a_send_that_asks_for_it_wakes_the_other_side_once_it_has_left() {
    let mut mesh = mesh(2, Config::default());
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    let script = std::rc::Rc::clone(&mesh.scripts[0]);
    let btl = &mut mesh.modules[0];
    btl.wake_on_demand(true);
    assert!(script.borrow().on_demand);
    let quiet = descriptor(btl, to, b"quiet", NONE);
    btl.send(to, quiet, TAG).unwrap();
    assert!(script.borrow().signals.is_empty());
    let loud = descriptor(btl, to, b"loud", DescriptorFlags::SIGNAL);
    // Not before the frame has left.
    script.borrow_mut().answers.push_back(Answer::Busy);
    assert_eq!(btl.send(to, loud, TAG), Ok(Outcome::Queued));
    assert!(script.borrow().signals.is_empty());
    btl.progress(Instant::ZERO);
    assert_eq!(script.borrow().signals.len(), 1);
    for flags in [NONE, DescriptorFlags::SIGNAL] {
        let what = Immediate {
            tag: TAG,
            header: b"at once",
            payload: Span::EMPTY,
            order: NO_ORDER,
            flags,
            or_descriptor: false,
        };
        // SAFETY: an empty span stands for no memory.
        unsafe { btl.sendi(to, what) }.unwrap();
    }
    let script = script.borrow();
    assert_eq!((script.signals.len(), script.signals[1]), (2, script.log.len()));
    drop(script);
    mesh.drive();
    assert_eq!(inbox.bytes().len(), 4);
}

/// Keeps the properties of the last descriptor.
#[derive(Debug, Default)]
struct Opaque(RefCell<Option<Kept>>);

/// The cbdata, context, order, flags and length of a descriptor.
type Kept = (usize, usize, u8, DescriptorFlags, u64);

impl<R: FullRail> Completed<R> for Opaque {
    fn completed(&self, btl: &mut Btl<'_, R>, completion: Completion) {
        let own = btl.properties(completion.descriptor).unwrap();
        let len = btl.segment(completion.descriptor, 0).unwrap().len;
        *self.0.borrow_mut() = Some((own.cbdata, own.context, own.order, own.flags, len));
    }
}

#[test]
fn b48_b49_sixteen_segments_and_not_one_more() {
    let mut mesh = mesh(2, Config::default());
    let (to, inbox) = (mesh.to[0][1], mesh.inbox(1));
    let letters = *b"abcdefghijklmno";
    let btl = &mut mesh.modules[0];
    let one = descriptor(btl, to, b"0", NONE);
    for letter in &letters {
        // SAFETY: a local that lives longer than the module uses it.
        unsafe { btl.attach(one, Span::of(core::slice::from_ref(letter))) }.unwrap();
    }
    // SAFETY: it is refused, and the memory is static.
    assert_eq!(unsafe { btl.attach(one, Span::of(b"p")) }, Err(DescriptorError::TooManySegments));
    assert!(btl.segment(one, 15).is_some() && btl.segment(one, 16).is_none());
    btl.send(to, one, TAG).unwrap();
    mesh.drive();
    assert_eq!(inbox.bytes(), [b"0abcdefghijklmno"]);
    assert_eq!((MAX_SEGMENTS, SEG_MAX_SIZE, REG_HANDLE_MAX, NO_ORDER), (16, 256, 256, 255));
    assert_eq!((size_of::<Segment>(), size_of::<Header>()), (16, 1));
    assert_eq!((core::mem::offset_of!(Segment, addr), core::mem::offset_of!(Segment, len)), (0, 8));
}

#[test]
fn b50_the_lane_changes_exactly_at_the_limits() {
    let mut mesh = mesh(2, Config::default());
    let (to, _) = (mesh.to[0][1], mesh.inbox(1));
    let bytes = [0u8; 130];
    for len in [63, 64, 65, 127, 128] {
        let btl = &mut mesh.modules[0];
        // SAFETY: the buffer lives longer than the module uses it.
        let (one, took) = unsafe { btl.prepare_src(to, Span::of(&bytes), NO_ORDER, 1, len - 1, NONE) }.unwrap();
        assert_eq!(took, len - 1);
        btl.send(to, one, TAG).unwrap();
        btl.free(one).unwrap();
        mesh.drive();
    }
    let lanes: Vec<_> = mesh.scripts[0].borrow().log.iter().map(|(lane, header, len)| (*len, *lane, *header)).collect();
    assert_eq!(
        lanes,
        [(63, Lane::Eager, 1), (64, Lane::Eager, 1), (65, Lane::Bulk, 1), (127, Lane::Bulk, 1), (128, Lane::Bulk, 1)]
    );
    let btl = &mut mesh.modules[0];
    let long = btl.alloc(to, NO_ORDER, 1, NONE).unwrap();
    // SAFETY: as above.
    unsafe { btl.attach(long, Span::of(&bytes).window(0, 128)) }.unwrap();
    assert_eq!(btl.send(to, long, TAG), Err(SendError::TooLong));
}
