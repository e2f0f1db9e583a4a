//! Memory for one-sided operations that peers map, so that they put, get and use atomics without anybody here. One of
//! the three modules that touch mapped memory.
//!
//! An [`Area`] is a file without a name (`memfd`), whose descriptor its owner keeps open. A peer opens it through the
//! owner's entry in `/proc`, when it first does something there. That takes the same user, a `/proc` that shows the
//! owner, and leave to look at it; who has not got these asks by frames, as for memory that is no area, and for
//! whatever the mapping does not allow: then the target says what is wrong. So a key that is stale, forged or out of
//! bounds is never more than a reason to ask.
//!
//! # What sharing memory means
//! Who may read and change an area, any process of the same user that finds it, does so without asking, wherever in it
//! and whenever, like a thread of its owner. *Rights are the kernel's or the target's*: an area with all of them is
//! mapped to be written, one that peers may only get from is sealed so that nobody but its owner can map it to be
//! written, and with any other rights it is not mapped at all.
//!
//! # What a peer cannot do
//! It cannot shorten the file, which is sealed before anybody is told of it, so that no access ends in a bus error; nor
//! can it name a file that is not sealed so, or is of another user, or does not begin with the number in the key, drawn
//! by the owner when it made the area. Bounds are those of the mapping. The number of the process is that of the peer's
//! card; who gives another's there names at most an area of that other process, to which it had access before.
//!
//! # When it ends
//! The owner strikes the area out in its first page, and lets go of its mapping and the file. Peers look there before
//! each operation, and now and then when there are none, and let go of theirs. One that is in the middle of a copy then
//! finishes it in pages that belong to nobody else any more: an area is registered once, and never used for other
//! memory.

use core::ptr::NonNull;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::{Arc, Weak};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Resource;
use towline_core::rail::Endpoint;
use towline_core::rail::apply_atomic;
use towline_core::rail::atomics::AtomicSupport;
use towline_core::rail::native::{KEY, Key, Native, NativeError, OneSided, Pipeline, Reach, Region, Work};
use towline_core::rma::Access;

use crate::atomics::{AtomicU64, Ordering, fence};
use crate::host::Process;
use crate::layout::PAGE;
use crate::rail::{Rail, Stage};

/// What such a rail does: everything, by the processor.
pub const ALL: OneSided = OneSided {
    put: Reach::ANY,
    get: Reach::ANY,
    atomics: AtomicSupport::all(),
    at_once: true,
    pipeline: Pipeline::NONE,
};

/// The first word of an area: "towwin" and the version.
const MAGIC: u64 = u64::from_le_bytes(*b"towwin\0\x01");
/// Which area it is.
const NONCE_AT: usize = 1;
/// [`SHARED`] as long as peers may reach it.
const STATE_AT: usize = 2;
const SHARED: u64 = 1;
/// What the kernel calls files in memory of ordinary pages (`TMPFS_MAGIC`).
const TMPFS: u64 = 0x0102_1994;
/// The first bytes of a key.
const KIND: [u8; 4] = *b"smw\x01";
/// What the system calls the file of an area, and how it shows that.
const NAME: &str = "towline-window";
const SHOWN: &str = "/memfd:towline-window (deleted)";

/// Memory that peers may map: made by [`Rail::share`], zero at first. It is there until all who hold it have dropped
/// it: its maker, and the rail while it is registered.
#[derive(Debug)]
pub struct Area {
    mapping: Mapping,
    nonce: u64,
    file: File,
}

impl Area {
    fn new(len: usize) -> io::Result<Self> {
        // Pages are taken when they are touched, as of other memory. Only where the system counts strictly could one be
        // missing then, which would be a bus error.
        if std::fs::read("/proc/sys/vm/overcommit_memory")?.starts_with(b"2") {
            return Err(io::Error::other("the system gives no memory that was not counted before"));
        }
        let whole = len.checked_add(PAGE).filter(|_| len != 0).ok_or(io::ErrorKind::InvalidInput)?;
        // A file that becomes longer than that ends the process by a signal.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|most| most < whole as u64) {
            return Err(io::Error::other("it is longer than files of this process may be"));
        }
        let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, whole as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let file = File::from(file);
        let (mapping, nonce) = (Mapping::new(&file, whole, true)?, crate::host::nonce());
        mapping.word(NONCE_AT).store(nonce, Ordering::Relaxed);
        mapping.word(0).store(MAGIC, Ordering::Release);
        Ok(Self { mapping, nonce, file })
    }

    /// Its first byte, at the begin of a page.
    pub fn base(&self) -> *mut u8 {
        self.mapping.data()
    }

    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.mapping.len - PAGE
    }

    /// Never: there is none of 0 bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Has the kernel see to it that peers have these rights and no more, if it can.
    fn grant(&self, access: Access) -> Result<(), NativeError> {
        let remote = access & (Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let seals = if remote == Access::REMOTE_READ {
            SealFlags::FUTURE_WRITE | SealFlags::SEAL
        } else if access.contains(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            SealFlags::SEAL
        } else {
            return Err(NativeError::NotAvailable);
        };
        // It fails where the system is too old for the first seal, and the second time.
        rustix::fs::fcntl_add_seals(&self.file, seals).map_err(|_| NativeError::NotAvailable)?;
        self.mapping.word(STATE_AT).store(SHARED, Ordering::Release);
        Ok(())
    }

    fn key(&self) -> Key {
        let mut key = [0; KEY];
        let descriptor = self.file.as_raw_fd().cast_unsigned().to_le_bytes();
        let fields = KIND.into_iter().chain(descriptor).chain(self.nonce.to_le_bytes());
        key.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        Key(key)
    }

    /// Tells peers to let go of it.
    fn strike(&self) {
        self.mapping.word(STATE_AT).store(0, Ordering::Release);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        self.strike();
    }
}

