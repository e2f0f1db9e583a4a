//! The device as the matcher of an engine, also when it has no room for more operations.

mod common;

use common::{ENGINE, SLOTS, WINDOW, start, start_ringing};
use towline_core::convertor::Span;
use towline_core::pml::matching::ANY;
use towline_core::pml::offload::{DeviceFailure, Ended, Fallback as _, Found, Offload, Operation};
use towline_core::pml::{Mode, Refusal, Request, Sending};
use towline_core::rail::Peer;
use towline_dpu::mapping::Mapping;
use towline_dpu::{Lost, Matching, Options, Transport};
use towline_host_tests::pattern::patterned;
use towline_host_tests::random::Random;
use towline_window::command::Command;
use towline_window::completion::{Completion, Done};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::host::DeviceError;
use towline_window::layout::Layout;

/// Two hosts that know each other, and the numbers of a communicator of both.
fn pair(devices: &common::Devices) -> ([Matching; 2], [u32; 2]) {
    let mut hosts = [0, 1].map(|node| Matching::new(devices.open(node)));
    let cards = hosts.each_mut().map(|host| host.transport().card().unwrap());
    for host in &mut hosts {
        for (peer, card) in (0..).zip(&cards) {
            host.add_peer(peer, card).unwrap();
        }
    }
    let mut rank = 0;
    let comms = hosts.each_mut().map(|host| {
        let comm = host.add_comm(1, &mut [0, 1].map(Peer).into_iter(), rank, false).unwrap();
        rank += 1;
        comm.expect("the device knows both peers")
    });
    (hosts, comms)
}

/// The request of a number, as an engine may have it.
fn request(number: usize) -> Request {
    Request::from_bits(1 << 32 | number as u64)
}

/// A receive, its memory, and how it has ended.
struct Receive {
    rank: u32,
    tag: u32,
    memory: Vec<u8>,
    ended: Option<Ended>,
}

/// Host 1 with its receives. Host 0 sends.
struct Receiver {
    host: Matching,
    comm: u32,
    receives: Vec<Receive>,
}

impl Receiver {
    fn post(&mut self, rank: u32, tag: u32, bytes: usize) {
        let number = self.receives.len();
        self.receives.push(Receive { rank, tag, memory: vec![0; bytes], ended: None });
        let memory = &mut self.receives.last_mut().unwrap().memory;
        let operation = Operation { request: request(number), comm: self.comm, rank, peer: rank, tag };
        let sink = Span::contiguous(memory.as_mut_ptr(), memory.len());
        // SAFETY: the memory lives, and is not used, until the receive has ended.
        unsafe { self.host.irecv(&operation, sink) }.unwrap();
    }

    fn progress(&mut self) {
        while let Some(ended) = self.host.next_ended() {
            let receive = &mut self.receives[ended.request.to_bits() as u32 as usize];
            assert_eq!(receive.ended.replace(ended), None, "a receive ends once");
        }
    }
}

/// A sender and a receiver that know each other, and the numbers of a communicator of both.
fn sender_and_receiver(devices: &common::Devices) -> (Matching, Receiver, [u32; 2]) {
    let ([sender, host], comms) = pair(devices);
    (sender, Receiver { host, comm: comms[1], receives: Vec::new() }, comms)
}

/// Sends a message, whose memory lives as long as the process.
fn send(host: &mut Matching, comm: u32, number: usize, tag: u32, bytes: &[u8]) {
    let operation = Operation { request: request(number), comm, rank: 1, peer: 1, tag };
    // SAFETY: the memory is leaked.
    let sent = unsafe { host.isend(&operation, Mode::Standard, Span::of(bytes.to_vec().leak())) };
    assert!(matches!(sent, Ok(Sending::Complete | Sending::Pending(_))));
}

