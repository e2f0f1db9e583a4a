//! A window on user memory.

use core::ptr;

use zerocopy::FromZeros;

use super::accelerator::Accelerator;
use super::copy::copy;
use super::layout::Layout;
use super::runs::{Rows, Runs};

/// Bytes of an accelerator's that are looked at in one piece.
const STAGE: usize = 256;

/// A [`Span`]'s fields.
pub(crate) type Parts = (*mut u8, u64, *const Layout<'static>, u64);

/// A window on the packed form of user memory: where it lies and which bytes of it are meant. Plain data, without a
/// lifetime: whoever reads or writes through it vouches for the memory.
#[derive(Clone, Copy, Debug, FromZeros)]
pub struct Span {
    /// The first byte meant; with a layout, the layout's origin.
    base: *mut u8,
    len: u64,
    /// Null where the memory is contiguous.
    layout: *const Layout<'static>,
    /// With a layout, the packed byte at which the window begins.
    from: u64,
}

const _: () = assert!(size_of::<Span>() <= 32);

// SAFETY: a span is an address; access through it is unsafe and argued for where it happens. The layout that it refers
// to is only read, and `laid_out` was promised that it lives.
unsafe impl Send for Span {}

impl Span {
    /// No bytes at all.
    pub const EMPTY: Self = Self::contiguous(ptr::null_mut(), 0);

    /// The span in pieces small enough for registers.
    #[inline]
    pub(crate) const fn parts(self) -> Parts {
        (self.base, self.len, self.layout, self.from)
    }

    #[inline]
    pub(crate) const fn of_parts((base, len, layout, from): Parts) -> Self {
        Self { base, len, layout, from }
    }

    /// The `len` bytes at `base`.
    #[inline]
    pub const fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { base, len: len as u64, layout: ptr::null(), from: 0 }
    }

    /// The bytes of a slice that is only read.
    #[inline]
    pub const fn of(bytes: &[u8]) -> Self {
        Self::contiguous(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// All bytes of a layout whose origin is at `base`. A layout that is one run of bytes is not referred to.
    ///
    /// # Safety
    /// The layout, and all that it refers to, stays where it is, unchanged, as long as this span, a copy or a window of
    /// it is used, be it by the caller or by an operation that was given one.
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

    /// Bytes in packed form.
    #[inline]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of this window from `from` on, `len` bytes long or as many as there are.
    #[inline]
    pub fn window(&self, from: u64, len: u64) -> Self {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        if self.layout.is_null() {
            Self { base: self.base.wrapping_add(from as usize), len, ..*self }
        } else {
            Self { from: self.from.wrapping_add(from), len, ..*self }
        }
    }

    /// Packs up to `room` bytes to `to`; returns how many.
    ///
    /// # Safety
    /// The window's memory is readable, `to` is writable for `room` bytes, and the two do not overlap.
    #[inline(always)]
    pub unsafe fn pack(&self, to: *mut u8, room: usize) -> usize {
        let len = room.min(self.bytes());
        if !self.layout.is_null() {
            // SAFETY: as promised to this function.
            return unsafe { self.pack_runs(to, len) };
        }
        // SAFETY: the caller vouches for both sides.
        unsafe { copy(self.base, to, len) };
        len
    }

    /// Unpacks up to `len` bytes from `from`; returns how many the window took.
    ///
    /// # Safety
    /// The window's memory is writable, `from` is readable for `len` bytes, and the two do not overlap.
    #[inline(always)]
    pub unsafe fn unpack(&self, from: *const u8, len: usize) -> usize {
        let len = len.min(self.bytes());
        if !self.layout.is_null() {
            // SAFETY: as promised to this function.
            return unsafe { self.unpack_runs(from, len) };
        }
        // SAFETY: the caller vouches for both sides.
        unsafe { copy(from, self.base, len) };
        len
    }

    /// The stretches of memory behind the window, in packed order: for iovecs. Where it is an [accelerator](Self::accelerator)'s, the
    /// processor must not touch them.
    pub fn runs(&self) -> Runs<'_> {
        match self.layout() {
            None => Runs::contiguous(self.base, self.len),
            Some(layout) => Runs::laid_out(self.base, layout, self.from, self.len),
        }
    }

    /// Whose memory it is; the processor's where there is none.
    #[inline]
    pub fn accelerator(&self) -> Option<&dyn Accelerator> {
        self.layout()?.accelerator()
    }

    /// Address and length, if the window's bytes lie in one run that the processor may touch. An empty window has none where it has a
    /// layout.
    #[inline]
    pub fn as_contiguous(&self) -> Option<(*mut u8, usize)> {
        if self.layout.is_null() {
            return Some((self.base, self.bytes()));
        }
        self.as_run().filter(|_| self.accelerator().is_none())
    }

    /// Address and length, if the window's bytes lie in one run, whoever's memory it is: for devices. An empty window has none where it
    /// has a layout.
    pub fn as_run(&self) -> Option<(*mut u8, usize)> {
        self.runs().next().filter(|(_, len)| *len as u64 == self.len)
    }

    /// Shows the bytes, in packed order, in pieces as they come.
    ///
    /// # Safety
    /// The window's memory is readable, and nobody writes there, during the call.
    pub(crate) unsafe fn look(&self, mut at: impl FnMut(&[u8])) {
        if self.accelerator().is_none() {
            // SAFETY: the caller vouches for the window, of which these are the runs; none of them is empty.
            return self.runs().for_each(|(base, len)| at(unsafe { core::slice::from_raw_parts(base, len) }));
        }
        let (mut room, mut done) = ([0; STAGE], 0);
        loop {
            // SAFETY: the caller vouches for the window; the room is as long as is said.
            let count = unsafe { self.window(done, u64::MAX).pack(room.as_mut_ptr(), STAGE) };
            let Some(bytes) = room.get(..count).filter(|bytes| !bytes.is_empty()) else { return };
            at(bytes);
            done = done.saturating_add(count as u64);
        }
    }

    #[inline]
    fn layout(&self) -> Option<&Layout<'_>> {
        // SAFETY: `laid_out` was promised that the layout lives and stays unchanged while the span is used; null stands for none.
        unsafe { self.layout.as_ref() }
    }

    /// Bytes in packed form, as far as they can be counted here; contiguous memory is never longer than that.
    #[inline]
    fn bytes(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
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
                // SAFETY: the caller vouches for both sides; the window is cut to the room, so all rows are within it.
                None => unsafe { copy_rows(at, stride, to, len.cast_signed(), len, count) },
                // SAFETY: the same; they are this accelerator's, as whoever made the span vouches.
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
                // SAFETY: the caller vouches for both sides; the window is cut to what there is to read.
                None => unsafe { copy_rows(from, len.cast_signed(), at, stride, len, count) },
                // SAFETY: the same; they are this accelerator's, as whoever made the span vouches.
                Some(device) => each_row(from, len.cast_signed(), at, stride, count, |from, to| unsafe {
                    device.write(from, to, len);
                }),
            }
            done = done.wrapping_add(len.wrapping_mul(count));
        }
        done
    }
}

/// Copies `count` rows of `len` bytes, whose starts are a stride apart on either side. Rows of one word are common and
/// would cost a call of `memcpy` each.
///
/// # Safety
/// All rows are readable there and writable here, and the two sides do not overlap.
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

/// The rows of both sides, in order.
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

/// Copies the bytes of one window into another, as many as both have; returns how many.
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
        // SAFETY: the caller vouches for both sides; each piece is the processor's.
        return unsafe {
            from.look(|bytes| done += to.window(done, u64::MAX).unpack(bytes.as_ptr(), bytes.len()) as u64);
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
