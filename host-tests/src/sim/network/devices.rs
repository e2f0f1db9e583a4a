//! Devices of simulated rails: what is registered with them, and what they do.

use std::collections::BTreeMap;

use towline_core::rail::Cookie;
use towline_core::rail::native::Native;
use towline_core::rma::Access;

/// All that is registered, and all that is under way.
#[derive(Default)]
pub(super) struct Devices {
    /// By a number that is never used again.
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
    /// The initiator's epoch of the target, and the connection: when either has changed, nobody is told.
    pub epoch: u32,
    pub session: u32,
    pub native: Native,
    pub cookie: Cookie,
    /// What is put.
    pub bytes: Vec<u8>,
}

impl Devices {
    /// A node's memory goes, and with it what its devices do.
    pub fn kill(&mut self, node: u32) {
        self.regions.retain(|_, memory| memory.node != node);
        self.operations.retain(|_, operation| operation.from != node);
    }

    /// Registrations that a node has not taken back.
    pub fn registered(&self) -> u64 {
        self.regions.len() as u64
    }
}