#[test]
fn messages_keep_their_order_whatever_the_device_has_room_for() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    let mut takeovers = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let count = 1 + random.below(4 * u64::from(ENGINE.requests)) as usize;
        receiver.receives.clear();
        let messages: Vec<(u32, Vec<u8>)> = (0..count)
            .map(|number| {
                let bytes = [0, 8, 600, 5000, 60_000][random.below(5) as usize];
                (random.below(4) as u32, patterned(seed << 32 | number as u64, bytes))
            })
            .collect();
        let (mut sent, mut posted) = (0, 0);
        while sent < count || posted < count {
            match random.below(4) {
                0 if sent < count => {
                    send(&mut sender, comms[0], sent, messages[sent].0, &messages[sent].1);
                    sent += 1;
                }
                1 | 2 if posted < count => {
                    let rank = if random.below(3) == 0 { ANY } else { 0 };
                    let tag = if random.below(4) == 0 { ANY } else { random.below(4) as u32 };
                    // Some have more room than all of the device.
                    let bytes = if random.below(20) == 0 { 2 * WINDOW } else { 60_000 };
                    receiver.post(rank, tag, bytes);
                    posted += 1;
                }
                _ => {
                    receiver.progress();
                    while sender.next_ended().is_some() {}
                }
            }
        }
        // The first receive gets the first message that it accepts, and so on, in any timing.
        let mut left: Vec<_> = messages.iter().map(Some).collect();
        let expected: Vec<_> = receiver
            .receives
            .iter()
            .map(|receive| {
                let accepts = |message: &Option<&(u32, Vec<u8>)>| {
                    message.is_some_and(|(tag, _)| receive.tag == ANY || receive.tag == *tag)
                };
                left.iter().position(accepts).and_then(|at| left[at].take())
            })
            .collect();
        // Receives for the others.
        let others: Vec<_> = left.into_iter().flatten().collect();
        for (tag, bytes) in &others {
            receiver.post(0, *tag, bytes.len());
        }
        let expected = expected.into_iter().chain(others.into_iter().map(Some));
        for (number, expected) in expected.enumerate() {
            let Some((tag, bytes)) = expected else {
                if receiver.receives[number].ended.is_none() {
                    assert!(receiver.host.cancel(request(number)), "seed {seed}");
                }
                while receiver.receives[number].ended.is_none() {
                    receiver.progress();
                }
                let ended = receiver.receives[number].ended.unwrap();
                assert_eq!(ended.outcome, Err(DeviceFailure::Cancelled), "seed {seed}: receive {number}");
                continue;
            };
            while receiver.receives[number].ended.is_none() {
                receiver.progress();
                while sender.next_ended().is_some() {}
            }
            let receive = &receiver.receives[number];
            let delivered = receive.ended.unwrap().outcome.unwrap();
            assert_eq!(
                (delivered.peer, delivered.tag, delivered.received),
                (0, *tag, bytes.len() as u64),
                "seed {seed}: receive {number} from {} with tag {}",
                receive.rank,
                receive.tag
            );
            assert!(receive.memory[..bytes.len()] == bytes[..], "seed {seed}: bytes of receive {number} are changed");
        }
        assert!(!receiver.host.has_taken_over(), "seed {seed}: the device has the next receives");
        takeovers = receiver.host.takeovers();
    }
    assert!(takeovers > 7, "{takeovers} takeovers");
}

#[test]
fn what_was_sent_before_the_end_arrives() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    // More than the device has room for at a time.
    for number in 0..100 {
        send(&mut sender, comms[0], number, 1, &patterned(number as u64, 500));
        receiver.post(0, 1, 500);
    }
    let receiving = std::thread::spawn(move || {
        while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
            receiver.progress();
        }
        receiver.receives
    });
    drop(sender);
    for (number, receive) in (0..).zip(receiving.join().unwrap()) {
        assert!(receive.ended.is_some_and(|ended| ended.outcome.is_ok()) && receive.memory == patterned(number, 500));
    }
}

