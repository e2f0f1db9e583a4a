//! Messages that devices move: between two engines with rails of which some have a device, and between an engine and a bare rail
//! that sends whatever the test wants.

use std::{slice::from_mut, vec, vec::Vec};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::bad_memory::{aborted, mapped, numbered};
use super::basic::{bytes, from, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::convertor::{Accelerator as _, Layout};
use crate::pml::{Config, Failure, Pml, Request, rdma};
use crate::pml::{Mode, Sending};
use crate::pool::Handle;
use crate::rail::native::{KEY, Key, Native, OneSided, Pipeline, Reach, Work};
use crate::rail::testing::{Answer, Device, Far, Scripted, rails};
use crate::rail::{AcceleratorLimits, Capabilities, DeviceMemory, Endpoint, Event, Lane, Lost, Peer, Rail, Shape};
use crate::rma::Access;
use crate::time::Instant;
use crate::wire;

/// A fragment brings 100 bytes, and a first fragment 24.
const HEADER: u64 = 28;
const FIRST: u64 = 24;
const LEAST: u64 = 1000;
const BY_FRAMES: u64 = 150;
const PIECE: u32 = 300;
const CAN: OneSided = OneSided {
    put: Reach { limit: 1 << 20, alignment: 1, local_registration: 200 },
    get: Reach { limit: 1 << 20, alignment: 1, local_registration: 200 },
    pipeline: Pipeline { least: LEAST, by_frames: BY_FRAMES, piece: PIECE, gets: false },
    ..OneSided::NONE
};
const MOVES: rdma::Config = rdma::Config { messages: 4, ..rdma::Config::OFF };

const fn config(rdma: rdma::Config) -> Config {
    Config { peers: 2, requests: 16, rdma, ..Config::SMALLEST }
}

/// Over two rails or one.
type Engine = Pml<'static, &'static mut [Scripted]>;

/// An engine over these rails. Those before `devices` have a device.
fn engine(config: Config, mut rails: Vec<Scripted>, devices: usize) -> Engine {
    let links = rails.len();
    for (index, rail) in rails.iter_mut().enumerate() {
        rail.attributes.rendezvous_eager_limit = FIRST as u32;
        rail.attributes.latency = index as u32;
        if links > 1 {
            rail.attributes.capabilities |= Capabilities::FAILOVER_SUPPORT;
        }
        if index < devices {
            rail.attributes.one_sided = CAN;
        }
    }
    let bytes = config.bytes(&rails.iter().map(Rail::attributes).collect::<Vec<_>>());
    Pml::new(config, &mut Arena::new(memory(bytes)), rails.leak()).unwrap()
}

struct Pair {
    engines: Vec<Engine>,
}

impl Pair {
    /// Engines with these limits, and `links` links. Those before `devices` have a device.
    fn new(configs: [Config; 2], links: usize, devices: usize) -> Self {
        let mut ends: Vec<_> = (0..links).map(|_| rails(2).into_iter()).collect();
        let mut engine = |config| engine(config, ends.iter_mut().map(|ends| ends.next().unwrap()).collect(), devices);
        let mut engines = Vec::from(configs.map(&mut engine));
        for at in 0..2u32 {
            let (peer, params) = (Peer(1 - at), engines[1 - at as usize].params());
            engines[at as usize].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
        }
        Self { engines }
    }

    /// As above. The receiver's device gets, or the sender's device puts.
    fn that(gets: bool, configs: [Config; 2], links: usize, devices: usize) -> Self {
        let mut pair = Self::new(configs, links, devices);
        for engine in 0..2 {
            for rail in 0..devices {
                pair.rail(engine, rail).attributes.one_sided.pipeline.gets = gets;
            }
        }
        pair
    }

    fn rail(&mut self, engine: usize, rail: usize) -> &mut Scripted {
        &mut self.engines[engine].rails_mut()[rail]
    }

    fn turn(&mut self, times: u32) {
        for _ in 0..times {
            self.engines.iter_mut().for_each(|engine| _ = engine.progress(Instant::ZERO));
        }
    }

    fn send(&mut self, data: Span) -> Request {
        // SAFETY: the tests keep their memory until both sides are done.
        let sending = unsafe { self.engines[0].isend(Peer(1), 1, 5, Mode::Standard, data) }.unwrap();
        let Sending::Pending(request) = sending else { panic!("it is long") };
        request
    }

    fn receive(&mut self, sink: Span) -> Request {
        // SAFETY: as above.
        unsafe { self.engines[1].irecv(from(0, 5), sink) }.unwrap()
    }

    /// The outcomes of a message's send and receive, as soon as both requests are over.
    fn outcomes(&mut self, send: Request, receive: Request) -> [Result<u64, Failure>; 2] {
        let mut told = [None, None];
        for _ in 0..2000 {
            self.turn(1);
            for (at, request) in [send, receive].into_iter().enumerate() {
                if told[at].is_none() {
                    told[at] = self.engines[at].test(request).map(|told| told.map(|status| status.delivered));
                }
            }
            if let [Some(sent), Some(received)] = told {
                return [sent, received];
            }
        }
        panic!("{told:?}, {:?}, {:?}", self.engines[0].counters(), self.engines[1].counters());
    }

    /// Sends a message from one to the other and checks it. Returns the bytes that a device moved.
    fn message(&mut self, len: usize) -> u64 {
        self.message_on(len, [false; 2])
    }

    /// The same from and to memory of accelerators.
    fn message_on(&mut self, len: usize, far: [bool; 2]) -> u64 {
        let before = self.engines[0].counters().bytes_by_device;
        let (mut data, mut into) = (bytes(len, len as u8), vec![0xaa; len]);
        let layout = Layout::bytes(len as u64).unwrap().on(&Far).unwrap();
        let span = |base: *mut u8, far: bool| {
            // SAFETY: the layout fits, and lives until both are over.
            if far { unsafe { Span::laid_out(Far::name(base), &layout) } } else { Span::contiguous(base, len) }
        };
        let receive = self.receive(span(into.as_mut_ptr(), far[1]));
        let send = self.send(span(data.as_mut_ptr(), far[0]));
        assert_eq!(self.outcomes(send, receive), [Ok(len as u64); 2]);
        assert!(into == data, "other bytes");
        self.at_rest();
        self.engines[0].counters().bytes_by_device - before
    }

    /// Checks that no slot or registration of any message is left.
    fn at_rest(&mut self) {
        self.turn(20);
        for at in 0..2 {
            assert_eq!(self.engines[at].pins()[0], 0, "engine {at}");
            assert!(self.engines[at].rdma.is_idle(), "engine {at}");
            assert!(self.engines[at].arm(), "engine {at} has something to do");
        }
        let kept: u32 = self.engines.iter().map(|engine| engine.pins()[1]).sum();
        let regions: usize = self.engines[0].rails().iter().map(Scripted::regions).sum();
        assert_eq!(regions as u32, kept);
    }

    /// Frames of the peer that the first engine counted as stale, or as unused offers.
    fn odd(&self) -> u64 {
        let counters = self.engines[0].counters();
        counters.stale + counters.offers_unused
    }

    fn performed(&mut self, engine: usize) -> Vec<u64> {
        let script = self.rail(engine, 0).script.borrow();
        let len = |native: &Native| match native.work {
            Work::Put(local) | Work::Get(local) => local.len,
            Work::Atomic(..) => panic!("messages need none"),
        };
        script.performed.iter().map(len).collect()
    }

    /// Bytes that left in fragments.
    fn by_fragments(&mut self) -> u64 {
        let mut all = 0;
        for rail in self.engines[0].rails().iter() {
            let script = rail.script.borrow();
            let bulk = script.log.iter().filter(|(lane, ..)| *lane == Lane::Bulk);
            all += bulk.map(|(.., len)| u64::from(*len) - HEADER).sum::<u64>();
        }
        all
    }
}

/// Messages up to the least length go in frames, and so do the first bytes of longer ones. The other bytes are moved in pieces,
/// the last one shorter.
#[test]
fn b51_p23_which_bytes_go_in_frames_and_which_a_device_moves() {
    for (gets, mover) in [(false, 0), (true, 1)] {
        for (len, pieces) in [
            (LEAST - 1, vec![]),
            (LEAST, vec![300, 300, LEAST - FIRST - BY_FRAMES - 600]),
            (FIRST + BY_FRAMES + 900, vec![300; 3]),
            (FIRST + BY_FRAMES + 901, vec![300, 300, 300, 1]),
        ] {
            let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
            let moved: u64 = pieces.iter().sum();
            assert_eq!(pair.message(len as usize), moved, "{len} bytes");
            assert_eq!((pair.performed(mover), pair.performed(1 - mover)), (pieces.clone(), vec![]), "{len} bytes");
            let in_frames = if pieces.is_empty() { len - FIRST } else { BY_FRAMES };
            assert_eq!(pair.by_fragments(), in_frames, "{len} bytes");
            let counters = *pair.engines[1].counters();
            assert_eq!((counters.pieces, counters.bytes_by_device), (pieces.len() as u64, moved));
            assert_eq!((counters.device_failures, counters.stale, counters.copied), (0, 0, 0));
        }
    }
}

const FAR: AcceleratorLimits = AcceleratorLimits { eager_limit: 10, rdma_limit: 500, max_send_size: 64 };

/// Devices that reach accelerators move messages of their memory, from another length on. If the devices of one side do not reach
/// them, frames carry the messages; these frames are shorter.
#[test]
fn b38_b51_devices_that_reach_accelerators_move_their_messages() {
    let reaching = [Capabilities::ACCELERATOR_PUT, Capabilities::ACCELERATOR_GET];
    for (gets, reaches) in [false, true].into_iter().zip(reaching) {
        for far in [[true, true], [true, false], [false, true]] {
            let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
            let mut set = |reach: [Capabilities; 2]| {
                for (engine, reach) in reach.into_iter().enumerate() {
                    let attributes = &mut pair.rail(engine, 0).attributes;
                    attributes.accelerator = FAR;
                    attributes.capabilities -= Capabilities::ACCELERATOR_RDMA;
                    attributes.capabilities |= reach;
                }
                // The receiver plans.
                let least = if far[1] { FAR.rdma_limit } else { LEAST };
                [pair.message_on(least as usize - 1, far), pair.message_on(least as usize + 500, far)]
            };
            assert_eq!(set([reaches; 2]), [0, if far[1] { 1000 } else { 1500 } - FIRST - BY_FRAMES], "{far:?}");
            for at in 0..2 {
                let mut reach = [reaches; 2];
                reach[at] = Capabilities::empty();
                assert_eq!(set(reach)[1] == 0, far[at], "{far:?}, and rail {at} reaches none");
            }
        }
    }
}

/// Messages and fragments from accelerators have limits of their own.
#[test]
fn b38_accelerators_have_limits_of_their_own() {
    let mut pair = Pair::new([config(rdma::Config::OFF); 2], 1, 0);
    pair.rail(0, 0).attributes.accelerator = FAR;
    let mut data = bytes(900, 1);
    let mut goes_whole = |len: u64, far: bool| {
        let layout = Layout::bytes(len).unwrap().on(&Far).unwrap();
        // SAFETY: all of it lives until the message is received.
        let far_data = unsafe { Span::laid_out(Far::name(data.as_mut_ptr()), &layout) };
        let span = if far { far_data } else { Span::contiguous(data.as_mut_ptr(), len as usize) };
        let mut into = vec![0; len as usize];
        let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), len as usize));
        let before = pair.engines[0].counters().eager_sent;
        pair.rail(0, 0).script.borrow_mut().log.clear();
        // SAFETY: the same.
        let sending = unsafe { pair.engines[0].isend(Peer(1), 1, 5, Mode::Standard, span) }.unwrap();
        pair.turn(60);
        assert!(pair.engines[1].test(receive).is_some_and(|told| told.is_ok()));
        if let Sending::Pending(send) = sending {
            assert!(pair.engines[0].test(send).is_some_and(|told| told.is_ok()));
        }
        assert!(into == data[..len as usize]);
        let longest = pair.rail(0, 0).script.borrow().log.iter().map(|sent| sent.2).max();
        (pair.engines[0].counters().eager_sent - before == 1, longest.unwrap())
    };
    assert!(goes_whole(10, true).0 && !goes_whole(11, true).0 && goes_whole(11, false).0);
    assert_eq!((goes_whole(900, true), goes_whole(900, false)), ((false, 64), (false, 128)));
}

