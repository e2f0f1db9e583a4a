//! Tests of the checker: it accepts a correct history, and reports each kind of falsification.

use std::collections::VecDeque;

use towline_host_tests::random::Random;
use towline_host_tests::sim::history::{
    History, MODES, Message, Mode, Outcome, Receive, Record, SendFailure, digest_of,
};
use towline_host_tests::sim::history::{Violation, check};

const NODES: u32 = 3;

/// The history of an ideal MPI: messages arrive at once, and receives are posted before or after them in any order.
fn ideal(seed: u64) -> History {
    let mut random = Random::new(seed);
    let mut history = History::default();
    let mut queued: Vec<VecDeque<(u32, Message)>> = vec![VecDeque::new(); NODES as usize];
    let mut scratch = vec![];
    for _ in 0..40 {
        for _ in 0..random.between(1, 6) {
            let message = Message {
                from: random.below(NODES.into()) as u32,
                to: random.below(NODES.into()) as u32,
                comm: random.below(2) as u32,
                tag: random.below(3) as u32,
                len: random.between(9, 300),
                mode: random.pick(&MODES),
            };
            let number = history.send(message);
            queued[message.to as usize].push_back((number, message));
        }
        let at = random.below(NODES.into()) as u32;
        let all = random.chance(300);
        while let Some((first, message)) = queued[at as usize].front().copied() {
            let wild = random.chance(300);
            let receive = Receive {
                at,
                comm: message.comm,
                source: (!wild).then_some(message.from),
                tag: (!random.chance(300)).then_some(message.tag),
                buffer: if random.chance(100) { message.len - 1 } else { message.len + random.below(20) },
            };
            take(&mut history, &mut queued[at as usize], receive, &mut scratch);
            if !all || first % 7 == 0 {
                break;
            }
        }
    }
    for at in 0..NODES {
        while let Some((_, message)) = queued[at as usize].front().copied() {
            let receive =
                Receive { at, comm: message.comm, source: Some(message.from), tag: Some(message.tag), buffer: 1000 };
            take(&mut history, &mut queued[at as usize], receive, &mut scratch);
        }
    }
    let cancelled = history.recv(Receive { at: 0, comm: 9, source: None, tag: None, buffer: 1 });
    history.note(Record::Received(cancelled, Outcome::Cancelled));
    history.note(Record::Level { node: 0, what: "requests", before: 0, after: 0 });
    history
}

fn take(history: &mut History, queue: &mut VecDeque<(u32, Message)>, receive: Receive, scratch: &mut Vec<u8>) {
    let number = history.recv(receive);
    let fits = |(_, message): &(u32, Message)| {
        message.comm == receive.comm
            && receive.source.is_none_or(|source| source == message.from)
            && receive.tag.is_none_or(|tag| tag == message.tag)
    };
    let at = queue.iter().position(fits).expect("the history has a message for each receive");
    let (message, what) = queue.remove(at).expect("just found");
    let delivered = what.len.min(receive.buffer);
    let outcome = Outcome::Received {
        source: what.from,
        tag: what.tag,
        received: what.len,
        delivered,
        truncated: what.len > receive.buffer,
        digest: digest_of(message, delivered, scratch),
    };
    history.note(Record::Received(number, outcome));
    history.note(Record::Sent(message, None));
    let Outcome::Received { digest, .. } = outcome else { return };
    history.note(Record::Buffer(number, digest, true));
}

/// Falsifies a history at every position where `plant` can. Returns the checker's result for each.
fn falsified(plant: impl Fn(&mut History, usize) -> bool) -> Vec<Option<Violation>> {
    let mut verdicts = vec![];
    for seed in 0..2 {
        let good = ideal(seed);
        check(&good).expect("the checker accepts the ideal history");
        for at in 0..good.records.len() {
            let mut bad = good.clone();
            if plant(&mut bad, at) {
                verdicts.push(check(&bad).err());
            }
        }
    }
    assert!(verdicts.len() > 1, "the bug could not be planted");
    verdicts
}

fn received(history: &mut History, at: usize) -> Option<&mut Outcome> {
    match &mut history.records[at] {
        Record::Received(_, outcome @ Outcome::Received { .. }) => Some(outcome),
        _ => None,
    }
}

