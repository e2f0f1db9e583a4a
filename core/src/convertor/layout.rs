//! Layouts: the places of the bytes of a message in user memory.

use core::fmt;

use super::accelerator::Accelerator;
use crate::error::Blame;

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
    form: Form<'l>,
    size: u64,
    low: i64,
    high: i64,
    extent: i64,
    /// The number of nested levels that a walk has to store; 0 if the bytes are one run.
    depth: u8,
    overlaps: bool,
    /// The accelerator that has the memory. `None`: the processor's memory.
    accelerator: Option<&'l dyn Accelerator>,
}

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

/// One entry of [`Layout::pieces`].
#[derive(Clone, Copy, Debug)]
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
    fn bounds(&self) -> Option<(i64, i64)> {
        let (low, high) = match self.inner {
            Some(inner) => (inner.low, inner.high),
            None => (0, i64::try_from(self.len).ok()?),
        };
        Some((self.at.checked_add(low)?, self.at.checked_add(high)?))
    }
}

impl<'l> Layout<'l> {
    /// `len` bytes at the origin.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`].
    pub fn bytes(len: u64) -> Result<Self, LayoutError> {
        Self::run(0, len).ok_or(LayoutError::TooLarge)
    }

    /// `count` blocks of `block` bytes, whose starts are `stride` bytes apart; the stride may be negative.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`].
    pub fn vector(count: u64, block: u64, stride: i64) -> Result<Self, LayoutError> {
        let block = Self::bytes(block)?;
        Self::repeated(count, stride, &block, None)
    }

    /// `count` times `inner`, at origins `stride` bytes apart; the stride may be negative.
    ///
    /// # Errors
    /// [`LayoutError`], for any of its reasons.
    pub fn strided(count: u64, stride: i64, inner: &'l Self) -> Result<Self, LayoutError> {
        Self::repeated(count, stride, inner, Some(inner))
    }

    /// `count` times `inner`, at origins one extent of `inner` apart.
    ///
    /// # Errors
    /// As for [`strided`](Self::strided).
    pub fn repeat(count: u64, inner: &'l Self) -> Result<Self, LayoutError> {
        Self::strided(count, inner.extent, inner)
    }

    /// Pieces, each at its own displacement, packed in the order of the list: an iovec list, or the members of a structure. The
    /// call stores partial sums in the list, which make seeking fast; the order of the list stays as it is.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn pieces(pieces: &'l mut [Piece<'l>]) -> Result<Self, LayoutError> {
        let mut whole = ListSummary::default();
        for piece in pieces.iter_mut() {
            whole.add(piece)?;
        }
        let Some((low, high)) = whole.bounds else { return Self::bytes(0) };
        if whole.one_run {
            return Self::run(low, whole.size).ok_or(LayoutError::TooLarge);
        }
        if !whole.sorted && !whole.overlaps {
            whole.overlaps = overlap_unsorted(pieces);
        }
        if whole.depth as usize >= MAX_DEPTH {
            return Err(LayoutError::TooDeep);
        }
        Ok(Self {
            form: Form::Pieces(pieces),
            size: whole.size,
            low,
            high,
            extent: high.checked_sub(low).ok_or(LayoutError::TooLarge)?,
            depth: whole.depth + 1,
            overlaps: whole.overlaps,
            accelerator: None,
        })
    }

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

    /// Whether a byte may have more than one place in the packed form. Nothing can be received into such a layout. The result
    /// is exact for lists of byte runs, and for nested strides whose ranges do not interlace. Otherwise, if ranges interlace,
    /// it is `true`, even if no byte is shared.
    pub const fn overlaps(&self) -> bool {
        self.overlaps
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

    fn run(low: i64, size: u64) -> Option<Self> {
        let extent = i64::try_from(size).ok()?;
        let (low, high) = addressable(low, low.checked_add(extent)?)?;
        Some(Self { form: Form::Run, size, low, high, extent, depth: 0, overlaps: false, accelerator: None })
    }

    /// `inner` is the layout that is repeated. `kept` is the same layout, if it lives long enough for a reference and the caller
    /// has one.
    fn repeated(count: u64, stride: i64, inner: &Self, kept: Option<&'l Self>) -> Result<Self, LayoutError> {
        if inner.accelerator.is_some() {
            return Err(LayoutError::OnAccelerator);
        }
        let block = inner.size;
        let size = count.checked_mul(block).ok_or(LayoutError::TooLarge)?;
        if size == 0 {
            return Self::bytes(0);
        }
        let strided = || {
            let last = i64::try_from(count - 1).ok()?.checked_mul(stride)?;
            let (low, high) = (inner.low.checked_add(last.min(0))?, inner.high.checked_add(last.max(0))?);
            let (low, high) = addressable(low, high)?;
            i64::try_from(size).ok()?;
            Some((low, high, high.checked_sub(low)?))
        };
        let (low, high, extent) = strided().ok_or(LayoutError::TooLarge)?;
        if inner.is_one_run() && (count == 1 || u64::try_from(stride) == Ok(block)) {
            return Self::run(low, size).ok_or(LayoutError::TooLarge);
        }
        if inner.depth as usize >= MAX_DEPTH {
            return Err(LayoutError::TooDeep);
        }
        // A run of bytes at the origin needs no reference to its layout.
        let kept = if inner.is_one_run() && inner.low == 0 { None } else { kept };
        let overlaps = overlap_strided(count, stride, inner);
        let form = Form::Strided { count, stride, block, inner: kept };
        let depth = inner.depth + 1;
        Ok(Self { form, size, low, high, extent, depth, overlaps, accelerator: None })
    }
}

