//! Views: parts of buffers that are not contiguous, such as columns of a matrix or fields of records.

use std::marker::PhantomData;

use towline_core::convertor::{Layout, LayoutError, Overlap, Span};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errors::error::Error;

/// A layout of `count` blocks of `block` items each: `MPI_Type_vector`. The starts of two blocks are `stride` items apart; the
/// stride may be negative. The resulting layout counts in bytes.
///
/// # Errors
/// [`LayoutError::TooLarge`] if the layout's size or extent overflows.
///
/// ```
/// let column = towline::vector::<f64>(3, 1, 4)?; // of a matrix of 3 rows and 4 columns
/// assert_eq!((column.size(), column.bounds()), (24, (0, 72)));
/// # Ok::<(), towline::Error>(())
/// ```
pub fn vector<T>(count: usize, block: usize, stride: isize) -> Result<Layout<'static>, LayoutError> {
    let item = size_of::<T>();
    let block = block.checked_mul(item).ok_or(LayoutError::TooLarge)? as u64;
    let stride = stride.checked_mul(item as isize).ok_or(LayoutError::TooLarge)? as i64;
    Layout::vector(count as u64, block, stride)
}

/// The bytes of a layout in a buffer, to be sent. They were checked to lie within the buffer.
///
/// ```
/// use towline::{Layout, Piece, View};
///
/// let record = *b"name....7...city....";
/// let mut pieces = [Piece::bytes(12, 4), Piece::bytes(0, 4)];
/// let fields = Layout::pieces(&mut pieces)?;
/// let view = View::new(&record, 0, &fields)?;
/// assert_eq!(view.bytes(), 8);
/// assert!(View::new(&record[..15], 0, &fields).is_err()); // beyond the end
/// # Ok::<(), towline::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    span: Span,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> View<'a> {
    /// The bytes of `layout` in `data`. The origin of the layout is item `origin` of `data`.
    ///
    /// # Errors
    /// [`Error::OutOfBuffer`] if the layout reaches beyond the buffer, [`Error::OnAccelerator`] if the layout is for memory of an
    /// accelerator.
    pub fn new<T>(data: &'a [T], origin: usize, layout: &'a Layout<'a>) -> Result<Self, Error>
    where
        T: IntoBytes + Immutable,
    {
        if layout.accelerator().is_some() {
            return Err(Error::OnAccelerator);
        }
        let origin = origin.saturating_mul(size_of::<T>());
        layout.fits(origin, size_of_val(data))?;
        let base = data.as_bytes().as_ptr().wrapping_add(origin).cast_mut();
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and everything that is made from it.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// The bytes of `layout`, whose origin is at an address: an address of the processor, or of the
    /// [accelerator](towline_core::convertor::Accelerator) of the layout.
    ///
    /// # Safety
    /// All of the bytes are readable, and nothing changes them, for `'a`.
    pub const unsafe fn at(base: *const u8, layout: &'a Layout<'a>) -> Self {
        // SAFETY: as in `new`; the memory is the caller's promise.
        Self { span: unsafe { Span::laid_out(base.cast_mut(), layout) }, memory: PhantomData }
    }

    /// `len` bytes from an address on. With a length of 0 the address may be null.
    ///
    /// # Safety
    /// All of the bytes are readable, and nothing changes them, for `'a`.
    #[inline]
    pub const unsafe fn contiguous(base: *const u8, len: usize) -> Self {
        Self { span: Span::contiguous(base.cast_mut(), len), memory: PhantomData }
    }

    /// How many bytes the view has.
    pub const fn bytes(&self) -> u64 {
        self.span.len()
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }
}

/// The bytes of a layout in a buffer, to be received into. They were checked to lie within the buffer, and not to overlap.
///
/// ```
/// use towline::{ViewMut, vector};
///
/// let mut matrix = [0f32; 12];
/// assert!(ViewMut::new(&mut matrix, 3, &vector::<f32>(3, 1, 4)?).is_ok());
/// assert!(ViewMut::new(&mut matrix, 4, &vector::<f32>(3, 1, 4)?).is_err()); // beyond the end of the matrix
/// assert!(ViewMut::new(&mut matrix, 0, &vector::<f32>(3, 2, 1)?).is_err()); // overlaps itself
/// # Ok::<(), towline::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a> {
    span: Span,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> ViewMut<'a> {
    /// The bytes of `layout` in `data`. The origin of the layout is item `origin` of `data`.
    ///
    /// # Errors
    /// [`Error::OutOfBuffer`] if the layout reaches beyond the buffer, [`Error::Overlap`] if it contains a byte twice,
    /// [`Error::UndecidedOverlap`] if that would take too long to check, [`Error::OnAccelerator`] if it is for memory of an accelerator.
    pub fn new<T>(data: &'a mut [T], origin: usize, layout: &'a Layout<'a>) -> Result<Self, Error>
    where
        T: FromBytes + IntoBytes,
    {
        if let Some(error) = overlap(layout) {
            return Err(error);
        }
        if layout.accelerator().is_some() {
            return Err(Error::OnAccelerator);
        }
        let origin = origin.saturating_mul(size_of::<T>());
        layout.fits(origin, size_of_val(data))?;
        let base = data.as_mut_bytes().as_mut_ptr().wrapping_add(origin);
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and everything that is made from it.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// The bytes of `layout`, whose origin is at an address: an address of the processor, or of the
    /// [accelerator](towline_core::convertor::Accelerator) of the layout.
    ///
    /// # Errors
    /// [`Error::Overlap`] if the layout contains a byte twice, [`Error::UndecidedOverlap`] if that would take too long to check.
    ///
    /// # Safety
    /// All of the bytes are writable, and nothing else uses them, for `'a`.
    pub const unsafe fn at(base: *mut u8, layout: &'a Layout<'a>) -> Result<Self, Error> {
        if let Some(error) = overlap(layout) {
            return Err(error);
        }
        // SAFETY: as in `new`; the memory is the caller's promise.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// `len` bytes from an address on. With a length of 0 the address may be null.
    ///
    /// # Safety
    /// All of the bytes are writable, and nothing else uses them, for `'a`.
    #[inline]
    pub const unsafe fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { span: Span::contiguous(base, len), memory: PhantomData }
    }

    /// How many bytes the view has.
    pub const fn bytes(&self) -> u64 {
        self.span.len()
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }
}

/// The error of a receive into a layout that overlaps itself, or that may.
const fn overlap(layout: &Layout<'_>) -> Option<Error> {
    match layout.overlap() {
        Overlap::No => None,
        Overlap::Yes => Some(Error::Overlap),
        Overlap::Undecided => Some(Error::UndecidedOverlap),
    }
}

#[cfg(test)]
mod tests {
    use towline_core::convertor::{Accelerator, Piece};

    use super::*;

    #[derive(Debug)]
    struct OtherMemory;

    impl Accelerator for OtherMemory {
        unsafe fn read(&self, _: *const u8, _: *mut u8, _: usize) {}
        unsafe fn write(&self, _: *const u8, _: *mut u8, _: usize) {}
    }

    #[test]
    fn b38_a_buffer_is_not_memory_of_an_accelerator() {
        let mut buffer = [0u8; 8];
        let layout = Layout::vector(2, 1, 4).unwrap().on(&OtherMemory).unwrap();
        assert!(matches!(View::new(&buffer, 0, &layout), Err(Error::OnAccelerator)));
        assert!(matches!(ViewMut::new(&mut buffer, 0, &layout), Err(Error::OnAccelerator)));
        let address = std::ptr::without_provenance_mut(0x1000);
        // SAFETY: nothing accesses that memory.
        let (view, into) = unsafe { (View::at(address, &layout), ViewMut::at(address, &layout).unwrap()) };
        assert_eq!((view.bytes(), into.bytes()), (2, 2));
        assert!(view.span().accelerator().is_some() && into.span().accelerator().is_some());
        let twice = Layout::vector(2, 2, 1).unwrap().on(&OtherMemory).unwrap();
        // SAFETY: the same.
        assert!(matches!(unsafe { ViewMut::at(address, &twice) }, Err(Error::Overlap)));
    }

    #[test]
    fn a_receive_into_interlaced_columns_is_refused_only_if_they_share_a_byte() {
        let mut matrix = [0u64; 12];
        let column = vector::<u64>(3, 1, 4).unwrap();
        let mut into = |places: &[i64]| {
            let mut pieces: Vec<_> = places.iter().map(|at| Piece::of(*at, &column)).collect();
            ViewMut::new(&mut matrix, 0, &Layout::pieces(&mut pieces).unwrap()).map(|view| view.bytes())
        };
        assert_eq!(into(&[0, 16]).unwrap(), 48);
        assert_eq!(into(&[24, 8, 0]).unwrap(), 72);
        assert_eq!(into(&[0, 4]).unwrap_err(), Error::Overlap);
        // A layout that cannot be checked in time is refused with a text that does not call it overlapping.
        let (one, other) = (vector::<u8>(900_000, 1, 1_000_003).unwrap(), vector::<u8>(900_000, 1, 999_983).unwrap());
        let one = Layout::strided(900_000, 7_777_777_777, &one).unwrap();
        let other = Layout::strided(900_000, 7_777_777_781, &other).unwrap();
        let mut pieces = [Piece::of(0, &one), Piece::of(777_777_777, &other)];
        let both = Layout::pieces(&mut pieces).unwrap();
        assert_eq!(ViewMut::new(&mut matrix, 0, &both).unwrap_err(), Error::UndecidedOverlap);
        assert!(Error::UndecidedOverlap.to_string().contains("`Piece::bytes`"));
    }
}
