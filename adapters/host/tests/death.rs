//! Ranks that are killed or stopped, as separate processes: what the other ranks notice, when, and which resources they free.

#[path = "common/hosts.rs"]
mod hosts;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;
#[path = "common/selection.rs"]
mod selection;

use std::time::{Duration, Instant};

use hosts::Hosts;
use pattern::pattern;
use processes::{Job, clock, report, resources};
use rustix::process::Signal;
use selection::with_links;
use towline::{Any, Error, Lost, World};

/// How ranks are connected: transport and number of links.
const TRANSPORTS: [(&str, &str); 5] = [("sm", "1"), ("tcp", "1"), ("tcp", "3"), ("udp", "1"), ("udp", "2")];
/// The default time after which a silent host is given up, in milliseconds.
const DEFAULT_LIMIT_MS: u64 = 5000;
/// The rank that fails.
const VICTIM: u32 = 2;

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    match role.as_str() {
        "sleep" | "spin" | "compute" | "away" => watch(&world, &role),
        "stream" => stream(&world),
        "wildcard" => wildcard(&world),
        "unmet" => unmet(&world),
        "beside" => beside(&world),
        "flood" => return flood(world),
        "panic" => panics(&world),
        "together" => together(&world),
        _ => panic!("no role {role}"),
    }
    // Survivors finish soon, although one rank is missing.
    assert!(world.finish().is_err(), "one is missing");
    report("over");
}

/// Exchanges messages with the other survivor, so that all resources for these exist. Returns the resources of this process after
/// that.
fn baseline(world: &World) -> (usize, usize) {
    if world.rank() != VICTIM {
        talk(world);
    }
    let before = resources();
    world.barrier().unwrap();
    before
}

/// Survivors exchange short and long messages, and check them.
fn talk(world: &World) {
    let other = 1 - world.rank();
    for len in [8, 30_000, 300_000] {
        let mut into = vec![0; len];
        world.sendrecv(&pattern(len, world.rank())[..], other, 7, &mut into[..], other, 7).unwrap();
        assert!(into == pattern(len, other));
    }
}

fn wait_to_be_killed(world: &World) -> ! {
    report("ready");
    let _ = world.recv(Any, 0x7777, &mut [0u8; 1]);
    panic!("nobody killed this rank");
}

fn assert_failed(error: Error) {
    assert_eq!(error, Error::PeerFailed { rank: VICTIM });
    report(format!("noticed {} 0", clock()));
}

fn watch(world: &World, how: &str) {
    let before = baseline(world);
    // As much as a connection or a ring holds, in both directions.
    if world.rank() == VICTIM {
        for survivor in 0..VICTIM {
            world.send(survivor, 3, &pattern(100_000, 9)[..]).unwrap();
            world.recv(survivor, 4, &mut vec![0u8; 100_000][..]).unwrap();
        }
        wait_to_be_killed(world);
    }
    world.recv(VICTIM, 3, &mut vec![0u8; 100_000][..]).unwrap();
    world.send(VICTIM, 4, &pattern(100_000, 9)[..]).unwrap();
    report("ready");
    match how {
        "sleep" => assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err()),
        "spin" => {
            let receive = world.irecv(VICTIM, 1, [0u8; 4]).unwrap();
            while world.lost().is_empty() {
                world.progress();
            }
            assert_failed(receive.wait().unwrap_err().error);
        }
        "away" => {
            // Makes no progress and does not wait: only the progress thread can notice the failure.
            while world.lost().is_empty() {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err());
        }
        _ => {
            // In no call of the library for a while.
            std::thread::sleep(Duration::from_secs(1));
            assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err());
        }
    }
    assert_eq!(world.lost(), [VICTIM]);
    let killed = std::env::var("TOWLINE_LISTEN").is_err(); // on one host with the others
    assert_eq!(world.why_lost(VICTIM), Some(if killed { Lost::Broken } else { Lost::TimedOut }));
    assert_eq!(world.why_lost(world.rank()), None);
    assert_eq!(world.send(VICTIM, 1, b"x").unwrap_err(), Error::PeerFailed { rank: VICTIM });
    assert_eq!(world.probe(VICTIM, 1).unwrap_err(), Error::PeerFailed { rank: VICTIM });
    talk(world);
    let after = resources();
    assert!(after.0 <= before.0 && after.1 <= before.1, "descriptors and maps: {before:?}, now {after:?}");
}