#[test]
fn a_perfect_job_passes_and_is_counted() {
    let mut total = 0;
    for seed in 0..50 {
        let summary = check(&ideal(seed)).expect("the checker accepts the ideal history");
        assert_eq!(summary.cancelled, 1);
        assert!(summary.messages > 40 && summary.wildcards > 10 && summary.bytes > 5000);
        total += summary.truncated;
    }
    assert!(total > 50);
}

#[test]
fn a_wrong_order_is_found() {
    // Two receives with the same receiver, sender and tag swap their messages.
    let verdicts = falsified(|history, at| {
        let Some(one @ Outcome::Received { source, tag, .. }) = received(history, at).copied() else { return false };
        let Record::Received(number, _) = history.records[at] else { return false };
        let posted = |history: &History, number: u32| {
            let mut posted = history.records.iter().filter_map(|record| match record {
                Record::Recv(receive) => Some(*receive),
                _ => None,
            });
            posted.nth(number as usize).expect("a receive that ended was posted")
        };
        let mine = posted(history, number);
        let other = (at + 1..history.records.len()).find(|other| match history.records[*other] {
            Record::Received(next, Outcome::Received { source: from, tag: with, .. }) => {
                (from, with) == (source, tag) && {
                    let next = posted(history, next);
                    (next.at, next.comm) == (mine.at, mine.comm)
                }
            }
            _ => false,
        });
        let Some(other) = other else { return false };
        let swapped = *received(history, other).expect("just matched");
        *received(history, at).expect("just matched") = swapped;
        *received(history, other).expect("just matched") = one;
        true
    });
    assert!(verdicts.iter().all(Option::is_some), "a swap went unnoticed");
    let order = |verdict: &Option<Violation>| {
        matches!(verdict, Some(Violation::WrongOrder { .. } | Violation::WrongBytes(_, _, Some(_))))
    };
    assert!(verdicts.iter().any(order), "{verdicts:?}");
}

#[test]
fn a_wrong_order_of_tags_is_found() {
    // A receive of any tag reports a tag of its sender that does not come first.
    let verdicts = falsified(|history, at| {
        let Some(Outcome::Received { tag, .. }) = received(history, at) else { return false };
        *tag = (*tag + 1) % 3;
        true
    });
    assert!(verdicts.iter().all(Option::is_some));
    assert!(verdicts.iter().any(|verdict| matches!(verdict, Some(Violation::WrongOrder { .. }))));
    assert!(verdicts.iter().any(|verdict| matches!(verdict, Some(Violation::WrongMatch(..)))));
}

#[test]
fn a_duplicated_completion_is_found() {
    let verdicts = falsified(|history, at| {
        let record = history.records[at].clone();
        let ends = matches!(record, Record::Received(..) | Record::Sent(..));
        if ends {
            history.records.push(record);
        }
        ends
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::CompletedTwice(..)))));
}

#[test]
fn a_missing_completion_is_found() {
    let verdicts = falsified(|history, at| {
        let ends = matches!(history.records[at], Record::Received(..) | Record::Sent(..));
        if ends {
            history.records.remove(at);
        }
        ends
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::NotCompleted(..)))));
}

#[test]
fn a_lost_message_is_found() {
    // A receive that got a message reports that it was cancelled.
    let verdicts = falsified(|history, at| match received(history, at) {
        Some(outcome) => {
            *outcome = Outcome::Cancelled;
            true
        }
        None => false,
    });
    assert!(verdicts.iter().all(Option::is_some));
    assert!(verdicts.iter().any(|verdict| matches!(verdict, Some(Violation::Lost(..)))));
}

#[test]
fn a_lost_fragment_is_found() {
    // Eight bytes in the middle never arrived.
    let verdicts = falsified(|history, at| {
        let Record::Received(number, Outcome::Received { delivered, .. }) = history.records[at] else { return false };
        let _ = number;
        if delivered < 32 {
            return false;
        }
        let message = history.records[at + 1].clone();
        let Record::Sent(message, _) = message else { return false };
        let mut bytes = towline_host_tests::pattern::patterned(message.into(), delivered as usize);
        bytes[16..24].fill(0);
        let Some(Outcome::Received { digest, .. }) = received(history, at) else { return false };
        *digest = towline_host_tests::sim::history::digest(&bytes);
        true
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::WrongBytes(_, _, None)))));
}

