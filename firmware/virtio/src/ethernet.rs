//! Datagrams as Ethernet frames.

use datagram::{Address, Interface};
use ipv4::Card;
use smoltcp::phy::TxToken;

use crate::nic::{FRAME, Nic, Received};

/// Bytes of the header of an Ethernet frame.
const HEADER: usize = 14;
/// The most bytes after that header.
const PAYLOAD: usize = FRAME - HEADER;
/// The ethertype for local experiments (IEEE 802, annex on ethertypes for prototypes).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Most frames of others that one call of `receive` drops.
const DROPS: usize = 16;

/// A device whose datagrams are the bytes after the header of frames of an ethertype of our own.
#[derive(Debug)]
pub struct Ethernet(pub Nic);

impl Interface for Ethernet {
    fn address(&self) -> Address {
        Address::of_six(self.0.address())
    }

    fn longest(&self) -> usize {
        PAYLOAD
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn room(&mut self) -> usize {
        self.0.room()
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let own = self.0.address();
        let (Ok(to), true) = (<[u8; 6]>::try_from(to.bytes()), datagram.len() <= PAYLOAD) else { return };
        let Some(room) = self.0.make_room() else { return };
        let parts = [&to[..], &own[..], &ETHERTYPE[..], datagram];
        room.consume(HEADER + datagram.len(), |frame| {
            let mut rest = frame;
            for part in parts {
                let (begin, after) = rest.split_at_mut(part.len());
                begin.copy_from_slice(part);
                rest = after;
            }
        });
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        let own = self.0.address();
        for _ in 0..DROPS {
            let (Received(frame), _) = self.0.take()?;
            if let Some((payload, from)) = read(frame, own)
                && let Some(into) = into.get_mut(..payload.len())
            {
                into.copy_from_slice(payload);
                return Some((payload.len(), Address::of_six(from)));
            }
        }
        None
    }

    fn has_arrived(&mut self) -> bool {
        self.0.has_arrived()
    }
}

/// The datagram in a frame, and its sender, if the frame is for this device.
fn read(frame: &[u8], own: [u8; 6]) -> Option<(&[u8], [u8; 6])> {
    let (to, rest) = frame.split_first_chunk::<6>()?;
    let (from, rest) = rest.split_first_chunk::<6>()?;
    let (ethertype, payload) = rest.split_first_chunk::<2>()?;
    (*to == own && *ethertype == ETHERTYPE).then_some((payload, *from))
}
