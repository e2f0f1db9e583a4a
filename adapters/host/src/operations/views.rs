//! Parts of buffers that do not lie in one piece: columns of a matrix, members of records.

use std::marker::PhantomData;

use towline_core::convertor::{Layout, LayoutError, Span};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errors::error::Error;

/// `count` blocks of `block` items, whose starts are `stride` items apart, as a layout in bytes. The stride may be
/// negative.
///
/// # Errors
/// [`LayoutError::TooLarge`].
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

/// What a layout shows of a buffer, to be sent. It was checked to lie within.
///
/// ```
/// use towline::{Layout, Piece, View};
///
/// let record = *b"name....7...city....";
/// let mut pieces = [Piece::bytes(12, 4), Piece::bytes(0, 4)];
/// let fields = Layout::pieces(&mut pieces)?;
/// let view = View::new(&record, 0, &fields)?;
/// assert_eq!(view.bytes(), 8);
/// assert!(View::new(&record[..15], 0, &fields).is_err()); // reaches out
/// # Ok::<(), towline::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    span: Span,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> View<'a> {
    /// The bytes of `layout`, whose origin is item `origin` of `data`.
    ///
    /// # Errors
    /// [`Error::Misfit`] where it reaches out of the buffer, [`Error::OnAccelerator`].
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
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and what is made of it.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// The bytes of `layout`, whose origin is at an address: of the processor, or of the [accelerator](towline_core::convertor::Accelerator)
    /// that the layout is on.
    ///
    /// # Safety
    /// All of them are there, and nobody changes them, as long as `'a`.
    pub const unsafe fn at(base: *const u8, layout: &'a Layout<'a>) -> Self {
        // SAFETY: as in `new`; the caller vouches for the memory.
        Self { span: unsafe { Span::laid_out(base.cast_mut(), layout) }, memory: PhantomData }
    }

    /// How many bytes it shows.
    pub const fn bytes(&self) -> u64 {
        self.span.len()
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }
}

/// What a layout shows of a buffer, to be received into. It was checked to lie within, and to mean no byte twice.
///
/// ```
/// use towline::{ViewMut, vector};
///
/// let mut matrix = [0f32; 12];
/// assert!(ViewMut::new(&mut matrix, 3, &vector::<f32>(3, 1, 4)?).is_ok());
/// assert!(ViewMut::new(&mut matrix, 4, &vector::<f32>(3, 1, 4)?).is_err()); // ends behind the matrix
/// assert!(ViewMut::new(&mut matrix, 0, &vector::<f32>(3, 2, 1)?).is_err()); // overlaps itself
/// # Ok::<(), towline::Error>(())
/// ```
#[derive(Debug)]
pub struct ViewMut<'a> {
    span: Span,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> ViewMut<'a> {
    /// The bytes of `layout`, whose origin is item `origin` of `data`.
    ///
    /// # Errors
    /// [`Error::Misfit`] where it reaches out of the buffer, [`Error::Overlap`] where it means a byte twice,
    /// [`Error::OnAccelerator`].
    pub fn new<T>(data: &'a mut [T], origin: usize, layout: &'a Layout<'a>) -> Result<Self, Error>
    where
        T: FromBytes + IntoBytes,
    {
        if layout.overlaps() {
            return Err(Error::Overlap);
        }
        if layout.accelerator().is_some() {
            return Err(Error::OnAccelerator);
        }
        let origin = origin.saturating_mul(size_of::<T>());
        layout.fits(origin, size_of_val(data))?;
        let base = data.as_mut_bytes().as_mut_ptr().wrapping_add(origin);
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and what is made of it.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// The bytes of `layout`, whose origin is at an address: of the processor, or of the [accelerator](towline_core::convertor::Accelerator)
    /// that the layout is on.
    ///
    /// # Errors
    /// [`Error::Overlap`] where it means a byte twice.
    ///
    /// # Safety
    /// All of them are there, and nobody else uses them, as long as `'a`.
    pub const unsafe fn at(base: *mut u8, layout: &'a Layout<'a>) -> Result<Self, Error> {
        if layout.overlaps() {
            return Err(Error::Overlap);
        }
        // SAFETY: as in `new`; the caller vouches for the memory.
        Ok(Self { span: unsafe { Span::laid_out(base, layout) }, memory: PhantomData })
    }

    /// How many bytes it shows.
    pub const fn bytes(&self) -> u64 {
        self.span.len()
    }

    pub(crate) const fn span(&self) -> Span {
        self.span
    }
}

#[cfg(test)]
mod tests {
    use towline_core::convertor::Accelerator;

    use super::*;

    #[derive(Debug)]
    struct Elsewhere;

    impl Accelerator for Elsewhere {
        unsafe fn read(&self, _: *const u8, _: *mut u8, _: usize) {}
        unsafe fn write(&self, _: *const u8, _: *mut u8, _: usize) {}
    }

    #[test]
    fn b38_a_buffer_is_no_memory_of_an_accelerator() {
        let mut buffer = [0u8; 8];
        let layout = Layout::vector(2, 1, 4).unwrap().on(&Elsewhere).unwrap();
        assert!(matches!(View::new(&buffer, 0, &layout), Err(Error::OnAccelerator)));
        assert!(matches!(ViewMut::new(&mut buffer, 0, &layout), Err(Error::OnAccelerator)));
        let address = std::ptr::without_provenance_mut(0x1000);
        // SAFETY: nobody looks there.
        let (view, into) = unsafe { (View::at(address, &layout), ViewMut::at(address, &layout).unwrap()) };
        assert_eq!((view.bytes(), into.bytes()), (2, 2));
        assert!(view.span().accelerator().is_some() && into.span().accelerator().is_some());
        let twice = Layout::vector(2, 2, 1).unwrap().on(&Elsewhere).unwrap();
        // SAFETY: the same.
        assert!(matches!(unsafe { ViewMut::at(address, &twice) }, Err(Error::Overlap)));
    }
}
