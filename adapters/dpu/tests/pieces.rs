//! Messages that are longer than a device has room for.

mod common;
#[path = "common/wired.rs"]
mod wired;

use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use common::{ENGINE, WINDOW, start, start_blind, start_blind_with, start_ringing};
use offload::Limits;
use towline_core::convertor::{Layout, Span};
use towline_core::pml::matching::ANY;
use towline_core::pml::offload::{Delivered, DeviceFailure, Ended, Fallback as _, Found, Offload, Operation};
use towline_core::pml::{Config, Mode, Refusal, Request, Sending};
use towline_core::rail::Peer;
use towline_dpu::transport::{Source, Tag};
use towline_dpu::{Matching, Options, Transport};
use towline_host_tests::pattern::patterned;
use towline_host_tests::random::Random;
use towline_window::command::{ANNOUNCED, PIPELINES};
use wired::Wired;

/// Longer than three windows.
const LONG: usize = 3 * WINDOW + 12345;

/// A host, its communicator with the other one, and how its operations have ended.
struct Host {
    matching: Matching,
    rank: u32,
    comm: u32,
    ended: Vec<Ended>,
}

impl Host {
    fn send(&mut self, number: usize, tag: u32, data: Span) {
        assert!(matches!(self.try_send(number, tag, Mode::Standard, data), Ok(Sending::Pending(_))));
    }

    fn try_send(&mut self, number: usize, tag: u32, mode: Mode, data: Span) -> Result<Sending, Refusal> {
        let rank = 1 - self.rank;
        let operation = Operation { request: request(number), comm: self.comm, rank, peer: rank, tag };
        // SAFETY: the memory lives and does not change until the send has ended.
        unsafe { self.matching.isend(&operation, mode, data) }
    }

    fn receive(&mut self, number: usize, rank: u32, tag: u32, sink: Span) {
        let operation = Operation { request: request(number), comm: self.comm, rank, peer: rank, tag };
        // SAFETY: the memory lives, and is not used, until the receive has ended.
        unsafe { self.matching.irecv(&operation, sink) }.unwrap();
    }

    fn progress(&mut self) {
        while let Some(ended) = self.matching.next_ended() {
            assert!(self.end_of(ended.request.to_bits() as u32 as usize).is_none(), "an operation ends once");
            self.ended.push(ended);
        }
    }

    fn end_of(&self, number: usize) -> Option<Result<Delivered, DeviceFailure>> {
        self.ended.iter().find(|ended| ended.request == request(number)).map(|ended| ended.outcome)
    }
}

/// The request of a number, as an engine may have it.
fn request(number: usize) -> Request {
    Request::from_bits(1 << 32 | number as u64)
}

fn sink(memory: &mut [u8]) -> Span {
    Span::contiguous(memory.as_mut_ptr(), memory.len())
}

/// A host that waits long for its device, as some of these tests are slow.
fn open(files: &[PathBuf], node: usize) -> Transport {
    Transport::open(&files[node], Options::default()).unwrap()
}

/// The same, of a device that reaches all its memory.
fn open_direct(files: &[PathBuf], node: usize) -> Transport {
    let mut host = Transport::open(&files[node], Options { direct_from: 1, ..Options::default() }).unwrap();
    assert_eq!(host.reach_memory(), Ok(true));
    host
}

fn acquaint(mut hosts: [Matching; 2]) -> [Host; 2] {
    let cards = hosts.each_mut().map(|host| host.card().unwrap());
    let mut rank = 0;
    hosts.map(|mut matching| {
        for (peer, card) in (0..).zip(&cards) {
            matching.add_peer(peer, card).unwrap();
        }
        let comm = matching.add_comm(1, &mut [0, 1].map(Peer).into_iter(), rank, false).unwrap();
        rank += 1;
        Host { matching, rank: rank - 1, comm: comm.expect("the device knows both peers"), ended: Vec::new() }
    })
}

fn pair(files: &[PathBuf]) -> [Host; 2] {
    acquaint([0, 1].map(|node| Matching::new(open(files, node))))
}

/// Makes progress until these operations have ended.
fn finish(hosts: &mut [Host; 2], wanted: [&[usize]; 2]) {
    while hosts.iter().zip(wanted).any(|(host, wanted)| wanted.iter().any(|number| host.end_of(*number).is_none())) {
        hosts.iter_mut().for_each(Host::progress);
    }
}

fn got(received: usize, tag: u32, peer: u32) -> Option<Result<Delivered, DeviceFailure>> {
    Some(Ok(Delivered { peer, tag, received: received as u64 }))
}

