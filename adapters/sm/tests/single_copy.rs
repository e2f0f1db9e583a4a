//! Single copy through the kernel: between rails of one process, between two processes, where the system refuses it, and with a
//! hostile peer.
#![cfg(not(loom))]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock};

use towline_core::convertor::{Layout, Span};
use towline_core::rail::{
    Cookie, Endpoint, Event, Frame, HEAD, Lane, Lost, Peer, REMOTE_BUFFER_BYTES, Rail as _, RemoteBuffer, SendError,
    Shape, SingleCopy as _,
};
use towline_core::time::Instant;
use towline_sm::{Config, Rail, SingleCopyState};

const LEN: usize = 100_000;

fn job() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    u64::from(std::process::id()) << 32 | 1 << 20 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + at / 256) as u8).collect()
}

struct Pair {
    left: Rail,
    right: Rail,
    to_right: Endpoint,
    to_left: Endpoint,
}

/// Two rails of one process; rank 0 has sent a first frame to rank 1.
fn pair(set: impl Fn(u32, &mut Config)) -> Pair {
    pair_beside(set, || ())
}

/// The configuration of a rail that reads the messages of these tests in a single copy.
fn config(job: u64, rank: u32, ranks: u32) -> Config {
    Config { single_copy_bytes: LEN as u32, ..Config::new(job, rank, ranks) }
}

/// As [`pair`], with a call of `meanwhile` before rank 1 looks at its ring.
fn pair_beside(set: impl Fn(u32, &mut Config), meanwhile: impl FnOnce()) -> Pair {
    let job = job();
    let open = |rank| {
        let mut config = config(job, rank, 2);
        set(rank, &mut config);
        Rail::open(config).unwrap()
    };
    let (mut left, mut right) = (open(0), open(1));
    let to_right = left.add_peer(Peer(1), right.card()).unwrap();
    let to_left = right.add_peer(Peer(0), left.card()).unwrap();
    assert_eq!(left.sends_in_single_copy(to_right), SingleCopyState::Untried);
    assert_eq!(left.expose(to_right, &Span::of(&pattern(LEN, 0))), None, "the receiver has not looked yet");
    hello(&mut left, to_right);
    meanwhile();
    assert_eq!(frame(&mut right).head(), b"hello");
    Pair { left, right, to_right, to_left }
}

fn hello(rail: &mut Rail, to: Endpoint) {
    let mut grant = rail.reserve(to, Shape { tag: 1, lane: Lane::Eager, header: 5, len: 5 }).unwrap();
    grant.write(0, b"hello");
    let ticket = grant.finish();
    rail.commit(ticket);
}

fn frame(rail: &mut Rail) -> Frame {
    match rail.poll(Instant::ZERO) {
        Some(Event::Frame(frame)) => frame,
        event => panic!("{event:?}"),
    }
}

fn read_exposed(rail: &mut Rail, from: Endpoint, buffer: &RemoteBuffer, into: &mut [u8]) -> bool {
    // SAFETY: the sink is ours alone.
    unsafe { rail.read_exposed(from, buffer, Span::contiguous(into.as_mut_ptr(), into.len())) }
}

#[test]
fn p28_exposed_memory_is_read_in_place() {
    let mut pair = pair(|_, _| {});
    assert_eq!(pair.left.sends_in_single_copy(pair.to_right), SingleCopyState::Supported);
    assert_eq!(
        pair.right.sends_in_single_copy(pair.to_left),
        SingleCopyState::Untried,
        "no frame was sent in that direction"
    );
    let data = pattern(LEN, 1);
    let buffer = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    for len in [1, 4096, LEN] {
        let mut into = vec![0xee; LEN + 1];
        assert!(read_exposed(&mut pair.right, pair.to_left, &buffer, &mut into[..len]));
        assert!(into[..len] == data[..len] && into[len..].iter().all(|byte| *byte == 0xee), "{len}");
    }
    // The memory itself is read, not a copy of it.
    let mut data = data;
    data[LEN - 1] ^= 1;
    let mut into = vec![0; LEN];
    assert!(read_exposed(&mut pair.right, pair.to_left, &buffer, &mut into) && into == data);
}

#[test]
fn p28_another_rail_of_the_same_process_does_not_release_the_lock() {
    let pair = pair_beside(|_, _| {}, || drop(Rail::open(config(job(), 0, 1)).unwrap()));
    assert_eq!(pair.left.sends_in_single_copy(pair.to_right), SingleCopyState::Supported);
}

