//! Two rails in one thread: the promises of the rail trait.
#![cfg(not(loom))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towline_core::convertor::Span;
use towline_core::rail::{
    Cookie, Delivery, Endpoint, Event, FastPath, Frame, FrameId, HEAD, Lane, Lost, Peer, Rail as _, SendError, Sent,
    Shape, Unreachable,
};
use towline_core::time::Instant;
use towline_sm::{CleanUp, Config, OpenError, Rail};

/// A job of its own for each test.
fn job() -> u64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    u64::from(std::process::id()) << 32 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn pair() -> (Rail, Rail, Endpoint, Endpoint) {
    pair_of(|_| {})
}

fn pair_of(set: impl Fn(&mut Config)) -> (Rail, Rail, Endpoint, Endpoint) {
    let job = job();
    let open = |rank| {
        let mut config = Config::new(job, rank, 2);
        set(&mut config);
        Rail::open(config).unwrap()
    };
    let (mut left, mut right) = (open(0), open(1));
    let to_right = left.add_peer(Peer(11), right.card()).unwrap();
    let to_left = right.add_peer(Peer(10), left.card()).unwrap();
    (left, right, to_right, to_left)
}

fn send(rail: &mut Rail, to: Endpoint, lane: Lane, bytes: &[u8]) -> Result<Sent, SendError> {
    let header = bytes.len().min(20);
    let shape = Shape { tag: 0x42, lane, header: header as u8, len: bytes.len() as u32 };
    // SAFETY: the body outlives the call, and this rail copies.
    unsafe { rail.send(to, shape, &bytes[..header], Span::of(&bytes[header..]), Cookie(0)) }
}

/// The next frame. The rail is polled as an engine does it.
fn frame(rail: &mut Rail) -> Option<Frame> {
    if rail.poll_short(0xfe).is_none() && rail.is_idle() {
        return None;
    }
    match rail.poll(Instant::ZERO)? {
        Event::Frame(frame) => Some(frame),
        event => panic!("{event:?}"),
    }
}

fn whole(rail: &mut Rail, frame: &Frame) -> Vec<u8> {
    if frame.is_whole() {
        return frame.head().to_vec();
    }
    let mut bytes = vec![0; frame.len as usize];
    let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the sink is ours, and this rail delivers at once.
    assert_eq!(unsafe { rail.deliver(frame.id, 0, sink, Cookie(0)) }, Delivery::Done);
    bytes
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + at / 256) as u8).collect()
}

fn files(directory: &Path, job: u64) -> Vec<PathBuf> {
    let job = format!("{job:016x}");
    let entries = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_str().unwrap().contains(&job)).collect()
}

#[test]
fn p34_every_length_around_the_limits_arrives_whole() {
    let (mut left, mut right, to, _) = pair();
    let (eager, bulk) = (left.attributes().eager_limit as usize, left.attributes().max_send_size as usize);
    for (lane, limit) in [(Lane::Eager, eager), (Lane::Control, eager), (Lane::Bulk, bulk)] {
        for len in [0, 1, 19, 20, 21, HEAD - 1, HEAD, HEAD + 1, 63, 64, 65, 120, 121, 1000, limit - 1, limit] {
            let bytes = pattern(len, len);
            assert_eq!(send(&mut left, to, lane, &bytes), Ok(Sent::Done), "{lane:?} {len}");
            let got = frame(&mut right).unwrap();
            assert_eq!((got.from, got.tag, got.len as usize), (Peer(10), 0x42, len));
            assert_eq!(got.head(), &bytes[..len.min(HEAD)]);
            assert!(whole(&mut right, &got) == bytes, "{lane:?} {len}");
        }
        assert_eq!(send(&mut left, to, lane, &pattern(limit + 1, 0)), Err(SendError::TooLong));
    }
    let header = Shape { tag: 1, lane: Lane::Eager, header: HEAD as u8 + 1, len: 100 };
    assert_eq!(left.reserve(to, header).err(), Some(SendError::TooLong));
}

/// What the fast path for eager frames yields: the sender, and the bytes.
fn eager(rail: &mut Rail, tag: u8) -> Option<(Peer, Vec<u8>)> {
    let frame = rail.poll_eager(tag)?;
    let mut body = vec![0; frame.body.len()];
    // SAFETY: the sink is ours, and the rail was not called since.
    unsafe { frame.body.deliver(&Span::contiguous(body.as_mut_ptr(), body.len())) };
    Some((frame.from, [frame.header.map(u64::to_ne_bytes).as_flattened(), &body].concat()))
}

