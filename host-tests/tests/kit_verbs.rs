//! The kits over verbs rails, each on a device of its own. They run in the virtual machine
//! (`host-tests/scripts/verbs`), or on a machine with devices `rxe0` to `rxe3`.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::mtl::{Mode, Source, Tag};
use towline_core::pml::{self, rdma};
use towline_core::rail::native::Pipeline;
use towline_core::rail::{Endpoint, LINKED_HEAD, Lane, Lost, Rail as _, SendError, Shape};
use towline_core::rma::{Access, Failure};
use towline_host_tests::kit::LINK_TIMEOUT;
use towline_host_tests::kit::mesh::{Mesh, Setup, peer};
use towline_host_tests::kit::nodes::{CONFIG, Engine, World};
use towline_host_tests::kit::one_sided::{Memory, Modules, What};
use towline_host_tests::kit::socket_setup::SocketSetup;
use towline_host_tests::{matching_suite, one_sided_suite, rail_suite};
use towline_net::JobKey;
use towline_verbs::{Config, Counters, Rail};

fn make(rank: u32, link: u8, change: fn(&mut Config)) -> Rail {
    let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
    config.link = link;
    config.devices = vec![format!("rxe{rank}")];
    change(&mut config);
    Rail::new(config).expect("the machine has devices")
}

fn verbs(change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    SocketSetup::new(move |rank, link| make(rank, link, change), Rail::as_fd)
}

fn links(count: usize, change: fn(&mut Config)) -> impl Setup<Rail = Linked> {
    linked(count, move |rank, link| make(rank, link, change))
}

type Linked = Link<'static, Rail, Crc32c>;

fn linked(count: usize, make: impl Fn(u32, u8) -> Rail) -> impl Setup<Rail = Linked> {
    let make = move |rank: u32, link| {
        let raw = make(rank, link);
        let settings = link::Config::new(link, u64::from(rank) + 1, raw.attributes());
        let settings = link::Config { peers: 4, dead_after: LINK_TIMEOUT, hello_within: LINK_TIMEOUT, ..settings };
        let room = vec![0; settings.bytes(&raw)].leak();
        Link::new(raw, Crc32c, settings, &mut Arena::new(room)).expect("room for all tables")
    };
    SocketSetup::new(make, |link: &Linked| link.raw().as_fd()).with_longest_header(LINKED_HEAD).with_links(count)
}

/// Small buffers, so that every check fills them.
fn small(config: &mut Config) {
    config.eager_limit_bytes = 700;
    config.rendezvous_eager_limit_bytes = 700;
    config.max_send_size_bytes = 9000;
    config.inline_bytes = 0;
    config.receive_buffers = 8;
    config.eager_buffers = 8;
    config.bulk_buffers = 2;
    config.send_queue_frames = 4;
    config.signal_every = 2;
    config.path_mtu_bytes = 1024;
}

mod defaults {
    use super::*;
    rail_suite!(verbs(|_| {}));
}

mod tight {
    use super::*;
    rail_suite!(verbs(small));
}

/// Checks of what the devices do by themselves.
mod one_sided {
    use super::*;
    one_sided_suite!(verbs(|_| {}));
}

mod one_sided_tight {
    use super::*;
    one_sided_suite!(verbs(small));
}

mod one_sided_link {
    use super::*;
    one_sided_suite!(links(1, |_| {}));
}

/// The device moves messages that are longer than a few frames.
const DIRECT: Pipeline = Pipeline { least: 20_000, by_frames: 3000, piece: 100_000, gets: false };

/// By puts of the sender.
fn puts(config: &mut Config) {
    config.pipeline = Some(DIRECT);
}

/// By gets of the receiver.
fn gets(config: &mut Config) {
    config.pipeline = Some(Pipeline { gets: true, ..DIRECT });
}

const WAYS: [fn(&mut Config); 2] = [puts, gets];

/// The same with small buffers.
fn small_direct(config: &mut Config) {
    small(config);
    config.pipeline = Some(Pipeline { least: 3000, by_frames: 500, piece: 10_000, gets: true });
}

mod mtl {
    use super::*;
    matching_suite!(verbs(puts));
}