/// A rail copies in the background and reports the end. Until then neither request is over.
#[test]
fn b38_copies_that_take_a_while_are_waited_for() {
    let mut pair = Pair::new([config(rdma::Config::OFF); 2], 1, 0);
    (0..2).for_each(|engine| {
        pair.rail(engine, 0).attributes.capabilities |=
            Capabilities::ACCELERATOR_COPY_ASYNC_SEND | Capabilities::ACCELERATOR_COPY_ASYNC_RECV;
    });
    let (mut data, mut into) = (bytes(900, 1), vec![0; 900]);
    let layout = Layout::bytes(900).unwrap().on(&Far).unwrap();
    // SAFETY: all of it lives until the message is received.
    let [source, sink] =
        [&mut data, &mut into].map(|far| unsafe { Span::laid_out(Far::name(far.as_mut_ptr()), &layout) });
    pair.rail(0, 0).script.borrow_mut().answers.extend([Answer::Pass, Answer::InPlace]);
    pair.rail(0, 0).script.borrow_mut().reads = false;
    pair.rail(1, 0).script.borrow_mut().slow_delivery = true;
    let receive = pair.receive(sink);
    let send = pair.send(source);
    pair.turn(60);
    assert!(pair.engines[0].test(send).is_none() && pair.engines[1].test(receive).is_none());
    pair.rail(0, 0).script.borrow_mut().reads = true;
    pair.turn(60);
    assert!(pair.engines[0].test(send).is_some_and(|told| told.is_ok()) && pair.engines[1].test(receive).is_none());
    pair.rail(1, 0).script.borrow_mut().slow_delivery = false;
    pair.turn(60);
    assert!(pair.engines[1].test(receive).is_some_and(|told| told.is_ok()) && into == data);
}