#[test]
fn p34_frames_in_several_slots_take_the_fast_path_for_eager_frames() {
    let (mut left, mut right, to, _) = pair();
    let limit = left.attributes().eager_limit as usize;
    send(&mut left, to, Lane::Eager, &[0; 24]).unwrap();
    assert_eq!(frame(&mut right).unwrap().len, 24, "the ring is known now");
    for len in (HEAD + 1..2000).step_by(63).chain([limit - 1, limit]) {
        let bytes = pattern(len, len);
        send(&mut left, to, Lane::Eager, &bytes).unwrap();
        assert_eq!((right.poll_short(0x42).map(|short| short.from), eager(&mut right, 0x41)), (None, None));
        // Where a return of slots is due, the frame comes by `poll`.
        match eager(&mut right, 0x42) {
            Some(got) => assert!(got == (Peer(10), bytes), "{len}"),
            None => {
                let got = frame(&mut right).unwrap();
                assert!(whole(&mut right, &got) == bytes, "{len}");
            }
        }
    }
    // One that is not wanted so is held, and can be read as any other frame.
    let (mut taken, mut held) = (0, Vec::new());
    for number in 0..100 {
        let bytes = pattern(100, number);
        send(&mut left, to, Lane::Eager, &bytes).unwrap();
        let again = eager(&mut right, 0x42).is_some();
        taken += usize::from(again);
        let got = if again { right.poll_again() } else { frame(&mut right) };
        held.push((got.unwrap(), bytes));
        if held.len() == 5 {
            assert!(held.drain(..).all(|(frame, bytes)| whole(&mut right, &frame) == bytes));
        }
    }
    assert!(taken > 50, "{taken}");
    // No frame takes this path while as many are held as may be.
    let mut frames = 0;
    while frames < right.attributes().frames_kept {
        send(&mut left, to, Lane::Eager, &pattern(100, 1)).unwrap();
        frame(&mut right).unwrap();
        frames += 1;
    }
    send(&mut left, to, Lane::Eager, &pattern(100, 2)).unwrap();
    assert_eq!(eager(&mut right, 0x42), None);
}

/// What the fast path that copies frames yields: the sender, the tag and the bytes.
fn copied(rail: &mut Rail, except: u8, most: usize) -> Option<(Peer, u8, Vec<u8>)> {
    let mut bytes = vec![0xee; most];
    let frame = rail.poll_copied(except, &mut bytes)?;
    bytes.truncate(frame.len as usize);
    Some((frame.from, frame.tag, bytes))
}

#[test]
fn p34_frames_of_any_length_are_copied_whole() {
    let (mut left, mut right, to, _) = pair();
    let limit = left.attributes().eager_limit as usize;
    send(&mut left, to, Lane::Eager, &[0; 24]).unwrap();
    assert_eq!(frame(&mut right).unwrap().len, 24, "the ring is known now");
    let lengths: Vec<usize> = (0..130).chain((130..3000).step_by(97)).chain([limit - 1, limit]).collect();
    // Several laps of the ring, so that the path returns slots, too.
    let mut taken = 0;
    for round in 0..40 {
        for &len in &lengths {
            let bytes = pattern(len, round);
            send(&mut left, to, Lane::Eager, &bytes).unwrap();
            assert_eq!(copied(&mut right, 0x42, limit), None, "a tag that is not wanted");
            assert!(len == 0 || copied(&mut right, 0x41, len - 1).is_none(), "no room");
            // The end of a turn, and of the ring.
            match copied(&mut right, 0x41, len.max(HEAD + round % 2)) {
                Some(got) => {
                    assert!(got == (Peer(10), 0x42, bytes), "{len}");
                    taken += 1;
                }
                None => {
                    let got = frame(&mut right).unwrap();
                    assert!(whole(&mut right, &got) == bytes, "{len}");
                }
            }
        }
    }
    assert!(taken * 10 > 40 * lengths.len() * 9, "{taken}");
    // The slots of a held frame are returned first.
    send(&mut left, to, Lane::Eager, &pattern(100, 1)).unwrap();
    let held = frame(&mut right).unwrap();
    send(&mut left, to, Lane::Eager, b"next").unwrap();
    assert_eq!(copied(&mut right, 0x41, limit), None);
    assert!(whole(&mut right, &held) == pattern(100, 1));
    assert_eq!(copied(&mut right, 0x41, limit), Some((Peer(10), 0x42, b"next".to_vec())));
}

