//! Sleeps of foreign code, which has an event loop of its own.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;

impl<L: Threads> Communicator<L> {
    /// A descriptor for `poll`, `epoll` and the like. It becomes readable when something may have happened in this context after
    /// [`arm_raw`](Self::arm_raw) has returned true. The program only watches it: it does not read from it, and does not close
    /// it. It stays the same as long as the context exists.
    ///
    /// Only one thread at a time arms and sleeps so. Others may use the context meanwhile.
    ///
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use towline::ViewMut;
    ///
    /// let world = towline::init()?;
    /// let mut into = [0u8; 5];
    /// // SAFETY: the buffer stays until the request is complete.
    /// let request = unsafe { world.irecv_raw(0, 1, ViewMut::contiguous(into.as_mut_ptr(), 5)) }?;
    /// let fd = world.wait_fd_raw()?;
    /// world.send(0, 1, b"hello")?;
    /// while world.test_raw(request)?.is_none() {
    ///     if world.arm_raw()? {
    ///         poll(&mut [PollFd::new(&fd, PollFlags::IN)], None)?;
    ///     }
    /// }
    /// assert_eq!(&into, b"hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system refuses a descriptor, or this process was forked from the one to which the world belongs.
    pub fn wait_fd_raw(&self) -> std::io::Result<BorrowedFd<'_>> {
        let context = &self.handle.context;
        context.check_process().map_err(std::io::Error::other)?;
        let mut engine = context.engine.lock();
        engine.caller_wait.make()?;
        let fd = engine.caller_wait.fd().map(|fd| fd.as_raw_fd());
        let fd = fd.ok_or(std::io::ErrorKind::NotFound)?;
        // SAFETY: the descriptor stays open as long as the engine exists, which this communicator keeps.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Prepares for a sleep on [`wait_fd_raw`](Self::wait_fd_raw). False: something has happened since the last call, or there is
    /// work, so look at the operations again before the next call. True: sleep, without another call of this context by this
    /// thread. The sleep ends after half a second at most ([`Config::idle_sleep_ms`](crate::Config::idle_sleep_ms)), since the
    /// context has to look at other ranks now and then.
    ///
    /// # Errors
    /// As [`wait_fd_raw`](Self::wait_fd_raw).
    pub fn arm_raw(&self) -> std::io::Result<bool> {
        let context = &self.handle.context;
        context.check_process().map_err(std::io::Error::other)?;
        context.engine.lock().arm_caller()
    }
}
