//! Whether a layout names a byte twice.
//!
//! A layout is a list of *leaves*: runs of bytes, each repeated at the strides of the levels around it. Two leaves share a byte
//! if some sum of multiples of their strides is nearer to 0 than their runs are long ([`Sum`]). So a check goes through pairs of
//! leaves whose ranges interlace. It is exact. If it takes more than [`MAX_STEPS`] steps, it ends undecided.

use super::layout::{Form, Layout, MAX_DEPTH, Overlap, Piece};
use super::strides::{Budget, Sum};

/// Most steps of the check of one layout.
const MAX_STEPS: u32 = 1 << 18;

/// The overlap of `count` repetitions of a layout, `stride` apart.
pub(super) fn of_repetitions(count: u64, stride: i64, inner: &Layout<'_>) -> Overlap {
    if inner.overlap == Overlap::Yes || count < 2 {
        return inner.overlap;
    }
    if inner.overlap == Overlap::No && strides_nest(count, stride, inner) {
        return Overlap::No;
    }
    let mut budget = Budget::new(MAX_STEPS);
    let around = Some((stride, count));
    inner.overlap.or(Overlap::decided(share(inner.leaves(0), inner.leaves(0), around, &mut budget)))
}

/// The overlap of pieces that do not lie one after the other. None of them overlaps in itself. The list is sorted by position,
/// checked, and sorted back.
pub(super) fn of_pieces(pieces: &mut [Piece<'_>]) -> Overlap {
    sort(pieces, |piece| (piece.bounds().map_or(0, |bounds| bounds.0), 0));
    let overlap = Overlap::decided(of_sorted(pieces, &mut Budget::new(MAX_STEPS)));
    // A piece without bytes ends where the piece before it ends, so such pieces change places only among themselves.
    sort(pieces, |piece| (piece.end.cast_signed(), u8::from(piece.len == 0)));
    overlap
}

fn of_sorted(pieces: &[Piece<'_>], budget: &mut Budget) -> Option<bool> {
    let mut all = pieces.iter().filter(|piece| piece.len != 0);
    while let Some(one) = all.next() {
        let Some((_, end)) = one.bounds() else { continue };
        for other in all.clone() {
            if other.bounds().is_none_or(|(start, _)| start >= end) {
                break;
            }
            if share(one.leaves(), other.leaves(), None, budget)? {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Whether leaves of two layouts share a byte. `around`: the second layout is repeated at this stride, this many times, and the
/// first one lies at the place before the first repetition.
fn share(ones: Leaves<'_>, others: Leaves<'_>, around: Option<(i64, u64)>, budget: &mut Budget) -> Option<bool> {
    for one in ones {
        for other in others.clone() {
            let mut sum = Sum::new(i128::from(other.at).wrapping_sub(one.at.into()));
            if let Some((stride, count)) = around {
                sum.add(stride.into(), 1, i128::from(count).wrapping_sub(1));
            }
            for (leaf, sign) in [(&one, -1), (&other, 1)] {
                for (stride, count) in leaf.repeats() {
                    sum.add(i128::from(*stride).wrapping_mul(sign), 0, i128::from(*count).wrapping_sub(1));
                }
            }
            // The start of the other run, as seen from the start of the one.
            let (low, high) = (1i128.wrapping_sub(other.len.into()), i128::from(one.len).wrapping_sub(1));
            if sum.reaches(low, high, budget)? {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// Whether strides nest like the digits of a number: sorted by length, each is at least as long as the range that the shorter
/// ones cover. It does not matter which of them is outermost, so a transposed matrix does not overlap. This decides most layouts in a
/// few steps. If it is false, they may overlap or not.
fn strides_nest(count: u64, stride: i64, inner: &Layout<'_>) -> bool {
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
            _ => {
                covered = layout.high.wrapping_sub(layout.low).unsigned_abs();
                base = None;
            }
        }
    }
    for (stride, count) in steps.iter().take(used) {
        if *stride < covered {
            return false;
        }
        covered = covered.saturating_add(stride.saturating_mul(count - 1));
    }
    true
}

/// A run of bytes that is repeated at the strides of the levels around it.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// Where the first repetition begins.
    at: i64,
    len: u64,
    /// Stride and number of repetitions of each level.
    repeats: [(i64, u64); MAX_DEPTH],
    used: usize,
}

impl Leaf {
    fn repeats(&self) -> &[(i64, u64)] {
        self.repeats.get(..self.used).unwrap_or_default()
    }
}

/// The leaves of a layout or piece.
#[derive(Clone, Debug)]
struct Leaves<'l> {
    /// A part that is to be visited next: its position, and its layout or its length.
    next: Option<(i64, Result<&'l Layout<'l>, u64>)>,
    /// The lists on the path, and how many repetitions there are outside of them.
    lists: [(&'l [Piece<'l>], i64, usize); MAX_DEPTH],
    depth: usize,
    repeats: [(i64, u64); MAX_DEPTH],
    used: usize,
}

impl<'l> Leaves<'l> {
    const fn new(at: i64, part: Result<&'l Layout<'l>, u64>) -> Self {
        Self {
            next: Some((at, part)),
            lists: [(&[], 0, 0); MAX_DEPTH],
            depth: 0,
            repeats: [(0, 0); MAX_DEPTH],
            used: 0,
        }
    }

    /// Goes on with the next piece of the innermost list that has one left.
    fn next_piece(&mut self) -> Option<(i64, Result<&'l Layout<'l>, u64>)> {
        loop {
            let top = self.depth.checked_sub(1)?;
            let (pieces, at, used) = self.lists.get_mut(top)?;
            self.used = *used;
            let Some((first, others)) = pieces.split_first() else {
                self.depth = top;
                continue;
            };
            *pieces = others;
            if first.len != 0 {
                return Some((at.wrapping_add(first.at), first.inner.ok_or(first.len)));
            }
        }
    }

    fn leaf(&self, at: i64, len: u64) -> Leaf {
        Leaf { at, len, repeats: self.repeats, used: self.used }
    }
}

impl Iterator for Leaves<'_> {
    type Item = Leaf;

    fn next(&mut self) -> Option<Leaf> {
        let mut part = self.next.take();
        loop {
            let (at, layout) = match part.or_else(|| self.next_piece())? {
                (at, Err(len)) => return Some(self.leaf(at, len)),
                (at, Ok(layout)) => (at, layout),
            };
            part = None;
            match layout.form {
                Form::Run => return Some(self.leaf(at.wrapping_add(layout.low), layout.size)),
                Form::Strided { count, stride, block, inner } => {
                    // The depth was checked when the layout was built.
                    if let Some(place) = self.repeats.get_mut(self.used) {
                        *place = (stride, count);
                        self.used = self.used.wrapping_add(1);
                    }
                    part = Some((at, inner.ok_or(block)));
                }
                Form::Pieces(pieces) => {
                    if let Some(place) = self.lists.get_mut(self.depth) {
                        *place = (pieces, at, self.used);
                        self.depth = self.depth.wrapping_add(1);
                    }
                }
            }
        }
    }
}

impl<'l> Layout<'l> {
    fn leaves(&'l self, at: i64) -> Leaves<'l> {
        Leaves::new(at, Ok(self))
    }
}

impl<'l> Piece<'l> {
    fn leaves(&self) -> Leaves<'l> {
        Leaves::new(self.at, self.inner.ok_or(self.len))
    }
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
