//! Ends the sessions of ranks that have died, and reports DPUs that have ended.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use towline_bootstrap::launch::Log;
use towline_dpu::supervisor::Supervisor;

use super::devices::Said;

/// The time between two looks at the windows.
const LOOK: Duration = Duration::from_millis(20);

/// A thread that watches, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches windows, each a file and where the window begins in it, and what the DPUs say, and reports in a log.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(windows: &[(PathBuf, u64)], said: Receiver<Said>, log: Arc<Log>) -> io::Result<Self> {
        let windows = windows.iter().map(|(file, offset)| Supervisor::open(file, *offset));
        let windows = windows.collect::<io::Result<Vec<_>>>()?;
        let ends = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&ends);
        let thread = std::thread::Builder::new().name("watch".into());
        let thread = thread.spawn(move || watch(&windows, &said, &log, &of_thread))?;
        Ok(Self { ends, thread: Some(thread) })
    }

    /// From now on, DPUs may end. The thread ends once all of them have ended.
    pub fn stop(&self) {
        self.ends.store(true, Ordering::Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn watch(windows: &[Supervisor], said: &Receiver<Said>, log: &Log, ends: &AtomicBool) {
    loop {
        let said = match said.recv_timeout(LOOK) {
            Ok(said) => Some(said),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if ends.load(Ordering::Acquire) {
            return;
        }
        match said {
            Some(Said { device, line: Some(line) }) => log.print(format!("DPU {device}: {line}")),
            Some(Said { device, line: None }) => log.print(format!("DPU {device} has ended")),
            None => {}
        }
        for (device, window) in windows.iter().enumerate() {
            // An error of the operating system happens again, or not, at the next look.
            if window.end_abandoned().unwrap_or(false) {
                log.print(format!("DPU {device} ends the session of a process that has died"));
            }
        }
    }
}