#[test]
fn p28_memory_that_is_not_contiguous_is_not_exposed() {
    let mut pair = pair(|_, _| {});
    let data = pattern(LEN, 1);
    let buffer = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    let rows = Layout::vector(LEN as u64 / 100, 50, 100).unwrap();
    let mut into = vec![0u8; LEN];
    // SAFETY: the layout outlives the spans, and the sink is ours alone.
    unsafe {
        let rows = Span::laid_out(into.as_mut_ptr(), &rows);
        assert_eq!(pair.left.expose(pair.to_right, &rows), None);
        assert!(!pair.right.read_exposed(pair.to_left, &buffer, rows));
    }
}

#[test]
fn p34_the_limits_are_those_of_the_configuration() {
    let mut pair = pair(|_, config| (config.single_copy_bytes, config.single_copy_limit_bytes) = (1000, 5000));
    let data = pattern(LEN, 1);
    for (len, exposed) in [(999, false), (1000, true), (5000, true), (5001, false)] {
        assert_eq!(pair.left.expose(pair.to_right, &Span::of(&data[..len])).is_some(), exposed, "{len}");
    }
    let mut config = config(1, 0, 1);
    config.single_copy_limit_bytes = u32::MAX;
    assert!(Rail::open(config).is_err());
}

#[test]
fn p28_either_side_can_switch_it_off() {
    for off in 0..2 {
        let mut pair = pair(|rank, config| config.single_copy_bytes = if rank == off { 0 } else { 1000 });
        assert_eq!(pair.left.sends_in_single_copy(pair.to_right), SingleCopyState::Refused);
        assert_eq!(pair.left.expose(pair.to_right, &Span::of(&pattern(LEN, 1))), None);
        hello(&mut pair.right, pair.to_left);
        frame(&mut pair.left);
        assert_eq!(pair.right.sends_in_single_copy(pair.to_left), SingleCopyState::Refused);
    }
}

#[test]
fn p7_memory_exposed_to_a_deleted_peer_cannot_be_read_any_more() {
    let mut pair = pair(|_, _| {});
    let (data, mut into) = (pattern(LEN, 1), vec![0; LEN]);
    let old = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    pair.left.del_peer(pair.to_right);
    assert!(!read_exposed(&mut pair.right, pair.to_left, &old, &mut into));
    assert_eq!(pair.left.expose(pair.to_right, &Span::of(&data)), None);
    // The memory cannot be read after the peer was added again either, when other memory may be exposed to it.
    let to_right = pair.left.add_peer(Peer(1), pair.right.card()).unwrap();
    assert!(!read_exposed(&mut pair.right, pair.to_left, &old, &mut into));
    let new = pair.left.expose(to_right, &Span::of(&data)).unwrap();
    assert!(read_exposed(&mut pair.right, pair.to_left, &new, &mut into) && into == data);
    drop(pair.left);
    assert!(!read_exposed(&mut pair.right, pair.to_left, &new, &mut into), "a closed rail exposes nothing");
}

/// Revoking does not concern a peer that has not looked yet, or to which nothing was exposed.
#[test]
fn b25_revoking_does_not_affect_peers_to_which_nothing_was_exposed() {
    let mut pair = pair(|_, _| {});
    let data = pattern(LEN, 1);
    let buffer = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    // In the other direction the receiver has not looked when the exposure is revoked.
    hello(&mut pair.right, pair.to_left);
    pair.right.revoke_exposed();
    frame(&mut pair.left);
    assert_eq!(pair.right.sends_in_single_copy(pair.to_left), SingleCopyState::Supported);
    assert!(read_exposed(&mut pair.right, pair.to_left, &buffer, &mut vec![0; LEN]));
}

#[test]
fn b25_revoked_memory_cannot_be_read_any_more() {
    let mut pair = pair(|_, _| {});
    let (data, mut into) = (pattern(LEN, 1), vec![0; LEN]);
    let old = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    assert_eq!(pair.right.read_limit(pair.to_left), 1 << 20);
    assert_eq!(pair.left.read_limit(pair.to_right), 0, "no ring came from there");
    pair.left.revoke_exposed();
    assert!(!read_exposed(&mut pair.right, pair.to_left, &old, &mut into));
    assert_eq!(pair.left.sends_in_single_copy(pair.to_right), SingleCopyState::Supported, "revoking is not a refusal");
    let new = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    assert!(read_exposed(&mut pair.right, pair.to_left, &new, &mut into) && into == data);
}

