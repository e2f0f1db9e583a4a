//! The packets of IPv4 that the relay makes and reads, since a process takes datagrams of UDP, and a machine takes Ethernet frames. For
//! processes it answers ARP. The bytes are read and written by `smoltcp`.

use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol,
    Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

/// The port of a DPU, as in `firmware/ipv4`.
pub const PORT: u16 = 61_100;
/// What the Ethernet address of a DPU with an IPv4 address begins with, as in `firmware/ipv4`.
const WITH_IPV4: [u8; 2] = [0x02, 0x42];
/// Routers that a packet may pass.
const HOP_LIMIT: u8 = 64;

/// A DPU at a link, as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its Ethernet address.
    pub ethernet: [u8; 6],
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
}

impl End {
    /// The end with this IPv4 address.
    pub const fn with(ip: Ipv4Addr) -> Self {
        let ([a, b], [c, d, e, f]) = (WITH_IPV4, ip.octets());
        Self { ethernet: [a, b, c, d, e, f], ip }
    }
}

/// The frame that carries a datagram.
pub fn wrap(from: &End, to: &End, datagram: &[u8]) -> Vec<u8> {
    let checks = ChecksumCapabilities::default();
    let udp = UdpRepr { src_port: PORT, dst_port: PORT };
    let ip = Ipv4Repr {
        src_addr: from.ip,
        dst_addr: to.ip,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + datagram.len(),
        hop_limit: HOP_LIMIT,
    };
    let ethernet = ethernet(from.ethernet, to.ethernet, EthernetProtocol::Ipv4);
    let mut bytes = vec![0; ethernet.buffer_len() + ip.buffer_len() + ip.payload_len];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.emit(&mut frame);
    let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
    ip.emit(&mut packet, &checks);
    let mut inner = UdpPacket::new_unchecked(packet.payload_mut());
    let [source, destination] = [ip.src_addr.into(), ip.dst_addr.into()];
    udp.emit(&mut inner, &source, &destination, datagram.len(), |room| room.copy_from_slice(datagram), &checks);
    bytes
}

/// The datagram in a frame, if it is one from the first end to the second.
pub fn unwrap<'f>(frame: &'f [u8], from: &End, to: &End) -> Option<&'f [u8]> {
    let checks = ChecksumCapabilities::default();
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Ipv4 || frame.dst_addr().0 != to.ethernet {
        return None;
    }
    let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let ip = Ipv4Repr::parse(&packet, &checks).ok()?;
    if ip.next_header != IpProtocol::Udp || (ip.src_addr, ip.dst_addr) != (from.ip, to.ip) {
        return None;
    }
    let inner = UdpPacket::new_checked(packet.payload()).ok()?;
    let udp = UdpRepr::parse(&inner, &ip.src_addr.into(), &ip.dst_addr.into(), &checks).ok()?;
    ((udp.src_port, udp.dst_port) == (PORT, PORT)).then(|| inner.payload())
}

/// The answer of an end to a frame that asks for its Ethernet address.
pub fn answer(frame: &[u8], asked: &End) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Arp {
        return None;
    }
    let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
        ArpRepr::parse(&ArpPacket::new_checked(frame.payload()).ok()?).ok()?
    else {
        return None;
    };
    if operation != ArpOperation::Request || target_protocol_addr != asked.ip {
        return None;
    }
    let reply = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(asked.ethernet),
        source_protocol_addr: asked.ip,
        target_hardware_addr: source_hardware_addr,
        target_protocol_addr: source_protocol_addr,
    };
    let ethernet = ethernet(asked.ethernet, source_hardware_addr.0, EthernetProtocol::Arp);
    let mut bytes = vec![0; ethernet.buffer_len() + reply.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.emit(&mut frame);
    reply.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    Some(bytes)
}

const fn ethernet(from: [u8; 6], to: [u8; 6], ethertype: EthernetProtocol) -> EthernetRepr {
    EthernetRepr { src_addr: EthernetAddress(from), dst_addr: EthernetAddress(to), ethertype }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: End = End::with(Ipv4Addr::new(192, 0, 2, 1));
    const TWO: End = End::with(Ipv4Addr::new(192, 0, 2, 2));

    /// The bytes are those of the standards: RFC 894, 791 and 768.
    #[test]
    fn a_datagram_is_a_frame_of_ipv4_and_back() {
        let frame = wrap(&ONE, &TWO, b"hello");
        let expected = [
            &[0x02, 0x42, 192, 0, 2, 2, 0x02, 0x42, 192, 0, 2, 1, 0x08, 0x00][..],
            &[0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17],
            &[0xb6, 0xc8, 192, 0, 2, 1, 192, 0, 2, 2],
            &[0xee, 0xac, 0xee, 0xac, 0, 13, 0x5a, 0xa4],
            b"hello",
        ];
        let expected = expected.concat();
        assert_eq!(frame, expected);
        assert_eq!(unwrap(&frame, &ONE, &TWO), Some(&b"hello"[..]));
        assert_eq!(unwrap(&frame, &TWO, &ONE), None);
        for at in 0..frame.len() {
            let mut wrong = frame.clone();
            wrong[at] ^= 0x10;
            // The sender's Ethernet address proves nothing, and is not read.
            assert_eq!(unwrap(&wrong, &ONE, &TWO).is_some(), (6..12).contains(&at), "byte {at}");
            assert_eq!(unwrap(&frame[..at], &ONE, &TWO), None);
        }
    }

    /// The bytes are those of RFC 826.
    #[test]
    fn arp_is_answered_by_the_end_that_is_asked() {
        let request = [
            &[0xff; 6][..],
            &ONE.ethernet,
            &[0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1],
            &ONE.ethernet,
            &[192, 0, 2, 1],
            &[0; 6],
            &[192, 0, 2, 2],
        ];
        let request = request.concat();
        let reply = [
            &ONE.ethernet[..],
            &TWO.ethernet,
            &[0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 2],
            &TWO.ethernet,
            &[192, 0, 2, 2],
            &ONE.ethernet,
            &[192, 0, 2, 1],
        ];
        let reply = reply.concat();
        assert_eq!(answer(&request, &TWO), Some(reply.clone()));
        assert_eq!(answer(&request, &ONE), None);
        assert_eq!(answer(&reply, &ONE), None);
        assert_eq!(answer(&wrap(&ONE, &TWO, b"hello"), &TWO), None);
        assert_eq!(answer(&request[..40], &TWO), None);
    }
}
