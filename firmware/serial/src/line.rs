//! One end of a serial line.

use datagram::{Address, Interface};
use embedded_io::{Read, ReadReady, Write, WriteReady};
use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::copy_slice;
use towline_core::link::Checksum;

use crate::counters::{Counters, count};
use crate::incoming::{Ended, Incoming};
use crate::outgoing::{Outgoing, encoded};

/// Bytes of a frame before the datagram: receiver and sender.
const ENDS: usize = 2;
/// Bytes of the checksum.
const SUM: usize = 4;
/// Most bytes that are read from the driver at a time.
const CHUNK: usize = 32;

/// A driver of a serial line: every type with these traits of `embedded-io`. The line asks `read_ready` before it reads, and
/// `write_ready` before it writes. It never calls `flush`, so a driver with a buffer has to send it without that.
pub trait Port: Read + ReadReady + Write + WriteReady {}

impl<P: Read + ReadReady + Write + WriteReady> Port for P {}

/// One end of a serial line, as an interface for datagrams.
#[derive(Debug)]
pub struct Line<'m, P, C> {
    port: P,
    /// The number of this end.
    me: u8,
    longest: usize,
    checksum: C,
    /// Bytes that were read from the driver, of which those before `next` were used.
    chunk: [u8; CHUNK],
    next: usize,
    read: usize,
    incoming: Incoming<'m>,
    outgoing: Outgoing<'m>,
    counters: Counters,
}

impl<'m, P, C> Line<'m, P, C> {
    /// The bytes that a line with datagrams of up to `longest` bytes takes from an arena.
    pub const fn bytes(longest: usize) -> usize {
        let frame = Self::frame(longest);
        Arena::cost::<u8>(frame).saturating_add(Arena::cost::<u8>(encoded(frame)))
    }

    /// The decoded bytes of a frame.
    const fn frame(longest: usize) -> usize {
        longest.saturating_add(ENDS + SUM)
    }

    /// The end with the number `me` of the line at a driver. All ends of the line have the same `longest`: the bytes of the longest
    /// datagram.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(port: P, me: u8, longest: usize, checksum: C, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let frame = Self::frame(longest);
        Ok(Self {
            port,
            me,
            longest,
            checksum,
            chunk: [0; CHUNK],
            next: 0,
            read: 0,
            incoming: Incoming::new(frame, arena)?,
            outgoing: Outgoing::new(frame, arena)?,
            counters: Counters::default(),
        })
    }

    /// The address of the end with a number.
    pub const fn end(number: u8) -> Address {
        Address::of_one(number)
    }

    /// Counts since set-up.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The driver.
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// Ends the line, and returns the driver.
    pub fn into_port(self) -> P {
        self.port
    }
}

impl<P: Port, C: Checksum> Line<'_, P, C> {
    /// Writes as much of the outgoing frame as the driver takes.
    fn write(&mut self) {
        while !self.outgoing.rest().is_empty() {
            let written = match self.port.write_ready() {
                Ok(true) => self.port.write(self.outgoing.rest()),
                Ok(false) => return,
                Err(error) => Err(error),
            };
            match written {
                Ok(0) => return,
                Ok(count) => self.outgoing.wrote(count),
                Err(_) => {
                    count(&mut self.counters.write_errors);
                    self.outgoing.drop_rest();
                }
            }
        }
    }

    /// The next byte that has arrived.
    fn next(&mut self) -> Option<u8> {
        if self.next >= self.read {
            let read = match self.port.read_ready() {
                Ok(true) => self.port.read(&mut self.chunk),
                Ok(false) => return None,
                Err(error) => Err(error),
            };
            self.next = 0;
            // After an error the line goes on: the checksum shows whether bytes of a frame are missing.
            self.read = read.unwrap_or_else(|_| {
                count(&mut self.counters.read_errors);
                0
            });
        }
        let byte = *self.chunk.get(..self.read)?.get(self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(byte)
    }

    /// Copies the datagram of a frame that has just ended. Returns `None` if it is damaged or for another end.
    fn accept(&mut self, len: usize, seen: u32, into: &mut [u8]) -> Option<(usize, Address)> {
        let frame = self.incoming.frame(len);
        let parts = frame.split_last_chunk::<SUM>().filter(|(content, sum)| {
            let expected = self.checksum.sum(0, content);
            u32::from_le_bytes(**sum) == expected
        });
        let Some(([to, from, datagram @ ..], _)) = parts else {
            self.drop_frame(seen);
            return None;
        };
        if *to != self.me {
            count(&mut self.counters.others);
            return None;
        }
        let (len, from) = (datagram.len(), *from);
        copy_slice(into.get_mut(..len)?, datagram);
        count(&mut self.counters.received);
        Some((len, Self::end(from)))
    }

    fn drop_frame(&mut self, seen: u32) {
        count(&mut self.counters.bad_frames);
        self.counters.bad_bytes = self.counters.bad_bytes.wrapping_add(seen);
    }
}

impl<P: Port, C: Checksum> Interface for Line<'_, P, C> {
    fn address(&self) -> Address {
        Self::end(self.me)
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn capacity(&self) -> usize {
        1
    }

    fn room(&mut self) -> usize {
        self.write();
        usize::from(self.outgoing.rest().is_empty())
    }

    fn send(&mut self, to: &Address, datagram: &[u8]) {
        let mut sent = false;
        if let [to] = to.bytes()
            && self.outgoing.rest().is_empty()
            && datagram.len() <= self.longest
        {
            let ends = [*to, self.me];
            let sum = self.checksum.sum(self.checksum.sum(0, &ends), datagram);
            sent = self.outgoing.encode([&ends, datagram, &sum.to_le_bytes()]);
        }
        count(if sent { &mut self.counters.sent } else { &mut self.counters.refused });
        self.write();
    }

    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)> {
        self.write();
        // The limit bounds the time of a call on a line that brings bytes faster than they are read.
        for _ in 0..encoded(Self::frame(self.longest)) {
            match self.next().map(|byte| self.incoming.feed(byte))? {
                Ended::Nothing => {}
                Ended::Bad { seen } => self.drop_frame(seen),
                Ended::Frame { len, seen } => {
                    if let Some(found) = self.accept(len, seen, into) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Also `true` while a frame is being written: the caller has to call again, so that the rest leaves.
    fn has_arrived(&mut self) -> bool {
        self.write();
        !self.outgoing.rest().is_empty() || self.next < self.read || self.port.read_ready().unwrap_or(true)
    }
}
