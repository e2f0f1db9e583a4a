//! The table of the settings of dpu, and how a process finds its device.

use std::path::PathBuf;
use std::time::Duration;

use towline_settings::{Values, entries};

use crate::errors::OpenError;
use crate::matching::Matching;
use crate::patience::Patience;
use crate::transport::{Options, Transport};

/// How long all windows have to be in use before a process gives up. A [supervisor](crate::supervisor) locks the window of a process
/// that has died for a moment, and the next process may come just then.
const SUPERVISED: Duration = Duration::from_millis(100);
/// Milliseconds in which a DPU that sleeps shows a sign of life at the latest, and some time for other programs.
const SLEEP: u32 = 200;
/// A list of windows.
const WINDOWS: Values =
    Values::Checked("absolute paths of files, with commas between them; a place in a file as `file@offset`", |text| {
        entries(text).iter().try_for_each(|entry| Place::parse(entry).map(drop))
    });

towline_settings::settings! {
    /// The settings of the DPU of a process. The program and the environment can change them.
    pub struct Settings, "dpu." {
        windows, "TOWLINE_DPU_WINDOWS": String = "", "" in WINDOWS,
            "Windows of this host's DPUs, such as `/sys/bus/pci/devices/0000:03:00.0/resource2`; each process takes the first one that no other process uses, beginning with that of its place among the ranks of this host";
        open_timeout_ms, "TOWLINE_DPU_OPEN_TIMEOUT_MS": u32 = 10_000u32, "ms" in Values::at_least(1),
            "How long a DPU may take to begin to serve a process";
        silence_ms, "TOWLINE_DPU_SILENCE_MS": u32 = 5_000u32, "ms" in Values::at_least(SLEEP),
            "A DPU whose firmware shows no sign of life for this time, or does not answer a command, has failed";
        one_sided, "TOWLINE_DPU_ONE_SIDED": bool = true, "",
            "Whether windows lie in the memory of DPUs, if all ranks of a window allow it and it fits: then a target serves operations while it makes no call";
        host_memory, "TOWLINE_DPU_HOST_MEMORY": bool = true, "",
            "Whether the DPU reads and writes long messages where they lie in the memory of a process, if it can: then the process does not copy them, and the DPU can access all memory of the process";
    }
}

/// Where a window is: a file, and the bytes before the window in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Where the window begins.
    pub offset: u64,
}

impl Place {
    /// The place of an entry of the setting: `file`, or `file@offset`.
    ///
    /// # Errors
    /// What is wrong with the entry.
    pub fn parse(entry: &str) -> Result<Self, String> {
        let (file, offset) = entry.rsplit_once('@').unwrap_or((entry, "0"));
        if !std::path::Path::new(file).is_absolute() {
            return Err("is not an absolute path".into());
        }
        let offset = offset.parse().map_err(|why| format!("has `{offset}` as an offset: {why}"))?;
        Ok(Self { file: file.into(), offset })
    }
}

impl Settings {
    /// Opens the device of this process, which is the `index`-th of those of the job on this host, as the matcher of an engine.
    ///
    /// # Errors
    /// [`OpenError`]: that of the last window that was tried.
    pub fn open(&self, index: usize) -> Result<Matching, OpenError> {
        let mut transport = self.open_transport(index)?;
        if self.host_memory {
            // A device that has failed says so again.
            let _ = transport.reach_memory();
        }
        let mut matching = Matching::new(transport);
        matching.allow_windows(self.one_sided);
        Ok(matching)
    }

    /// Opens the device of this process as [`open`](Self::open) does, for any use.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_transport(&self, index: usize) -> Result<Transport, OpenError> {
        let options = Options {
            open_within: Duration::from_millis(self.open_timeout_ms.into()),
            silent_for: Duration::from_millis(self.silence_ms.into()),
            ..Options::default()
        };
        let windows = entries(&self.windows);
        let mut patience = Patience::new(SUPERVISED);
        loop {
            let mut failure = OpenError::NoSetting;
            for step in 0..windows.len() {
                let Some(entry) = windows.get((index + step) % windows.len()) else { break };
                let place = Place::parse(entry).map_err(|why| OpenError::Setting(entry.clone(), why))?;
                match Transport::open_at(&place.file, place.offset, options) {
                    Ok(transport) => return Ok(transport),
                    Err(why) if why.is_in_use() => failure = why,
                    Err(why) => return Err(why),
                }
            }
            if windows.is_empty() || patience.is_over() {
                return Err(failure);
            }
            std::thread::yield_now();
        }
    }
}
