//! The interface.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use datagram::{Address, Interface};
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};

use crate::pool::Pool;

/// Frames that the device may have received and the program has not taken.
const QUEUE: usize = 16;
/// Bytes of a buffer: a frame, and the header of the device.
const BUFFER: usize = 2048;
/// Bytes of the header of an Ethernet frame.
const HEADER: usize = 14;
/// The most bytes after that header.
const PAYLOAD: usize = 1500;
/// The ethertype for local experiments (IEEE 802, annex on ethertypes for prototypes).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Where the machine has its virtio devices.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// The address of the first one.
    pub base: usize,
    /// The distance of two.
    pub step: usize,
    /// Their number.
    pub count: usize,
}

/// Memory for received frames.
struct Buffers(UnsafeCell<[[u8; BUFFER]; QUEUE]>);

// SAFETY: `find` gives the memory to one interface.
unsafe impl Sync for Buffers {}

static BUFFERS: Buffers = Buffers(UnsafeCell::new([[0; BUFFER]; QUEUE]));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A network device.
pub struct Ethernet {
    device: VirtIONetRaw<Pool, MmioTransport<'static>, QUEUE>,
    /// The device writes to a buffer from `receive_begin` to `receive_complete`.
    buffers: &'static mut [[u8; BUFFER]; QUEUE],
    /// The driver's name of each buffer that the device has.
    tokens: [Option<u16>; QUEUE],
    own: [u8; 6],
    outgoing: [u8; HEADER + PAYLOAD],
}

impl core::fmt::Debug for Ethernet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ethernet").field("address", &self.own).finish_non_exhaustive()
    }
}

impl Ethernet {
    /// The first network device of a machine. Returns `None` if there is none, if it does not start, or in the second call.
    ///
    /// # Safety
    /// The machine has virtio devices in these slots, or nothing that reading changes. Memory is mapped to its own address.
    pub unsafe fn find(slots: Slots) -> Option<Self> {
        for slot in 0..slots.count {
            let header = NonNull::new((slots.base + slot * slots.step) as *mut VirtIOHeader)?;
            // SAFETY: the caller guarantees that the slot may be accessed.
            let Ok(transport) = (unsafe { MmioTransport::new(header, slots.step) }) else { continue };
            if transport.device_type() != DeviceType::Network {
                continue;
            }
            if TAKEN.swap(true, Ordering::AcqRel) {
                return None;
            }
            let mut device = VirtIONetRaw::new(transport).ok()?;
            device.disable_interrupts();
            let own = device.mac_address();
            // SAFETY: only the first call gets here.
            let buffers = unsafe { &mut *BUFFERS.0.get() };
            let mut ethernet = Self { device, buffers, tokens: [None; QUEUE], own, outgoing: [0; HEADER + PAYLOAD] };
            (0..QUEUE).for_each(|index| ethernet.post(index));
            return Some(ethernet);
        }
        None
    }

    /// Gives a buffer to the device.
    fn post(&mut self, index: usize) {
        if let (Some(buffer), Some(token)) = (self.buffers.get_mut(index), self.tokens.get_mut(index)) {
            // SAFETY: the buffer is static, and is accessed after `receive_complete` only.
            *token = unsafe { self.device.receive_begin(buffer) }.ok();
        }
    }
}

impl Interface for Ethernet {
    fn address(&self) -> Address {
        Address::of_six(self.own)
    }

    fn longest(&self) -> usize {
        PAYLOAD
    }

    fn capacity(&self) -> usize {
        1
    }

    fn room(&mut self) -> usize {
        1 // `send` returns when the device has taken the frame
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let frame = self.outgoing.get_mut(..HEADER.saturating_add(datagram.len()));
        let Some(([to_bytes, own, ethertype], payload)) = frame.and_then(split) else { return };
        let [a, b, c, d, e, f] = *to.bytes() else { return };
        to_bytes.copy_from_slice(&[a, b, c, d, e, f]);
        own.copy_from_slice(&self.own);
        ethertype.copy_from_slice(&ETHERTYPE);
        payload.iter_mut().zip(datagram).for_each(|(to, byte)| *to = *byte);
        if let Some(frame) = self.outgoing.get(..HEADER.saturating_add(datagram.len())) {
            // A frame that the device refuses is lost, and the link sends it again.
            let _ = self.device.send(frame);
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        loop {
            let token = self.device.poll_receive()?;
            let index = self.tokens.iter().position(|known| *known == Some(token))?;
            let buffer = self.buffers.get_mut(index)?;
            // SAFETY: this is the buffer that was given to the device with this token.
            let received = unsafe { self.device.receive_complete(token, buffer) };
            let accepted = received.ok().and_then(|(begin, len)| {
                let frame = buffer.get(begin..)?.get(..len)?;
                let (to, rest) = frame.split_first_chunk::<6>()?;
                let (from, rest) = rest.split_first_chunk::<6>()?;
                let (ethertype, payload) = rest.split_first_chunk::<2>()?;
                let is_mine = *to == self.own && *ethertype == ETHERTYPE;
                into.get_mut(..payload.len()).filter(|_| is_mine)?.copy_from_slice(payload);
                Some((payload.len(), Address::of_six(*from)))
            });
            self.post(index);
            if accepted.is_some() {
                return accepted;
            }
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.device.poll_receive().is_some()
    }
}

/// The parts of an Ethernet frame: destination, source and ethertype; payload.
fn split(frame: &mut [u8]) -> Option<([&mut [u8]; 3], &mut [u8])> {
    let (to, rest) = frame.split_at_mut_checked(6)?;
    let (from, rest) = rest.split_at_mut_checked(6)?;
    let (ethertype, payload) = rest.split_at_mut_checked(2)?;
    Some(([to, from, ethertype], payload))
}
