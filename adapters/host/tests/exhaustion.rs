//! Ranks, as processes of their own, that run out of something: descriptors, shared memory, room of any kind. The job goes
//! on, or an operation ends with an error that names the rank; nothing hangs, and nobody spins.

#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pattern::pattern;
use processes::{Job, Rank, say};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towline::{Error, World};

/// What ranks do that this file starts. Without a role, as in a normal test run, nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    match role.as_str() {
        "connector" | "listener" => descriptors(&world, &role),
        "no descriptors" => no_descriptors(&world),
        "no memory" => no_memory(&world),
        "squeeze" => squeeze(&world),
        _ => panic!("no role {role}"),
    }
    world.finish().unwrap();
}

/// Leaves room for no further descriptor; gives the limit that there was.
fn exhaust() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let highest = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
    let taken = highest.max().unwrap();
    // Places below the highest that are free would still be given.
    let limit = Rlimit { current: Some(taken), ..before };
    setrlimit(Resource::Nofile, limit).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        std::mem::forget(file);
    }
    before
}

/// One side has no descriptor when they connect, and gets some after a second.
fn descriptors(world: &World, who: &str) {
    let short = if who == "connector" { 0 } else { 1 };
    let other = 1 - world.rank();
    let before = (world.rank() == short).then(exhaust);
    let relief = before.map(|before| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(1));
            setrlimit(Resource::Nofile, before).unwrap();
        })
    });
    let sending = world.isend(other, 1, pattern(100_000, world.rank())).unwrap();
    let receiving = world.irecv(other, 1, vec![0; 100_000]).unwrap();
    assert!(receiving.wait().unwrap().0 == pattern(100_000, other));
    sending.wait().unwrap();
    if let Some(relief) = relief {
        relief.join().unwrap();
    }
    say("exchanged");
}

/// No descriptor comes free: the operation ends in time, and names whom it did not reach.
fn no_descriptors(world: &World) -> ! {
    if world.rank() == 0 {
        let before = exhaust();
        let error = world.send(1, 1, &pattern(100_000, 0)[..]).unwrap_err();
        assert_eq!(error, Error::PeerFailed { rank: 1 });
        setrlimit(Resource::Nofile, before).unwrap();
    }
    stay("named");
}

/// The file system in memory has no room for rings.
fn no_memory(world: &World) -> ! {
    let other = 1 - world.rank();
    let error = world.send(other, 1, b"no room").unwrap_err();
    assert_eq!(error, Error::PeerFailed { rank: other });
    stay("named");
}

/// All with all, in both directions at once, wanted and unwanted, of all sizes, with as little room as can be.
fn squeeze(world: &World) {
    let own = world.rank();
    let others: Vec<u32> = (0..world.size()).filter(|other| *other != own).collect();
    for round in 0u32..4 {
        let sizes = [0, 8, 40, 41, 300, 5000];
        let mut sends = vec![];
        for (tag, len) in (0..).zip(sizes) {
            for other in &others {
                sends.push(world.isend(*other, tag, pattern(len, own + round)).unwrap());
            }
        }
        // Received in another order than they were sent, so that most come before they are wanted.
        for (tag, len) in (0..).zip(sizes).collect::<Vec<_>>().into_iter().rev() {
            for other in &others {
                let mut into = vec![0; len];
                world.recv(*other, tag, &mut into[..]).unwrap();
                assert!(into == pattern(len, other + round), "{len} bytes of {other}");
            }
        }
        sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
    }
    world.barrier().unwrap();
    say("exchanged");
}

/// The other may not have come up yet, so this one does not go before the test ends it.
fn stay(word: &str) -> ! {
    say(word);
    loop {
        std::thread::park();
    }
}

fn all_stay(mut job: Job, word: &str) {
    job.ranks.iter_mut().for_each(|rank| drop(rank.hear(word)));
}

fn all_say(job: Job, word: &str) {
    let mut ranks = job.ranks;
    ranks.iter_mut().for_each(|rank| drop(rank.hear(word)));
    ranks.into_iter().for_each(Rank::ends_well);
}

#[test]
fn p1_a_rank_without_descriptors_connects_when_it_has_some() {
    for role in ["connector", "listener"] {
        all_say(Job::start(2, role, &[("TOWLINE_TRANSPORTS", "tcp")]), "exchanged");
    }
}

#[test]
fn p1_a_rank_that_never_has_descriptors_is_told_whom_it_did_not_reach() {
    let variables = [("TOWLINE_TRANSPORTS", "tcp"), ("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "1500")];
    all_stay(Job::start(2, "no descriptors", &variables), "named");
}

/// A file system of a few KiB, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("towline-host-small-{}", std::process::id()));
        std::fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).status();
        let small = Self(path);
        mounted.is_ok_and(|status| status.success()).then_some(small)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(std::process::Stdio::null()).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn p1_full_shared_memory_is_an_error_that_names_the_rank() {
    let Some(small) = Small::mount() else {
        eprintln!("skipped: only root may mount a small file system");
        return;
    };
    let directory = small.0.to_str().unwrap();
    all_stay(Job::start(2, "no memory", &[("TOWLINE_TRANSPORTS", "sm"), ("TOWLINE_SM_DIRECTORY", directory)]), "named");
}

const POOLS: [(&str, &str); 3] = [("TOWLINE_UNEXPECTED", "1"), ("TOWLINE_UNITS", "1"), ("TOWLINE_UNIT_BYTES", "64")];
const SM: [(&str, &str); 6] = [
    ("TOWLINE_TRANSPORTS", "sm"),
    ("TOWLINE_SM_EAGER_RING_BYTES", "2048"),
    ("TOWLINE_SM_EAGER_LIMIT_BYTES", "64"),
    ("TOWLINE_SM_BULK_RING_BYTES", "512"),
    ("TOWLINE_SM_BULK_LIMIT_BYTES", "64"),
    ("TOWLINE_SM_SINGLE_COPY_BYTES", "0"),
];
const TCP: [(&str, &str); 6] = [
    ("TOWLINE_TRANSPORTS", "tcp"),
    ("TOWLINE_TCP_SOCKET_BYTES", "1"),
    ("TOWLINE_TCP_EAGER_LIMIT_BYTES", "1"),
    ("TOWLINE_TCP_MAX_SEND_BYTES", "1"),
    ("TOWLINE_TCP_SEND_STAGING_BYTES", "1"),
    ("TOWLINE_TCP_RENDEZVOUS_BYTES", "0"),
];

#[test]
fn p20_b11_the_smallest_rings_carry_everything() {
    all_say(Job::start(3, "squeeze", &SM), "exchanged");
}

#[test]
fn p20_b11_the_smallest_buffers_of_sockets_and_staging_carry_everything() {
    all_say(Job::start(3, "squeeze", &TCP), "exchanged");
}

#[test]
fn m6_the_smallest_pools_carry_everything() {
    for way in ["sm", "tcp"] {
        all_say(Job::start(3, "squeeze", &[&POOLS[..], &[("TOWLINE_TRANSPORTS", way)]].concat()), "exchanged");
    }
}

#[test]
fn m6_p20_everything_is_as_small_as_it_can_be() {
    for rails in [SM, TCP] {
        all_say(Job::start(3, "squeeze", &[&POOLS[..], &rails[..]].concat()), "exchanged");
    }
}
