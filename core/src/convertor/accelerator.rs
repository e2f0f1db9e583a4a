//! Memory that the processor does not touch.

use core::fmt;

/// Copies between an accelerator's memory and the processor's.
///
/// A layout [on](super::Layout::on) an accelerator lies in memory of it: packing and unpacking go by the accelerator, and nothing else
/// looks there but devices that have said that they reach it ([`Capabilities::ACCELERATOR_PUT`](crate::rail::Capabilities::ACCELERATOR_PUT)).
/// Addresses mean what the accelerator takes them for; to a device that reaches several they have to mean one thing.
///
/// There is no error: a copy that fails has to end in some bytes, and who made the accelerator tells its user. The methods may be
/// called from whichever thread uses the layout, and from several at a time.
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
///         // SAFETY: the caller vouches for what is written to.
///         unsafe { memory[from.addr()..][..len].as_ptr().copy_to_nonoverlapping(to, len) };
///     }
///
///     unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
///         let mut memory = self.0.lock().unwrap();
///         // SAFETY: the caller vouches for what is read.
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
    /// Copies `len` bytes of the accelerator's to the processor's memory; they are there when this returns.
    ///
    /// # Safety
    /// There are so many bytes of the accelerator's from `from` on, and `to` is writable for as many.
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize);

    /// Copies `len` bytes of the processor's memory to the accelerator's. They are there when this returns, for whoever looks.
    ///
    /// # Safety
    /// `from` is readable for so many bytes, and there are as many of the accelerator's from `to` on.
    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize);
}
