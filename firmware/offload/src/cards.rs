//! The card of a device: the parameters of its engine, and the card of each of its rails.
//!
//! Parameters, then for each rail the length of its card (16 bits, little-endian) and the card.

use towline_core::pml::{PARAMS, Rails};
use towline_core::rail::Rail;

/// Bytes of a length.
const LENGTH: usize = 2;

/// The bytes of the card of a device with these rails.
pub fn length<R: Rails>(rails: &R) -> usize {
    let each = |index| rails.rail(index).map_or(0, |rail| rail.card().len());
    (0..rails.count()).fold(PARAMS, |sum, index| sum.saturating_add(LENGTH).saturating_add(each(index)))
}

/// Gives the pieces of a card to `put`, one after the other. Returns `None` if the card of a rail is too long for its length.
pub fn write<R: Rails>(params: &[u8; PARAMS], rails: &R, mut put: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    put(params)?;
    for index in 0..rails.count() {
        let card = rails.rail(index)?.card();
        put(&u16::try_from(card.len()).ok()?.to_le_bytes())?;
        put(card)?;
    }
    Some(())
}

/// The parameters in a card.
pub fn params(card: &[u8]) -> Option<&[u8]> {
    card.get(..PARAMS)
}

/// The card of a rail in a card.
pub fn of_rail(card: &[u8], index: usize) -> Option<&[u8]> {
    let mut rest = card.get(PARAMS..)?;
    for at in 0.. {
        let (length, after) = rest.split_first_chunk::<LENGTH>()?;
        let (this, next) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        if at == index {
            return Some(this);
        }
        rest = next;
    }
    None
}