/// Posted receives have all the memory, or all the operations, of both devices.
#[test]
fn receives_that_have_all_the_room_do_not_keep_sends_from_the_device() {
    let devices = start();
    let (hosts, comms) = pair(&devices);
    let mut ends = hosts.into_iter().zip(comms);
    let mut ends: [Receiver; 2] = std::array::from_fn(|_| {
        let (host, comm) = ends.next().unwrap();
        Receiver { host, comm, receives: Vec::new() }
    });
    let most = ENGINE.requests as usize;
    for (receives, room, length) in [(1, WINDOW * 5 / 8, WINDOW / 4), (most, 8, 8)] {
        for (me, end) in ends.iter_mut().enumerate() {
            end.receives.clear();
            (0..receives).for_each(|_| end.post(1 - me as u32, 1, room));
        }
        let data = patterned(1, length).leak();
        for (me, end) in ends.iter_mut().enumerate() {
            for number in 0..receives {
                let (request, rank) = (request(1000 + number), 1 - me as u32);
                let operation = Operation { request, comm: end.comm, rank, peer: rank, tag: 1 };
                // SAFETY: the memory is leaked.
                let _ = unsafe { end.host.isend(&operation, Mode::Buffered, Span::of(data)) }.unwrap();
            }
        }
        while ends.iter().any(|end| end.receives.iter().any(|receive| receive.ended.is_none())) {
            for end in &mut ends {
                while let Some(ended) = end.host.next_ended() {
                    let place = ended.request.to_bits() as u32 as usize;
                    if let Some(receive) = end.receives.get_mut(place) {
                        receive.ended = Some(ended);
                    }
                }
            }
        }
        for receive in ends.iter().flat_map(|end| &end.receives) {
            assert!(receive.ended.unwrap().outcome.is_ok() && receive.memory[..length] == *data);
        }
    }
}

/// Sends a message in ready mode, and waits for its end.
fn send_ready(sender: &mut Matching, receiver: &mut Receiver, comm: u32, tag: u32) -> Result<(), DeviceFailure> {
    let operation = Operation { request: request(7), comm, rank: 1, peer: 1, tag };
    // SAFETY: the memory is static.
    let sent = unsafe { sender.isend(&operation, Mode::Ready, Span::of(b"is ready")) };
    assert!(matches!(sent, Ok(Sending::Pending(_))));
    loop {
        receiver.progress();
        if let Some(ended) = sender.next_ended() {
            return ended.outcome.map(drop);
        }
    }
}

/// The device has some of the receives, and the host the others. One of them is larger than the memory of the device.
#[test]
fn ready_sends_find_receives_that_the_device_has_no_room_for() {
    let devices = start();
    let most = ENGINE.requests as usize;
    for (count, bytes) in [(2 * most, 8), (1, 2 * WINDOW)] {
        let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
        for number in 0..count {
            receiver.post(0, number as u32, bytes);
        }
        assert!(receiver.host.has_taken_over());
        // The last one first: it is with the host as long as others are.
        for number in (0..count).rev() {
            assert_eq!(send_ready(&mut sender, &mut receiver, comms[0], number as u32), Ok(()), "receive {number}");
        }
        while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
            receiver.progress();
        }
        assert!(receiver.receives.iter().all(|receive| receive.memory.starts_with(b"is ready")));
        // All receives are with the device again.
        assert!(!receiver.host.has_taken_over());
        let unexpected = send_ready(&mut sender, &mut receiver, comms[0], 1 << 20);
        assert_eq!(unexpected, Err(DeviceFailure::NotReady));
    }
}

/// The sender has not heard of the fallback.
#[test]
fn ready_sends_find_receives_of_a_host_that_has_left_its_device() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    receiver.post(0, 1, 8);
    receiver.host.leave();
    assert_eq!(send_ready(&mut sender, &mut receiver, comms[0], 1), Ok(()), "the host has taken the receive over");
    receiver.post(0, 2, 8);
    assert_eq!(send_ready(&mut sender, &mut receiver, comms[0], 2), Ok(()), "the device was not given the receive");
}

#[test]
fn a_probe_finds_no_message_of_a_receive_that_was_posted_before() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    let count = 2 * ENGINE.requests as usize;
    for _ in 0..count {
        receiver.post(0, 1, 8);
    }
    assert!(receiver.host.has_taken_over());
    for number in 0..count {
        send(&mut sender, comms[0], number, 1, &[1; 8]);
        let found = receiver.host.probe(comms[1], ANY, 1, true);
        assert_eq!(found, Ok(None), "message {number} belongs to a posted receive");
        while sender.next_ended().is_some() {}
    }
    while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
        receiver.progress();
        while sender.next_ended().is_some() {}
        assert_eq!(receiver.host.probe(comms[1], ANY, 1, false), Ok(None));
    }
    assert!(receiver.receives.iter().all(|receive| receive.ended.unwrap().outcome.is_ok()));
}