/// Neither side registers more than a piece and the next one. A piece below the rail's limit is moved from memory that is not
/// registered.
#[test]
fn b51_b53_two_pieces_are_registered_at_a_time() {
    for gets in [false, true] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
        let data = bytes(3000, 1);
        let mut into = vec![0; 3000];
        let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 3000));
        let send = pair.send(Span::of(&data));
        let mut most = 0;
        while pair.engines[1].test(receive).is_none() {
            pair.turn(1);
            for engine in &pair.engines {
                assert!(engine.pins()[0] <= 2);
            }
            most = most.max(pair.rail(0, 0).regions());
        }
        assert_eq!(most, 4, "both sides had the next one registered while one was moved");
        pair.turn(20);
        assert!(pair.engines[0].test(send).is_some_and(|sent| sent.is_ok()) && into == data);
        pair.at_rest();
    }
}

/// Other links carry their share in frames meanwhile, by their bandwidth.
#[test]
fn p13_b51_a_device_and_other_links_share_a_message() {
    for (gets, bandwidth, share) in [(false, 100, 5), (false, 300, 8), (true, 100, 5)] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 2, 1);
        for at in 0..2 {
            pair.engines[at].del_peer(Peer(1 - at as u32));
            (pair.rail(at, 0).attributes.bandwidth, pair.rail(at, 1).attributes.bandwidth) = (100, bandwidth);
            // 20 % of the bytes in frames take the first link, too.
        }
        for at in 0..2usize {
            let (peer, params) = (Peer(1 - at as u32), pair.engines[1 - at].params());
            pair.engines[at].add_peer(peer, &params, |_, rail| rail.add_peer(peer, &peer.0.to_le_bytes())).unwrap();
        }
        let moved = pair.message(10_000);
        let expected = 10_000 - 10_000 * u64::from(bandwidth) / u64::from(bandwidth + 100);
        assert!(moved.abs_diff(expected) < 200, "{moved} of {expected}, {share}");
        let second = pair.rail(0, 1).script.borrow().log.iter().filter(|sent| sent.0 == Lane::Bulk).count();
        assert!(second as u64 * 100 > (10_000 - moved) / 2, "the other link brought {second} fragments");
    }
}

/// Whatever a device, a rail or a pool refuses, on either side: the message arrives, in frames from there on.
#[test]
fn p23_p14_bytes_that_devices_refuse_go_in_frames() {
    use Device::{Busy, Late, NotAvailable, Now};
    for (gets, mover) in [(false, 0), (true, 1)] {
        for (answers, pieces) in [
            (vec![NotAvailable], 0),
            (vec![Busy, Busy, NotAvailable], 0),
            (vec![Late, NotAvailable], 1),
            (vec![Now, Now, Busy, NotAvailable], 2),
            (vec![Busy, Now, Busy, Late, Busy, Busy], 10),
        ] {
            let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
            pair.rail(mover, 0).script.borrow_mut().device = answers.into();
            let moved = pair.message(3000);
            assert_eq!(pair.performed(mover).len(), pieces);
            assert_eq!(moved, (pieces as u64 * 300).min(3000 - FIRST - BY_FRAMES));
        }
        // Memory that cannot be registered, on either side, at first or later.
        for engine in 0..2 {
            for good in 0..8 {
                let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
                let answers = (0..good).map(|_| true).chain([false; 100]);
                pair.rail(engine, 0).script.borrow_mut().registers = answers.collect();
                let moved = pair.message(3000);
                assert!(moved <= 300 * good, "{moved} by {good}");
                assert!(good < 2 || moved != 0);
            }
        }
        // No slot, on either side.
        for engine in 0..2 {
            let mut configs = [config(MOVES); 2];
            configs[engine].rdma.messages = 0;
            assert_eq!(Pair::that(gets, configs, 1, 1).message(3000), 0);
        }
        // One side has no device.
        for engine in 0..2 {
            let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
            pair.rail(engine, 0).attributes.one_sided = OneSided::NONE;
            pair.rail(engine, 0).script.borrow_mut().device = [NotAvailable].into();
            assert_eq!(pair.message(3000), 0);
        }
    }
    // A device that does one operation and not the other.
    for gets in [false, true] {
        for (puts, mover) in [(true, 0), (false, 1)] {
            let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
            for at in 0..2 {
                let can = &mut pair.rail(at, 0).attributes.one_sided;
                if puts { can.get = Reach::NONE } else { can.put = Reach::NONE }
            }
            assert_eq!(pair.message(3000), 3000 - FIRST - BY_FRAMES);
            assert_eq!(pair.performed(mover).len(), 10);
        }
    }
}

