//! A device: frames into and from its memory.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use ipv4::Card;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::{MmioTransport, VirtIOHeader};
use virtio_drivers::transport::{DeviceType, Transport};

use crate::interrupts;
use crate::pool::Pool;

/// The most devices of a machine that are used.
pub const LINKS: usize = 2;
/// Bytes of the longest frame.
pub const FRAME: usize = 1514;
/// Frames that the device may have received and the program has not taken.
const QUEUE: usize = 16;
/// Frames that the device may have taken and not sent.
const SENDS: usize = 8;
/// Bytes of a buffer: a frame, and the header of the device.
const BUFFER: usize = 2048;

type Driver = VirtIONetRaw<Pool, MmioTransport<'static>, QUEUE>;

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

/// Memory for the frames of a device.
struct Buffers {
    received: [[u8; BUFFER]; QUEUE],
    outgoing: [[u8; BUFFER]; SENDS],
}

/// Memory for the frames of all devices.
struct Memory(UnsafeCell<[Buffers; LINKS]>);

// SAFETY: `find` gives the memory to devices once.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new(
    [const { Buffers { received: [[0; BUFFER]; QUEUE], outgoing: [[0; BUFFER]; SENDS] } }; LINKS],
));
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A network device.
pub struct Nic {
    driver: Driver,
    own: [u8; 6],
    /// The device writes to a buffer from `receive_begin` to `receive_complete`.
    received: &'static mut [[u8; BUFFER]; QUEUE],
    /// The driver's name of each buffer that the device has.
    tokens: [Option<u16>; QUEUE],
    /// The buffer of the last frame that was taken. The device gets it back before the next one is taken.
    read: Option<usize>,
    outgoing: Outgoing,
}

/// Frames to send.
struct Outgoing {
    /// The device reads a buffer from `transmit_begin` to `transmit_complete`.
    buffers: &'static mut [[u8; BUFFER]; SENDS],
    /// The driver's name of each buffer that the device has, and the bytes that it has of it.
    sending: [Option<(u16, usize)>; SENDS],
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("address", &self.own).finish_non_exhaustive()
    }
}

impl Nic {
    /// The network devices of a machine, in the order of their Ethernet addresses. The second call finds none.
    ///
    /// # Safety
    /// The machine has virtio devices in these slots, or nothing that reading changes. Memory is mapped to its own address.
    pub unsafe fn find(slots: Slots) -> [Option<Self>; LINKS] {
        let mut found = [const { None }; LINKS];
        if TAKEN.swap(true, Ordering::AcqRel) {
            return found;
        }
        // SAFETY: only the first call gets here.
        let memory = unsafe { &mut *MEMORY.0.get() };
        // SAFETY: the caller guarantees what is in the slots.
        let drivers = (0..slots.count)
            .filter_map(|slot| Some((slot, unsafe { driver(slots.base + slot * slots.step, slots.step) }?)));
        for ((place, memory), (slot, driver)) in found.iter_mut().zip(memory).zip(drivers) {
            *place = Some(Self::start(driver, memory));
            interrupts::uses(slot);
        }
        found.sort_unstable_by_key(|nic| (nic.is_none(), nic.as_ref().map(|nic| nic.own)));
        found
    }

    fn start(driver: Driver, Buffers { received, outgoing }: &'static mut Buffers) -> Self {
        let outgoing = Outgoing { buffers: outgoing, sending: [None; SENDS] };
        let own = driver.mac_address();
        let mut this = Self { driver, own, received, tokens: [None; QUEUE], read: None, outgoing };
        this.driver.enable_interrupts(); // they end waits
        (0..QUEUE).for_each(|index| this.post(index));
        this
    }

    /// Gives a buffer to the device.
    fn post(&mut self, index: usize) {
        if let (Some(buffer), Some(token)) = (self.received.get_mut(index), self.tokens.get_mut(index)) {
            // SAFETY: the buffer is static, and is accessed after `receive_complete` only.
            *token = unsafe { self.driver.receive_begin(buffer) }.ok();
        }
    }