/// The victim is killed during an exchange of all ranks with all; the survivors go on, and every byte is checked.
fn stream(world: &World) {
    world.barrier().unwrap();
    let own = world.rank();
    let others: Vec<u32> = (0..world.size()).filter(|other| *other != own).collect();
    let (mut lost, mut after) = (false, 0);
    for round in 0u32.. {
        let len = [8, 3000, 20_000, 200_000, 2_000_000][(round % 5) as usize];
        let mine = pattern(len, own + round);
        let mut open = vec![];
        for other in others.iter().copied().filter(|other| !lost || *other != VICTIM) {
            let receive = world.irecv(other, round, vec![0u8; len]);
            let send = world.isend(other, round, mine.clone());
            open.push((other, receive, send));
        }
        for (other, receive, send) in open {
            let received = receive.map_err(Error::from).and_then(|receive| receive.wait().map_err(Error::from));
            let sent = send.map_err(Error::from).and_then(|send| send.wait().map_err(Error::from));
            match received {
                Ok((bytes, status)) => {
                    assert_eq!(status.bytes as usize, len);
                    assert!(bytes == pattern(len, other + round), "round {round} from {other}");
                }
                Err(error) => {
                    assert_eq!((other, &error), (VICTIM, &Error::PeerFailed { rank: VICTIM }));
                    if !lost {
                        assert_failed(error);
                    }
                    lost = true;
                }
            }
            assert!(sent.is_ok() || other == VICTIM);
        }
        if round == 20 {
            report("ready");
        }
        if own == VICTIM {
            continue;
        }
        // The survivors go on for 20 rounds after both have noticed the failure.
        let mut theirs = [0u32];
        let tag = 0x100_0000 + round;
        world.sendrecv(&[u32::from(lost)], 1 - own, tag, &mut theirs, 1 - own, tag).unwrap();
        after += u32::from(lost && theirs == [1]);
        if after == 20 {
            return;
        }
    }
}

/// Receives from any source fail until the failure is acknowledged, and no message is lost.
fn wildcard(world: &World) {
    let before = world.irecv(Any, 50, [0u8; 4]).unwrap();
    world.barrier().unwrap();
    if world.rank() == VICTIM {
        for survivor in 0..VICTIM {
            world.send(survivor, 60, &7u32).unwrap();
        }
        world.barrier().unwrap();
        wait_to_be_killed(world);
    }
    world.barrier().unwrap();
    report("ready");
    assert_failed(before.wait().unwrap_err().error);
    let failed = Err(Error::PeerFailed { rank: VICTIM });
    assert_eq!(world.recv(Any, 51, &mut [0u8; 4]).map(drop), failed);
    assert_eq!(world.probe(Any, 51).map(drop), failed);
    assert_eq!(world.mprobe(Any, 51).map(drop), failed);
    // A message that the failed rank had sent has arrived, and a receive from any source takes it although nothing was
    // acknowledged.
    let mut word = [0u32];
    assert_eq!(world.recv(Any, 60, &mut word).unwrap().source, VICTIM);
    assert_eq!(word, [7]);
    world.acknowledge_failures();
    let other = 1 - world.rank();
    let receive = world.irecv(Any, 52, [0u8; 4]).unwrap();
    world.send(other, 52, b"here").unwrap();
    assert_eq!(receive.wait().unwrap().1.source, other);
    assert_eq!(world.lost(), [VICTIM], "acknowledged, and dead nevertheless");
}

/// No message was ever sent to the victim or by it, so no connection reports its failure.
fn unmet(world: &World) {
    if world.rank() == VICTIM {
        wait_to_be_killed(world);
    }
    talk(world);
    report("ready");
    assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err());
    talk(world);
}

/// As `unmet`, while another rank, which is connected, is stopped.
fn beside(world: &World) {
    const STOPPED: u32 = 3;
    match world.rank() {
        VICTIM => wait_to_be_killed(world),
        STOPPED => {
            (0..VICTIM).for_each(|survivor| world.send(survivor, 3, &7u32).unwrap());
            wait_to_be_killed(world)
        }
        _ => {}
    }
    world.recv(STOPPED, 3, &mut [0u32]).unwrap();
    talk(world);
    // This rank waits for the stopped rank, too, so that the silence of that rank is noticed.
    let _waits = world.irecv(STOPPED, 4, [0u8; 4]).unwrap();
    report("ready");
    assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err());
    talk(world);
}