/// Rails without room at any time, and memory that is not contiguous, on either side.
#[test]
fn p23_p28_short_accepts_and_layouts() {
    for gets in [false, true] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
        for at in 0..2 {
            let answers = (0..200).map(|n| if n % 3 == at { Answer::Pass } else { Answer::Busy });
            pair.rail(at, 0).script.borrow_mut().answers = answers.collect();
        }
        assert_eq!(pair.message(3000), 3000 - FIRST - BY_FRAMES);
        // Every second byte of one side's memory.
        for scattered in 0..2 {
            let layout = Layout::vector(1500, 1, 2).unwrap();
            let (mut data, mut into) = (bytes(3000, 3), vec![0xaa; 3000]);
            let mut spans = [data.as_mut_ptr(), into.as_mut_ptr()].map(|base| Span::contiguous(base, 1500));
            let base = [data.as_mut_ptr(), into.as_mut_ptr()][scattered];
            // SAFETY: the layout stays until the message is over, and the memory is long enough for it.
            spans[scattered] = unsafe { Span::laid_out(base, &layout) };
            let receive = pair.receive(spans[1]);
            let send = pair.send(spans[0]);
            assert_eq!(pair.outcomes(send, receive), [Ok(1500); 2]);
            for at in 0..1500 {
                let (source, target) = if scattered == 0 { (2 * at, at) } else { (at, 2 * at) };
                assert_eq!(into[target], data[source], "byte {at}");
                assert!(scattered == 0 || into[2 * at + 1] == 0xaa, "a gap is no place for bytes");
            }
            assert_eq!(pair.engines[1].counters().copied, 0);
            pair.at_rest();
        }
    }
}

/// A receive that is shorter than the message takes what fits, and no device writes beyond it.
#[test]
fn m2_b51_a_truncated_message_is_moved_up_to_where_it_is_wanted() {
    for gets in [false, true] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
        let data = bytes(3000, 7);
        let mut into = vec![0xaa; 2000];
        let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 1500));
        let send = pair.send(Span::of(&data));
        let [sent, received] = pair.outcomes(send, receive);
        assert_eq!(sent, Ok(3000));
        assert!(matches!(received, Err(Failure::Truncated(status)) if status.delivered == 1500));
        assert!(into[..1500] == data[..1500] && into[1500..].iter().all(|byte| *byte == 0xaa));
        assert_eq!(pair.engines[0].counters().bytes_by_device, 1500 - FIRST - BY_FRAMES);
        pair.at_rest();
    }
}

/// The link of a device goes down at every step. The other link brings the other bytes; each counts once.
#[test]
fn p14_b51_a_link_that_goes_down_while_its_device_moves_a_message() {
    for (gets, mover) in [(false, 0), (true, 1)] {
        for broken in 0..2 {
            for steps in 0..40 {
                let mut pair = Pair::that(gets, [config(MOVES); 2], 2, 1);
                pair.rail(mover, 0).script.borrow_mut().device_is_late = steps % 2 == 1;
                let data = bytes(3000, steps as u8);
                let mut into = vec![0xaa; 3000];
                let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 3000));
                let send = pair.send(Span::of(&data));
                pair.turn(steps);
                pair.rail(mover, 0).script.borrow_mut().device_is_late = false;
                for at in [broken, 1 - broken] {
                    let down = Event::Down(Peer(1 - at as u32), Lost::Broken);
                    pair.rail(at, 0).script.borrow_mut().events.push_back(down);
                    pair.turn(3);
                }
                assert_eq!(pair.outcomes(send, receive), [Ok(3000); 2], "{broken} first, after {steps}");
                assert!(into == data, "other bytes");
                pair.at_rest();
            }
        }
    }
}

/// The peer is lost at every step. Requests end, and at their end their memory is not registered any more.
#[test]
fn b10_p15_a_peer_that_is_lost_while_a_device_moves_a_message() {
    for gets in [false, true] {
        for dies in 0..2 {
            for steps in 0..30 {
                let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
                let data = bytes(3000, 1);
                let mut into = vec![0xaa; 3000];
                let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 3000));
                let send = pair.send(Span::of(&data));
                pair.turn(steps);
                let (left, request) = [(1, receive), (0, send)][dies];
                let lost = Event::Lost(Peer(dies as u32), Lost::Broken);
                pair.rail(left, 0).script.borrow_mut().events.push_back(lost);
                pair.engines[left].progress(Instant::ZERO);
                let told = pair.engines[left].test(request);
                assert!(matches!(told, Some(Ok(_) | Err(Failure::PeerFailed(_)))), "{told:?} after {steps}");
                assert_eq!(pair.engines[left].pins(), [0, 0], "after {steps}");
                assert!(pair.engines[left].rdma.is_idle());
            }
        }
    }
}

/// A disabled rail begins no piece, and the message goes on by the others.
#[test]
fn p9_b51_a_rail_that_is_disabled_moves_no_more() {
    for gets in [false, true] {
        for engine in 0..2 {
            for steps in 0..20 {
                let mut pair = Pair::that(gets, [config(MOVES); 2], 2, 1);
                let data = bytes(3000, 1);
                let mut into = vec![0xaa; 3000];
                let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 3000));
                let send = pair.send(Span::of(&data));
                pair.turn(steps);
                pair.engines[engine].enable_rail(0, false).unwrap();
                assert_eq!(pair.outcomes(send, receive), [Ok(3000); 2], "after {steps}");
                assert!(into == data);
                pair.at_rest();
            }
        }
    }
}

