//! Networks that misbehave between ranks that are processes of their own: connections are cut and frozen and come back,
//! datagrams are lost, doubled and late, cables pulled. Nothing is lost, and every byte is compared.

#[path = "common/hosts.rs"]
mod hosts;
#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
#[allow(dead_code)] // what other tests need
mod processes;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use hosts::Hosts;
use pattern::pattern;
use processes::{Job, say};
use rustix::process::Signal;
use towline::{Builder, Encrypt, Error, Multiple, World};
use towline_host_tests::relay::{DatagramFaults, Datagrams, Direction, Ports, Streams};

/// A link is given up after so long without a sign of life.
const PATIENCE_MS: &str = "1000";

/// Behind a role: without a progress thread.
const ALONE: &str = " alone";

/// What ranks do that this file starts. Without a role, as in a normal test run, nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u16>().ok();
    let own = variable("TOWLINE_RANK").unwrap_or(0).into();
    let (role, thread) = role.strip_suffix(ALONE).map_or((role.as_str(), true), |role| (role, false));
    let mut builder = Builder::new().threads(Multiple).progress_thread(thread);
    if let (Some(real), Some(told), Some(links)) = (variable("REAL"), variable("TOLD"), variable("TOWLINE_LINKS")) {
        let [real, told] = [real, told].map(|first| Ports { first, links });
        builder = builder.configure(|config| {
            (config.tcp_ports, config.udp_ports) = (real.range(own), real.range(own));
            let told = told.address(own).to_string();
            (config.tcp_advertise, config.udp_advertise) = (told.clone(), told);
            (config.tcp_include, config.udp_include) = ("127.0.0.0/8".into(), "127.0.0.0/8".into());
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
        "cable" => cable(&world),
        "flood" => flood(&world),
        "computes" => computes(&world),
        "narrow" => narrow(&world),
        _ => panic!("no role {role}"),
    }
    assert!(world.lost().is_empty());
    world.finish().unwrap();
    say("over");
}

/// Both send each other messages of all protocols at once; what both say of themselves goes with them.
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

/// The other rank encrypts where this one does not, or the other way round: they refuse each other.
fn refused(world: World<Multiple>) {
    say("ready");
    let other = 1 - world.rank();
    let failed = Error::PeerFailed { rank: other };
    assert_eq!(world.send(other, 1, &[7u8; 100_000][..]).unwrap_err(), failed);
    assert_eq!(world.recv(other, 1, &mut [0u8; 4]).unwrap_err(), failed);
    assert!(world.finish().is_err());
    say("over");
}

/// So many rounds.
fn rounds(world: &World<Multiple>) {
    let count = std::env::var("ROUNDS").map_or(10, |count| count.parse().unwrap());
    for number in 0..count {
        round(world, number, false);
        if number == 2 {
            say("ready");
        }
    }
}

/// The same, of ranks that compute for longer than a link may be silent; nothing is wrong with any link.
fn computes(world: &World<Multiple>) {
    for number in 0..3 {
        round(world, number, false);
        if world.rank() == number % 2 {
            // No matter how long: what is asked is whether it can be taken for more than it is.
            std::thread::sleep(Duration::from_millis(3 * PATIENCE_MS.parse::<u64>().unwrap()));
        }
    }
    assert_eq!(world.counters().links_down, 0);
    say("ready");
}

/// A round, and others when the test has said so.
fn narrow(world: &World<Multiple>) {
    round(world, 0, false);
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    for number in 1..4 {
        round(world, number, false);
    }
    assert_eq!(world.counters().links_down, 0);
}

/// Until a link went down and came back, for both.
fn failover(world: &World<Multiple>) {
    let (mut down, mut up, mut after) = (false, false, 0);
    for number in 0.. {
        let counters = world.counters();
        if counters.links_down > 0 && !std::mem::replace(&mut down, true) {
            say(format!("down {number} {}", counters.frames_migrated));
        }
        if counters.links_up > 0 && counters.links_up == counters.links_down && !std::mem::replace(&mut up, true) {
            say(format!("up {number} {}", counters.frames_migrated));
        }
        let theirs = round(world, number, up);
        after += u32::from(up && theirs);
        if number == 2 {
            say("ready");
        }
        if down && !up {
            say("goes on");
        }
        // Both stop in the same round: each knows what the other knew when it began.
        let mut last = [0u32];
        world.sendrecv(&[u32::from(after >= 3)], 1 - world.rank(), 3, &mut last, 1 - world.rank(), 3).unwrap();
        if after >= 3 && last == [1] {
            return;
        }
    }
}

/// Until nothing came for a second after the test had something to say, and then came again, at both.
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
                    say(format!("waits {now}"));
                }
            }
        });
        let other = 1 - world.rank();
        for number in 0.. {
            let enough = u32::from(waited.load(Ordering::SeqCst));
            round(world, number, false);
            rounds.fetch_add(1, Ordering::SeqCst);
            if number == 2 {
                say("ready");
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

/// All have more for the last rank than buffers hold.
fn flood(world: &World<Multiple>) {
    const BYTES: usize = 8 << 20;
    let last = world.size() - 1;
    say("ready");
    if world.rank() == last {
        let receives: Vec<_> = (0..last).map(|from| world.irecv(from, 1, vec![0u8; BYTES]).unwrap()).collect();
        for (from, receive) in (0..).zip(receives) {
            assert!(receive.wait().unwrap().0 == pattern(BYTES, from), "from {from}");
        }
    } else {
        world.isend(last, 1, pattern(BYTES, world.rank())).unwrap().wait().unwrap();
    }
}

fn start(transport: &str, role: &str, rounds: u32, real: Ports, told: Ports) -> Job {
    let words = [rounds.to_string(), real.links.to_string(), real.first.to_string(), told.first.to_string()];
    let [rounds, links, real, told] = words.each_ref().map(String::as_str);
    let variables = [
        ("TOWLINE_TRANSPORTS", transport),
        ("TOWLINE_PEER_TIMEOUT_MS", if role == "rounds" { "20000" } else { PATIENCE_MS }),
        ("TOWLINE_LINKS", links),
        ("ROUNDS", rounds),
        ("REAL", real),
        ("TOLD", told),
    ];
    Job::start(2, role, &variables)
}

fn all_end_well(job: Job) {
    for mut rank in job.ranks {
        rank.hear("over");
        rank.ends_well();
    }
}

/// One of three links misbehaves; the others carry on, and it is taken back.
fn one_of_three(role: &str, fault: impl Fn(&Streams, bool)) {
    let relay = Streams::start(2, 3, 1).unwrap();
    let mut job = start("tcp", role, 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.hear("ready");
    }
    fault(&relay, true);
    for rank in &mut job.ranks {
        rank.hear("down");
        rank.hear("goes on");
        rank.hear("goes on");
    }
    fault(&relay, false);
    for rank in &mut job.ranks {
        rank.hear("up");
    }
    all_end_well(job);
}

#[test]
fn p14_b37_a_link_that_is_cut_is_made_up_for_by_the_others_and_taken_back() {
    one_of_three("failover", |relay, on| relay.refuse(1, on));
}

#[test]
fn p14_b37_a_link_that_is_frozen_is_given_up_and_taken_back() {
    one_of_three("failover", |relay, on| relay.freeze(1, Direction::Both, on));
}

#[test]
fn p14_b37_a_link_that_is_silent_in_one_direction_is_given_up_and_taken_back() {
    one_of_three("failover", |relay, on| relay.freeze(1, Direction::ToRank, on));
}

/// Nobody but the ranks that wait for each other sees to it.
#[test]
fn p14_b37_a_link_that_is_frozen_is_given_up_and_taken_back_without_a_thread() {
    one_of_three(&format!("failover{ALONE}"), |relay, on| relay.freeze(1, Direction::Both, on));
}

#[test]
fn p14_b37_a_link_that_is_silent_in_one_direction_is_given_up_without_a_thread() {
    one_of_three(&format!("failover{ALONE}"), |relay, on| relay.freeze(1, Direction::ToRank, on));
}

/// Then all its links are silent, and none is dead.
#[test]
fn p14_b37_no_link_to_a_rank_that_computes_is_given_up_without_a_thread() {
    let relay = Streams::start(2, 3, 1).unwrap();
    all_end_well(start("tcp", &format!("computes{ALONE}"), 0, relay.real(), relay.advertised()));
}

/// Each in turn, so often that all have been.
#[test]
fn p14_b37_links_that_are_cut_one_after_the_other_lose_nothing() {
    let relay = Streams::start(2, 3, 1).unwrap();
    let mut job = start("tcp", "failover", 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.hear("ready");
    }
    relay.cut(2);
    relay.cut(0);
    all_end_well(job);
    assert!(relay.cuts() >= 2);
}

/// Only its ports: the host that it is on answers as ever, which is no reason to wait for the link.
#[test]
fn p14_b37_a_udp_link_that_is_cut_is_made_up_for_by_the_other_and_taken_back() {
    let relay = Datagrams::start(2, 2, 1).unwrap();
    let mut job = start("udp", "failover", 0, relay.real(), relay.advertised());
    for rank in &mut job.ranks {
        rank.hear("ready");
    }
    relay.cut(1, true);
    for rank in &mut job.ranks {
        rank.hear("down");
        rank.hear("goes on");
        rank.hear("goes on");
    }
    relay.cut(1, false);
    for rank in &mut job.ranks {
        rank.hear("up");
    }
    all_end_well(job);
    assert!(relay.counts().cut_off > 0);
}

fn loses(permille: u32, rounds: u32) {
    let relay = Datagrams::start(2, 1, u64::from(permille)).unwrap();
    let most_delay = Duration::from_millis(5);
    relay.set(DatagramFaults { lose: permille, duplicate: 50, delay: 100, most_delay });
    let job = start("udp", "rounds", rounds, relay.real(), relay.advertised());
    all_end_well(job);
    let troubled = relay.counts();
    println!("{} of 1000 lost: {troubled:?}", permille);
    assert!(troubled.lost > 0 && troubled.duplicated > 0 && troubled.delayed > 0, "{troubled:?}");
}

#[test]
fn p15_b37_of_datagrams_one_in_a_hundred_is_lost_others_doubled_and_late() {
    loses(10, 10);
}

#[test]
fn p15_b37_of_datagrams_one_in_ten_is_lost_others_doubled_and_late() {
    loses(100, 10);
}

#[test]
fn p15_b37_of_datagrams_three_in_ten_are_lost_others_doubled_and_late() {
    loses(300, 5);
}

#[test]
fn p15_b37_datagrams_in_one_direction_stop_and_go_on() {
    for (from, to) in [(0, 1), (1, 0)] {
        let relay = Datagrams::start(2, 1, 1).unwrap();
        let mut job = start("udp", "rounds", 10, relay.real(), relay.advertised());
        for rank in &mut job.ranks {
            rank.hear("ready");
        }
        relay.partition(from, to, true);
        while relay.counts().cut_off < 5 {
            std::thread::yield_now();
        }
        relay.partition(from, to, false);
        all_end_well(job);
    }
}

/// Ranks, each at the host of the number given.
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
        rank.hear("ready");
    }
    Some((hosts, job))
}

