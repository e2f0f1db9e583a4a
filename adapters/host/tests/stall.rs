//! Ranks that are stopped, with a stall timeout: they count as failed, and when they continue they disturb no other rank.

#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
mod processes;

use pattern::pattern;
use processes::{Job, clock, report};
use rustix::process::Signal;
use towline::{Error, Lost, World};

/// How ranks are connected: transport and number of links.
const TRANSPORTS: [(&str, &str); 4] = [("udp", "1"), ("sm", "1"), ("tcp", "1"), ("tcp", "3")];
/// The rank that is stopped.
const VICTIM: u32 = 2;
const TIMEOUT_MS: u64 = 2000;

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    world.barrier().unwrap();
    match (role.as_str(), world.rank()) {
        (_, VICTIM) => stopped(&world),
        ("waiting", _) => waiting(&world),
        ("streaming", _) => streaming(&world),
        _ => panic!("no role {role}"),
    }
    if world.rank() != VICTIM {
        talk(&world);
        report("noticed");
        // Wait until the victim has ended. Without progress this rank would count as stalled, too.
        let told = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).unwrap());
        while !told.is_finished() {
            world.progress();
            std::thread::yield_now();
        }
        talk(&world);
    }
    assert!(world.finish().is_err(), "one is missing");
    report("over");
}

/// Survivors exchange short and long messages, and check them.
fn talk(world: &World) {
    let other = 1 - world.rank();
    for len in [8, 30_000, 300_000] {
        let mut into = vec![0; len];
        let status = world.sendrecv(&pattern(len, world.rank())[..], other, 7, &mut into[..], other, 7);
        status.unwrap_or_else(|why| panic!("{why}: {:?}", world.why_lost(other)));
        assert!(into == pattern(len, other));
    }
}

/// Exchanges messages with both others until an error names one of them. From then on no message reaches them.
fn stopped(world: &World) {
    let rounds = (0u32..).find_map(|round| exchange(world, &[0, 1], round).err());
    assert!(matches!(rounds, Some(Error::PeerFailed { rank: 0 | 1 })), "{rounds:?}");
    for other in 0..VICTIM {
        assert_eq!(world.recv(other, 1, &mut [0u8; 4]).unwrap_err(), Error::PeerFailed { rank: other });
        assert_eq!(world.send(other, 7, &pattern(300_000, 99)[..]), Err(Error::PeerFailed { rank: other }));
    }
}

/// Exchanges messages of many lengths with all of these ranks at the same time. All operations are complete when this returns.
fn exchange(world: &World, with: &[u32], round: u32) -> Result<(), Error> {
    let len = [8, 3000, 20_000, 100_000, 400_000][round as usize % 5];
    let open: Vec<_> = with
        .iter()
        .map(|other| {
            let receive = world.irecv(*other, 100 + round, vec![0u8; len]);
            (*other, receive, world.isend(*other, 100 + round, pattern(len, world.rank() + round)))
        })
        .collect();
    let mut outcome = Ok(());
    for (other, receive, send) in open {
        match receive.map_err(Error::from).and_then(|receive| receive.wait().map_err(Error::from)) {
            Ok((bytes, _)) => assert!(bytes == pattern(len, other + round), "round {round} from {other}"),
            Err(error) => outcome = Err(error),
        }
        if let Err(error) = send.map_err(Error::from).and_then(|send| send.wait().map_err(Error::from)) {
            outcome = Err(error);
        }
    }
    if round == 20 {
        report("ready");
    }
    outcome
}

fn assert_stalled(world: &World, outcome: Result<(), Error>) {
    assert_eq!(outcome, Err(Error::PeerFailed { rank: VICTIM }));
    assert_eq!((world.lost(), world.why_lost(VICTIM)), (vec![VICTIM], Some(Lost::Stalled)));
    report(format!("after {} 0", clock()));
}

/// Exchanges messages with the victim while it runs, and then waits for a message from it while it is stopped.
fn waiting(world: &World) {
    for round in 0..=20 {
        exchange(world, &[VICTIM], round).unwrap();
    }
    assert_stalled(world, world.recv(VICTIM, 1, &mut [0u8; 4]).map(drop));
}

/// The victim is stopped during an exchange.
fn streaming(world: &World) {
    let outcome = (0u32..).find_map(|round| exchange(world, &[VICTIM], round).err());
    assert_stalled(world, outcome.map_or(Ok(()), Err));
}

fn each_transport(role: &str) {
    for (transport, links) in TRANSPORTS {
        let variables = [
            ("TOWLINE_TRANSPORTS", transport),
            ("TOWLINE_LINKS", links),
            ("TOWLINE_STALL_TIMEOUT_MS", "2000"),
            ("TOWLINE_FINISH_TIMEOUT_MS", "1000"),
        ];
        let mut job = Job::start(3, role, &variables);
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        job.ranks[VICTIM as usize].signal(Signal::STOP);
        let stopped = clock();
        for rank in &mut job.ranks[..VICTIM as usize] {
            let (at, _) = rank.wait_for_two("after");
            let millis = at.saturating_sub(stopped) / 1_000_000;
            println!("{role}, {transport} with {links} links: given up after {millis} ms of {TIMEOUT_MS}");
            rank.wait_for("noticed");
        }
        job.ranks[VICTIM as usize].signal(Signal::CONT);
        job.ranks[VICTIM as usize].wait_for("over");
        for rank in &mut job.ranks[..VICTIM as usize] {
            rank.send_line("go on");
        }
        for mut rank in job.ranks.drain(..) {
            if rank.child.try_wait().unwrap().is_none() {
                rank.assert_success();
            }
        }
    }
}

#[test]
fn p7_a_stopped_rank_counts_as_failed_after_the_stall_timeout() {
    each_transport("waiting");
}

#[test]
fn p7_a_rank_that_stalls_during_an_exchange_counts_as_failed_and_disturbs_no_rank_afterwards() {
    each_transport("streaming");
}
