//! What happens to the messages of a job when the firmware of a device stops: they go by the rails.

mod common;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use common::{Devices, ENGINE, SILENT, SLOTS, WINDOW, start_many};
use offload::Limits;
use towline_core::convertor::Span;
use towline_core::mtl::{Failure, Group, Mode, Sending, Source, Tag};
use towline_core::pml::Config;
use towline_core::rail::Peer;
use towline_core::time::Instant;
use towline_dpu::{Matching, Options, Transport};
use towline_host_tests::kit::loopback::Loopback;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::kit::nodes::{CONFIG, World};
use towline_host_tests::pattern::patterned;

/// The devices of a world, which a test stops.
type Shared = Rc<RefCell<Option<Devices>>>;

/// Nodes with devices, and with rails for the time after that.
struct Offloaded {
    rails: Loopback,
    devices: Shared,
}

impl Setup for Offloaded {
    type Rail = <Loopback as Setup>::Rail;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        self.rails.rails(count)
    }

    fn devices(&mut self, count: usize) -> Vec<Matching> {
        let engine = Config { peers: count as u32, requests: 256, ..ENGINE };
        let devices = start_many(count as u32, Limits { engine, communicators: 4, messages: 8 });
        let options = Options { silent_for: SILENT, ..Options::default() };
        let open = |file: &PathBuf| Matching::new(Transport::open(file, options).unwrap());
        let opened = devices.files.iter().map(open).collect();
        *self.devices.borrow_mut() = Some(devices);
        opened
    }

    fn now(&mut self) -> Instant {
        // The thread of the devices shares the processors with the nodes.
        std::thread::yield_now();
        self.rails.now()
    }
}

/// Nodes, and their devices.
fn world(nodes: usize) -> (World<Offloaded>, Shared) {
    world_with(nodes, CONFIG)
}

fn world_with(nodes: usize, config: Config) -> (World<Offloaded>, Shared) {
    let devices = Shared::default();
    let rails = Loopback { slots: 16, frame: 4096 };
    (World::new(Offloaded { rails, devices: devices.clone() }, nodes, config), devices)
}

fn stop(devices: &Shared, node: usize) {
    devices.borrow().as_ref().unwrap().stop_one(node);
}

/// Waits until a node's device has so many messages of a peer.
fn until_arrived(world: &mut World<Offloaded>, node: usize, from: u32, messages: u64) {
    world.until("messages arrive", |world| device(world, node).transport().count(from).unwrap().1 == messages);
}

#[test]
fn operations_in_progress_end_and_messages_go_on_by_the_rails() {
    let (mut world, devices) = world(3);
    let (long, mut room) = (patterned(1, 60_000), vec![0; 60_000]);
    world.exchange(0, 1, 1, &long);
    let sent_frames: u64 = world.nodes.iter().map(|node| node.counters().eager_sent).sum();
    assert_eq!(sent_frames, 0, "the devices move the messages");
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(9), &mut room);
    let to_failed = world.isend(1, 0, 2, Mode::Standard, &long);
    let from_failed = world.isend(0, 2, 3, Mode::Standard, &long);
    until_arrived(&mut world, 0, 1, 1);
    stop(&devices, 0);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
    assert_eq!(world.finish_send(0, from_failed), Err(Failure::DeviceFailed));
    assert_eq!(world.finish_send(1, to_failed), Err(Failure::DeviceFailed));
    // The message of which node 1 knows that it may be lost is reported at its receiver, too.
    let mut other = [0; 8];
    let receive = world.irecv(0, Source::Any, Tag::Any, &mut other);
    assert_eq!(world.finish(0, receive), Err(Failure::MessagesLost(Peer(1))));
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0), (0, 0), (2, 2)] {
        for (tag, len) in [(5, 0), (6, 40), (7, 60_000)] {
            world.exchange(from, to, tag, &long[..len]);
        }
    }
    let sent = world.nodes.iter().map(|node| node.counters().eager_sent).sum::<u64>();
    assert!(sent >= 12, "the rails move the messages");
    // Communicators that are made later have no device.
    let comms = [0, 1, 2].map(|node| world.nodes[node].add_comm(7, Group::World { size: 3 }, node as u32).unwrap());
    world.world = comms.to_vec();
    world.exchange(0, 1, 1, &long);
    world.exchange(1, 2, 1, &long);
}

