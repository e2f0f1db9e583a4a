//! The checks of shared memory: the room for it, and the limit of file sizes. Rings shrink to both, as far as they can.

use std::path::Path;

use towline::Config;

use super::check::Check;
use super::texts::{act, bytes};

/// The rings of shared memory, for sending to one peer.
pub(super) struct Rings {
    /// As they are set.
    wanted: towline_sm::Config,
    /// As ranks make them here, in the room that is free and by the limit of file sizes.
    fitted: towline_sm::Config,
}

impl Rings {
    pub(super) fn of(config: &Config, ranks: u32) -> Self {
        let mut wanted = towline_sm::Config::new(0, 0, ranks);
        wanted.apply(&config.sm);
        let mut fitted = wanted.clone();
        fitted.fit(ranks as usize);
        Self { wanted, fitted }
    }

    /// The change of their sizes, for people.
    fn change(&self) -> String {
        if longest_file(&self.fitted) == longest_file(&self.wanted) {
            return "rings cannot shrink".into();
        }
        let sizes = |sm: &towline_sm::Config| {
            format!("{} and {}", bytes(sm.eager_ring_bytes.into()), bytes(sm.bulk_ring_bytes.into()))
        };
        format!("rings shrink from {} to {}", sizes(&self.wanted), sizes(&self.fitted))
    }
}

/// Bytes of the header of a ring. The control segment of a rank has as many, unless there are thousands of ranks.
fn header_bytes(sm: &towline_sm::Config) -> u64 {
    (sm.bytes_per_peer() - u64::from(sm.eager_ring_bytes) - u64::from(sm.bulk_ring_bytes)) / 2
}

/// Bytes of the longest file of shared memory.
fn longest_file(sm: &towline_sm::Config) -> u64 {
    u64::from(sm.eager_ring_bytes.max(sm.bulk_ring_bytes)) + header_bytes(sm)
}

/// The file system for shared memory: its size and inodes.
pub(super) fn shared_memory(directory: &Path, rings: &Rings, ranks: u64) -> Vec<Check> {
    const SUBJECT: &str = "shared memory";
    let path = directory.display();
    let about = match rustix::fs::statvfs(directory) {
        Ok(about) => about,
        Err(why) => {
            let change = format!(
                "mount a file system in memory there (mount -t tmpfs tmpfs {path}), or name one with TOWLINE_SM_DIRECTORY; until \
                 then ranks on this host use tcp"
            );
            return vec![Check::problem(SUBJECT, format!("{path}: {why}"), change)];
        }
    };
    if let Err(why) = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK) {
        let change = format!("make it writable (chmod 1777 {path}), or name another with TOWLINE_SM_DIRECTORY");
        return vec![Check::problem(SUBJECT, format!("{path}: {why}"), change)];
    }
    const TMPFS: i128 = 0x0102_1994;
    let mut checks = Vec::new();
    if rustix::fs::statfs(directory).is_ok_and(|about| i128::from(about.f_type) != TMPFS) {
        let found = format!("{path} is not a file system in memory (tmpfs)");
        let change = "name a tmpfs with TOWLINE_SM_DIRECTORY; on a disk, messages wait for it";
        checks.push(Check::warning(SUBJECT, found, change));
    }
    // A file system in memory without a limit says that it has 0 blocks.
    let free = (about.f_blocks != 0).then(|| about.f_bavail.saturating_mul(about.f_frsize));
    checks.push(shared_bytes(&path.to_string(), free, rings, ranks));
    checks.push(shared_inodes(&path.to_string(), about.f_files, about.f_favail, ranks));
    checks
}

/// Rings go from each rank to each other one.
fn pairs(ranks: u64) -> u64 {
    ranks * ranks.saturating_sub(1)
}

fn shared_bytes(path: &str, free: Option<u64>, rings: &Rings, ranks: u64) -> Check {
    const SUBJECT: &str = "shared memory";
    let Some(free) = free else { return Check::good(SUBJECT, format!("{path} has no limit of its size")) };
    let control = ranks * header_bytes(&rings.wanted);
    let with =
        |rings: &towline_sm::Config, pairs: u64| pairs.saturating_mul(rings.bytes_per_peer()).saturating_add(control);
    let all = with(&rings.wanted, pairs(ranks));
    let found = format!("{path} has {} free; {} at most {}", bytes(free), act(ranks, "take"), bytes(all));
    if free >= all {
        return Check::good(SUBJECT, found);
    }
    let change = format!(
        "enlarge it (docker and podman: --shm-size={size}; otherwise: mount -o remount,size={size} {path}), or make rings \
         smaller with TOWLINE_SM_BULK_RING_BYTES and TOWLINE_SM_EAGER_RING_BYTES",
        size = all.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX).max(64 << 20)
    );
    // Two ranks that send to each other are two pairs.
    if free < with(&rings.fitted, pairs(ranks).min(2)) {
        Check::problem(SUBJECT, format!("{found}, so it has no room for a ring, and ranks here use tcp"), change)
    } else if free >= with(&rings.fitted, pairs(ranks)) {
        Check::warning(SUBJECT, format!("{found}, so {}", rings.change()), change)
    } else {
        let (room, of) = ((free - control) / (2 * rings.fitted.bytes_per_peer()), pairs(ranks) / 2);
        let effect = format!(
            "so {}; if all send long messages, only {room} of {of} pairs find room, and the others use tcp",
            rings.change()
        );
        Check::warning(SUBJECT, format!("{found}, {effect}"), change)
    }
}

