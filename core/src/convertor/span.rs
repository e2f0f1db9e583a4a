//! Spans: parts of user memory.

use core::ptr;

use super::accelerator::Accelerator;
use super::copy::copy;
use super::fields::Span;
use super::layout::{LAYOUTS, Layout};
use super::runs::{Rows, Runs};

/// Bytes of an accelerator's memory that are copied to the processor's memory at a time.
const STAGE: usize = 256;

// SAFETY: a span is an address. Each access through it is unsafe, and has its own argument. The layout that it refers to is
// only read, and the caller of `laid_out` vouches that the layout lives.
unsafe impl Send for Span {}

impl Span {
    /// A span without bytes.
    pub const EMPTY: Self = Self::contiguous(ptr::null_mut(), 0);

    /// The bytes of a slice that is only read.
    #[inline]
    pub const fn of(bytes: &[u8]) -> Self {
        Self::contiguous(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// All bytes of a layout whose origin is at `base`. The span does not refer to a layout that is one run of bytes.
    ///
    /// # Safety
    /// The layout, and everything that it refers to, stays in its place and does not change as long as this span, or a copy or a
    /// window of it, is used by the caller or by an operation.
    #[cfg(feature = "layouts")]
    #[inline]
    pub const unsafe fn laid_out(base: *mut u8, layout: &Layout<'_>) -> Self {
        if layout.is_one_run() && layout.accelerator().is_none() {
            return Self {
                base: base.wrapping_offset(layout.low() as isize),
                len: layout.size(),
                layout: ptr::null(),
                from: 0,
            };
        }
        Self { base, len: layout.size(), layout: ptr::from_ref(layout).cast(), from: 0 }
    }

    /// Whether the span has no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of the span from packed byte `from` on, with `len` bytes, or fewer if the span ends before.
    #[inline]
    pub fn window(&self, from: u64, len: u64) -> Self {
        let from = from.min(self.len());
        self.part(from, len.min(self.len() - from))
    }

    /// Packs up to `room` bytes to `to`. Returns how many were packed: the length of the span, or `room` if that is less.
    ///
    /// # Safety
    /// The span's memory is readable, `to` is writable for `room` bytes, and the two do not overlap.
    #[inline(always)]
    pub unsafe fn pack(&self, to: *mut u8, room: usize) -> usize {
        let len = room.min(self.bytes());
        if self.has_layout() {
            // SAFETY: as promised to this function.
            return unsafe { self.pack_runs(to, len) };
        }
        // SAFETY: the caller vouches for both sides.
        unsafe { copy(self.base, to, len) };
        len
    }

    /// Unpacks up to `len` bytes from `from`. Returns how many were unpacked: `len`, or the length of the span if that is less.
    ///
    /// # Safety
    /// The span's memory is writable, `from` is readable for `len` bytes, and the two do not overlap.
    #[inline(always)]
    pub unsafe fn unpack(&self, from: *const u8, len: usize) -> usize {
        let len = len.min(self.bytes());
        if self.has_layout() {
            // SAFETY: as promised to this function.
            return unsafe { self.unpack_runs(from, len) };
        }
        // SAFETY: the caller vouches for both sides.
        unsafe { copy(from, self.base, len) };
        len
    }

    /// The contiguous pieces of memory of the span, in packed order, for iovecs. If the memory is an
    /// [accelerator](Self::accelerator)'s, the processor must not access it.
    pub fn runs(&self) -> Runs<'_> {
        match self.layout() {
            None => Runs::contiguous(self.base, self.len()),
            Some(layout) => Runs::laid_out(self.base, layout, self.laid().1, self.len()),
        }
    }

    /// The accelerator that has the memory. `None`: the processor's memory.
    #[inline]
    pub fn accelerator(&self) -> Option<&dyn Accelerator> {
        self.layout()?.accelerator()
    }

    /// How many copies of the memory have failed, if they can fail ([`Accelerator::failures`]).
    #[inline]
    pub(crate) fn failures(&self) -> Option<u32> {
        self.accelerator()?.failures()
    }

    /// Address and length, if the span's bytes are one run that the processor may access. An empty span with a layout has none.
    #[inline]
    pub fn as_contiguous(&self) -> Option<(*mut u8, usize)> {
        if !self.has_layout() {
            return Some((self.base, self.bytes()));
        }
        self.as_run().filter(|_| self.accelerator().is_none())
    }

    /// Address and length, if the span's bytes are one run of any memory, for devices. An empty span with a layout has none.
    pub fn as_run(&self) -> Option<(*mut u8, usize)> {
        self.runs().next().filter(|(_, len)| *len as u64 == self.len())
    }

    /// Calls `visit` with the bytes, in packed order, piece by piece.
    ///
    /// # Safety
    /// The span's memory is readable, and nobody writes to it, during the call.
    pub(crate) unsafe fn for_each_piece(&self, mut visit: impl FnMut(&[u8])) {
        if self.accelerator().is_none() {
            // SAFETY: the caller vouches for the memory of the span, of which these are the runs; none of them is empty.
            return self.runs().for_each(|(base, len)| visit(unsafe { core::slice::from_raw_parts(base, len) }));
        }
        let (mut stage, mut done) = ([0; STAGE], 0);
        loop {
            // SAFETY: the caller vouches for the memory of the span; `stage` has `STAGE` bytes.
            let count = unsafe { self.window(done, u64::MAX).pack(stage.as_mut_ptr(), STAGE) };
            let Some(bytes) = stage.get(..count).filter(|bytes| !bytes.is_empty()) else { return };
            visit(bytes);
            done = done.saturating_add(count as u64);
        }
    }

    #[inline]
    const fn has_layout(&self) -> bool {
        LAYOUTS && !self.laid().0.is_null()
    }

    #[inline]
    fn layout(&self) -> Option<&Layout<'_>> {
        if !LAYOUTS {
            return None; // no function makes a span with one
        }
        // SAFETY: the caller of `laid_out` vouches that the layout lives and does not change while the span is used. Null means
        // none.
        unsafe { self.laid().0.as_ref() }
    }

