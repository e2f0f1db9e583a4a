//! File names of segments. They carry user, job and ranks.

use std::path::{Path, PathBuf};

/// The names of one job's segments.
#[derive(Clone, Debug)]
pub struct SegmentNames {
    directory: PathBuf,
    job: String,
}

impl SegmentNames {
    /// Names for a job of this user.
    pub fn new(directory: &Path, job: u64) -> Self {
        Self { directory: directory.to_owned(), job: format!("{}{job:016x}", user_prefix()) }
    }

    /// The control segment of a rank.
    pub fn control(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("{}.{rank}", self.job))
    }

    /// The pipe that wakes a rank which sleeps on a file descriptor.
    pub fn pipe(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("{}.{rank}.bell", self.job))
    }

    /// A ring from rank to rank: `class` 0 is for short frames, 1 for long messages.
    pub fn ring(&self, from: u32, to: u32, class: usize) -> PathBuf {
        let class = if class == 0 { "eager" } else { "bulk" };
        self.directory.join(format!("{}.{from}-{to}.{class}", self.job))
    }

    /// All files of the rings from rank to rank.
    pub fn files_of_rings(&self, from: u32, to: u32) -> impl Iterator<Item = PathBuf> {
        let rings = [0, 1].map(|class| self.ring(from, to, class));
        rings.into_iter().flat_map(|ring| [unfinished(&ring), ring])
    }
}

/// The name that a ring has while its sender makes it.
pub fn unfinished(ring: &Path) -> PathBuf {
    ring.with_added_extension("new")
}

/// How all names of this user's segments begin.
pub fn user_prefix() -> String {
    format!("towline.{}.", rustix::process::geteuid().as_raw())
}

/// The name of the control segment of the rank that made a ring, from the ring's name, which may be [unfinished]. `None` for a name
/// that is not a ring's.
pub fn sender_of(ring: &str) -> Option<&str> {
    let (ranks, _class) = ring.rsplit_once('.')?;
    Some(ranks.rsplit_once('-')?.0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// So the files of a rank that died while it made a ring are found as left behind, too.
    #[test]
    fn the_sender_is_known_from_each_name_of_a_ring() {
        let names = SegmentNames::new(Path::new("/"), 7);
        let control = names.control(3);
        for ring in [names.ring(3, 12, 0), names.ring(3, 12, 1)] {
            for name in [unfinished(&ring), ring] {
                assert_eq!(
                    sender_of(name.file_name().unwrap().to_str().unwrap()),
                    control.file_name().unwrap().to_str()
                );
            }
        }
        assert_eq!(sender_of(control.file_name().unwrap().to_str().unwrap()), None);
    }
}
