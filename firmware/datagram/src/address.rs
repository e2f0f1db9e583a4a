//! The address of an interface.

/// Most bytes of an address: those of an IPv6 address and a port.
const MOST: usize = 18;

/// The address of an interface, which only interfaces of the same kind interpret: of Ethernet, 6 bytes; of UDP, those of IP address
/// and port; of a serial line, the number of the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The length, then the bytes, then zeros.
    bytes: [u8; MOST + 1],
}

impl Address {
    /// The address of these bytes. Returns `None` if there are more than 18.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut all = [0; MOST + 1];
        let (length, rest) = all.split_first_mut()?;
        rest.get_mut(..bytes.len())?.copy_from_slice(bytes);
        *length = bytes.len() as u8;
        Some(Self { bytes: all })
    }

    /// The address of one byte.
    pub const fn of_one(byte: u8) -> Self {
        Self { bytes: [1, byte, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// The address of 6 bytes.
    pub const fn of_six([a, b, c, d, e, f]: [u8; 6]) -> Self {
        Self { bytes: [6, a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.card().get(1..).unwrap_or_default()
    }

    /// The card of a rail with this address: the length, then the bytes.
    pub(crate) fn card(&self) -> &[u8] {
        let [length, ..] = self.bytes;
        self.bytes.get(..=usize::from(length)).unwrap_or_default()
    }

    /// The address of a card.
    pub(crate) fn of_card(card: &[u8]) -> Option<Self> {
        let (length, bytes) = card.split_first()?;
        if usize::from(*length) != bytes.len() {
            return None;
        }
        Self::new(bytes)
    }
}
