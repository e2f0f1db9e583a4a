//! Single copy through the kernel: a receiver reads a long message from where it lies in its sender's memory, with
//! `process_vm_readv`, and nothing goes through a ring but who may read what.
//!
//! # Which process
//! A peer's word for its process id is not taken. Who makes a ring holds a lock on its file, and the kernel names the
//! process that holds it, in the number that it has for us, whatever containers there are. So a peer can make us read
//! its own memory and nobody else's. The lock is held until the receiver has looked.
//!
//! # Whether it works
//! The sender has a word in its own memory, its *pledge* to that receiver, and tells in the ring where it is and what it
//! says. The receiver tries to read it there: that fails where the system forbids it (Yama's `ptrace_scope`, a
//! container's filter, another user namespace), and is answered in the ring either way. Nothing is lent before.
//! Locks belong to processes, and one is gone when its process closes any descriptor of the file: so a rail that looks at
//! what dead jobs left opens no ring whose sender lives.
//!
//! # Whether it is still the same memory
//! Each read of a message also reads the pledge, in the same call and behind the message. It changes when the sender
//! forgets the peer or closes, and is not there in a process that was given the same number later, or runs another
//! program: the bytes are void then. Addresses are looked into by the kernel alone, and it writes to the sink alone.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use towline_core::convertor::Span;
use towline_core::rail::{Endpoint, REMOTE_BUFFER_BYTES, RemoteBuffer};

use crate::atomics::{Ordering, fence};
use crate::rail::Rail;

/// How long messages go to a peer, or come from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SingleCopyState {
    /// No frame has gone that way yet, or its receiver has not looked.
    Untried,
    /// In a single copy, by the receiver.
    Works,
    /// Copied into a ring and out of it: it was refused, or is switched off at either side.
    Refused,
    /// As `Refused`, because too many others had yet to look at their rings when the ring to this peer was made: each takes
    /// a descriptor until then.
    Crowded,
}

/// In a ring: what its receiver says.
pub const UNTRIED: u64 = 0;
/// The pledge could be read.
pub const WORKS: u64 = 1;
/// It could not.
pub const REFUSED: u64 = 2;

/// Locks that are held for receivers that have not looked yet: descriptors are scarce.
const MOST_LOCKS: u32 = 64;

/// The sending side's: what it takes to lend memory to one peer.
#[derive(Debug)]
pub struct Lender {
    /// Read by the peer, from our memory: it must not move.
    pledge: Box<AtomicU64>,
    /// How often it has changed.
    generation: u64,
    /// Something was lent since.
    has_lent: bool,
    /// Holds the lock as long as it is open.
    lock: Option<File>,
}