#[test]
fn a_message_that_was_taken_out_needs_room_for_itself_alone() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    send(&mut sender, comms[0], 0, 1, &[3; 100]);
    let found = loop {
        if let Some(found) = receiver.host.probe(comms[1], 0, 1, true).unwrap() {
            break found;
        }
    };
    // Receives have all other room of the device.
    receiver.receives.push(Receive { rank: 0, tag: 1, memory: vec![0; 2 * WINDOW], ended: None });
    (0..ENGINE.requests).for_each(|_| receiver.post(0, 2, 8));
    let memory = &mut receiver.receives[0].memory;
    let sink = Span::contiguous(memory.as_mut_ptr(), memory.len());
    // SAFETY: the memory lives, and is not used, until the receive has ended.
    unsafe { receiver.host.imrecv(&found, request(0), sink) }.unwrap();
    while receiver.receives[0].ended.is_none() {
        receiver.progress();
    }
    assert_eq!(receiver.receives[0].memory[..100], [3; 100]);
}

#[test]
fn a_send_does_not_overtake_one_that_waits_for_room() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    // The first one has the room of the second one.
    for (number, (tag, bytes)) in [(1, 300_000), (2, 200_000), (2, 8)].into_iter().enumerate() {
        send(&mut sender, comms[0], number, tag, &patterned(number as u64, bytes));
    }
    for tag in [2, 1, 2] {
        receiver.post(0, tag, 300_000);
    }
    while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
        receiver.progress();
        while sender.next_ended().is_some() {}
    }
    let received = receiver.receives.iter().map(|receive| receive.ended.unwrap().outcome.unwrap().received);
    assert_eq!(received.collect::<Vec<_>>(), [200_000, 300_000, 8]);
}

/// No completion tells of a message that nobody takes, so a bell would not end the sleep.
#[test]
fn a_host_that_ends_does_not_sleep_and_takes_messages_that_nobody_receives() {
    for has_receive in [false, true] {
        let devices = start_ringing();
        let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
        if has_receive {
            receiver.post(0, 1, 8);
        }
        assert!(receiver.host.arm(), "it sleeps before its end");
        receiver.host.refuse_unexpected();
        for number in 1..4 {
            let operation = Operation { request: request(number), comm: comms[0], rank: 1, peer: 1, tag: 2 };
            // SAFETY: the text is static.
            let sent = unsafe { sender.isend(&operation, Mode::Synchronous, Span::of(b"to nobody")) };
            assert_eq!(sent, Ok(Sending::Pending(operation.request)));
            let ended = loop {
                assert!(!receiver.host.arm(), "a message may have come");
                receiver.progress();
                if let Some(ended) = sender.next_ended() {
                    break ended;
                }
            };
            assert_eq!((ended.request, ended.outcome.map(|_| ())), (operation.request, Ok(())));
            assert_eq!(receiver.host.refused_messages().unwrap().count, number as u64);
        }
        // A receive that was posted before gets its message.
        send(&mut sender, comms[0], 0, 1, &[5; 8]);
        while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
            assert!(!receiver.host.arm(), "a message may have come");
            receiver.progress();
        }
        assert!(receiver.receives.iter().all(|receive| receive.memory == [5; 8]));
    }
}

/// A call takes the completions of other operations, too. Their requests are complete, so nothing would wake a thread that waits for them.
#[test]
fn a_host_does_not_sleep_while_the_end_of_a_request_is_unknown_to_the_engine() {
    let devices = start_ringing();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    receiver.post(0, 1, 8);
    assert!(receiver.host.arm(), "nothing has come");
    send(&mut sender, comms[0], 0, 1, &[5; 8]);
    while receiver.host.transport().progress() == 0 {}
    assert!(!receiver.host.arm(), "the message has come");
    receiver.progress();
    assert!(receiver.receives[0].ended.is_some());
    assert!(receiver.host.arm());
}

