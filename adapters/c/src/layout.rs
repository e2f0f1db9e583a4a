//! Layouts: the places of the bytes of a message in memory of the program. They correspond to MPI's datatypes.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use towline::{Layout, Piece};

use crate::border::{border, check_pointer, list, put, put_if_wanted};
use crate::error::{Code, Failure, Fault, Outcome};
use crate::foreign::{Functions, PackFn, UnpackFn};
use crate::handles::LayoutHandle;
use crate::table::Table;

/// The most layouts of a process at a time.
const LAYOUTS_MAX: u32 = 1 << 14;

static LAYOUTS: Table<Arc<Shape>> = Table::new(LAYOUTS_MAX);

/// Layouts that keep their addresses while further ones are added.
#[allow(clippy::vec_box)] // for that reason
type Blocks = Vec<Box<Layout<'static>>>;

/// What a layout handle stands for.
pub(crate) enum Shape {
    /// Places of bytes.
    Places(Places),
    /// Items that functions of the program pack and unpack.
    Functions {
        /// How to pack and unpack.
        functions: Functions,
        /// The length of an item in packed form, in bytes.
        size: u64,
    },
}

/// A layout with the parts that it refers to.
pub(crate) struct Places {
    /// Declared first, so it is dropped before the parts.
    layout: Layout<'static>,
    pieces: Vec<Piece<'static>>,
    blocks: Blocks,
    inner: Vec<Arc<Shape>>,
}

impl Shape {
    /// The shape whose parts a copy with another extent refers to. `None`: it is no such copy.
    fn origin(&self) -> Option<Arc<Self>> {
        match self {
            Self::Places(places) if places.blocks.is_empty() && places.pieces.is_empty() => {
                places.inner.first().cloned()
            }
            _ => None,
        }
    }

    /// The layout, where the bytes have places.
    ///
    /// # Safety
    /// The result, and all that is made of it, is used only while the shape exists.
    pub unsafe fn layout(&self) -> Outcome<&'static Layout<'static>> {
        match self {
            // SAFETY: the caller's promise.
            Self::Places(places) => Ok(unsafe { lasting(&places.layout) }),
            Self::Functions { .. } => Err(Failure::new(
                Code::TOWLINE_ERR_LAYOUT,
                "a layout of functions cannot be a part of another one: make one of functions for the whole type",
            )),
        }
    }
}

/// A reference whose lifetime the caller watches.
///
/// # Safety
/// The result is used only while `value` exists and does not move.
pub(crate) unsafe fn lasting<T>(value: &T) -> &'static T {
    // SAFETY: the caller's promise.
    unsafe { &*std::ptr::from_ref(value) }
}

/// The shape of a handle that is not [`LayoutHandle::BYTES`].
pub(crate) fn find(handle: LayoutHandle) -> Outcome<Arc<Shape>> {
    LAYOUTS.get(handle.bits).cloned().ok_or_else(|| Failure::handle("layout"))
}

fn insert(shape: Shape) -> Outcome<LayoutHandle> {
    match LAYOUTS.insert(Arc::new(shape)) {
        Some(bits) => Ok(LayoutHandle { bits }),
        None => Err(Failure {
            code: Code::TOWLINE_ERR_BUSY,
            fault: Fault::TOWLINE_FAULT_RESOURCE,
            text: format!("this process has {LAYOUTS_MAX} layouts: free some"),
        }),
    }
}

/// The failure for a layout that cannot be built.
pub(crate) fn impossible(why: towline::LayoutError) -> Failure {
    towline::Error::from(why).into()
}

/// The parts of a layout under construction.
#[derive(Default)]
struct Parts {
    blocks: Blocks,
    inner: Vec<Arc<Shape>>,
}