    /// The number of bytes in packed form, at most `usize::MAX`. Contiguous memory is never longer than that.
    #[inline]
    fn bytes(&self) -> usize {
        usize::try_from(self.len()).unwrap_or(usize::MAX)
    }

    /// # Safety
    /// As for `pack`.
    #[cold]
    unsafe fn pack_runs(&self, to: *mut u8, room: usize) -> usize {
        let (window, mut done) = (self.window(0, room as u64), 0usize);
        let mut runs = window.runs();
        while let Some(Rows { at, len, stride, count }) = runs.next_rows() {
            let to = to.wrapping_add(done);
            match self.accelerator() {
                // SAFETY: the caller vouches for both sides; the window is not longer than the room, so all rows are within it.
                None => unsafe { copy_rows(at, stride, to, len.cast_signed(), len, count) },
                // SAFETY: the same; the memory is this accelerator's, as the caller of `laid_out` vouches.
                Some(device) => each_row(at, stride, to, len.cast_signed(), count, |from, to| unsafe {
                    device.read(from, to, len);
                }),
            }
            done = done.wrapping_add(len.wrapping_mul(count));
        }
        done
    }

    /// # Safety
    /// As for `unpack`.
    #[cold]
    unsafe fn unpack_runs(&self, from: *const u8, bytes: usize) -> usize {
        let (window, mut done) = (self.window(0, bytes as u64), 0usize);
        let mut runs = window.runs();
        while let Some(Rows { at, len, stride, count }) = runs.next_rows() {
            let from = from.wrapping_add(done);
            match self.accelerator() {
                // SAFETY: the caller vouches for both sides; the window is not longer than the bytes to read.
                None => unsafe { copy_rows(from, len.cast_signed(), at, stride, len, count) },
                // SAFETY: the same; the memory is this accelerator's, as the caller of `laid_out` vouches.
                Some(device) => each_row(from, len.cast_signed(), at, stride, count, |from, to| unsafe {
                    device.write(from, to, len);
                }),
            }
            done = done.wrapping_add(len.wrapping_mul(count));
        }
        done
    }
}