/// Several messages at once, with fewer slots than messages on either side: all arrive, by device or in frames.
#[test]
fn b14_messages_that_find_no_slot_go_in_frames() {
    for gets in [false, true] {
        for slots in [[1, 4], [4, 1], [2, 2]] {
            let configs = slots.map(|messages| config(rdma::Config { messages, ..MOVES }));
            let mut pair = Pair::that(gets, configs, 1, 1);
            let data: Vec<_> = (0..6).map(|n| bytes(2000, n)).collect();
            let mut into = vec![vec![0xaa; 2000]; 6];
            let receives: Vec<_> =
                into.iter_mut().map(|into| pair.receive(Span::contiguous(into.as_mut_ptr(), 2000))).collect();
            let sends: Vec<_> = data.iter().map(|data| pair.send(Span::of(data))).collect();
            pair.turn(2000);
            for (send, receive) in sends.into_iter().zip(receives) {
                assert_eq!(pair.outcomes(send, receive), [Ok(2000); 2]);
            }
            assert!(into == data);
            assert!(pair.engines[0].counters().bytes_by_device != 0);
            pair.at_rest();
        }
    }
}

/// A kept registration serves the next message from and to the same memory. The number of kept registrations is bounded, and they
/// end when memory is forgotten.
#[test]
fn b51_registrations_are_kept_bounded_and_forgotten() {
    let kept = |kept_pins| config(rdma::Config { kept_pins, ..MOVES });
    let mut pair = Pair::new([kept(4); 2], 1, 1);
    let data = bytes(1074, 1); // three pieces
    let mut into = vec![0; 1074];
    let mut message = |pair: &mut Pair| {
        into.fill(0xaa);
        let receive = pair.receive(Span::contiguous(into.as_mut_ptr(), 1074));
        let send = pair.send(Span::of(&data));
        assert_eq!(pair.outcomes(send, receive), [Ok(1074); 2]);
        assert!(into == data);
        pair.at_rest();
        pair.engines
            .iter()
            .map(|engine| (engine.counters().pins_made, engine.counters().pins_found))
            .collect::<Vec<_>>()
    };
    assert_eq!(message(&mut pair), [(3, 0); 2]);
    assert_eq!(pair.engines[0].pins(), [0, 3]);
    assert_eq!(message(&mut pair), [(3, 3); 2]);
    // One byte of the middle piece is forgotten: only that piece is registered again.
    let at = (FIRST + BY_FRAMES + 300) as usize;
    pair.engines[0].forget_memory(data.as_ptr().cast_mut().wrapping_add(at), 1);
    assert_eq!([pair.engines[0].pins(), pair.engines[1].pins()], [[0, 2], [0, 3]]);
    assert_eq!(message(&mut pair), [(4, 5), (3, 6)]);
    pair.engines[0].forget_memory(data.as_ptr().cast_mut(), at - 300);
    assert_eq!(pair.engines[0].pins(), [0, 3], "nothing of what was registered lies there");
    // More registrations than may be kept: the least recently used ones are dropped.
    let mut many = Pair::new([kept(2); 2], 1, 1);
    for len in [3000, 1074, 5000] {
        many.message(len);
        assert_eq!([many.engines[0].pins(), many.engines[1].pins()], [[0, 2]; 2]);
    }
    // A device without room for more registrations gets kept ones back.
    let mut full = Pair::new([kept(4); 2], 1, 1);
    full.message(1074);
    full.rail(0, 0).script.borrow_mut().registers = [false, false, true].into();
    assert_eq!(full.message(1200), 1200 - FIRST - BY_FRAMES);
    // Memory that a device may still access is not kept.
    let mut broken = Pair::new([kept(8); 2], 2, 1);
    broken.rail(0, 0).script.borrow_mut().device_is_late = true;
    let receive = broken.receive(Span::contiguous(into.as_mut_ptr(), 1074));
    let send = broken.send(Span::of(&data));
    broken.turn(20);
    broken.rail(0, 0).script.borrow_mut().events.push_back(Event::Down(Peer(1), Lost::Broken));
    assert_eq!(broken.outcomes(send, receive), [Ok(1074); 2]);
    assert_eq!([broken.engines[0].pins(), broken.engines[1].pins()], [[0, 0]; 2]);
}

/// An engine, and the bare rail of its peer.
fn beside_a_stranger(rdma: rdma::Config) -> (Pair, Scripted) {
    let (pair, mut strangers) = beside_strangers(config(rdma), 1);
    (pair, strangers.remove(0))
}

/// An engine with `links` rails, all with devices, and the bare rails at their other ends.
fn beside_strangers(config: Config, links: usize) -> (Pair, Vec<Scripted>) {
    let ends = (0..links).map(|_| <[Scripted; 2]>::try_from(rails(2)).unwrap());
    let (mine, mut others): (Vec<_>, Vec<_>) = ends.map(|[own, other]| (own, other)).unzip();
    others.iter_mut().for_each(|other| _ = other.add_peer(Peer(0), &0u32.to_le_bytes()).unwrap());
    let mut engine = engine(config, mine, links);
    let params = engine.params();
    engine.add_peer(Peer(1), &params, |_, rail| rail.add_peer(Peer(1), &1u32.to_le_bytes())).unwrap();
    (Pair { engines: vec![engine] }, others)
}

fn say<H: IntoBytes + Immutable>(rail: &mut Scripted, header: &H, body: &[u8]) {
    let len = size_of::<H>() + body.len();
    let shape = Shape { tag: crate::ptl::TAG, lane: Lane::Bulk, header: size_of::<H>() as u8, len: len as u32 };
    let mut grant = rail.reserve(Endpoint(0), shape).unwrap();
    grant.write(0, header.as_bytes());
    grant.write(size_of::<H>(), body);
    let ticket = grant.finish();
    rail.commit(ticket);
}

/// The headers of a kind that have come.
fn heard<H: FromBytes>(rail: &mut Scripted, kind: wire::Kind) -> Vec<H> {
    let mut all = vec![];
    while let Some(event) = rail.poll(Instant::ZERO) {
        let Event::Frame(frame) = event else { continue };
        if wire::kind(frame.head()) == Some(kind) {
            all.push(H::read_from_prefix(frame.head()).unwrap().0);
        }
        if !frame.is_whole() {
            rail.release(frame.id);
        }
    }
    all
}

