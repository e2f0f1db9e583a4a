//! Handles: what C programs have of objects. All bits 0 stand for no object.

use towline::raw::RawRequest;

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

    /// Marks receives. The requests of a context are numbered from 0 in these bits, and there are not that many.
    const RECEIVE: u64 = 1 << 31;

    /// A send that was begun.
    #[inline]
    pub(crate) const fn of_send(begun: RawRequest, comm: CommHandle, context: u64) -> Self {
        Self { bits: begun.to_bits(), comm, context: ContextHandle { bits: context } }
    }

    /// A receive that was begun.
    #[inline]
    pub(crate) const fn of_receive(begun: RawRequest, comm: CommHandle, context: u64) -> Self {
        Self { bits: begun.to_bits() | Self::RECEIVE, comm, context: ContextHandle { bits: context } }
    }

    /// The request in its context.
    #[inline]
    pub(crate) const fn raw(self) -> RawRequest {
        RawRequest::from_bits(self.bits & !Self::RECEIVE)
    }

    #[inline]
    pub(crate) const fn is_receive(self) -> bool {
        self.bits & Self::RECEIVE != 0
    }
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

/// A window: memory of each rank of a communicator that all of them access. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowHandle {
    /// For the library alone.
    pub bits: u64,
}
