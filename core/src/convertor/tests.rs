//! Layouts, compared with the lists of byte positions that they describe.

use super::*;
use crate::rail::testing::Far;
use proptest::prelude::*;
use std::{boxed::Box, collections::BTreeSet, vec, vec::Vec};

/// The description of a layout.
#[derive(Clone, Debug)]
enum Tree {
    Bytes(u64),
    Vector(u64, u64, i64),
    Strided(u64, i64, Box<Tree>),
    Repeat(u64, Option<i64>, Box<Tree>),
    Pieces(Vec<(i64, Tree)>),
}

impl Tree {
    fn build(&self) -> Result<Layout<'static>, LayoutError> {
        let leak = |tree: &Tree| Ok::<&'static Layout<'static>, LayoutError>(Box::leak(Box::new(tree.build()?)));
        match self {
            Tree::Bytes(len) => Layout::bytes(*len),
            Tree::Vector(count, block, stride) => Layout::vector(*count, *block, *stride),
            Tree::Strided(count, stride, inner) => Layout::strided(*count, *stride, leak(inner)?),
            Tree::Repeat(count, extent, inner) => {
                let inner = leak(inner)?;
                let inner = extent.map_or(*inner, |extent| inner.with_extent(extent));
                Layout::repeat(*count, Box::leak(Box::new(inner)))
            }
            Tree::Pieces(pieces) => {
                let pieces = pieces.iter().map(|(at, tree)| match tree {
                    Tree::Bytes(len) => Ok(Piece::bytes(*at, *len)),
                    tree => Ok(Piece::of(*at, leak(tree)?)),
                });
                Layout::pieces(pieces.collect::<Result<Vec<_>, LayoutError>>()?.leak())
            }
        }
    }

    /// The position of each packed byte.
    fn positions(&self) -> Vec<i64> {
        let shifted = |by: i64, inner: &Tree| inner.positions().into_iter().map(move |at| at + by).collect::<Vec<_>>();
        match self {
            Tree::Bytes(len) => (0..*len as i64).collect(),
            Tree::Vector(count, block, stride) => {
                (0..*count as i64).flat_map(|i| (0..*block as i64).map(move |at| i * stride + at)).collect()
            }
            Tree::Strided(count, stride, inner) => {
                (0..*count as i64).flat_map(|i| shifted(i * stride, inner)).collect()
            }
            Tree::Repeat(count, extent, inner) => {
                let all = inner.positions();
                let natural = all.iter().max().map_or(0, |max| max + 1 - all.iter().min().unwrap());
                let extent = extent.unwrap_or(natural);
                (0..*count as i64).flat_map(|i| shifted(i * extent, inner)).collect()
            }
            Tree::Pieces(pieces) => pieces.iter().flat_map(|(at, tree)| shifted(*at, tree)).collect(),
        }
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (0u64..9).prop_map(Tree::Bytes),
        (0u64..5, 0u64..18, -20i64..24).prop_map(|(count, block, stride)| Tree::Vector(count, block, stride)),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (0u64..4, -70i64..90, boxed.clone()).prop_map(|(count, stride, inner)| Tree::Strided(count, stride, inner)),
            (0u64..4, prop::option::of(-40i64..60), boxed).prop_map(|(n, extent, tree)| Tree::Repeat(n, extent, tree)),
            prop::collection::vec((-60i64..90, inner), 0..5).prop_map(Tree::Pieces),
        ]
    })
}

/// A buffer that has room for a layout, filled with `fill`, and the position of the layout's origin in it.
fn buffer(layout: &Layout<'_>, fill: impl Fn(usize) -> u8) -> (Vec<u8>, i64) {
    let (low, high) = layout.bounds();
    const MARGIN: i64 = 8;
    let len = (high - low + 2 * MARGIN) as usize;
    ((0..len).map(fill).collect(), MARGIN - low)
}

fn span(bytes: &mut [u8], origin: i64, layout: &Layout<'_>) -> Span {
    // SAFETY: in tests, the layout and the buffer live longer than the span.
    unsafe { Span::laid_out(bytes.as_mut_ptr().wrapping_offset(origin as isize), layout) }
}

fn pack(span: Span, room: usize) -> Vec<u8> {
    let mut packed = vec![0xee; room];
    // SAFETY: the span's buffer lives, and `packed` is another one.
    let len = unsafe { span.pack(packed.as_mut_ptr(), room) };
    assert!(packed[len..].iter().all(|byte| *byte == 0xee));
    packed.truncate(len);
    packed
}