/// Each host posts receive 1, and sends its message as number 0.
fn begin_both(hosts: &mut [Host; 2], messages: &[Vec<u8>; 2], memory: &mut [Vec<u8>; 2]) {
    for ((host, message), memory) in hosts.iter_mut().zip(messages).zip(memory) {
        host.receive(1, 1 - host.rank, 3, sink(memory));
        host.send(0, 3, Span::of(message));
    }
}

const SENT: Option<Result<Delivered, DeviceFailure>> = Some(Ok(Delivered { peer: 0, tag: 0, received: 0 }));

#[test]
fn long_messages_go_in_both_directions_and_keep_their_order() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    // Two of the same tag, shorter ones between them, and more than may be announced at a time.
    let lengths = [LONG, 5, WINDOW, 60_000, LONG / 2, 0, 2 * WINDOW];
    let messages: [Vec<Vec<u8>>; 2] = [0, 1]
        .map(|me| lengths.iter().enumerate().map(|(number, len)| patterned(me << 8 | number as u64, *len)).collect());
    let mut memory: [Vec<Vec<u8>>; 2] = [0, 1].map(|_| lengths.iter().map(|_| vec![0; LONG + 1]).collect());
    for (host, messages) in hosts.iter_mut().zip(&messages) {
        for (number, message) in messages.iter().enumerate() {
            let _ = host.try_send(number, 7, Mode::Standard, Span::of(message)).unwrap();
        }
    }
    for number in 0..lengths.len() {
        for (host, memory) in hosts.iter_mut().zip(&mut memory) {
            let (rank, tag) = if number % 2 == 0 { (ANY, ANY) } else { (1 - host.rank, 7) };
            host.receive(100 + number, rank, tag, sink(&mut memory[number]));
        }
    }
    let receives: Vec<usize> = (100..100 + lengths.len()).collect();
    let sends = [0, 2, 4, 6];
    let all: Vec<usize> = receives.iter().chain(&sends).copied().collect();
    finish(&mut hosts, [&all, &all]);
    for (me, host) in hosts.iter().enumerate() {
        for (number, len) in lengths.iter().enumerate() {
            assert_eq!(host.end_of(100 + number), got(*len, 7, 1 - host.rank), "message {number}");
            assert!(memory[me][number][..*len] == messages[1 - me][number], "message {number} of {}", 1 - me);
        }
        assert!(sends.iter().all(|number| host.end_of(*number) == SENT));
    }
    // The device may not have told yet that the last pieces have left.
    while hosts.iter().any(|host| host.matching.is_busy()) {
        hosts.iter_mut().for_each(Host::progress);
    }
}

#[test]
fn a_receive_takes_as_much_of_a_long_message_as_it_has_memory_for() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let long = patterned(1, LONG);
    for (number, room) in [0, 1, 100_000, WINDOW, LONG - 1].into_iter().enumerate() {
        let mut memory = vec![0xee; room + 8];
        // Posted before the message comes, and afterwards.
        if number % 2 == 0 {
            hosts[1].receive(100 + number, 0, 3, sink(&mut memory[..room]));
        }
        hosts[0].send(number, 3, Span::of(&long));
        if number % 2 == 1 {
            hosts[1].receive(100 + number, 0, 3, sink(&mut memory[..room]));
        }
        finish(&mut hosts, [&[number], &[100 + number]]);
        assert_eq!((hosts[0].end_of(number), hosts[1].end_of(100 + number)), (SENT, got(LONG, 3, 0)), "{room} bytes");
        assert!(memory[..room] == long[..room] && memory[room..] == [0xee; 8], "{room} bytes");
    }
}

/// Messages of random lengths, to receives of random lengths that are posted at random times, over links that lose datagrams.
#[test]
fn random_messages_arrive_over_links_that_lose_datagrams() {
    let engine = Config { peers: 2, requests: 16, unexpected: 16, units: 16, unit_bytes: 512, ..Config::SMALLEST };
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let limits = Limits { engine, communicators: 1, messages: 2 };
        let devices = Wired::start_with_loss(2, limits, seed, random.below(4));
        let mut hosts = pair(&devices.files);
        let count = 1 + random.below(8) as usize;
        let mut length = || match random.below(4) {
            0 => random.below(2000) as usize,
            1 => random.below(WINDOW as u64) as usize,
            _ => random.below(2 * WINDOW as u64) as usize,
        };
        let messages: [Vec<Vec<u8>>; 2] =
            [0, 1].map(|me| (0..count).map(|number| patterned(me << 8 | number as u64, length())).collect());
        let mut memory: [Vec<Vec<u8>>; 2] = [0, 1]
            .map(|me: usize| (0..count).map(|number| vec![0; messages[1 - me][number].len().max(length())]).collect());
        let (mut sent, mut posted) = ([0; 2], [0; 2]);
        let is_over = |host: &Host| (0..count).all(|number| host.end_of(100 + number).is_some());
        while !hosts.iter().all(is_over) {
            let me = random.below(2) as usize;
            match random.below(20) {
                0 if sent[me] < count => {
                    let _ = hosts[me].try_send(sent[me], 3, Mode::Standard, Span::of(&messages[me][sent[me]])).unwrap();
                    sent[me] += 1;
                }
                1 if posted[me] < count => {
                    let number = posted[me];
                    hosts[me].receive(100 + number, ANY, ANY, sink(&mut memory[me][number]));
                    posted[me] += 1;
                }
                _ => hosts[me].progress(),
            }
        }
        for (me, host) in hosts.iter().enumerate() {
            for (number, message) in messages[1 - me].iter().enumerate() {
                let end = host.end_of(100 + number);
                assert_eq!(end, got(message.len(), 3, 1 - host.rank), "seed {seed}, message {number}");
                assert!(memory[me][number][..message.len()] == message[..], "seed {seed}, message {number}");
            }
        }
    }
}