mod mtl_two_links {
    use super::*;
    matching_suite!(links(2, small_direct));
}

/// Long messages of many lengths, in both directions at once. The device of one side moves all but the first bytes,
/// without another copy, and no registration remains.
#[test]
fn b51_p23_p28_devices_move_long_messages() {
    for (gets, way) in [false, true].into_iter().zip(WAYS) {
        let limits = pml::Config { rdma: rdma::Config { messages: 4, ..rdma::Config::OFF }, ..CONFIG };
        let mut world = World::new(verbs(way), 2, limits);
        world.exchange(0, 1, 1, &[1; 19_999]);
        assert!(
            world.nodes.iter().all(|node| node.counters().pieces == 0),
            "the device moved a message that is too short for it"
        );
        for len in [20_000, 33_000, 100_001, 1 << 20] {
            let data = [0, 1].map(|from| (0..len).map(|at| (at * 7 + from) as u8).collect::<Vec<_>>());
            let mut rooms = [vec![0; len], vec![0; len]];
            let [first, second] = &mut rooms;
            let receives = [
                world.irecv(0, Source::Rank(1), Tag::Is(2), first),
                world.irecv(1, Source::Rank(0), Tag::Is(2), second),
            ];
            let sends = [0, 1].map(|from| world.isend(from, 1 - from, 2, Mode::Standard, &data[from]));
            for (at, receive) in receives.into_iter().enumerate() {
                assert_eq!(world.finish(at, receive).map(|status| status.delivered), Ok(len as u64));
            }
            for (at, send) in sends.into_iter().enumerate() {
                world.finish_send(at, send).expect("it is sent");
            }
            assert!(rooms[0] == data[1] && rooms[1] == data[0], "{len} bytes, gets: {gets}");
        }
        for node in &mut world.nodes {
            let counters = *node.counters();
            assert_eq!((counters.device_failures, counters.copied), (0, 0), "{counters:?}");
            assert!(counters.bytes_by_device > 2 << 20, "{counters:?}");
            assert_eq!(node.pml().pins(), [0, 0]);
            let device = node.pml().rails().0[0].inner().counters();
            assert!(
                device.direct >= 10,
                "the device moves bytes between the users' buffers, without a copy: {device:?}"
            );
        }
        world.assert_all_released();
    }
}

/// The rail finds out what suits Soft-RoCE: messages from 64 KiB on are moved by gets of the receiver's device.
#[test]
fn b51_devices_move_the_messages_that_suit_them() {
    let limits = pml::Config { rdma: rdma::Config { messages: 4, ..rdma::Config::OFF }, ..CONFIG };
    let mut world = World::new(verbs(|_| {}), 2, limits);
    for (len, moved) in [((1 << 16) - 1, [0, 0]), (1 << 16, [0, 1])] {
        world.exchange(0, 1, 1, &vec![1; len]);
        let mut device = |at: usize| world.nodes[at].pml().rails().0[0].inner().counters().one_sided;
        assert_eq!([device(0), device(1)], moved, "{len} bytes");
    }
}