/// The device drops the message, which is not complete, so it has none any more.
#[test]
fn a_device_is_drained_when_the_sender_of_its_last_message_is_lost() {
    let devices = start();
    let ([mut sender, mut host], comms) = pair(&devices);
    send(&mut sender, comms[0], 0, 1, &[5; 60_000]);
    while host.probe(comms[1], 0, 1, false).unwrap().is_none() {}
    host.leave();
    assert!(host.has_all(&mut |_| true));
    for _ in 0..2 {
        assert!(!host.is_drained(), "it has the message");
    }
    host.lose_peer(Peer(0));
    assert!(host.is_drained());
}

#[test]
fn receives_that_have_all_operations_do_not_keep_a_message_that_nobody_takes() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    (0..ENGINE.requests).for_each(|_| receiver.post(0, 1, 8));
    assert!(!receiver.host.has_taken_over(), "the device has them");
    receiver.host.refuse_unexpected();
    let operation = Operation { request: request(1), comm: comms[0], rank: 1, peer: 1, tag: 2 };
    // SAFETY: the text is static.
    let sent = unsafe { sender.isend(&operation, Mode::Synchronous, Span::of(b"to nobody")) };
    assert_eq!(sent, Ok(Sending::Pending(operation.request)));
    let ended = loop {
        receiver.progress();
        if let Some(ended) = sender.next_ended() {
            break ended;
        }
    };
    assert_eq!((ended.request, ended.outcome.map(|_| ())), (operation.request, Ok(())));
    assert_eq!(receiver.host.refused_messages().unwrap().count, 1);
    for _ in 0..ENGINE.requests {
        send(&mut sender, comms[0], 0, 1, &[5; 8]);
    }
    while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
        receiver.progress();
        while sender.next_ended().is_some() {}
    }
    assert!(receiver.receives.iter().all(|receive| receive.memory == [5; 8]));
}

/// Takes the first messages with this tag out, until the device has no place for one more.
fn take_all_places(receiver: &mut Receiver, sender: &mut Matching, comm: u32, tag: u32) -> Vec<Found> {
    let mut taken = Vec::new();
    loop {
        send(sender, comm, 0, tag, &[taken.len() as u8; 8]);
        let found = loop {
            match receiver.host.probe(receiver.comm, 0, tag, true) {
                Ok(None) => {}
                Ok(Some(found)) => break found,
                Err(why) => {
                    assert_eq!((why, taken.is_empty()), (Refusal::Busy, false));
                    return taken;
                }
            }
        };
        taken.push(found);
    }
}

/// The program keeps messages that it has taken out, and waits for others.
#[test]
fn messages_that_were_taken_out_do_not_keep_receives_of_the_host_from_theirs() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    let taken = take_all_places(&mut receiver, &mut sender, comms[0], 5);
    // The host has the receives. The device has no place for their messages beside its queue.
    let messages = [(1, 8), (2, 300_000), (1, 60_000), (3, 0)].map(|(tag, len)| (tag, patterned(tag.into(), len)));
    for (rank, tag) in [(ANY, 1), (0, ANY), (0, 1), (ANY, 3)] {
        receiver.post(rank, tag, 2 * WINDOW);
    }
    assert!(receiver.host.has_taken_over());
    // Of the first message with tag 5 that was not taken out, too.
    for (number, (tag, bytes)) in messages.iter().enumerate() {
        send(&mut sender, comms[0], number, *tag, bytes);
    }
    receiver.post(0, 2, 2 * WINDOW);
    while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
        receiver.progress();
        while sender.next_ended().is_some() {}
    }
    let of_five = taken.len() as u8;
    let got: Vec<_> = receiver.receives.iter().map(|receive| receive.ended.unwrap().outcome.unwrap()).collect();
    assert_eq!(got.iter().map(|got| (got.peer, got.tag)).collect::<Vec<_>>(), [(0, 1), (0, 5), (0, 1), (0, 3), (0, 2)]);
    assert_eq!(receiver.receives[1].memory[..8], [of_five; 8]);
    for (receive, message) in [(0, 0), (4, 1), (2, 2), (3, 3)] {
        let (bytes, len) = (&messages[message].1, messages[message].1.len());
        assert_eq!((got[receive].received, &receiver.receives[receive].memory[..len] == bytes), (len as u64, true));
    }
    assert!(!receiver.host.has_taken_over());
    receiver.receives.clear();
    for (number, found) in taken.iter().enumerate() {
        receiver.receives.push(Receive { rank: 0, tag: 5, memory: vec![0; 8], ended: None });
        let sink = Span::contiguous(receiver.receives[number].memory.as_mut_ptr(), 8);
        // SAFETY: the memory lives, and is not used, until the receive has ended.
        unsafe { receiver.host.imrecv(found, request(number), sink) }.unwrap();
    }
    while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
        receiver.progress();
    }
    assert!((0..).zip(&receiver.receives).all(|(number, receive)| receive.memory == [number; 8]));
}