fn find(host: &mut Host, take: bool) -> Found {
    loop {
        if let Some(found) = host.matching.probe(host.comm, ANY, ANY, take).unwrap() {
            return found;
        }
    }
}

#[test]
fn probes_find_the_length_of_a_long_message_and_may_take_it() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut memory) = (patterned(1, LONG), vec![0; LONG]);
    hosts[0].send(0, 3, Span::of(&long));
    for take in [false, true] {
        let found = find(&mut hosts[1], take);
        assert_eq!((found.rank, found.tag, found.len), (0, 3, LONG as u64));
        if take {
            // SAFETY: the memory lives, and is not used, until the receive has ended.
            unsafe { hosts[1].matching.imrecv(&found, request(9), sink(&mut memory)) }.unwrap();
        }
    }
    finish(&mut hosts, [&[0], &[9]]);
    assert_eq!((hosts[0].end_of(0), hosts[1].end_of(9)), (SENT, got(LONG, 3, 0)));
    assert!(memory == long);
}

#[test]
fn long_messages_that_are_not_contiguous_arrive() {
    let every_other = Layout::vector(LONG as u64, 1, 2).unwrap();
    for reaches in [false, true] {
        let devices = start();
        let mut hosts = acquaint([0, 1].map(|node| {
            Matching::new(if reaches { open_direct(&devices.files, node) } else { open(&devices.files, node) })
        }));
        let (mut data, mut memory) = (patterned(1, 2 * LONG), vec![0; 2 * LONG]);
        // SAFETY: the layout is in the memory.
        let spans = [&mut data, &mut memory].map(|at| unsafe { Span::laid_out(at.as_mut_ptr(), &every_other) });
        hosts[1].receive(1, 0, 3, spans[1]);
        hosts[0].send(0, 3, spans[0]);
        finish(&mut hosts, [&[0], &[1]]);
        assert_eq!((hosts[0].end_of(0), hosts[1].end_of(1)), (SENT, got(LONG, 3, 0)));
        let is_right = |(at, (byte, sent)): (usize, (&u8, &u8))| *byte == if at % 2 == 0 { *sent } else { 0 };
        assert!(memory.iter().zip(&data).enumerate().all(is_right), "reaches: {reaches}");
    }
}

#[test]
fn a_device_that_reaches_memory_sends_in_pieces_to_one_that_does_not() {
    let devices = start();
    let mut hosts = acquaint([open_direct(&devices.files, 0), open(&devices.files, 1)].map(Matching::new));
    let messages = [0, 1].map(|me| patterned(me, LONG));
    let mut memory = [0, 1].map(|_| vec![0; LONG]);
    begin_both(&mut hosts, &messages, &mut memory);
    finish(&mut hosts, [&[0, 1], &[0, 1]]);
    for (me, host) in hosts.iter().enumerate() {
        assert_eq!((host.end_of(0), host.end_of(1)), (SENT, got(LONG, 3, 1 - host.rank)));
        assert!(memory[me] == messages[1 - me]);
    }
}

/// The receive is with the host, since it is longer than the device's memory. So the device would not find it.
#[test]
fn a_long_send_in_any_mode_waits_for_its_receive() {
    for mode in [Mode::Ready, Mode::Synchronous, Mode::Complete, Mode::Buffered] {
        let devices = start_blind();
        let mut hosts = pair(&devices.files);
        let (long, mut memory) = (patterned(1, LONG), vec![0; LONG]);
        hosts[1].receive(1, 0, 3, sink(&mut memory));
        assert!(matches!(hosts[0].try_send(2, 3, mode, Span::of(&long)), Ok(Sending::Pending(_))));
        finish(&mut hosts, [&[2], &[1]]);
        assert_eq!((hosts[0].end_of(2), hosts[1].end_of(1)), (SENT, got(LONG, 3, 0)));
        assert!(memory == long);
    }
}

