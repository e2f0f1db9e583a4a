//! The memory of engines and windows. An engine has one private mapping, of which the kernel provides only the pages that are
//! touched.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use towline_core::arena::Arena;
use towline_dpu::windows::OwnPart;

/// Zeroed memory that costs only address space until it is used.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length, which belong to no thread. The users of the memory ensure that only one thread accesses it.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(len: usize) -> std::io::Result<Self> {
        let len = len.max(1);
        // SAFETY: a new private mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        // A forked child has no use for it, and the parent need not copy the pages that it writes to. The memory is usable either
        // way.
        // SAFETY: our own mapping, to which no reference exists yet.
        let _ = unsafe { madvise(base, len, Advice::LinuxDontFork) };
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// The address of its first byte.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// An arena over the whole mapping.
    ///
    /// # Safety
    /// This is called once, and everything that is cut from the arena is dropped before the mapping is.
    pub unsafe fn arena(&self) -> Arena<'static> {
        // SAFETY: a new anonymous mapping is zeroed, readable and writable, and nothing else has its address; the caller ensures
        // that it outlives its users.
        unsafe { Arena::from_zeroed(self.base, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping. As the caller of `arena` promised, nothing that was cut from it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The memory of a rank's part of a window. That of the library is zeroed at first.
#[derive(Debug)]
pub(crate) enum WindowMemory {
    /// Peers on this host can map it.
    Shared(Arc<towline_sm::SharedRegion>),
    /// Only this process can access it.
    Private(Mapping),
    /// In the memory of this context's DPU, which gets it back by `Engine::free_window_memory`.
    Dpu(Box<OwnPart>),
    /// Memory of the program. Its owner keeps it until the registration has ended.
    Caller(CallerMemory),
}

/// The address of memory of the program.
#[derive(Debug)]
pub(crate) struct CallerMemory(pub NonNull<u8>);

// SAFETY: an address, which belongs to no thread. The users of the memory ensure that only one thread accesses it.
unsafe impl Send for CallerMemory {}
// SAFETY: the same.
unsafe impl Sync for CallerMemory {}

impl WindowMemory {
    /// The address of its first byte.
    pub fn base(&self) -> *mut u8 {
        match self {
            Self::Shared(area) => area.base(),
            Self::Private(mapping) => mapping.base(),
            Self::Dpu(part) => part.base(),
            Self::Caller(memory) => memory.0.as_ptr(),
        }
    }
}
