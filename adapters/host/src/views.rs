//! Parts of buffers that do not lie in one piece: columns of a matrix, members of records.

use std::marker::PhantomData;

use towline_core::convertor::{Layout, LayoutError, Span};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::Error;

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
    /// [`Error::Misfit`] where it reaches out of the buffer.
    pub fn new<T>(data: &'a [T], origin: usize, layout: &'a Layout<'a>) -> Result<Self, Error>
    where
        T: IntoBytes + Immutable,
    {
        let origin = origin.saturating_mul(size_of::<T>());
        layout.fits(origin, size_of_val(data))?;
        let base = data.as_bytes().as_ptr().wrapping_add(origin).cast_mut();
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and what is made of it.
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
    /// [`Error::Misfit`] where it reaches out of the buffer, [`Error::Overlap`] where it means a byte twice.
    pub fn new<T>(data: &'a mut [T], origin: usize, layout: &'a Layout<'a>) -> Result<Self, Error>
    where
        T: FromBytes + IntoBytes,
    {
        if layout.overlaps() {
            return Err(Error::Overlap);
        }
        let origin = origin.saturating_mul(size_of::<T>());
        layout.fits(origin, size_of_val(data))?;
        let base = data.as_mut_bytes().as_mut_ptr().wrapping_add(origin);
        // SAFETY: the layout is borrowed, and so unchanged, as long as the view and what is made of it.
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
