//! Devices of simulated rails: their registrations and operations.

use std::collections::BTreeMap;

use towline_core::rail::Cookie;
use towline_core::rail::native::Native;
use towline_core::rma::Access;

/// All registrations, and all operations in progress.
#[derive(Default)]
pub(super) struct Devices {
    /// By a number that is never reused.
    pub regions: BTreeMap<u64, Registration>,
    pub operations: BTreeMap<u64, DeviceOperation>,
    pub number: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Registration {
    pub node: u32,
    pub rail: u32,
    pub base: usize,
    pub len: u64,
    pub access: Access,
}

pub(super) struct DeviceOperation {
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The initiator's epoch of the target, and the connection. When either has changed, the completion is not
    /// reported.
    pub epoch: u32,
    pub session: u32,
    pub native: Native,
    pub cookie: Cookie,
    /// The bytes of a put.
    pub bytes: Vec<u8>,
}

impl Devices {
    /// Removes the registrations and operations of a node.
    pub fn kill(&mut self, node: u32) {
        self.regions.retain(|_, memory| memory.node != node);
        self.operations.retain(|_, operation| operation.from != node);
    }

    /// Number of registrations.
    pub fn registered(&self) -> u64 {
        self.regions.len() as u64
    }
}
