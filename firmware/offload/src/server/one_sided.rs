//! The commands of one-sided operations: the device serves puts, gets and atomics of peers on registered memory of the window, and
//! the host takes no part in that.

use towline_core::pml::Rails;
use towline_core::rail::Peer;
use towline_core::rail::atomics::{Atomic, AtomicFlags};
use towline_core::rma::{Access as Rights, DeregisterError, Finished, RemoteMemory, Transfer};
use towline_window::command::{ANY, Body, Command, KEY, KeyPlace, Remote};
use towline_window::completion::{Completion, Done, Failure};

use super::Server;
use crate::failures::{of_begin, of_lost, of_one_sided};
use crate::keys::{self, Sum};
use crate::one_sided_tables::Access;

/// The peer on whose memory a command is an operation, or to which it sends a frame.
pub(super) const fn peer_of(command: &Command) -> Option<u32> {
    match command {
        Command::Put { to: Remote { peer, .. }, .. }
        | Command::Get { from: Remote { peer, .. }, .. }
        | Command::Atomic { at: Remote { peer, .. }, .. }
        | Command::SendFrame { peer, .. } => Some(*peer),
        _ => None,
    }
}

impl<R: Rails> Server<'_, '_, R> {
    /// Whether the engine has one-sided operations.
    pub(super) const fn has_one_sided(&self) -> bool {
        self.one_sided != 0
    }

    pub(super) fn register(&mut self, access: Rights, only: u32, memory: Body, key: KeyPlace) -> Result<Done, Failure> {
        let (base, bytes) = self.memory_of(memory)?;
        let key = Body { region: key.region, at: key.at, bytes: KEY as u64 };
        self.memory_of(key)?;
        let only = match only {
            ANY => None,
            peer if self.knows(peer) && self.mtl.why_lost(Peer(peer)).is_none() => Some(Peer(peer)),
            peer if self.knows(peer) => return Err(of_lost(self.mtl.why_lost(Peer(peer)))),
            _ => return Err(Failure::NoSuchThing),
        };
        if bytes == 0 {
            return Err(Failure::Malformed);
        }
        if !self.registrations.has_room() {
            return Err(Failure::Full);
        }
        // It never fails: the device has a card, since `publish` has written it, or will.
        let card = Sum::of(&self.mtl.params(), self.mtl.rails()).ok_or(Failure::NoSuchThing)?;
        // SAFETY: the memory is in the window, which outlives the engine, and has no Rust references. The host knows that peers
        // access it at any time.
        let registered = unsafe { self.mtl.pml().register(base, bytes, access, only) };
        let registration = registered.ok_or(Failure::Full)?;
        let remote = self.mtl.pml().remote_memory(registration);
        let written =
            remote.is_some_and(|remote| self.device.memory().write(key.at, &keys::write(remote, card)).is_ok());
        match written.then(|| self.registrations.add(registration)).flatten() {
            Some(value) => Ok(Done { value, ..Done::default() }),
            None => {
                // Nobody has its key, so nobody uses it.
                let _ = self.mtl.pml().deregister(registration);
                Err(Failure::Full)
            }
        }
    }

    /// Ends a registration. `None` if that has to wait for a peer whose bytes arrive there.
    pub(super) fn deregister(&mut self, cookie: u64, number: u32) -> Result<Option<Done>, Failure> {
        let registration = self.registrations.get(number).ok_or(Failure::NoSuchThing)?;
        match self.mtl.pml().deregister(registration) {
            Err(DeregisterError::InUse) => {
                self.registrations.close(number, cookie);
                Ok(None)
            }
            _ => {
                self.registrations.remove(number);
                Ok(Some(Done::default()))
            }
        }
    }

    /// Ends a registration whose memory was in use, if it is not any more. Returns the completion of its command.
    pub(super) fn finish_deregistration(&mut self) -> Option<Completion> {
        let Self { registrations, mtl, .. } = self;
        let cookie =
            registrations.finish(|registration| mtl.pml().deregister(registration) != Err(DeregisterError::InUse))?;
        Some(Completion::new(cookie, Ok(Done::default())))
    }

    pub(super) fn put(&mut self, cookie: u64, to: Remote, body: Body) -> Result<Option<Done>, Failure> {
        let data = self.span_of(body)?;
        self.access(cookie, to, Transfer::Put(data))
    }

    pub(super) fn get(&mut self, cookie: u64, from: Remote, body: Body) -> Result<Option<Done>, Failure> {
        let sink = self.span_of(body)?;
        self.access(cookie, from, Transfer::Get(sink))
    }

    pub(super) fn atomic(
        &mut self,
        cookie: u64,
        at: Remote,
        atomic: Atomic,
        flags: AtomicFlags,
    ) -> Result<Option<Done>, Failure> {
        self.access(cookie, at, Transfer::Atomic(atomic, flags))
    }

    /// Begins an operation on memory of a peer.
    fn access(&mut self, cookie: u64, remote: Remote, what: Transfer) -> Result<Option<Done>, Failure> {
        let memory = self.remote_memory(&remote)?;
        let peer = Peer(remote.peer);
        // SAFETY: local memory is in the window, which outlives the engine. A host that changes it meanwhile, or that lets peers change it,
        // against the specification, harms its own operation only.
        let begun = unsafe { self.mtl.pml().begin(peer, what, &memory, remote.offset) };
        let operation = begun.map_err(|why| of_begin(why, self.mtl.why_lost(peer)))?;
        self.accesses.add(Access { operation, cookie, peer });
        Ok(None)
    }

    /// The memory that a key names, which is that of the peer's device.
    fn remote_memory(&self, remote: &Remote) -> Result<RemoteMemory, Failure> {
        let card = self.added.get(remote.peer as usize).copied().flatten().ok_or(Failure::NoSuchThing)?;
        let place = Body { region: remote.key.region, at: remote.key.at, bytes: KEY as u64 };
        self.memory_of(place)?;
        let mut key = [0; KEY];
        self.device.memory().read(place.at, &mut key).map_err(|_| Failure::OutOfBounds)?;
        keys::read(&key, card).ok_or(Failure::BadKey)
    }

    /// The completion of an operation that has ended.
    pub(super) fn finished(&mut self, finished: &Finished) -> Option<Completion> {
        let Access { cookie, peer, .. } = self.accesses.remove(finished.operation)?;
        let result = match finished.result {
            Ok(word) => Ok(Done { word, ..Done::default() }),
            Err(why) => Err(of_one_sided(why, self.mtl.why_lost(peer))),
        };
        Some(Completion { cookie, result, failed: peer.0 })
    }

    /// Ends what the present session has registered and begun. Its peers were deleted.
    pub(super) fn end_one_sided(&mut self) {
        while self.mtl.pml().next_finished().is_some() {}
        self.accesses.clear();
        let Self { registrations, mtl, .. } = self;
        registrations.clear(|registration| {
            // Nothing uses the memory: each access of a peer has ended with the peer.
            let _ = mtl.pml().deregister(registration);
        });
    }
}
