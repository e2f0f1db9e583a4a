//! Tests of reports: their texts, their bytes, and the ranks that can never go on.

use super::*;

/// An operation of a kind with a peer and a tag, in the world.
fn operation(kind: OperationKind, rank: u32, tag: u32) -> Operation {
    let peer = Peer::One { rank, index: 0 };
    Operation { kind, peer, tag: Some(tag), communicator: WORLD, bytes: 8, moved: 0, stage: Stage::Unmatched }
}

fn any(kind: OperationKind) -> Operation {
    Operation { peer: Peer::Any, tag: None, ..operation(kind, 0, 0) }
}

fn recv(rank: u32, tag: u32) -> Operation {
    operation(OperationKind::Receive, rank, tag)
}

fn finish() -> Operation {
    Operation { peer: Peer::All, tag: None, bytes: 0, ..operation(OperationKind::Finish, 0, 0) }
}

/// The report of a rank that has waited 3.2 s for this operation.
fn waiting(rank: u32, operation: Operation) -> Report {
    let mut report = Report::new(rank, 0, 1, Activity::Waiting);
    report.add_wait(Wait { operation, future: false, waited_ms: 3210 });
    report
}

fn unreceived(rank: u32, tag: u32, bytes: u64) -> Unreceived {
    Unreceived { rank, index: 0, tag, communicator: WORLD, count: 1, bytes, largest: bytes, taken: false }
}

/// A job of ranks in these states.
fn job(states: impl IntoIterator<Item = RankState>) -> JobReport {
    let rank = |(rank, state)| RankReport { rank, pid: Some(100 + rank), host: "here".into(), state };
    JobReport { reason: Reason::Asked, ranks: (0..).zip(states).map(rank).collect() }
}

/// A job in which these ranks wait, each for its operation.
fn all_waiting(operations: impl IntoIterator<Item = Operation>) -> JobReport {
    job((0..).zip(operations).map(|(rank, operation)| RankState::Answered(vec![waiting(rank, operation)])))
}

/// The lines about ranks that can never go on.
fn findings(job: &JobReport) -> Vec<String> {
    job.lines().into_iter().filter(|line| line.starts_with("probable deadlock")).collect()
}

#[test]
fn a_report_names_operation_peer_tag_communicator_bytes_and_time() {
    let mut report = waiting(0, recv(1, 7));
    report.add_operation(Operation { communicator: 9, ..operation(OperationKind::SynchronousSend, 2, 3) });
    report.add_unreceived(&unreceived(1, 5, 10));
    report.add_unreceived(&unreceived(1, 5, 30));
    report.add_unreceived(&unreceived(2, 5, 4));
    let lines = [
        "rank 0 waits in recv for 3.2 s: a message from rank 1 with tag 7 in the world, room for 8 bytes",
        "rank 0 in progress: ssend: 8 bytes to rank 2 with tag 3 in communicator 9, which no receive has matched",
        "rank 0 not received: 2 messages from rank 1 with tag 5 in the world, 40 bytes, the longest 30",
        "rank 0 not received: 1 message from rank 2 with tag 5 in the world, 4 bytes",
    ];
    assert_eq!(report.to_string(), lines.join("\n"));
    let json = "{\"rank\":0,\"index\":0,\"contexts\":1,\"several_threads\":false,\"activity\":\"waiting\",\"step\":null,\
                \"waits\":[{\"operation\":\"recv\",\"peer\":1,\"peer_index\":0,\"tag\":7,\"communicator\":1,\"bytes\":8,\"moved\":0,\
                \"stage\":\"unmatched\",\"future\":false,\"waited_ms\":3210}],\"operations\":[],\"more_operations\":0,\
                \"unreceived\":[],\"more_unreceived\":0}";
    assert_eq!(waiting(0, recv(1, 7)).to_json(), json);
}