impl Parts {
    /// A block of `count` items, which are bytes, or have a layout.
    fn block(&mut self, count: u64, item: LayoutHandle) -> Outcome<&'static Layout<'static>> {
        let block = if item == LayoutHandle::BYTES {
            Layout::bytes(count).map_err(impossible)?
        } else {
            let shape = find(item)?;
            // SAFETY: the shape is kept beside the layout.
            let layout = unsafe { shape.layout() }?;
            self.inner.push(shape);
            Layout::repeat(count, layout).map_err(impossible)?
        };
        let block = Box::new(block);
        // SAFETY: the box is kept beside the layout, and does not move its content.
        let lasts = unsafe { lasting(&*block) };
        self.blocks.push(block);
        Ok(lasts)
    }

    fn finish(mut self, layout: Layout<'static>, mut pieces: Vec<Piece<'static>>) -> Outcome<LayoutHandle> {
        if layout.is_one_run() {
            // It refers to nothing. Layouts that are made of each other, one after the other, must not keep all earlier ones.
            (self, pieces) = (Self::default(), Vec::new());
        }
        insert(Shape::Places(Places { layout, pieces, blocks: self.blocks, inner: self.inner }))
    }
}

/// Makes a layout of blocks at equal distances, like `MPI_Type_create_hvector`: the column of a matrix, for example.
///
/// @param count   How many blocks there are.
/// @param block   How many items a block has, one after the other.
/// @param stride  The distance between the starts of two blocks, in bytes. It may be negative.
/// @param item    The layout of an item, or `TOWLINE_BYTES`. It may be freed afterwards.
/// @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
/// @return        `TOWLINE_ERR_LAYOUT` if the layout reaches further than memory, or nests too deep (7 levels are always possible);
///                `TOWLINE_ERR_HANDLE` for `item`; `TOWLINE_ERR_BUSY` if there are 16384 layouts.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `layout` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_layout_vector(
    count: u64,
    block: u64,
    stride: i64,
    item: LayoutHandle,
    layout: *mut LayoutHandle,
) -> c_int {
    border(|| {
        check_pointer("layout", layout)?;
        let mut parts = Parts::default();
        let block = parts.block(block, item)?;
        let made = parts.finish(Layout::strided(count, stride, block).map_err(impossible)?, Vec::new())?;
        // SAFETY: the caller's promise.
        unsafe { put("layout", layout, made) }
    })
}

/// Makes a layout of blocks at any places, like `MPI_Type_create_struct`. The blocks are packed in the order of the lists.
///
/// @param count          How many blocks there are: the length of all lists.
/// @param blocks         How many items each block has.
/// @param displacements  Where each block begins, in bytes from the address that an operation is called with.
/// @param items          The layout of the items of each block, or `TOWLINE_BYTES`. Null: all are bytes. They may be freed afterwards.
/// @param layout         Gets the layout. The caller frees it with `towline_layout_free`.
/// @return               As for `towline_layout_vector`; `TOWLINE_ERR_ARGUMENT` for a list.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// The lists are readable for `count` entries, and `layout` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_layout_struct(
    count: usize,
    blocks: *const u64,
    displacements: *const i64,
    items: *const LayoutHandle,
    layout: *mut LayoutHandle,
) -> c_int {
    border(|| {
        check_pointer("layout", layout)?;
        // SAFETY: the caller's promise.
        let (blocks, displacements) =
            unsafe { (list("blocks", blocks, count)?, list("displacements", displacements, count)?) };
        // SAFETY: the caller's promise.
        let items = if items.is_null() { None } else { Some(unsafe { list("items", items, count) }?) };
        let (mut parts, mut pieces) = (Parts::default(), Vec::with_capacity(count));
        for (index, (block, at)) in blocks.iter().zip(displacements).enumerate() {
            pieces.push(match items.and_then(|items| items.get(index)) {
                Some(item) if *item != LayoutHandle::BYTES => Piece::of(*at, parts.block(*block, *item)?),
                _ => Piece::bytes(*at, *block),
            });
        }
        // SAFETY: the list is kept beside the layout. It does not move its content, and nothing changes it afterwards.
        let lasts = unsafe { &mut *std::ptr::from_mut(pieces.as_mut_slice()) };
        let made = parts.finish(Layout::pieces(lasts).map_err(impossible)?, pieces)?;
        // SAFETY: the caller's promise.
        unsafe { put("layout", layout, made) }
    })
}