#[test]
fn p25_positions_wrap_and_frames_stay_in_order() {
    // The positions of a ring begin 2^20 slots before the wrap.
    let (mut left, mut right, to, _) = pair();
    let mut slots = 0;
    for round in 0.. {
        for message in 0..16usize {
            let bytes = pattern(if message == 7 { 8000 } else { 40 * message }, round + message);
            send(&mut left, to, Lane::Eager, &bytes).unwrap();
            slots += (bytes.len() + 71) / 64;
        }
        for message in 0..16usize {
            let got = frame(&mut right).unwrap();
            let bytes = pattern(if message == 7 { 8000 } else { 40 * message }, round + message);
            assert!(whole(&mut right, &got) == bytes, "round {round}, message {message}");
        }
        if slots > (1 << 20) + 100_000 {
            break;
        }
    }
}

#[test]
fn b11_a_full_ring_is_busy_and_control_frames_are_still_sent() {
    let (mut left, mut right, to, _) = pair();
    for lane in [Lane::Eager, Lane::Bulk] {
        let bytes = pattern(5000, 1);
        let mut sent = 0;
        while send(&mut left, to, lane, &bytes) != Err(SendError::Busy) {
            sent += 1;
        }
        assert!(sent > 3);
        send(&mut left, to, Lane::Control, b"still sent").unwrap();
        let mut got = 0;
        let mut control = 0;
        while let Some(frame) = frame(&mut right) {
            if whole(&mut right, &frame) == b"still sent" { control += 1 } else { got += 1 }
        }
        assert_eq!((got, control), (sent, 1));
        send(&mut left, to, lane, &bytes).unwrap();
        let frame = frame(&mut right).unwrap();
        right.release(frame.id);
    }
}

#[test]
fn b16_dropped_grants_send_nothing() {
    let (mut left, mut right, to, _) = pair();
    for round in 0..3000usize {
        let shape = Shape { tag: 9, lane: Lane::Eager, header: 0, len: 4000 };
        let mut grant = left.reserve(to, shape).unwrap();
        grant.write(0, &[0xFF; 4000]);
        drop(grant);
        assert!(round % 100 != 0 || frame(&mut right).is_none());
        send(&mut left, to, Lane::Eager, &pattern(round % 100, round)).unwrap();
        let got = frame(&mut right).unwrap();
        assert!(whole(&mut right, &got) == pattern(round % 100, round));
    }
    let shape = Shape { tag: 9, lane: Lane::Eager, header: 0, len: 8 };
    let stale = left.reserve(to, shape).unwrap().finish();
    left.commit(stale);
    left.commit(stale);
    assert!(frame(&mut right).is_some());
    assert!(frame(&mut right).is_none(), "a ticket works once");
}

#[test]
fn p32_frames_are_released_in_any_order_and_poll_yields_none_while_all_are_held() {
    let (mut left, mut right, to, _) = pair();
    let most_held = right.attributes().frames_kept as usize;
    for round in 0..40usize {
        let mut held = Vec::new();
        for message in 0..most_held {
            send(&mut left, to, Lane::Eager, &pattern(400, round + message)).unwrap();
            held.push((frame(&mut right).unwrap(), message));
        }
        send(&mut left, to, Lane::Eager, b"one too many").unwrap();
        assert!(frame(&mut right).is_none());
        while !held.is_empty() {
            let (got, message) = held.remove((round * 5) % held.len());
            let bytes = pattern(400, round + message);
            let mut part = [0; 100];
            assert_eq!(right.read(got.id, 350, &mut part), 50);
            assert_eq!(part[..50], bytes[350..]);
            assert!(whole(&mut right, &got) == bytes);
            assert_eq!(right.read(got.id, 0, &mut part), 0, "released frames are gone");
            right.release(got.id);
        }
        assert_eq!(frame(&mut right).unwrap().head(), b"one too many");
    }
    right.release(FrameId(u64::MAX));
    right.release(FrameId(12345));
}