#[test]
fn a_long_send_whose_announcement_has_left_is_not_cancelled() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut memory) = (patterned(1, LONG), vec![0; LONG]);
    hosts[0].send(0, 3, Span::of(&long));
    assert_eq!(find(&mut hosts[1], false).len, LONG as u64);
    assert!(!hosts[0].matching.cancel(request(0)), "the other device has the announcement");
    hosts[1].receive(1, 0, 3, sink(&mut memory));
    while !has_begun(&memory, &long) {
        hosts.iter_mut().for_each(Host::progress);
    }
    assert!(!hosts[0].matching.cancel(request(0)) && !hosts[1].matching.cancel(request(1)), "they have matched");
    finish(&mut hosts, [&[0], &[1]]);
    assert_eq!((hosts[0].end_of(0), hosts[1].end_of(1)), (SENT, got(LONG, 3, 0)));
}

#[test]
fn a_long_send_begins_though_posted_receives_have_all_operations() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut memory) = (patterned(1, LONG), vec![0; LONG]);
    let mut rooms = vec![[0; 8]; ENGINE.requests as usize];
    for (number, room) in rooms.iter_mut().enumerate() {
        hosts[0].receive(100 + number, 1, 9, sink(room));
    }
    hosts[1].receive(1, 0, 3, sink(&mut memory));
    let sending = hosts[0].try_send(0, 3, Mode::Standard, Span::of(&long));
    assert!(matches!(sending, Ok(Sending::Pending(_))));
    finish(&mut hosts, [&[0], &[1]]);
    assert_eq!((hosts[0].end_of(0), hosts[1].end_of(1)), (SENT, got(LONG, 3, 0)));
}

/// Begins so many long messages in each direction. Afterwards the devices have matched them, and the hosts do not know it yet.
fn begin_many(hosts: &mut [Host; 2], long: &[u8], rooms: &mut [Vec<Vec<u8>>; 2]) {
    for (host, rooms) in hosts.iter_mut().zip(rooms.iter_mut()) {
        for (number, room) in rooms.iter_mut().enumerate() {
            host.receive(100 + number, 1 - host.rank, 3, sink(room));
        }
    }
    for (host, rooms) in hosts.iter_mut().zip(rooms.iter()) {
        (0..rooms.len()).for_each(|number| host.send(number, 3, Span::of(long)));
    }
    let count = rooms[0].len() as u32;
    // Both take completions, for which their devices have little room.
    let mut arrived = [0; 2];
    while arrived != [count; 2] {
        arrived = hosts.each_mut().map(|host| host.matching.transport().count(1 - host.rank).unwrap().0);
    }
    // Each device has made some steps more when it has answered again. So it has told its host of the matches.
    for _ in 0..20 {
        for host in hosts.iter_mut() {
            let _ = host.matching.transport().count(0).unwrap();
        }
    }
}

/// Posts receives 200, 201 and so on from the other host, until the device has no memory for a piece. Returns their memory.
fn fill(host: &mut Host) -> Vec<Vec<u8>> {
    let mut posted = Vec::new();
    for length in (0..8).map(|half| WINDOW >> half) {
        while let Ok(buffer) = host.matching.transport().buffer(length as u64) {
            host.matching.transport().free(buffer);
            let mut memory = vec![0; length];
            host.receive(200 + posted.len(), 1 - host.rank, 4, sink(&mut memory));
            posted.push(memory);
        }
    }
    assert!(!host.matching.has_taken_over(), "the device has them");
    posted
}

/// Receives that match later have the memory of which pieces that are sent need some.
#[test]
fn long_messages_pass_each_other_though_posted_receives_have_all_memory() {
    let devices = start_blind_with(Config { requests: 64, ..ENGINE });
    let mut hosts = pair(&devices.files);
    let long = patterned(1, LONG);
    // The device has room for these receives, so a host has not to make a call before they match.
    let mut rooms = [0, 1].map(|_| vec![vec![0; 10_000]; 4]);
    begin_many(&mut hosts, &long, &mut rooms);
    // Each of the four messages that a host receives has a buffer for a piece now.
    hosts.iter_mut().for_each(Host::progress);
    let mut posted = [0, 1].map(|_| Vec::new());
    for (host, posted) in hosts.iter_mut().zip(&mut posted) {
        *posted = fill(host);
    }
    let all = [0, 1, 2, 3, 100, 101, 102, 103];
    finish(&mut hosts, [&all, &all]);
    for (host, rooms) in hosts.iter().zip(&rooms) {
        assert!((0..4).all(|number| host.end_of(number) == SENT));
        assert!((100..104).all(|number| host.end_of(number) == got(LONG, 3, 1 - host.rank)));
        assert!(rooms.iter().all(|room| *room == long[..10_000]));
    }
    let counts = [0, 1].map(|me| posted[me].len());
    for (me, host) in hosts.iter_mut().enumerate() {
        (0..counts[1 - me]).for_each(|number| {
            let _ = host.try_send(50 + number, 4, Mode::Standard, Span::of(&long[..8])).unwrap();
        });
    }
    let numbers = counts.map(|count| (200..200 + count).collect::<Vec<_>>());
    finish(&mut hosts, [&numbers[0], &numbers[1]]);
    assert!(posted.iter().flatten().all(|memory| memory[..8] == long[..8]));
}

