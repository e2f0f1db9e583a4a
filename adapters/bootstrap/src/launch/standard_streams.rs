//! The launcher's own standard output and error.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The launcher's own words on its standard error. A thread of its own writes them: whoever decides must not wait for a
/// reader.
pub(super) struct Voice {
    words: mpsc::Sender<String>,
    thread: JoinHandle<()>,
}

impl Voice {
    pub(super) fn start(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let (words, said) = mpsc::channel::<String>();
        let thread = std::thread::Builder::new().name("towline-voice".into()).spawn(move || {
            for what in said {
                // Standard error may be gone, which changes nothing.
                let _ = to.write_all(format!("towline: {what}\n").as_bytes());
            }
        })?;
        Ok(Self { words, thread })
    }

    pub(super) fn say(&self, what: impl Into<String>) {
        let _ = self.words.send(what.into());
    }

    /// Waits until all is said.
    pub(super) fn finish(self) {
        drop(self.words);
        let _ = self.thread.join();
    }
}

/// A stream whose reader is waited for, until there is a hurry: then one that takes nothing for a second gets no more.
pub(super) struct Patient<T> {
    to: T,
    hurry: Arc<AtomicBool>,
    given_up: bool,
}

impl<T: AsFd> Patient<T> {
    pub(super) fn new(to: T, hurry: Arc<AtomicBool>) -> Self {
        Self { to, hurry, given_up: false }
    }
}

impl<T: AsFd> Write for Patient<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        /// A pipe that takes anything takes so much without waiting.
        const PIECE: usize = 4096;
        let mut looks = 0;
        while !self.given_up {
            match poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], Some(&LOOK)) {
                Ok(0) => {
                    looks += u32::from(self.hurry.load(Ordering::Relaxed));
                    self.given_up = looks == 10;
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
