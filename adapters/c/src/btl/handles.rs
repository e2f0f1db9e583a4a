//! Handles of the BTL face. All bits 0 stand for no object.

/// A module of the BTL face: the transport of one rail, with its peers, descriptors and memory. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BtlHandle {
    /// For the library alone.
    pub bits: u64,
}

/// A peer of a module. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointHandle {
    /// For the library alone.
    pub bits: u64,
    /// The module.
    pub btl: BtlHandle,
}

impl EndpointHandle {
    /// The bits of the endpoint of this process itself. No endpoint of the core has them.
    const OWN: u64 = u64::MAX;

    /// This process itself, as a peer of a module.
    pub(super) fn own(btl: BtlHandle) -> Self {
        Self { bits: Self::OWN, btl }
    }

    pub(super) fn is_own(self) -> bool {
        self.bits == Self::OWN
    }
}

/// A descriptor of a module: the bytes of a frame, in the module's memory and in that of the program. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorHandle {
    /// For the library alone.
    pub bits: u64,
    /// The module.
    pub btl: BtlHandle,
}

/// Memory of the program that was registered with a module. 0 stands for none.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationHandle {
    /// For the library alone.
    pub bits: u64,
    /// The module.
    pub btl: BtlHandle,
}
