//! Probes: looking at messages before they are received.

use std::sync::atomic::Ordering;

use towline_core::mtl::Refusal;

use crate::engine::Engine;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::operations::free_requests::wait_for_requests;
use crate::operations::matched_message::Message;
use crate::threads::levels::Threads;
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::values::message::{Envelope, Source, Tag};
use crate::waiting::idle::Idle;

impl<L: Threads> Communicator<L> {
    /// Waits for a message from `source` with `tag`, and returns its envelope: `MPI_Probe`. The message stays to be received.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] or [`Error::NoSuchTag`]; [`Error::PeerFailed`] as for [`recv`](Self::recv).
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"how long?")?;
    /// let envelope = world.probe(0, towline::Any)?;
    /// let mut into = vec![0u8; envelope.bytes as usize];
    /// world.recv(envelope.source, envelope.tag, &mut into[..])?;
    /// assert_eq!(into, b"how long?");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Envelope, Error> {
        let (source, tag) = (source.into(), tag.into());
        self.look_until(source, tag, |engine| engine.mtl.iprobe(self.handle.comm, source.core(), tag.core()))
            .map(|found| self.envelope(found))
    }

    /// Makes progress once. Returns the envelope of a message from `source` with `tag`, if one has arrived: `MPI_Iprobe`.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert_eq!(world.iprobe(0, 7)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Envelope>, Error> {
        let (source, tag) = (source.into(), tag.into());
        self.look_once(source, tag, |engine| engine.mtl.iprobe(self.handle.comm, source.core(), tag.core()))
            .map(|found| found.map(|found| self.envelope(found)))
    }

    /// Waits for a message from `source` with `tag`, and takes it, so that no other receive gets it: `MPI_Mprobe`.
    ///
    /// # Errors
    /// As [`probe`](Self::probe). [`Error::Busy`] if there is a message but no free request, since a message that was taken may
    /// need one until it is received. As [`send`](Self::send), this first waits for one that may become free.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"mine")?;
    /// let message = world.mprobe(towline::Any, towline::Any)?;
    /// let mut into = vec![0u8; message.envelope().bytes as usize];
    /// message.recv(&mut into[..])?;
    /// assert_eq!(into, b"mine");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message<'_, L>, Error> {
        let (source, tag) = (source.into(), tag.into());
        let comm = self.handle.comm;
        let take = |engine: &mut Engine| engine.mtl.improbe(comm, source.core(), tag.core()).transpose();
        let mut taken = self.look_until(source, tag, take)?;
        if matches!(taken, Err(Refusal::Busy)) {
            drop(wait_for_requests(&self.handle, 1));
            taken = self.look_until(source, tag, take)?;
        }
        self.message(taken, source)
    }

    /// Makes progress once. Takes a message from `source` with `tag`, if one has arrived: `MPI_Improbe`.
    ///
    /// # Errors
    /// As [`mprobe`](Self::mprobe).
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert!(world.improbe(0, 7)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn improbe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Message<'_, L>>, Error> {
        let (source, tag) = (source.into(), tag.into());
        let comm = self.handle.comm;
        let taken =
            self.look_once(source, tag, |engine| engine.mtl.improbe(comm, source.core(), tag.core()).transpose())?;
        taken.map(|taken| self.message(taken, source)).transpose()
    }

    fn message(
        &self,
        taken: Result<(towline_core::mtl::Message, towline_core::mtl::Envelope), towline_core::mtl::Refusal>,
        source: Source,
    ) -> Result<Message<'_, L>, Error> {
        match taken {
            Ok((message, found)) => Ok(Message::new(&self.handle, message, self.envelope(found))),
            Err(refusal) => Err(self.handle.refusal(&self.handle.context.engine.lock(), refusal, source.rank())),
        }
    }

    fn envelope(&self, found: towline_core::mtl::Envelope) -> Envelope {
        let source = self.handle.rank_of(&self.handle.context.engine.lock(), found.peer);
        Envelope { source, tag: found.tag, bytes: found.len }
    }

    /// Checks the arguments of a probe.
    fn check_probe(&self, source: Source, tag: Tag) -> Result<(), Error> {
        self.handle.context.check_process()?;
        self.check_tag_pattern(tag)?;
        match source.rank() {
            Some(rank) if rank >= self.handle.size => Err(Error::NoSuchRank { rank, size: self.handle.size }),
            _ if self.handle.context.finished.load(Ordering::Relaxed) => Err(Error::Finished),
            _ => Ok(()),
        }
    }

    /// Makes progress once, then looks once.
    fn look_once<T>(
        &self,
        source: Source,
        tag: Tag,
        look: impl FnOnce(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        self.check_probe(source, tag)?;
        self.handle.context.progress();
        Ok(look(&mut self.handle.context.engine.lock()))
    }

    /// Waits until `look` finds something, or until the source is lost.
    fn look_until<T>(
        &self,
        source: Source,
        tag: Tag,
        mut look: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<T, Error> {
        self.check_probe(source, tag)?;
        let awaited = Awaited::Message((self.handle.comm, source.core(), tag.core()));
        let mut idle = Idle::default();
        let mut engine = self.handle.context.engine.lock();
        engine.clock.renew_coarsely();
        loop {
            // Look before the sleep: a look may make the engine ask the sender for a message, and the next progress must send
            // that.
            if let Some(found) = look(&mut engine) {
                drop(engine);
                self.handle.context.run_callbacks();
                return Ok(found);
            }
            if let Some(lost) = engine.mtl.failed(self.handle.comm, source.core()) {
                // A message of this context to itself may be on its way.
                engine.poll();
                return look(&mut engine).ok_or_else(|| self.handle.peer_lost(&engine, lost));
            }
            engine.progress_or_wait(&mut idle, &awaited, None);
        }
    }
}
