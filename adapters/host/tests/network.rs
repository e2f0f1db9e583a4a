//! Faulty networks between ranks that are separate processes: connections are cut, frozen and restored; datagrams are lost,
//! duplicated and delayed; cables are pulled. No message is lost, and every byte is compared.

#[path = "common/hosts.rs"]
mod hosts;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
#[allow(dead_code)] // other tests use the rest
mod processes;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hosts::Hosts;
use pattern::pattern;
use processes::{Job, report};
use rustix::process::Signal;
use towline::{Builder, Encrypt, Error, Multiple, World};
use towline_host_tests::relay::{DatagramFaults, Datagrams, Direction, Ports, Streams};

/// A link is given up after this many milliseconds of silence.
const PATIENCE_MS: &str = "1000";
/// The same where no fault is a silence: a rank that gets no processor for seconds is not given up.
const LONG_PATIENCE_MS: &str = "20000";

/// Suffix of a role: without a progress thread.
const ALONE: &str = " alone";

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u16>().ok();
    let own = variable("TOWLINE_RANK").unwrap_or(0).into();
    let (role, thread) = role.strip_suffix(ALONE).map_or((role.as_str(), true), |role| (role, false));
    let mut builder = Builder::new().threads(Multiple).progress_thread(thread);
    if let (Some(real), Some(advertised), Some(links)) =
        (variable("REAL"), variable("ADVERTISED"), variable("TOWLINE_LINKS"))
    {
        let [real, advertised] = [real, advertised].map(|first| Ports { first, links });
        builder = builder.configure(|config| {
            (config.tcp.ports, config.udp.ports) = (real.range(own), real.range(own));
            let advertised = advertised.address(own).to_string();
            (config.tcp.advertise, config.udp.advertise) = (advertised.clone(), advertised);
            (config.tcp.include, config.udp.include) = ("127.0.0.0/8".into(), "127.0.0.0/8".into());
        });
    }
    if std::env::var("PLAIN").is_ok_and(|rank| rank.parse() == Ok(own)) {
        builder = builder.configure(|config| config.encrypt = Encrypt::Off);
    }
    let world = builder.build().unwrap();
    match role {
        "refused" => return refused(world),
        "rounds" => rounds(&world),
        "failover" => failover(&world),
        "interrupted" => interrupted(&world),
        "cable" => cable(&world),
        "flood" => flood(&world),
        "computes" => computes(&world),
        "narrow" => narrow(&world),
        _ => panic!("no role {role}"),
    }
    assert!(world.lost().is_empty());
    world.finish().unwrap();
    report("over");
}

/// Both ranks send each other messages of all protocols at the same time, and then a flag. Returns the other rank's flag.
fn round(world: &World<Multiple>, number: u32, word: bool) -> bool {
    let (own, other) = (world.rank(), 1 - world.rank());
    let lens = [0, 8, 3000, 20_000, 150_000, 400_000];
    let seed = |rank: u32, at: usize| 100 * number + 10 * rank + at as u32;
    let receives: Vec<_> = lens.iter().map(|len| world.irecv(other, 1, vec![0u8; *len]).unwrap()).collect();
    let sends = lens.iter().enumerate().map(|(at, len)| world.isend(other, 1, pattern(*len, seed(own, at))).unwrap());
    let sends: Vec<_> = sends.collect();
    for (at, receive) in receives.into_iter().enumerate() {
        let (bytes, status) = receive.wait().unwrap();
        assert_eq!(status.bytes as usize, lens[at], "round {number}");
        assert!(bytes == pattern(lens[at], seed(other, at)), "round {number}, message {at}");
    }
    sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
    let mut theirs = [0u32];
    world.sendrecv(&[u32::from(word)], other, 2, &mut theirs, other, 2).unwrap();
    theirs == [1]
}