/// The device has no place for the first message beside its queue, and no memory. The second one needs little.
#[test]
fn messages_without_a_place_keep_their_order_when_memory_is_short() {
    for looks in [20, 21] {
        let devices = start();
        let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
        let taken = take_all_places(&mut receiver, &mut sender, comms[0], 5);
        (0..2).for_each(|_| receiver.post(0, 1, 2 * WINDOW));
        assert!(!taken.is_empty() && receiver.host.has_taken_over());
        let transport = receiver.host.transport();
        let mut buffers = Vec::new();
        for len in (0..6).map(|half| WINDOW as u64 >> half) {
            buffers.extend(std::iter::from_fn(|| transport.buffer(len).ok()));
        }
        for bytes in [60_000, 8] {
            send(&mut sender, comms[0], bytes, 1, &patterned(bytes as u64, bytes));
        }
        while receiver.host.transport().count(0).unwrap().1 != 3 {}
        (0..looks).for_each(|_| receiver.progress());
        assert!(receiver.receives.iter().all(|receive| receive.ended.is_none()), "there is no memory");
        buffers.into_iter().for_each(|buffer| receiver.host.transport().free(buffer));
        while receiver.receives.iter().any(|receive| receive.ended.is_none()) {
            receiver.progress();
            while sender.next_ended().is_some() {}
        }
        for (receive, bytes) in receiver.receives.iter().zip([60_000, 8]) {
            assert!(receive.memory[..bytes] == patterned(bytes as u64, bytes) && receive.memory[bytes] == 0);
        }
    }
}

#[test]
fn messages_that_were_taken_out_do_not_keep_those_that_nobody_takes() {
    let devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    let taken = take_all_places(&mut receiver, &mut sender, comms[0], 5);
    assert!(!taken.is_empty());
    receiver.host.refuse_unexpected();
    let operation = Operation { request: request(1), comm: comms[0], rank: 1, peer: 1, tag: 2 };
    // SAFETY: the text is static.
    let sent = unsafe { sender.isend(&operation, Mode::Synchronous, Span::of(b"to nobody")) };
    assert_eq!(sent, Ok(Sending::Pending(operation.request)));
    while sender.next_ended().is_none() {
        receiver.progress();
    }
    let refused = receiver.host.refused_messages().unwrap();
    assert_eq!((refused.count, refused.bytes), (2, 17), "beside it, that of tag 5 for which there was no place");
}

#[test]
fn a_message_that_no_device_has_room_for_is_refused() {
    let devices = start();
    let ([mut sender, _], comms) = pair(&devices);
    let operation = Operation { request: request(0), comm: comms[0], rank: 1, peer: 1, tag: 1 };
    let long = vec![0; WINDOW];
    // SAFETY: nothing is begun.
    let refused = unsafe { sender.isend(&operation, Mode::Standard, Span::of(&long)) };
    assert_eq!(refused, Err(Refusal::TooLong));
}