#[test]
fn messages_of_the_devices_come_before_those_of_the_rails() {
    let (mut world, devices) = world(3);
    let messages: Vec<Vec<u8>> = (0..40u64).map(|number| patterned(number, 10 + number as usize * 300)).collect();
    let mut sends: Vec<Sending> =
        messages[..20].iter().map(|bytes| world.isend(1, 2, 4, Mode::Standard, bytes)).collect();
    // Node 2 receives nothing before node 0's device has failed, and node 1 has fallen back.
    stop(&devices, 0);
    let mut word = [0; 8];
    let receive = world.irecv(0, Source::Rank(2), Tag::Is(1), &mut word);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
    world.exchange(0, 1, 1, &messages[0]);
    let sent = |world: &World<Offloaded>| {
        let counters = world.nodes[1].counters();
        counters.eager_sent + counters.rendezvous_sent
    };
    let before = sent(&world);
    sends.extend(messages[20..].iter().map(|bytes| world.isend(1, 2, 4, Mode::Standard, bytes)));
    assert!(sent(&world) > before, "node 1 sends by its rails");
    for (number, bytes) in messages.iter().enumerate() {
        let mut room = vec![0; bytes.len()];
        let source = if number % 2 == 0 { Source::Any } else { Source::Rank(1) };
        let tag = if number % 3 == 0 { Tag::Any } else { Tag::Is(4) };
        let receive = world.irecv(2, source, tag, &mut room);
        let status = world.finish(2, receive).expect("it is received");
        assert_eq!((status.received, room == *bytes), (bytes.len() as u64, true), "message {number}");
    }
    for send in sends {
        world.finish_send(1, send).expect("it is sent");
    }
    world.exchange(2, 1, 1, &messages[39]);
}

#[test]
fn receives_that_wait_at_other_nodes_get_messages_of_the_rails_in_their_order() {
    let (mut world, devices) = world(3);
    let mut rooms = [[0; 100]; 4];
    let sources = [Source::Rank(1), Source::Any, Source::Rank(0), Source::Any];
    let receives: Vec<_> =
        rooms.iter_mut().zip(sources).map(|(room, source)| world.irecv(2, source, Tag::Any, room)).collect();
    stop(&devices, 0);
    // Node 0 notices the failure at its next operation that is over, and so do the others.
    let mut word = [0; 8];
    let receive = world.irecv(0, Source::Rank(2), Tag::Is(1), &mut word);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
    for (from, tag, receive, source) in [(1, 10, 0, 1), (1, 11, 1, 1), (0, 12, 2, 0), (1, 13, 3, 1)] {
        let bytes = patterned(tag.into(), 100);
        let sending = world.isend(from, 2, tag, Mode::Standard, &bytes);
        let status = world.finish(2, receives[receive]).expect("it is received");
        world.finish_send(from, sending).expect("it is sent");
        assert_eq!((status.peer, status.tag, rooms[receive] == *bytes), (Peer(source), tag, true));
    }
}

#[test]
fn messages_that_were_complete_at_their_sender_are_received_or_reported() {
    let (mut world, devices) = world(2);
    let short = patterned(1, 40);
    for tag in [1, 2, 3] {
        let sending = world.isend(1, 0, tag, Mode::Standard, &short);
        world.finish_send(1, sending).expect("a short message needs no receive");
    }
    until_arrived(&mut world, 0, 1, 3);
    let mut room = vec![0; 40];
    let receive = world.irecv(0, Source::Any, Tag::Is(2), &mut room);
    assert_eq!(world.finish(0, receive).expect("it is there").tag, 2);
    stop(&devices, 0);
    let mut word = [0; 8];
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(9), &mut word);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
    // The error names the sender, once.
    let receive = world.irecv(0, Source::Any, Tag::Is(1), &mut room);
    assert_eq!(world.finish(0, receive), Err(Failure::MessagesLost(Peer(1))));
    world.exchange(1, 0, 1, &short);
    world.exchange(0, 1, 1, &short);
}

#[test]
fn a_process_learns_of_the_failure_without_an_operation_with_the_failed_device() {
    let (mut world, devices) = world(3);
    let mut room = vec![0; 3000];
    let comm = world.world[2];
    let sink = Span::contiguous(room.as_mut_ptr(), room.len());
    // SAFETY: the room stays until the receive is over.
    let receive = unsafe { world.nodes[2].irecv(comm, Source::Rank(1), Tag::Is(4), sink) }.expect("accepted");
    stop(&devices, 0);
    let mut word = [0; 8];
    let failing = world.irecv(0, Source::Rank(1), Tag::Is(1), &mut word);
    assert_eq!(world.finish(0, failing), Err(Failure::DeviceFailed));
    world.exchange(0, 1, 1, &[1, 2, 3]); // so node 1 has fallen back
    let bytes = patterned(4, 3000);
    let sending = world.isend(1, 2, 4, Mode::Synchronous, &bytes);
    world.finish(2, receive).expect("it is received");
    world.finish_send(1, sending).expect("it is received");
    assert!(room == bytes);
}