impl Lender {
    /// Locks a ring's file, and pledges. `None` where that does not work.
    pub fn new(path: &Path) -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let lock = whole_file();
        // SAFETY: the descriptor is open and the lock is a complete one; the kernel only reads it.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } != 0 {
            return None;
        }
        let pledge = Box::new(AtomicU64::new(crate::host::process::nonce()));
        Some(Self { pledge, generation: 0, has_lent: false, lock: Some(file) })
    }

    /// Where the pledge is and what it says, for the ring.
    pub fn pledge(&self) -> (u64, u64) {
        (std::ptr::from_ref(&*self.pledge).addr() as u64, self.pledge.load(Ordering::Relaxed))
    }

    /// Closes the lock's file, once the receiver has looked; tells whether it was open.
    pub fn unlock(&mut self) -> bool {
        self.lock.take().is_some()
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// What is lent so far can be read no more: a read that is not over yet will be void.
    pub fn revoke(&mut self) {
        self.has_lent = false;
        self.generation = self.generation.wrapping_add(1);
        self.pledge.fetch_add(1, Ordering::Relaxed);
        // Whoever uses the memory next does so after this.
        fence(Ordering::SeqCst);
    }

    fn expose(&mut self, address: u64) -> RemoteBuffer {
        self.has_lent = true;
        let mut loan = [0; REMOTE_BUFFER_BYTES];
        let fields = address.to_le_bytes().into_iter().chain(self.generation.to_le_bytes());
        loan.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        RemoteBuffer(loan)
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // Freed memory keeps what it said.
        self.pledge.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The receiving side's: what it takes to read a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    process: libc::pid_t,
    pledge_at: u64,
    /// What the pledge said first.
    pledge: u64,
}

impl Reader {
    /// Tries to read the pledge that a ring tells of in the process that [holds](holder) the lock of the ring.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn new(holder: std::io::Result<libc::pid_t>, pledge: (u64, u64)) -> Result<Self, String> {
        let (pledge_at, pledge) = pledge;
        if pledge_at == 0 {
            return Err("its sender lends nothing".into());
        }
        let process = holder.map_err(|error| format!("nobody holds the lock of its ring: {error}"))?;
        let reader = Self { process, pledge_at, pledge };
        // SAFETY: no bytes are written to.
        match unsafe { reader.read(0, pledge, std::ptr::null_mut(), 0) } {
            Ok(true) => Ok(reader),
            Ok(false) => Err(format!("process {process} has no such memory")),
            Err(error) => Err(format!("process {process} cannot be read: {error}")),
        }
    }

    /// Reads memory of the peer; `Ok(false)` where it is not there, or was lent no longer.
    ///
    /// # Safety
    /// `into` is writable for `len` bytes, and nobody else uses them.
    unsafe fn read(&self, from: u64, pledge: u64, into: *mut u8, len: usize) -> std::io::Result<bool> {
        let mut found = 0u64;
        let vector = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
        let there = |address: u64| std::ptr::without_provenance_mut::<u8>(address as usize);
        let local = [vector(into, len), vector((&raw mut found).cast(), 8)];
        let remote = [vector(there(from), len), vector(there(self.pledge_at), 8)];
        // The message first, the pledge then: if that holds still, the message was what it should be.
        let skip = usize::from(len == 0);
        let (local, remote) = (&local[skip..], &remote[skip..]);
        let count = local.len() as libc::c_ulong;
        // SAFETY: the kernel writes to `found` and to what the caller vouches for, and checks the other's addresses itself.
        let moved = unsafe { libc::process_vm_readv(self.process, local.as_ptr(), count, remote.as_ptr(), count, 0) };
        match usize::try_from(moved) {
            Ok(moved) => Ok(moved == len + 8 && found == pledge),
            Err(_) => match std::io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl Rail {
    /// How long messages go to a peer.
    pub fn sends_in_single_copy(&self, to: Endpoint) -> SingleCopyState {
        match self.rings.get(to.0 as usize * 2).map(|ring| &ring.outgoing) {
            Some(outgoing) if outgoing.exists() => match (&outgoing.lender, outgoing.answer()) {
                (None, _) if self.peers.get(to.0 as usize).is_some_and(|peer| peer.crowded) => SingleCopyState::Crowded,
                (None, _) | (_, REFUSED..) => SingleCopyState::Refused,
                (_, UNTRIED) => SingleCopyState::Untried,
                (_, WORKS) => SingleCopyState::Works,
            },
            _ => SingleCopyState::Untried,
        }
    }

    /// How many rings were made without single copy because [too many](SingleCopyState::Crowded) waited to be looked at.
    pub fn crowded_rings(&self) -> u32 {
        self.crowded
    }

    /// What it takes to lend memory through a ring that was made just now. `None` where that does not work.
    pub(crate) fn lender(&mut self, endpoint: u32, path: &Path) -> Option<Lender> {
        if self.locks >= MOST_LOCKS {
            // Some may have been looked at since the last upkeep.
            self.unlock_rings();
        }
        let crowded = self.locks >= MOST_LOCKS;
        let peer = self.peers.get_mut(endpoint as usize)?;
        peer.crowded = crowded;
        if crowded {
            if self.crowded == 0 {
                log::warn!(
                    "long messages to rank {} are copied, as to all whose ring is made while {MOST_LOCKS} others wait to be \
                     looked at: told once",
                    peer.rank
                );
            }
            self.crowded = self.crowded.saturating_add(1);
            return None;
        }
        let lender = Lender::new(path);
        match lender {
            Some(_) => self.locks += 1,
            None => log::info!("messages to rank {} are copied: its ring cannot be locked", peer.rank),
        }
        lender
    }

    // Called through wrappers that are inlined where short messages go, too.
    #[inline(never)]
    pub(crate) fn lend_to(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let limits = u64::from(self.config.single_copy_bytes)..=u64::from(self.config.single_copy_limit_bytes);
        if !limits.contains(&body.len()) {
            return None;
        }
        let outgoing = self.rings.get_mut(to.0 as usize * 2).map(|ring| &mut ring.outgoing)?;
        if outgoing.bound == 0 || outgoing.answer() != WORKS {
            return None;
        }
        let (base, _) = body.as_contiguous()?;
        Some(outgoing.lender.as_mut()?.expose(base.addr() as u64))
    }

    /// # Safety
    /// As [`read_exposed`](towline_core::rail::SingleCopy::read_exposed).
    #[inline(never)]
    pub(crate) unsafe fn fetch_from(&mut self, from: Endpoint, loan: &RemoteBuffer, sink: Span) -> bool {
        let ring = from.0 as usize * 2;
        let Some(incoming) = self.rings.get_mut(ring).map(|ring| &mut ring.incoming) else { return false };
        let (Some(reader), Some((base, len))) = (incoming.reader, sink.as_contiguous()) else { return false };
        let [address, generation] = [0, 8]
            .map(|at| u64::from_le_bytes(std::array::from_fn(|byte| loan.0.get(at + byte).copied().unwrap_or(0))));
        let pledge = reader.pledge.wrapping_add(generation);
        // SAFETY: the caller vouches for the sink.
        match unsafe { reader.read(address, pledge, base, len) } {
            Ok(read) => read,
            Err(error) => {
                // It worked when we met: the process is gone, or may be read no more.
                incoming.reader = None;
                incoming.tell(REFUSED);
                log::warn!("rank {} cannot be read any more, its long messages are copied: {error}", from.0);
                false
            }
        }
    }

    pub(crate) fn fetches_from(&self, from: Endpoint) -> u64 {
        let reader = self.rings.get(from.0 as usize * 2).and_then(|ring| ring.incoming.reader.as_ref());
        reader.map_or(0, |_| self.config.single_copy_limit_bytes.into())
    }

    #[cold]
    pub(crate) fn recall_loans(&mut self) {
        for outgoing in self.rings.iter_mut().map(|ring| &mut ring.outgoing) {
            // Who was lent nothing may have yet to compare the pledge with what the ring tells of it.
            if let Some(lender) = outgoing.lender.as_mut().filter(|lender| lender.has_lent) {
                lender.revoke();
            }
        }
    }

    /// Lets go of the locks of rings whose receivers have looked.
    #[cold]
    pub(crate) fn unlock_rings(&mut self) {
        for outgoing in self.rings.iter_mut().map(|ring| &mut ring.outgoing) {
            if outgoing.answer() != UNTRIED
                && let Some(lender) = &mut outgoing.lender
                && lender.unlock()
            {
                self.locks -= 1;
            }
        }
    }
}

/// A lock for writing on all of a file.
fn whole_file() -> libc::flock {
    // SAFETY: plain numbers, for which 0 is a value; of all systems' fields only those below matter.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// The process that holds the lock on a file, as the kernel says. To be asked before the file is opened otherwise: where
/// that process is this one, the lock ends with the first descriptor that is closed, as locks of processes do.
pub fn holder(path: &Path) -> std::io::Result<libc::pid_t> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut lock = whole_file();
    // Asked as the owner of an open file and not as a process, so that a lock of this process is told of, too.
    // SAFETY: the descriptor is open and the lock is a complete one, which the kernel writes to.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if lock.l_type == libc::F_UNLCK as libc::c_short || lock.l_pid <= 0 {
        return Err(std::io::Error::other("it is free, or of a process that has no number here"));
    }
    Ok(lock.l_pid)
}