/// Pieces that are received could have all memory of both devices.
#[test]
fn many_long_messages_pass_each_other() {
    let devices = start_blind_with(Config { requests: 512, unexpected: 256, units: 256, ..ENGINE });
    let mut hosts = pair(&devices.files);
    let long = patterned(1, LONG);
    let mut rooms = [0, 1].map(|_| vec![vec![0; 1000]; 100]);
    begin_many(&mut hosts, &long, &mut rooms);
    let all: Vec<usize> = (0..100).chain(100..200).collect();
    finish(&mut hosts, [&all, &all]);
    for (host, rooms) in hosts.iter().zip(&rooms) {
        assert!((0..100).all(|number| host.end_of(number) == SENT));
        assert!((100..200).all(|number| host.end_of(number) == got(LONG, 3, 1 - host.rank)));
        assert!(rooms.iter().all(|room| *room == long[..1000]));
    }
}

#[test]
fn long_messages_do_not_wait_for_one_whose_sender_makes_no_call() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut memory) = (patterned(1, LONG), [0, 1].map(|_| vec![0; LONG]));
    let [first, second] = &mut memory;
    hosts[0].send(0, 3, Span::of(&long));
    hosts[1].receive(1, 0, 3, sink(first));
    // Until the receiver has asked for pieces. Host 0 makes no call.
    while hosts[1].matching.transport().count(0).unwrap().0 == 0 || hosts[1].matching.has_taken_over() {
        hosts[1].progress();
    }
    let operation = Operation { request: request(7), comm: hosts[1].comm, rank: 1, peer: 1, tag: 4 };
    // SAFETY: the memory lives and does not change until the send has ended.
    let sent = unsafe { hosts[1].matching.isend(&operation, Mode::Standard, Span::of(&long)) };
    assert!(matches!(sent, Ok(Sending::Pending(_))));
    hosts[1].receive(8, 1, 4, sink(second));
    while hosts[1].end_of(7).is_none() || hosts[1].end_of(8).is_none() {
        hosts[1].progress();
    }
    finish(&mut hosts, [&[0], &[1]]);
    assert!(memory.iter().all(|memory| *memory == long));
}

/// The other messages have the buffers that are kept for pieces, and posted receives have the memory of the device.
#[test]
fn a_long_message_does_not_wait_for_receives_that_match_later() {
    let devices = start_blind_with(Config { requests: 64, ..ENGINE });
    let mut hosts = pair(&devices.files);
    let long = patterned(1, LONG);
    let mut rooms = vec![vec![0; 100]; 5];
    for (number, room) in rooms.iter_mut().enumerate() {
        hosts[1].receive(100 + number, if number < 4 { 0 } else { 1 }, 3, sink(room));
    }
    (0..4).for_each(|number| hosts[0].send(number, 3, Span::of(&long)));
    // Until the receiver has asked for pieces. Host 0 makes no call from now on, but to look for that.
    while hosts[0].matching.transport().count(1).unwrap().0 != 4 {
        hosts[1].progress();
    }
    let posted = fill(&mut hosts[1]);
    let operation = Operation { request: request(7), comm: hosts[1].comm, rank: 1, peer: 1, tag: 3 };
    // SAFETY: the memory lives and does not change until the send has ended.
    let sent = unsafe { hosts[1].matching.isend(&operation, Mode::Standard, Span::of(&long)) };
    assert!(matches!(sent, Ok(Sending::Pending(_))));
    while hosts[1].end_of(7).is_none() || hosts[1].end_of(104).is_none() {
        hosts[1].progress();
    }
    finish(&mut hosts, [&[0, 1, 2, 3], &[100, 101, 102, 103]]);
    assert!(rooms.iter().all(|room| *room == long[..100]));
    for number in 0..posted.len() {
        let _ = hosts[0].try_send(50 + number, 4, Mode::Standard, Span::of(&long[..8])).unwrap();
    }
    finish(&mut hosts, [&[], &(200..200 + posted.len()).collect::<Vec<_>>()]);
    assert!(posted.iter().all(|memory| memory[..8] == long[..8]));
}

