//! Layouts: data that does not lie in one piece, such as a column of a matrix or some fields of a record.
//!
//! A [`Layout`](crate::Layout) says where the bytes of a message lie, relative to an origin, and in which order they are
//! packed. It is what MPI calls a derived datatype. A [`View`](crate::View) is a layout applied to a buffer to send from; a
//! [`ViewMut`](crate::ViewMut) is one to receive into. Both are checked against the buffer when they are made, so no operation
//! can reach outside.
//!
//! The library packs data from the buffer directly into the transport's memory, and unpacks it directly into the receive
//! buffer. There is no intermediate copy. Bytes in the gaps of a layout are not touched.
//!
//! # A column
//!
//! ```
//! use towline::{View, ViewMut, vector};
//!
//! let world = towline::init()?;
//! let myself = world.rank();
//! let matrix: [u32; 12] = std::array::from_fn(|i| i as u32); // 3 rows, 4 columns
//! let column = vector::<u32>(3, 1, 4)?; // 3 blocks of 1 item, 4 items apart
//!
//! let mut copy = [0u32; 12];
//! world.scope(|s| {
//!     s.irecv_view(myself, 0, ViewMut::new(&mut copy, 2, &column)?)?; // into column 2
//!     s.isend_view(myself, 0, View::new(&matrix, 1, &column)?)?; // from column 1
//!     Ok::<(), towline::Error>(())
//! })?;
//! assert_eq!(copy, [0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0]);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Fields, in any order
//!
//! Positions and lengths of [`Piece`](crate::Piece)s are bytes. Layouts nest: a piece may have a layout of its own, up to 16
//! levels.
//!
//! ```
//! use towline::{Layout, Piece, View};
//!
//! let world = towline::init()?;
//! let record = *b"name....7...city....";
//! let mut pieces = [Piece::bytes(12, 4), Piece::bytes(0, 4)];
//! let fields = Layout::pieces(&mut pieces)?;
//! world.send_view(world.rank(), 0, View::new(&record, 0, &fields)?)?;
//! assert_eq!(world.recv_vec::<u8>(world.rank(), 0)?.0, b"cityname");
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `records` sends two members of each structure in a block of a table, by three levels of layouts.
//!
//! # What is refused
//!
//! - A layout that reaches out of its buffer: [`Error::OutOfBuffer`](crate::Error::OutOfBuffer).
//! - A receive into a layout that names some bytes twice: [`Error::Overlap`](crate::Error::Overlap). Sending from one is
//!   allowed. The check is exact, also for parts that interlace, such as columns that are listed one by one. It takes a bounded
//!   number of steps. A layout of hundreds of interlaced parts with different strides may need more:
//!   [`Error::UndecidedOverlap`](crate::Error::UndecidedOverlap). Then list its runs of bytes with
//!   [`Piece::bytes`](crate::Piece::bytes): that is always decided.
//! - A layout whose sizes overflow, or that nests too deep: [`LayoutError`](crate::LayoutError).
//! - A layout on an accelerator: [`Error::OnAccelerator`](crate::Error::OnAccelerator). The core moves memory of accelerators
//!   (`towline_core::convertor::Accelerator`); this crate has no safe buffer for it yet.
//!
//! # Cost
//!
//! A contiguous layout costs nothing: it is treated as plain bytes. Devices and single copies need contiguous bytes; a
//! message with another layout is packed. Strided layouts with short items cost the most, as each item is copied separately.
