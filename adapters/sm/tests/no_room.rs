//! A file system without room causes an error, not a bus error.
#![cfg(not(loom))]

use std::path::PathBuf;
use std::process::Command;

use towline_core::rail::{Event, Lane, Lost, Peer, Rail as _, SendError, Shape};
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
    assert!(error.to_string().contains("enlarge that file system"), "{error}");
    // Control segments that fit, and a ring that does not.
    let (mut left, right) = (Rail::open(config(0, 2)).unwrap(), Rail::open(config(1, 2)).unwrap());
    let to = left.add_peer(Peer(5), right.card()).unwrap();
    let shape = Shape { tag: 1, lane: Lane::Eager, header: 0, len: 8 };
    assert_eq!(left.reserve(to, shape).err(), Some(SendError::Unreachable));
    assert!(matches!(left.poll(Instant::ZERO), Some(Event::Lost(Peer(5), Lost::Broken))));
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 2, "no incomplete segment is left");
    drop((left, right));
}