fn shared_inodes(path: &str, most: u64, free: u64, ranks: u64) -> Check {
    const SUBJECT: &str = "shared inodes";
    // Two rings for each pair, and a doorbell for each rank.
    let all = 2 * pairs(ranks) + ranks;
    if most == 0 {
        return Check::good(SUBJECT, format!("{path} has no limit of files"));
    }
    let found = format!("{path} has room for {free} more files; {} at most {all}", act(ranks, "make"));
    let change = format!("allow more files (mount -o remount,nr_inodes={} {path})", 2 * all.max(512));
    match free {
        free if free < ranks + 4 => Check::problem(SUBJECT, found, change),
        free if free < all => Check::warning(SUBJECT, found, change),
        _ => Check::good(SUBJECT, found),
    }
}

/// The limit of file sizes, which counts for files of shared memory, too: rings shrink to it, as far as they can.
pub(super) fn file_size(limit: Option<u64>, rings: &Rings) -> Check {
    const SUBJECT: &str = "file size";
    const CHANGE: &str = "raise the limit before the job (ulimit -f unlimited)";
    let Some(limit) = limit else { return Check::good(SUBJECT, "no limit") };
    let found = format!("a file may have at most {}", bytes(limit));
    // The memory of a window has a header, too.
    let windows = format!("windows above {} are not mapped", bytes(limit.saturating_sub(header_bytes(&rings.wanted))));
    if limit >= longest_file(&rings.wanted) {
        return Check::good(SUBJECT, format!("{found}; {windows}"));
    }
    let least = longest_file(&rings.fitted);
    if limit < least {
        let effect = format!("a ring of shared memory takes at least {}, so ranks here use tcp", bytes(least));
        return Check::problem(SUBJECT, format!("{found}; {effect}"), CHANGE);
    }
    let effect = format!("so {}, and {windows}: long messages and puts are slower", rings.change());
    Check::warning(SUBJECT, format!("{found}, {effect}"), CHANGE)
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict::{Good, Problem, Warning};
    use super::*;

    /// Rings of the default sizes that have shrunk to `eager` and `bulk` bytes.
    fn rings(eager: u32, bulk: u32) -> Rings {
        let wanted = towline_sm::Config::new(0, 0, 1);
        let fitted = towline_sm::Config { eager_ring_bytes: eager, bulk_ring_bytes: bulk, ..wanted.clone() };
        Rings { wanted, fitted }
    }

    #[test]
    fn shared_memory_is_judged_by_the_ranks() {
        // As `Config::fit` chooses the rings for the room.
        let at = |free, ranks, rings: Rings| shared_bytes("/dev/shm", Some(free), &rings, ranks);
        let enough = at(64 << 20, 4, rings(64 << 10, 256 << 10));
        assert!(enough.verdict == Good && enough.found.ends_with("4 ranks take at most 3.9 MiB"), "{enough:?}");
        let small = at(64 << 20, 16, rings(64 << 10, 128 << 10));
        assert!(small.verdict == Warning && small.change.contains("--shm-size=268435456"), "{small:?}");
        assert!(
            small.found.contains("rings shrink from 64.0 KiB and 256.0 KiB to 64.0 KiB and 128.0 KiB"),
            "{small:?}"
        );
        let least = || rings(4096, 4096);
        assert_eq!(at(256 << 10, 2, rings(32 << 10, 32 << 10)).verdict, Warning);
        let some = at(256 << 10, 16, least());
        assert!(some.verdict == Warning && some.found.contains("only 6 of 120 pairs"), "{some:?}");
        let none = at(64 << 10, 16, least());
        assert!(none.verdict == Problem && none.found.contains("ranks here use tcp"), "{none:?}");
        let one = at(1 << 20, 1, least());
        assert!(one.verdict == Good && one.found.ends_with("1 rank takes at most 4.0 KiB"), "{one:?}");
        assert_eq!(shared_bytes("/dev/shm", None, &least(), 1000).verdict, Good);
        let inodes = |most, free, ranks| shared_inodes("/dev/shm", most, free, ranks).verdict;
        assert_eq!(
            [inodes(0, 0, 16), inodes(999, 999, 16), inodes(99, 99, 16), inodes(9, 5, 2)],
            [Good, Good, Warning, Problem]
        );
    }

    /// Rings shrink to the limit, down to 4 KiB with a header of 4 KiB.
    #[test]
    fn a_limit_of_file_sizes_is_a_problem_only_where_no_ring_is_short_enough() {
        let whole = || rings(64 << 10, 256 << 10);
        assert_eq!([None, Some(1 << 30), Some(260 << 10)].map(|limit| file_size(limit, &whole()).verdict), [Good; 3]);
        let shrunk = file_size(Some((260 << 10) - 1), &rings(64 << 10, 128 << 10));
        assert!(shrunk.verdict == Warning && shrunk.found.contains("to 64.0 KiB and 128.0 KiB"), "{shrunk:?}");
        let least = file_size(Some(8192), &rings(4096, 4096));
        assert!(least.verdict == Warning && least.found.contains("windows above 4.0 KiB are not mapped"), "{least:?}");
        let none = file_size(Some(8191), &rings(4096, 4096));
        assert!(none.verdict == Problem && none.found.contains("takes at least 8.0 KiB"), "{none:?}");
        assert!([shrunk, least, none].iter().all(|check| check.change.contains("ulimit -f unlimited")));
    }

    #[test]
    fn a_missing_directory_is_a_problem_with_advice() {
        let nowhere = shared_memory(Path::new("/nowhere/at/all"), &rings(4096, 4096), 2);
        assert!(nowhere.iter().all(|check| check.verdict == Problem && check.change.contains("TOWLINE_SM_DIRECTORY")));
    }
}
