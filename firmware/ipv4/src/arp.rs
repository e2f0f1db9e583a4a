//! Requests of ARP (RFC 826).

use core::net::Ipv4Addr;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr};

/// Bytes of a frame with a request.
pub const BYTES: usize = 14 + 28;

/// The request for the Ethernet address of `asked`.
pub const fn request(ethernet: [u8; 6], ip: Ipv4Addr, asked: Ipv4Addr) -> ArpRepr {
    ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(ethernet),
        source_protocol_addr: ip,
        target_hardware_addr: EthernetAddress::BROADCAST,
        target_protocol_addr: asked,
    }
}

/// Writes the frame with a request to all, of [`BYTES`] bytes.
pub fn write(request: &ArpRepr, ethernet: [u8; 6], into: &mut [u8]) {
    let header = EthernetRepr {
        src_addr: EthernetAddress(ethernet),
        dst_addr: EthernetAddress::BROADCAST,
        ethertype: EthernetProtocol::Arp,
    };
    let mut frame = EthernetFrame::new_unchecked(into);
    header.emit(&mut frame);
    request.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
}
