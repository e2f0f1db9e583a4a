//! Sleep until an event may have come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::thread::futex;

use super::incoming::Incoming;
use super::state::Rail;
use crate::doorbell;
use crate::error::{OpenError, system_error};
use crate::membarrier::heavy_fence;
use crate::sleep;

impl Rail {
    /// Sleeps until an event may have come or `timeout` has passed; `None` means no time limit. May return early. The caller
    /// chooses a time-out that ends no later than [`poll_at`](towline_core::rail::Rail::poll_at), and polls afterwards. Sleeps on
    /// a futex, or on [`wait_fd`](Self::wait_fd) once that was called.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        if !self.announce_sleep() {
            return;
        }
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // The next poll finds the event that ended the sleep.
        if let Some(pipe) = &self.waiting.pipe {
            let _ = rustix::event::poll(&mut [PollFd::new(pipe, PollFlags::IN)], timeout.as_ref());
        } else {
            let _ = futex::wait(self.control.sleep(), futex::Flags::empty(), sleep::ON_FUTEX, timeout.as_ref());
        }
    }

    /// A descriptor for `poll` or `epoll`. It becomes readable when an event comes after
    /// [`arm`](towline_core::rail::Rail::arm) has answered `true`. The next poll of the rail makes it unreadable again; the
    /// caller does not read from it. The rail owns the descriptor. The first call makes it, and from then on peers wake this rail
    /// through it.
    ///
    /// # Errors
    /// [`OpenError`] where the pipe cannot be made.
    pub fn wait_fd(&mut self) -> Result<BorrowedFd<'_>, OpenError> {
        let pipe = match self.waiting.pipe.take() {
            Some(pipe) => pipe,
            None => self.make_pipe()?,
        };
        let pipe: &OwnedFd = self.waiting.pipe.insert(pipe);
        Ok(pipe.as_fd())
    }

    fn make_pipe(&self) -> Result<OwnedFd, OpenError> {
        let path = self.identity.names.pipe(self.identity.card.rank);
        let refused = |error: rustix::io::Errno| system_error("make the pipe", &path, error.into());
        // An earlier process of our rank may have left one.
        let _ = std::fs::remove_file(&path);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).map_err(refused)?;
        // The pipe is opened for writing, too, so it always has a writer and never reports its end.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(&path, flags, Mode::empty()).map_err(refused)
    }

    /// Announces sleep unless there is work. Returns whether it is announced.
    pub(super) fn announce_sleep(&mut self) -> bool {
        // The next poll begins with maintenance, which withdraws the announcement.
        self.waiting.armed = true;
        (self.schedule.polls_left, self.schedule.turns_left) = (0, 0);
        let how = if self.waiting.pipe.is_some() { sleep::ON_FD } else { sleep::ON_FUTEX };
        let barrier = self.waiting.has_membarrier;
        sleep::announce(self.control.sleep(), how, || heavy_fence(barrier));
        if self.has_work() {
            sleep::withdraw(self.control.sleep());
            return false;
        }
        true
    }

    fn has_work(&mut self) -> bool {
        let has_frame =
            |ring: &u32| self.rings.get(*ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::has_frame);
        let frames = !self.held.is_full()
            && (self.schedule.active.iter().any(has_frame) || self.schedule.quiet.iter().any(has_frame));
        frames
            || self.to_report != 0
            || doorbell::has_rung(self.control.doorbell(), self.doorbell.seen)
            || (self.waiting.wants_credit && self.credit_came())
    }

    /// Whether a ring that was full has room again, or will never have any.
    fn credit_came(&mut self) -> bool {
        let mut came = false;
        self.waiting.wants_credit = false;
        let outgoing = self.rings.iter_mut().map(|ring| &mut ring.outgoing);
        for outgoing in outgoing.filter(|outgoing| outgoing.wants_credit) {
            outgoing.wants_credit = matches!(outgoing.sender.refresh(&outgoing.slots), Ok(false));
            came |= !outgoing.wants_credit;
            self.waiting.wants_credit |= outgoing.wants_credit;
        }
        came
    }

    /// Withdraws the announcement of sleep, and empties the pipe.
    pub(super) fn end_sleep(&mut self) {
        self.waiting.armed = false;
        sleep::withdraw(self.control.sleep());
        if let Some(pipe) = &self.waiting.pipe {
            let mut bytes = [0; 64];
            while matches!(rustix::io::read(pipe, &mut bytes), Ok(64)) {}
        }
    }
}
