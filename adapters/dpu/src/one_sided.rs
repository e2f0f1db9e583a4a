//! One-sided operations: memory in the buffers of a device that peers access by puts, gets and atomics. The device serves them, and
//! the host makes no call for that.
//!
//! ```no_run
//! use std::path::Path;
//! use towline_core::convertor::Span;
//! use towline_dpu::one_sided::{Access, Atomic, AtomicFlags, AtomicOp, Key};
//! use towline_dpu::{Options, Transport};
//!
//! let mut transport = Transport::open(Path::new("/sys/bus/pci/devices/0000:03:00.0/resource2"), Options::default())?;
//! # let exchange = |bytes: &[u8]| bytes.to_vec();
//! let card = transport.card()?;
//! transport.add_peer(1, &exchange(&card))?;
//! // Each of two processes lets the other one access 4096 bytes.
//! let buffer = transport.buffer(4096)?;
//! let own = transport.register(buffer, Access::ANY, None).map_err(|(why, _)| why)?;
//! let key = Key::from_bytes(&exchange(&own.key().to_bytes())).ok_or("no key")?;
//! let other = transport.reach(1, &key)?;
//!
//! // SAFETY: the bytes are static.
//! let put = unsafe { transport.put(&other, 64, Span::of(b"written by the device of the other process")) }?;
//! let counted = transport.atomic(&other, 0, Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty())?;
//! println!("the counter was {}", transport.wait_access(counted)?);
//! transport.wait_access(put)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use towline_core::convertor::Span;
pub use towline_core::rail::access::Access;
pub use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_window::command::{ANY, Body, Command, KEY, KeyPlace, Remote as Place};

use crate::errors::{Failure, Refusal};
use crate::heap::Part;
use crate::operations::{Accessed, Kind};
use crate::transport::{Buffer, Transport};

/// The key of registered memory, which its owner sends to peers by any means. It is opaque.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key([u8; KEY]);

impl Key {
    /// The key from the bytes that its owner has sent. `None` if they have another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// The bytes to send to peers.
    pub const fn to_bytes(self) -> [u8; KEY] {
        self.0
    }
}

/// Memory in the buffers of a device that peers access at any time. It is registered until it is
/// [deregistered](Transport::deregister), or its transport is dropped.
#[derive(Debug)]
#[must_use = "memory that is not deregistered stays registered until the session ends"]
pub struct Registered {
    buffer: Buffer,
    number: u32,
    key: Key,
}

impl Registered {
    /// Its key, for peers.
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The memory, for [`Transport::fill`], [`Transport::copy`] and [`Transport::address_of`]. Peers may access it at the same time.
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }
}

/// Memory of a peer. Its key lies in the buffers of the device until it is [forgotten](Transport::forget_remote).
#[derive(Debug)]
#[must_use = "the key of a peer's memory that is not forgotten stays in the buffers until the session ends"]
pub struct Remote {
    peer: u32,
    place: usize,
    session: u32,
}

impl Remote {
    /// The peer that has registered it.
    pub const fn peer(&self) -> u32 {
        self.peer
    }
}

/// A put, get or atomic in progress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Accessing(pub(crate) u64);

impl Transport {
    /// Lets peers access memory in the buffers of the device. `access`: any of [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`] and
    /// [`Access::REMOTE_ATOMIC`]; other rights do not count. `only`: the only peer that may do it.
    ///
    /// # Errors
    /// The refusal, and the memory: [`Refusal::NoOneSided`], [`Refusal::Invalid`] without a right or a byte or for the buffer of
    /// another transport, [`Refusal::Busy`] if the buffers are in use, or that of the device.
    pub fn register(
        &mut self,
        buffer: Buffer,
        access: Access,
        only: Option<u32>,
    ) -> Result<Registered, (Refusal, Buffer)> {
        match self.register_body(&buffer, access, only) {
            Ok((number, key)) => Ok(Registered { buffer, number, key }),
            Err(why) => Err((why, buffer)),
        }
    }