/// Cuts `total` bytes into pieces of the given lengths, over and over.
fn cuts(total: u64, lengths: &[u64]) -> Vec<(u64, u64)> {
    let mut cuts = Vec::new();
    let mut at = 0;
    for len in lengths.iter().cycle() {
        if at >= total {
            break;
        }
        cuts.push((at, (*len).min(total - at)));
        at += len;
    }
    cuts
}

proptest! {
    #[test]
    fn p27_b13_any_layout_packs_like_its_list_of_bytes(
        tree in tree(), lengths in prop::collection::vec(1u64..40, 1..5), from: u16, len: u16, inner: u16,
    ) {
        let layout = tree.build().unwrap();
        let positions = tree.positions();
        prop_assert_eq!(layout.size(), positions.len() as u64);
        let distinct: BTreeSet<_> = positions.iter().copied().collect();
        let twice = distinct.len() != positions.len();
        prop_assert_eq!(layout.overlap(), if twice { Overlap::Yes } else { Overlap::No });
        prop_assert_eq!(layout.overlaps(), twice);
        let bounds = distinct.first().map_or((0, 0), |first| (*first, distinct.last().unwrap() + 1));
        prop_assert_eq!(layout.bounds(), bounds);
        if layout.is_one_run() {
            prop_assert!(positions.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }

        let (mut bytes, origin) = buffer(&layout, |i| (i * 7 + i / 256) as u8);
        let expected: Vec<u8> = positions.iter().map(|at| bytes[(at + origin) as usize]).collect();
        let all = span(&mut bytes, origin, &layout);
        // In fragments, front to back.
        let fragments = cuts(all.len(), &lengths);
        let packed: Vec<u8> = fragments.iter().flat_map(|(at, len)| pack(all.window(*at, *len), 64)).collect();
        prop_assert_eq!(&packed, &expected);
        // A window of a window, at any place, which may reach too far.
        let (from, len, inner) = (u64::from(from) % 50, u64::from(len) % 80, u64::from(inner) % 30);
        let window = all.window(from, len).window(inner, 20);
        let start = expected.len().min((from + inner) as usize);
        let end = expected.len().min((from + len) as usize).min(start + 20).max(start);
        prop_assert_eq!(pack(window, 100), &expected[start..end]);
        prop_assert_eq!(window.len(), (end - start) as u64);
        // If there is less room, the first bytes are packed.
        prop_assert_eq!(pack(window, 3), &expected[start..end.min(start + 3)]);
        // The runs are the same bytes at the same places.
        let places: Vec<i64> = window.runs().flat_map(|(run, len)| {
            let at = run as i64 - (bytes.as_ptr() as i64 + origin);
            assert!(len > 0);
            at..at + len as i64
        }).collect();
        prop_assert_eq!(&places, &positions[start..end]);
        if let Some((run, len)) = window.as_contiguous() {
            prop_assert_eq!(len, end - start);
            prop_assert!(window.runs().next().is_none_or(|first| first == (run, len)));
        }
    }

    #[test]
    fn p28_unpacking_in_any_order_leaves_gaps_untouched(
        tree in tree(), lengths in prop::collection::vec(1u64..30, 1..5), backwards: bool,
    ) {
        let layout = tree.build().unwrap();
        let positions = tree.positions();
        let message: Vec<u8> = (0..positions.len()).map(|i| (i * 5 + 1) as u8).collect();
        let (mut bytes, origin) = buffer(&layout, |_| 0xaa);
        let mut expected = bytes.clone();
        let sink = span(&mut bytes, origin, &layout);
        let mut fragments = cuts(sink.len(), &lengths);
        if backwards {
            fragments.reverse();
        }
        for (at, len) in fragments {
            let (at, len) = (at as usize, len as usize);
            for (position, byte) in positions[at..at + len].iter().zip(&message[at..at + len]) {
                expected[(position + origin) as usize] = *byte;
            }
            // The source has more bytes than the window; the window takes its part.
            // SAFETY: the sink's buffer lives, and the message is another one.
            let took = unsafe { sink.window(at as u64, len as u64).unpack(message[at..].as_ptr(), message.len() - at) };
            prop_assert_eq!(took, len);
        }
        prop_assert_eq!(bytes, expected);
    }

    #[test]
    fn p27_transfer_goes_between_any_two_layouts(one in tree(), other in tree(), contiguous: bool) {
        let (source, sink) = (one.build().unwrap(), other.build().unwrap());
        let sink = if contiguous { Layout::bytes(sink.size()).unwrap() } else { sink };
        let places = if contiguous { (0..sink.size() as i64).collect() } else { other.positions() };
        let (mut from, from_origin) = buffer(&source, |i| (i * 3) as u8);
        let (mut to, to_origin) = buffer(&sink, |_| 0xaa);
        let mut expected = to.clone();
        for (read, write) in one.positions().iter().zip(&places) {
            expected[(write + to_origin) as usize] = from[(read + from_origin) as usize];
        }
        let (source, sink) = (span(&mut from, from_origin, &source), span(&mut to, to_origin, &sink));
        // SAFETY: both buffers live, and do not overlap.
        let count = unsafe { transfer(source, sink) };
        prop_assert_eq!(count, source.len().min(sink.len()));
        prop_assert_eq!(to, expected);
    }

    #[test]
    fn long_lists_are_checked_exactly(places in prop::collection::vec((0i64..400, 0u64..4), 0..60)) {
        let mut pieces: Vec<_> = places.iter().map(|(at, len)| Piece::bytes(*at, *len)).collect();
        let layout = Layout::pieces(&mut pieces).unwrap();
        let all: Vec<i64> = places.iter().flat_map(|(at, len)| *at..*at + *len as i64).collect();
        prop_assert_eq!(layout.overlaps(), all.iter().collect::<BTreeSet<_>>().len() != all.len());
        let (mut bytes, origin) = buffer(&layout, |i| i as u8);
        let expected: Vec<u8> = all.iter().map(|at| bytes[(at + origin) as usize]).collect();
        prop_assert_eq!(pack(span(&mut bytes, origin, &layout), 1000), expected);
    }
}

#[test]
fn a_layout_must_fit_its_buffer() {
    let back = Layout::vector(3, 2, -4).unwrap();
    assert_eq!(back.bounds(), (-8, 2));
    assert_eq!(back.fits(8, 10), Ok(()));
    assert_eq!(back.fits(7, 10), Err(BoundsError::BeforeStart(1)));
    assert_eq!(back.fits(9, 10), Err(BoundsError::BeyondEnd(1)));
    assert_eq!(Layout::bytes(0).unwrap().fits(5, 0), Ok(()));
    let mut pieces = [Piece::bytes(-3, 1), Piece::bytes(0, 1)];
    assert_eq!(Layout::pieces(&mut pieces).unwrap().fits(0, 8), Err(BoundsError::BeforeStart(3)));
}

#[test]
fn layouts_larger_than_memory_are_refused() {
    let one = Layout::vector(2, 1, 2).unwrap();
    assert_eq!(Layout::bytes(u64::MAX).unwrap_err(), LayoutError::TooLarge);
    assert_eq!(Layout::vector(u64::MAX, 2, 1).unwrap_err(), LayoutError::TooLarge);
    assert_eq!(Layout::vector(3, 1, i64::MAX).unwrap_err(), LayoutError::TooLarge);
    assert_eq!(Layout::vector(u64::MAX, 1, 0).unwrap_err(), LayoutError::TooLarge);
    assert_eq!(Layout::strided(3, i64::MIN, &one).unwrap_err(), LayoutError::TooLarge);
    let mut apart = [Piece::bytes(i64::MIN, 1), Piece::bytes(i64::MAX - 1, 1)];
    assert_eq!(Layout::pieces(&mut apart).unwrap_err(), LayoutError::TooLarge);
    let mut long = [Piece::bytes(0, u64::MAX), Piece::bytes(0, 1)];
    assert_eq!(Layout::pieces(&mut long).unwrap_err(), LayoutError::TooLarge);
    // A layout without bytes is valid, whatever its parameters.
    assert_eq!(Layout::vector(u64::MAX, 0, i64::MAX).unwrap().size(), 0);
}

#[test]
fn nesting_is_bounded_when_a_layout_is_built() {
    let mut layout: &'static Layout<'static> = Box::leak(Box::new(Layout::bytes(1).unwrap()));
    for depth in 1..=MAX_DEPTH {
        layout = Box::leak(Box::new(Layout::strided(2, 2 << depth, layout).unwrap()));
    }
    assert_eq!(layout.size(), 1 << MAX_DEPTH);
    assert!(!layout.overlaps());
    assert_eq!(Layout::repeat(2, layout).unwrap_err(), LayoutError::TooDeep);
    assert_eq!(Layout::pieces(&mut [Piece::of(0, layout), Piece::bytes(-9, 1)]).unwrap_err(), LayoutError::TooDeep);
    let (mut bytes, origin) = buffer(layout, |i| (i / 4) as u8);
    let packed = pack(span(&mut bytes, origin, layout).window(layout.size() - 3, 9), 9);
    assert_eq!(packed.len(), 3);
}

#[test]
fn a_transposed_matrix_does_not_overlap() {
    let column = Layout::vector(4, 8, 5 * 8).unwrap();
    assert!(!Layout::strided(5, 8, &column).unwrap().overlaps());
    assert!(Layout::strided(6, 8, &column).unwrap().overlaps());
    assert!(!Layout::strided(3, -128, &column).unwrap().overlaps());
    assert!(Layout::strided(3, 127, &column).unwrap().overlaps());
    assert!(Layout::vector(2, 8, 0).unwrap().overlaps());
    assert!(Layout::vector(2, 8, -7).unwrap().overlaps());
}

/// Columns that are listed one by one interlace, and share no byte.
#[test]
fn p27_interlaced_columns_do_not_overlap() {
    const COLUMNS: i64 = 100;
    let column = Layout::vector(50, 8, COLUMNS * 8).unwrap();
    let list = |places: &[i64]| -> Vec<_> { places.iter().map(|at| Piece::of(*at, &column)).collect() };
    assert_eq!(Layout::pieces(&mut list(&[0, 16])).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::pieces(&mut list(&[16, 0, 8])).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::pieces(&mut list(&[0, 7])).unwrap().overlap(), Overlap::Yes);
    // The same column, and one that begins in another row of it.
    assert_eq!(Layout::pieces(&mut list(&[0, 0])).unwrap().overlap(), Overlap::Yes);
    assert_eq!(Layout::pieces(&mut list(&[0, 3 * COLUMNS * 8])).unwrap().overlap(), Overlap::Yes);
    assert_eq!(Layout::pieces(&mut list(&[0, 50 * COLUMNS * 8])).unwrap().overlap(), Overlap::No);
    let all: Vec<_> = (0..COLUMNS).rev().map(|at| at * 8).collect();
    assert_eq!(Layout::pieces(&mut list(&all)).unwrap().overlap(), Overlap::No);
    // Two members of each structure of an array, then the array of another member: the lists nest.
    let mut members = [Piece::bytes(0, 4), Piece::bytes(12, 4)];
    let members = Layout::pieces(&mut members).unwrap();
    let array = Layout::strided(1000, 24, &members).unwrap();
    let other = Layout::vector(1000, 8, 24).unwrap();
    assert_eq!(Layout::pieces(&mut [Piece::of(0, &array), Piece::of(4, &other)]).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::pieces(&mut [Piece::of(0, &array), Piece::of(5, &other)]).unwrap().overlap(), Overlap::Yes);
    // Repetitions that interlace.
    assert_eq!(Layout::strided(2, 4, &array).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::strided(3, 4, &array).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::strided(4, 4, &array).unwrap().overlap(), Overlap::Yes);
    // Strides of 15 and 10 bytes: every sixth place of one is a place of the other, if they begin 5 bytes apart.
    let (one, two) = (Layout::vector(20, 4, 15).unwrap(), Layout::vector(30, 1, 10).unwrap());
    assert_eq!(Layout::pieces(&mut [Piece::of(0, &one), Piece::of(4, &two)]).unwrap().overlap(), Overlap::No);
    assert_eq!(Layout::pieces(&mut [Piece::of(0, &one), Piece::of(5, &two)]).unwrap().overlap(), Overlap::Yes);
}

/// The work is bounded: a layout for which a check would take too long is undecided, and counts as one that overlaps.
#[test]
fn p27_an_overlap_that_is_hard_to_find_is_undecided() {
    let layouts: Vec<_> = [1_000_003, 999_983].map(|stride| Layout::vector(900_000, 1, stride).unwrap()).into();
    let plane = |inner: &'static Layout<'static>, stride| Layout::strided(900_000, stride, inner).unwrap();
    let layouts: Vec<&'static Layout<'static>> =
        layouts.into_iter().map(|layout| &*Box::leak(Box::new(layout))).collect();
    let planes = [plane(layouts[0], 7_777_777_777), plane(layouts[1], 7_777_777_781)];
    let mut pieces = [Piece::of(0, &planes[0]), Piece::of(777_777_777, &planes[1])];
    let both = Layout::pieces(&mut pieces).unwrap();
    assert_eq!(both.overlap(), Overlap::Undecided);
    assert!(both.overlaps());
    assert_eq!(Layout::strided(2, 1, Box::leak(Box::new(both))).unwrap().overlap(), Overlap::Undecided);
    // A part that overlaps decides.
    let twice = Layout::vector(2, 2, 1).unwrap();
    let mut pieces = [Piece::of(0, &both), Piece::of(0, &twice)];
    assert_eq!(Layout::pieces(&mut pieces).unwrap().overlap(), Overlap::Yes);
}

/// Memory of an accelerator has an address for devices and none for the processor. Copies go both ways, with gaps and without.
#[test]
fn b38_memory_of_an_accelerator_is_copied_by_it() {
    let run = Layout::bytes(700).unwrap().on(&Far).unwrap();
    let gaps = Layout::vector(350, 2, 4).unwrap().on(&Far).unwrap();
    let bytes: Vec<u8> = (0..700u32).map(|at| (at % 251) as u8).collect();
    for (layout, other) in [(&run, &gaps), (&gaps, &run)] {
        let (mut far, mut second, mut back) = (vec![0xaa; 1400], vec![0xaa; 1400], vec![0; 700]);
        let base = Far::name(far.as_mut_ptr());
        // SAFETY: the layouts fit the memory, which lives as long as the spans are used.
        let (span, next) =
            unsafe { (Span::laid_out(base, layout), Span::laid_out(Far::name(second.as_mut_ptr()), other)) };
        assert!(span.accelerator().is_some() && span.as_contiguous().is_none());
        assert_eq!(span.as_run(), layout.is_one_run().then_some((base, 700)));
        // SAFETY: the same, and nothing overlaps.
        unsafe {
            assert_eq!(span.unpack(bytes.as_ptr(), 700), 700);
            assert_eq!(transfer(span, next), 700);
            assert_eq!(next.window(3, 600).pack(back.as_mut_ptr(), 700), 600);
            assert_eq!(transfer(next, Span::contiguous(back.as_mut_ptr(), 3)), 3);
        }
        assert!(back[..3] == bytes[..3] && back[3..600] == bytes[6..603]);
        let end = if layout.is_one_run() { 700 } else { 1398 };
        assert!(far[end..].iter().all(|byte| *byte == 0xaa));
        let mut seen = vec![];
        // SAFETY: the same.
        unsafe { span.for_each_piece(|piece| seen.extend_from_slice(piece)) };
        assert!(seen == bytes);
    }
    assert_eq!(run.on(&Far).err(), Some(LayoutError::OnAccelerator));
    assert_eq!(Layout::repeat(2, &run).err(), Some(LayoutError::OnAccelerator));
    assert_eq!(Layout::pieces(&mut [Piece::of(0, &run)]).err(), Some(LayoutError::OnAccelerator));
    // A layout on an accelerator stays one even if it has no bytes.
    let none = Layout::bytes(0).unwrap().on(&Far).unwrap();
    // SAFETY: the span has no bytes.
    assert!(unsafe { Span::laid_out(Far::name(core::ptr::null_mut()), &none) }.accelerator().is_some());
}

#[test]
fn a_layout_of_one_run_is_contiguous_memory() {
    let mut pieces = [Piece::bytes(4, 4), Piece::bytes(0, 0), Piece::bytes(8, 2)];
    let run = Layout::pieces(&mut pieces).unwrap();
    assert!(run.is_one_run());
    assert!(Layout::vector(7, 3, 3).unwrap().is_one_run());
    let mut bytes: [u8; 10] = core::array::from_fn(|i| i as u8);
    let base = bytes.as_mut_ptr();
    // SAFETY: the run lies within the buffer.
    let span = unsafe { Span::laid_out(base, &run) };
    assert_eq!(span.as_contiguous(), Some((base.wrapping_add(4), 6)));
    // So is a window that lies within one block of a vector.
    let vector = Layout::vector(2, 4, 6).unwrap();
    // SAFETY: the vector lies within the buffer.
    let span = unsafe { Span::laid_out(base, &vector) };
    assert_eq!(span.window(5, 2).as_contiguous(), Some((base.wrapping_add(7), 2)));
    assert_eq!(span.window(3, 2).as_contiguous(), None);
    assert_eq!(Span::EMPTY.runs().count(), 0);
}