/// Makes a layout of the same bytes with another extent, which is the distance between two items: `MPI_Type_create_resized`.
///
/// @param item    The layout. It may be freed afterwards.
/// @param extent  The extent in bytes.
/// @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
/// @return        As for `towline_layout_vector`.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `layout` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_layout_resized(item: LayoutHandle, extent: i64, layout: *mut LayoutHandle) -> c_int {
    border(|| {
        check_pointer("layout", layout)?;
        let mut parts = Parts::default();
        let made = if item == LayoutHandle::BYTES {
            Layout::bytes(1).map_err(impossible)?
        } else {
            let shape = find(item)?;
            // SAFETY: the shape is kept beside the layout.
            let copy = *unsafe { shape.layout() }?;
            parts.inner.push(shape.origin().unwrap_or(shape));
            copy
        };
        let made = parts.finish(made.with_extent(extent), Vec::new())?;
        // SAFETY: the caller's promise.
        unsafe { put("layout", layout, made) }
    })
}

/// Makes a layout of items that functions pack and unpack, for types that only the program knows.
///
/// @param size    The length of an item in packed form, in bytes.
/// @param pack    Packs a part of a message. Null: nothing can be sent with this layout.
/// @param unpack  Unpacks a part of a message. Null: nothing can be received with this layout.
/// @param state   Passed to the functions. The library does not access it. It must be valid as long as an operation with this layout
///                is in progress.
/// @param layout  Gets the layout. The caller frees it with `towline_layout_free`.
/// @return        `TOWLINE_ERR_BUSY` if there are 16384 layouts; `TOWLINE_ERR_LAYOUT` if `size` is above `INT64_MAX`.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// The functions do what `towline_pack_fn` and `towline_unpack_fn` say, and `layout` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_layout_functions(
    size: u64,
    pack: PackFn,
    unpack: UnpackFn,
    state: *mut c_void,
    layout: *mut LayoutHandle,
) -> c_int {
    border(|| {
        check_pointer("layout", layout)?;
        if i64::try_from(size).is_err() {
            return Err(Failure::new(
                Code::TOWLINE_ERR_LAYOUT,
                format!("an item of {size} bytes is longer than memory"),
            ));
        }
        let made = insert(Shape::Functions { functions: Functions { state, pack, unpack }, size })?;
        // SAFETY: the caller's promise.
        unsafe { put("layout", layout, made) }
    })
}

/// The length and the extent of an item of a layout.
///
/// @param layout  The layout, or `TOWLINE_BYTES`.
/// @param size    Gets the length in packed form, in bytes. May be null.
/// @param extent  Gets the distance between two items, in bytes. For a layout of functions it is the length. May be null.
/// @return        `TOWLINE_ERR_HANDLE`.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `size` and `extent` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_layout_size(layout: LayoutHandle, size: *mut u64, extent: *mut i64) -> c_int {
    border(|| {
        let (bytes, distance) = if layout == LayoutHandle::BYTES {
            (1, 1)
        } else {
            match &*find(layout)? {
                Shape::Places(places) => (places.layout.size(), places.layout.extent()),
                Shape::Functions { size, .. } => (*size, size.cast_signed()),
            }
        };
        // SAFETY: the caller's promise.
        unsafe {
            put_if_wanted(size, bytes);
            put_if_wanted(extent, distance);
        }
        Ok(())
    })
}

/// Frees a layout. Operations in progress, and layouts that were made of it, keep what they need.
///
/// @param layout  The layout. `TOWLINE_BYTES` is ignored.
/// @return        `TOWLINE_ERR_HANDLE`.
///
/// No other call may use the handle at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_layout_free(layout: LayoutHandle) -> c_int {
    border(|| {
        if layout == LayoutHandle::BYTES {
            return Ok(());
        }
        LAYOUTS.remove(layout.bits).map(drop).ok_or_else(|| Failure::handle("layout"))
    })
}
