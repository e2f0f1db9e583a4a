//! The interface.

use core::fmt;
use core::net::Ipv4Addr;

use datagram::{Address, Interface};
use smoltcp::iface::{Config, Interface as Stack, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::TxToken as _;
use smoltcp::socket::udp::{PacketBuffer, Socket};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, IpEndpoint, IpListenEndpoint};

use crate::address::{NETWORK_BITS, PORT, next_hop, of_ethernet, router_of};
use crate::arp;
use crate::card::Card;
use crate::memory::{LONGEST, Memory, PEERS, WAITING};

/// Most frames without a datagram for this interface that one call of `receive` handles, so that a flood of them does not keep the
/// caller.
const FRAMES: usize = 16;

/// Microseconds until the address of a receiver is asked for again. It doubles each time, up to the other one.
const ASK: u64 = 20_000;
const MOST_ASK: u64 = 1_000_000;

/// UDP over a card.
///
/// A datagram whose receiver's Ethernet address is not known waits in the socket until ARP has found it. So each receiver has a socket of
/// its own: one that has died, and answers no ARP, delays no other. The stack asks for one address in a second, and always for that of
/// the first socket. So this interface asks for addresses, too.
pub struct Udp<C> {
    card: C,
    stack: Stack,
    sockets: SocketSet<'static>,
    receiver: SocketHandle,
    senders: [Sender; PEERS],
    /// The sender that the next new address takes.
    next: usize,
    /// Some datagrams wait in their sockets.
    waits: bool,
    address: Ipv4Addr,
    micros: fn() -> u64,
}

/// A socket for datagrams to one address.
#[derive(Clone, Copy, Debug)]
struct Sender {
    socket: SocketHandle,
    to: Option<Address>,
    /// If a datagram waits: when its receiver's address is asked for, in microseconds, and how long it was waited before.
    ask: Option<(u64, u64)>,
}

impl<C> fmt::Debug for Udp<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Udp").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The address of a datagram's sender or receiver: 4 bytes of IPv4, and 2 of the port.
fn address_of(ip: Ipv4Addr, port: u16) -> Address {
    let ([a, b, c, d], [high, low]) = (ip.octets(), port.to_be_bytes());
    Address::of_six([a, b, c, d, high, low])
}

fn endpoint_of(address: &Address) -> Option<IpEndpoint> {
    let [a, b, c, d, high, low] = *address.bytes() else { return None };
    Some(IpEndpoint::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low])))
}

/// A queue that takes nothing.
fn nothing() -> PacketBuffer<'static> {
    PacketBuffer::new(&mut [][..], &mut [][..])
}

