//! Ranks that are killed in the middle of an exchange and restarted by `towline run --restart`, over each transport.
//! Ranks are this test program itself in a role.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use towline::{Any, Error, RejoinError, World};

/// Each connection of ranks: a transport and its number of links.
const WAYS: [(&str, &str); 5] = [("sm", "1"), ("tcp", "1"), ("tcp", "3"), ("udp", "1"), ("udp", "2")];
/// The rank that is killed.
const VICTIM: u32 = 1;
/// Its last incarnation.
const LAST: u32 = 3;
/// Rounds of an exchange with one incarnation of a rank, and the round in the middle of which the victim is killed.
const ROUNDS: u32 = 10;
const DEADLY: u32 = 4;
/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// The tag of messages that an incarnation of the victim sends and that are not received in time.
const STALE: u32 = 0x7000;

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    if role == "contexts" {
        std::thread::scope(|threads| {
            let contexts = towline::Builder::new().contexts(2).unwrap().into_iter();
            contexts.for_each(|context| drop(threads.spawn(|| in_context(&context.enter()))));
        });
        println!("\n@ job {}\n@ over", std::env::var("TOWLINE_JOB").unwrap());
        std::process::exit(0);
    }
    let world = towline::init().unwrap();
    match role.as_str() {
        "exchange" if world.rank() == VICTIM => victim(&world),
        "exchange" => survivor(&world),
        "unnoticed" => unnoticed(&world),
        "communicators" => communicators(&world),
        other => panic!("no role {other}"),
    }
    // Collective operations work as if no rank had died, including the end.
    for root in 0..world.size() {
        let mut words = if root == world.rank() { [root + 7; 5000] } else { [0; 5000] };
        world.broadcast(root, &mut words[..]).unwrap();
        assert_eq!(words, [root + 7; 5000]);
        world.barrier().unwrap();
    }
    let other = world.dup().unwrap();
    let (next, before) = ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
    let mut word = 0u32;
    other.sendrecv(&world.rank(), next, 1, &mut word, before, 1).unwrap();
    assert_eq!(word, before);
    drop(other);
    assert_eq!((world.lost(), world.restarted()), (vec![], vec![]));
    assert_eq!(world.iprobe(Any, Any).unwrap(), None, "something came twice, or to the wrong one");
    world.finish().unwrap();
    println!("\n@ job {}\n@ over", std::env::var("TOWLINE_JOB").unwrap());
    std::process::exit(0);
}

/// The messages that an incarnation of a rank sends in a round: short, long, and one that needs several frames.
fn content(rank: u32, incarnation: u32, round: u32) -> Vec<u8> {
    let len = [16, 3000, 20_000, 100_000, 400_000][(round % 5) as usize];
    let seed = rank * 1_000_003 + incarnation * 10_007 + round;
    let words = (0..len / 4u32).map(|index| (index ^ seed).wrapping_mul(0x9e37_79b9));
    words.flat_map(u32::to_le_bytes).collect()
}

fn die() -> ! {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
    unreachable!("killed");
}

/// Round `round` of an exchange with an incarnation of another rank.
struct Round {
    other: u32,
    incarnation: u32,
    round: u32,
    receive: Result<towline::RecvRequest<Vec<u8>>, Error>,
    send: Result<towline::SendRequest<Vec<u8>>, Error>,
}

impl Round {
    fn begin(world: &World, other: u32, incarnation: u32, round: u32) -> Self {
        let into = vec![0; content(other, incarnation, round).len()];
        let receive = world.irecv(other, round, into).map_err(Error::from);
        let send = world.isend(other, round, content(world.rank(), world.incarnation(), round)).map_err(Error::from);
        Self { other, incarnation, round, receive, send }
    }

    /// Whether both succeeded. They may fail for one reason only.
    fn end(self) -> bool {
        let received = self.receive.and_then(|receive| receive.wait().map_err(Error::from));
        let sent = self.send.and_then(|send| send.wait().map_err(Error::from)).map(drop);
        if let Ok((bytes, _)) = &received {
            let right = content(self.other, self.incarnation, self.round);
            assert!(*bytes == right, "round {} of life {} of rank {}", self.round, self.incarnation, self.other);
        }
        let (received, failed) = (received.map(drop), Err(Error::PeerFailed { rank: self.other }));
        for outcome in [&received, &sent] {
            assert!(*outcome == Ok(()) || *outcome == failed, "{outcome:?}");
        }
        received.and(sent).is_ok()
    }
}