/// Two links. The one whose device moves messages breaks again and again, and every message arrives.
#[test]
fn b51_p14_messages_survive_the_queue_pair_of_the_device_that_moves_them() {
    const LEN: usize = 2 << 20;
    for (gets, way) in [false, true].into_iter().zip(WAYS) {
        let limits = pml::Config { rdma: rdma::Config { messages: 4, ..rdma::Config::OFF }, ..CONFIG };
        let mut world = World::new(links(2, way), 2, limits);
        world.exchange(0, 1, 1, &[1; 100]);
        let data: Vec<u8> = (0..LEN).map(|at| (at * 13) as u8).collect();
        for round in 0..12 {
            let mut room = vec![0; LEN];
            let receive = world.irecv(1, Source::Rank(0), Tag::Is(2), &mut room);
            let send = world.isend(0, 1, 2, Mode::Standard, &data);
            let mover = usize::from(gets);
            let before = world.nodes[mover].counters().pieces;
            let mut outcome = None;
            world.until("one more piece, or the whole message, has arrived", |world| {
                outcome = world.nodes[1].test(receive);
                outcome.is_some() || world.nodes[mover].counters().pieces > before + round % 4
            });
            // The only peer of a rail is its first endpoint.
            world.nodes[round as usize % 2].pml().rails().0[0].inner().raw().inject_connection_error(Endpoint(0));
            let status = outcome.unwrap_or_else(|| world.finish(1, receive));
            assert_eq!(status.map(|status| status.delivered), Ok(LEN as u64), "round {round}");
            world.finish_send(0, send).expect("it is sent");
            assert!(room == data, "round {round}, gets: {gets}");
            world.until("the link is back", |world| {
                let back = |node: &Engine<_>| node.counters().links_up == node.counters().links_down;
                world.nodes.iter().all(back)
            });
        }
        assert!(world.nodes.iter_mut().all(|node| node.pml().pins() == [0, 0]));
        assert!(world.nodes[0].counters().links_down >= 6, "the link did not break");
        assert!(world.nodes.iter().any(|node| node.counters().device_failures != 0), "no device was interrupted");
    }
}

/// A queue pair in its error state ends its connection at both ends, as broken. Other connections go on, and the peer
/// is reachable again once it has been added again.
#[test]
fn a_queue_pair_that_fails_is_lost_at_both_ends_and_is_replaced() {
    let mut mesh = Mesh::new(verbs(|_| {}), 3);
    let exchange = |mesh: &mut Mesh<_>, from: usize, to: usize| {
        mesh.ends.iter_mut().for_each(|end| end.received.clear());
        mesh.send(from, to, Lane::Eager, 0x80, 8, b"in order");
        mesh.until("a frame", |mesh| !mesh.ends[to].received.is_empty());
    };
    for turn in 0..3 {
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            exchange(&mut mesh, from, to);
        }
        let to = mesh.ends[0].endpoints[1];
        mesh.ends[0].rail.inject_connection_error(to);
        mesh.until("both ends report the loss", |mesh| mesh.ends[..2].iter().all(|end| !end.lost.is_empty()));
        mesh.run_until_idle();
        assert_eq!(mesh.ends[0].lost, [(peer(1), Lost::Broken)], "turn {turn}");
        assert_eq!(mesh.ends[1].lost, [(peer(0), Lost::Broken)], "turn {turn}");
        let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 0, len: 1 };
        assert_eq!(mesh.try_send(0, 1, shape, b"x"), Err(SendError::Unreachable));
        exchange(&mut mesh, 0, 2);
        exchange(&mut mesh, 2, 1);
        assert!(mesh.ends[2].lost.is_empty());
        let (one, other) = (mesh.ends[0].endpoints[1], mesh.ends[1].endpoints[0]);
        mesh.ends[0].rail.del_peer(one);
        mesh.ends[1].rail.del_peer(other);
        mesh.introduce(0, 1);
        mesh.introduce(1, 0);
        mesh.ends.iter_mut().for_each(|end| end.lost.clear());
    }
}

/// A link over queue pairs that fail again and again, during traffic in both directions. It connects again, and each
/// frame arrives once.
#[test]
fn a_link_carries_each_frame_once_over_queue_pairs_that_fail() {
    let mut mesh = Mesh::new(links(1, |_| {}), 2);
    let count = 600u64;
    let mut sent = [0u64; 2];
    let mut broken = 0;
    mesh.until("all are sent", |mesh| {
        for (from, sent) in sent.iter_mut().enumerate() {
            let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 8, len: 3000 };
            let bytes = [&sent.to_le_bytes()[..], &[*sent as u8; 2992]].concat();
            if *sent < count && mesh.try_send(from, 1 - from, shape, &bytes).is_ok() {
                *sent += 1;
            }
        }
        // The only peer of a rail is its first endpoint.
        if mesh.ends[1].received.len() as u64 > 150 * (broken + 1) && broken < 3 {
            mesh.ends[0].rail.raw().inject_connection_error(Endpoint(0));
            broken += 1;
        }
        sent == [count; 2]
    });
    mesh.until("all have arrived", |mesh| mesh.ends.iter().all(|end| end.received.len() as u64 >= count));
    mesh.run_until_idle();
    assert_eq!(broken, 3);
    assert!(mesh.ends.iter().all(|end| end.rail.raw().counters().lost >= 3), "the queue pairs did not fail");
    for end in &mut mesh.ends {
        let mut seen: Vec<u64> = vec![];
        for got in &end.received {
            let number = u64::from_le_bytes(got.bytes[..8].try_into().unwrap());
            assert!(
                got.bytes.len() == 3000 && got.bytes[8..].iter().all(|byte| *byte == number as u8),
                "frame {number}"
            );
            seen.push(number);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count), "each once");
    }
}

