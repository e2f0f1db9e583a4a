//! The card of a bundle: a prefix, then the card of each link after its length.

use crate::rail::Unreachable;

/// The bytes before the cards of the links.
pub(super) const PREFIX: usize = 4;
/// The bytes before the card of one link: its length.
pub(super) const LENGTH: usize = 2;
const MAGIC: [u8; 2] = *b"TB";
const VERSION: u8 = 1;

/// The prefix of the card of a bundle of `links` links.
pub(super) const fn prefix(links: u8) -> [u8; PREFIX] {
    [MAGIC[0], MAGIC[1], VERSION, links]
}

/// The cards of the links in the card of a bundle.
#[derive(Clone, Debug)]
pub(super) struct Cards<'c>(&'c [u8]);

impl<'c> Cards<'c> {
    /// Checks the card of a bundle, and splits it.
    pub fn read(card: &'c [u8]) -> Result<Self, Unreachable> {
        let Some((prefix, rest)) = card.split_first_chunk::<PREFIX>() else {
            return Err(if card.is_empty() { Unreachable::NoCard } else { Unreachable::BadCard });
        };
        let [m, n, version, count] = *prefix;
        if [m, n] != MAGIC {
            return Err(Unreachable::BadCard);
        }
        if version != VERSION {
            return Err(Unreachable::Version);
        }
        let mut cards = Self(rest);
        for _ in 0..count {
            cards.next().ok_or(Unreachable::BadCard)?;
        }
        if count == 0 || !cards.0.is_empty() {
            return Err(Unreachable::BadCard);
        }
        Ok(Self(rest))
    }
}

impl<'c> Iterator for Cards<'c> {
    type Item = &'c [u8];

    fn next(&mut self) -> Option<&'c [u8]> {
        let (len, rest) = self.0.split_first_chunk::<LENGTH>()?;
        let (card, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        self.0 = rest;
        Some(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn p33_golden_bytes_of_a_card() {
        let bytes = [b'T', b'B', 1, 2, 3, 0, 7, 8, 9, 0, 0];
        assert_eq!(prefix(2), bytes[..PREFIX]);
        let cards: Vec<&[u8]> = Cards::read(&bytes).unwrap().collect();
        assert_eq!(cards, [&[7u8, 8, 9][..], &[]]);
        assert_eq!(Cards::read(&[]).err(), Some(Unreachable::NoCard));
        for cut in 1..bytes.len() {
            assert_eq!(Cards::read(&bytes[..cut]).err(), Some(Unreachable::BadCard), "{cut}");
        }
        for (at, error) in [(0, Unreachable::BadCard), (2, Unreachable::Version), (3, Unreachable::BadCard)] {
            for change in [1, 2, 0x40] {
                let mut bad = bytes;
                bad[at] ^= change;
                assert_eq!(Cards::read(&bad).err(), Some(error));
            }
        }
        assert_eq!(Cards::read(&[&bytes[..], &[0]].concat()).err(), Some(Unreachable::BadCard));
    }
}