#[test]
fn a_report_has_a_bounded_number_of_entries_and_counts_the_rest() {
    let mut report = Report::new(0, 0, 1, Activity::Outside);
    for tag in 0..LISTED_MAX as u32 + 3 {
        report.add_operation(recv(1, tag));
        report.add_unreceived(&unreceived(1, tag, 1));
    }
    assert_eq!((report.operations.len(), report.more_operations), (LISTED_MAX, 3));
    assert_eq!((report.unreceived.len(), report.more_unreceived), (LISTED_MAX, 3));
    assert_eq!(Report::decode(&report.encode()).as_ref(), Some(&report));
    report.operations.push(recv(1, 0));
    assert_eq!(Report::decode(&report.encode()), None);
    let bytes = waiting(0, recv(1, 7)).encode();
    for length in 0..bytes.len() {
        assert_eq!(Report::decode(&bytes[..length]), None);
    }
    assert_eq!(Report::decode(&[&bytes[..], &[0]].concat()), None);
}

#[test]
fn ranks_that_wait_for_each_other_are_named_as_a_probable_deadlock() {
    let pair = all_waiting([recv(1, 7), recv(0, 9)]);
    let text = "probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1 waits in recv (tag 9) for rank 0";
    assert_eq!(findings(&pair), [text]);
    assert!(
        pair.json().contains("\"deadlocks\":[[{\"rank\":0,\"index\":0},{\"rank\":1,\"index\":0}]]"),
        "{}",
        pair.json()
    );

    let ring = all_waiting([
        recv(1, 0),
        operation(OperationKind::Send, 2, 0),
        operation(OperationKind::Probe, 0, 0),
        recv(0, 1),
    ]);
    let text = "probable deadlock: rank 0 waits in recv (tag 0) for rank 1, rank 1 waits in send (tag 0) for rank 2, rank 2 \
                waits in probe (tag 0) for rank 0";
    assert_eq!(findings(&ring), [text], "rank 3 is not in the circle");

    let barrier = Operation { tag: Some(0x8000_0100), ..operation(OperationKind::Collective("barrier".into()), 0, 0) };
    let text = "probable deadlock: rank 0 waits in recv (tag 4) for rank 1, rank 1 waits in barrier for rank 0";
    assert_eq!(findings(&all_waiting([recv(1, 4), barrier])), [text]);

    let wild = all_waiting([any(OperationKind::Receive), recv(0, 1)]);
    assert_eq!(findings(&wild).len(), 1);
}

#[test]
fn a_wait_that_can_still_end_is_no_deadlock() {
    // One rank of the circle computes, or tests again and again, or has only begun to wait.
    let waits = || RankState::Answered(vec![waiting(0, recv(1, 7))]);
    for other in [RankState::Silent(3000), RankState::Answered(vec![Report::new(1, 0, 1, Activity::Polling)])] {
        assert_eq!(findings(&job([waits(), other])), [""; 0]);
    }
    let mut short = waiting(1, recv(0, 9));
    short.waits[0].waited_ms = 100;
    assert_eq!(findings(&job([waits(), RankState::Answered(vec![short])])), [""; 0]);

    // The message is on its way.
    let sends = Operation { bytes: 1 << 20, ..operation(OperationKind::Send, 0, 7) };
    assert_eq!(findings(&all_waiting([recv(1, 7), sends.clone()])), [""; 0]);
    let mut other = waiting(1, recv(0, 9));
    other.add_operation(sends.clone());
    let job_of = |other: Report| job([waits(), RankState::Answered(vec![other])]);
    assert_eq!(findings(&job_of(other.clone())), [""; 0]);
    // It has another tag or another communicator.
    other.operations[0].tag = Some(8);
    assert_eq!(findings(&job_of(other.clone())).len(), 1);
    (other.operations[0].tag, other.operations[0].communicator) = (Some(7), 5);
    assert_eq!(findings(&job_of(other)).len(), 1);
    // Its bytes are moving.
    let moving = Operation { stage: Stage::Moving, ..recv(1, 7) };
    assert_eq!(findings(&all_waiting([moving, recv(0, 9)])), [""; 0]);
    // A third rank may send to the one that waits for any rank.
    assert_eq!(
        findings(&job([
            RankState::Answered(vec![waiting(0, any(OperationKind::Receive))]),
            RankState::Answered(vec![waiting(1, recv(0, 1))]),
            RankState::Silent(1),
        ])),
        [""; 0]
    );
}

