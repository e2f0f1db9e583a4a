//! Valid and invalid layouts, and ranges of their packed bytes. Compares the convertor with a list of byte positions.

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::convertor::{Layout, LayoutError, Overlap, Piece, Span, transfer};

/// The largest layout whose bytes are checked. Larger layouts are only built.
const MAX_BYTES: u64 = 2048;
/// The largest distance between the bounds of a layout whose bytes are checked.
const MAX_EXTENT: i64 = 1 << 16;

/// The description of a layout.
#[derive(Debug)]
enum Tree {
    Bytes(u64),
    Vector(u64, u64, i64),
    Strided(u64, i64, Box<Tree>),
    /// Number of copies, extent (`None`: the natural one), and the layout that is repeated.
    Repeat(u64, Option<i64>, Box<Tree>),
    Pieces(Vec<(i64, Tree)>),
}

/// Owns layouts that other layouts refer to.
#[derive(Default)]
struct Storage<'l> {
    layouts: typed_arena::Arena<Layout<'l>>,
    pieces: typed_arena::Arena<Piece<'l>>,
}

impl Tree {
    fn read(data: &mut Unstructured<'_>, depth: u32) -> Result<Self> {
        let kinds = if depth < 20 { 5 } else { 2 };
        Ok(match data.int_in_range(0..=kinds - 1)? {
            0 => Self::Bytes(count(data)?),
            1 => Self::Vector(count(data)?, count(data)?, distance(data)?),
            2 => Self::Strided(count(data)?, distance(data)?, Self::read(data, depth + 1)?.into()),
            3 => {
                let extent = if bool::arbitrary(data)? { Some(distance(data)?) } else { None };
                Self::Repeat(count(data)?, extent, Self::read(data, depth + 1)?.into())
            }
            _ => {
                let pieces = data.int_in_range(0..=6)?;
                let piece = |_| Ok((distance(data)?, Self::read(data, depth + 1)?));
                Self::Pieces((0..pieces).map(piece).collect::<Result<_>>()?)
            }
        })
    }

    fn build<'l>(&self, storage: &'l Storage<'l>) -> std::result::Result<Layout<'l>, LayoutError> {
        match self {
            Self::Bytes(len) => Layout::bytes(*len),
            Self::Vector(count, block, stride) => Layout::vector(*count, *block, *stride),
            Self::Strided(count, stride, inner) => {
                Layout::strided(*count, *stride, storage.layouts.alloc(inner.build(storage)?))
            }
            Self::Repeat(count, extent, inner) => {
                let inner = inner.build(storage)?;
                let inner = extent.map_or(inner, |extent| inner.with_extent(extent));
                Layout::repeat(*count, storage.layouts.alloc(inner))
            }
            Self::Pieces(pieces) => {
                let mut built = Vec::new();
                for (at, tree) in pieces {
                    built.push(match tree {
                        Self::Bytes(len) => Piece::bytes(*at, *len),
                        tree => Piece::of(*at, storage.layouts.alloc(tree.build(storage)?)),
                    });
                }
                Layout::pieces(storage.pieces.alloc_extend(built))
            }
        }
    }

    /// The position of each packed byte. For small layouts that could be built.
    fn positions(&self) -> Vec<i64> {
        let repeated = |count: u64, step: i64, inner: &[i64]| match inner {
            [] => Vec::new(),
            inner => (0..count as i64).flat_map(|i| inner.iter().map(move |at| i * step + at)).collect(),
        };
        match self {
            Self::Bytes(len) => (0..*len as i64).collect(),
            Self::Vector(0, ..) => Vec::new(),
            Self::Vector(count, block, stride) => repeated(*count, *stride, &Self::Bytes(*block).positions()),
            Self::Strided(0, ..) | Self::Repeat(0, ..) => Vec::new(),
            Self::Strided(count, stride, inner) => repeated(*count, *stride, &inner.positions()),
            Self::Repeat(count, extent, inner) => {
                let inner = inner.positions();
                let natural = || inner.iter().max().map_or(0, |max| max + 1 - inner.iter().min().unwrap_or(max));
                repeated(*count, extent.unwrap_or_else(natural), &inner)
            }
            Self::Pieces(pieces) => {
                pieces.iter().flat_map(|(start, tree)| tree.positions().into_iter().map(move |at| at + start)).collect()
            }
        }
    }
}

/// Reads a number that is mostly small and sometimes near a power of two.
fn count(data: &mut Unstructured<'_>) -> Result<u64> {
    Ok(distance(data)?.unsigned_abs())
}

fn distance(data: &mut Unstructured<'_>) -> Result<i64> {
    let (small, shift) = (i64::from(i8::arbitrary(data)?), u8::arbitrary(data)?);
    Ok(if shift < 200 { small } else { small.wrapping_shl(u32::from(shift)) })
}