#[test]
fn p22_forged_remote_buffers_yield_nothing_and_do_no_harm() {
    let mut pair = pair(|_, _| {});
    let data = pattern(LEN, 1);
    let buffer = pair.left.expose(pair.to_right, &Span::of(&data)).unwrap();
    let mut into = vec![0; LEN];
    for address in [0, 8, 0x1000, 1 << 47, u64::MAX, u64::MAX - LEN as u64 + 1] {
        let mut forged = buffer;
        forged.0[..8].copy_from_slice(&address.to_le_bytes());
        assert!(!read_exposed(&mut pair.right, pair.to_left, &forged, &mut into), "{address:x}");
    }
    for at in 8..12 {
        let mut forged = buffer;
        forged.0[at] ^= 1;
        assert!(!read_exposed(&mut pair.right, pair.to_left, &forged, &mut into), "another generation");
    }
    assert!(!read_exposed(&mut pair.right, pair.to_left, &RemoteBuffer([0xff; REMOTE_BUFFER_BYTES]), &mut into));
    for nobody in [Endpoint(1), Endpoint(7), Endpoint(u32::MAX / 2), Endpoint(u32::MAX)] {
        assert!(!read_exposed(&mut pair.right, nobody, &buffer, &mut into));
        assert_eq!(pair.right.expose(nobody, &Span::of(&data)), None);
    }
    assert!(read_exposed(&mut pair.right, pair.to_left, &buffer, &mut into) && into == data, "single copy still works");
}

#[test]
fn b10_memory_that_is_not_mapped_is_not_read() {
    let len = 32 * 4096;
    let mut pair = pair(|_, config| config.single_copy_bytes = len as u32 / 2);
    let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let flags = rustix::mm::MapFlags::PRIVATE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }.unwrap();
    // SAFETY: the second half of the mapping, which nobody uses.
    unsafe { rustix::mm::munmap(base.wrapping_byte_add(len / 2), len / 2) }.unwrap();
    let buffer = pair.left.expose(pair.to_right, &Span::contiguous(base.cast(), len)).unwrap();
    let mut into = vec![0; len];
    assert!(!read_exposed(&mut pair.right, pair.to_left, &buffer, &mut into));
    assert!(read_exposed(&mut pair.right, pair.to_left, &buffer, &mut into[..len / 2]));
    assert_eq!(
        pair.left.sends_in_single_copy(pair.to_right),
        SingleCopyState::Supported,
        "other memory can still be read"
    );
    // SAFETY: the first half of the mapping, which nobody uses any more.
    unsafe { rustix::mm::munmap(base, len / 2) }.unwrap();
}

/// Two rails and the ring from rank 0 to rank 1, at which rank 1 has not looked yet.
fn unseen_ring(job: u64) -> (Rail, Rail, Endpoint, Endpoint, std::path::PathBuf) {
    let (mut left, mut right) = (Rail::open(config(job, 0, 2)).unwrap(), Rail::open(config(job, 1, 2)).unwrap());
    let to_right = left.add_peer(Peer(1), right.card()).unwrap();
    let to_left = right.add_peer(Peer(0), left.card()).unwrap();
    hello(&mut left, to_right);
    let user = rustix::process::geteuid().as_raw();
    let path = format!("/dev/shm/towline.{user}.{job:016x}.0-1.eager").into();
    (left, right, to_right, to_left, path)
}

#[test]
fn p22_a_ring_without_a_lock_gets_no_single_copy() {
    let (mut left, mut right, to_right, _, path) = unseen_ring(job());
    // Closing any descriptor of the file releases the lock.
    drop(std::fs::File::open(&path).unwrap());
    frame(&mut right);
    assert_eq!(left.sends_in_single_copy(to_right), SingleCopyState::Refused);
    assert_eq!(left.expose(to_right, &Span::of(&pattern(LEN, 1))), None);
}

#[test]
fn p22_a_wrong_epoch_word_gets_no_single_copy() {
    for (word, value) in [(19, 0u64), (19, 0x1000), (20, 1)] {
        let (mut left, mut right, to_right, _, path) = unseen_ring(job());
        // Written by another process, so that the lock stays.
        let mut child = Command::new("dd");
        child.args(["bs=8", "count=1", "conv=notrunc", &format!("seek={word}"), &format!("of={}", path.display())]);
        let mut child = child.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&value.to_le_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
        frame(&mut right);
        assert_eq!(left.sends_in_single_copy(to_right), SingleCopyState::Refused, "word {word}");
        assert_eq!(left.expose(to_right, &Span::of(&pattern(LEN, 1))), None);
    }
}