/// Counts of one-sided operations of the first module: by its device, those without a copy, and by frames.
fn one_sided<S: Setup<Rail = Rail>>(all: &Modules<S>) -> [u64; 3] {
    let Counters { one_sided, direct, .. } = *all.modules[0].rail().counters();
    [one_sided, direct, all.modules[1].rma_counters().served]
}

/// Operations that fit a buffer are copied, so that no registration is needed. Longer ones use the user's own memory if
/// that is registered, and go in pieces if it is not.
#[test]
fn b53_long_operations_on_local_memory_that_is_registered_copy_nothing() {
    let mut all = Modules::new(verbs(|_| {}), 2);
    let longest = all.modules[0].rail().config().max_send_size_bytes as usize;
    assert_eq!(all.modules[0].rail().attributes().one_sided.put.local_registration, longest as u64 + 1);
    let [there, here] = [(); 2].map(|()| Memory::new(longest + 1));
    let (_, remote) = all.register(1, there, Access::ANY);
    let (own, _) = all.register(0, here, Access::LOCAL_WRITE);
    for (what, len, registration, more) in [
        (What::Put as fn(_) -> What, longest, None, [1, 0, 0]),
        (What::Get, longest, None, [1, 0, 0]),
        (What::Put, longest, Some(own), [1, 1, 0]),
        (What::Get, longest, Some(own), [1, 1, 0]),
        (What::Put, 100, Some(own), [1, 0, 0]),
        (What::Put, longest + 1, Some(own), [1, 1, 0]),
        (What::Get, longest + 1, Some(own), [1, 1, 0]),
        (What::Put, longest + 1, None, [2, 0, 0]),
        (What::Get, longest + 1, None, [2, 0, 0]),
    ] {
        let before = one_sided(&all);
        assert_eq!(all.perform([0, 1], what(here.part(0, len)), &remote, 0, registration), Ok(0));
        let after = one_sided(&all);
        assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), more, "{len} bytes, {registration:?}");
    }
}

/// A connection fails while the device writes to the user's own memory. After the failure is reported the device does
/// not write there any more.
#[test]
fn b18_p7_memory_is_the_users_again_when_a_connection_has_failed() {
    const LEN: usize = 4 << 20;
    let mut all = Modules::new(verbs(|_| {}), 2);
    let there = Memory::new(LEN);
    there.fill(|at| at as u8 | 1);
    let sinks = [(); 4].map(|()| Memory::new(LEN));
    let own = sinks.map(|sink| all.register(0, sink, Access::LOCAL_WRITE).0);
    let (_, remote) = all.register(1, there, Access::ANY);
    let (mut lost, mut round) = (0, 0);
    // On a busy machine more or fewer of them are complete before they are interrupted.
    while round < 20 || lost < 20 {
        assert!(round < 200, "{lost} of {} were in progress", 4 * round);
        assert_eq!(all.perform([0, 1], What::Get(sinks[0].part(0, 8)), &remote, 0, None), Ok(0));
        for (word, sink) in sinks.iter().enumerate() {
            all.begin([0, 1], What::Get(sink.part(0, LEN)), &remote, 0, Some(own[word]), word);
        }
        // None, one, two or three of them are complete. The others are in progress, as each takes some milliseconds.
        let mut ends = vec![];
        all.until("some are over", |all| {
            ends.extend(all.ends(0));
            ends.len() >= round % 4
        });
        all.modules[0].rail().inject_connection_error(Endpoint(0));
        all.until("they are over", |all| all.modules[0].flush(None));
        ends.extend(all.ends(0));
        assert_eq!(ends.len(), 4);
        lost += ends.iter().filter(|(_, end)| *end == Err(Failure::Lost)).count();
        assert!(ends.iter().all(|(_, end)| matches!(end, Ok(0) | Err(Failure::Lost))), "{ends:?}");
        sinks.iter().for_each(|sink| sink.fill(|_| 0));
        all.reconnect(0, 1);
        assert_eq!(all.perform([0, 1], What::Put(there.part(0, 300)), &remote, 0, None), Ok(0));
        assert!(sinks.iter().all(|sink| sink.bytes().iter().all(|byte| *byte == 0)), "round {round}");
        round += 1;
    }
    let cut_short = all.modules[0].rail().counters().forced_destroys;
    assert!(
        cut_short <= (round / 4) as u64,
        "{cut_short} of {round} queue pairs had to be destroyed before the device had returned its buffers"
    );
}

