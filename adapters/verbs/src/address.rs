//! Addresses of a port (GIDs), the network that each belongs to, and MTUs.

use std::fmt;

/// An address of a port: a global identifier of InfiniBand and RoCE, 16 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether it is zero: no address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it is a multicast address, which names no single port.
    pub const fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// Whether it is an IPv4 address, as RoCE writes it.
    pub fn is_ipv4(self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// Whether it is valid on one network segment alone.
    pub const fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// The subnet prefix, which InfiniBand has in the first 8 bytes.
    pub(crate) fn subnet(self) -> [u8; 8] {
        std::array::from_fn(|at| self.0[at])
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// The network that a GID belongs to: how packets with it travel. The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum GidKind {
    /// InfiniBand: packets of its own link layer.
    InfiniBand = 0,
    /// RoCE v1: Ethernet frames, which cannot be routed.
    RoceV1 = 1,
    /// RoCE v2: UDP datagrams, which can be routed.
    RoceV2 = 2,
}

impl GidKind {
    /// The kind with this number.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::InfiniBand),
            1 => Some(Self::RoceV1),
            2 => Some(Self::RoceV2),
            _ => None,
        }
    }
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// Path MTU: bytes of payload in one packet. The numbers are those of verbs (`enum ibv_mtu`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Mtu {
    Bytes256 = 1,
    Bytes512 = 2,
    Bytes1024 = 3,
    Bytes2048 = 4,
    Bytes4096 = 5,
}

impl Mtu {
    /// The MTU that verbs have this number for.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Bytes256),
            2 => Some(Self::Bytes512),
            3 => Some(Self::Bytes1024),
            4 => Some(Self::Bytes2048),
            5 => Some(Self::Bytes4096),
            _ => None,
        }
    }

    /// The largest MTU of at most `bytes` bytes.
    pub fn within(bytes: u32) -> Option<Self> {
        (1..=5).rev().filter_map(Self::of).find(|mtu| mtu.bytes() <= bytes)
    }

    /// The MTU in bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_have_the_numbers_of_verbs() {
        assert_eq!([1, 2, 3, 4, 5].map(|number| Mtu::of(number).unwrap().bytes()), [256, 512, 1024, 2048, 4096]);
        assert_eq!((Mtu::of(0), Mtu::of(6)), (None, None));
        assert_eq!(Mtu::within(1500), Some(Mtu::Bytes1024));
        assert_eq!((Mtu::within(255), Mtu::within(1 << 20)), (None, Some(Mtu::Bytes4096)));
    }
}