#[test]
fn locks_are_released_once_the_receiver_has_looked() {
    let (mut left, mut right, _, _, path) = unseen_ring(job());
    let held = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let name = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
        open.filter_map(name).filter(|link| link.to_str().unwrap().starts_with(path.to_str().unwrap())).count()
    };
    assert_eq!(held(), 1);
    frame(&mut right);
    for _ in 0..1000 {
        left.poll(Instant::ZERO);
    }
    assert_eq!(held(), 0);
}

#[test]
fn p28_rings_over_the_lock_limit_are_reported() {
    const RANKS: u32 = 68;
    let job = job();
    let open = |rank| {
        let mut config = config(job, rank, RANKS);
        (config.eager_ring_bytes, config.eager_limit_bytes) = (8192, 1024);
        Rail::open(config).unwrap()
    };
    let mut hub = open(0);
    let mut others: Vec<_> = (1..RANKS).map(|rank| (open(rank), rank)).collect();
    let connect = |hub: &mut Rail, (other, rank): &mut (Rail, u32)| {
        other.add_peer(Peer(0), hub.card()).unwrap();
        hub.add_peer(Peer(*rank), other.card()).unwrap()
    };
    let to: Vec<_> = others.iter_mut().map(|other| connect(&mut hub, other)).collect();
    // No receiver looks meanwhile, and the last ring is not made yet.
    let (last, early) = to.split_last().unwrap();
    early.iter().for_each(|to| hello(&mut hub, *to));
    let states = |hub: &Rail| to.iter().map(|to| hub.sends_in_single_copy(*to)).collect::<Vec<_>>();
    assert_eq!(states(&hub)[..64], [SingleCopyState::Untried; 64]);
    assert_eq!(states(&hub)[64..66], [SingleCopyState::LockLimit; 2]);
    assert_eq!(hub.rings_over_lock_limit(), 2);
    // One receiver looks, so that there is a lock for another ring.
    frame(&mut others[0].0);
    hello(&mut hub, *last);
    for (other, _) in &mut others[1..] {
        frame(other);
    }
    for (index, (to, state)) in to.iter().zip(states(&hub)).enumerate() {
        let over_limit = (64..66).contains(&index);
        assert_eq!(state, if over_limit { SingleCopyState::LockLimit } else { SingleCopyState::Supported }, "{index}");
        assert_eq!(hub.expose(*to, &Span::of(&pattern(LEN, 1))).is_some(), !over_limit);
    }
    assert_eq!(hub.rings_over_lock_limit(), 2);
}

// Two processes.

fn now(clock: Clock) -> Instant {
    Instant::from_nanos(clock.elapsed().as_nanos() as u64)
}

fn next(rail: &mut Rail, clock: Clock) -> Event {
    loop {
        if let Some(event) = rail.poll(now(clock)) {
            return event;
        }
        rail.wait(Some(Duration::from_millis(20)));
        assert!(clock.elapsed() < Duration::from_secs(300), "no event comes");
    }
}