/// The first fragment of a message has arrived: its request, and the sender's handle for it.
fn begin(pair: &mut Pair, others: &mut [Scripted], data: &[u8]) -> (Request, u64) {
    let send = pair.send(Span::of(data));
    pair.turn(3);
    let firsts: Vec<wire::Rendezvous> =
        others.iter_mut().flat_map(|other| heard(other, wire::Kind::Rendezvous)).collect();
    (send, firsts[0].sender.get())
}

/// The receiver wants a message of 2000 bytes: 150 of them beside the first fragment in frames, the others by a device.
fn accept(pair: &mut Pair, others: &mut [Scripted], sender: u64) {
    let ack = wire::Ack::new(sender, Handle::from_bits(1 << 32 | 77), 2000).with_device(wire::FLAG_PUT, 150);
    say(&mut others[0], &ack, &[]);
    pair.turn(3);
}

fn fragments(pair: &mut Pair, others: &mut [Scripted]) -> usize {
    let mut all = 0;
    for _ in 0..30 {
        pair.turn(1);
        all += others.iter_mut().map(|other| heard::<wire::Fragment>(other, wire::Kind::Fragment).len()).sum::<usize>();
    }
    all
}

/// A sender gets offers before the ack, twice, for the wrong place, beyond the message, and with a forged key. It also gets
/// reports of moves for which it did not ask.
#[test]
fn p22_b51_offers_of_a_hostile_receiver() {
    let (mut pair, mut stranger) = beside_a_stranger(MOVES);
    let data = bytes(2000, 1);
    let (send, sender) = begin(&mut pair, from_mut(&mut stranger), &data);
    let mut target = vec![0u8; 2000];
    // SAFETY: the memory outlives the test's rails.
    let (_, key) = unsafe { stranger.register(target.as_mut_ptr(), 300, Access::REMOTE_WRITE) }.unwrap();
    for forged in [sender ^ 1, sender.wrapping_add(1 << 32), 0, u64::MAX] {
        say(&mut stranger, &wire::Offer::new(forged, 174, 300, key), &[]);
        say(&mut stranger, &wire::Performed::new(forged, 174, 300), &[]);
    }
    for (offset, len) in [(1900, 101), (u64::MAX, 1), (2000, 1)] {
        say(&mut stranger, &wire::Offer::new(sender, offset, len, key), &[]);
    }
    say(&mut stranger, &wire::Performed::new(sender, 174, 300), &[]); // not before the ack
    pair.turn(40);
    assert_eq!((pair.odd(), pair.performed(0)), (12, vec![]));
    // The true offer comes before its ack, and a second one with it.
    say(&mut stranger, &wire::Offer::new(sender, 174, 300, key), &[]);
    say(&mut stranger, &wire::Offer::new(sender, 474, 300, key), &[]);
    pair.turn(5);
    assert_eq!((pair.odd(), pair.performed(0)), (13, vec![]));
    accept(&mut pair, from_mut(&mut stranger), sender);
    pair.turn(20);
    assert_eq!(pair.performed(0), [300]);
    let told: Vec<wire::Performed> = heard(&mut stranger, wire::Kind::Performed);
    assert_eq!(
        (told.len(), told[0].request.get(), told[0].offset.get(), told[0].len.get()),
        (1, 1 << 32 | 77, 174, 300)
    );
    assert!(target[..300] == data[174..474] && target[300..].iter().all(|byte| *byte == 0));
    // Offers for the wrong place, of no bytes (which may count as the end of the offers), and beyond the end; and a report on a
    // piece that was never offered.
    for (offset, len) in [(174, 300), (475, 300), (1999, 2)] {
        say(&mut stranger, &wire::Offer::new(sender, offset, len, key), &[]);
    }
    say(&mut stranger, &wire::Performed::new(sender, 474, 300), &[]);
    pair.turn(5);
    assert_eq!((pair.odd(), pair.performed(0)), (17, vec![300]));
    // A key that the device refuses: the other bytes come in frames.
    say(&mut stranger, &wire::Offer::new(sender, 474, 300, Key([0x77; KEY])), &[]);
    assert_eq!(fragments(&mut pair, from_mut(&mut stranger)), (2000usize - 474).div_ceil(100));
    assert!(pair.engines[0].test(send).is_some_and(|sent| sent.is_ok()));
    assert!(pair.engines[0].rdma.is_idle());
    assert_eq!(pair.engines[0].pins(), [0, 0]);
}

/// A receiver gets reports of moves that were not made, offers that it did not ask for, and frames for bytes that it has offered.
#[test]
fn p22_b51_reports_of_a_hostile_sender() {
    let (mut pair, mut stranger) = beside_a_stranger(MOVES);
    let mut into = vec![0xaa; 1500];
    // SAFETY: it outlives the test's rails.
    let receive = unsafe { pair.engines[0].irecv(from(1, 5), Span::contiguous(into.as_mut_ptr(), 1500)) }.unwrap();
    say(&mut stranger, &wire::Rendezvous::new(1, 5, 0, Handle::from_bits(1 << 32 | 9), 1500), &[]);
    pair.turn(5);
    let mut seen = (vec![], vec![]);
    while let Some(Event::Frame(frame)) = stranger.poll(Instant::ZERO) {
        match wire::kind(frame.head()) {
            Some(wire::Kind::Ack) => seen.0.push(wire::Ack::read_from_prefix(frame.head()).unwrap().0),
            Some(wire::Kind::Offer) => seen.1.push(wire::Offer::read_from_prefix(frame.head()).unwrap().0),
            other => panic!("{other:?}"),
        }
    }
    let (ack, offer) = (seen.0[0], seen.1[0]);
    assert_eq!((ack.wanted.get(), ack.by_frames.get(), ack.common.flags), (1500, BY_FRAMES as u32, wire::FLAG_PUT));
    assert_eq!((offer.request.get(), offer.offset.get(), offer.len.get()), (1 << 32 | 9, BY_FRAMES, 300));
    let own = ack.receiver.get();
    for (request, offset, len) in
        [(own ^ 1, 150, 300), (own, 151, 300), (own, 150, 299), (own, 150, 0), (own, 150, 301), (own, 450, 300)]
    {
        say(&mut stranger, &wire::Performed::new(request, offset, len), &[]);
    }
    say(&mut stranger, &wire::Offer::new(own, 150, 300, Key([1; KEY])), &[]);
    say(&mut stranger, &wire::Offer::new(own, 150, 0, Key([1; KEY])), &[]);
    pair.turn(40);
    assert_eq!(pair.odd(), 8);
    assert!(pair.engines[0].test(receive).is_none() && into.iter().all(|byte| *byte == 0xaa));
    // Frames for all of it, as from a sender that has no device: the offer ends with the receive.
    for at in (0..1500).step_by(100) {
        say(&mut stranger, &wire::Fragment::new(own, at), &[0x55; 100]);
        pair.turn(2);
    }
    pair.turn(5);
    assert!(pair.engines[0].test(receive).is_some_and(|told| told.is_ok()));
    assert!(into.iter().all(|byte| *byte == 0x55));
    assert_eq!((pair.engines[0].pins(), pair.rail(0, 0).regions()), ([0, 0], 0));
    say(&mut stranger, &wire::Performed::new(own, 150, 300), &[]);
    pair.turn(5);
    assert_eq!(pair.odd(), 9);
}