#[test]
fn short_messages_pass_long_ones_that_nobody_receives_yet() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut small) = (patterned(1, LONG), [0; 8]);
    for number in 0..4 {
        hosts[0].send(number, number as u32, Span::of(&long));
    }
    let _ = hosts[0].try_send(9, 9, Mode::Standard, Span::of(&long[..8])).unwrap();
    hosts[1].receive(9, 0, 9, sink(&mut small));
    finish(&mut hosts, [&[], &[9]]);
    assert_eq!((hosts[1].end_of(9), &small[..]), (got(8, 9, 0), &long[..8]));
    for number in 0..4 {
        let mut memory = vec![0; LONG];
        hosts[1].receive(number, 0, number as u32, sink(&mut memory));
        finish(&mut hosts, [&[number], &[number]]);
        assert!(memory == long);
    }
}

#[test]
fn a_long_message_arrives_though_its_communicator_was_deleted() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut room) = (patterned(1, LONG), vec![0; 1000]);
    hosts[1].receive(1, ANY, 3, sink(&mut room));
    hosts[0].send(0, 3, Span::of(&long));
    // Both devices have done what they can when the announcement has ended. The receiver does not know it yet.
    while !is_matched(&mut hosts[0]) {}
    let comm = hosts[1].comm;
    hosts[1].matching.del_comm(comm);
    finish(&mut hosts, [&[0], &[1]]);
    assert_eq!(hosts[0].end_of(0), SENT);
    assert!(room == long[..1000]);
}

/// Whether the first send of a host has matched.
fn is_matched(host: &mut Host) -> bool {
    host.progress();
    !format!("{:?}", host.matching).contains("is_matched: false")
}

#[test]
fn a_long_message_of_a_former_process_does_not_go_on_with_another_one() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut room) = (patterned(1, LONG), vec![0; 1000]);
    hosts[1].receive(1, 0, 3, sink(&mut room));
    hosts[0].send(0, 3, Span::of(&long));
    while !is_matched(&mut hosts[0]) {}
    // The completion of the receive is in the ring now, or comes while the peer is lost.
    let card = hosts[0].matching.card().unwrap();
    hosts[1].matching.add_peer(0, &card).unwrap();
    while hosts[1].end_of(1).is_none() {
        hosts[1].progress();
    }
    assert_eq!(hosts[1].end_of(1), Some(Err(DeviceFailure::PeerFailed(0))));
    assert_eq!(hosts[0].matching.transport().count(1).unwrap().0, 0, "nothing was asked for");
}

/// Whether a host was woken.
fn has_rung(host: &Matching) -> bool {
    let bell = host.bell().expect("it has a bell");
    let mut bell = libc::pollfd { fd: bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: it is one descriptor, which is open.
    unsafe { libc::poll(&raw mut bell, 1, 0) == 1 }
}

#[test]
fn hosts_that_sleep_miss_no_piece() {
    let devices = start_ringing();
    let mut hosts = pair(&devices.files);
    let (messages, mut memory) = ([0, 1].map(|me| patterned(me, LONG)), [0, 1].map(|_| vec![0; LONG]));
    for (me, host) in hosts.iter_mut().enumerate() {
        // With room that is in the device, so the hosts have nothing to look for.
        host.receive(1, 1 - host.rank, 3, sink(&mut memory[me][..10_000]));
        host.send(0, 3, Span::of(&messages[me]));
    }
    let mut sleeps = 0;
    while hosts.iter().any(|host| host.ended.len() < 2) {
        for host in &mut hosts {
            if !host.matching.arm() || has_rung(&host.matching) {
                host.progress();
            } else {
                sleeps += 1;
            }
        }
    }
    assert!(sleeps != 0 && (0..2).all(|me| memory[me][..10_000] == messages[1 - me][..10_000]));
}

#[test]
fn a_lost_peer_ends_its_long_messages() {
    let engine = Config { peers: 2, requests: 16, unexpected: 16, units: 16, unit_bytes: 512, ..Config::SMALLEST };
    let devices = Wired::start(2, Limits { engine, communicators: 1, messages: 1 });
    let mut hosts = pair(&devices.files);
    let (messages, mut memory) = ([0, 1].map(|me| patterned(me, LONG)), [0, 1].map(|_| vec![0; LONG]));
    begin_both(&mut hosts, &messages, &mut memory);
    // Some pieces have come.
    while !has_begun(&memory[0], &messages[1]) {
        hosts.iter_mut().for_each(Host::progress);
    }
    let [mut first, second] = hosts;
    let mut gone = second.matching;
    gone.abandon();
    gone.transport().end_as_failure();
    drop(gone);
    while first.end_of(0).is_none() || first.end_of(1).is_none() {
        first.progress();
    }
    assert_eq!([0, 1].map(|number| first.end_of(number)), [Some(Err(DeviceFailure::PeerFailed(1))); 2]);
    while first.matching.is_busy() {
        first.progress();
    }
}

#[test]
fn a_host_sends_long_messages_to_itself() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let (long, mut memory) = ([1, 2].map(|seed| patterned(seed, LONG)), [0, 1].map(|_| vec![0; LONG]));
    for number in 0..2 {
        let operation = Operation { request: request(number), comm: hosts[0].comm, rank: 0, peer: 0, tag: 3 };
        // SAFETY: the memory lives and does not change until the send has ended.
        let sent = unsafe { hosts[0].matching.isend(&operation, Mode::Standard, Span::of(&long[number])) };
        assert!(matches!(sent, Ok(Sending::Pending(_))));
        hosts[0].receive(10 + number, 0, 3, sink(&mut memory[number]));
    }
    finish(&mut hosts, [&[0, 1, 10, 11], &[]]);
    for number in 0..2 {
        assert_eq!((hosts[0].end_of(number), hosts[0].end_of(10 + number)), (SENT, got(LONG, 3, 0)));
    }
    assert!(memory == long);
}