/// Short frames are sent inline, and the device signals only every eighth.
#[test]
fn short_frames_are_inline_and_few_are_signaled() {
    let mut mesh = Mesh::new(verbs(|config| (config.inline_bytes, config.signal_every) = (64, 8)), 2);
    for _ in 0..160 {
        mesh.send(0, 1, Lane::Eager, 0x80, 8, &[7; 64]);
        mesh.send(0, 1, Lane::Eager, 0x80, 8, &[7; 65]);
        mesh.until("both", |mesh| mesh.ends[1].received.len() >= 2);
        mesh.ends[1].received.clear();
    }
    let counters = *mesh.ends[0].rail.counters();
    assert_eq!((counters.inline, counters.signaled + counters.unsignaled), (160, 320));
    assert!(counters.signaled <= 320 / 8 + 1, "{counters:?}");
    let to = mesh.ends[0].endpoints[1];
    mesh.until("the rail asks for the completions that were not signaled", |mesh| mesh.ends[0].rail.drained(to));
}

/// Ends the connection of the first two ends at both sides, and introduces them again.
fn meet_anew<S: Setup>(mesh: &mut Mesh<S>) {
    for (one, other) in [(0, 1), (1, 0)] {
        let to = mesh.ends[one].endpoints[other];
        mesh.ends[one].rail.del_peer(to);
    }
    mesh.introduce(0, 1);
    mesh.introduce(1, 0);
    for end in &mut mesh.ends {
        end.lost.clear();
        end.received.clear();
    }
}

/// The device holds a buffer for a frame of which it has received a half. It releases the buffer only when the rail waits for
/// that.
#[test]
fn connections_that_end_in_the_middle_of_a_frame_cost_no_buffers() {
    let few = |config: &mut Config| (config.receive_buffers, config.path_mtu_bytes) = (8, 256);
    let mut mesh = Mesh::new(verbs(few), 2);
    let frame = vec![0x5a; mesh.limit(Lane::Bulk)];
    for _ in 0..200 {
        for _ in 0..3 {
            mesh.send(0, 1, Lane::Bulk, 0x80, 8, &frame);
        }
        let to = mesh.ends[0].endpoints[1];
        mesh.ends[0].rail.inject_connection_error(to);
        mesh.until("both ends report the loss", |mesh| mesh.ends.iter().all(|end| !end.lost.is_empty()));
        meet_anew(&mut mesh);
    }
    for _ in 0..20 {
        mesh.send(0, 1, Lane::Bulk, 0x80, 8, &frame);
    }
    mesh.until("all have arrived", |mesh| mesh.ends[1].received.len() == 20);
}

/// Hellos use a queue pair of their own. If it fails, it is set up again, and pending connections are made.
#[test]
fn a_queue_pair_of_hellos_that_fails_is_replaced() {
    let mut mesh = Mesh::new(verbs(|_| {}), 4);
    for (from, to) in [(0, 1), (0, 2), (3, 0), (2, 3)] {
        mesh.ends[0].rail.inject_hello_error();
        mesh.ends[to].rail.inject_hello_error();
        mesh.send(from, to, Lane::Eager, 0x80, 8, b"in order");
        mesh.until("a frame", |mesh| !mesh.ends[to].received.is_empty());
        mesh.ends.iter_mut().for_each(|end| end.received.clear());
    }
    assert!(mesh.ends.iter().all(|end| end.lost.is_empty()));
}