/// One of the two ranks encrypts and the other does not: they refuse each other.
fn refused(world: World<Multiple>) {
    report("ready");
    let other = 1 - world.rank();
    let failed = Error::PeerFailed { rank: other };
    assert_eq!(world.send(other, 1, &[7u8; 100_000][..]).unwrap_err(), failed);
    assert_eq!(world.recv(other, 1, &mut [0u8; 4]).unwrap_err(), failed);
    // To a slower rank, a rank that ends has finished, and not failed.
    report("refused");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    assert!(world.finish().is_err());
    report("over");
}

/// As many rounds as the variable `ROUNDS` says.
fn rounds(world: &World<Multiple>) {
    let count = std::env::var("ROUNDS").map_or(10, |count| count.parse().unwrap());
    for number in 0..count {
        round(world, number, false);
        if number == 2 {
            report("ready");
        }
    }
}

/// Rounds until the test says that the datagrams are not interrupted any more.
fn interrupted(world: &World<Multiple>) {
    let told = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).unwrap());
    for number in 0.. {
        let last = told.is_finished();
        let last_of_other = round(world, number, last);
        if number == 2 {
            report("ready");
        }
        if last && last_of_other {
            return;
        }
    }
}

/// As `rounds`, with ranks that compute for longer than a link may be silent. No link is faulty.
fn computes(world: &World<Multiple>) {
    for number in 0..3 {
        round(world, number, false);
        if world.rank() == number % 2 {
            // The exact time does not matter: a computing rank must not count as silent.
            std::thread::sleep(Duration::from_millis(3 * PATIENCE_MS.parse::<u64>().unwrap()));
        }
    }
    assert_eq!(world.counters().links_down, 0);
    report("ready");
}

/// One round, and three more when the test says so.
fn narrow(world: &World<Multiple>) {
    round(world, 0, false);
    report("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for number in 1..4 {
        round(world, number, false);
    }
    assert_eq!(world.counters().links_down, 0);
}

/// A round over each link alone, so that all links are connected. A link that has never been connected does not go down.
fn meet_on_each_link(world: &World<Multiple>) {
    let rails = world.rails();
    let links = || (0..rails.len()).filter(|rail| rails[*rail] != "loopback");
    for link in links() {
        links().for_each(|other| world.enable_rail(other, other == link).unwrap());
        round(world, 0, false);
    }
    links().for_each(|link| world.enable_rail(link, true).unwrap());
}

/// Rounds until a link went down and came up again, at both ranks.
fn failover(world: &World<Multiple>) {
    meet_on_each_link(world);
    let (mut down, mut up, mut after) = (false, false, 0);
    for number in 0.. {
        let counters = world.counters();
        if counters.links_down > 0 && !std::mem::replace(&mut down, true) {
            report(format!("down {number} {}", counters.frames_migrated));
        }
        if counters.links_up > 0 && counters.links_up == counters.links_down && !std::mem::replace(&mut up, true) {
            report(format!("up {number} {}", counters.frames_migrated));
        }
        let theirs = round(world, number, up);
        after += u32::from(up && theirs);
        if number == 2 {
            report("ready");
        }
        if down && !up {
            report("goes on");
        }
        // Both stop in the same round: each knows the state of the other at the beginning of the round.
        let mut last = [0u32];
        world.sendrecv(&[u32::from(after >= 3)], 1 - world.rank(), 3, &mut last, 1 - world.rank(), 3).unwrap();
        if after >= 3 && last == [1] {
            return;
        }
    }
}