#[test]
fn p29_a_sink_shorter_than_the_frame_gets_the_bytes_that_fit() {
    let (mut left, mut right, to, _) = pair();
    send(&mut left, to, Lane::Eager, &pattern(1000, 3)).unwrap();
    let got = frame(&mut right).unwrap();
    let mut sink = [0xEE; 64];
    // SAFETY: the sink is ours, and this rail delivers at once.
    unsafe { right.deliver(got.id, 990, Span::contiguous(sink.as_mut_ptr(), 4), Cookie(0)) };
    assert_eq!(sink[..4], pattern(1000, 3)[990..994]);
    assert_eq!(sink[4..], [0xEE; 60]);
}

#[test]
fn m15_frames_of_a_peer_that_is_not_added_yet_are_kept() {
    let job = job();
    let mut left = Rail::open(Config::new(job, 0, 2)).unwrap();
    let mut right = Rail::open(Config::new(job, 1, 2)).unwrap();
    let to = left.add_peer(Peer(1), right.card()).unwrap();
    send(&mut left, to, Lane::Eager, b"early").unwrap();
    send(&mut left, to, Lane::Bulk, b"early too").unwrap();
    for _ in 0..1000 {
        assert!(frame(&mut right).is_none());
    }
    right.add_peer(Peer(0), left.card()).unwrap();
    let mut got = [frame(&mut right).unwrap().head().to_vec(), frame(&mut right).unwrap().head().to_vec()];
    got.sort();
    assert_eq!(got, [b"early".to_vec(), b"early too".to_vec()]);
}

#[test]
fn a_rail_can_send_to_itself() {
    let mut rail = Rail::open(Config::new(job(), 0, 1)).unwrap();
    let card = rail.card().to_vec();
    let to = rail.add_peer(Peer(0), &card).unwrap();
    send(&mut rail, to, Lane::Eager, b"me").unwrap();
    assert_eq!(frame(&mut rail).unwrap().head(), b"me");
}

#[test]
fn p7_no_frame_of_a_deleted_peer_arrives_until_it_is_added_again() {
    let (mut left, mut right, to, _) = pair();
    let card = left.card().to_vec();
    send(&mut left, to, Lane::Eager, &pattern(500, 1)).unwrap();
    let held = frame(&mut right).unwrap();
    send(&mut left, to, Lane::Eager, b"never seen").unwrap();
    right.del_peer(Endpoint(0));
    assert_eq!(right.read(held.id, 0, &mut [0; 8]), 0);
    assert!(frame(&mut right).is_none());
    assert_eq!(send(&mut right, Endpoint(0), Lane::Eager, b"no"), Err(SendError::Unreachable));
    for round in 0..5000usize {
        right.del_peer(Endpoint(0));
        let back = right.add_peer(Peer(77), &card).unwrap();
        send(&mut left, to, Lane::Eager, &pattern(round % 300, round)).unwrap();
        let got = frame(&mut right).unwrap();
        assert_eq!(got.from, Peer(77));
        assert!(whole(&mut right, &got) == pattern(round % 300, round));
        send(&mut right, back, Lane::Eager, b"answer").unwrap();
        assert_eq!(frame(&mut left).unwrap().head(), b"answer");
        right.del_peer(back);
    }
}

#[test]
fn b10_a_closed_peer_is_reported_once_after_all_its_frames() {
    let (mut left, right, to, _) = pair();
    let mut right = right;
    send(&mut left, to, Lane::Eager, b"last frame").unwrap();
    drop(left);
    let mut events = Vec::new();
    for _ in 0..2000 {
        events.extend(right.poll(Instant::from_nanos(1 << 40)));
    }
    let [Event::Frame(last), Event::Lost(Peer(10), Lost::Closed)] = events[..] else { panic!("{events:?}") };
    assert_eq!(last.head(), b"last frame");
    assert_eq!(send(&mut right, Endpoint(0), Lane::Eager, b"no"), Err(SendError::Unreachable));
}

#[test]
fn a_restarted_rank_can_be_added_again() {
    let job = job();
    let mut left = Rail::open(Config::new(job, 0, 2)).unwrap();
    for round in 0..3u8 {
        let mut right = Rail::open(Config::new(job, 1, 2)).unwrap();
        let to_right = left.add_peer(Peer(1), right.card()).unwrap();
        let to_left = right.add_peer(Peer(0), left.card()).unwrap();
        send(&mut right, to_left, Lane::Eager, &[round]).unwrap();
        send(&mut left, to_right, Lane::Eager, &[round]).unwrap();
        assert_eq!(frame(&mut left).unwrap().head(), [round]);
        assert_eq!(frame(&mut right).unwrap().head(), [round]);
    }
}

