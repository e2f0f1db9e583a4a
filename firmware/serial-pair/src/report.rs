//! The report.

use embedded_io::Write;
use runtime::{Report, Unwritten};
use serial::Port;
use towline_core::pml::Config;

use crate::end::{CONFIG, End};

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

/// What the tables take, and what one more of each takes.
pub fn memory<W: Write, P: Port>(report: &mut Report<W>, end: &End<'_, P>) -> Result<(), Unwritten> {
    report.line("tables", end.tables, " bytes of", crate::TABLES)?;
    report.text("memory: peer ")?;
    report.number(End::<'_, P>::PEER)?;
    report.text(", request ")?;
    report.number(REQUEST)?;
    report.text(", unexpected message ")?;
    report.number(MESSAGE)?;
    report.text(", with payload ")?;
    report.number(MESSAGE + PAYLOAD)?;
    report.text("\n")
}

/// What went over the line.
pub fn traffic<W: Write, P: Port>(report: &mut Report<W>, end: &End<'_, P>) -> Result<(), Unwritten> {
    let line = end.line().counters();
    report.line("damaged frames", line.bad_frames as usize, ", their bytes", line.bad_bytes as usize)
}
