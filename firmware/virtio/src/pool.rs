//! Memory for the queues of a device.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// Pages of all queues.
const PAGES: usize = 16;

#[repr(C, align(4096))]
struct Memory(UnsafeCell<[u8; PAGES * PAGE_SIZE]>);

// SAFETY: each page is given out once, and accessed by its address only.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; PAGES * PAGE_SIZE]));
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The boards map all memory to its own address, and their caches are coherent with the device. So nothing has to be translated or
/// copied.
#[derive(Debug)]
pub struct Pool;

// SAFETY: `dma_alloc` returns pages that are zero, aligned, and used by nothing else. Addresses are physical addresses.
unsafe impl Hal for Pool {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let first = TAKEN.fetch_add(pages, Ordering::Relaxed);
        if first.saturating_add(pages) > PAGES {
            return (0, NonNull::dangling()); // the driver takes address 0 for a failure
        }
        let base = MEMORY.0.get().cast::<u8>().wrapping_add(first * PAGE_SIZE);
        match NonNull::new(base) {
            Some(base) => (base.as_ptr() as PhysAddr, base),
            None => (0, NonNull::dangling()),
        }
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        0 // the device is used as long as the program runs
    }

    unsafe fn mmio_phys_to_virt(at: PhysAddr, _: usize) -> NonNull<u8> {
        NonNull::new(at as *mut u8).unwrap_or(NonNull::dangling())
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        buffer.cast::<u8>().as_ptr() as PhysAddr
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