/// There is no slot for an offer that overtakes its ack, and there is one when the ack comes. The sender does not wait for the
/// offer that it has dropped.
#[test]
fn b51_an_offer_that_found_no_slot_is_not_waited_for() {
    let (mut pair, mut stranger) = beside_a_stranger(rdma::Config { messages: 1, ..MOVES });
    let data = [bytes(2000, 1), bytes(2000, 2)];
    let sends = [0, 1].map(|at| pair.send(Span::of(&data[at])));
    pair.turn(3);
    let firsts: Vec<wire::Rendezvous> = heard(&mut stranger, wire::Kind::Rendezvous);
    let senders = [firsts[0].sender.get(), firsts[1].sender.get()];
    let ack = |of: usize, flag| {
        wire::Ack::new(senders[of], Handle::from_bits(1 << 32 | of as u64), 2000).with_device(flag, 150)
    };
    say(&mut stranger, &ack(0, wire::FLAG_PUT), &[]); // it has the slot
    say(&mut stranger, &wire::Offer::new(senders[1], 174, 300, Key([0; KEY])), &[]);
    pair.turn(30);
    say(&mut stranger, &wire::Offer::new(senders[0], 0, 0, Key([0; KEY])), &[]); // and frees it
    let mut fragments = 0;
    for turn in 0..60 {
        if turn == 20 {
            say(&mut stranger, &ack(1, wire::FLAG_PUT), &[]);
        }
        pair.turn(3);
        fragments += heard::<wire::Fragment>(&mut stranger, wire::Kind::Fragment).len();
    }
    assert!(sends.into_iter().all(|send| pair.engines[0].test(send).is_some_and(|sent| sent.is_ok())));
    assert_eq!(fragments, 2 + (2000usize - 174).div_ceil(100) + (2000usize - 24).div_ceil(100));
}

/// An offer arrives for a receive of a message that comes in frames. The offer is counted, and the receive ends like any other,
/// with a notice if that is wanted. Requests that waited behind it go on.
#[test]
fn p22_an_offer_for_a_receive_of_frames_is_not_used() {
    for detached in [false, true] {
        let (mut pair, mut others) = beside_strangers(config(rdma::Config::OFF), 2);
        let mut into = vec![0xaa; 100];
        // SAFETY: it outlives the test's rails.
        let receive = unsafe { pair.engines[0].irecv(from(1, 5), Span::contiguous(into.as_mut_ptr(), 100)) }.unwrap();
        if detached {
            pair.engines[0].detach(receive);
        } else {
            pair.engines[0].notify(receive);
        }
        let data = bytes(2000, 1);
        let (send, sender) = begin(&mut pair, &mut others, &data);
        say(&mut others[0], &wire::Rendezvous::new(1, 5, 0, Handle::from_bits(1 << 32 | 9), 100), &[]);
        pair.turn(5);
        let acks: Vec<wire::Ack> = others.iter_mut().flat_map(|other| heard(other, wire::Kind::Ack)).collect();
        let own = acks[0].receiver.get();
        // A send in the list of requests that wait for room, where a receive of frames has no place.
        pair.engines[0].rails_mut().iter_mut().for_each(|rail| rail.script.borrow_mut().always = Some(Answer::Busy));
        say(&mut others[0], &wire::Ack::new(sender, Handle::from_bits(1 << 32 | 9), 2000), &[]);
        pair.turn(5);
        // Both arrive in one turn.
        say(&mut others[0], &wire::Offer::new(own, 0, 0, Key([0; KEY])), &[]);
        say(&mut others[1], &wire::Fragment::new(own, 0), &[0x55; 100]);
        pair.turn(1);
        assert_eq!(pair.odd(), 1);
        assert!(into.iter().all(|byte| *byte == 0x55));
        pair.engines[0].rails_mut().iter_mut().for_each(|rail| rail.script.borrow_mut().always = None);
        for _ in 0..60 {
            pair.turn(1);
            others.iter_mut().for_each(|other| _ = heard::<wire::Fragment>(other, wire::Kind::Fragment));
        }
        assert!(pair.engines[0].test(send).is_some_and(|sent| sent.is_ok()), "detached: {detached}");
    }
}

/// Memory is registered with one rail. If another rail offers the next piece, the memory registered ahead is of no use to it, and
/// is deregistered.
#[test]
fn b51_p13_the_next_piece_by_another_rail() {
    let (mut pair, mut others) = beside_strangers(config(MOVES), 2);
    let (data, mut target) = (bytes(2000, 1), vec![0u8; 600]);
    let (_, sender) = begin(&mut pair, &mut others, &data);
    accept(&mut pair, &mut others, sender);
    let base = target.as_mut_ptr();
    // Registered with the two rails, their other ends included: two pieces here, and one there.
    for (at, regions) in [(0, [3, 0]), (1, [1, 3])] {
        // SAFETY: the memory outlives the test's rails, and nobody reads it meanwhile.
        let (_, key) = unsafe { others[at].register(base.add(at * 300), 300, Access::REMOTE_WRITE) }.unwrap();
        pair.rail(0, at).script.borrow_mut().device_is_late = true;
        say(&mut others[at], &wire::Offer::new(sender, 174 + at as u64 * 300, 300, key), &[]);
        pair.turn(5);
        assert_eq!([0, 1].map(|rail| pair.rail(0, rail).regions()), regions);
        pair.rail(0, at).script.borrow_mut().device_is_late = false;
        pair.turn(5);
    }
    assert!(target == data[174..774], "other bytes");
    assert_eq!([0, 1].map(|rail| pair.rail(0, rail).script.borrow().performed.len()), [1, 1]);
}