/// A device asks for a message that is held back behind others. Such a message has no place in the sender's order.
#[test]
fn a_message_that_overtook_others_has_arrived() {
    let (mut world, devices) = world(3);
    let bytes = patterned(1, 100);
    let sends: Vec<Sending> = (0..40).map(|_| world.isend(1, 2, 1, Mode::Standard, &bytes)).collect();
    let last = world.isend(1, 2, 2, Mode::Standard, &bytes);
    let mut room = vec![0; 100];
    let receive = world.irecv(2, Source::Rank(1), Tag::Is(2), &mut room);
    world.finish(2, receive).expect("it overtakes the others");
    stop(&devices, 0);
    let mut word = [0; 8];
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(1), &mut word);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
    for _ in 0..40 {
        let receive = world.irecv(2, Source::Any, Tag::Is(1), &mut room);
        world.finish(2, receive).expect("it is received");
    }
    for send in sends.into_iter().chain([last]) {
        world.finish_send(1, send).expect("it is sent");
    }
    // So node 2 receives by its rails.
    world.exchange(1, 2, 3, &bytes);
    world.exchange(0, 2, 3, &bytes);
}

/// Waits until the first bytes of a message have arrived.
fn until_begun(world: &mut World<Offloaded>, room: &[u8], message: &[u8]) {
    assert_ne!(message[100], 0, "a byte that shows that it has come");
    // SAFETY: it is a byte of the slice. The node writes it in this thread, as the memory of a receive.
    world.until("a piece arrives", |_| unsafe { room.as_ptr().add(100).read_volatile() } == message[100]);
}

/// Node 0's device fails, and node 0 notices that.
fn fail(world: &mut World<Offloaded>, devices: &Shared) {
    stop(devices, 0);
    let mut word = [0; 8];
    let receive = world.irecv(0, Source::Rank(1), Tag::Is(1000), &mut word);
    assert_eq!(world.finish(0, receive), Err(Failure::DeviceFailed));
}

#[test]
fn long_messages_between_other_nodes_go_on() {
    for is_posted in [true, false] {
        let (mut world, devices) = world(3);
        let (long, mut room) = (patterned(1, 3 * WINDOW), vec![0; 3 * WINDOW]);
        let sending = world.isend(1, 2, 4, Mode::Standard, &long);
        let early = is_posted.then(|| world.irecv(2, Source::Any, Tag::Any, &mut room));
        match is_posted {
            true => until_begun(&mut world, &room, &long),
            false => until_arrived(&mut world, 2, 1, 1),
        }
        fail(&mut world, &devices);
        world.exchange(0, 1, 1, &long[..100]); // so node 1 has fallen back
        let receive = early.unwrap_or_else(|| world.irecv(2, Source::Any, Tag::Any, &mut room));
        assert_eq!(world.finish(2, receive).expect("it is received").received, long.len() as u64);
        world.finish_send(1, sending).expect("it is received");
        assert!(room == long, "posted: {is_posted}");
        for (from, to) in [(1, 2), (2, 1), (0, 2)] {
            world.exchange(from, to, 5, &long);
        }
    }
}

#[test]
fn long_messages_of_a_node_whose_device_fails_end() {
    let (mut world, devices) = world(3);
    let (long, mut room) = (patterned(1, 3 * WINDOW), [0, 1].map(|_| vec![0; 3 * WINDOW]));
    let [first, second] = &mut room;
    let receives =
        [world.irecv(0, Source::Rank(1), Tag::Any, first), world.irecv(1, Source::Rank(0), Tag::Any, second)];
    let sends = [world.isend(0, 1, 4, Mode::Standard, &long), world.isend(1, 0, 4, Mode::Standard, &long)];
    until_begun(&mut world, &room[0], &long);
    stop(&devices, 0);
    for (node, (receive, send)) in receives.into_iter().zip(sends).enumerate() {
        assert_eq!(world.finish(node, receive), Err(Failure::DeviceFailed), "node {node}");
        assert_eq!(world.finish_send(node, send), Err(Failure::DeviceFailed), "node {node}");
    }
    // Wants and pieces that are lost are no messages of the program, so no receive reports their loss.
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        world.exchange(from, to, 5, &long);
    }
}