fn tell(rail: &mut Rail, to: Endpoint, bytes: &[u8]) {
    let shape = Shape { tag: 1, lane: Lane::Eager, header: 0, len: bytes.len() as u32 };
    loop {
        // SAFETY: the body outlives the call, and this rail copies.
        match unsafe { rail.send(to, shape, &[], Span::of(bytes), Cookie(0)) } {
            Ok(_) => return,
            Err(SendError::Busy) => drop(rail.poll(Instant::ZERO)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Starts the other process, as rank 1 in a role, and exchanges cards with it.
fn connect(role: &str) -> (Rail, Endpoint, Child, Clock) {
    let (clock, job) = (Clock::now(), job());
    let mut rail = Rail::open(config(job, 0, 2)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--nocapture", "--ignored"]);
    command.env("TOWLINE_SM_TEST", format!("{job} {role}"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(rail.card()).unwrap();
    // The test harness prints first; the card comes behind the text `card:`.
    let (mut out, mut seen) = (child.stdout.take().unwrap(), Vec::new());
    let card = loop {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("the other process prints its card");
        seen.push(byte[0]);
        if let Some(at) = seen.windows(5).position(|window| window == b"card:")
            && seen.len() == at + 5 + 80
        {
            break seen.split_off(at + 5);
        }
    };
    child.stdout = Some(out);
    let to = rail.add_peer(Peer(1), &card).unwrap();
    hello(&mut rail, to);
    (rail, to, child, clock)
}

#[test]
#[ignore = "started by the other tests as their second process"]
fn the_other_process() {
    let Ok(role) = std::env::var("TOWLINE_SM_TEST") else { return };
    let (job, role) = role.split_once(' ').unwrap();
    let clock = Clock::now();
    if role == "refused" {
        refuse_reading();
    }
    let mut card = Vec::new();
    std::io::stdin().read_to_end(&mut card).unwrap();
    let mut rail = Rail::open(config(job.parse().unwrap(), 1, 2)).unwrap();
    let to = rail.add_peer(Peer(0), &card).unwrap();
    let mut out = std::io::stdout();
    out.write_all(&[b"card:", rail.card()].concat()).unwrap();
    out.flush().unwrap();
    assert!(matches!(next(&mut rail, clock), Event::Frame(_)));
    hello(&mut rail, to);
    // Rank 0 says that it has looked, or which memory it exposes.
    let Event::Frame(frame) = next(&mut rail, clock) else { panic!() };
    if let Ok(buffer) = frame.head().try_into() {
        refuse_reading();
        assert!(!read_exposed(&mut rail, to, &RemoteBuffer(buffer), &mut vec![0; LEN]));
    }
    let data = pattern(LEN, 5);
    let buffer = rail.expose(to, &Span::of(&data));
    tell(&mut rail, to, buffer.map_or(&[][..], |buffer| Box::leak(Box::new(buffer.0))));
    if role == "die" {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    loop {
        if let Event::Lost(..) = next(&mut rail, clock) {
            return;
        }
    }
}

/// Makes the system refuse `process_vm_readv` to this process, as containers often do.
fn refuse_reading() {
    let statement = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut program = [
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0),
        statement((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 1, libc::SYS_process_vm_readv as u32),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes rights away from this thread; the program outlives the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// The memory that the other process exposes, if any.
fn exposed_by(rail: &mut Rail, to: Endpoint, clock: Clock) -> Option<RemoteBuffer> {
    assert!(matches!(next(rail, clock), Event::Frame(_)));
    hello(rail, to);
    let Event::Frame(frame) = next(rail, clock) else { panic!() };
    assert!(frame.len as usize <= HEAD);
    frame.head().try_into().ok().map(RemoteBuffer)
}

#[test]
fn p28_memory_of_another_process_is_read() {
    let (mut rail, to, mut child, clock) = connect("expose");
    let buffer = exposed_by(&mut rail, to, clock).expect("single copy works here");
    let mut into = vec![0; LEN];
    assert!(read_exposed(&mut rail, to, &buffer, &mut into));
    assert!(into == pattern(LEN, 5));
    assert_eq!(rail.sends_in_single_copy(to), SingleCopyState::Supported);
    drop(rail);
    assert!(child.wait().unwrap().success());
}

#[test]
fn b10_a_dead_process_is_not_read_and_is_reported_lost() {
    let (mut rail, to, mut child, clock) = connect("die");
    let buffer = exposed_by(&mut rail, to, clock).unwrap();
    child.wait().unwrap();
    assert!(!read_exposed(&mut rail, to, &buffer, &mut vec![0; LEN]));
    assert!(matches!(next(&mut rail, clock), Event::Lost(Peer(1), Lost::Broken)));
}

#[test]
fn p28_where_the_system_refuses_nothing_is_exposed() {
    let (mut rail, to, mut child, clock) = connect("refused");
    assert!(exposed_by(&mut rail, to, clock).is_some(), "it works in the other direction");
    assert_eq!(rail.sends_in_single_copy(to), SingleCopyState::Refused);
    assert_eq!(rail.expose(to, &Span::of(&pattern(LEN, 1))), None);
    drop(rail);
    assert!(child.wait().unwrap().success());
}

#[test]
fn p28_once_the_system_refuses_nothing_more_is_exposed() {
    let (mut rail, to, mut child, clock) = connect("refused later");
    assert!(matches!(next(&mut rail, clock), Event::Frame(_)));
    assert_eq!(rail.sends_in_single_copy(to), SingleCopyState::Supported);
    let data = pattern(LEN, 1);
    let buffer = rail.expose(to, &Span::of(&data)).unwrap();
    tell(&mut rail, to, &buffer.0);
    assert!(matches!(next(&mut rail, clock), Event::Frame(_)));
    assert_eq!(rail.sends_in_single_copy(to), SingleCopyState::Refused);
    assert_eq!(rail.expose(to, &Span::of(&data)), None);
    drop(rail);
    assert!(child.wait().unwrap().success());
}
