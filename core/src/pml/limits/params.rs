//! The parameters that an engine publishes for its peers.

use crate::rail::Unreachable;
use crate::wire;

/// The length of [`Pml::params`](crate::pml::Pml::params) in bytes.
pub const PARAMS: usize = 20;

/// The parameters that an engine publishes for its peers: the credit of one peer, and the number of the first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pml) struct Params {
    pub envelopes: u16,
    pub units: u16,
    pub unit_bytes: u32,
    pub first_sequence: u64,
}

impl Params {
    pub fn encode(&self) -> [u8; PARAMS] {
        let mut bytes = [0; PARAMS];
        let fields = [b'T', b'W', wire::VERSION, 0]
            .into_iter()
            .chain(self.envelopes.to_le_bytes())
            .chain(self.units.to_le_bytes())
            .chain(self.unit_bytes.to_le_bytes())
            .chain(self.first_sequence.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        let Ok([b'T', b'W', version, _, e0, e1, u0, u1, b0, b1, b2, b3, s0, s1, s2, s3, s4, s5, s6, s7]) =
            <[u8; PARAMS]>::try_from(bytes)
        else {
            return Err(Unreachable::BadCard);
        };
        if version != wire::VERSION {
            return Err(Unreachable::Version);
        }
        Ok(Self {
            envelopes: u16::from_le_bytes([e0, e1]),
            units: u16::from_le_bytes([u0, u1]),
            unit_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            first_sequence: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        })
    }
}
