//! Layouts, spans over them, and their runs.

use towline_core::convertor::{Accelerator, Layout, LayoutError, Piece, Span, copy_slice, transfer};

use crate::{any, format, keep};

/// Reaches all functions of layouts and spans.
pub fn reach() {
    let _ = layouts();
    let mut memory = [0; 64];
    keep(copy_slice(any(&mut memory), any(&[])));
    span(Span::contiguous(any(core::ptr::null_mut()), any(0)));
    span(Span::of(any(&[])));
}

fn layouts() -> Result<(), LayoutError> {
    let inner = match any(0) {
        0 => Layout::bytes(any(0))?,
        _ => Layout::vector(any(0), any(0), any(0))?.with_extent(any(0)),
    };
    let mut pieces = [Piece::bytes(any(0), any(0)), Piece::of(any(0), &inner), Piece::of(any(0), &inner)];
    let list = Layout::pieces(any(&mut pieces))?;
    let outer = match any(0) {
        0 => Layout::strided(any(0), any(0), &list)?,
        _ => Layout::repeat(any(0), &list)?,
    };
    // Any possible layout: the optimiser must not know how this one was made.
    let layout = *any(&outer);
    keep((layout.on(any(&Opaque)).is_ok(), layout.accelerator().is_some()));
    keep((
        layout.size(),
        layout.extent(),
        layout.bounds(),
        layout.is_one_run(),
        layout.overlap() as u8,
        layout.overlaps(),
    ));
    if let Err(misfit) = layout.fits(any(0), any(0)) {
        format(misfit);
    }
    // SAFETY: never run; for the linker only.
    span(unsafe { Span::laid_out(any(core::ptr::null_mut()), any(&layout)) });
    Ok(())
}

/// An accelerator that is opaque to the optimiser.
#[derive(Debug)]
struct Opaque;

impl Accelerator for Opaque {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        keep((from, to, len));
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        keep((from, to, len));
    }
}

/// Every function of a span.
fn span(span: Span) {
    let span = any(span).window(any(0), any(0));
    keep((span.len(), span.is_empty(), span.as_contiguous(), span.as_run(), span.accelerator().is_some()));
    for run in span.runs() {
        keep(run);
    }
    // SAFETY: never run; for the linker only.
    unsafe {
        keep(span.pack(any(core::ptr::null_mut()), any(0)));
        keep(span.unpack(any(core::ptr::null()), any(0)));
        keep(transfer(span, any(span)));
    }
}
