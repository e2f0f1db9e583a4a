//! Messages that a matched probe took out of the queues.

use std::fmt;

use towline_core::convertor::Span;
use towline_core::mtl::Refusal;
use zerocopy::{FromBytes, IntoBytes};

use crate::context::handle::CommHandle;
use crate::errors::error::Error;
use crate::operations::free_requests::wait_for_requests;
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::message::{Envelope, Status};
use crate::waiting::no_unwind::no_unwind;

/// A message that [`mprobe`](crate::Communicator::mprobe) took, like an `MPI_Message`: no other receive gets it. A message that
/// is dropped is received and discarded.
///
/// ```
/// let world = towline::init()?;
/// world.send(0, 3, &[1u32, 2, 3])?;
/// let message = world.mprobe(0, 3)?;
/// let mut into = vec![0u32; message.envelope().bytes as usize / 4];
/// message.recv(&mut into[..])?;
/// assert_eq!(into, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Message<'c, L: Threads = Single> {
    handle: &'c CommHandle<L>,
    message: Option<towline_core::mtl::Message>,
    envelope: Envelope,
}

impl<'c, L: Threads> Message<'c, L> {
    pub(crate) fn new(handle: &'c CommHandle<L>, message: towline_core::mtl::Message, envelope: Envelope) -> Self {
        Self { handle, message: Some(message), envelope }
    }

    /// The message and its envelope. It is not discarded then.
    pub(crate) fn into_parts(mut self) -> (towline_core::mtl::Message, Envelope) {
        (self.message.take().expect("a message is taken once, with `self`"), self.envelope)
    }

    /// The source, the tag and the length.
    pub const fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Receives the message into `into`, which may be longer than the message. For an example see
    /// [`Communicator::mprobe`](crate::Communicator::mprobe).
    ///
    /// # Errors
    /// As [`Communicator::recv`](crate::Communicator::recv).
    pub fn recv<T>(mut self, into: &mut T) -> Result<Status, Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let Some(message) = self.message.take() else { return Err(Error::Finished) };
        let into = into.as_mut_bytes();
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        let handle = self.handle;
        let mut engine = handle.context.engine.lock();
        let receive = |engine: &mut <L::Lock as EngineLock>::Guard<'_>, message| {
            no_unwind(|| {
                // SAFETY: `into` is borrowed until this returns, the request is waited for, and nothing unwinds.
                let request = unsafe { engine.mtl.imrecv(message, sink) };
                request.map(|request| engine.wait(request))
            })
        };
        let mut outcome = receive(&mut engine, message);
        if let Err((Refusal::Busy, message)) = outcome {
            self.message = Some(message); // kept while code of users runs
            drop(engine);
            engine = wait_for_requests(handle, 1);
            let Some(message) = self.message.take() else { return Err(Error::Finished) };
            outcome = receive(&mut engine, message);
        }
        match outcome {
            Ok(outcome) => {
                let outcome = handle.outcome(&engine, outcome);
                drop(engine);
                handle.context.run_callbacks();
                outcome
            }
            Err((refusal, message)) => {
                self.message = Some(message); // dropped with `self`, after the lock was released
                Err(handle.refusal(&engine, refusal, None))
            }
        }
    }
}

impl<L: Threads> Drop for Message<'_, L> {
    fn drop(&mut self) {
        let Some(message) = self.message.take().filter(|_| !self.handle.context.is_copy()) else { return };
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: an empty span stands for no memory.
        match unsafe { engine.mtl.imrecv(message, Span::EMPTY) } {
            Ok(request) => engine.mtl.pml().detach(request),
            Err((refusal, _)) => {
                log::warn!(
                    "a message that a probe took cannot be discarded, so it stays in memory until the world ends: {refusal}"
                );
            }
        }
    }
}

impl<L: Threads> fmt::Debug for Message<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}