impl<C: Card> Udp<C> {
    /// The interface of a card, whose Ethernet address has its IPv4 address. `micros` returns the microseconds since a fixed moment.
    ///
    /// # Errors
    /// The card, if it has no IPv4 address.
    pub fn new(mut card: C, memory: Memory<'static>, micros: fn() -> u64) -> Result<Self, C> {
        let ethernet = card.address();
        let Some(address) = of_ethernet(ethernet) else { return Err(card) };
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(ethernet)));
        let mut stack = Stack::new(config, &mut card, now(micros));
        stack.update_ip_addrs(|addresses| {
            // There is room for an address.
            let _ = addresses.push(IpCidr::new(address.into(), NETWORK_BITS));
        });
        if router_of(address) != address {
            // There is room for a route.
            let _ = stack.routes_mut().add_default_ipv4_route(router_of(address));
        }
        let Memory { tables, bytes } = memory;
        let mut sockets = SocketSet::new(&mut tables.sockets[..]);
        let own = IpListenEndpoint { addr: Some(address.into()), port: PORT };
        // The first socket with an address gets all that arrives for it.
        let received = PacketBuffer::new(&mut tables.received[..], &mut bytes.received[..]);
        let receiver = sockets.add(bound(received, nothing(), own));
        let mut waiting = tables.waiting.iter_mut().zip(&mut bytes.waiting);
        let senders = [(); PEERS].map(|()| {
            let queue = waiting.next().map(|(entries, bytes)| PacketBuffer::new(&mut entries[..], &mut bytes[..]));
            Sender { socket: sockets.add(bound(nothing(), queue.unwrap_or_else(nothing), own)), to: None, ask: None }
        });
        Ok(Self { card, stack, sockets, receiver, senders, next: 0, waits: false, address, micros })
    }

    /// The card.
    pub const fn card(&self) -> &C {
        &self.card
    }

    /// The socket for datagrams to an address. Beyond the limit of addresses it takes that of another one, whose waiting datagrams are
    /// lost.
    fn sender(&mut self, to: &Address) -> Option<SocketHandle> {
        if let Some(known) = self.senders.iter().find(|sender| sender.to == Some(*to)) {
            return Some(known.socket);
        }
        let sender = self.senders.get_mut(self.next)?;
        self.next = (self.next + 1) % PEERS;
        (sender.to, sender.ask) = (Some(*to), None);
        let socket = self.sockets.get_mut::<Socket<'_>>(sender.socket);
        let own = socket.endpoint();
        socket.close();
        // It was bound to the same address before.
        let _ = socket.bind(own);
        Some(sender.socket)
    }

    /// Sends what waits, and asks for the addresses of the receivers of what goes on waiting.
    fn transmit(&mut self) {
        for _ in 0..WAITING {
            let result = self.stack.poll_egress(now(self.micros), &mut self.card, &mut self.sockets);
            if result == PollResult::None {
                break;
            }
        }
        let (micros, own) = ((self.micros)(), self.card.address());
        self.waits = false;
        for sender in &mut self.senders {
            if self.sockets.get::<Socket<'_>>(sender.socket).send_queue() == 0 {
                sender.ask = None;
                continue;
            }
            self.waits = true;
            // The stack asks first.
            let (at, wait) = *sender.ask.get_or_insert((micros.saturating_add(ASK), ASK));
            let to = sender.to.as_ref().and_then(endpoint_of);
            let (true, Some(IpEndpoint { addr: IpAddress::Ipv4(to), .. })) = (micros >= at, to) else { continue };
            let wait = wait.saturating_mul(2).min(MOST_ASK);
            sender.ask = Some((micros.saturating_add(wait), wait));
            if let Some(room) = self.card.transmit(now(self.micros)) {
                let request = arp::request(own, self.address, next_hop(self.address, to));
                room.consume(arp::BYTES, |frame| arp::write(&request, own, frame));
            }
        }
    }
}

/// A socket.
fn bound(received: PacketBuffer<'static>, sent: PacketBuffer<'static>, to: IpListenEndpoint) -> Socket<'static> {
    let mut socket = Socket::new(received, sent);
    // The socket is new, and the port is not 0.
    let _ = socket.bind(to);
    socket
}

fn now(micros: fn() -> u64) -> Instant {
    Instant::from_micros(i64::try_from(micros()).unwrap_or(i64::MAX))
}

impl<C: Card> Interface for Udp<C> {
    fn address(&self) -> Address {
        address_of(self.address, PORT)
    }

    fn longest(&self) -> usize {
        LONGEST
    }

    fn capacity(&self) -> usize {
        self.card.capacity()
    }

    fn room(&mut self) -> usize {
        self.card.room()
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let Some(endpoint) = endpoint_of(to) else { return };
        let Some(socket) = self.sender(to) else { return };
        // A datagram for which there is no room is lost.
        let _ = self.sockets.get_mut::<Socket<'_>>(socket).send_slice(datagram, endpoint);
        self.transmit();
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        if self.waits {
            self.transmit();
        }
        for _ in 0..FRAMES {
            let socket = self.sockets.get_mut::<Socket<'_>>(self.receiver);
            if let Ok((bytes, about)) = socket.recv()
                && let Some(room) = into.get_mut(..bytes.len())
            {
                let IpAddress::Ipv4(ip) = about.endpoint.addr;
                room.copy_from_slice(bytes);
                return Some((bytes.len(), address_of(ip, about.endpoint.port)));
            }
            let result = self.stack.poll_ingress_single(now(self.micros), &mut self.card, &mut self.sockets);
            if result == PollIngressSingleResult::None {
                break;
            }
        }
        // An answer may have arrived.
        if self.waits {
            self.transmit();
        }
        None
    }

    fn has_arrived(&mut self) -> bool {
        self.sockets.get::<Socket<'_>>(self.receiver).can_recv() || self.card.has_arrived()
    }
}
