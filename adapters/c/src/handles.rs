//! Handles: what C programs have of objects. All bits 0 stand for no object.

/// A context: the engine and the transports of this process, and its place in the job. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextHandle {
    /// For the library alone.
    pub bits: u64,
}

/// A communicator: a group of ranks, numbered from 0. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommHandle {
    /// For the library alone.
    pub bits: u64,
}

impl CommHandle {
    pub(crate) const NULL: Self = Self { bits: 0 };
}

/// An operation in progress. `TOWLINE_REQUEST_NULL`, all of whose bits are 0, stands for one that is complete.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHandle {
    /// For the library alone.
    pub bits: u64,
    /// The communicator of the operation.
    pub comm: CommHandle,
    /// The context of the operation.
    pub context: ContextHandle,
}

impl RequestHandle {
    pub(crate) const NULL: Self = Self { bits: 0, comm: CommHandle::NULL, context: ContextHandle { bits: 0 } };
}

/// A message that a matched probe took: no other receive gets it. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHandle {
    /// For the library alone.
    pub bits: u64,
}

/// A layout. `TOWLINE_BYTES`, which is 0, stands for single bytes, so that a count of items is a count of bytes.
///
/// Layouts belong to the process, and not to a context.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutHandle {
    /// For the library alone.
    pub bits: u64,
}

impl LayoutHandle {
    pub(crate) const BYTES: Self = Self { bits: 0 };
}
