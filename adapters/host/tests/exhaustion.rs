//! Ranks, as separate processes, that run out of a resource: descriptors, shared memory, room of any kind. The job goes on, or an
//! operation ends with an error that names the rank. No rank hangs or spins.

#[path = "common/pattern.rs"]
mod pattern;
#[path = "common/processes.rs"]
#[allow(dead_code)]
mod processes;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use pattern::pattern;
use processes::{Job, Rank, report};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use towline::{Error, Lost, World};

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
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
        "stopped" => stopped(&world),
        "killed" => killed(&world),
        "disabled" => disabled(&world),
        _ => panic!("no role {role}"),
    }
    world.finish().unwrap();
}

/// Uses up all descriptors. Returns the former limit.
fn exhaust() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let highest = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
    let taken = highest.max().unwrap();
    // Free descriptors below the highest one would still be given out.
    let limit = Rlimit { current: Some(taken), ..before };
    setrlimit(Resource::Nofile, limit).unwrap();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        std::mem::forget(file);
    }
    before
}

/// One side has no free descriptor when they connect, and gets some after a second.
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
    report("exchanged");
}

/// No descriptor becomes free: the operation ends in time, and its error names the peer.
fn no_descriptors(world: &World) -> ! {
    if world.rank() == 0 {
        let before = exhaust();
        let error = world.send(1, 1, &pattern(100_000, 0)[..]).unwrap_err();
        assert_eq!(error, Error::PeerFailed { rank: 1 });
        setrlimit(Resource::Nofile, before).unwrap();
    }
    stay("named");
}

/// Exchanges short and long messages, so that all connections exist.
fn meet(world: &World) {
    let other = 1 - world.rank();
    // Often enough to use all links.
    for len in [8, 200_000].repeat(6) {
        let mut into = vec![0; len];
        world.sendrecv(&pattern(len, world.rank())[..], other, 7, &mut into[..], other, 7).unwrap();
        assert!(into == pattern(len, other));
    }
}

/// Rank 1 is stopped for long while rank 0 waits for it and has no free descriptor to ask its host.
fn stopped(world: &World) {
    meet(world);
    if world.rank() == 1 {
        report("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        world.send(0, 1, b"here").unwrap();
    } else {
        let before = exhaust();
        report("ready");
        world.recv(1, 1, &mut [0u8; 4]).unwrap();
        setrlimit(Resource::Nofile, before).unwrap();
    }
    meet(world);
    report("exchanged");
}

/// Rank 1 is killed while rank 0 waits for it and has no free descriptor.
fn killed(world: &World) -> ! {
    meet(world);
    report("ready");
    if world.rank() == 0 {
        let before = exhaust();
        assert_eq!(world.recv(1, 1, &mut [0u8; 4]), Err(Error::PeerFailed { rank: 1 }));
        setrlimit(Resource::Nofile, before).unwrap();
        stay("named");
    }
    let _ = world.recv(0, 1, &mut [0u8; 4]);
    panic!("nobody killed this rank");
}

/// Messages that are sent while all rails are disabled wait, and need not be sent again.
fn disabled(world: &World) {
    let transport = std::env::var("TOWLINE_TRANSPORTS").unwrap();
    let own: Vec<usize> =
        (0..).zip(world.rails()).filter(|(_, name)| *name == transport).map(|(rail, _)| rail).collect();
    assert!(!own.is_empty());
    meet(world);
    world.barrier().unwrap();
    if world.rank() == 0 {
        own.iter().for_each(|rail| world.enable_rail(*rail, false).unwrap());
        let mut late = [8, 200_000].map(|len| world.isend(1, 1, pattern(len, 5)).unwrap());
        world.recv(1, 2, &mut [0u8; 4]).unwrap(); // messages of the other rank still arrive
        for _ in 0..10_000 {
            world.progress();
        }
        assert!(late.iter_mut().all(|send| !send.is_done()), "sent by a rail that is disabled");
        own.iter().for_each(|rail| world.enable_rail(*rail, true).unwrap());
        late.into_iter().for_each(|send| drop(send.wait().unwrap()));
        // With some of several rails disabled, the others carry all messages.
        for rail in &own {
            world.enable_rail(*rail, Some(rail) == own.last()).unwrap();
        }
        meet(world);
    } else {
        world.send(0, 2, b"here").unwrap();
        for len in [8, 200_000] {
            let mut into = vec![0; len];
            world.recv(0, 1, &mut into[..]).unwrap();
            assert!(into == pattern(len, 5));
        }
        meet(world);
    }
    world.barrier().unwrap();
    report("exchanged");
}

/// The file system of shared memory has no room for rings.
fn no_memory(world: &World) -> ! {
    let other = 1 - world.rank();
    let error = world.send(other, 1, b"no room").unwrap_err();
    assert_eq!((error, world.why_lost(other)), (Error::NoSharedMemory { rank: other }, Some(Lost::NoRoom)));
    stay("named");
}

/// All ranks exchange expected and unexpected messages of all sizes with all, in both directions at the same time, with the
/// smallest settings.
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
        // Received in another order than they were sent, so that most are unexpected.
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
    report("exchanged");
}