/// Builds one or two layouts, and packs and unpacks ranges of them.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok(windows) = <[(u8, u8); 4]>::arbitrary(&mut data) else { return };
    let (storage, other_storage) = (Storage::default(), Storage::default());
    let Ok(tree) = Tree::read(&mut data, 0) else { return };
    let Ok(layout) = tree.build(&storage) else { return };
    let (low, high) = layout.bounds();
    assert!(low <= high && layout.size() <= i64::MAX as u64);
    assert_eq!(layout.fits(0, 0).is_ok(), layout.size() == 0);
    let Some(mut memory) = Memory::of(&tree, &layout) else { return };
    memory.check(&layout, &windows);
    let Ok(other) = Tree::read(&mut data, 0) else { return };
    let Ok(sink) = other.build(&other_storage) else { return };
    if let Some(sink_memory) = Memory::of(&other, &sink) {
        memory.check_transfer(&layout, &sink, sink_memory);
    }
}

/// Exactly the memory that a layout reaches, so that the sanitizer detects any access outside of it.
struct Memory {
    bytes: Box<[u8]>,
    /// Index into `bytes` of each packed byte.
    places: Vec<usize>,
    /// The layout's origin, as an offset from the first element of `bytes`. It may lie outside of `bytes`.
    origin: i64,
}

impl Memory {
    /// The memory of a layout. `None` if the layout is larger than [`MAX_BYTES`] or [`MAX_EXTENT`].
    fn of(tree: &Tree, layout: &Layout<'_>) -> Option<Self> {
        let (low, high) = layout.bounds();
        if layout.size() > MAX_BYTES || high - low > MAX_EXTENT {
            return None;
        }
        let positions = tree.positions();
        assert_eq!(positions.len() as u64, layout.size());
        let bounds = positions.iter().min().zip(positions.iter().max()).map_or((0, 0), |(min, max)| (*min, max + 1));
        assert_eq!((low, high), bounds);
        let places: Vec<usize> = positions.iter().map(|at| (at - low) as usize).collect();
        let mut seen = vec![false; (high - low) as usize];
        let overlap = places.iter().any(|place| std::mem::replace(&mut seen[*place], true));
        match layout.overlap() {
            Overlap::Undecided => {}
            found => assert_eq!(found == Overlap::Yes, overlap, "the overlap check is wrong"),
        }
        if layout.is_one_run() {
            assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
        Some(Self {
            bytes: (0..high - low).map(|i| (i * 7 + i / 256) as u8).collect(),
            places,
            origin: low.wrapping_neg(),
        })
    }

    fn span(&mut self, layout: &Layout<'_>) -> Span {
        // SAFETY: the callers use the span only while the layout exists.
        unsafe { Span::laid_out(self.bytes.as_mut_ptr().wrapping_offset(self.origin as isize), layout) }
    }

    fn check(&mut self, layout: &Layout<'_>, windows: &[(u8, u8)]) {
        let expected: Vec<u8> = self.places.iter().map(|place| self.bytes[*place]).collect();
        let all = self.span(layout);
        assert_eq!(all.len(), layout.size());
        assert_eq!(pack(all), expected);
        let (mut span, mut start, mut end) = (all, 0, expected.len());
        for (from, len) in windows {
            // Ranges within ranges, some of which reach beyond the end.
            span = span.window((*from).into(), u64::from(*len) * 8);
            start = end.min(start + usize::from(*from));
            end = end.min(start + usize::from(*len) * 8);
            assert_eq!(pack(span), &expected[start..end]);
            let runs = span.runs().flat_map(|(run, len)| {
                let first = (run as usize).wrapping_sub(self.bytes.as_ptr() as usize);
                assert!(len > 0);
                first..first + len
            });
            assert!(runs.eq(self.places[start..end].iter().copied()));
        }
        // Unpacks fragments from the last to the first. Bytes that do not belong to the layout must not change.
        let step = usize::from(windows[0].1) + 1;
        let message: Vec<u8> = (0..expected.len()).map(|i| (i * 5 + 1) as u8).collect();
        let mut after = self.bytes.clone();
        for first in (0..message.len()).step_by(step).rev() {
            let part = &message[first..message.len().min(first + step)];
            for (byte, place) in part.iter().zip(&self.places[first..]) {
                after[*place] = *byte;
            }
            // SAFETY: both the layout's memory and the message exist, and they do not overlap.
            let took = unsafe { all.window(first as u64, step as u64).unpack(part.as_ptr(), part.len()) };
            assert_eq!(took, part.len());
        }
        assert_eq!(self.bytes, after);
    }

    fn check_transfer(&mut self, layout: &Layout<'_>, sink: &Layout<'_>, mut to: Self) {
        let mut after = to.bytes.clone();
        for (read, write) in self.places.iter().zip(&to.places) {
            after[*write] = self.bytes[*read];
        }
        // SAFETY: both memories exist, and they do not overlap.
        let count = unsafe { transfer(self.span(layout), to.span(sink)) };
        assert_eq!(count, layout.size().min(sink.size()));
        assert_eq!(to.bytes, after);
    }
}

fn pack(span: Span) -> Vec<u8> {
    let mut packed = vec![0; span.len() as usize];
    // SAFETY: the span's memory exists. `packed` has the span's length and does not overlap it.
    let len = unsafe { span.pack(packed.as_mut_ptr(), packed.len()) };
    assert_eq!(len, packed.len());
    packed
}