/// The properties of a list of pieces, up to some piece.
struct ListSummary {
    size: u64,
    bounds: Option<(i64, i64)>,
    /// Whether each piece lies after the one before.
    sorted: bool,
    one_run: bool,
    overlaps: bool,
    depth: u8,
}

impl Default for ListSummary {
    fn default() -> Self {
        Self { size: 0, bounds: None, sorted: true, one_run: true, overlaps: false, depth: 0 }
    }
}

impl ListSummary {
    fn add(&mut self, piece: &mut Piece<'_>) -> Result<(), LayoutError> {
        if piece.inner.is_some_and(|inner| inner.accelerator.is_some()) {
            return Err(LayoutError::OnAccelerator);
        }
        let size = self.size.checked_add(piece.len).filter(|size| i64::try_from(*size).is_ok());
        self.size = size.ok_or(LayoutError::TooLarge)?;
        piece.end = self.size;
        if piece.len == 0 {
            return Ok(());
        }
        let (low, high) = piece.bounds().and_then(|(low, high)| addressable(low, high)).ok_or(LayoutError::TooLarge)?;
        if let Some(inner) = piece.inner {
            self.depth = self.depth.max(inner.depth);
            self.one_run &= inner.is_one_run();
            self.overlaps |= inner.overlaps;
        }
        self.bounds = Some(match self.bounds {
            None => (low, high),
            Some((least, most)) => {
                self.sorted &= low >= most;
                self.one_run &= low == most;
                (least.min(low), most.max(high))
            }
        });
        Ok(())
    }
}

/// Both positions, if a pointer can have such distances.
fn addressable(low: i64, high: i64) -> Option<(i64, i64)> {
    isize::try_from(low).ok()?;
    isize::try_from(high).ok()?;
    isize::try_from(high.checked_sub(low)?).ok()?;
    Some((low, high))
}

/// Whether repetitions may overlap. Strides that nest like the digits of a number do not overlap: sorted by length, each stride
/// is at least as long as the range that the shorter ones cover. It does not matter which of them is outermost, so a transposed
/// matrix does not overlap.
fn overlap_strided(count: u64, stride: i64, inner: &Layout<'_>) -> bool {
    let mut steps = [(0u64, 0u64); MAX_DEPTH];
    let mut used = 0;
    let mut insert = |stride: i64, count: u64| {
        if count < 2 {
            return;
        }
        let mut step = (stride.unsigned_abs(), count);
        for (at, place) in steps.iter_mut().enumerate() {
            if at >= used || step.0 < place.0 {
                core::mem::swap(place, &mut step);
            }
        }
        used += 1;
    };
    insert(stride, count);
    let mut base = Some(inner);
    let mut covered = 0;
    while let Some(layout) = base {
        match layout.form {
            Form::Strided { count, stride, block, inner } => {
                insert(stride, count);
                covered = block; // if there is no inner layout
                base = inner;
            }
            _ if layout.overlaps => return true,
            _ => {
                covered = layout.high.wrapping_sub(layout.low).unsigned_abs();
                base = None;
            }
        }
    }
    for (stride, count) in steps.iter().take(used) {
        if *stride < covered {
            return true;
        }
        covered = covered.saturating_add(stride.saturating_mul(count - 1));
    }
    false
}

/// Whether two pieces overlap: the list is sorted by position, checked, and sorted back.
fn overlap_unsorted(pieces: &mut [Piece<'_>]) -> bool {
    sort(pieces, |piece| (piece.bounds().map_or(0, |bounds| bounds.0), 0));
    let mut most = i64::MIN;
    let mut overlap = false;
    for (low, high) in pieces.iter().filter(|piece| piece.len != 0).filter_map(Piece::bounds) {
        overlap |= low < most;
        most = most.max(high);
    }
    // A piece without bytes ends where the piece before it ends, so such pieces change places only among themselves.
    sort(pieces, |piece| (piece.end.cast_signed(), u8::from(piece.len == 0)));
    overlap
}

/// Heap sort. The sorts of `core` can panic, and lists may be long.
fn sort(pieces: &mut [Piece<'_>], key: impl Fn(&Piece<'_>) -> (i64, u8)) {
    let count = pieces.len();
    for root in (0..count / 2).rev() {
        sift(pieces, root, count, &key);
    }
    for end in (1..count).rev() {
        swap(pieces, 0, end);
        sift(pieces, 0, end, &key);
    }
}

fn sift(pieces: &mut [Piece<'_>], mut root: usize, end: usize, key: &impl Fn(&Piece<'_>) -> (i64, u8)) {
    let key = |pieces: &[Piece<'_>], at: usize| pieces.get(at).map(key);
    loop {
        let mut child = root.saturating_mul(2).saturating_add(1);
        if child >= end {
            return;
        }
        if child + 1 < end && key(pieces, child) < key(pieces, child + 1) {
            child += 1;
        }
        if key(pieces, root) >= key(pieces, child) {
            return;
        }
        swap(pieces, root, child);
        root = child;
    }
}

fn swap(pieces: &mut [Piece<'_>], one: usize, other: usize) {
    if let Ok([one, other]) = pieces.get_disjoint_mut([one, other]) {
        core::mem::swap(one, other);
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