#[test]
fn p14_b37_a_cable_is_pulled_and_plugged_in_again_while_another_is_there() {
    let variables = [("TOWLINE_TRANSPORTS", "tcp"), ("TOWLINE_LINKS", "2"), ("TOWLINE_PEER_TIMEOUT_MS", PATIENCE_MS)];
    let Some((hosts, mut job)) = between_hosts("c", 2, &[0, 1], "failover", &variables) else { return };
    hosts.set(1, false);
    for rank in &mut job.ranks {
        rank.hear("down");
    }
    hosts.set(1, true);
    all_end_well(job);
}

#[test]
fn p15_b37_the_only_cable_is_pulled_and_plugged_in_again() {
    for transport in ["tcp", "udp"] {
        let variables = [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_PEER_TIMEOUT_MS", "20000")];
        let Some((hosts, mut job)) = between_hosts(&transport[..1], 1, &[0, 1], "cable", &variables) else { return };
        hosts.set(0, false);
        for rank in &mut job.ranks {
            rank.tell("pulled");
            rank.hear("waits");
        }
        hosts.set(0, true);
        all_end_well(job);
    }
}

/// A path that is narrower than the interfaces at its ends, and so becomes while they talk: the kernel makes fragments then, and
/// nothing is lost for it, whether it cuts datagrams for us or not, and whether they are encrypted or not.
#[test]
fn p15_b34_a_path_becomes_narrower_than_its_ends() {
    for (kind, encrypt) in [("m", "between-hosts"), ("n", "off")] {
        let variables = [("TOWLINE_TRANSPORTS", "udp"), ("TOWLINE_ENCRYPT", encrypt)];
        let Some((hosts, mut job)) = between_hosts(kind, 1, &[0, 1], "narrow", &variables) else { return };
        let before = [0, 1].map(|host| hosts.fragmented(host));
        hosts.narrow(0, 700);
        job.ranks.iter_mut().for_each(|rank| rank.tell("go on"));
        job.ranks.iter_mut().for_each(|rank| drop(rank.hear("over")));
        assert!([0, 1].iter().all(|host| hosts.fragmented(*host) > before[*host]), "nothing was cut: {before:?}");
        job.ranks.into_iter().for_each(processes::Rank::ends_well);
    }
}

/// Several ranks of a host, each by two links, ask for a sign of life of a stopped rank at another host: that one has an answer
/// for all of them.
#[test]
fn p7_a_rank_that_is_stopped_at_another_host_is_not_dead() {
    let variables = [("TOWLINE_TRANSPORTS", "udp"), ("TOWLINE_LINKS", "2"), ("TOWLINE_PEER_TIMEOUT_MS", "3000")];
    let Some((_hosts, mut job)) = between_hosts("p", 1, &[0, 0, 0, 0, 1], "flood", &variables) else { return };
    job.ranks[4].signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(15));
    for rank in &mut job.ranks {
        assert!(rank.child.try_wait().unwrap().is_none(), "given up, or over");
    }
    job.ranks[4].signal(Signal::CONT);
    all_end_well(job);
}

/// A rank that never encrypts shows what the default of the other one comes to: within a host they talk, between hosts they
/// refuse each other.
#[test]
fn by_default_what_leaves_a_host_is_encrypted_over_tcp_and_udp_and_what_stays_is_not() {
    for transport in ["tcp", "udp"] {
        let mut variables = vec![
            ("TOWLINE_TRANSPORTS", transport),
            ("PLAIN", "1"),
            ("ROUNDS", "3"),
            ("TOWLINE_FINISH_TIMEOUT_MS", "500"),
        ];
        all_end_well(Job::start(2, "rounds", &variables));
        variables.extend([("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "2000"), ("TOWLINE_UDP_CONNECT_TIMEOUT_MS", "2000")]);
        let Some((_hosts, job)) = between_hosts(&format!("e{transport}"), 1, &[0, 1], "refused", &variables) else {
            return;
        };
        all_end_well(job);
    }
}