#[test]
fn a_wait_for_a_rank_that_has_finished_is_named() {
    for (state, how) in [
        (RankState::Ended, "has ended"),
        (RankState::Finished, "has finished"),
        (RankState::Answered(vec![waiting(1, finish())]), "is in finish and sends and receives nothing more"),
    ] {
        let job = job([RankState::Answered(vec![waiting(0, recv(1, 7))]), state]);
        assert_eq!(
            findings(&job),
            [format!("probable deadlock: rank 0 waits in recv (tag 7) for rank 1, which {how}")]
        );
        assert!(
            job.json().contains("\"waits_for_ended\":[{\"waiting\":{\"rank\":0,\"index\":0},\"ended\":{\"rank\":1")
        );
    }
    let any = job([RankState::Answered(vec![waiting(0, any(OperationKind::Receive))]), RankState::Ended]);
    let text = "probable deadlock: rank 0 waits for any rank, and all other ranks have finished or cannot go on";
    assert_eq!(findings(&any), [text]);
    assert_eq!(findings(&all_waiting([finish(), finish()])), [""; 0]);
}

#[test]
fn a_message_with_another_tag_is_named_as_the_possible_cause() {
    let mut first = waiting(0, recv(1, 7));
    first.add_unreceived(&unreceived(1, 5, 10));
    let lines = job([RankState::Answered(vec![first]), RankState::Answered(vec![waiting(1, recv(0, 9))])]).lines();
    let hint = "rank 0 waits for tag 7 of rank 1, and a message of that rank with tag 5 was not received: check tags and \
                communicators";
    assert!(lines.iter().any(|line| line == hint), "{lines:#?}");
}

#[test]
fn ranks_that_do_not_answer_and_ranks_with_the_same_wait_have_one_line() {
    let finishing = |rank| RankState::Answered(vec![waiting(rank, finish())]);
    let job = job([finishing(0), RankState::Silent(3000), finishing(2), finishing(3), RankState::NotJoined]);
    let lines = [
        "report of all ranks (SIGQUIT)",
        "[0,2-3] waits in finish: not all other ranks have finished",
        "[0,2-3] these 3 ranks wait for up to 3.2 s",
        "[1] did not answer within 3.0 s: it is not inside Towline; it computes, is stopped, or waits for something else \
         (pid 101 on here)",
        "[4] has not joined the job: it did not call towline::init yet",
        "end of the report",
    ];
    assert_eq!(job.lines(), lines);
}

#[test]
fn unmatched_messages_are_added_up_and_the_longest_is_named() {
    let message = |bytes, from| LargestMessage { bytes, from, to: 1, tag: 7, communicator: WORLD };
    let mut unmatched = Unmatched::default();
    assert_eq!(unmatched.to_string(), "all messages were received");
    unmatched.add(message(8, 0));
    assert_eq!(
        unmatched.to_string(),
        "1 message was never received: 8 bytes from rank 0 to rank 1 with tag 7, in the world"
    );
    unmatched.add(message(20, 2));
    unmatched.add(message(20, 3));
    let text = "3 messages were never received, 48 bytes in all; the longest: 20 bytes from rank 2 to rank 1 with tag 7, in \
                the world";
    assert_eq!(unmatched.to_string(), text);
    let bytes = unmatched.encode(UnmatchedPolicy::Error);
    assert_eq!(Unmatched::decode(&bytes), Some((UnmatchedPolicy::Error, unmatched)));
    assert_eq!(Unmatched::decode(&bytes[1..]), None);
}
