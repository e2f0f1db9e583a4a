//! The path to a peer: addresses, and the attributes of a connection.

use rdma_mummy_sys as ffi;

use crate::address::{Gid, GidKind, Mtu};

/// The route of packets to a peer's port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub kind: GidKind,
    pub gid: Gid,
    pub lid: u16,
    pub port: u8,
    pub gid_index: u8,
    pub traffic_class: u8,
}

impl Route {
    /// The route, as the library takes it.
    pub(super) fn attributes(&self) -> ffi::ibv_ah_attr {
        // SAFETY: plain numbers and bytes, for which zero is a value.
        let mut to: ffi::ibv_ah_attr = unsafe { std::mem::zeroed() };
        to.port_num = self.port;
        to.dlid = self.lid;
        if self.kind == GidKind::InfiniBand {
            to.sl = self.traffic_class; // within a subnet the LID is enough
            return to;
        }
        to.is_global = 1;
        to.grh.dgid = ffi::ibv_gid { raw: self.gid.0 };
        to.grh.sgid_index = self.gid_index;
        to.grh.hop_limit = 64;
        to.grh.traffic_class = self.traffic_class;
        to
    }
}

/// The attributes of a connection: the peer's end, and the limits of both devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionAttributes {
    pub route: Route,
    pub mtu: Mtu,
    /// Number of the peer's queue pair.
    pub queue_pair: u32,
    /// Sequence number of the peer's first packet.
    pub first_packet_in: u32,
    /// Sequence number of our first packet.
    pub first_packet_out: u32,
    /// Time that the peer's device has for an acknowledgement: 4.096 us times two to the power of this number.
    pub ack_timeout: u8,
    /// Most reads and atomics in flight to the peer.
    pub reads_out: u8,
    /// Most reads and atomics of the peer that are executed at a time.
    pub reads_in: u8,
}

/// An address in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddress {
    pub address: u64,
    /// The key that the peer's device has for the memory.
    pub key: u32,
}

/// An atomic operation on a word of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FetchOp {
    Add(u64),
    /// The word is compared with the first value, and set to the second one if they are equal.
    CompareSwap(u64, u64),
}