fn victim(world: &World) {
    let incarnation = world.incarnation();
    assert!(world.lost().is_empty() && world.restarted().is_empty());
    for survivor in [0, 2] {
        world.send(survivor, STALE, &incarnation).unwrap();
    }
    for round in 0..ROUNDS {
        let rounds = [0, 2].map(|survivor| Round::begin(world, survivor, 1, round));
        if round == DEADLY && incarnation < LAST {
            world.progress();
            die();
        }
        rounds.into_iter().for_each(|round| assert!(round.end()));
    }
    for survivor in [0, 2] {
        world.send(survivor, 900, &incarnation).unwrap();
    }
}

fn survivor(world: &World) {
    let other = 2 - world.rank();
    let (mut life, mut with_victim, mut with_other) = (1, 0, 0);
    let mut before = None;
    loop {
        let both = Round::begin(world, other, 1, with_other);
        let round = (with_victim < ROUNDS).then(|| Round::begin(world, VICTIM, life, with_victim));
        match round.map(Round::end) {
            Some(true) => with_victim += 1,
            Some(false) => {
                // Requests to the earlier incarnation fail, whatever follows.
                assert_eq!(world.lost(), [VICTIM]);
                let old = world.irecv(VICTIM, 0, [0u8; 16]).unwrap();
                assert_eq!(world.send(VICTIM, 0, b"late"), Err(Error::PeerFailed { rank: VICTIM }));
                assert!(matches!(world.recv(Any, 901, &mut [0u8]), Err(Error::PeerFailed { rank: VICTIM })));
                assert_eq!(world.rejoin(VICTIM, PATIENCE), Ok(life + 1));
                assert_eq!(old.wait().unwrap_err().error, Error::PeerFailed { rank: VICTIM });
                (life, with_victim) = (life + 1, 0);
                assert!(world.lost().is_empty() && world.restarted().is_empty());
                assert!(matches!(world.rejoin(VICTIM, Duration::ZERO), Err(RejoinError::NotRestarted { .. })));
            }
            None => {}
        }
        assert!(both.end());
        with_other += 1;
        if (life, with_victim) == (1, DEADLY) {
            before = Some(held());
        }
        // Both survivors run as many rounds.
        let (mut theirs, done) = ([0u32], u32::from(with_victim == ROUNDS));
        let tag = 0x100_0000 + with_other;
        world.sendrecv(&[done], other, tag, &mut theirs, other, tag).unwrap();
        if done == 1 && theirs == [1] {
            break;
        }
    }
    assert_eq!(life, LAST);
    // Messages of earlier incarnations that were not received are gone. The message of this incarnation is here, once.
    let mut word = 0u32;
    world.recv(VICTIM, STALE, &mut word).unwrap();
    assert_eq!(word, LAST);
    assert_eq!(world.iprobe(VICTIM, STALE).unwrap(), None);
    // The deaths of a rank that has rejoined need no acknowledgement.
    assert_eq!(world.recv(Any, 900, &mut word).unwrap().source, VICTIM);
    assert_eq!(word, LAST);
    let (before, after) = (before.unwrap(), held());
    // The shared segments of all ranks, and rings for short and for long messages in both directions, which may be
    // missing.
    let segments = before.1.max(3 + 2 * 4);
    assert!(after.0 <= before.0 && after.1 <= segments, "descriptors and segments: {before:?}, now {after:?}");
}

/// The system resources of this process: descriptors, and mapped segments.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("/towline.")).count())
}