/// The other rank may not have come up yet, so this rank does not end before the test kills it.
fn stay(word: &str) -> ! {
    report(word);
    loop {
        std::thread::park();
    }
}

fn all_stay(mut job: Job, word: &str) {
    job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for(word)));
}

fn all_say(job: Job, word: &str) {
    let mut ranks = job.ranks;
    ranks.iter_mut().for_each(|rank| drop(rank.wait_for(word)));
    ranks.into_iter().for_each(Rank::assert_success);
}

#[test]
fn p1_a_rank_without_free_descriptors_connects_once_it_has_some() {
    for role in ["connector", "listener"] {
        all_say(Job::start(2, role, &[("TOWLINE_TRANSPORTS", "tcp")]), "exchanged");
    }
}

/// How ranks are connected: transport and number of links.
const TRANSPORTS: [(&str, &str); 5] = [("sm", "1"), ("tcp", "1"), ("tcp", "3"), ("udp", "1"), ("udp", "2")];

#[test]
fn p1_p7_a_rank_without_free_descriptors_does_not_give_up_a_stopped_rank() {
    for (transport, links) in TRANSPORTS {
        let variables =
            [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links), ("TOWLINE_PEER_TIMEOUT_MS", "1000")];
        let mut job = Job::start(2, "stopped", &variables);
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        job.ranks[1].signal(Signal::STOP);
        std::thread::sleep(Duration::from_secs(3));
        assert!(job.ranks[0].child.try_wait().unwrap().is_none(), "{transport} with {links} links: given up");
        job.ranks[1].signal(Signal::CONT);
        job.ranks[1].send_line("go on");
        all_say(job, "exchanged");
    }
}

#[test]
fn p1_p7_a_rank_without_free_descriptors_notices_a_killed_rank() {
    for (transport, links) in TRANSPORTS {
        let mut job = Job::start(2, "killed", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]);
        job.ranks.iter_mut().for_each(|rank| drop(rank.wait_for("ready")));
        job.ranks[1].kill();
        job.ranks[0].wait_for("named");
    }
}

#[test]
fn p9_messages_that_are_sent_while_all_rails_are_disabled_wait_for_a_rail() {
    for (transport, links) in TRANSPORTS {
        all_say(Job::start(2, "disabled", &[("TOWLINE_TRANSPORTS", transport), ("TOWLINE_LINKS", links)]), "exchanged");
    }
}

#[test]
fn p1_a_rank_that_never_has_free_descriptors_gets_an_error_that_names_the_peer() {
    let variables = [("TOWLINE_TRANSPORTS", "tcp"), ("TOWLINE_TCP_CONNECT_TIMEOUT_MS", "1500")];
    all_stay(Job::start(2, "no descriptors", &variables), "named");
}

/// A file system with room for two control segments, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("towline-host-small-{}", std::process::id()));
        std::fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8k", "tmpfs"]).arg(&path).status();
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
    ("TOWLINE_TCP_SOCKET_BYTES", "2304"),
    ("TOWLINE_TCP_EAGER_LIMIT_BYTES", "256"),
    ("TOWLINE_TCP_MAX_SEND_BYTES", "256"),
    ("TOWLINE_TCP_SEND_STAGING_BYTES", "8192"),
    ("TOWLINE_TCP_RENDEZVOUS_BYTES", "0"),
];

const UDP: [(&str, &str); 5] = [
    ("TOWLINE_TRANSPORTS", "udp"),
    ("TOWLINE_UDP_DATAGRAM_BYTES", "256"),
    ("TOWLINE_UDP_SEND_BUFFER_BYTES", "2304"),
    ("TOWLINE_UDP_RECEIVE_BUFFER_BYTES", "2304"),
    ("TOWLINE_LINK_WINDOW", "4"),
];

#[test]
fn p20_b11_p15_the_smallest_datagrams_socket_buffers_and_window_carry_all_messages() {
    all_say(Job::start(3, "squeeze", &UDP), "exchanged");
}

#[test]
fn p20_b11_the_smallest_rings_carry_all_messages() {
    all_say(Job::start(3, "squeeze", &SM), "exchanged");
}

#[test]
fn p20_b11_the_smallest_socket_and_staging_buffers_carry_all_messages() {
    all_say(Job::start(3, "squeeze", &TCP), "exchanged");
}

#[test]
fn m6_the_smallest_pools_carry_all_messages() {
    for transport in ["sm", "tcp", "udp"] {
        all_say(Job::start(3, "squeeze", &[&POOLS[..], &[("TOWLINE_TRANSPORTS", transport)]].concat()), "exchanged");
    }
}

#[test]
fn m6_p20_the_smallest_settings_together_carry_all_messages() {
    for rails in [&SM[..], &TCP, &UDP] {
        all_say(Job::start(3, "squeeze", &[&POOLS[..], rails].concat()), "exchanged");
    }
}