    /// Takes the next frame that has arrived, and returns what sends one, too. Returns `None` without a frame, or if the device takes no
    /// frame to send.
    pub fn take(&mut self) -> Option<(Received<'_>, Room<'_>)> {
        if let Some(index) = self.read.take() {
            self.post(index);
        }
        let free = self.outgoing.free(&mut self.driver)?;
        let token = self.driver.poll_receive()?;
        let index = self.tokens.iter().position(|known| *known == Some(token))?;
        let buffer = self.received.get_mut(index)?;
        self.read = Some(index);
        // SAFETY: this is the buffer that was given to the device with this token.
        let received = unsafe { self.driver.receive_complete(token, buffer) };
        let frame = received.ok().and_then(|(begin, len)| buffer.get(begin..)?.get(..len));
        let room = Room { driver: &mut self.driver, outgoing: &mut self.outgoing, index: free };
        Some((Received(frame.unwrap_or_default()), room))
    }

    /// Room for a frame to send. Returns `None` if the device takes none.
    pub fn make_room(&mut self) -> Option<Room<'_>> {
        let index = self.outgoing.free(&mut self.driver)?;
        Some(Room { driver: &mut self.driver, outgoing: &mut self.outgoing, index })
    }
}

/// The driver of the device at this address, if it is a network device that starts.
///
/// # Safety
/// As for [`Nic::find`].
unsafe fn driver(base: usize, bytes: usize) -> Option<Driver> {
    let header = NonNull::new(base as *mut VirtIOHeader)?;
    // SAFETY: the caller guarantees that the slot may be accessed.
    let transport = unsafe { MmioTransport::new(header, bytes) }.ok()?;
    let is_network = transport.device_type() == DeviceType::Network;
    is_network.then(|| VirtIONetRaw::new(transport).ok())?
}

impl Outgoing {
    /// Takes back the buffers of frames that were sent.
    fn reclaim(&mut self, driver: &mut Driver) {
        while let Some(token) = driver.poll_transmit() {
            let is_it = |sending: &Option<(u16, usize)>| sending.is_some_and(|(known, _)| known == token);
            let Some(index) = self.sending.iter().position(is_it) else { return };
            let (Some(buffer), Some(sending)) = (self.buffers.get(index), self.sending.get_mut(index)) else { return };
            let Some(frame) = sending.take().and_then(|(_, len)| buffer.get(..len)) else { return };
            // SAFETY: this is the buffer that was given to the device with this token. An error of the device loses the frame.
            let _ = unsafe { driver.transmit_complete(token, frame) };
        }
    }

    /// A buffer that the device does not have.
    fn free(&mut self, driver: &mut Driver) -> Option<usize> {
        self.reclaim(driver);
        self.sending.iter().position(Option::is_none)
    }
}

impl Card for Nic {
    fn address(&self) -> [u8; 6] {
        self.own
    }

    fn capacity(&self) -> usize {
        SENDS
    }

    fn room(&mut self) -> usize {
        self.outgoing.reclaim(&mut self.driver);
        self.outgoing.sending.iter().filter(|sending| sending.is_none()).count()
    }

    fn has_arrived(&mut self) -> bool {
        self.driver.poll_receive().is_some()
    }
}

impl Device for Nic {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_>)> {
        self.take()
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        self.make_room()
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

/// A frame that has arrived.
#[derive(Debug)]
pub struct Received<'a>(pub &'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// Room for a frame to send.
pub struct Room<'a> {
    driver: &'a mut Driver,
    outgoing: &'a mut Outgoing,
    /// A buffer that the device does not have.
    index: usize,
}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("index", &self.index).finish_non_exhaustive()
    }
}

impl TxToken for Room<'_> {
    /// Sends a frame of `len` bytes, at most [`FRAME`], which `write` writes.
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let Self { driver, outgoing, index } = self;
        let buffer = &mut outgoing.buffers[index];
        let begin = driver.fill_buffer_header(buffer).unwrap_or_default();
        let end = begin + len;
        let result = write(&mut buffer[begin..end]);
        // SAFETY: the buffer is static, and does not change before `transmit_complete`. A frame that the device refuses is lost, and
        // the link sends it again.
        outgoing.sending[index] = unsafe { driver.transmit_begin(&buffer[..end]) }.ok().map(|token| (token, end));
        result
    }
}
