//! The business card of a rail with IP addresses: how a peer reaches it.
//!
//! The tcp rail publishes this card as it is; the card of the udp rail contains it. No code here uses a socket.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..4 | `"twtc"` |
//! | 4 | [`CARD_VERSION`] |
//! | 5 | link |
//! | 6 | number of addresses, at most [`MAX_ADDRESSES`] |
//! | 7 | zero |
//! | 8..16 | job |
//! | 16..24 | instance, which each rail draws at random |
//! | 24..32 | host |
//! | 32..36 | rank |
//! | 36.. | for each address 20 bytes: family (4 or 6), prefix length in bits, port (2 bytes), address (16 bytes) |

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use towline_core::rail::Unreachable;

use crate::Member;
use crate::fields::{u32_at, u64_at};

/// Version of the card's format.
pub const CARD_VERSION: u8 = 1;
/// Most addresses in a card. A host with more publishes the first ones.
pub const MAX_ADDRESSES: usize = 16;

const MAGIC: &[u8; 4] = b"twtc";
const FIXED: usize = 36;
const ENTRY: usize = 20;

/// An address at which a rail is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CardAddress {
    /// The IP address.
    pub address: IpAddr,
    /// Length of the network prefix, in bits.
    pub prefix: u8,
    /// The port, in host byte order; not 0.
    pub port: u16,
}

/// A card, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// Number of the link among those of the process.
    pub link: u8,
    /// The job.
    pub job: u64,
    /// A random number of this rail. All other rails that the rank has, or had in an earlier process, have other numbers.
    pub instance: u64,
    /// A number of the host ([`host_id`](crate::interfaces::host_id)).
    pub host: u64,
    /// The rank.
    pub rank: u32,
    /// Where the rail is reached, at most [`MAX_ADDRESSES`].
    pub addresses: Vec<CardAddress>,
}

impl Card {
    /// The owner of the card.
    pub const fn member(&self) -> Member {
        Member { job: self.job, link: self.link, rank: self.rank }
    }

    /// The card as it is published.
    pub fn encode(&self) -> Vec<u8> {
        let addresses = self.addresses.get(..MAX_ADDRESSES).unwrap_or(&self.addresses);
        let mut out = Vec::with_capacity(FIXED + ENTRY * addresses.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[CARD_VERSION, self.link, addresses.len() as u8, 0]);
        out.extend_from_slice(&self.job.to_le_bytes());
        out.extend_from_slice(&self.instance.to_le_bytes());
        out.extend_from_slice(&self.host.to_le_bytes());
        out.extend_from_slice(&self.rank.to_le_bytes());
        for entry in addresses {
            let (family, bytes) = match entry.address {
                IpAddr::V4(v4) => (4, v4.to_ipv6_compatible().octets()),
                IpAddr::V6(v6) => (6, v6.octets()),
            };
            out.extend_from_slice(&[family, entry.prefix]);
            out.extend_from_slice(&entry.port.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        out
    }

    /// Reads the card that a peer published.
    ///
    /// # Errors
    /// [`Unreachable::NoCard`] for no bytes, [`Unreachable::Version`] for another version of the format, and
    /// [`Unreachable::BadCard`] for anything else that [`encode`](Self::encode) does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        if bytes.is_empty() {
            return Err(Unreachable::NoCard);
        }
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else { return Err(Unreachable::BadCard) };
        if fixed[..4] != MAGIC[..] {
            return Err(Unreachable::BadCard);
        }
        if fixed[4] != CARD_VERSION {
            return Err(Unreachable::Version);
        }
        let count = usize::from(fixed[6]);
        if fixed[7] != 0 || count > MAX_ADDRESSES || rest.len() != count * ENTRY {
            return Err(Unreachable::BadCard);
        }
        let addresses = rest.as_chunks::<ENTRY>().0.iter().map(read_address).collect::<Option<_>>();
        Ok(Self {
            link: fixed[5],
            job: u64_at(fixed, 8),
            instance: u64_at(fixed, 16),
            host: u64_at(fixed, 24),
            rank: u32_at(fixed, 32),
            addresses: addresses.ok_or(Unreachable::BadCard)?,
        })
    }
}

fn read_address(entry: &[u8; ENTRY]) -> Option<CardAddress> {
    let [family, prefix, low, high, bytes @ ..] = *entry;
    let address = match (family, bytes) {
        (4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]) if prefix <= 32 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        (6, bytes) if prefix <= 128 => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    let port = u16::from_le_bytes([low, high]);
    (port != 0 && !address.is_unspecified() && !address.is_multicast()).then_some(CardAddress { address, prefix, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        let at = |address: &str, prefix, port| CardAddress { address: address.parse().unwrap(), prefix, port };
        Card {
            link: 2,
            job: 1,
            instance: 0x0807_0605_0403_0201,
            host: 3,
            rank: 4,
            addresses: vec![at("192.0.2.1", 24, 0x1234), at("fd00::2", 64, 80)],
        }
    }

    #[test]
    fn x1_golden_bytes() {
        let mut golden =
            b"twtc\x01\x02\x02\x00\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x03\0\0\0\0\0\0\0".to_vec();
        golden.extend_from_slice(b"\x04\0\0\0");
        golden.extend_from_slice(b"\x04\x18\x34\x12\0\0\0\0\0\0\0\0\0\0\0\0\xC0\0\x02\x01");
        golden.extend_from_slice(b"\x06\x40\x50\0\xFD\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02");
        assert_eq!(card().encode(), golden);
        assert_eq!(Card::decode(&golden), Ok(card()));
    }

    #[test]
    fn bad_cards_are_distinguished() {
        let good = card().encode();
        assert_eq!(Card::decode(&[]), Err(Unreachable::NoCard));
        for len in 1..good.len() {
            assert_eq!(Card::decode(&good[..len]), Err(Unreachable::BadCard), "{len} bytes");
        }
        for (at, value, answer) in [
            (0, b'x', Unreachable::BadCard),
            (4, 2, Unreachable::Version),
            (6, 3, Unreachable::BadCard),
            (7, 1, Unreachable::BadCard),
            (36, 5, Unreachable::BadCard),
            (37, 33, Unreachable::BadCard),
            (40, 1, Unreachable::BadCard),
        ] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(Card::decode(&bytes), Err(answer), "byte {at}");
        }
    }
}
