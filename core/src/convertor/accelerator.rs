//! Accelerators: memory that the processor does not access.

use core::fmt;

/// Copies between an accelerator's memory and the processor's.
///
/// A layout [on](super::Layout::on) an accelerator describes memory of the accelerator. Packing and unpacking call the
/// accelerator. Apart from it, only devices access the memory: those of rails that announce it, by
/// [`Capabilities::ACCELERATOR_PUT`](crate::rail::Capabilities::ACCELERATOR_PUT) or
/// [`Capabilities::ACCELERATOR_GET`](crate::rail::Capabilities::ACCELERATOR_GET). The accelerator defines the meaning of
/// addresses. For a device that reaches several accelerators, an address must have only one meaning.
///
/// A copy cannot return an error. If it fails, it still has to write some bytes of the processor's memory, and the implementation
/// of the accelerator reports the failure to its user. If it counts its [failures](Self::failures) as well, an engine that sends
/// a message sends no bytes of a copy that has failed. The methods may be called from any thread that uses the layout, and from
/// several threads at a time.
///
/// ```
/// use std::sync::Mutex;
/// use towline_core::convertor::{Accelerator, Layout, Span};
///
/// /// An accelerator of 16 bytes, whose addresses begin at 0.
/// #[derive(Debug)]
/// struct Sixteen(Mutex<[u8; 16]>);
///
/// impl Accelerator for Sixteen {
///     unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
///         let memory = self.0.lock().unwrap();
///         // SAFETY: the caller vouches for the memory that is written.
///         unsafe { memory[from.addr()..][..len].as_ptr().copy_to_nonoverlapping(to, len) };
///     }
///
///     unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
///         let mut memory = self.0.lock().unwrap();
///         // SAFETY: the caller vouches for the memory that is read.
///         unsafe { memory[to.addr()..][..len].as_mut_ptr().copy_from_nonoverlapping(from, len) };
///     }
/// }
///
/// let accelerator = Sixteen(Mutex::new([0; 16]));
/// let every_other = Layout::vector(4, 1, 2).unwrap().on(&accelerator).unwrap();
/// // SAFETY: the bytes from 8 on are the accelerator's, and the layout outlives the span.
/// let span = unsafe { Span::laid_out(std::ptr::without_provenance_mut(8), &every_other) };
/// // SAFETY: nobody else uses that memory.
/// assert_eq!(unsafe { span.unpack([1, 2, 3, 4].as_ptr(), 4) }, 4);
/// assert_eq!(accelerator.0.lock().unwrap()[8..], [1, 0, 2, 0, 3, 0, 4, 0]);
/// ```
pub trait Accelerator: Sync + fmt::Debug {
    /// Copies `len` bytes of the accelerator's memory to the processor's memory. The copy is complete when this returns.
    ///
    /// # Safety
    /// The accelerator has `len` bytes of memory from `from` on, and `to` is writable for as many.
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize);

    /// Copies `len` bytes of the processor's memory to the accelerator's memory. When this returns, the copy is complete and
    /// visible to everything that accesses the memory.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, and the accelerator has as many bytes of memory from `to` on.
    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize);

    /// How many copies have failed so far. The number wraps. `None`: copies do not fail, or only their user learns of it.
    ///
    /// If a copy for a send fails, the send ends with [`Failure::BadMemory`](crate::pml::Failure::BadMemory), and its receive
    /// with [`Failure::Aborted`](crate::pml::Failure::Aborted). A receive ends as usual: its user looks at this number.
    fn failures(&self) -> Option<u32> {
        None
    }
}