/// One rank does not read for longer than all time limits, while another one sends more to it than all buffers hold.
fn flood(world: World) {
    const BYTES: usize = 8 << 20;
    world.barrier().unwrap();
    report("ready");
    match world.rank() {
        0 => {
            let sends: Vec<_> = (0..6).map(|tag| world.isend(1, tag, pattern(BYTES, tag)).unwrap()).collect();
            for send in sends {
                send.wait().unwrap();
            }
        }
        _ => {
            let receives: Vec<_> = (0..6).map(|tag| world.irecv(0, tag, vec![0; BYTES]).unwrap()).collect();
            report("posted");
            for (tag, receive) in (0..).zip(receives) {
                assert!(receive.wait().unwrap().0 == pattern(BYTES, tag));
            }
            // The test may be slower than the messages. No rank ends before it has looked.
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
    }
    report("complete");
    world.finish().unwrap();
}

/// A rank that panics closes its rails, but this does not count as a normal end.
fn panics(world: &World) {
    baseline(world);
    if world.rank() == VICTIM {
        report("ready");
        std::panic::set_hook(Box::new(|_| {}));
        panic!("as it was asked to");
    }
    report("ready");
    assert_failed(world.recv(Any, 1, &mut [0u8; 4]).unwrap_err());
    talk(world);
}

/// Collective operations end for all survivors, with an error at the ranks that communicate with the failed rank.
fn together(world: &World) {
    baseline(world);
    if world.rank() == VICTIM {
        wait_to_be_killed(world);
    }
    report("ready");
    assert_failed(world.recv(VICTIM, 1, &mut [0u8; 4]).unwrap_err());
    let mut failures = 0;
    for root in 0..world.size() {
        failures += u32::from(world.broadcast(root, &mut vec![root; 100_000][..]).is_err());
        failures += u32::from(world.barrier().is_err());
        failures += u32::from(world.split(Some(0), 0).is_err());
    }
    report(format!("failures {failures} 0"));
}

/// Kills the victim once all ranks are ready. Prints after what time the survivors noticed.
fn kill(job: &mut Job, what: &str) {
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    kill_now(job, what);
}

fn kill_now(job: &mut Job, what: &str) {
    // Waiting ranks are asleep by then.
    std::thread::sleep(Duration::from_millis(300));
    let killed = job.ranks[VICTIM as usize].kill();
    for rank in &mut job.ranks[..VICTIM as usize] {
        let (at, _) = rank.wait_for_two("noticed");
        println!("{what}: noticed after {} ms", at.saturating_sub(killed) / 1_000_000);
    }
}

fn assert_survivors_succeed(mut job: Job) {
    drop(job.ranks.pop());
    for mut rank in job.ranks {
        rank.wait_for("over");
        rank.assert_success();
    }
}

fn each_transport(role: &str) {
    for (transport, links) in with_links(&TRANSPORTS) {
        let mut job = Job::start(3, role, &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]);
        kill(&mut job, &format!("{role}, {transport} with {links} links"));
        assert_survivors_succeed(job);
    }
}

#[test]
fn p7_b10_sleeping_ranks_notice_a_killed_rank() {
    each_transport("sleep");
}

#[test]
fn p7_b10_polling_ranks_notice_a_killed_rank() {
    each_transport("spin");
}

#[test]
fn p7_b10_computing_ranks_notice_a_killed_rank() {
    each_transport("compute");
}

#[test]
fn p7_b10_a_rank_killed_during_an_exchange_does_not_disturb_other_ranks() {
    each_transport("stream");
}

#[test]
fn p7_receives_from_any_source_fail_until_a_rank_failure_is_acknowledged() {
    each_transport("wildcard");
}

#[test]
fn p7_the_failure_of_an_unconnected_rank_is_noticed() {
    each_transport("unmet");
}

/// Links that are busy with a stopped rank do not delay the detection of another rank's failure.
#[test]
fn p7_the_failure_of_an_unconnected_rank_is_noticed_beside_a_stopped_rank() {
    for (transport, links) in with_links(&TRANSPORTS) {
        let (timeout, finish) = (("TOWLINE_PEER_TIMEOUT_MS", "1000"), ("TOWLINE_FINISH_TIMEOUT_MS", "1000"));
        let mut job =
            Job::start(4, "beside", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links), timeout, finish]);
        let mut stopped = job.ranks.pop().unwrap();
        stopped.wait_for("ready");
        for rank in &mut job.ranks {
            rank.wait_for("ready");
        }
        stopped.signal(Signal::STOP);
        // Long enough for the silence of the stopped rank to be reported.
        std::thread::sleep(Duration::from_millis(2500));
        kill_now(&mut job, &format!("beside a stopped rank, {transport} with {links} links"));
        stopped.kill();
        assert_survivors_succeed(job);
    }
}

