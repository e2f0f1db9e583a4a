//! The memory of an operation: an address, a count of items, and the layout of an item.

use std::ffi::c_void;
use std::sync::Arc;

use towline::{Layout, View, ViewMut};

use crate::error::{Code, Failure, Outcome};
use crate::foreign::Foreign;
use crate::handles::LayoutHandle;
use crate::layout::{Shape, find, impossible, lasting};

/// The memory of an operation, and what describes it.
pub(crate) struct Prepared {
    base: *mut u8,
    len: usize,
    described: Option<Box<Described>>,
}

// SAFETY: the address is that of the program's memory, which the program gives to whichever thread completes the operation.
unsafe impl Send for Prepared {}

/// The description of memory that is not just a run of bytes. Its parts refer to each other, so it stays in its box.
struct Described {
    /// Declared first, so it is dropped before the others.
    layout: Layout<'static>,
    foreign: Option<Foreign>,
    _shape: Arc<Shape>,
}

impl Prepared {
    /// The memory of `count` items, to be sent.
    #[inline]
    pub fn to_send(buffer: *const c_void, count: usize, layout: LayoutHandle) -> Outcome<Self> {
        Self::new(buffer, count, layout, true)
    }

    /// The memory of `count` items, to be received into.
    #[inline]
    pub fn to_receive(buffer: *mut c_void, count: usize, layout: LayoutHandle) -> Outcome<Self> {
        Self::new(buffer, count, layout, false)
    }

    #[inline]
    fn new(buffer: *const c_void, count: usize, layout: LayoutHandle, sends: bool) -> Outcome<Self> {
        if are_bytes(buffer, count, layout) {
            return Ok(Self { base: buffer.cast_mut().cast(), len: count, described: None });
        }
        if layout != LayoutHandle::BYTES {
            return Self::described(buffer, count, layout, sends);
        }
        Err(if buffer.is_null() { no_memory() } else { too_many_bytes(count) })
    }

    #[cold]
    fn described(buffer: *const c_void, count: usize, layout: LayoutHandle, sends: bool) -> Outcome<Self> {
        let shape = find(layout)?;
        let (base, layout, foreign) = match &*shape {
            Shape::Places(_) => {
                // SAFETY: the shape is kept beside the layout.
                let item = unsafe { shape.layout() }?;
                let whole = if count == 1 { *item } else { Layout::repeat(count as u64, item).map_err(impossible)? };
                if buffer.is_null() && whole.size() != 0 {
                    return Err(no_memory());
                }
                (buffer.cast_mut().cast(), whole, None)
            }
            Shape::Functions { functions, size } => {
                if (sends && functions.pack.is_none()) || (!sends && functions.unpack.is_none()) {
                    return Err(no_function(sends));
                }
                let bytes = size.checked_mul(count as u64).ok_or_else(|| {
                    Failure::new(
                        Code::TOWLINE_ERR_LAYOUT,
                        format!("{count} items of {size} bytes are more than memory has"),
                    )
                })?;
                let foreign = Foreign::new(*functions, buffer.cast_mut(), count);
                (Foreign::base(), Layout::bytes(bytes).map_err(impossible)?, Some(foreign))
            }
        };
        let mut described = Box::new(Described { layout, foreign, _shape: shape });
        if let Some(foreign) = &described.foreign {
            // SAFETY: it stays in the box, beside the layout, and is dropped after it.
            let lasts = unsafe { lasting(foreign) };
            described.layout = described.layout.on(lasts).map_err(impossible)?;
        }
        Ok(Self { base, len: 0, described: Some(described) })
    }

    /// The length of the message, in packed form.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.described.as_ref().map_or(self.len as u64, |described| described.layout.size())
    }

    /// Whether an operation with this memory needs nothing of it but the memory itself.
    pub const fn refers_to_nothing(&self) -> bool {
        self.described.is_none()
    }

    /// The memory, to be sent.
    ///
    /// # Safety
    /// The program's memory is as it says. The result, and all that is made of it, is used only while `self` exists.
    #[inline]
    pub unsafe fn view(&self) -> View<'static> {
        match &self.described {
            // SAFETY: the caller's promise.
            None => unsafe { View::contiguous(self.base, self.len) },
            // SAFETY: the same; the layout stays in its box.
            Some(described) => unsafe { View::at(self.base, lasting(&described.layout)) },
        }
    }

    /// The memory, to be received into.
    ///
    /// # Safety
    /// As for [`view`](Self::view), and nothing else uses the memory meanwhile.
    #[inline]
    pub unsafe fn view_mut(&self) -> Outcome<ViewMut<'static>> {
        match &self.described {
            // SAFETY: the caller's promise.
            None => Ok(unsafe { ViewMut::contiguous(self.base, self.len) }),
            // SAFETY: the same; the layout stays in its box.
            Some(described) => Ok(unsafe { ViewMut::at(self.base, lasting(&described.layout)) }?),
        }
    }

    /// The error of functions of the program that have failed.
    pub fn check_functions(&self) -> Outcome<()> {
        let foreign = self.described.as_ref().and_then(|described| described.foreign.as_ref());
        if foreign.is_some_and(Foreign::has_failed) {
            return Err(Failure::new(
                Code::TOWLINE_ERR_LAYOUT,
                "a function of the layout has failed: the message is not as it should be",
            ));
        }
        Ok(())
    }
}

/// Plain bytes, to be sent. `None`: the memory has a layout, or it is impossible, which [`Prepared`] tells.
///
/// # Safety
/// The program's memory is as it says while the result is used.
#[inline]
pub(crate) unsafe fn bytes_to_send(buffer: *const c_void, count: usize, layout: LayoutHandle) -> Option<View<'static>> {
    // SAFETY: the caller's promise.
    are_bytes(buffer, count, layout).then(|| unsafe { View::contiguous(buffer.cast(), count) })
}

/// Plain bytes, to be received into. `None`: as for [`bytes_to_send`].
///
/// # Safety
/// As for [`bytes_to_send`], and nothing else uses the memory meanwhile.
#[inline]
pub(crate) unsafe fn bytes_to_receive(
    buffer: *mut c_void,
    count: usize,
    layout: LayoutHandle,
) -> Option<ViewMut<'static>> {
    // SAFETY: the caller's promise.
    are_bytes(buffer, count, layout).then(|| unsafe { ViewMut::contiguous(buffer.cast(), count) })
}

/// Whether memory has no layout, and may exist.
#[inline]
fn are_bytes(buffer: *const c_void, count: usize, layout: LayoutHandle) -> bool {
    layout == LayoutHandle::BYTES && (!buffer.is_null() || count == 0) && isize::try_from(count).is_ok()
}

#[cold]
fn no_memory() -> Failure {
    Failure::argument("`buffer` is a null pointer, and the message has bytes: pass the address of the memory")
}

#[cold]
fn too_many_bytes(count: usize) -> Failure {
    Failure::argument(format!("there is no memory of {count} bytes: pass the length of the buffer"))
}

#[cold]
fn no_function(sends: bool) -> Failure {
    let (what, function) = if sends { ("sent", "packs") } else { ("received", "unpacks") };
    Failure::new(
        Code::TOWLINE_ERR_LAYOUT,
        format!("nothing can be {what} with this layout, since it has no function that {function}: make one with both"),
    )
}
