//! Which of the two a device is for: Ethernet frames, or UDP over IPv4.

use core::cell::UnsafeCell;

use datagram::{Address, Interface};
use ipv4::{Bytes, Memory, Tables, Udp};

use crate::ethernet::Ethernet;
use crate::nic::{LINKS, Nic, Slots};

/// Memory of all devices.
struct Shared<T>(UnsafeCell<[T; LINKS]>);

// SAFETY: `find` gives the memory to devices once.
unsafe impl<T> Sync for Shared<T> {}

static TABLES: Shared<Tables> = Shared(UnsafeCell::new([const { Tables::new() }; LINKS]));
static BYTES: Shared<Bytes> = Shared(UnsafeCell::new([const { Bytes::new() }; LINKS]));

/// A network device. Its Ethernet address is its configuration: it speaks UDP if that address has an IPv4 address in it
/// ([`ipv4::address`]), and Ethernet frames with an ethertype of our own with any other.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap")]
pub enum Network {
    /// Datagrams are Ethernet frames.
    Ethernet(Ethernet),
    /// Datagrams are those of UDP.
    Udp(Udp<Nic>),
}

impl Network {
    /// The network devices of a machine, in the order of their Ethernet addresses. `micros` returns the microseconds since a fixed moment.
    /// The second call finds none.
    ///
    /// # Safety
    /// As for [`Nic::find`].
    pub unsafe fn find(slots: Slots, micros: fn() -> u64) -> [Option<Self>; LINKS] {
        // SAFETY: the caller guarantees it.
        let mut devices = unsafe { Nic::find(slots) };
        let mut found = [const { None }; LINKS];
        for (at, (device, place)) in devices.iter_mut().zip(&mut found).enumerate() {
            let Some(device) = device.take() else { continue };
            // SAFETY: devices are found in the first call only, and each gets another place.
            let (tables, bytes) =
                unsafe { (&mut *TABLES.0.get().cast::<Tables>().add(at), &mut *BYTES.0.get().cast::<Bytes>().add(at)) };
            let memory = Memory { tables, bytes };
            *place = Some(match Udp::new(device, memory, micros) {
                Ok(udp) => Self::Udp(udp),
                Err(device) => Self::Ethernet(Ethernet(device)),
            });
        }
        found
    }
}

/// `either!(network, it => call)` evaluates `call` with `it` as a reference to the interface.
macro_rules! either {
    ($network:expr, $it:ident => $call:expr) => {
        match $network {
            Network::Ethernet($it) => $call,
            Network::Udp($it) => $call,
        }
    };
}

impl Interface for Network {
    fn address(&self) -> Address {
        either!(self, it => it.address())
    }

    fn longest(&self) -> usize {
        either!(self, it => it.longest())
    }

    fn capacity(&self) -> usize {
        either!(self, it => it.capacity())
    }

    fn room(&mut self) -> usize {
        either!(self, it => it.room())
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        either!(self, it => it.send(to, datagram));
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        either!(self, it => it.receive(into))
    }

    fn has_arrived(&mut self) -> bool {
        either!(self, it => it.has_arrived())
    }
}