#[test]
fn p6_cards_of_other_hosts_jobs_and_protocols_are_distinguished() {
    let (mut left, right, ..) = pair();
    let mut card = right.card().to_vec();
    card[8] ^= 1; // the boot id
    assert_eq!(left.add_peer(Peer(3), &card).err(), Some(Unreachable::OtherHost));
    assert_eq!(left.add_peer(Peer(3), &[]).err(), Some(Unreachable::NoCard));
    assert_eq!(left.add_peer(Peer(3), b"tsx").err(), Some(Unreachable::BadCard));
    assert_eq!(left.add_peer(Peer(3), b"tsm\x09").err(), Some(Unreachable::Version));
    let stranger = Rail::open(Config::new(job(), 0, 2)).unwrap();
    assert_eq!(left.add_peer(Peer(3), stranger.card()).err(), Some(Unreachable::System));
}

#[test]
fn p8_no_file_is_left_when_all_rails_have_closed() {
    let (mut left, mut right, to, back) = pair();
    let (directory, job) = (left.config().directory.clone(), left.config().job);
    send(&mut left, to, Lane::Eager, b"a ring that is mapped").unwrap();
    frame(&mut right).unwrap();
    send(&mut left, to, Lane::Bulk, b"one that is not mapped").unwrap();
    send(&mut right, back, Lane::Eager, b"not mapped either").unwrap();
    left.wait_fd().unwrap();
    assert_eq!(files(&directory, job).len(), 5, "two control segments, two rings, a pipe");
    drop(left);
    drop(right);
    assert_eq!(files(&directory, job), Vec::<PathBuf>::new());
}

/// So whoever outlives a process can remove all that it leaves.
#[test]
fn each_file_is_named_for_the_clean_up_before_it_exists() {
    let named = Arc::new(Mutex::new(Vec::<PathBuf>::new()));
    let list = Arc::clone(&named);
    let clean_up = CleanUp::new(move |files| {
        assert!(files.iter().all(|file| !file.exists()));
        list.lock().unwrap().extend_from_slice(files);
    });
    let (mut left, mut right, to, back) = pair_of(|config| config.clean_up = Some(clean_up.clone()));
    left.wait_fd().unwrap();
    for (rail, to) in [(&mut left, to), (&mut right, back)] {
        assert_eq!(send(rail, to, Lane::Eager, b"short"), Ok(Sent::Done));
        assert_eq!(send(rail, to, Lane::Bulk, &pattern(10_000, 1)), Ok(Sent::Done));
    }
    let made = files(Path::new("/dev/shm"), left.config().job);
    assert_eq!(made.len(), 3 + 4, "two control segments, a pipe and four rings: {made:?}");
    assert!(made.iter().all(|file| named.lock().unwrap().contains(file)));
}

#[test]
fn p8_stale_files_of_dead_jobs_are_removed() {
    let (mut left, right, to, _) = pair();
    let directory = left.config().directory.clone();
    send(&mut left, to, Lane::Eager, b"x").unwrap();
    let dead = job();
    let user = rustix::process::geteuid().as_raw();
    let paths = files(&directory, left.config().job);
    assert_eq!(paths.len(), 3);
    for path in &paths {
        let name = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace(&format!("{:016x}", left.config().job), &format!("{dead:016x}"));
        let mut bytes = std::fs::read(path).unwrap();
        // The same process id with another start time: a process that has ended. In rings the receiver's too.
        bytes[16] ^= 1;
        bytes[18 * 8] ^= 1;
        assert!(name.starts_with(&format!("towline.{user}.")));
        std::fs::write(directory.join(name), bytes).unwrap();
    }
    // Rails of other tests may remove them, too.
    let _other = Rail::open(Config::new(job(), 0, 1)).unwrap();
    assert_eq!(files(&directory, dead), Vec::<PathBuf>::new());
    assert_eq!(files(&directory, left.config().job).len(), 3, "files of running processes stay");
    drop(right);
}

