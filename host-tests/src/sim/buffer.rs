//! User buffers of any layout, with guard bytes around and between the data.

use std::ptr::NonNull;

use towline_core::convertor::{Layout, Piece, Span};

use crate::random::Random;

/// The value of guard bytes.
const MARK: u8 = 0xa5;
/// Guard bytes before and after the data.
const FENCE: usize = 32;

/// A buffer for one message.
pub struct Buffer {
    memory: Vec<u8>,
    /// The data bytes in packed order: start and length of each run.
    runs: Vec<(usize, usize)>,
    len: usize,
    layout: Option<Box<Layout<'static>>>,
    /// The inner layout, which is freed after the outer one.
    inner: Option<NonNull<Layout<'static>>>,
    pieces: Option<NonNull<[Piece<'static>]>>,
}

impl Buffer {
    /// `len` bytes in one run.
    pub fn plain(len: usize) -> Self {
        let runs = vec![(FENCE, len)];
        Self { memory: vec![MARK; len + 2 * FENCE], runs, len, layout: None, inner: None, pieces: None }
    }

    /// `len` bytes in a random layout: one run, a vector, a nested vector, or pieces in any order.
    pub fn any(len: usize, random: &mut Random) -> Self {
        match random.below(6) {
            0 if len >= 8 && len.is_multiple_of(8) => Self::vector(len, random.pick(&[1, 2, 4, 8]), random),
            1 if len >= 12 && len.is_multiple_of(6) => Self::nest(len),
            2 | 3 if len >= 2 => Self::scattered(len, random),
            _ => Self::plain(len),
        }
    }

    fn vector(len: usize, block: usize, random: &mut Random) -> Self {
        // At most some hundred blocks, to limit the running time.
        let block = if len / block > 500 { len / 8 } else { block };
        let (count, stride) = (len / block, block + random.between(1, 9) as usize);
        let count = if count * block == len { count } else { return Self::plain(len) };
        let mut buffer = Self::plain(count * stride);
        buffer.runs = (0..count).map(|at| (FENCE + at * stride, block)).collect();
        buffer.len = len;
        buffer.layout = Layout::vector(count as u64, block as u64, stride as i64).ok().map(Box::new);
        buffer
    }

    fn nest(len: usize) -> Self {
        if len > 6000 {
            return Self::plain(len);
        }
        let count = len / 6;
        let mut buffer = Self::plain(count * 13);
        // Pairs of blocks of 3 bytes at distance 5. The pairs are at distance 13.
        buffer.runs = (0..count).flat_map(|at| [(FENCE + at * 13, 3), (FENCE + at * 13 + 5, 3)]).collect();
        buffer.len = len;
        let inner = NonNull::from(Box::leak(Box::new(Layout::vector(2, 3, 5).expect("a small layout"))));
        buffer.inner = Some(inner);
        // SAFETY: the inner layout is freed in `drop` alone, after the outer one can have no user.
        let inner = unsafe { &*inner.as_ptr() };
        buffer.layout = Layout::strided(count as u64, 13, inner).ok().map(Box::new);
        buffer
    }

    fn scattered(len: usize, random: &mut Random) -> Self {
        let mut cuts: Vec<usize> = (0..random.below(20)).map(|_| random.below(len as u64 + 1) as usize).collect();
        cuts.extend([0, len]);
        cuts.sort_unstable();
        let lens: Vec<usize> = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut order: Vec<usize> = (0..lens.len()).collect();
        if random.chance(500) {
            random.shuffle(&mut order);
        }
        let mut starts = vec![0; lens.len()];
        let mut at = FENCE;
        for piece in order {
            at += random.below(20) as usize;
            starts[piece] = at;
            at += lens[piece];
        }
        let mut buffer = Self::plain(at - FENCE);
        buffer.runs = starts.iter().copied().zip(lens).collect();
        buffer.len = len;
        let pieces = buffer.runs.iter().map(|(at, len)| Piece::bytes((at - FENCE) as i64, *len as u64));
        let pieces = NonNull::from(Box::leak(pieces.collect::<Box<[_]>>()));
        buffer.pieces = Some(pieces);
        // SAFETY: the pieces are freed in `drop` alone, after the layout can have no user.
        let pieces = unsafe { &mut *pieces.as_ptr() };
        buffer.layout = Layout::pieces(pieces).ok().map(Box::new);
        buffer
    }

    /// Number of data bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no data.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The data as a span for the engine. Valid while this buffer exists and is not accessed otherwise.
    pub fn span(&mut self) -> Span {
        let base = self.memory.as_mut_ptr().wrapping_add(FENCE);
        match &self.layout {
            None => Span::contiguous(base, self.len),
            // SAFETY: the layout is boxed and lives as long as the buffer.
            Some(layout) => unsafe { Span::laid_out(base, layout) },
        }
    }

    /// Writes data, in packed order.
    pub fn fill(&mut self, mut bytes: &[u8]) {
        for (at, len) in &self.runs {
            let (now, rest) = bytes.split_at((*len).min(bytes.len()));
            self.memory[*at..*at + now.len()].copy_from_slice(now);
            bytes = rest;
        }
    }

    /// Overwrites the whole buffer, since its user has finished with it.
    pub fn scribble(&mut self) {
        self.memory.fill(0xee);
    }

    /// Reads the first `count` data bytes, in packed order.
    pub fn take(&self, count: usize, into: &mut Vec<u8>) {
        into.clear();
        for (at, len) in &self.runs {
            let part = (*len).min(count - into.len());
            into.extend_from_slice(&self.memory[*at..*at + part]);
        }
    }

    /// Whether all guard bytes are intact, and also all data bytes after the first `count`.
    pub fn intact(&mut self, count: usize) -> bool {
        let mut left = count;
        for (at, len) in &self.runs {
            let part = (*len).min(left);
            self.memory[*at..*at + part].fill(MARK);
            left -= part;
        }
        self.memory.iter().all(|byte| *byte == MARK)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.layout = None;
        if let Some(inner) = self.inner.take() {
            // SAFETY: it was leaked from a box in `nest`, and nothing refers to it any more.
            drop(unsafe { Box::from_raw(inner.as_ptr()) });
        }
        if let Some(pieces) = self.pieces.take() {
            // SAFETY: they were leaked from a box in `scattered`, and nothing refers to them any more.
            drop(unsafe { Box::from_raw(pieces.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::patterned;

    #[test]
    fn buffers_agree_with_the_convertor() {
        let mut random = Random::new(3);
        for len in 0..400 {
            let mut buffer = Buffer::any(len, &mut random);
            let bytes = patterned(len as u64, len);
            let span = buffer.span();
            assert_eq!((buffer.len(), span.len()), (len, len as u64));
            // SAFETY: the buffer lives and is not accessed otherwise.
            assert_eq!(unsafe { span.unpack(bytes.as_ptr(), len) }, len);
            let mut back = vec![];
            buffer.take(len, &mut back);
            assert_eq!(back, bytes);
            assert!(buffer.intact(len));
            buffer.fill(&vec![1; len]);
            assert!(len == 0 || !buffer.intact(len - 1));
        }
    }
}
