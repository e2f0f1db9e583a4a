//! Writers to the launcher's own standard output and error.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::output::Stream;

/// The standard output and error of this process. If both are the same file or terminal, so are the streams: then a
/// line on one of them is never in the middle of a line on the other.
pub(super) fn streams(stop_waiting: &Arc<AtomicBool>) -> [Stream; 2] {
    let (out, err) = (io::stdout(), io::stderr());
    let same = match (rustix::fs::fstat(&out), rustix::fs::fstat(&err)) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    };
    let out = Stream::new(TimeoutWriter::new(out, Arc::clone(stop_waiting)));
    let err = if same { out.clone() } else { Stream::new(TimeoutWriter::new(err, Arc::clone(stop_waiting))) };
    [out, err]
}

/// The messages of a process that starts others, on its standard error. A thread writes them, so nobody else waits for a reader. When
/// this is dropped, it waits until all of them are written.
#[derive(Debug)]
pub struct Log {
    words: Option<mpsc::Sender<String>>,
    thread: Option<JoinHandle<()>>,
    /// Set at the end, if a reader that takes nothing is not waited for then.
    stop_waiting: Option<Arc<AtomicBool>>,
}

impl Log {
    /// A log on the standard error of this process. At its end, a reader that takes nothing for one second gets no more.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn to_standard_error() -> io::Result<Self> {
        let stop_waiting = Arc::new(AtomicBool::new(false));
        let mut log = Self::start(Stream::new(TimeoutWriter::new(io::stderr(), Arc::clone(&stop_waiting))))?;
        log.stop_waiting = Some(stop_waiting);
        Ok(log)
    }

    pub(super) fn start(to: Stream) -> io::Result<Self> {
        let (words, said) = mpsc::channel::<String>();
        let thread = std::thread::Builder::new().name("towline-log".into()).spawn(move || {
            for what in said {
                // Standard error may be closed. The job goes on.
                let _ = to.print(format!("towline: {what}\n").as_bytes());
            }
        })?;
        Ok(Self { words: Some(words), thread: Some(thread), stop_waiting: None })
    }

    /// Writes a line, after `towline: `.
    pub fn print(&self, what: impl Into<String>) {
        if let Some(words) = &self.words {
            let _ = words.send(what.into());
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(stop_waiting) = &self.stop_waiting {
            stop_waiting.store(true, Ordering::Relaxed);
        }
        drop(self.words.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A stream that waits for its reader without limit until `stop_waiting` is set. From then on, a reader that takes
/// nothing for one second gets no more.
pub(super) struct TimeoutWriter<T> {
    to: T,
    stop_waiting: Arc<AtomicBool>,
    given_up: bool,
}

impl<T: AsFd> TimeoutWriter<T> {
    pub(super) fn new(to: T, stop_waiting: Arc<AtomicBool>) -> Self {
        Self { to, stop_waiting, given_up: false }
    }
}

impl<T: AsFd> Write for TimeoutWriter<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        /// A pipe that is writable takes this many bytes without waiting.
        const PIECE: usize = 4096;
        let mut polls = 0;
        while !self.given_up {
            match poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], Some(&POLL_INTERVAL)) {
                Ok(0) => {
                    polls += u32::from(self.stop_waiting.load(Ordering::Relaxed));
                    self.given_up = polls == 10;
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(why) => return Err(why.into()),
            }
            match rustix::io::write(&self.to, &bytes[..bytes.len().min(PIECE)]) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                written => return Ok(written?),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