/// More messages are on the way than there are buffers for pieces, so some of them have no operation of the device when the peer is lost.
#[test]
fn a_process_in_the_place_of_another_gets_nothing_of_its_messages() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let mut memory = [0; 4].map(|_: i32| vec![0; LONG]);
    let long = patterned(1, LONG);
    for (number, memory) in memory.iter_mut().enumerate() {
        hosts[0].receive(10 + number, 1, 3, sink(memory));
    }
    for number in 0..2 {
        hosts[1].send(number, 3, Span::of(&long));
    }
    while !has_begun(&memory[0], &long) {
        hosts.iter_mut().for_each(Host::progress);
    }
    let card = hosts[1].matching.card().unwrap();
    hosts[0].matching.add_peer(1, &card).unwrap();
    // Receives that have matched end. Those that have not belong to the communicator of the former process.
    while hosts[0].end_of(10).is_none() || hosts[0].end_of(11).is_none() {
        hosts[0].progress();
    }
    assert_eq!([10, 11].map(|number| hosts[0].end_of(number)), [Some(Err(DeviceFailure::PeerFailed(1))); 2]);
}

/// Whether the begin of a message has come.
fn has_begun(memory: &[u8], message: &[u8]) -> bool {
    // SAFETY: it is a byte of the slice. The host writes it in this thread, as the memory of a receive.
    message[100] != 0 && unsafe { memory.as_ptr().add(100).read_volatile() } == message[100]
}

/// The device may fail before the host has made a call after the send.
#[test]
fn a_long_send_ends_though_its_device_fails_at_once() {
    let mut devices = start_blind();
    let mut hosts = acquaint([0, 1].map(|node| Matching::new(devices.open(node))));
    let long = patterned(1, LONG);
    hosts[0].send(0, 3, Span::of(&long));
    devices.stop();
    finish(&mut hosts, [&[0], &[]]);
    assert_eq!(hosts[0].end_of(0), Some(Err(DeviceFailure::Device)));
    assert!(!hosts[0].matching.is_busy());
}

#[test]
fn a_failed_device_ends_its_long_messages() {
    let mut devices = start_blind();
    let mut hosts = acquaint([0, 1].map(|node| Matching::new(devices.open(node))));
    let (messages, mut memory) = ([0, 1].map(|me| patterned(me, LONG)), [0, 1].map(|_| vec![0; LONG]));
    begin_both(&mut hosts, &messages, &mut memory);
    while !has_begun(&memory[0], &messages[1]) && hosts.iter().all(|host| host.ended.is_empty()) {
        hosts.iter_mut().for_each(Host::progress);
    }
    devices.stop();
    finish(&mut hosts, [&[0, 1], &[0, 1]]);
    for host in &hosts {
        assert!(host.matching.has_failed());
        assert_eq!([0, 1].map(|number| host.end_of(number)), [Some(Err(DeviceFailure::Device)); 2]);
    }
}