#[test]
fn operations_that_wait_in_the_host_outlive_their_device() {
    let mut devices = start();
    let (mut sender, mut receiver, comms) = sender_and_receiver(&devices);
    let (posted, sent) = (2 * ENGINE.requests as usize, 3 * ENGINE.requests as usize);
    for tag in 0..posted {
        receiver.post(0, tag as u32, 100);
    }
    assert!(receiver.host.has_taken_over());
    for number in 0..sent {
        send(&mut sender, comms[0], number, 1000, &[0; 2000]);
    }
    devices.stop();
    while !receiver.host.has_failed() {
        receiver.progress();
    }
    receiver.host.leave();
    let unmatched: Vec<_> = std::iter::from_fn(|| receiver.host.next_unmatched()).collect();
    assert_eq!(unmatched, (0..posted).map(request).collect::<Vec<_>>(), "the device had none of them");
    // The device had some of the sends, and these end.
    let mut ended = Vec::new();
    while !sender.has_failed() {
        ended.extend(sender.next_ended());
    }
    ended.extend(std::iter::from_fn(|| sender.next_ended()));
    assert!(ended.iter().all(|ended| ended.outcome == Err(DeviceFailure::Device)));
    sender.leave();
    let held: Vec<_> = std::iter::from_fn(|| sender.next_held()).map(|held| held.request).collect();
    assert_eq!(held, (ended.len()..sent).map(request).collect::<Vec<_>>(), "the others, in their order");
    assert!(!ended.is_empty() && !held.is_empty());
    let operation = Operation { request: request(0), comm: comms[0], rank: 1, peer: 1, tag: 1 };
    // SAFETY: nothing is begun.
    let refused = unsafe { sender.isend(&operation, Mode::Standard, Span::of(b"more")) };
    assert_eq!(refused, Err(Refusal::DeviceFailed));
}

/// What a device says of a receive of 8 bytes: the cookie, and the bytes of the message and those that were written.
type Said = (u64, u64, u64);

#[test]
fn a_device_must_not_say_everything_of_a_receive() {
    // `first` is the cookie of a receive that has ended, and `second` that of one in progress.
    let said: [fn(u64, u64) -> Said; 5] = [
        |_, second| (second, 9, 9),
        |_, second| (second, 7, 8),
        |first, _| (first, 8, 8),
        |first, _| (first + (1 << 32), 8, 8), // the next one in its place
        |_, second| (second + 1000, 8, 8),
    ];
    let mut devices = start();
    devices.stop();
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    for (said, boot) in said.into_iter().zip(77..) {
        let about = About { boot, operations: 2, one_sided: 0, description: "test", doorbell: Doorbell::None };
        let mut device = Device::start(memory, Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
        let thread = std::thread::spawn({
            let path = devices.files[0].clone();
            move || {
                let mut host = Matching::new(Transport::open(&path, Options::default()).unwrap());
                host.add_peer(0, b"card").unwrap();
                let comm = host.add_comm(1, &mut std::iter::once(Peer(0)), 0, false).unwrap().unwrap();
                let mut into = [[0_u8; 8]; 2];
                for (number, into) in into.iter_mut().enumerate() {
                    let operation = Operation { request: request(number), comm, rank: 0, peer: 0, tag: 1 };
                    // SAFETY: the arrays outlive the operations.
                    unsafe { host.irecv(&operation, Span::contiguous(into.as_mut_ptr(), 8)) }.unwrap();
                }
                let mut ended = Vec::new();
                while ended.len() < 2 {
                    ended.extend(host.next_ended());
                }
                (ended, into, host.transport().lost())
            }
        });
        while device.session() == 0 {
            if let Some(session) = device.wanted().unwrap() {
                device.serve(session).unwrap();
            }
        }
        let answer = |device: &mut Device<'_>, (cookie, received, delivered): Said| {
            let done = Done { received, delivered, tag: 1, ..Done::default() };
            device.complete(&Completion::new(cookie, Ok(done))).unwrap();
        };
        let mut receives = Vec::new();
        while receives.len() < 2 {
            match device.take() {
                Some((cookie, Ok(Command::Receive { body, .. }))) => {
                    memory.write(body.at, b"received").unwrap();
                    receives.push(cookie);
                }
                Some((cookie, _)) => answer(&mut device, (cookie, 0, 0)),
                None => {}
            }
        }
        answer(&mut device, (receives[0], 8, 8));
        answer(&mut device, said(receives[0], receives[1]));
        let (ended, into, lost) = thread.join().unwrap();
        assert_eq!(lost, Some(Lost::Device(DeviceError::Violation)));
        assert!(ended[0].request == request(0) && ended[0].outcome.is_ok());
        assert_eq!(ended[1], Ended { request: request(1), outcome: Err(DeviceFailure::Device) });
        assert_eq!(into, [*b"received", [0; 8]]);
    }
}
