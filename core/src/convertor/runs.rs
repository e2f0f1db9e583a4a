//! Runs: the contiguous pieces of memory of a span.

use super::layout::{Form, LAYOUTS, Layout, MAX_DEPTH};

/// Levels of a walk.
const LEVELS: usize = if LAYOUTS { MAX_DEPTH } else { 0 };

/// The contiguous pieces of memory of a [`Span`](super::Span), in packed order, as address and length. Finding the first one
/// takes a step per level of the layout, and a binary search per list. Each further one takes constant time.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Runs<'l> {
    base: *mut u8,
    /// Bytes of the span that were not returned yet.
    left: u64,
    /// The run that was found last and not returned yet: its distance from the base, and its length.
    at: i64,
    len: u64,
    levels: [Level<'l>; LEVELS],
    used: usize,
}

/// A layout that a walk is in.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct Level<'l> {
    layout: Option<&'l Layout<'l>>,
    /// Its origin.
    at: i64,
    /// The repetition or piece to visit next.
    next: u64,
}

impl<'l> Runs<'l> {
    pub(super) const fn contiguous(base: *mut u8, len: u64) -> Self {
        let empty = Level { layout: None, at: 0, next: 0 };
        Self { base, left: len, at: 0, len, levels: [empty; LEVELS], used: 0 }
    }

    pub(super) fn laid_out(base: *mut u8, layout: &'l Layout<'l>, from: u64, len: u64) -> Self {
        let mut runs = Self::contiguous(base, len);
        runs.len = 0;
        runs.left = len.min(layout.size().saturating_sub(from));
        if runs.left != 0 {
            runs.descend(layout, 0, from);
        }
        runs
    }

    /// Descends to the run that has the packed byte `offset` of `layout`, whose origin is at `at`.
    fn descend(&mut self, mut layout: &'l Layout<'l>, mut at: i64, mut offset: u64) {
        loop {
            let (child, child_at, len) = match layout.form() {
                Form::Run => (None, at.wrapping_add(layout.low()), layout.size()),
                Form::Strided { stride, block, inner, .. } => {
                    let index = offset.checked_div(block).unwrap_or(0);
                    offset = offset.wrapping_sub(index.wrapping_mul(block));
                    self.push(layout, at, index);
                    (inner, at.wrapping_add(stride.wrapping_mul(index as i64)), block)
                }
                Form::Pieces(pieces) => {
                    let index = pieces.partition_point(|piece| piece.end <= offset);
                    let Some(piece) = pieces.get(index) else { return };
                    offset = offset.wrapping_sub(piece.end.wrapping_sub(piece.len));
                    self.push(layout, at, index as u64);
                    (piece.inner, at.wrapping_add(piece.at), piece.len)
                }
            };
            let Some(child) = child else {
                self.at = child_at.wrapping_add(offset as i64);
                self.len = len.saturating_sub(offset);
                return;
            };
            (layout, at) = (child, child_at);
        }
    }

    fn push(&mut self, layout: &'l Layout<'l>, at: i64, index: u64) {
        // The depth was checked when the layout was built.
        if let Some(level) = self.levels.get_mut(self.used) {
            *level = Level { layout: Some(layout), at, next: index.wrapping_add(1) };
            self.used += 1;
        }
    }

    /// Finds the next run. Leaves each level whose runs were all returned.
    fn advance(&mut self) {
        while self.len == 0 {
            let Some(level) = self.used.checked_sub(1).and_then(|top| self.levels.get_mut(top)) else { return };
            let Some(layout) = level.layout else { return };
            let (index, at) = (level.next, level.at);
            level.next = index.wrapping_add(1);
            let (child, child_at, len) = match layout.form() {
                Form::Strided { count, stride, block, inner } if index < count => {
                    (inner, at.wrapping_add(stride.wrapping_mul(index as i64)), block)
                }
                Form::Pieces(pieces) if index < pieces.len() as u64 => match pieces.get(index as usize) {
                    Some(piece) if piece.len != 0 => (piece.inner, at.wrapping_add(piece.at), piece.len),
                    _ => continue,
                },
                _ => {
                    self.used -= 1;
                    continue;
                }
            };
            match child {
                Some(child) => self.descend(child, child_at, 0),
                None => (self.at, self.len) = (child_at, len),
            }
        }
    }
}

/// Runs of equal length, one stride apart.
pub(super) struct Rows {
    pub(super) at: *mut u8,
    pub(super) len: usize,
    pub(super) stride: isize,
    pub(super) count: usize,
}

impl Runs<'_> {
    /// The next run, together with the runs that follow it at equal distances, so that one loop can copy all of them.
    pub(super) fn next_rows(&mut self) -> Option<Rows> {
        let (at, len) = self.next()?;
        let mut rows = Rows { at, len, stride: 0, count: 1 };
        if LAYOUTS
            && let Some(level) = self.used.checked_sub(1).and_then(|top| self.levels.get_mut(top))
            && let Some(Form::Strided { count, stride, block, inner: None }) = level.layout.map(Layout::form)
            && len as u64 == block
        {
            let more = count.saturating_sub(level.next).min(self.left.checked_div(block).unwrap_or(0));
            level.next = level.next.wrapping_add(more);
            self.left = self.left.saturating_sub(more.wrapping_mul(block));
            (rows.stride, rows.count) = (stride as isize, rows.count.wrapping_add(more as usize));
        }
        Some(rows)
    }
}

impl Iterator for Runs<'_> {
    type Item = (*mut u8, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        if LAYOUTS && self.len == 0 {
            self.advance();
        }
        let len = self.len.min(self.left);
        if len == 0 {
            return None;
        }
        self.left -= len;
        self.len = 0;
        Some((self.base.wrapping_offset(self.at as isize), len as usize))
    }
}
