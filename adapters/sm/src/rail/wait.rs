//! Going to sleep until something comes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{MembarrierCommand, futex, membarrier, membarrier_query};

use crate::atomics::{Ordering, fence};
use crate::doorbell;
use crate::error::OpenError;
use crate::rail::outgoing::Incoming;
use crate::rail::transport::Rail;
use crate::segment::file::system;
use crate::sleep;

impl Rail {
    /// Sleeps until something may have come or `timeout` has passed; `None` is for ever. May return early. Sleep no
    /// longer than until [`poll_at`](towline_core::rail::Rail::poll_at), and poll afterwards. On a futex, or on
    /// [`wait_fd`](Self::wait_fd) once that was asked for.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        if !self.announce_sleep() {
            return;
        }
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // Whatever ends the sleep, the next poll finds out.
        if let Some(pipe) = &self.pipe {
            let _ = rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::IN)], timeout.as_ref());
        } else {
            let _ = futex::wait(self.board.sleep(), futex::Flags::empty(), sleep::ON_FUTEX, timeout.as_ref());
        }
    }

    /// A descriptor for `poll` or `epoll`, which turns readable when something came after
    /// [`arm`](towline_core::rail::Rail::arm) answered `true`. The next poll of the rail makes it unreadable again; nobody else
    /// reads from it. Made at the first call, from which on peers wake us through it.
    ///
    /// # Errors
    /// [`OpenError`] where the pipe cannot be made.
    pub fn wait_fd(&mut self) -> Result<BorrowedFd<'_>, OpenError> {
        let pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => self.make_pipe()?,
        };
        let pipe: &OwnedFd = self.pipe.insert(pipe);
        Ok(pipe.as_fd())
    }

    fn make_pipe(&self) -> Result<OwnedFd, OpenError> {
        let path = self.names.pipe(self.card.rank);
        let refused = |error: rustix::io::Errno| system("make the pipe", &path, error.into());
        // One that an earlier process of our rank left.
        let _ = std::fs::remove_file(&path);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).map_err(refused)?;
        // For writing too: so it has a writer always, and never reads as ended.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(&path, flags, Mode::empty()).map_err(refused)
    }

    /// Announces sleep unless there is work.
    pub(crate) fn announce_sleep(&mut self) -> bool {
        // The next poll begins with upkeep, which takes the announcement back.
        self.armed = true;
        (self.countdown, self.turns) = (0, 0);
        let how = if self.pipe.is_some() { sleep::ON_FD } else { sleep::ON_FUTEX };
        let barrier = self.barrier;
        sleep::announce(self.board.sleep(), how, || heavy_fence(barrier));
        if self.work_waits() {
            sleep::withdraw(self.board.sleep());
            return false;
        }
        true
    }

    fn work_waits(&mut self) -> bool {
        let waits = |ring: &u32| self.rings.get(*ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::waits);
        let frames = !self.kept.is_full() && (self.hot.iter().any(waits) || self.warm.iter().any(waits));
        frames
            || self.failing != 0
            || doorbell::rang(self.board.bell(), self.bell_seen)
            || (self.starved && self.credit_came())
    }

    /// Whether a ring that was full has room again, or will never have.
    fn credit_came(&mut self) -> bool {
        let mut came = false;
        self.starved = false;
        let outgoing = self.rings.iter_mut().map(|ring| &mut ring.outgoing);
        for outgoing in outgoing.filter(|outgoing| outgoing.starved) {
            outgoing.starved = matches!(outgoing.sender.refresh(&outgoing.slots), Ok(false));
            came |= !outgoing.starved;
            self.starved |= outgoing.starved;
        }
        came
    }

    /// Takes the announcement back, and empties the pipe.
    pub(crate) fn wake_up(&mut self) {
        self.armed = false;
        sleep::withdraw(self.board.sleep());
        if let Some(pipe) = &self.pipe {
            let mut bytes = [0; 64];
            while matches!(rustix::io::read(pipe, &mut bytes), Ok(64)) {}
        }
    }
}

/// Registers this process for the barriers of sleepers; whether that worked, and it can make such barriers itself.
pub(crate) fn register() -> bool {
    let offered = membarrier_query();
    offered.contains_command(MembarrierCommand::GlobalExpedited)
        && offered.contains_command(MembarrierCommand::RegisterGlobalExpedited)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// The sleeper's barrier: for all registered processes, or for this thread alone.
fn heavy_fence(everyone: bool) {
    if !everyone || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        fence(Ordering::SeqCst);
    }
}
