//! Messages that a probe took out of the queues.

use towline_core::convertor::Span;
use zerocopy::{FromBytes, IntoBytes};

use crate::context::state::no_unwind;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::{Held, Lock, Single, Threads};
use crate::values::message::{Envelope, Status};

/// A message that [`mprobe`](Communicator::mprobe) took: only its holder can receive it. One that is dropped is received
/// and thrown away.
#[derive(Debug)]
pub struct Message<'c, L: Threads = Single> {
    from: &'c Communicator<L>,
    message: Option<towline_core::mtl::Message>,
    envelope: Envelope,
}

impl<'c, L: Threads> Message<'c, L> {
    pub(crate) fn new(from: &'c Communicator<L>, message: towline_core::mtl::Message, envelope: Envelope) -> Self {
        Self { from, message: Some(message), envelope }
    }

    /// Who sent it, its tag, its length.
    pub const fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Receives it into `into`, which may be longer. For an example see [`Communicator::mprobe`].
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn recv<T>(mut self, into: &mut T) -> Result<Status, Error>
    where
        T: FromBytes + IntoBytes + ?Sized,
    {
        let Some(message) = self.message.take() else { return Err(Error::Finished) };
        let into = into.as_mut_bytes();
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        let place = &self.from.place;
        let mut engine = place.context.engine.hold();
        let outcome = no_unwind(|| {
            // SAFETY: `into` is borrowed until this returns, the request is waited for, and nothing unwinds.
            let request = unsafe { engine.mtl.imrecv(message, sink) };
            request.map(|request| engine.wait(request))
        });
        match outcome {
            Ok(outcome) => {
                let outcome = place.outcome(&engine, outcome);
                drop(engine);
                place.context.settle();
                outcome
            }
            Err((refusal, message)) => {
                self.message = Some(message); // dropped with `self`, after the engine was let go
                Err(place.refusal(&engine, refusal, None))
            }
        }
    }
}

impl<L: Threads> Drop for Message<'_, L> {
    fn drop(&mut self) {
        let Some(message) = self.message.take() else { return };
        let mut engine = self.from.place.context.engine.hold();
        // SAFETY: an empty span stands for no memory.
        match unsafe { engine.mtl.imrecv(message, Span::EMPTY) } {
            Ok(request) => engine.mtl.pml().detach(request),
            Err((refusal, _)) => log::warn!("a message that was probed cannot be thrown away: {refusal}"),
        }
    }
}
