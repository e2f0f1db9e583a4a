//! Bytes that arrive on a serial line from anybody.

use std::collections::VecDeque;

use datagram::Interface;
use embedded_io::{ErrorKind, ErrorType, Read, ReadReady, Write, WriteReady};
use serial::Line;
use towline_core::arena::Arena;
use towline_core::link::SmallCrc32c;

/// Bytes of the longest datagram. Frames have several blocks of COBS.
const LONGEST: usize = 600;
/// The number of the end under test.
const ME: u8 = 1;

/// A driver with bytes that have arrived, and bytes that were written. It has room for a few bytes at a time.
#[derive(Default)]
struct Wire {
    arrived: VecDeque<u8>,
    written: Vec<u8>,
}

impl ErrorType for Wire {
    type Error = ErrorKind;
}

impl ReadReady for Wire {
    fn read_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(!self.arrived.is_empty())
    }
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, ErrorKind> {
        let len = into.len().min(self.arrived.len()).min(7);
        into.iter_mut().zip(self.arrived.drain(..len)).for_each(|(to, byte)| *to = byte);
        Ok(len)
    }
}

impl WriteReady for Wire {
    fn write_ready(&mut self) -> Result<bool, ErrorKind> {
        Ok(true)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        let len = bytes.len().min(5);
        self.written.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

fn line(wire: Wire, memory: &mut [u8]) -> Line<'_, Wire, SmallCrc32c> {
    Line::new(wire, ME, LONGEST, SmallCrc32c, &mut Arena::new(memory)).expect("the memory is large enough")
}

/// Runs one input as the bytes on a line. Each datagram that is accepted must be the content of a frame on the line. After any
/// input, the next frame arrives.
pub fn run(data: &[u8]) {
    let mut memory = [(); 3].map(|()| vec![0; Line::<Wire, SmallCrc32c>::bytes(LONGEST)]);
    let [first, second, third] = &mut memory;
    // The first half of the input is sent as a datagram, and the whole input is what came before on the line.
    let message = &data[..(data.len() / 2).min(LONGEST)];
    let mut sender = line(Wire::default(), first);
    let own = sender.address();
    sender.send(&own, message);
    let frame = sender.into_port().written;
    assert_eq!(frame.iter().filter(|byte| **byte == 0).count(), 2, "only the delimiters are zero");

    let mut receiver = line(Wire { arrived: data.iter().chain(&frame).copied().collect(), written: vec![] }, second);
    let mut datagrams = Vec::new();
    let mut into = [0; LONGEST];
    while receiver.has_arrived() {
        if let Some((len, from)) = receiver.receive(&mut into) {
            datagrams.push((into[..len].to_vec(), from));
        }
    }
    assert_eq!(datagrams.pop(), Some((message.to_vec(), own)), "the frame after the input");

    // A datagram that was accepted, sent again by its sender, is a frame of the input.
    for (datagram, from) in datagrams {
        let [number] = *from.bytes() else { panic!("{from:?} is no end of a line") };
        let again = Line::new(Wire::default(), number, LONGEST, SmallCrc32c, &mut Arena::new(third));
        let mut again = again.expect("the memory is large enough");
        again.send(&own, &datagram);
        let frame = again.into_port().written;
        // Its last block may be written in two ways, if it is full.
        let body = &frame[1..frame.len() - 2];
        assert!(data.windows(body.len()).any(|part| part == body), "a datagram that nobody has sent");
    }
}