/// What a rail keeps of its own areas.
#[derive(Debug, Default)]
pub struct Own {
    /// Made, and not registered yet.
    made: Vec<Weak<Area>>,
    registered: Vec<Arc<Area>>,
}

impl Own {
    /// Lets peers reach an area that was made here, all of it, once. Other memory is not for this rail.
    pub fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        self.made.retain(|area| area.strong_count() != 0);
        let is_it = |area: &Arc<Area>| area.base() == base && area.len() == len;
        let found = self.made.iter().enumerate().find_map(|(at, area)| Some((at, area.upgrade().filter(is_it)?)));
        let (at, area) = found.ok_or(NativeError::NotAvailable)?;
        area.grant(access)?;
        self.made.swap_remove(at);
        let (region, key) = (Region(area.nonce), area.key());
        self.registered.push(area);
        Ok((region, key))
    }

    /// Ends that.
    pub fn deregister(&mut self, region: Region) {
        let Some(at) = self.registered.iter().position(|area| area.nonce == region.0) else { return };
        self.registered.swap_remove(at).strike();
    }
}

/// What a rail keeps of a peer's areas.
#[derive(Debug, Default)]
pub struct Theirs {
    mapped: Vec<Mapped>,
    /// The system does not let us look at the peer.
    forbidden: bool,
    /// The last one that was not to be had, until the next look.
    refused: Option<u64>,
}

#[derive(Debug)]
struct Mapped {
    mapping: Mapping,
    nonce: u64,
    writable: bool,
}

impl Theirs {
    /// The area that a key names, mapped if it is not yet. `None`: it is not there, or not to be had.
    fn find(&mut self, key: &Key, owner: &Process, me: &Process) -> Option<&Mapped> {
        let (descriptor, nonce) = parse(key)?;
        let at = match self.mapped.iter().position(|mapped| mapped.nonce == nonce) {
            Some(at) => at,
            None => {
                self.unmap();
                self.map(descriptor, nonce, owner, me)?;
                self.mapped.len() - 1
            }
        };
        self.mapped.get(at).filter(|mapped| mapped.mapping.is_shared())
    }

    fn map(&mut self, descriptor: u32, nonce: u64, owner: &Process, me: &Process) -> Option<()> {
        if self.forbidden || self.refused == Some(nonce) || owner.space != me.space {
            return None;
        }
        let seen = look(owner.pid, descriptor);
        self.forbidden = seen.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied);
        match seen.and_then(|seen| open(&seen, nonce)) {
            Ok(mapped) => self.mapped.push(mapped),
            Err(why) => {
                self.refused = Some(nonce);
                log::info!("a window of process {} is not mapped, so it is asked by frames: {why}", owner.pid);
                return None;
            }
        }
        Some(())
    }

    /// Lets go of what their owners have struck out.
    fn unmap(&mut self) {
        self.mapped.retain(|mapped| mapped.mapping.is_shared());
    }
}

/// The owner's descriptor, and which area it should be.
fn parse(key: &Key) -> Option<(u32, u64)> {
    let (kind, rest) = key.0.split_first_chunk::<4>()?;
    let (descriptor, rest) = rest.split_first_chunk::<4>()?;
    let (nonce, _) = rest.split_first_chunk::<8>()?;
    (*kind == KIND).then_some((u32::from_le_bytes(*descriptor), u64::from_le_bytes(*nonce)))
}

/// What a peer says is an area, to be looked at alone: to open any file can have effects, such as to wait, or to lose locks on it
/// afterwards.
fn look(process: u32, descriptor: u32) -> io::Result<File> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits() as i32).open(path)
}