#[test]
fn wrong_lengths_and_hidden_truncation_are_found() {
    let verdicts = falsified(|history, at| match received(history, at) {
        Some(Outcome::Received { truncated, .. }) => {
            *truncated = !*truncated;
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::WrongLength(..)))));
    let verdicts = falsified(|history, at| match received(history, at) {
        Some(Outcome::Received { received, .. }) => {
            *received += 1;
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(Option::is_some));
}

#[test]
fn a_late_write_and_an_overrun_are_found() {
    let verdicts = falsified(|history, at| match &mut history.records[at] {
        Record::Buffer(_, digest, _) => {
            *digest ^= 1;
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::WrittenAfterEnd(_)))));
    let verdicts = falsified(|history, at| match &mut history.records[at] {
        Record::Buffer(_, _, intact) => {
            *intact = false;
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::Overrun(_)))));
}

#[test]
fn a_leaked_slot_is_found() {
    let verdicts = falsified(|history, at| match &mut history.records[at] {
        Record::Level { after, .. } => {
            *after += 1;
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(|verdict| *verdict == Some(Violation::Leaked(0, "requests", 0, 1))));
}

#[test]
fn a_failed_send_is_found() {
    let verdicts = falsified(|history, at| match &mut history.records[at] {
        Record::Sent(_, error) => {
            *error = Some(SendFailure::Other("out of memory".into()));
            true
        }
        _ => false,
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::SendFailed(..)))));
}

#[test]
fn a_synchronous_send_that_did_not_wait_is_found() {
    let verdicts = falsified(|history, at| {
        let Record::Send(Message { mode: Mode::Synchronous, .. }) = history.records[at] else { return false };
        let number = history.records[..at].iter().filter(|record| matches!(record, Record::Send(_))).count() as u32;
        let end =
            history.records.iter().position(|record| *record == Record::Sent(number, None)).expect("the send ended");
        let end = history.records.remove(end);
        history.records.insert(at + 1, end);
        true
    });
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Some(Violation::NotSynchronous(..)))));
}

#[test]
fn a_receive_before_its_message_is_found() {
    let mut history = History::default();
    let receive = history.recv(Receive { at: 1, comm: 0, source: Some(0), tag: Some(5), buffer: 8 });
    let outcome = Outcome::Received {
        source: 0,
        tag: 5,
        received: 8,
        delivered: 8,
        truncated: false,
        digest: digest_of(0, 8, &mut vec![]),
    };
    history.note(Record::Received(receive, outcome));
    history.send(Message { from: 0, to: 1, comm: 0, tag: 5, len: 8, mode: Mode::Standard });
    history.note(Record::Sent(0, None));
    assert_eq!(check(&history), Err(Violation::ReceivedBeforeSent(0)));
}

/// A history with messages 0 to `sent` from node 0 to node 1 with one tag. Receives got these messages, in the order in
/// which they were posted; `None` means that a receive failed because of node 0. Node 0 dies at the end.
fn stream(sent: u32, got: &[Option<u32>], dies: bool) -> Result<(), Violation> {
    let mut history = History::default();
    let what = Message { from: 0, to: 1, comm: 0, tag: 5, len: 20, mode: Mode::Standard };
    for _ in 0..sent {
        let number = history.send(what);
        history.note(Record::Sent(number, None));
    }
    if dies {
        history.note(Record::Died(0));
    }
    for got in got {
        let receive = history.recv(Receive { at: 1, comm: 0, source: Some(0), tag: Some(5), buffer: 20 });
        let digest = |message| digest_of(message, 20, &mut vec![]);
        let outcome = got.map_or(Outcome::PeerFailed(0), |message| Outcome::Received {
            source: 0,
            tag: 5,
            received: 20,
            delivered: 20,
            truncated: false,
            digest: digest(message),
        });
        history.note(Record::Received(receive, outcome));
    }
    check(&history).map(|_| ())
}

