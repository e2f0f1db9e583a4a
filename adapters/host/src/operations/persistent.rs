//! Persistent operations: prepared once, and started any number of times with the same buffer.

use std::fmt;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Request, Sending};

use crate::context::handle::CommHandle;
use crate::errors::error::Error;
use crate::operations::buffer::{Buffer, BufferMut};
use crate::operations::communicator::{Communicator, check_tag};
use crate::operations::completion::{Completion, Pending};
use crate::operations::requests::{BoxedBuffer, Operation, Stage};
use crate::threads::levels::{MayOwn, Single, Threads};
use crate::threads::lock::EngineLock;
use crate::values::message::{Source, Status, Tag};
use crate::waiting::no_unwind::no_unwind;

impl<L: Threads> Communicator<L> {
    /// Prepares a send that may be [started](PersistentSend::start) any number of times: `MPI_Send_init`. It owns the buffer.
    /// Nothing is sent yet.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut send = world.send_init(0, 1, vec![0u32; 100]);
    /// let mut receive = world.recv_init(0, 1, vec![0u32; 100]);
    /// for step in 1..=3 {
    ///     send.buffer_mut().unwrap()[0] = step; // between two starts
    ///     receive.start()?;
    ///     send.start()?;
    ///     assert_eq!(receive.wait()?.count::<u32>(), 100);
    ///     send.wait()?;
    ///     assert_eq!(receive.buffer().unwrap()[0], step);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_init<B: Buffer>(&self, dest: u32, tag: u32, buffer: B) -> PersistentSend<B, L>
    where
        L: MayOwn<B>,
    {
        PersistentSend { operation: prepared(self, buffer), mode: Mode::Standard, dest, tag }
    }

    /// As [`send_init`](Self::send_init), for sends that are complete only when a receive has matched the message:
    /// `MPI_Ssend_init`.
    pub fn ssend_init<B: Buffer>(&self, dest: u32, tag: u32, buffer: B) -> PersistentSend<B, L>
    where
        L: MayOwn<B>,
    {
        PersistentSend { operation: prepared(self, buffer), mode: Mode::Synchronous, dest, tag }
    }

    /// Prepares a receive that may be [started](PersistentRecv::start) any number of times: `MPI_Recv_init`. It owns the buffer.
    /// For an example see [`send_init`](Self::send_init).
    pub fn recv_init<B: BufferMut>(
        &self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: B,
    ) -> PersistentRecv<B, L>
    where
        L: MayOwn<B>,
    {
        PersistentRecv { operation: prepared(self, buffer), source: source.into(), tag: tag.into() }
    }
}

/// A send that is prepared once and may be started any number of times: see [`Communicator::send_init`].
///
/// If it is dropped while it is in progress, the message is still sent, and the buffer is freed afterwards.
pub struct PersistentSend<B: 'static, L: Threads = Single> {
    operation: Operation<B, L>,
    mode: Mode,
    dest: u32,
    tag: u32,
}

/// A receive that is prepared once and may be started any number of times: see [`Communicator::recv_init`].
///
/// If it is dropped while it is in progress, it is cancelled. If a message has matched already, that message is received and
/// discarded.
pub struct PersistentRecv<B: 'static, L: Threads = Single> {
    operation: Operation<B, L>,
    source: Source,
    tag: Tag,
}

impl<B: Buffer, L: Threads> PersistentSend<B, L> {
    /// Begins to send the buffer: `MPI_Start`.
    ///
    /// # Errors
    /// As [`Communicator::send`]; [`Error::InProgress`] if it was started and not [waited](Self::wait) for. After an error it is
    /// not in progress because of this call.
    pub fn start(&mut self) -> Result<(), Error> {
        check_tag(self.tag)?;
        let buffer = idle_buffer(&mut self.operation)?;
        // SAFETY: no operation is in progress.
        let data = Span::of(unsafe { buffer.get() }.bytes());
        let handle = &self.operation.handle;
        let mut engine = handle.context.engine.lock();
        // SAFETY: the buffer keeps its address, and no code accesses it, until its request is complete: see `Operation`.
        let sending = no_unwind(|| unsafe { engine.mtl.isend(handle.comm, self.dest, self.tag, self.mode, data) });
        self.operation.stage = match sending {
            Ok(Sending::Complete) => Stage::Complete(Some(Ok(Status::EMPTY))),
            Ok(Sending::Pending(request)) => Stage::InProgress(request),
            Err(why) => return Err(handle.refusal(&engine, why, Some(self.dest))),
        };
        Ok(())
    }
}

impl<B, L: Threads> PersistentSend<B, L> {
    /// Waits until the send that was started is complete. It may then be started again.
    ///
    /// # Errors
    /// As [`Communicator::send`]; [`Error::NotStarted`].
    pub fn wait(&mut self) -> Result<(), Error> {
        wait(&mut self.operation).map(|_| ())
    }
}

