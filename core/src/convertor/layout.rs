//! Layouts: the places of the bytes of a message in user memory.

use core::fmt;

use super::accelerator::Accelerator;
use crate::error::Blame;

/// Whether spans may have layouts: the feature `layouts`. Code behind this constant is not linked otherwise.
pub(crate) const LAYOUTS: bool = cfg!(feature = "layouts");

/// The most levels of nested layouts. A level that makes one run of bytes does not count, since it is stored as a run.
pub const MAX_DEPTH: usize = 16;

/// The places of the bytes of a message, relative to an origin, and the order in which they are packed (an MPI datatype).
///
/// A layout refers to the layouts and lists that it is built of; it does not copy them, and allocates nothing. All positions
/// are checked when a layout is built, so a walk over it cannot fail. Threads may share a layout.
///
/// ```
/// use towline_core::convertor::{Layout, Span};
///
/// // The second column of a matrix of 3 rows and 4 columns.
/// let mut matrix: [u8; 12] = core::array::from_fn(|i| i as u8);
/// let column = Layout::vector(3, 1, 4).unwrap();
/// column.fits(1, matrix.len()).unwrap();
///
/// let mut packed = [0; 3];
/// // SAFETY: the column fits the matrix from byte 1 on, and both outlive the span.
/// unsafe { Span::laid_out(matrix.as_mut_ptr().wrapping_add(1), &column).pack(packed.as_mut_ptr(), 3) };
/// assert_eq!(packed, [1, 5, 9]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout<'l> {
    pub(super) form: Form<'l>,
    pub(super) size: u64,
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) extent: i64,
    /// The number of nested levels that a walk has to store; 0 if the bytes are one run.
    pub(super) depth: u8,
    pub(super) overlap: Overlap,
    /// The accelerator that has the memory. `None`: the processor's memory.
    pub(super) accelerator: Option<&'l dyn Accelerator>,
}

format_by_debug!(Layout<'_>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'l> {
    /// One run of bytes, from the lower bound on.
    Run,
    /// `count` blocks of `block` packed bytes, `stride` apart. A block is a run of bytes, or the bytes of `inner`.
    Strided {
        count: u64,
        stride: i64,
        block: u64,
        inner: Option<&'l Layout<'l>>,
    },
    Pieces(&'l [Piece<'l>]),
}

/// Whether a layout names a byte twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Overlap {
    /// Each byte has one place in the packed form.
    #[default]
    No,
    /// The check would have taken too many steps.
    Undecided,
    /// Some byte has several places in the packed form.
    Yes,
}

impl Overlap {
    /// The result of a check. `None`: it was not finished.
    pub(super) const fn decided(result: Option<bool>) -> Self {
        match result {
            Some(true) => Self::Yes,
            Some(false) => Self::No,
            None => Self::Undecided,
        }
    }

    /// The result for a whole with two results.
    pub(super) const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, _) | (_, Self::Yes) => Self::Yes,
            (Self::No, Self::No) => Self::No,
            _ => Self::Undecided,
        }
    }
}

/// One entry of [`Layout::pieces`].
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Piece<'l> {
    pub(super) at: i64,
    pub(super) inner: Option<&'l Layout<'l>>,
    pub(super) len: u64,
    /// Packed bytes up to the end of this piece; set by `Layout::pieces`.
    pub(super) end: u64,
}

impl<'l> Piece<'l> {
    /// `len` bytes at displacement `at`.
    pub const fn bytes(at: i64, len: u64) -> Self {
        Self { at, inner: None, len, end: 0 }
    }

    /// The bytes of a layout whose origin is at displacement `at`.
    pub const fn of(at: i64, layout: &'l Layout<'l>) -> Self {
        Self { at, inner: Some(layout), len: layout.size, end: 0 }
    }

    /// The positions of the first byte, and of one past the last. `None` if they do not fit into 64 bits.
    pub(super) fn bounds(&self) -> Option<(i64, i64)> {
        let (low, high) = match self.inner {
            Some(inner) => (inner.low, inner.high),
            None => (0, i64::try_from(self.len).ok()?),
        };
        Some((self.at.checked_add(low)?, self.at.checked_add(high)?))
    }
}