#[test]
fn the_sender_of_a_long_message_that_nobody_receives_goes_on() {
    let devices = start_blind();
    let mut hosts = pair(&devices.files);
    let long = patterned(1, LONG);
    hosts[0].send(0, 3, Span::of(&long));
    hosts[1].matching.refuse_unexpected();
    finish(&mut hosts, [&[0], &[]]);
    assert_eq!(hosts[0].end_of(0), SENT);
    let refused = hosts[1].matching.refused_messages().expect("there was one");
    assert_eq!((refused.count, refused.bytes, refused.largest, refused.peer), (1, LONG as u64, LONG as u64, Peer(0)));
}

/// A host, and the transport of a peer that does what it likes, with its communicators: that of messages and that of pieces.
fn hostile(files: &[PathBuf]) -> (Host, Transport, [towline_dpu::transport::Comm; 2]) {
    let (mut matching, mut peer) = (Matching::new(open(files, 0)), open(files, 1));
    let card = peer.card().unwrap();
    let own = matching.card().unwrap();
    let limits = &own[own.len() - 16..];
    matching.add_peer(0, &own).unwrap();
    matching.add_peer(1, &[&card, limits].concat()).unwrap();
    peer.add_peer(0, &own[..own.len() - 16]).unwrap();
    peer.add_peer(1, &card).unwrap();
    let comm = matching.add_comm(1, &mut [0, 1].map(Peer).into_iter(), 0, false).unwrap().unwrap();
    let comms = [peer.add_comm(1, &[0, 1], 1).unwrap(), peer.add_lasting_comm(PIPELINES, 0, 1).unwrap()];
    (Host { matching, rank: 0, comm, ended: Vec::new() }, peer, comms)
}

#[test]
fn a_peer_that_asks_for_more_than_the_message_is_lost() {
    for want in [
        [u64::MAX, 2],
        [LONG as u64 - 1, 2],
        [LONG as u64, 1],
        [0, LONG as u64], // more than a piece
    ] {
        let devices = start_blind();
        let (mut host, mut peer, [comm, pieces]) = hostile(&devices.files);
        let long = patterned(1, LONG);
        host.send(0, 3, Span::of(&long));
        let mut memory = [0; 8];
        // SAFETY: the memory lives until the receive has ended.
        let receive = unsafe { peer.irecv(comm, Source::Any, Tag::Any, sink(&mut memory)) }.unwrap();
        let status = peer.wait(receive).unwrap();
        assert_eq!((status.received % ANNOUNCED, status.delivered), (LONG as u64, 0));
        let bytes: Vec<u8> = want.iter().flat_map(|word| word.to_le_bytes()).collect();
        let number = (status.received / ANNOUNCED) as u32;
        // SAFETY: the bytes live until the send has ended.
        let _ = unsafe { peer.isend(pieces, 0, number, Mode::Standard, Span::of(&bytes)) }.unwrap();
        while host.end_of(0).is_none() {
            host.progress();
        }
        assert_eq!(host.end_of(0), Some(Err(DeviceFailure::PeerFailed(1))), "{want:?}");
        while host.matching.is_busy() {
            host.progress();
        }
    }
}

#[test]
fn a_peer_that_sends_pieces_of_another_length_is_lost() {
    for len in [0, 1, 20_000] {
        let devices = start_blind();
        let (mut host, mut peer, [comm, pieces]) = hostile(&devices.files);
        let mut memory = vec![0; LONG];
        host.receive(0, 1, 3, sink(&mut memory));
        let announced = peer.announce(comm, 0, 3, Mode::Standard, 5 * ANNOUNCED + LONG as u64).unwrap();
        while peer.test(announced).is_none() {
            host.progress();
            peer.progress();
        }
        let bytes = vec![0; len];
        // SAFETY: the bytes live until the send has ended.
        let _ = unsafe { peer.isend(pieces, 0, 1 << 16 | 5, Mode::Standard, Span::of(&bytes)) };
        while host.end_of(0).is_none() {
            host.progress();
            peer.progress();
        }
        assert_eq!(host.end_of(0), Some(Err(DeviceFailure::PeerFailed(1))), "{len} bytes");
    }
}

#[test]
fn a_host_of_an_earlier_version_gets_no_message_in_pieces() {
    let devices = start_blind();
    let (mut matching, mut peer) = (Matching::new(open(&devices.files, 0)), open(&devices.files, 1));
    let cards = [matching.transport().card().unwrap(), peer.card().unwrap()];
    for (number, card) in (0..).zip(&cards) {
        matching.add_peer(number, card).unwrap();
    }
    let comm = matching.add_comm(1, &mut [0, 1].map(Peer).into_iter(), 0, false).unwrap().unwrap();
    let mut host = Host { matching, rank: 0, comm, ended: Vec::new() };
    let long = vec![0; LONG];
    assert_eq!(host.try_send(0, 3, Mode::Standard, Span::of(&long)), Err(Refusal::TooLong));
}
