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
/// Frames that the device may have taken and not sent.
const SENDS: usize = 8;
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

/// Memory for frames.
struct Buffers<const N: usize>(UnsafeCell<[[u8; BUFFER]; N]>);

// SAFETY: `find` gives the memory to one interface.
unsafe impl<const N: usize> Sync for Buffers<N> {}

static RECEIVED: Buffers<QUEUE> = Buffers(UnsafeCell::new([[0; BUFFER]; QUEUE]));
static OUTGOING: Buffers<SENDS> = Buffers(UnsafeCell::new([[0; BUFFER]; SENDS]));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A network device.
pub struct Ethernet {
    device: VirtIONetRaw<Pool, MmioTransport<'static>, QUEUE>,
    /// The device writes to a buffer from `receive_begin` to `receive_complete`.
    buffers: &'static mut [[u8; BUFFER]; QUEUE],
    /// The driver's name of each buffer that the device has.
    tokens: [Option<u16>; QUEUE],
    own: [u8; 6],
    /// The device reads a buffer from `transmit_begin` to `transmit_complete`.
    outgoing: &'static mut [[u8; BUFFER]; SENDS],
    /// The driver's name of each outgoing buffer that the device has, and the bytes that it has of it.
    sending: [Option<(u16, usize)>; SENDS],
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
            let (buffers, outgoing) = unsafe { (&mut *RECEIVED.0.get(), &mut *OUTGOING.0.get()) };
            let (tokens, sending) = ([None; QUEUE], [None; SENDS]);
            let mut ethernet = Self { device, buffers, tokens, own, outgoing, sending };
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

impl Ethernet {
    /// Takes back the buffers of frames that were sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.device.poll_transmit() {
            let is_it = |sending: &Option<(u16, usize)>| sending.is_some_and(|(known, _)| known == token);
            let Some(index) = self.sending.iter().position(is_it) else { return };
            let (Some(buffer), Some(sending)) = (self.outgoing.get(index), self.sending.get_mut(index)) else { return };
            let Some(frame) = sending.take().and_then(|(_, len)| buffer.get(..len)) else { return };
            // SAFETY: this is the buffer that was given to the device with this token. An error of the device loses the frame.
            let _ = unsafe { self.device.transmit_complete(token, frame) };
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
        SENDS
    }

    fn room(&mut self) -> usize {
        self.reclaim();
        self.sending.iter().filter(|sending| sending.is_none()).count()
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let Some(index) = self.sending.iter().position(Option::is_none) else { return };
        let (Some(buffer), Some(sending)) = (self.outgoing.get_mut(index), self.sending.get_mut(index)) else { return };
        let Ok(begin) = self.device.fill_buffer_header(buffer) else { return };
        let len = begin.saturating_add(HEADER).saturating_add(datagram.len());
        let frame = buffer.get_mut(begin..len);
        let Some(([to_bytes, own, ethertype], payload)) = frame.and_then(split) else { return };
        let [a, b, c, d, e, f] = *to.bytes() else { return };
        to_bytes.copy_from_slice(&[a, b, c, d, e, f]);
        own.copy_from_slice(&self.own);
        ethertype.copy_from_slice(&ETHERTYPE);
        payload.copy_from_slice(datagram);
        let Some(frame) = buffer.get(..len) else { return };
        // SAFETY: the buffer is static, and does not change before `transmit_complete`. A frame that the device refuses is lost, and
        // the link sends it again.
        *sending = unsafe { self.device.transmit_begin(frame) }.ok().map(|token| (token, len));
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