#[test]
fn p1_a_rank_that_runs_already_and_impossible_settings_are_refused() {
    let (left, _right, ..) = pair();
    assert!(matches!(Rail::open(left.config().clone()), Err(OpenError::Taken(_))));
    for set in [
        |config: &mut Config| config.rank = 2,
        |config: &mut Config| config.eager_ring_bytes = 1000,
        |config: &mut Config| config.eager_ring_bytes = 4096,
        |config: &mut Config| config.bulk_limit_bytes = 1 << 17,
        |config: &mut Config| config.frames_kept = 33,
        |config: &mut Config| config.eager_limit_bytes = 40,
    ] {
        let mut config = left.config().clone();
        set(&mut config);
        assert!(matches!(Rail::open(config), Err(OpenError::Config(_))));
    }
}

#[test]
fn arm_returns_whether_there_is_no_work() {
    for with_pipe in [false, true] {
        let (mut left, mut right, to, back) = pair();
        if with_pipe {
            right.wait_fd().unwrap();
        }
        assert!(!right.arm() || frame(&mut right).is_none());
        send(&mut left, to, Lane::Eager, b"one").unwrap();
        assert!(!right.arm(), "there is a frame, or the doorbell was rung");
        frame(&mut right).unwrap();
        assert!(right.arm(), "there is no work");
        send(&mut left, to, Lane::Eager, b"two").unwrap();
        right.wait(None); // would hang if the sender had not woken us
        assert_eq!(frame(&mut right).unwrap().head(), b"two");
        // A sender that waits for credit is woken when credit is returned.
        while send(&mut right, back, Lane::Eager, &[7; 3000]) != Err(SendError::Busy) {}
        assert!(right.arm());
        while let Some(got) = frame(&mut left) {
            left.release(got.id);
        }
        assert!(!right.arm(), "credit came");
        send(&mut right, back, Lane::Eager, &[7; 3000]).unwrap();
    }
}

#[test]
fn all_pairs_of_64_ranks_exchange_frames_and_quiet_rings_are_still_polled() {
    let job = job();
    let mut rails: Vec<Rail> = (0..64)
        .map(|rank| {
            let mut config = Config::new(job, rank, 64);
            (config.eager_ring_bytes, config.eager_limit_bytes) = (4096, 300);
            Rail::open(config).unwrap()
        })
        .collect();
    let cards: Vec<Vec<u8>> = rails.iter().map(|rail| rail.card().to_vec()).collect();
    for rail in &mut rails {
        for (rank, card) in cards.iter().enumerate() {
            assert_eq!(rail.add_peer(Peer(rank as u32), card), Ok(Endpoint(rank as u32)));
        }
    }
    for round in 0..3u8 {
        for from in 0..64u8 {
            for to in 0..64 {
                send(&mut rails[from as usize], Endpoint(to), Lane::Eager, &[from, to as u8, round]).unwrap();
            }
        }
        for to in 0..64u8 {
            let mut seen = [false; 64];
            let mut polls = 0;
            while seen.contains(&false) {
                polls += 1;
                // An idle poll looks at one quiet ring: nothing waits for maintenance, which is many polls away.
                assert!(polls < if round == 2 { 100 } else { 10_000 }, "round {round}");
                let Some(got) = frame(&mut rails[to as usize]) else { continue };
                let [from, dest, of] = got.head() else { panic!() };
                assert_eq!((u32::from(*from), *dest, *of), (got.from.0, to, round));
                assert!(!std::mem::replace(&mut seen[*from as usize], true));
            }
            // So many polls that all rings count as quiet.
            for _ in 0..if round == 1 { 40_100 } else { 0 } {
                assert!(frame(&mut rails[to as usize]).is_none());
            }
        }
    }
}

