//! The post between cards of the example `firmware/example-nic`: the device's end of their frame devices, and the wire.

use std::ptr::NonNull;

use example_nic::frames::{BOX, BOXES, BYTES, DEVICE, DRIVER, FRAME, KNOWN, LENGTH, LONGEST, NUMBER, RESET};
use towline_host_tests::random::Random;
use towline_window::atomics::Ordering;
use towline_window::memory::Memory;

/// The device of a card.
struct Device {
    memory: Memory<'static>,
    /// The next box of each direction.
    outgoing: u64,
    incoming: u64,
}

impl Device {
    fn load(&self, at: u64) -> u32 {
        u32::from_le(self.memory.word(at).unwrap().load(Ordering::Acquire))
    }

    fn store(&self, at: u64, value: u32) {
        self.memory.word(at).unwrap().store(value.to_le(), Ordering::Release);
    }

    /// Empties all boxes, if the driver wants that.
    fn reset(&mut self) {
        if self.load(RESET) != 0 {
            (self.outgoing, self.incoming) = (0, 0);
            (0..BOXES).for_each(|number| self.store(place(number), DRIVER));
            (BOXES..2 * BOXES).for_each(|number| self.store(place(number), DEVICE));
            self.store(RESET, 0);
        }
    }

    /// Takes the next frame that the driver has sent, and the number of the other card.
    fn take(&mut self) -> Option<(usize, Vec<u8>)> {
        let at = place(self.outgoing);
        if self.load(at) != DEVICE {
            return None;
        }
        let length = self.load(at + LENGTH);
        let mut frame = vec![0; (length & 0xffff) as usize];
        assert!(frame.len() <= LONGEST, "the driver sends what fits into a box");
        self.memory.read(at + FRAME, &mut frame).unwrap();
        self.store(at, DRIVER);
        self.outgoing = (self.outgoing + 1) % BOXES;
        Some(((length >> 16) as usize, frame))
    }

    /// Gives a frame of another card to the driver. Without an empty box, the frame is lost.
    fn put(&mut self, from: usize, frame: &[u8]) {
        let at = place(BOXES + self.incoming);
        if self.load(at) == DEVICE {
            self.store(at + LENGTH, frame.len() as u32 | (from as u32) << 16);
            self.memory.write(at + FRAME, frame).unwrap();
            self.store(at, DRIVER);
            self.incoming = (self.incoming + 1) % BOXES;
        }
    }
}

fn place(number: u64) -> u64 {
    BOX * (1 + number)
}

/// The cards, and the wire between them.
pub struct Post {
    devices: Vec<Device>,
    /// How many frames of a thousand are lost.
    lose: u32,
    random: Random,
}

impl Post {
    /// Cards with their devices in these memories. They have the numbers 0, 1 and so on.
    pub fn new(memories: impl IntoIterator<Item = Memory<'static>>, lose: u32) -> Self {
        let device = |(number, memory): (u32, Memory<'static>)| {
            let device = Device { memory, outgoing: 0, incoming: 0 };
            device.store(NUMBER, number);
            device.store(0, KNOWN);
            // Boxes are the device's own until it is reset.
            (0..2 * BOXES).for_each(|number| device.store(place(number), 2));
            device
        };
        Self { devices: (0..).zip(memories).map(device).collect(), lose, random: Random::new(11) }
    }

    /// Moves the next frame of each card.
    pub fn pass(&mut self) {
        for from in 0..self.devices.len() {
            self.devices[from].reset();
            if let Some((to, frame)) = self.devices[from].take()
                && !self.random.chance(self.lose)
                && let Some(to) = self.devices.get_mut(to)
            {
                to.put(from, &frame);
            }
        }
    }
}

/// New memory for a device, which is never freed.
#[allow(dead_code, reason = "not every test that uses this module does this")]
pub fn memory() -> Memory<'static> {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u8; 64]);
    let lines = vec![Line([0; 64]); BYTES.div_ceil(64)].leak();
    // SAFETY: the memory is never freed, and is accessed by this address only.
    unsafe { Memory::new(NonNull::from(lines).cast(), BYTES) }.expect("a line is aligned")
}