/// Rounds until both ranks have seen this after the test's signal: for a second nothing arrives, and then messages arrive again.
fn cable(world: &World<Multiple>) {
    let (rounds, waited, over) = (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::io::stdin().read_line(&mut String::new()).unwrap();
            let (mut seen, mut quiet) = (0, 0);
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
                let now = rounds.load(Ordering::SeqCst);
                quiet = if std::mem::replace(&mut seen, now) == now { quiet + 1 } else { 0 };
                if quiet >= 10 && !waited.swap(true, Ordering::SeqCst) {
                    report(format!("waits {now}"));
                }
            }
        });
        let other = 1 - world.rank();
        for number in 0.. {
            let enough = u32::from(waited.load(Ordering::SeqCst));
            round(world, number, false);
            rounds.fetch_add(1, Ordering::SeqCst);
            if number == 2 {
                report("ready");
            }
            let mut last = [0u32];
            world.sendrecv(&[enough], other, 3, &mut last, other, 3).unwrap();
            if enough == 1 && last == [1] {
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

/// All ranks send more to the last rank than buffers hold.
fn flood(world: &World<Multiple>) {
    const BYTES: usize = 8 << 20;
    let last = world.size() - 1;
    report("ready");
    if world.rank() == last {
        let receives: Vec<_> = (0..last).map(|from| world.irecv(from, 1, vec![0u8; BYTES]).unwrap()).collect();
        for (from, receive) in (0..).zip(receives) {
            assert!(receive.wait().unwrap().0 == pattern(BYTES, from), "from {from}");
        }
        // The test may be slower than the messages. No rank ends before it has looked.
        std::io::stdin().read_line(&mut String::new()).unwrap();
    } else {
        world.isend(last, 1, pattern(BYTES, world.rank())).unwrap().wait().unwrap();
    }
}

fn start(transport: &str, (role, patience): (&str, &str), rounds: u32, real: Ports, advertised: Ports) -> Job {
    let words = [rounds.to_string(), real.links.to_string(), real.first.to_string(), advertised.first.to_string()];
    let [rounds, links, real, advertised] = words.each_ref().map(String::as_str);
    let variables = [
        ("TOWLINE_TRANSPORTS", transport),
        ("TOWLINE_PEER_TIMEOUT_MS", patience),
        ("TOWLINE_LINKS", links),
        ("ROUNDS", rounds),
        ("REAL", real),
        ("ADVERTISED", advertised),
    ];
    Job::start(2, role, &variables)
}

fn assert_all_succeed(job: Job) {
    for mut rank in job.ranks {
        rank.wait_for("over");
        rank.assert_success();
    }
}

/// One of three links is faulty. The others carry its messages, and it is used again when it works.
fn one_of_three(role: &str, patience: &str, fault: impl Fn(&Streams, bool)) {
    let relay = Streams::start(2, 3, 1).unwrap();
    let mut job = start("tcp", (role, patience), 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    fault(&relay, true);
    for rank in &mut job.ranks {
        rank.wait_for("down");
        rank.wait_for("goes on");
        rank.wait_for("goes on");
    }
    fault(&relay, false);
    for rank in &mut job.ranks {
        rank.wait_for("up");
    }
    assert_all_succeed(job);
}

#[test]
fn p14_b37_other_links_replace_a_cut_link_until_it_works_again() {
    one_of_three("failover", LONG_PATIENCE_MS, |relay, on| relay.refuse(1, on));
}

#[test]
fn p14_b37_a_frozen_link_is_given_up_and_used_again() {
    one_of_three("failover", PATIENCE_MS, |relay, on| relay.freeze(1, Direction::Both, on));
}

#[test]
fn p14_b37_a_link_that_is_silent_in_one_direction_is_given_up_and_used_again() {
    one_of_three("failover", PATIENCE_MS, |relay, on| relay.freeze(1, Direction::ToRank, on));
}

/// Without a progress thread, the ranks handle the fault while they wait for each other.
#[test]
fn p14_b37_a_frozen_link_is_given_up_and_used_again_without_a_progress_thread() {
    one_of_three(&format!("failover{ALONE}"), PATIENCE_MS, |relay, on| relay.freeze(1, Direction::Both, on));
}

#[test]
fn p14_b37_a_link_that_is_silent_in_one_direction_is_given_up_without_a_progress_thread() {
    one_of_three(&format!("failover{ALONE}"), PATIENCE_MS, |relay, on| relay.freeze(1, Direction::ToRank, on));
}

/// All links of a computing rank are silent. None of them counts as failed.
#[test]
fn p14_b37_links_to_a_computing_rank_are_kept_without_a_progress_thread() {
    let relay = Streams::start(2, 3, 1).unwrap();
    let role = format!("computes{ALONE}");
    assert_all_succeed(start("tcp", (&role, PATIENCE_MS), 0, relay.real(), relay.advertised()));
}

/// Each link in turn, until all have been cut.
#[test]
fn p14_b37_links_that_are_cut_one_after_another_lose_no_message() {
    let relay = Streams::start(2, 3, 1).unwrap();
    let mut job = start("tcp", ("failover", LONG_PATIENCE_MS), 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    relay.cut(2);
    relay.cut(0);
    assert_all_succeed(job);
    assert!(relay.cuts() >= 2);
}

/// Only the ports of the link are cut: its host still answers, but that is no reason to wait for the link.
#[test]
fn p14_b37_the_other_link_replaces_a_cut_udp_link_until_it_works_again() {
    let relay = Datagrams::start(2, 2, 1).unwrap();
    let mut job = start("udp", ("failover", PATIENCE_MS), 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    relay.cut(1, true);
    for rank in &mut job.ranks {
        rank.wait_for("down");
        rank.wait_for("goes on");
        rank.wait_for("goes on");
    }
    relay.cut(1, false);
    for rank in &mut job.ranks {
        rank.wait_for("up");
    }
    assert_all_succeed(job);
    assert!(relay.counts().cut_off > 0);
}

fn loses(permille: u32, rounds: u32) {
    let relay = Datagrams::start(2, 1, u64::from(permille)).unwrap();
    let most_delay = Duration::from_millis(5);
    relay.set(DatagramFaults { lose: permille, duplicate: 50, delay: 100, most_delay });
    let job = start("udp", ("rounds", LONG_PATIENCE_MS), rounds, relay.real(), relay.advertised());
    assert_all_succeed(job);
    let troubled = relay.counts();
    println!("{} of 1000 lost: {troubled:?}", permille);
    assert!(troubled.lost > 0 && troubled.duplicated > 0 && troubled.delayed > 0, "{troubled:?}");
}

#[test]
fn p15_b37_one_datagram_in_a_hundred_is_lost_others_are_duplicated_and_delayed() {
    loses(10, 10);
}

#[test]
fn p15_b37_one_datagram_in_ten_is_lost_others_are_duplicated_and_delayed() {
    loses(100, 10);
}

#[test]
fn p15_b37_three_datagrams_in_ten_are_lost_others_are_duplicated_and_delayed() {
    loses(300, 5);
}

#[test]
fn p15_b37_datagrams_in_one_direction_are_interrupted_for_a_while() {
    for (from, to) in [(0, 1), (1, 0)] {
        let relay = Datagrams::start(2, 1, 1).unwrap();
        let mut job = start("udp", ("interrupted", LONG_PATIENCE_MS), 0, relay.real(), relay.advertised());
        for rank in &mut job.ranks {
            rank.wait_for("ready");
        }
        relay.partition(from, to, true);
        while relay.counts().cut_off < 5 {
            std::thread::yield_now();
        }
        relay.partition(from, to, false);
        job.ranks.iter_mut().for_each(|rank| rank.send_line("restored"));
        assert_all_succeed(job);
    }
}

/// Starts ranks, each on the host of the given number.
fn between_hosts(
    kind: &str,
    cables: usize,
    at: &[usize],
    role: &str,
    variables: &[(&str, &str)],
) -> Option<(Hosts, Job)> {
    let Some(hosts) = Hosts::new(kind, 214, cables) else {
        eprintln!("skipped: network namespaces need the rights of root, and iproute2");
        return None;
    };
    let at: Vec<_> = at.iter().map(|host| hosts.names[*host].as_str()).collect();
    let include = [("TOWLINE_TCP_INCLUDE", "10.214.0.0/16"), ("TOWLINE_UDP_INCLUDE", "10.214.0.0/16")];
    let variables: Vec<_> = include.iter().chain(variables).copied().collect();
    let mut job = Job::start_apart(&at, "10.214.0.1:4101", role, &variables);
    for rank in &mut job.ranks {
        rank.wait_for("ready");
    }
    Some((hosts, job))
}

#[test]
fn p14_b37_one_of_two_cables_is_pulled_and_plugged_in_again() {
    let variables = [("TOWLINE_TRANSPORTS", "tcp"), ("TOWLINE_LINKS", "2"), ("TOWLINE_PEER_TIMEOUT_MS", PATIENCE_MS)];
    let Some((hosts, mut job)) = between_hosts("c", 2, &[0, 1], "failover", &variables) else { return };
    hosts.set(1, false);
    for rank in &mut job.ranks {
        rank.wait_for("down");
    }
    hosts.set(1, true);
    assert_all_succeed(job);
}

#[test]
fn p15_b37_the_only_cable_is_pulled_and_plugged_in_again() {
    for transport in ["tcp", "udp"] {
        let variables = [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_PEER_TIMEOUT_MS", LONG_PATIENCE_MS)];
        let Some((hosts, mut job)) = between_hosts(&transport[..1], 1, &[0, 1], "cable", &variables) else { return };
        hosts.set(0, false);
        for rank in &mut job.ranks {
            rank.send_line("pulled");
            rank.wait_for("waits");
        }
        hosts.set(0, true);
        assert_all_succeed(job);
    }
}

/// The MTU of a path becomes smaller than that of the interfaces at its ends while ranks exchange messages. The kernel then
/// fragments datagrams, and no message is lost, with or without segmentation offload and encryption.
#[test]
fn p15_b34_the_mtu_of_a_path_becomes_smaller_than_that_of_its_ends() {
    for (kind, encrypt) in [("m", "between-hosts"), ("n", "off")] {
        let variables = [("TOWLINE_TRANSPORTS", "udp"), ("TOWLINE_ENCRYPT", encrypt)];
        let Some((hosts, mut job)) = between_hosts(kind, 1, &[0, 1], "narrow", &variables) else { return };
        let before = [0, 1].map(|host| hosts.fragmented(host));
        hosts.narrow(0, 700);
        job.ranks.iter_mut().for_each(|rank| rank.send_line("go on"));
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("over")));
        assert!([0, 1].iter().all(|host| hosts.fragmented(*host) > before[*host]), "nothing was cut: {before:?}");
        job.ranks.into_iter().for_each(processes::Rank::assert_success);
    }
}

/// Several ranks of a host, each by two links, send heartbeats to a stopped rank on another host: that host answers all of them.
#[test]
fn p7_a_stopped_rank_on_another_host_is_not_given_up() {
    let variables = [("TOWLINE_TRANSPORTS", "udp"), ("TOWLINE_LINKS", "2"), ("TOWLINE_PEER_TIMEOUT_MS", "3000")];
    let Some((_hosts, mut job)) = between_hosts("p", 1, &[0, 0, 0, 0, 1], "flood", &variables) else { return };
    job.ranks[4].signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(15));
    for rank in &mut job.ranks {
        assert!(rank.child.try_wait().unwrap().is_none(), "given up, or over");
    }
    job.ranks[4].signal(Signal::CONT);
    job.ranks[4].send_line("go on");
    assert_all_succeed(job);
}

/// One rank never encrypts, and the other has the default. Within a host they exchange messages; between hosts they refuse each
/// other.
#[test]
fn by_default_connections_between_hosts_are_encrypted_and_those_within_a_host_are_not() {
    for transport in ["tcp", "udp"] {
        let mut variables = vec![("TOWLINE_TRANSPORTS", transport), ("PLAIN", "1"), ("ROUNDS", "3")];
        assert_all_succeed(Job::start(2, "rounds", &variables));
        variables.extend([
            ("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "2000"),
            ("TOWLINE_UDP_CONNECT_TIMEOUT_MS", "2000"),
            ("TOWLINE_FINISH_TIMEOUT_MS", "500"),
        ]);
        let Some((_hosts, mut job)) = between_hosts(&format!("e{transport}"), 1, &[0, 1], "refused", &variables) else {
            return;
        };
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("refused")));
        job.ranks.iter_mut().for_each(|rank| rank.send_line("end"));
        assert_all_succeed(job);
    }
}
