//! Writes the output of each rank to files of its own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use towline_net::advice;

use super::lines::Source;
use super::output::Sink;

/// The files `rank.N.out` and `rank.N.err` of each rank in one directory. They get every byte unchanged.
pub(super) struct OutputFiles {
    files: Mutex<HashMap<(u32, Source), (PathBuf, File)>>,
    failed: Box<dyn Fn(String) + Send + Sync>,
}

impl OutputFiles {
    /// Makes the directory, if it is missing, and empty files for all ranks. Later failures call `failed` with their
    /// reason.
    ///
    /// # Errors
    /// The path that cannot be made, and the reason.
    pub(super) fn create(
        folder: &Path,
        size: u32,
        failed: impl Fn(String) + Send + Sync + 'static,
    ) -> Result<Self, (PathBuf, io::Error)> {
        fs::create_dir_all(folder).map_err(|why| (folder.to_path_buf(), why))?;
        let mut files = HashMap::new();
        for rank in 0..size {
            for (source, end) in [(Source::Stdout, "out"), (Source::Stderr, "err")] {
                let path = folder.join(format!("rank.{rank}.{end}"));
                let file = File::create(&path).map_err(|why| (path.clone(), why))?;
                files.insert((rank, source), (path, file));
            }
        }
        Ok(Self { files: Mutex::new(files), failed: Box::new(failed) })
    }
}

impl Sink for OutputFiles {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // A report of an agent may name any rank.
        let Some((path, file)) = files.get_mut(&(rank, source)) else { return };
        if let Err(why) = file.write_all(bytes) {
            (self.failed)(format!("cannot write {}: {why}{}", path.display(), advice(&why)));
        }
    }

    /// The file stays open, since a restarted rank goes on with it.
    fn end(&self, _: u32, _: Source) {}
}