impl<B: BufferMut, L: Threads> PersistentRecv<B, L> {
    /// Begins to receive into the buffer: `MPI_Start`.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; [`Error::InProgress`] if it was started and not [waited](Self::wait) for. After an error it is
    /// not in progress because of this call.
    pub fn start(&mut self) -> Result<(), Error> {
        self.tag.reserved().map_or(Ok(()), |tag| Err(Error::NoSuchTag(tag)))?;
        let buffer = idle_buffer(&mut self.operation)?;
        // SAFETY: no operation is in progress.
        let bytes = unsafe { buffer.get_mut() }.bytes_mut();
        let sink = Span::contiguous(bytes.as_mut_ptr(), bytes.len());
        let handle = &self.operation.handle;
        let mut engine = handle.context.engine.lock();
        // SAFETY: the buffer keeps its address, and no code accesses it, until its request is complete: see `Operation`.
        match no_unwind(|| unsafe { engine.mtl.irecv(handle.comm, self.source.core(), self.tag.core(), sink) }) {
            Ok(request) => self.operation.stage = Stage::InProgress(request),
            Err(why) => return Err(handle.refusal(&engine, why, self.source.rank())),
        }
        Ok(())
    }
}

impl<B, L: Threads> PersistentRecv<B, L> {
    /// Waits until the receive that was started is complete, and returns its status. It may then be started again.
    ///
    /// # Errors
    /// As [`Communicator::recv`]; [`Error::NotStarted`].
    pub fn wait(&mut self) -> Result<Status, Error> {
        wait(&mut self.operation)
    }

    /// Cancels the receive that was started, if no message has matched it: `MPI_Cancel`. Returns whether it was cancelled;
    /// [`wait`](Self::wait) then returns [`Error::Cancelled`].
    pub fn cancel(&mut self) -> bool {
        let Some(request) = self.operation.request() else { return false };
        self.operation.handle.context.engine.lock().mtl.cancel(request)
    }
}

macro_rules! persistent {
    ($operation:ident) => {
        impl<B, L: Threads> $operation<B, L> {
            /// Makes progress once. Returns whether nothing is in progress: it is complete, or was not started.
            pub fn is_done(&mut self) -> bool {
                self.operation.is_done()
            }

            /// The buffer. `None` while the operation is in progress.
            pub fn buffer(&self) -> Option<&B> {
                let buffer = self.operation.buffer.as_ref().filter(|_| self.operation.request().is_none());
                // SAFETY: no operation is in progress.
                buffer.map(|buffer| unsafe { buffer.get() })
            }

            /// The buffer, to be changed. `None` while the operation is in progress.
            pub fn buffer_mut(&mut self) -> Option<&mut B> {
                let is_idle = self.operation.request().is_none();
                // SAFETY: no operation is in progress.
                self.operation.buffer.as_mut().filter(|_| is_idle).map(|buffer| unsafe { buffer.get_mut() })
            }

            /// Gives the buffer back. `None` while the operation is in progress: it then ends as if it had been dropped.
            pub fn into_buffer(mut self) -> Option<B> {
                let is_idle = self.operation.request().is_none();
                if is_idle { self.operation.buffer.take().map(BoxedBuffer::into_inner) } else { None }
            }
        }

        impl<B, L: Threads> Completion<L> for $operation<B, L> {}

        impl<B, L: Threads> Pending<L> for $operation<B, L> {
            fn handle(&self) -> &CommHandle<L> {
                &self.operation.handle
            }

            fn request(&self) -> Option<Request> {
                self.operation.request()
            }

            fn is_active(&self) -> bool {
                self.operation.is_active()
            }

            fn test(&mut self) -> bool {
                self.operation.test(false)
            }
        }

        impl<B, L: Threads> fmt::Debug for $operation<B, L> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($operation)).finish_non_exhaustive()
            }
        }
    };
}

persistent!(PersistentSend);
persistent!(PersistentRecv);

impl<B, L: Threads> Drop for PersistentRecv<B, L> {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// An operation that is not started.
fn prepared<B, L: Threads>(comm: &Communicator<L>, buffer: B) -> Operation<B, L> {
    Operation { buffer: Some(BoxedBuffer::new(buffer)), stage: Stage::Complete(None), handle: comm.handle.clone() }
}

/// The buffer of an operation that may be started.
fn idle_buffer<B, L: Threads>(operation: &mut Operation<B, L>) -> Result<&mut BoxedBuffer<B>, Error> {
    match operation.stage {
        Stage::Complete(None) => operation.buffer.as_mut().ok_or(Error::Finished),
        _ => Err(Error::InProgress),
    }
}

fn wait<B, L: Threads>(operation: &mut Operation<B, L>) -> Result<Status, Error> {
    operation.complete_now();
    match &mut operation.stage {
        Stage::Complete(outcome) => outcome.take().unwrap_or(Err(Error::NotStarted)),
        Stage::InProgress(_) => Err(Error::InProgress), // not possible: it was waited for
    }
}