/// A node that receives nothing any more, before and after another node's device fails. The senders wait for receives.
#[test]
fn messages_that_nobody_receives_any_more_are_taken_out_after_a_failure() {
    for ends_before in [true, false] {
        let (mut world, devices) = world(3);
        let (bytes, long) = (patterned(1, 40), patterned(2, 60_000));
        let mut room = vec![0; 40];
        let receive = world.irecv(1, Source::Rank(0), Tag::Is(9), &mut room);
        let sends = [
            world.isend(0, 1, 7, Mode::Synchronous, &bytes),
            world.isend(0, 1, 8, Mode::Standard, &long),
            world.isend(2, 1, 7, Mode::Standard, &bytes),
        ];
        until_arrived(&mut world, 1, 0, 2);
        until_arrived(&mut world, 1, 2, 1);
        stop(&devices, 2);
        let mut word = [0; 8];
        let failing = world.irecv(2, Source::Rank(1), Tag::Is(1000), &mut word);
        if ends_before {
            device(&mut world, 1).refuse_unexpected();
        }
        assert_eq!(world.finish(2, failing), Err(Failure::DeviceFailed));
        // Of node 2's message nothing is known any more, and that of node 0 comes by the rails.
        let last = world.isend(0, 1, 9, Mode::Synchronous, &bytes);
        assert_eq!(world.finish(1, receive).expect("it was posted before").tag, 9);
        assert!(device(&mut world, 1).has_left_device());
        if !ends_before {
            device(&mut world, 1).refuse_unexpected();
        }
        let [first, second, of_failed] = sends;
        for send in [first, second, last] {
            world.finish_send(0, send).expect("it was taken out or received");
        }
        world.finish_send(2, of_failed).expect("a short message needs no receive");
        world.until("all messages are taken out", |world| {
            device(world, 1).refused_messages().is_some_and(|refused| refused.count == 3)
        });
        assert_eq!(device(&mut world, 1).refused_messages().unwrap().bytes, 60_080);
        assert!(room == bytes);
    }
}

/// The receives are posted, and with the device of the receiver when the messages come by the rails.
#[test]
fn ready_sends_that_the_device_was_not_given_find_their_receives() {
    let (mut world, devices) = world(3);
    let (first, second) = (patterned(1, 300_000), patterned(2, 200_000));
    let mut rooms = [0; 2].map(|_: i32| vec![0; 300_000]);
    let [room, other] = &mut rooms;
    let ready = world.irecv(1, Source::Rank(0), Tag::Is(6), room);
    // The first message has the room of the second one.
    let sends = [world.isend(0, 1, 5, Mode::Standard, &first), world.isend(0, 1, 6, Mode::Ready, &second)];
    until_arrived(&mut world, 1, 0, 1);
    stop(&devices, 2);
    let mut word = [0; 8];
    let failing = world.irecv(2, Source::Rank(1), Tag::Is(1000), &mut word);
    assert_eq!(world.finish(2, failing), Err(Failure::DeviceFailed));
    assert_eq!(world.finish(1, ready).expect("it is received").received, 200_000);
    let receive = world.irecv(1, Source::Rank(0), Tag::Is(5), other);
    assert_eq!(world.finish(1, receive).expect("it is received").received, 300_000);
    for send in sends {
        world.finish_send(0, send).expect("its receive was posted before");
    }
    assert!(rooms[0][..200_000] == second && rooms[1] == first);
}

/// A host notices the failure of its device in the call of a send.
#[test]
fn a_ready_send_that_a_failed_device_refuses_finds_its_receive() {
    let (mut world, devices) = world_with(2, Config { requests: 256, ..CONFIG });
    let bytes = patterned(1, 8);
    // The device's ring of commands has room for fewer.
    let mut rooms = [[0; 8]; SLOTS as usize + 10];
    let receives: Vec<_> = rooms.iter_mut().map(|room| world.irecv(1, Source::Rank(0), Tag::Is(6), room)).collect();
    until_arrived(&mut world, 1, 0, 0); // the device has the receives
    stop(&devices, 0);
    let sends: Vec<_> = receives.iter().map(|_| world.isend(0, 1, 6, Mode::Ready, &bytes)).collect();
    let outcomes = sends.into_iter().map(|send| world.finish_send(0, send).err());
    let lost: Vec<bool> = outcomes
        .map(|outcome| outcome.is_some_and(|failure| failure == Failure::DeviceFailed || panic!("{failure:?}")))
        .collect();
    let given = lost.iter().filter(|is_lost| **is_lost).count();
    assert!(given != 0 && lost[given..].iter().all(|is_lost| !is_lost), "the rails have the others");
    // The first one reports that messages were lost.
    let mut receives = receives.into_iter();
    assert_eq!(world.finish(1, receives.next().unwrap()), Err(Failure::MessagesLost(Peer(0))));
    for receive in receives.take(lost.len() - given) {
        world.finish(1, receive).expect("it is received");
    }
    assert!(rooms[1..][..lost.len() - given].iter().all(|room| *room == bytes[..]));
}

