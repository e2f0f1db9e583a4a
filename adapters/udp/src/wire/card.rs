//! The business card of a rail: how a peer reaches it. No code here uses a socket.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | `"twud"` |
//! | 4 | [`VERSION`] |
//! | 5 | 1 if a forwarder has the address of this card, else 0 |
//! | 6..8 | zero |
//! | 8.. | link, job, instance, host, rank and address, as a [card with IP addresses](towline_net::card) |

use towline_core::rail::Unreachable;
use towline_net::card::Card;

use crate::wire::format::VERSION;

const MAGIC: &[u8; 4] = b"twud";
const FIXED: usize = 8;

/// The card as it is published. `forwarded`: the address belongs to a forwarder, so the state of its host tells nothing about the
/// host of this rail.
pub fn encode(card: &Card, forwarded: bool) -> Vec<u8> {
    let mut out = vec![0; FIXED];
    out[..4].copy_from_slice(MAGIC);
    (out[4], out[5]) = (VERSION, forwarded.into());
    out.extend_from_slice(&card.encode());
    out
}

/// Reads the card that a peer published.
///
/// # Errors
/// [`Unreachable::NoCard`] for no bytes, [`Unreachable::Version`] for another version, and [`Unreachable::BadCard`] for anything
/// else that [`encode`] does not write.
pub fn decode(bytes: &[u8]) -> Result<Card, Unreachable> {
    if bytes.is_empty() {
        return Err(Unreachable::NoCard);
    }
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else { return Err(Unreachable::BadCard) };
    match fixed {
        [b't', b'w', b'u', b'd', VERSION, 0 | 1, 0, 0] if !rest.is_empty() => Card::decode(rest),
        [b't', b'w', b'u', b'd', version, ..] if *version != VERSION => Err(Unreachable::Version),
        _ => Err(Unreachable::BadCard),
    }
}

/// Whether the address of a card belongs to a forwarder.
pub fn is_forwarded(bytes: &[u8]) -> bool {
    bytes.get(5) == Some(&1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_net::card::CardAddress;

    #[test]
    fn x1_golden_bytes_and_bad_cards_are_distinguished() {
        let addresses = vec![CardAddress { address: "192.0.2.1".parse().unwrap(), prefix: 24, port: 9 }];
        let card = Card { link: 1, job: 2, instance: 3, host: 4, rank: 5, addresses };
        let good = encode(&card, false);
        let forwarded = encode(&card, true);
        assert_eq!((decode(&forwarded), is_forwarded(&forwarded)), (Ok(card.clone()), true));
        assert_eq!(good[..12], *b"twud\x02\0\0\0twtc");
        assert_eq!((decode(&good), is_forwarded(&good)), (Ok(card), false));
        assert_eq!(decode(&[]), Err(Unreachable::NoCard));
        for len in 1..good.len() {
            assert_eq!(decode(&good[..len]), Err(Unreachable::BadCard), "{len} bytes");
        }
        for (at, answer) in [(0, Unreachable::BadCard), (4, Unreachable::Version), (6, Unreachable::BadCard)] {
            let mut bytes = good.clone();
            bytes[at] ^= 8;
            assert_eq!(decode(&bytes), Err(answer), "byte {at}");
        }
    }
}
