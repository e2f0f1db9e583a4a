//! The card of a link: a prefix of its own, then the card of the rail below.

use super::config::Config;
use crate::rail::Unreachable;

/// The bytes before the card of the rail below.
pub(super) const PREFIX: usize = 16;
const MAGIC: [u8; 2] = *b"TL";
/// The version of cards, headers and control frames.
pub(super) const VERSION: u8 = 2;
const FLAG_SUMS: u8 = 1;

/// The link's part of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub link: u8,
    /// Whether the link asks for checksums of bodies.
    pub sums: bool,
    pub incarnation: u64,
}

impl Card {
    pub const fn of(config: &Config) -> Self {
        Self { link: config.link, sums: config.sums, incarnation: config.incarnation }
    }

    pub const fn prefix(self) -> [u8; PREFIX] {
        let [a, b, c, d, e, f, g, h] = self.incarnation.to_le_bytes();
        let flags = if self.sums { FLAG_SUMS } else { 0 };
        [MAGIC[0], MAGIC[1], VERSION, flags, self.link, 0, 0, 0, a, b, c, d, e, f, g, h]
    }

    /// Splits a card into the link's part and the card of the rail below.
    pub fn read(card: &[u8]) -> Result<(Self, &[u8]), Unreachable> {
        let Some((prefix, rest)) = card.split_first_chunk::<PREFIX>() else {
            return Err(if card.is_empty() { Unreachable::NoCard } else { Unreachable::BadCard });
        };
        let [m, n, version, flags, link, 0, 0, 0, a, b, c, d, e, f, g, h] = *prefix else {
            return Err(Unreachable::BadCard);
        };
        if [m, n] != MAGIC {
            return Err(Unreachable::BadCard);
        }
        if version != VERSION {
            return Err(Unreachable::Version);
        }
        if flags & !FLAG_SUMS != 0 {
            return Err(Unreachable::BadCard);
        }
        let incarnation = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Ok((Self { link, sums: flags & FLAG_SUMS != 0, incarnation }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p33_golden_bytes_of_a_card() {
        let card = Card { link: 3, sums: true, incarnation: 0x0102_0304_0506_0708 };
        assert_eq!(card.prefix(), [b'T', b'L', 2, 1, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        let mut bytes = card.prefix().to_vec();
        bytes.extend([9, 9]);
        assert_eq!(Card::read(&bytes), Ok((card, &[9, 9][..])));
        assert_eq!(Card::read(&[]), Err(Unreachable::NoCard));
        for cut in 1..PREFIX {
            assert_eq!(Card::read(&bytes[..cut]), Err(Unreachable::BadCard));
        }
        for (at, error) in [(0, Unreachable::BadCard), (2, Unreachable::Version), (3, Unreachable::BadCard)] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert_eq!(Card::read(&bad), Err(error));
        }
    }
}
