//! Messages that a matched probe took, for foreign code.

use towline_core::convertor::Span;
use towline_core::mtl::Message as CoreMessage;

use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::operations::views::ViewMut;
use crate::raw::request::RawRequest;
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;
use crate::values::message::{Envelope, Source, Tag};
use crate::waiting::no_unwind::no_unwind;

/// A message that [`mprobe_raw`](Communicator::mprobe_raw) took: no other receive gets it. Unlike a [`Message`](crate::Message), it
/// borrows nothing, and nobody discards it when it is dropped: [`imrecv_raw`](Communicator::imrecv_raw) or
/// [`discard_raw`](Communicator::discard_raw) of the same communicator must take it, or it stays in memory until the context ends.
#[derive(Debug)]
#[must_use = "it stays in memory until it is received or discarded"]
pub struct RawMessage {
    message: CoreMessage,
    envelope: Envelope,
}

impl RawMessage {
    /// The source, the tag and the length.
    pub const fn envelope(&self) -> Envelope {
        self.envelope
    }
}

impl<L: Threads> Communicator<L> {
    /// Waits for a message, and takes it: [`mprobe`](Self::mprobe).
    ///
    /// # Errors
    /// As [`mprobe`](Self::mprobe).
    ///
    /// ```
    /// use towline::ViewMut;
    ///
    /// let world = towline::init()?;
    /// world.send(0, 7, b"mine")?;
    /// let message = world.mprobe_raw(towline::Any, 7)?;
    /// let mut into = vec![0u8; message.envelope().bytes as usize];
    /// // SAFETY: the buffer stays until the request is complete.
    /// let request = unsafe { world.imrecv_raw(message, ViewMut::contiguous(into.as_mut_ptr(), into.len())) };
    /// world.wait_raw(request.map_err(|(error, _)| error)?)?;
    /// assert_eq!(into, b"mine");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mprobe_raw(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<RawMessage, Error> {
        let (message, envelope) = self.mprobe(source, tag)?.into_parts();
        Ok(RawMessage { message, envelope })
    }

    /// Makes progress once, and takes a message, if one has arrived: [`improbe`](Self::improbe).
    ///
    /// # Errors
    /// As [`improbe`](Self::improbe).
    pub fn improbe_raw(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<RawMessage>, Error> {
        let taken = self.improbe(source, tag)?.map(crate::Message::into_parts);
        Ok(taken.map(|(message, envelope)| RawMessage { message, envelope }))
    }

    /// Begins to receive a message that was taken: `MPI_Imrecv`. For an example see [`mprobe_raw`](Self::mprobe_raw).
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv), with the message, which is still taken.
    ///
    /// # Safety
    /// As for [`irecv_raw`](Self::irecv_raw).
    pub unsafe fn imrecv_raw(&self, message: RawMessage, into: ViewMut<'_>) -> Result<RawRequest, (Error, RawMessage)> {
        let RawMessage { message, envelope } = message;
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: the caller's promise.
        let request = no_unwind(|| unsafe { engine.mtl.imrecv(message, into.span()) });
        request
            .map(RawRequest)
            .map_err(|(why, message)| (self.handle.refusal(&engine, why, None), RawMessage { message, envelope }))
    }

    /// Receives a message that was taken, and discards it.
    ///
    /// # Errors
    /// As [`imrecv_raw`](Self::imrecv_raw).
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"mine")?;
    /// world.discard_raw(world.mprobe_raw(0, 7)?).map_err(|(error, _)| error)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn discard_raw(&self, message: RawMessage) -> Result<(), (Error, RawMessage)> {
        let RawMessage { message, envelope } = message;
        let mut engine = self.handle.context.engine.lock();
        // SAFETY: an empty span stands for no memory.
        match unsafe { engine.mtl.imrecv(message, Span::EMPTY) } {
            Ok(request) => {
                engine.mtl.pml().detach(request);
                Ok(())
            }
            Err((why, message)) => Err((self.handle.refusal(&engine, why, None), RawMessage { message, envelope })),
        }
    }
}