/// The victim is killed and restarted before any rank has noticed its death.
fn unnoticed(world: &World) {
    if world.rank() == VICTIM && world.incarnation() == 1 {
        for survivor in [0, 2] {
            world.recv(survivor, 1, &mut [0u8; 8]).unwrap();
        }
        let _unfinished: Vec<_> = [0, 2].map(|to| world.isend(to, 2, vec![1u8; 1_000_000])).into();
        world.progress();
        die();
    }
    if world.rank() == VICTIM {
        for survivor in [0, 2] {
            world.send(survivor, 2, &vec![2u8; 1_000_000][..]).unwrap();
        }
        return;
    }
    let asked = world.irecv(VICTIM, 2, vec![0u8; 1_000_000]).unwrap();
    let wild = world.irecv(Any, 3, [0u8; 8]).unwrap();
    world.send(VICTIM, 1, b"die, now").unwrap();
    while world.restarted() != [VICTIM] {
        std::thread::yield_now(); // no progress
    }
    assert_eq!(world.rejoin(VICTIM, Duration::ZERO), Ok(2));
    let failed = Error::PeerFailed { rank: VICTIM };
    match asked.wait() {
        Err(why) => assert_eq!(why.error, failed),
        // With a progress thread the earlier incarnation may have sent it before it died.
        Ok((bytes, _)) => assert!(bytes.iter().all(|byte| *byte == 1), "of another life"),
    }
    assert_eq!(wild.wait().unwrap_err().error, failed);
    let (bytes, _) = world.irecv(VICTIM, 2, vec![0u8; 1_000_000]).unwrap().wait().unwrap();
    assert!(bytes.iter().all(|byte| *byte == 2));
}

/// Communicators from before a death do not include the restarted rank, and operations with it report that.
fn communicators(world: &World) {
    let (me, other) = (world.rank(), 2 - world.rank());
    if world.incarnation() == 1 {
        let (same, turned) = (world.dup().unwrap(), world.split(Some(1), 2 - me).unwrap().unwrap());
        assert_eq!((same.rank(), turned.rank()), (me, 2 - me));
        let mut word = 0u32;
        same.sendrecv(&me, (me + 1) % 3, 1, &mut word, Any, 1).unwrap();
        if me == VICTIM {
            world.recv(0, 1, &mut word).unwrap();
            world.recv(2, 1, &mut word).unwrap();
            die();
        }
        let pending = same.irecv(VICTIM, 2, [0u8; 4]).unwrap();
        world.send(VICTIM, 1, &me).unwrap();
        assert_eq!(pending.wait().unwrap_err().error, Error::PeerFailed { rank: VICTIM });
        assert_eq!(world.rejoin(VICTIM, PATIENCE), Ok(2));
        for old in [&same, &turned] {
            let gone = Error::Restarted { rank: VICTIM };
            assert_eq!((old.lost(), old.restarted(), old.why_lost(VICTIM)), (vec![VICTIM], vec![], None));
            for len in [0, 8, 1_000_000] {
                let long = vec![1u8; len];
                assert_eq!(old.send(VICTIM, 3, &long[..]), Err(gone.clone()), "{len} bytes");
                assert_eq!(old.ssend(VICTIM, 3, &long[..]), Err(gone.clone()), "{len} bytes");
                assert_eq!(old.isend(VICTIM, 3, long).err().map(|why| why.error), Some(gone.clone()));
            }
            for source in [towline::Source::Rank(VICTIM), Any.into()] {
                assert_eq!(old.recv(source, 3, &mut word), Err(gone.clone()), "{source:?}");
                let later = old.irecv(source, 3, [0u8; 4]).unwrap();
                assert_eq!(later.wait().err().map(|why| why.error), Some(gone.clone()), "{source:?}");
                assert_eq!(old.probe(source, 3), Err(gone.clone()), "{source:?}");
                assert_eq!(old.mprobe(source, 3).err(), Some(gone.clone()), "{source:?}");
            }
            // Collective operations also end at each rank, and no rank waits for another.
            assert_eq!(old.barrier(), Err(gone.clone()));
            assert_eq!(old.dup().err(), Some(gone.clone()));
            assert!(
                gone.to_string().contains("rank 1 was restarted")
                    && gone.to_string().contains("make the communicator anew")
            );
            // Operations among the other ranks go on.
            old.acknowledge_failures();
            let (mine, theirs) = (old.rank(), 2 - old.rank());
            old.sendrecv(&mine, theirs, 4, &mut word, Any, 4).unwrap();
            assert_eq!(word, theirs);
        }
        assert_eq!(world.iprobe(other, Any).unwrap(), None);
    }
    both_again(world);
}

/// New communicators include all ranks.
fn both_again(world: &World) {
    for anew in [world.dup().unwrap(), world.split(Some(1), 2 - world.rank()).unwrap().unwrap()] {
        assert_eq!((anew.lost(), anew.iprobe(Any, Any).unwrap()), (vec![], None));
        anew.barrier().unwrap();
        let (me, mut word) = (anew.rank(), 0u32);
        for step in 1..3 {
            anew.sendrecv(&me, (me + step) % 3, 3, &mut word, Any, 3).unwrap();
            assert_eq!(word, (me + 3 - step) % 3);
            anew.barrier().unwrap();
        }
    }
}