/// Overwrites part of the ring from rank 0 to rank 1, before rank 1 maps it.
fn tamper(rail: &Rail, at: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let mut rings = files(&rail.config().directory, rail.config().job);
    rings.retain(|path| path.to_str().unwrap().ends_with("0-1.eager"));
    let file = std::fs::OpenOptions::new().write(true).open(&rings[0]).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

#[test]
fn b9_a_peer_that_writes_an_impossible_frame_is_lost() {
    let start = towline_sm::ring::START;
    // Longer than the ring's limit; within the limit but over the ring's end; padding of a whole lap.
    for (len, tag) in [(100_000, 1), (8185, 1), (0xFF_FFFF, 0)] {
        let (mut left, mut right, to, _) = pair();
        send(&mut left, to, Lane::Eager, b"good").unwrap();
        let word = u64::from(towline_sm::ring::meta(len, tag)) << 32 | u64::from(start << 1 | 1);
        tamper(&left, 4096, &word.to_ne_bytes());
        assert!(matches!(right.poll(Instant::ZERO), Some(Event::Lost(Peer(10), Lost::Misbehaved))));
        assert!((0..1000).all(|_| right.poll(Instant::ZERO).is_none()), "reported once, and no event follows");
        assert_eq!(send(&mut right, Endpoint(0), Lane::Eager, b"no"), Err(SendError::Unreachable));
        right.del_peer(Endpoint(0));
    }
}

#[test]
fn b9_a_peer_that_returns_credit_it_never_had_is_lost() {
    let (mut left, _right, to, _) = pair();
    send(&mut left, to, Lane::Eager, b"good").unwrap();
    tamper(&left, 256, &towline_sm::ring::START.wrapping_add(5000).to_ne_bytes());
    while send(&mut left, to, Lane::Eager, &[0; 4000]).is_ok() {}
    assert!(matches!(left.poll(Instant::ZERO), Some(Event::Lost(Peer(11), Lost::Misbehaved))));
    assert_eq!(send(&mut left, to, Lane::Eager, b"no"), Err(SendError::Unreachable));
}

#[test]
fn b39_a_sleeping_peer_is_woken_only_by_signal_where_wake_on_demand_is_on() {
    use towline_core::rail::{Capabilities, FastPath as _};

    fn is_woken(rail: &mut Rail) -> bool {
        let fd = rail.wait_fd().unwrap();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1
    }
    fn sleeps(rail: &mut Rail) {
        while !rail.arm() {
            assert!(frame(rail).is_none());
        }
        assert!(!is_woken(rail));
    }
    let (mut left, mut right, to_right, _) = pair();
    assert!(left.attributes().capabilities.contains(Capabilities::SIGNALED));
    right.wait_fd().unwrap();
    for (lane, len) in [(Lane::Eager, 8), (Lane::Eager, 300), (Lane::Bulk, 9000), (Lane::Control, 20)] {
        let bytes = vec![3; len];
        // At first any frame wakes the peer.
        left.wake_on_demand(false);
        sleeps(&mut right);
        send(&mut left, to_right, lane, &bytes).unwrap();
        assert!(is_woken(&mut right), "{lane:?}");
        let seen = frame(&mut right).unwrap();
        assert_eq!(whole(&mut right, &seen), bytes);
        // Then only a signal wakes the peer; the frames arrive nevertheless.
        left.wake_on_demand(true);
        sleeps(&mut right);
        send(&mut left, to_right, lane, &bytes).unwrap();
        // SAFETY: the body outlives the call.
        unsafe { left.send_now(to_right, 0x42, [1, 2, 3], Span::of(&bytes[..5])) }.unwrap();
        assert!(!is_woken(&mut right), "{lane:?}: no signal yet");
        left.signal(to_right);
        assert!(is_woken(&mut right), "{lane:?}: signalled");
        for _ in 0..2 {
            let seen = frame(&mut right).unwrap();
            whole(&mut right, &seen);
        }
    }
    // The very first frame, whose ring is still to be made.
    let (mut left, mut right, to_right, _) = pair();
    right.wait_fd().unwrap();
    left.wake_on_demand(true);
    sleeps(&mut right);
    send(&mut left, to_right, Lane::Eager, b"first").unwrap();
    assert!(!is_woken(&mut right));
    left.signal(to_right);
    assert!(is_woken(&mut right));
    let seen = frame(&mut right).unwrap();
    assert_eq!(whole(&mut right, &seen), b"first");
}

/// Started by the next test, in a process of its own: the limit applies to all threads of a process.
#[test]
#[ignore = "started by another test"]
fn as_a_process_whose_file_size_limit_is_lowered() {
    let (mut left, mut right, to_right, _) = pair();
    let lower = Rlimit { current: Some(1 << 12), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, lower).unwrap();
    let sent = send(&mut left, to_right, Lane::Eager, b"short");
    assert!(matches!(sent, Err(SendError::Unreachable)), "{sent:?}");
    assert!((0..100).all(|_| !matches!(right.poll(Instant::ZERO), Some(Event::Frame(_)))));
}

/// A file that grows beyond the limit of file sizes ends the process by a signal. A program may lower the limit at any time.
#[test]
fn a_ring_longer_than_the_file_size_limit_is_not_made() {
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output =
        process.args(["--ignored", "--exact", "as_a_process_whose_file_size_limit_is_lowered"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}
