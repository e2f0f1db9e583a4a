//! Announcements: messages that have a length and no bytes.

use towline_window::command::{ANNOUNCED, ANY, Body, Command, MOST_ANNOUNCED, Mode, PIPELINES};
use towline_window::completion::{Done, Failure};

use super::host_regions::reach;
use super::{LIMITS, Pair, sink, with_pair};

const MODES: [Mode; 3] = [Mode::Standard, Mode::Synchronous, Mode::Complete];
const NOTHING: Body = Body { region: 0, at: 0, bytes: 0 };

impl Pair<'_> {
    fn announce(&mut self, me: usize, comm: u32, tag: u32, mode: Mode, length: u64) -> u64 {
        self.begin(me, Command::Announce { comm, dest: 1 - me as u32, tag, mode, length })
    }
}

fn found(tag: u32, received: u64) -> Option<Result<Done, Failure>> {
    Some(Ok(Done { rank: 0, tag, received, ..Done::default() }))
}

#[test]
fn an_announcement_matches_as_a_message_and_brings_no_bytes() {
    with_pair(|pair, comms| {
        for length in [ANNOUNCED, 7 * ANNOUNCED + 12345, MOST_ANNOUNCED] {
            for mode in MODES {
                for (posted, room) in [(true, 5000), (false, 5000), (true, 0), (false, 0)] {
                    let body = if room == 0 { NOTHING } else { sink(room) };
                    pair.nodes[1].memory.write(sink(room).at, &[0xee; 5000]).unwrap();
                    let receive = Command::Receive { comm: comms[1], source: ANY, tag: ANY, body };
                    let early = posted.then(|| pair.begin(1, receive));
                    pair.settle();
                    let sent = pair.announce(0, comms[0], 3, mode, length);
                    if !posted {
                        assert_eq!(pair.result(0, sent), None, "nobody has received it");
                    }
                    let received = early.unwrap_or_else(|| pair.begin(1, receive));
                    assert_eq!(pair.result(1, received), found(3, length), "{length} {mode:?} {posted} {room}");
                    assert_eq!(pair.result(0, sent), Some(Ok(Done::default())));
                    assert!(pair.received(1, 5000).iter().all(|byte| *byte == 0xee));
                }
            }
        }
        assert!([0, 1].iter().all(|me| pair.nodes[*me].server.in_use().operations == 0));
    });
}

#[test]
fn probes_find_announcements_in_the_order_of_all_messages() {
    with_pair(|pair, comms| {
        let first = pair.announce(0, comms[0], 3, Mode::Standard, ANNOUNCED + 5);
        let second = pair.send(0, comms[0], 3, Mode::Standard, b"after");
        pair.settle();
        let probe = |take| Command::Probe { comm: comms[1], source: 0, tag: ANY, take };
        assert_eq!(pair.call(1, probe(false)), Ok(Done { tag: 3, received: ANNOUNCED + 5, ..Done::default() }));
        let message = pair.call(1, probe(true)).unwrap();
        assert_eq!(message.received, ANNOUNCED + 5);
        let received = pair.begin(1, Command::ReceiveMatched { message: message.value, body: NOTHING });
        assert_eq!(
            (pair.result(1, received), pair.result(0, first)),
            (found(3, ANNOUNCED + 5), Some(Ok(Done::default())))
        );
        let received = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 3, body: sink(5) });
        assert!(matches!(pair.result(1, received), Some(Ok(Done { received: 5, delivered: 5, .. }))));
        assert_eq!(pair.result(0, second), Some(Ok(Done::default())));
    });
}

#[test]
fn an_announcement_may_ask_for_a_posted_receive() {
    with_pair(|pair, comms| {
        let refused = pair.announce(0, comms[0], 3, Mode::Ready, ANNOUNCED);
        assert_eq!(pair.result(0, refused), Some(Err(Failure::NotReady)));
        let received = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 3, body: sink(10) });
        pair.settle();
        let sent = pair.announce(0, comms[0], 3, Mode::Ready, ANNOUNCED);
        assert_eq!((pair.result(1, received), pair.result(0, sent)), (found(3, ANNOUNCED), Some(Ok(Done::default()))));
    });
}