/// Each context of a rank accepts all contexts of a restarted rank by itself.
fn in_context(world: &World) {
    let (all_contexts, own) = (world.all_contexts(), world.address());
    // With each context of each rank. `life` is the incarnation of the victim.
    let talk = |life: u32| {
        all_contexts.barrier().unwrap();
        for other in (0..all_contexts.size()).filter(|other| *other != all_contexts.rank()) {
            let (mine, mut theirs) = ([world.incarnation(), all_contexts.rank()], [0u32; 2]);
            all_contexts.sendrecv(&mine, other, 8, &mut theirs, other, 8).unwrap();
            let rank = all_contexts.address_of(other).unwrap().rank;
            assert_eq!(theirs, [if rank == VICTIM { life } else { 1 }, other]);
        }
        // After the barrier other ranks may finish.
        assert!(all_contexts.lost().is_empty() && all_contexts.restarted().is_empty());
        all_contexts.barrier().unwrap();
    };
    if own.rank != VICTIM || world.incarnation() == 1 {
        talk(1);
        if own.rank == VICTIM {
            all_contexts.barrier().unwrap(); // both contexts have come this far
            die();
        }
        // Whether this succeeds depends on when the victim dies.
        let _ = all_contexts.barrier();
        assert_eq!(world.recv(VICTIM, 9, &mut [0u8]).unwrap_err(), Error::PeerFailed { rank: VICTIM });
        assert_eq!(world.rejoin(VICTIM, PATIENCE), Ok(2));
    }
    talk(2);
}

/// Three ranks in a role.
fn job(role: &str, (way, links): (&str, &str), restarts: u32) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["run", "-n", "3", "--timeout", "120", "--restart", &restarts.to_string()]);
    command.args(["--transport", way, "--links", links, "-e", &format!("ROLE={role}"), "-e", "RUST_BACKTRACE=0", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "as_rank", "--nocapture"]);
    command.stdin(Stdio::null()).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The files that a job has left in shared memory. `said` is the output of its ranks.
fn left_over(said: &str) -> Vec<String> {
    let job =
        said.lines().find_map(|line| Some(line.split_once("@ job ")?.1.to_string())).expect("a rank says its job");
    let names = std::fs::read_dir("/dev/shm").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains(&job)).collect()
}

fn ends_well(role: &str, way: (&str, &str), deaths: usize) {
    let output = job(role, way, LAST - 1);
    let (said, told) = texts(&output);
    assert!(output.status.success(), "{way:?}: {said}{told}");
    assert_eq!(said.matches("@ over").count(), 3, "{way:?}: {said}{told}");
    assert_eq!(left_over(&said), [""; 0], "{way:?}");
    assert_eq!(told.matches("was killed by signal 9 (SIGKILL); restarting it").count(), deaths, "{told}");
}

#[test]
fn x7_p7_a_killed_rank_rejoins_over_shared_memory() {
    ends_well("exchange", WAYS[0], 2);
    ends_well("unnoticed", WAYS[0], 1);
}

#[test]
fn x7_p7_a_killed_rank_rejoins_over_tcp() {
    for way in &WAYS[1..3] {
        ends_well("exchange", *way, 2);
        ends_well("unnoticed", *way, 1);
    }
}

#[test]
fn x7_p7_a_killed_rank_rejoins_over_udp() {
    for way in &WAYS[3..] {
        ends_well("exchange", *way, 2);
        ends_well("unnoticed", *way, 1);
    }
}

#[test]
fn x7_p7_communicators_from_before_a_restart_fail_and_do_not_wait() {
    for way in [WAYS[0], WAYS[1], WAYS[4]] {
        ends_well("communicators", way, 1);
    }
}

#[test]
fn x7_p7_each_context_accepts_a_restarted_rank() {
    for way in [WAYS[0], WAYS[2], WAYS[4]] {
        ends_well("contexts", way, 1);
    }
}

#[test]
fn p7_a_rank_that_dies_once_too_often_ends_the_job() {
    for way in WAYS {
        let output = job("exchange", way, LAST - 2);
        let (_, told) = texts(&output);
        assert_eq!(output.status.code(), Some(128 + 9), "{way:?}: {told}");
        assert!(told.contains("was restarted once, which is the limit; ending the job"), "{way:?}: {told}");
    }
}