/// An offer that has migrated may be for memory of any rail: the link that brings it does not tell which one.
#[test]
fn b51_p14_an_offer_that_migrated_is_not_used() {
    for early in [false, true] {
        let (mut pair, mut others) = beside_strangers(config(MOVES), 2);
        let data = bytes(2000, 1);
        let (send, sender) = begin(&mut pair, &mut others, &data);
        if !early {
            accept(&mut pair, &mut others, sender);
        }
        pair.rail(0, 1).script.borrow_mut().moved = true;
        say(&mut others[1], &wire::Offer::new(sender, 174, 300, Key([0; KEY])), &[]);
        pair.turn(5);
        pair.rail(0, 1).script.borrow_mut().moved = false;
        if early {
            accept(&mut pair, &mut others, sender);
        }
        assert!(fragments(&mut pair, &mut others) > 0);
        assert!(pair.engines[0].test(send).is_some_and(|sent| sent.is_ok()), "early: {early}");
        assert_eq!(pair.odd(), 1);
        assert!((0..2).all(|rail| pair.rail(0, rail).script.borrow().performed.is_empty()));
        assert!(pair.engines[0].rdma.is_idle());
    }
}

/// Before the two sides of a link are connected, an offer by it would wait until they are: nothing is planned with its device.
#[test]
fn b51_p17_a_link_that_is_not_connected_moves_nothing() {
    for gets in [false, true] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 2, 2);
        (0..2).for_each(|engine| pair.rail(engine, 0).script.borrow_mut().unmet = true);
        assert!(pair.message(3000) > 0);
        assert_eq!((pair.performed(0), pair.performed(1)), (vec![], vec![]), "by the rail of the second link");
        (0..2).for_each(|engine| pair.rail(engine, 1).script.borrow_mut().unmet = true);
        assert_eq!(pair.message(3001), 0);
        (0..2).for_each(|engine| pair.rail(engine, 1).script.borrow_mut().unmet = false);
        (0..2).for_each(|engine| pair.rail(engine, 1).attributes.one_sided.pipeline.piece = 0);
        assert_eq!(pair.message(3002), 0, "pieces of no bytes");
    }
}

/// A held-back message is asked for, offered memory before it is acknowledged, and then not wanted after all. It is held back as
/// before, whatever happens to the link of that offer. When it is asked for again, it waits for other offers.
#[test]
fn p27_b51_an_early_offer_for_an_answer_that_is_sent_back() {
    let held_back = Config { unexpected: 0, units: 0, ..config(MOVES) };
    let (mut pair, mut others) = beside_strangers(held_back, 2);
    let (data, mut target) = ([1, 2, 3].map(|n| bytes(2000, n)), vec![0u8; 300]);
    let sends = [0, 1, 2].map(|at| pair.send(Span::of(&data[at])));
    pair.turn(5);
    // SAFETY: the memory outlives the test's rails.
    let (_, key) = unsafe { others[0].register(target.as_mut_ptr(), 300, Access::REMOTE_WRITE) }.unwrap();
    let ask = |pair: &mut Pair, others: &mut [Scripted]| {
        say(&mut others[0], &wire::Ask::new(1, 5), &[]);
        pair.turn(5);
        let all: Vec<wire::Rendezvous> =
            others.iter_mut().flat_map(|other| heard(other, wire::Kind::Rendezvous)).collect();
        assert!(all.len() == 1 && all[0].common.flags & wire::FLAG_ANSWER != 0);
        all[0].sender.get()
    };
    // The answer itself brings no bytes. Of the two offers one is kept, and one is counted as unused.
    for len in [300, 0] {
        let sender = ask(&mut pair, &mut others);
        say(&mut others[0], &wire::Offer::new(sender, 150, len, key), &[]);
        pair.turn(3);
        say(&mut others[0], &wire::Reject::new(sender, wire::Reason::Unmatched), &[]);
        pair.turn(3);
        assert!(pair.engines[0].rdma.is_idle());
    }
    pair.rail(0, 0).script.borrow_mut().events.push_back(Event::Down(Peer(1), Lost::Broken));
    pair.turn(3);
    pair.rail(0, 0).script.borrow_mut().events.push_back(Event::Up(Peer(1)));
    pair.turn(3);
    for (at, send) in sends.into_iter().enumerate() {
        let sender = ask(&mut pair, &mut others);
        accept(&mut pair, &mut others, sender);
        say(&mut others[0], &wire::Offer::new(sender, 150, 300, key), &[]);
        pair.turn(9);
        say(&mut others[0], &wire::Offer::new(sender, 0, 0, key), &[]);
        fragments(&mut pair, &mut others);
        assert!(pair.engines[0].test(send).is_some_and(|sent| sent.is_ok()), "message {at}");
        assert!(target == data[at][150..450], "message {at}");
    }
}

/// The receiver has planned that a device moves all but the first bytes, and does not know that the sender cannot read these.
#[test]
fn a_message_whose_memory_cannot_be_read_ends_at_both_sides_though_a_device_was_to_move_it() {
    for gets in [false, true] {
        let mut pair = Pair::that(gets, [config(MOVES); 2], 1, 1);
        let (data, copies) = mapped(numbered(4000), 0);
        let sink: &'static mut [u8] = vec![0xee; 4000].leak();
        let receive = pair.receive(Span::contiguous(sink.as_mut_ptr(), sink.len()));
        let send = pair.send(data);
        let ends = pair.outcomes(send, receive);
        assert_eq!(ends, [Err(Failure::BadMemory), Err(aborted(5, 4000))], "{gets}");
        assert_eq!(copies.failures(), Some(1), "no copy is tried again");
        pair.turn(5);
        assert!(pair.engines.iter().all(|engine| engine.rdma.is_idle() && engine.used() == [0; 3]), "{gets}");
    }
}