/// Maps what was looked at, if it is an area.
fn open(seen: &File, nonce: u64) -> io::Result<Mapped> {
    let path = format!("/proc/self/fd/{}", seen.as_raw_fd());
    if std::fs::read_link(&path)?.as_os_str() != SHOWN {
        return Err(io::Error::other("it is no window"));
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let (seals, about) = (rustix::fs::fcntl_get_seals(&file)?, file.metadata()?);
    let ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
    // Of huge pages, which others of the kind have, there may be none left when one is touched.
    let ours = ours && u64::try_from(rustix::fs::fstatfs(&file)?.f_type) == Ok(TMPFS);
    let len = usize::try_from(about.len()).ok().filter(|len| *len > PAGE);
    let (true, true, Some(len)) = (ours, seals.contains(SealFlags::SHRINK), len) else {
        return Err(io::Error::other("it is no window"));
    };
    let writable = !seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
    let mapping = Mapping::new(&file, len, writable)?;
    let read = |at| mapping.word(at).load(Ordering::Acquire);
    if read(0) != MAGIC || read(NONCE_AT) != nonce {
        return Err(io::Error::other("it is another window"));
    }
    Ok(Mapped { mapping, nonce, writable })
}

/// A mapping of an area, with its first page; unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; the words of its first page are atomics, and of the rest
// only addresses are given out.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `len` is the file's length, which is more than a page.
    fn new(file: impl AsFd, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    fn data(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(PAGE)
    }

    /// A word of the first page.
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < PAGE / 8, "a word of the first page");
        // SAFETY: within the mapping, which is longer than a page, aligned, and alive as long as `self`; others write
        // there too, which atomics allow. Only owners store, whose mapping is writable.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }

    fn is_shared(&self) -> bool {
        self.word(STATE_AT).load(Ordering::Acquire) == SHARED
    }

    /// Where so many bytes of the data are.
    fn bytes(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= (self.len - PAGE) as u64).then(|| self.data().wrapping_add(offset as usize))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and addresses in it are used by those alone who hold what it is in.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Rail {
    /// Makes memory that peers will map, once it is registered. It takes a descriptor.
    ///
    /// # Errors
    /// Those of the system; also where it counts memory strictly, or sharing is
    /// [switched off](crate::Config::share_windows).
    ///
    /// ```
    /// use towline_core::rail::Rail as _;
    /// use towline_core::rma::Access;
    ///
    /// let mut rail = towline_sm::Rail::open(towline_sm::Config::new(u64::from(std::process::id()), 0, 1))?;
    /// let area = rail.share(64)?;
    /// // SAFETY: the memory is there until it is deregistered, and nobody has a reference to it.
    /// let (region, key) = unsafe { rail.register(area.base(), 64, Access::ANY) }?;
    /// rail.deregister(region);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn share(&mut self, len: usize) -> io::Result<Arc<Area>> {
        if !self.config.share_windows {
            return Err(io::Error::other("it is switched off"));
        }
        let area = Arc::new(Area::new(len)?);
        self.own.made.push(Arc::downgrade(&area));
        Ok(area)
    }

    /// # Safety
    /// As [`perform`](towline_core::rail::DeviceMemory::perform).
    pub(crate) unsafe fn perform_on(&mut self, on: Endpoint, native: &Native) -> Result<Option<u64>, NativeError> {
        let Self { peers, me, .. } = self;
        let peer = peers.get_mut(on.0 as usize).filter(|peer| peer.stage == Stage::Live);
        let peer = peer.ok_or(NativeError::Unreachable)?;
        let memory = peer.theirs.find(&native.key, &peer.process, me).ok_or(NativeError::NotAvailable)?;
        let (len, writes) = match native.work {
            Work::Put(local) => (local.len, true),
            Work::Get(local) => (local.len, false),
            Work::Atomic(_, flags) => (flags.word_bytes(), true),
        };
        let at = memory.mapping.bytes(native.offset, len).filter(|_| memory.writable || !writes);
        let at = at.ok_or(NativeError::NotAvailable)?;
        match native.work {
            Work::Put(local) => {
                // SAFETY: within the mapping, which cannot become shorter, and is writable; the caller vouches for
                // local memory, which lies elsewhere. What others write there at the same time makes the bytes
                // arbitrary, and no more.
                unsafe { at.copy_from_nonoverlapping(local.base, len as usize) };
                fence(Ordering::SeqCst); // it is over: who looks from now on finds it
            }
            Work::Get(local) => {
                // SAFETY: the same.
                unsafe { at.copy_to_nonoverlapping(local.base, len as usize) };
                fence(Ordering::Acquire); // what is looked at next is no older
            }
            Work::Atomic(atomic, flags) => {
                if at.addr() as u64 & (len - 1) != 0 || !atomic.takes(flags) {
                    return Err(NativeError::NotAvailable);
                }
                // SAFETY: within the mapping, aligned, and peers use atomics there; who puts or gets at the same time
                // has any mixture of bytes, and no more.
                let old = unsafe { apply_atomic(at, atomic, flags) };
                if !cfg!(target_arch = "x86_64") {
                    fence(Ordering::SeqCst); // which the atomics of that processor are by themselves
                }
                return Ok(Some(old));
            }
        }
        Ok(Some(0))
    }

    /// Lets go of peers' areas that their owners have struck out.
    pub(crate) fn unmap_windows(&mut self) {
        for peer in &mut self.peers {
            peer.theirs.unmap();
            peer.theirs.refused = None;
        }
    }
}
