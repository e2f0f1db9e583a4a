//! The id of a work request: a word that the device returns with its completion.

/// The purpose of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkId {
    /// The receive buffer of this index.
    Receive(u32),
    /// The work request of this number in the send queue of a peer.
    Send { endpoint: u32, number: u32 },
    /// The receive buffer for hellos of this index.
    HelloReceive(u32),
    /// The send buffer for hellos of this index.
    HelloSend(u32),
}

impl WorkId {
    /// The word that is given to the device.
    #[inline]
    pub const fn word(self) -> u64 {
        match self {
            Self::Receive(buffer) => buffer as u64,
            Self::Send { endpoint, number } => 1 << 62 | (endpoint as u64) << 32 | number as u64,
            Self::HelloReceive(buffer) => 2 << 62 | buffer as u64,
            Self::HelloSend(buffer) => 3 << 62 | buffer as u64,
        }
    }

    /// The id of a word that the device returned.
    #[inline]
    pub const fn of(word: u64) -> Self {
        match word >> 62 {
            0 => Self::Receive(word as u32),
            1 => Self::Send { endpoint: (word >> 32) as u32 & 0x3fff_ffff, number: word as u32 },
            2 => Self::HelloReceive(word as u32),
            _ => Self::HelloSend(word as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sizes::MAX_ENDPOINTS;

    #[test]
    fn an_id_survives_its_word() {
        let last = u32::MAX >> 2;
        for id in [
            WorkId::Receive(0),
            WorkId::Receive(u32::MAX),
            WorkId::Send { endpoint: 0, number: u32::MAX },
            WorkId::Send { endpoint: last, number: 0 },
            WorkId::HelloReceive(7),
            WorkId::HelloSend(u32::MAX),
        ] {
            assert_eq!(WorkId::of(id.word()), id);
        }
        assert_eq!(last, MAX_ENDPOINTS - 1);
    }
}