#[test]
fn p7_collective_operations_do_not_hang_after_a_rank_failure() {
    for (transport, links) in with_links(&TRANSPORTS) {
        let mut job = Job::start(3, "together", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]);
        kill(&mut job, &format!("together, {transport} with {links} links"));
        for rank in &mut job.ranks[..VICTIM as usize] {
            let (failures, _) = rank.wait_for_two("failures");
            assert!((1..=9).contains(&failures), "{failures}");
        }
        assert_survivors_succeed(job);
    }
}

#[test]
fn p7_a_panicking_rank_is_noticed() {
    for (transport, links) in with_links(&TRANSPORTS) {
        let mut job = Job::start(3, "panic", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]);
        for rank in &mut job.ranks[..VICTIM as usize] {
            rank.wait_for("noticed");
        }
        assert_survivors_succeed(job);
    }
}

/// The rank is stopped for three times the time after which a host is given up.
#[test]
fn p7_a_stopped_rank_is_not_given_up() {
    for (transport, links) in with_links(&TRANSPORTS) {
        let variables =
            [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links), ("TOWLINE_PEER_TIMEOUT_MS", "1000")];
        let mut job = Job::start(2, "flood", &variables);
        job.ranks[1].wait_for("posted");
        job.ranks[1].signal(Signal::STOP);
        let stopped = Instant::now();
        assert!(job.ranks[0].child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_secs(3));
        assert!(job.ranks[0].child.try_wait().unwrap().is_none(), "{transport}: given up");
        job.ranks[1].signal(Signal::CONT);
        job.ranks[1].send_line("go on");
        for rank in &mut job.ranks {
            rank.wait_for("complete");
        }
        println!("stopped for {:?}, {transport} with {links} links: nothing was lost", stopped.elapsed());
        job.ranks.into_iter().for_each(processes::Rank::assert_success);
    }
}

/// A host that becomes silent is given up after the configured time, whether messages to it are in transit or not.
fn lost_host(kind: &str, role: &str, transport: &str, limit_ms: u64) {
    let Some(hosts) = Hosts::new(kind, 213, 1) else {
        eprintln!("skipped: network namespaces need the rights of root, and iproute2");
        return;
    };
    let [a, b] = &hosts.names;
    let limit = limit_ms.to_string();
    let mut variables = vec![("TOWLINE_TRANSPORTS", transport), ("TOWLINE_FINISH_TIMEOUT_MS", "1000")];
    if limit_ms != DEFAULT_LIMIT_MS {
        variables.push(("TOWLINE_PEER_TIMEOUT_MS", &limit));
    }
    let mut job = Job::start_apart(&[a, a, b], "10.213.0.1:4100", role, &variables);
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    std::thread::sleep(Duration::from_millis(300));
    let parted = clock();
    hosts.set(0, false);
    for rank in &mut job.ranks[..VICTIM as usize] {
        let (at, _) = rank.wait_for_two("noticed");
        let after_ms = at.saturating_sub(parted) / 1_000_000;
        println!("lost host, {role}, {transport}, limit {limit_ms} ms: noticed after {after_ms} ms");
    }
    for rank in &mut job.ranks[..VICTIM as usize] {
        rank.wait_for("over");
    }
}

#[test]
fn p7_b10_ranks_that_wait_for_a_lost_host_notice_it() {
    lost_host("i", "sleep", "tcp", DEFAULT_LIMIT_MS);
    lost_host("j", "sleep", "udp", DEFAULT_LIMIT_MS);
}

#[test]
fn p7_b10_a_lost_host_is_noticed_after_the_configured_time() {
    lost_host("k", "sleep", "tcp", 2000);
    lost_host("l", "sleep", "udp", 2000);
}

#[test]
fn p7_b10_a_lost_host_is_noticed_while_messages_to_it_are_in_transit() {
    lost_host("s", "stream", "tcp", DEFAULT_LIMIT_MS);
    lost_host("t", "stream", "udp", DEFAULT_LIMIT_MS);
}

#[test]
fn p7_p11_computing_ranks_notice_a_lost_host_over_udp() {
    lost_host("c", "away", "udp", DEFAULT_LIMIT_MS);
}