    fn register_body(&mut self, buffer: &Buffer, access: Access, only: Option<u32>) -> Result<(u32, Key), Refusal> {
        self.check_one_sided()?;
        let memory = self.body_of_buffer(buffer)?;
        let access = access & (Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if access.is_empty() || buffer.is_empty() || only == Some(ANY) {
            return Err(Refusal::Invalid);
        }
        let staging = self.staging();
        let key = KeyPlace { region: staging.region, at: staging.at };
        let done = self.call(&Command::Register { access, only: only.unwrap_or(ANY), memory, key })?;
        let mut bytes = [0; KEY];
        self.read(key.at, &mut bytes)?;
        Ok((done.value, Key(bytes)))
    }

    /// Ends a registration, and returns the memory. It waits for accesses of peers that have begun, and later ones are denied.
    ///
    /// # Errors
    /// [`Refusal`], and the memory. If the device has failed, its registrations have ended.
    #[expect(clippy::result_large_err, reason = "the memory goes back to the caller, who calls this seldom")]
    pub fn deregister(&mut self, memory: Registered) -> Result<Buffer, (Refusal, Registered)> {
        if self.body_of_buffer(&memory.buffer).is_err() {
            return Err((Refusal::Invalid, memory));
        }
        match self.call_at_length(&Command::Deregister { registration: memory.number }) {
            Ok(_) => Ok(memory.buffer),
            Err(why) => Err((why, memory)),
        }
    }

    /// Memory of a peer, by the key that its owner has sent. Whether the key is valid turns out at the first operation.
    ///
    /// # Errors
    /// [`Refusal::NoOneSided`], or [`Refusal::Busy`] if the buffers are in use.
    pub fn reach(&mut self, peer: u32, key: &Key) -> Result<Remote, Refusal> {
        self.check_one_sided()?;
        let part = self.room(KEY as u64)?;
        self.reach_in(part, peer, key)
    }

    /// As [`reach`](Self::reach), with room for the key.
    pub(crate) fn reach_in(&mut self, part: Part, peer: u32, key: &Key) -> Result<Remote, Refusal> {
        if let Err(why) = self.write_part(part, &key.0) {
            self.give_back(part);
            return Err(why);
        }
        Ok(Remote { peer, place: self.remotes().add(part), session: self.session() })
    }

    /// Forgets memory of a peer. Operations on it go on.
    pub fn forget_remote(&mut self, remote: Remote) {
        if remote.session == self.session()
            && let Some(part) = self.remotes().close(remote.place)
        {
            self.give_back(part);
        }
    }

    /// Begins to write any memory of the host to memory of a peer, from a byte on: its bytes are copied to the device's buffers now,
    /// and may be changed afterwards. Bytes that lie in the device's buffers are not copied, and must not be changed before the
    /// outcome was taken.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory is readable during the call.
    pub unsafe fn put(&mut self, remote: &Remote, offset: u64, data: Span) -> Result<Accessing, Refusal> {
        self.admit_access()?;
        let (body, part) = self.place_of(&data)?;
        if let Some(part) = part {
            // SAFETY: the part is in the window, which is mapped and not in use for anything else; the caller vouches for the data.
            unsafe { data.pack(self.address(part), data.len() as usize) };
        }
        let accessed = Accessed { part, ..Accessed::new(remote.peer, remote.place) };
        self.access(remote, offset, accessed, |to| Command::Put { to, body })
    }

    /// Where the first `bytes` bytes of a buffer are.
    fn body_of_first(&self, buffer: &Buffer, bytes: u64) -> Result<Body, Refusal> {
        let body = self.body_of_buffer(buffer)?;
        Ok(Body { bytes: bytes.min(body.bytes), ..body })
    }

    /// Begins to write the first `bytes` bytes of a buffer to memory of a peer, from a byte on. The buffer must not be filled or
    /// returned before the outcome was taken.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn put_buffer(
        &mut self,
        remote: &Remote,
        offset: u64,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<Accessing, Refusal> {
        let body = self.body_of_first(buffer, bytes)?;
        self.access(remote, offset, Accessed::new(remote.peer, remote.place), |to| Command::Put { to, body })
    }

    /// Begins to read memory of a peer, from a byte on, into any memory of the host. It is copied there from the device's buffers by
    /// [`progress`](Self::progress), after the device has got it.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    ///
    /// # Safety
    /// The memory is writable, and nothing else accesses it, until the outcome was taken or the transport was dropped.
    pub unsafe fn get(&mut self, remote: &Remote, offset: u64, into: Span) -> Result<Accessing, Refusal> {
        self.admit_access()?;
        let (body, part) = self.place_of(&into)?;
        let into = part.map(|_| into);
        let accessed = Accessed { part, into, ..Accessed::new(remote.peer, remote.place) };
        self.access(remote, offset, accessed, |from| Command::Get { from, body })
    }

    /// Begins to read memory of a peer, from a byte on, into the first `bytes` bytes of a buffer. The buffer must not be used or
    /// returned before the outcome was taken.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn get_buffer(
        &mut self,
        remote: &Remote,
        offset: u64,
        buffer: &Buffer,
        bytes: u64,
    ) -> Result<Accessing, Refusal> {
        let body = self.body_of_first(buffer, bytes)?;
        self.access(remote, offset, Accessed::new(remote.peer, remote.place), |from| Command::Get { from, body })
    }

