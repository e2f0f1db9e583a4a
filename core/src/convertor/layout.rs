//! Where the bytes of a message lie in user memory.

use core::fmt;

use super::accelerator::Accelerator;
use crate::error::Blame;

/// Levels that layouts may nest. A level that makes one run of bytes does not count: it is kept as such.
pub const MAX_DEPTH: usize = 16;

/// Where the bytes of a message lie, relative to an origin, and in which order they are packed.
///
/// Layouts refer to the layouts and lists that they are built of; nothing is copied or allocated. All positions are
/// checked when a layout is built, so that walking it cannot fail. Plain data: it may be shared between threads.
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
    /// Levels that a walk keeps in mind; 0 where the bytes are one run.
    depth: u8,
    overlaps: bool,
    /// Whose memory it is; the processor's where there is none.
    accelerator: Option<&'l dyn Accelerator>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'l> {
    /// One run, from the lower bound on.
    Run,
    /// `count` times `block` packed bytes, `stride` apart: plain bytes, or those of `inner`.
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

    /// First byte and one past the last, where they can be told.
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
    /// [`LayoutError`].
    pub fn strided(count: u64, stride: i64, inner: &'l Self) -> Result<Self, LayoutError> {
        Self::repeated(count, stride, inner, Some(inner))
    }

    /// `count` times `inner`, each an extent of `inner` after the other.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn repeat(count: u64, inner: &'l Self) -> Result<Self, LayoutError> {
        Self::strided(count, inner.extent, inner)
    }

    /// Pieces at displacements of their own, packed in the order of the list: an iovec list, or the members of a
    /// structure. The list's order is kept; the sums that make seeking fast are noted in it.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn pieces(pieces: &'l mut [Piece<'l>]) -> Result<Self, LayoutError> {
        let mut whole = Whole::default();
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

    /// The same bytes with another extent: what [`repeat`](Self::repeat) steps by.
    #[must_use]
    pub const fn with_extent(mut self, extent: i64) -> Self {
        self.extent = extent;
        self
    }

    /// The same bytes, in the memory of an accelerator. Of a whole layout: what is built of others says it itself.
    ///
    /// # Errors
    /// [`LayoutError::OnAccelerator`] if that was said before.
    pub const fn on(mut self, accelerator: &'l dyn Accelerator) -> Result<Self, LayoutError> {
        if self.accelerator.is_some() {
            return Err(LayoutError::OnAccelerator);
        }
        self.accelerator = Some(accelerator);
        Ok(self)
    }

    /// Whose memory it is; the processor's where there is none.
    pub const fn accelerator(&self) -> Option<&'l dyn Accelerator> {
        self.accelerator
    }

    /// Bytes in packed form.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes from one repetition to the next; unless set otherwise, from the first byte to one past the last.
    pub const fn extent(&self) -> i64 {
        self.extent
    }

    /// The first byte, and one past the last, relative to the origin. Both 0 where there is no byte.
    pub const fn bounds(&self) -> (i64, i64) {
        (self.low, self.high)
    }

    /// Whether all bytes lie in one run, in packed order.
    pub const fn is_one_run(&self) -> bool {
        matches!(self.form, Form::Run)
    }

    /// Whether a byte may be meant more than once: such a layout is no place to receive into. Exact for lists of byte
    /// runs and for nested strides that do not interlace; of members that interlace otherwise it is assumed.
    pub const fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// Whether all bytes lie within a buffer of `len` bytes, if the layout's origin is `origin` bytes into it.
    ///
    /// # Errors
    /// [`Misfit`] says on which side it does not fit, and by how much.
    pub fn fits(&self, origin: usize, len: usize) -> Result<(), Misfit> {
        if self.size == 0 {
            return Ok(());
        }
        let (origin, len) = (origin as i128, len as i128);
        let (low, high) = (origin + i128::from(self.low), origin + i128::from(self.high));
        if low < 0 {
            return Err(Misfit::Before(low.unsigned_abs() as u64));
        }
        if high > len {
            return Err(Misfit::Behind((high - len) as u64));
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

    /// `inner` is what is repeated; `kept` is the same where it lives long enough to be referred to, and needs to be.
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
        // Plain bytes at the origin need no reference to the layout that says so.
        let kept = if inner.is_one_run() && inner.low == 0 { None } else { kept };
        let overlaps = overlap_strided(count, stride, inner);
        let form = Form::Strided { count, stride, block, inner: kept };
        let depth = inner.depth + 1;
        Ok(Self { form, size, low, high, extent, depth, overlaps, accelerator: None })
    }
}

/// What is known of the first pieces of a list.
struct Whole {
    size: u64,
    bounds: Option<(i64, i64)>,
    /// Each piece lies behind the one before.
    sorted: bool,
    one_run: bool,
    overlaps: bool,
    depth: u8,
}

impl Default for Whole {
    fn default() -> Self {
        Self { size: 0, bounds: None, sorted: true, one_run: true, overlaps: false, depth: 0 }
    }
}

impl Whole {
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

/// Both ends, if they are distances that a pointer can go.
fn addressable(low: i64, high: i64) -> Option<(i64, i64)> {
    isize::try_from(low).ok()?;
    isize::try_from(high).ok()?;
    isize::try_from(high.checked_sub(low)?).ok()?;
    Some((low, high))
}

/// Whether repetitions may meet. Strides that nest like the digits of a number cannot, whichever is outermost: sorted by
/// stride, each must step over all that the smaller ones cover. So a transposed matrix is known not to overlap.
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
                covered = block; // if there is nothing further in
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

/// Whether two pieces meet: the list is sorted by place, looked through, and sorted back.
fn overlap_unsorted(pieces: &mut [Piece<'_>]) -> bool {
    sort(pieces, |piece| (piece.bounds().map_or(0, |bounds| bounds.0), 0));
    let mut most = i64::MIN;
    let mut overlap = false;
    for (low, high) in pieces.iter().filter(|piece| piece.len != 0).filter_map(Piece::bounds) {
        overlap |= low < most;
        most = most.max(high);
    }
    // Pieces without bytes end where the piece before them ends; they may change places among themselves only.
    sort(pieces, |piece| (piece.end.cast_signed(), u8::from(piece.len == 0)));
    overlap
}

/// Heap sort: the sorts of `core` can panic, and lists may be long.
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

/// A layout cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum LayoutError {
    /// Its bytes, or their distances, are more than memory can hold.
    TooLarge,
    /// It nests deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A part of it is said to be in an accelerator's memory.
    OnAccelerator,
}

impl LayoutError {
    /// Who has to act.
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
                f.write_str("a part of the layout is on an accelerator: say that of the whole, once")
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// A layout reaches out of a buffer: the caller's fault. By how many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Misfit {
    /// Below its start.
    Before(u64),
    /// Beyond its end.
    Behind(u64),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before(by) => write!(f, "the layout starts {by} bytes before the buffer: move its origin"),
            Self::Behind(by) => write!(f, "the layout ends {by} bytes behind the buffer: use a larger one"),
        }
    }
}

impl core::error::Error for Misfit {}