fn device(world: &mut World<Offloaded>, node: usize) -> &mut Matching {
    world.nodes[node].pml().rails_mut().1.as_mut().expect("each node has a device")
}

/// Most of the messages wait in the sender's device, since that of the receiver has room for a few. Their sends are over all the same.
#[test]
fn an_engine_has_sent_all_when_its_device_has_or_has_failed() {
    for fails in [false, true] {
        let (mut world, devices) = world(3);
        let bytes = patterned(1, 100);
        let sends: Vec<Sending> = (0..100).map(|_| world.isend(1, 2, 1, Mode::Standard, &bytes)).collect();
        assert!(sends.iter().all(|send| matches!(send, Sending::Complete)), "short messages are copied");
        world.run_until_idle();
        assert!(!world.nodes[1].pml().is_drained(), "the device has messages that node 2 has no room for");
        if fails {
            stop(&devices, 1);
        } else {
            for _ in 0..100 {
                let mut room = vec![0; 100];
                let receive = world.irecv(2, Source::Any, Tag::Any, &mut room);
                world.finish(2, receive).expect("it is received");
            }
        }
        world.until("all is sent", |world| world.nodes[1].pml().is_drained());
    }
}

/// The device does not know the rank of a sender any more when the communicator is deleted.
#[test]
fn a_receive_from_any_rank_that_outlives_its_communicator_is_counted() {
    for bytes in [300_000, 3 * WINDOW] {
        let (mut world, devices) = world(3);
        let comms = [0, 1].map(|node| world.nodes[node].add_comm(7, Group::World { size: 3 }, node as u32).unwrap());
        let (long, mut room) = (patterned(1, bytes), vec![0; bytes]);
        let mut unmatched = [0; 8];
        let sink = |room: &mut [u8]| Span::contiguous(room.as_mut_ptr(), room.len());
        // Calls of a node are answered after its earlier commands were executed.
        let arrived = |world: &mut World<Offloaded>, node: usize, from| {
            world.nodes[node].pml().rails_mut().1.as_mut().unwrap().transport().count(from).unwrap().0
        };
        // SAFETY: the memory stays until the operations are over.
        let (receive, others) = unsafe {
            let receive = world.nodes[0].irecv(comms[0], Source::Any, Tag::Is(1), sink(&mut room)).unwrap();
            let others = [Source::Any, Source::Rank(1)]
                .map(|source| world.nodes[0].irecv(comms[0], source, Tag::Is(2), sink(&mut unmatched)).unwrap());
            (receive, others)
        };
        arrived(&mut world, 0, 1);
        let is_whole = bytes < WINDOW;
        if is_whole {
            stop(&devices, 0);
        }
        // SAFETY: as above.
        let sending = unsafe { world.nodes[1].isend(comms[1], 0, 1, Mode::Standard, Span::of(&long)).unwrap() };
        if is_whole {
            // The begin of the message leaves its device, and the rest waits for the answer.
            (0..10).for_each(|_| assert_eq!(arrived(&mut world, 1, 0), 0));
        } else {
            until_begun(&mut world, &room, &long);
        }
        stop(&devices, 1);
        devices.borrow().as_ref().unwrap().resume_one(0);
        while arrived(&mut world, 0, 1) == 0 {}
        world.nodes[0].del_comm(comms[0]);
        for other in others {
            assert_eq!(world.finish(0, other), Err(Failure::Cancelled), "no message has matched it");
        }
        devices.borrow().as_ref().unwrap().resume_one(1);
        let status = world.finish(0, receive).expect("it has matched");
        assert_eq!((status.peer, status.tag, status.received), (Peer(1), 1, bytes as u64));
        world.finish_send(1, sending).expect("it is received");
        assert!(room == long);
        // No message is lost with the device, so no receive reports that.
        fail(&mut world, &devices);
        for (from, to) in [(1, 0), (2, 0), (0, 1)] {
            world.exchange(from, to, 5, &long[..100]);
        }
    }
}
