//! The report: lines of text, without the formatting of the standard library, which takes more code than this program's own.

use embedded_io::Write;
use serial::Port;
use towline_core::pml::Config;

use crate::end::{CONFIG, End};
use crate::error::Failed;

/// Items for which the costs are computed, since tables have a power of two of places.
const COUNT: u32 = 64;
/// Bytes of the engine for one more request, unexpected message, and payload of such a message.
const REQUEST: usize = each(Config { requests: 2 * COUNT, ..CONFIG }, Config { requests: COUNT, ..CONFIG });
const MESSAGE: usize =
    each(Config { unexpected: 2 * COUNT, probes: 0, ..CONFIG }, Config { unexpected: COUNT, probes: 0, ..CONFIG });
const PAYLOAD: usize = each(Config { units: 2 * COUNT, ..CONFIG }, Config { units: COUNT, ..CONFIG });

const fn each(more: Config, less: Config) -> usize {
    (more.bytes(&[]) - less.bytes(&[])) / COUNT as usize
}

/// Writes the report.
pub struct Report<W>(W);

impl<W: Write> Report<W> {
    /// A report to a stream.
    pub const fn new(stream: W) -> Self {
        Self(stream)
    }

    /// A line `NAME: FIRST WORDS SECOND`.
    pub fn line(&mut self, name: &str, first: usize, words: &str, second: usize) -> Result<(), Failed> {
        self.text(name)?;
        self.text(": ")?;
        self.number(first)?;
        self.text(words)?;
        self.text(" ")?;
        self.number(second)?;
        self.text("\n")
    }

    /// What the tables take, and what one more of each takes.
    pub fn memory<P: Port>(&mut self, end: &End<'_, P>) -> Result<(), Failed> {
        self.line("tables", end.tables, " bytes of", crate::TABLES)?;
        self.text("memory: peer ")?;
        self.number(end.peer)?;
        self.text(", request ")?;
        self.number(REQUEST)?;
        self.text(", unexpected message ")?;
        self.number(MESSAGE)?;
        self.text(", with payload ")?;
        self.number(MESSAGE + PAYLOAD)?;
        self.text("\n")
    }

    /// What went over the line.
    pub fn traffic<P: Port>(&mut self, end: &End<'_, P>) -> Result<(), Failed> {
        let line = end.line().counters();
        self.line("datagrams", line.sent as usize, " sent, received", line.received as usize)?;
        self.line("damaged frames", line.bad_frames as usize, ", their bytes", line.bad_bytes as usize)?;
        let engine = end.mtl.counters();
        self.line("eager messages", engine.eager_sent as usize, ", rendezvous", engine.rendezvous_sent as usize)
    }

    fn number(&mut self, number: usize) -> Result<(), Failed> {
        let mut digits = [0; 20];
        let (mut rest, mut count) = (number, 0);
        for to in digits.iter_mut().rev() {
            *to = b'0' + (rest % 10) as u8;
            (rest, count) = (rest / 10, count + 1);
            if rest == 0 {
                break;
            }
        }
        let digits = digits.last_chunk::<20>().and_then(|all| all.get(20_usize.saturating_sub(count)..));
        self.bytes(digits.unwrap_or_default())
    }

    fn text(&mut self, text: &str) -> Result<(), Failed> {
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Failed> {
        while !bytes.is_empty() {
            let written = self.0.write(bytes).map_err(|_| Failed::Report)?;
            bytes = bytes.get(written..).filter(|_| written != 0).ok_or(Failed::Report)?;
        }
        Ok(())
    }
}