#[test]
fn an_announcement_comes_into_a_host_region_too() {
    with_pair(|pair, comms| {
        reach(pair);
        let region = pair.region(1);
        let body = Body { region, at: 100, bytes: 5000 };
        let received = pair.begin(1, Command::Receive { comm: comms[1], source: 0, tag: 3, body });
        let sent = pair.announce(0, comms[0], 3, Mode::Standard, ANNOUNCED + 9);
        assert_eq!(
            (pair.result(1, received), pair.result(0, sent)),
            (found(3, ANNOUNCED + 9), Some(Ok(Done::default())))
        );
        assert_eq!(pair.nodes[1].server.in_use().host, [1, 0]);
    });
}

#[test]
fn announcements_are_refused_as_sends_are() {
    with_pair(|pair, comms| {
        let command = |comm, dest| Command::Announce { comm, dest, tag: 1, mode: Mode::Standard, length: ANNOUNCED };
        assert_eq!(pair.call(0, command(99, 1)), Err(Failure::NoSuchThing));
        assert_eq!(pair.call(0, command(comms[0], 2)), Err(Failure::NoSuchThing));
        for length in [0, ANNOUNCED - 1, MOST_ANNOUNCED + 1, u64::MAX] {
            let command = Command::Announce { comm: comms[0], dest: 1, tag: 1, mode: Mode::Standard, length };
            assert_eq!(pair.call(0, command), Err(Failure::Malformed), "{length}");
        }
        assert_eq!(pair.nodes[0].server.in_use().operations, 0);
    });
}

#[test]
fn there_is_always_room_for_the_communicator_of_pieces() {
    with_pair(|pair, _| {
        let add = |context, size| Command::AddCommunicator { context, rank: 0, size, peers: NOTHING };
        for context in 10..9 + LIMITS.communicators {
            pair.call(0, add(context, 2)).unwrap();
        }
        assert_eq!(pair.call(0, add(100, 2)), Err(Failure::Full));
        let comm = pair.call(0, add(PIPELINES, 0)).unwrap().value;
        assert_eq!(pair.call(0, add(PIPELINES, 0)), Err(Failure::Malformed), "there is one");
        assert_eq!(pair.call(0, add(100, 0)), Err(Failure::Malformed), "only that one has all peers as ranks");
        assert_eq!(pair.call(0, add(100, 2)), Err(Failure::Full));
        pair.call(0, Command::DeleteCommunicator { comm }).unwrap();
        assert_eq!(pair.call(0, add(100, 2)), Err(Failure::Full), "its room is for no other one");
        pair.call(0, add(PIPELINES, 0)).unwrap();
    });
}

#[test]
fn the_completion_of_an_announcement_has_its_sender() {
    with_pair(|pair, comms| {
        let received = pair.begin(0, Command::Receive { comm: comms[0], source: ANY, tag: ANY, body: sink(10) });
        pair.announce(1, comms[1], 3, Mode::Standard, ANNOUNCED + 1);
        let done = pair.result(0, received).expect("it is matched").expect("it has no bytes");
        assert_eq!((done.rank, done.value), (1, 1));
    });
}

#[test]
fn messages_of_pieces_are_counted_and_are_not_left() {
    with_pair(|pair, comms| {
        let add = |rank| Command::AddCommunicator { context: PIPELINES, rank, size: 0, peers: NOTHING };
        let pieces = [0, 1].map(|me| pair.call(me as usize, add(me)).unwrap().value);
        pair.send(0, pieces[0], 7, Mode::Standard, b"a piece");
        pair.settle();
        let count = pair.call(1, Command::Count { peer: 0 }).unwrap();
        assert_eq!((count.value, count.received), (1, 0));
        pair.send(0, comms[0], 7, Mode::Standard, b"a message");
        pair.settle();
        let count = pair.call(1, Command::Count { peer: 0 }).unwrap();
        assert_eq!((count.value, count.received), (2, 1));
    });
}
