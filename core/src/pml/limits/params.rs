//! The parameters that an engine publishes for its peers.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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

/// The parameters as bytes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Encoded {
    magic: [u8; 2],
    version: u8,
    reserved: u8,
    envelopes: U16,
    units: U16,
    unit_bytes: U32,
    first_sequence: U64,
}

impl Params {
    pub const fn encode(&self) -> [u8; PARAMS] {
        zerocopy::transmute!(Encoded {
            magic: *b"TW",
            version: wire::VERSION,
            reserved: 0,
            envelopes: U16::new(self.envelopes),
            units: U16::new(self.units),
            unit_bytes: U32::new(self.unit_bytes),
            first_sequence: U64::new(self.first_sequence),
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        let told = Encoded::ref_from_bytes(bytes).ok().filter(|told| told.magic == *b"TW");
        let told = told.ok_or(Unreachable::BadCard)?;
        if told.version != wire::VERSION {
            return Err(Unreachable::Version);
        }
        Ok(Self {
            envelopes: told.envelopes.get(),
            units: told.units.get(),
            unit_bytes: told.unit_bytes.get(),
            first_sequence: told.first_sequence.get(),
        })
    }
}