    /// Begins to change a word of a peer, at a byte of its memory, as one step. The outcome is the word before that.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was begun then.
    pub fn atomic(
        &mut self,
        remote: &Remote,
        offset: u64,
        atomic: Atomic,
        flags: AtomicFlags,
    ) -> Result<Accessing, Refusal> {
        let accessed = Accessed::new(remote.peer, remote.place);
        self.access(remote, offset, accessed, |at| Command::Atomic { at, atomic, flags })
    }

    /// The outcome of an operation on memory of a peer, once it is over: the old word of an atomic, or 0.
    pub fn test_access(&mut self, access: Accessing) -> Option<Result<u64, Failure>> {
        self.outcome(access.0).map(|outcome| outcome.map(|done| done.word))
    }

    /// Waits for an operation on memory of a peer, and returns its outcome: the old word of an atomic, or 0.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn wait_access(&mut self, access: Accessing) -> Result<u64, Failure> {
        loop {
            if let Some(outcome) = self.test_access(access) {
                return outcome;
            }
            if self.progress() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Waits until all operations on memory of a peer, or of all peers, are over. Their outcomes have still to be taken.
    ///
    /// # Errors
    /// [`Failure::Device`]: the device has failed, so it is not known whether the operations were done.
    pub fn flush(&mut self, peer: Option<u32>) -> Result<(), Failure> {
        while self.accesses(peer) {
            if self.progress() == 0 {
                std::thread::yield_now();
            }
        }
        self.lost().map_or(Ok(()), |why| Err(Failure::Device(why)))
    }

    /// Begins an operation.
    fn access(
        &mut self,
        remote: &Remote,
        offset: u64,
        accessed: Accessed,
        command: impl FnOnce(Place) -> Command,
    ) -> Result<Accessing, Refusal> {
        let held = self.hold(remote);
        let key = match held {
            Ok(part) => KeyPlace { region: part.body.region, at: part.body.at },
            Err(why) => {
                accessed.part.into_iter().for_each(|part| self.give_back(part));
                return Err(why);
            }
        };
        let place = Place { peer: remote.peer, offset, key };
        self.begin(Kind::Access(accessed), &command(place)).map(Accessing)
    }

    /// The key of a peer's memory. An operation names it from now on.
    fn hold(&mut self, remote: &Remote) -> Result<Part, Refusal> {
        self.check_one_sided()?;
        if remote.session != self.session() {
            return Err(Refusal::Invalid);
        }
        self.remotes().hold(remote.place).ok_or(Refusal::Invalid)
    }

    /// Where memory lies in the buffers, or a part of them for a copy of it.
    fn place_of(&mut self, memory: &Span) -> Result<(Body, Option<Part>), Refusal> {
        if let Some(body) = self.body_in_buffers(memory) {
            return Ok((body, None));
        }
        let part = self.room(memory.len())?;
        Ok((part.body, Some(part)))
    }
}
