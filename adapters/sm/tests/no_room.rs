//! A file system without room causes an error, not a bus error.
#![cfg(not(loom))]

use std::path::PathBuf;
use std::process::Command;

use towline_core::rail::{Endpoint, Event, GiveUp, Lane, Liveness as _, Lost, Peer, Rail as _, SendError, Shape};
use towline_core::time::Instant;
use towline_sm::{Config, OpenError, Rail};

/// A file system of 64 KiB, unmounted when dropped.
struct SmallFileSystem(PathBuf);

impl SmallFileSystem {
    fn mount() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("towline-small-{}", std::process::id()));
        std::fs::create_dir_all(&path).ok()?;
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&path).status();
        let small = Self(path);
        mounted.is_ok_and(|status| status.success()).then_some(small)
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).stderr(std::process::Stdio::null()).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn p1_a_full_file_system_is_reported_as_such() {
    let Some(small) = SmallFileSystem::mount() else {
        eprintln!("skipped: only root may mount a small file system");
        return;
    };
    let config = |rank, ranks| Config { directory: small.0.clone(), ..Config::new(1, rank, ranks) };
    // A control segment that does not fit.
    let error = Rail::open(config(0, 1 << 20)).expect_err("no room");
    assert!(matches!(error, OpenError::NoRoom { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("no room for ") && text.contains("65536 bytes are free") && text.contains("TOWLINE_SM_"),
        "{text}"
    );
    // Control segments that fit, a ring that fits, and one that does not.
    let (mut left, mut right) = (Rail::open(config(0, 2)).unwrap(), Rail::open(small_rings(config(1, 2))).unwrap());
    let to_right = left.add_peer(Peer(5), right.card()).unwrap();
    let to_left = right.add_peer(Peer(6), left.card()).unwrap();
    assert!(send(&mut right, to_left).is_ok());
    assert_eq!((send(&mut left, to_right), left.warning().is_some()), (Err(SendError::Unreachable), true));
    assert!(left.warning().unwrap().contains("between ranks 0 and 1: no room for 69632 bytes"), "{:?}", left.warning());
    // Both ends report that they take no more frames, and the frame that was sent before arrives.
    assert!(matches!(left.poll(Instant::ZERO), Some(Event::Down(Peer(5), Lost::NoRoom))));
    assert!(matches!(next(&mut right), Event::Down(Peer(6), Lost::NoRoom)));
    assert_eq!((send(&mut right, to_left), right.warning()), (Err(SendError::Unreachable), None));
    assert!(matches!(next(&mut left), Event::Frame(frame) if frame.from == Peer(5)));
    let rings = std::fs::read_dir(&small.0).unwrap().count() - 2;
    assert_eq!(rings, 0, "no incomplete segment is left");
    // The user of one rail takes the other side for lost later, for another reason.
    assert!(left.give_up(to_right, GiveUp::Peer));
    drop(left);
    assert!(matches!(next(&mut right), Event::Lost(Peer(6), Lost::Broken)));
    drop(right);

    // The other side gives up because this side has left it, before this side has reported that.
    let (mut left, mut right) = (Rail::open(config(0, 2)).unwrap(), Rail::open(small_rings(config(1, 2))).unwrap());
    let to_right = left.add_peer(Peer(5), right.card()).unwrap();
    let to_left = right.add_peer(Peer(6), left.card()).unwrap();
    assert_eq!(send(&mut left, to_right), Err(SendError::Unreachable));
    assert!(matches!(next(&mut right), Event::Down(Peer(6), Lost::NoRoom)));
    assert!(right.give_up(to_left, GiveUp::Peer));
    assert!(matches!(next(&mut left), Event::Lost(Peer(5), Lost::NoRoom)));
    drop((left, right));

    // A pair that is added again begins anew.
    let (mut left, mut right) = (Rail::open(config(0, 2)).unwrap(), Rail::open(small_rings(config(1, 2))).unwrap());
    let left_again = |left: &mut Rail| left.add_peer(Peer(5), right.card()).unwrap();
    let to_right = left_again(&mut left);
    assert_eq!(send(&mut left, to_right), Err(SendError::Unreachable));
    left.del_peer(to_right);
    let again = left_again(&mut left);
    let to_left = right.add_peer(Peer(6), left.card()).unwrap();
    assert!(right.poll(Instant::ZERO).is_none(), "the departure was withdrawn");
    assert!(send(&mut right, to_left).is_ok());
    assert!(matches!(next(&mut left), Event::Frame(_)), "{again:?}");
}

fn small_rings(config: Config) -> Config {
    Config {
        eager_ring_bytes: 8192,
        eager_limit_bytes: 1000,
        bulk_ring_bytes: 8192,
        bulk_limit_bytes: 1000,
        single_copy_bytes: 0,
        ..config
    }
}

fn send(rail: &mut Rail, to: Endpoint) -> Result<(), SendError> {
    let ticket = rail.reserve(to, Shape { tag: 1, lane: Lane::Eager, header: 0, len: 8 })?.finish();
    rail.commit(ticket);
    Ok(())
}

/// The next event, within a bounded number of polls.
fn next(rail: &mut Rail) -> Event {
    (0..10_000).find_map(|_| rail.poll(Instant::ZERO)).expect("an event")
}

/// Another rail has lost the peer, whose last frames are still in the ring.
#[test]
fn p1_the_end_of_a_peer_is_reported_after_its_frames_when_another_rail_has_noticed_it() {
    let job = 0x0E5D_0000_0000 | u64::from(std::process::id());
    let mut left = Rail::open(small_rings(Config::new(job, 0, 2))).unwrap();
    let mut right = Rail::open(small_rings(Config::new(job, 1, 2))).unwrap();
    let to_right = left.add_peer(Peer(5), right.card()).unwrap();
    let to_left = right.add_peer(Peer(6), left.card()).unwrap();
    for _ in 0..3 {
        send(&mut right, to_left).unwrap();
    }
    assert!(left.end_after_frames(to_right, Lost::Closed));
    for _ in 0..3 {
        assert!(matches!(next(&mut left), Event::Frame(_)));
    }
    assert!(matches!(next(&mut left), Event::Lost(Peer(5), Lost::Closed)));
    assert!(!left.end_after_frames(to_right, Lost::Closed), "it was reported");
}