/// Copies `count` rows of `len` bytes, whose starts are one stride apart on either side. Rows of one word are common, and are
/// copied without a call of `memcpy` for each.
///
/// # Safety
/// All rows are readable on the one side and writable on the other, and the two sides do not overlap.
#[inline]
unsafe fn copy_rows(from: *const u8, from_stride: isize, to: *mut u8, to_stride: isize, len: usize, count: usize) {
    // SAFETY, for all four: the caller vouches for each row; no alignment is assumed.
    match len {
        // SAFETY: see above.
        4 => each_row(from, from_stride, to, to_stride, count, |from, to| unsafe {
            to.cast::<[u8; 4]>().write(from.cast::<[u8; 4]>().read());
        }),
        // SAFETY: see above.
        8 => each_row(from, from_stride, to, to_stride, count, |from, to| unsafe {
            to.cast::<[u8; 8]>().write(from.cast::<[u8; 8]>().read());
        }),
        // SAFETY: see above.
        16 => each_row(from, from_stride, to, to_stride, count, |from, to| unsafe {
            to.cast::<[u8; 16]>().write(from.cast::<[u8; 16]>().read());
        }),
        // SAFETY: see above.
        _ => each_row(from, from_stride, to, to_stride, count, |from, to| unsafe {
            ptr::copy_nonoverlapping(from, to, len);
        }),
    }
}

/// Calls `row` with the addresses of each row on both sides, in order.
#[inline]
fn each_row(
    mut from: *const u8,
    from_stride: isize,
    mut to: *mut u8,
    to_stride: isize,
    count: usize,
    mut row: impl FnMut(*const u8, *mut u8),
) {
    for _ in 0..count {
        row(from, to);
        (from, to) = (from.wrapping_offset(from_stride), to.wrapping_offset(to_stride));
    }
}

/// Copies the bytes of one span to another. Returns how many were copied: the length of the shorter span.
///
/// # Safety
/// The memory of `from` is readable, that of `to` writable, and the two do not overlap.
#[inline]
pub unsafe fn transfer(from: Span, to: Span) -> u64 {
    let total = from.len().min(to.len());
    match (from.as_contiguous(), to.as_contiguous()) {
        // SAFETY: the caller vouches for both sides.
        (Some((bytes, len)), _) => unsafe { to.unpack(bytes, len) as u64 },
        // SAFETY: the caller vouches for both sides.
        (_, Some((bytes, len))) => unsafe { from.pack(bytes, len) as u64 },
        _ => {
            // SAFETY: the caller vouches for both sides.
            unsafe { transfer_runs(from.window(0, total), to) };
            total
        }
    }
}

/// # Safety
/// As for `transfer`.
#[cold]
unsafe fn transfer_runs(from: Span, to: Span) {
    if from.accelerator().is_some() || to.accelerator().is_some() {
        let mut done = 0;
        // SAFETY: the caller vouches for both sides; each piece is in the processor's memory.
        return unsafe {
            from.for_each_piece(|bytes| done += to.window(done, u64::MAX).unpack(bytes.as_ptr(), bytes.len()) as u64);
        };
    }
    let (mut sources, mut sinks) = (from.runs(), to.runs());
    let (mut source, mut sink) = (sources.next(), sinks.next());
    while let (Some((read, full)), Some((write, room))) = (source, sink) {
        let len = full.min(room);
        // SAFETY: the caller vouches for both sides; `len` is within both runs.
        unsafe { ptr::copy_nonoverlapping(read, write, len) };
        source = if len < full { Some((read.wrapping_add(len), full - len)) } else { sources.next() };
        sink = if len < room { Some((write.wrapping_add(len), room - len)) } else { sinks.next() };
    }
}
