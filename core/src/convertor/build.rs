//! Building layouts: their bounds, and whether they overlap, are determined here.

use super::layout::{Form, Layout, LayoutError, MAX_DEPTH, Overlap, Piece};
use super::overlap;

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
        if !whole.sorted && whole.overlap != Overlap::Yes {
            whole.overlap = whole.overlap.or(overlap::of_pieces(pieces));
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
            overlap: whole.overlap,
            accelerator: None,
        })
    }

    fn run(low: i64, size: u64) -> Option<Self> {
        let extent = i64::try_from(size).ok()?;
        let (low, high) = addressable(low, low.checked_add(extent)?)?;
        Some(Self { form: Form::Run, size, low, high, extent, depth: 0, overlap: Overlap::No, accelerator: None })
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
        let overlap = overlap::of_repetitions(count, stride, inner);
        let form = Form::Strided { count, stride, block, inner: kept };
        let depth = inner.depth + 1;
        Ok(Self { form, size, low, high, extent, depth, overlap, accelerator: None })
    }
}

/// The properties of a list of pieces, up to some piece.
struct ListSummary {
    size: u64,
    bounds: Option<(i64, i64)>,
    /// Whether each piece lies after the one before.
    sorted: bool,
    one_run: bool,
    overlap: Overlap,
    depth: u8,
}

impl Default for ListSummary {
    fn default() -> Self {
        Self { size: 0, bounds: None, sorted: true, one_run: true, overlap: Overlap::No, depth: 0 }
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
            self.overlap = self.overlap.or(inner.overlap);
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