#[test]
fn only_messages_of_dead_nodes_may_be_lost() {
    assert_eq!(stream(3, &[Some(0), Some(1), None], true), Ok(()));
    assert!(matches!(stream(3, &[Some(0), Some(1)], false), Err(Violation::Lost(2, _))));
    assert!(matches!(stream(3, &[Some(0), Some(1), None], false), Err(Violation::FalseFailure(2, _, 0))));
}

#[test]
fn no_message_takes_the_place_of_a_lost_one() {
    assert!(matches!(stream(3, &[Some(0), Some(2)], true), Err(Violation::WrongOrder { receive: 1, .. })));
    // Except for one that a receive had matched before it failed.
    assert_eq!(stream(3, &[Some(0), None, Some(2)], true), Ok(()));
    assert!(matches!(stream(4, &[Some(0), None, Some(3)], true), Err(Violation::WrongOrder { receive: 2, .. })));
}

#[test]
fn a_death_excuses_no_duplicate() {
    assert!(stream(3, &[Some(0), Some(0)], true).is_err());
    assert!(stream(2, &[Some(0), Some(1), Some(1)], true).is_err());
}

#[test]
fn failures_are_excused_by_the_death_of_the_known_incarnation() {
    let what = Message { from: 0, to: 1, comm: 0, tag: 5, len: 20, mode: Mode::Standard };
    let failing = |before: &[Record], after: &[Record]| {
        let mut history = History::default();
        before.iter().for_each(|record| history.note(record.clone()));
        let number = history.send(what);
        after.iter().for_each(|record| history.note(record.clone()));
        history.note(Record::Sent(number, Some(SendFailure::Peer(1))));
        check(&history).map(|_| ())
    };
    let met = Record::Introduced { node: 0, peer: 1 };
    assert_eq!(failing(&[], &[Record::Died(1)]), Ok(()));
    assert_eq!(failing(&[Record::Died(1)], &[]), Ok(()));
    assert_eq!(failing(&[Record::Disconnected(1, 0)], &[]), Ok(()));
    assert_eq!(failing(&[Record::Died(1), met.clone()], &[Record::Died(1)]), Ok(()));
    let in_vain = [(vec![], vec![]), (vec![Record::Died(2)], vec![]), (vec![Record::Died(1), met], vec![])];
    for (before, after) in in_vain {
        assert!(matches!(failing(&before, &after), Err(Violation::SendFailed(0, SendFailure::Peer(1)))), "{before:?}");
    }
}

#[test]
fn a_synchronous_send_to_a_node_that_died_unmatched_is_found() {
    let unmatched = |posted: bool| {
        let mut history = History::default();
        if posted {
            history.recv(Receive { at: 1, comm: 0, source: None, tag: Some(5), buffer: 20 });
        }
        let what = Message { from: 0, to: 1, comm: 0, tag: 5, len: 20, mode: Mode::Synchronous };
        let number = history.send(what);
        history.note(Record::Sent(number, None));
        history.note(Record::Died(1));
        check(&history).map(|_| ())
    };
    assert_eq!(unmatched(true), Ok(()));
    assert!(matches!(unmatched(false), Err(Violation::Unmatched(0, _))));
}

/// A receive of any tag may have taken the first message, so a receive with a tag must have taken the second.
#[test]
fn failed_receives_may_have_taken_any_consistent_set_of_messages() {
    let mut history = History::default();
    for tag in [2, 0, 0, 1] {
        let number = history.send(Message { from: 1, to: 0, comm: 0, tag, len: 9, mode: Mode::Standard });
        history.note(Record::Sent(number, None));
    }
    for tag in [None, Some(0), Some(0), None] {
        history.recv(Receive { at: 0, comm: 0, source: Some(1), tag, buffer: 9 });
    }
    for (number, tag) in [(2, 0), (3, 1)] {
        let digest = digest_of(number, 9, &mut vec![]);
        let got = Outcome::Received { source: 1, tag, received: 9, delivered: 9, truncated: false, digest };
        history.note(Record::Received(number, got));
    }
    history.note(Record::Died(0));
    assert_eq!(check(&history).map(|summary| summary.lost), Ok(2));
}