/// A forked child shares the memory of its parent until one of them writes, except for memory to which devices write.
#[test]
fn a_child_that_is_forked_disturbs_nothing() {
    let mut mesh = Mesh::new(verbs(|_| {}), 2);
    let exchange = |mesh: &mut Mesh<_>| {
        for (from, to) in [(0, 1), (1, 0)] {
            mesh.send(from, to, Lane::Eager, 0x80, 8, &[0x5a; 3000]);
            mesh.until("a frame", |mesh: &mut Mesh<_>| !mesh.ends[to].received.is_empty());
            assert_eq!(mesh.ends[to].received.pop().unwrap().bytes, [0x5a; 3000]);
        }
    };
    exchange(&mut mesh);
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child only reads until no writer is left, and then ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(writer);
        let _ = std::io::Read::read(&mut reader, &mut [0]);
        // SAFETY: the child ends at once.
        unsafe { libc::_exit(0) };
    }
    for _ in 0..50 {
        exchange(&mut mesh);
    }
    drop(writer);
    let mut status = 0;
    // SAFETY: the id of the child, and a buffer for its status.
    assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
}

/// The counters of two nodes for a link.
fn counters<S: Setup<Rail = Linked>>(world: &mut World<S>, link: usize) -> [Counters; 2] {
    [0, 1].map(|node: usize| *world.nodes[node].pml().rails().0[link].inner().raw().counters())
}

/// Sends messages in both directions until the counters of the second link are as expected.
fn exchange_until<S: Setup<Rail = Linked>>(world: &mut World<S>, what: &str, done: impl Fn([Counters; 2]) -> bool) {
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at * 7 / 3) as u8).collect();
    for tag in 0..2000 {
        world.exchange(0, 1, tag, &bytes);
        world.exchange(1, 0, tag, &bytes);
        if done(counters(world, 1)) {
            return;
        }
    }
    panic!("this did not happen in time: {what}; {:#?}", counters(world, 1));
}

/// Two links, each between two devices of its own. One loses its cable during traffic in both directions: its devices
/// notice, the other link carries on, and the first one is used again once the cable is back. The cables are those of
/// the virtual machine.
#[test]
#[ignore = "pulls a cable of the virtual machine that other tests use, so it must run alone"]
fn a_cable_of_two_that_is_pulled_costs_no_message_and_is_used_again() {
    let setup = linked(2, |rank, link| {
        let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
        config.link = link;
        config.devices = vec![format!("rxe{}", 2 * u32::from(link) + rank)];
        (config.peer_timeout, config.heartbeat) = (Duration::from_millis(500), Duration::from_millis(100));
        Rail::new(config).expect("the machine has four devices")
    });
    let cable = |state| {
        let set = Command::new("ip").args(["link", "set", "port2", state]).status();
        assert!(set.is_ok_and(|status| status.success()), "the machine has a bridge");
    };
    let mut world = World::new(setup, 2, CONFIG);
    let frames = |counters: Counters| counters.signaled + counters.unsignaled;
    let is_used = |before: [Counters; 2]| {
        move |now: [Counters; 2]| now.iter().zip(&before).all(|(now, before)| frames(*now) >= frames(*before) + 20)
    };
    exchange_until(&mut world, "both links are used", is_used(Default::default()));
    for turn in 1..=2 {
        cable("down");
        exchange_until(&mut world, "the link is lost", |all| all.iter().all(|it| it.lost >= turn));
        cable("up");
        exchange_until(&mut world, "the link comes back", |all| all.iter().all(|it| it.established > turn));
        let before = counters(&mut world, 1);
        exchange_until(&mut world, "the link is used again", is_used(before));
    }
    assert!(
        counters(&mut world, 0).iter().all(|it| (it.established, it.lost) == (1, 0)),
        "the other link was lost, too"
    );
    world.assert_all_released();
}