impl<'l> Layout<'l> {
    /// The same bytes with another extent, which is the step of [`repeat`](Self::repeat).
    #[must_use]
    pub const fn with_extent(mut self, extent: i64) -> Self {
        self.extent = extent;
        self
    }

    /// The same bytes, in the memory of an accelerator. It is for a whole layout: a layout on an accelerator cannot be a part
    /// of another one.
    ///
    /// # Errors
    /// [`LayoutError::OnAccelerator`] if the layout is on an accelerator already.
    pub const fn on(mut self, accelerator: &'l dyn Accelerator) -> Result<Self, LayoutError> {
        if self.accelerator.is_some() {
            return Err(LayoutError::OnAccelerator);
        }
        self.accelerator = Some(accelerator);
        Ok(self)
    }

    /// The accelerator that has the memory. `None`: the processor's memory.
    pub const fn accelerator(&self) -> Option<&'l dyn Accelerator> {
        self.accelerator
    }

    /// The number of bytes in packed form.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The extent: the distance in bytes from one repetition to the next. By default, the distance from the first byte to one
    /// past the last.
    pub const fn extent(&self) -> i64 {
        self.extent
    }

    /// The positions of the first byte and of one past the last, relative to the origin. Both are 0 if there is no byte.
    pub const fn bounds(&self) -> (i64, i64) {
        (self.low, self.high)
    }

    /// Whether all bytes lie in one run, in packed order.
    pub const fn is_one_run(&self) -> bool {
        matches!(self.form, Form::Run)
    }

    /// Whether a byte has more than one place in the packed form. Nothing can be received into such a layout.
    ///
    /// The check is exact. It is done when the layout is built, and takes a bounded number of steps. Only layouts with many
    /// interlaced parts, whose strides have little in common, need more; they are [undecided](Overlap::Undecided). A list of byte
    /// runs is always decided.
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Whether a byte may have more than one place in the packed form: [`overlap`](Self::overlap) is not [`Overlap::No`].
    pub const fn overlaps(&self) -> bool {
        !matches!(self.overlap, Overlap::No)
    }

    /// Checks that all bytes lie within a buffer of `len` bytes, if the origin of the layout is at byte `origin` of the buffer.
    ///
    /// # Errors
    /// [`BoundsError`] says on which side the layout reaches out of the buffer, and by how many bytes.
    pub fn fits(&self, origin: usize, len: usize) -> Result<(), BoundsError> {
        if self.size == 0 {
            return Ok(());
        }
        let (origin, len) = (origin as i128, len as i128);
        let (low, high) = (origin + i128::from(self.low), origin + i128::from(self.high));
        if low < 0 {
            return Err(BoundsError::BeforeStart(low.unsigned_abs() as u64));
        }
        if high > len {
            return Err(BoundsError::BeyondEnd((high - len) as u64));
        }
        Ok(())
    }

    pub(super) const fn form(&self) -> Form<'l> {
        self.form
    }

    pub(super) const fn low(&self) -> i64 {
        self.low
    }
}

/// Why a layout cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LayoutError {
    /// The layout has more bytes than memory can have, or its bytes are too far apart.
    TooLarge,
    /// The layout nests deeper than [`MAX_DEPTH`] levels.
    TooDeep,
    /// A part of the layout is on an accelerator. Only a whole layout can be.
    OnAccelerator,
}

impl LayoutError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the layout reaches further than memory: check counts and strides"),
            Self::TooDeep => write!(f, "the layout nests deeper than {MAX_DEPTH} levels: flatten it"),
            Self::OnAccelerator => {
                f.write_str("a part of the layout is on an accelerator: call `on` once, for the whole layout")
            }
        }
    }
}

impl core::error::Error for LayoutError {}

crate::debug_as_display!(LayoutError);

/// A layout reaches out of a buffer, by this number of bytes. It is the caller's fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum BoundsError {
    /// Before its start.
    BeforeStart(u64),
    /// Beyond its end.
    BeyondEnd(u64),
}

impl fmt::Display for BoundsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeStart(by) => write!(f, "the layout starts {by} bytes before the buffer: move its origin"),
            Self::BeyondEnd(by) => write!(f, "the layout ends {by} bytes beyond the buffer: use a larger one"),
        }
    }
}

impl core::error::Error for BoundsError {}

crate::debug_as_display!(BoundsError);
