//! The removal of files whose process has ended without removing them, by whoever started the process.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::segment::names::SegmentNames;

/// Ranks whose rings are named in one request. A job of many ranks needs few requests, and a job of few ranks no long ones.
const BLOCK: u32 = 32;

/// Asks somebody who outlives this process to remove files when it is gone, such as the daemon of a launcher.
///
/// A rail calls it before it makes files, with all paths that it may use: the files may be made later, or never, and other processes
/// may remove them earlier. Single files are named and not directories, since a daemon that empties a directory follows a symbolic
/// link that another user has put in its place meanwhile. The rail calls it in the middle of a send, so it must not wait, and must
/// not use the rail.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// let asked = Arc::new(Mutex::new(Vec::new()));
/// let paths = Arc::clone(&asked);
/// let job = u64::from(std::process::id()) << 32;
/// let mut config = towline_sm::Config::new(job, 0, 2);
/// config.clean_up = Some(towline_sm::CleanUp::new(move |files| paths.lock().unwrap().extend_from_slice(files)));
/// let rail = towline_sm::Rail::open(config)?;
/// assert!(asked.lock().unwrap().iter().any(|path| path.exists()));
/// drop(rail);
/// assert!(!asked.lock().unwrap().iter().any(|path| path.exists()));
/// # Ok::<(), towline_sm::OpenError>(())
/// ```
#[derive(Clone)]
pub struct CleanUp(Arc<Ask>);

type Ask = dyn Fn(&[PathBuf]) + Send + Sync;

impl CleanUp {
    /// Asks by this function.
    pub fn new(ask: impl Fn(&[PathBuf]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }
}

impl fmt::Debug for CleanUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CleanUp")
    }
}

/// What a rail has asked for.
#[derive(Debug)]
pub struct Requests {
    clean_up: Option<CleanUp>,
    names: SegmentNames,
    rank: u32,
    /// For each block of ranks, whether the rings to them were named.
    blocks: Box<[bool]>,
}

impl Requests {
    /// The requests of `rank` of `ranks`, of which the first names its own files.
    pub fn new(clean_up: Option<CleanUp>, directory: &Path, job: u64, rank: u32, ranks: u32) -> Self {
        // Whoever removes them has another working directory.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let names = SegmentNames::new(&directory, job);
        if let Some(CleanUp(ask)) = &clean_up {
            ask(&[names.control(rank), names.pipe(rank)]);
        }
        let blocks = if clean_up.is_some() { ranks.div_ceil(BLOCK) as usize } else { 0 };
        Self { clean_up, names, rank, blocks: vec![false; blocks].into() }
    }

    /// Has the rings to a rank removed, which are still to be made.
    pub fn add_rings(&mut self, to: u32) {
        let Some(CleanUp(ask)) = &self.clean_up else { return };
        let Some(asked) = self.blocks.get_mut((to / BLOCK) as usize).filter(|asked| !**asked) else { return };
        *asked = true;
        let first = to / BLOCK * BLOCK;
        let rings = (first..first + BLOCK).filter(|to| *to != self.rank);
        ask(&rings.flat_map(|to| self.names.files_of_rings(self.rank, to)).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_rings_to_a_rank_are_named_once_and_with_absolute_paths() {
        let (asked, list) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::<PathBuf>::new())));
        let (calls, paths) = (Arc::clone(&asked), Arc::clone(&list));
        let clean_up = CleanUp::new(move |files| {
            calls.lock().unwrap().push(files.len());
            paths.lock().unwrap().extend_from_slice(files);
        });
        let mut requests = Requests::new(Some(clean_up), Path::new("here"), 7, 1, 70);
        for to in [0, 31, 0, 69, 64] {
            requests.add_rings(to);
        }
        assert_eq!(*asked.lock().unwrap(), [2, 31 * 4, 32 * 4], "the own files, and two blocks of rings");
        let list = list.lock().unwrap();
        assert!(list.iter().all(|path| path.is_absolute()));
        let names = SegmentNames::new(&std::env::current_dir().unwrap().join("here"), 7);
        for file in [names.control(1), names.pipe(1), names.ring(1, 31, 0), names.ring(1, 69, 1)] {
            assert!(list.contains(&file), "{file:?}");
        }
        assert!(!list.contains(&names.ring(1, 32, 0)));
    }

    #[test]
    fn without_anybody_to_ask_nothing_is_kept() {
        let mut requests = Requests::new(None, Path::new("/"), 7, 1, 1 << 20);
        requests.add_rings(5);
        assert!(requests.blocks.is_empty());
    }
}
