//! Sends one message from one context to the other, and checks it.

use towline_core::convertor::Span;
use towline_core::mtl::{Source, Tag};
use towline_core::pml::{Mode, Request, Sending, Status};
use towline_core::rail::Peer;

use crate::contexts::Contexts;
use crate::error::Failed;

/// Bytes of the longest message.
pub const LONGEST: usize = 100_000;

/// Lengths around every limit: an empty message, a frame with only a header, a payload unit, and a frame of the rail. Some
/// messages are much longer.
const LENGTHS: [usize; 15] = [0, 1, 7, 8, 32, 33, 511, 512, 513, 1000, 1024, 1025, 4096, 30_001, LONGEST];
const MODES: [Mode; 3] = [Mode::Standard, Mode::Synchronous, Mode::Complete];
/// Number of calls of `progress` without any event after which the exchange fails.
const MAX_IDLE_ROUNDS: u32 = 1000;

/// How a message is sent and received.
#[derive(Clone, Copy, defmt::Format)]
pub struct Case {
    number: u32,
    len: usize,
    mode: Mode,
    /// The sender: 0 or 1.
    from: u32,
    /// The receive is posted before the send.
    posted: bool,
    /// The receive names source and tag. Otherwise it has wildcards.
    exact: bool,
}

impl Case {
    /// All cases.
    pub fn all() -> impl Iterator<Item = Self> {
        let lengths = LENGTHS.into_iter();
        let all =
            lengths.flat_map(|len| MODES.into_iter().flat_map(move |mode| (0..8).map(move |bits| (len, mode, bits))));
        all.zip(0..).map(|((len, mode, bits), number)| Self {
            number,
            len,
            mode,
            from: bits & 1,
            posted: bits & 2 != 0,
            exact: bits & 4 != 0,
        })
    }

    const fn to(self) -> u32 {
        1 - self.from
    }

    /// The byte at an index of the message. It depends on the case.
    fn byte(self, at: usize) -> u8 {
        let mixed = (at as u32).wrapping_mul(0x9e37_79b1).wrapping_add(self.number.wrapping_mul(0x85eb_ca6b));
        (mixed >> 24) as u8
    }
}

/// Sends one message of `out` and receives it into `into`.
///
/// # Errors
/// [`Failed`] for the first fault.
pub fn run(contexts: &mut Contexts<'_>, case: Case, out: &mut [u8], into: &mut [u8]) -> Result<(), Failed> {
    let message = out.get_mut(..case.len).ok_or(Failed::SetUp)?;
    message.iter_mut().enumerate().for_each(|(at, byte)| *byte = case.byte(at));
    // The bytes after the message must not change.
    let guarded = case.len.saturating_add(8).min(into.len());
    let sink = into.get_mut(..guarded).ok_or(Failed::SetUp)?;
    sink.fill(0xa5);

    let early = if case.posted { Some(receive(contexts, case, sink)?) } else { None };
    let sending = send(contexts, case, message)?;
    let receiving = match early {
        Some(request) => request,
        None => {
            // An eager message arrives before the receive is posted, so it is unexpected.
            while contexts.progress() {}
            receive(contexts, case, sink)?
        }
    };
    let status = finish(contexts, case, sending, receiving)?;

    let len = case.len as u64;
    let right = status == Status { peer: Peer(case.from), tag: case.number, received: len, delivered: len };
    if !right {
        defmt::error!("{}: {}", case, status);
        return Err(Failed::Status);
    }
    // Only the engine could use the sink until the results were taken. `black_box` makes the compiler read the sink again.
    for (at, byte) in core::hint::black_box(sink).iter().enumerate() {
        let expected = if at < case.len { case.byte(at) } else { 0xa5 };
        if *byte != expected {
            defmt::error!("{}: byte {} is {}, not {}", case, at, *byte, expected);
            return Err(Failed::Bytes);
        }
    }
    Ok(())
}

fn send(contexts: &mut Contexts<'_>, case: Case, message: &[u8]) -> Result<Sending, Failed> {
    let side = contexts.sides.get_mut(case.from as usize).ok_or(Failed::SetUp)?;
    // SAFETY: `run` does not change the message until the result of the send is taken, or the program ends.
    let sent = unsafe { side.mtl.isend(side.world, case.to(), case.number, case.mode, Span::of(message)) };
    sent.map_err(|refusal| {
        defmt::error!("{}: {}", case, refusal);
        Failed::Refused
    })
}

fn receive(contexts: &mut Contexts<'_>, case: Case, sink: &mut [u8]) -> Result<Request, Failed> {
    let side = contexts.sides.get_mut(case.to() as usize).ok_or(Failed::SetUp)?;
    let (source, tag) =
        if case.exact { (Source::Rank(case.from), Tag::Is(case.number)) } else { (Source::Any, Tag::Any) };
    let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
    // SAFETY: `run` does not access the sink until the result of the receive is taken, or the program ends.
    let posted = unsafe { side.mtl.irecv(side.world, source, tag, span) };
    posted.map_err(|refusal| {
        defmt::error!("{}: {}", case, refusal);
        Failed::Refused
    })
}

/// Makes progress until both requests are complete. Returns the status of the receive.
fn finish(contexts: &mut Contexts<'_>, case: Case, sending: Sending, receiving: Request) -> Result<Status, Failed> {
    let mut sending = match sending {
        Sending::Complete => None,
        Sending::Pending(request) => Some(request),
    };
    let mut received = None;
    let mut idle = 0;
    while idle < MAX_IDLE_ROUNDS {
        idle = if contexts.progress() { 0 } else { idle + 1 };
        if let Some(request) = sending
            && test(contexts, case, case.from, request)?.is_some()
        {
            sending = None;
        }
        if received.is_none() {
            received = test(contexts, case, case.to(), receiving)?;
        }
        if let (None, Some(status)) = (sending, received) {
            return Ok(status);
        }
    }
    defmt::error!("{}: no progress", case);
    Err(Failed::Stuck)
}

/// The status of a request, or `None` while it is in progress.
fn test(contexts: &mut Contexts<'_>, case: Case, side: u32, request: Request) -> Result<Option<Status>, Failed> {
    let side = contexts.sides.get_mut(side as usize).ok_or(Failed::SetUp)?;
    side.mtl.test(request).transpose().map_err(|failure| {
        defmt::error!("{}: {}", case, failure);
        Failed::Request
    })
}

/// Sends `count` messages of 8 bytes whose receives are posted, one after the other, to measure what one takes.
///
/// # Errors
/// [`Failed`] for the first fault.
pub fn short(contexts: &mut Contexts<'_>, count: u32) -> Result<(), Failed> {
    for number in 0..count {
        let case = Case { number, len: 8, mode: Mode::Standard, from: 0, posted: true, exact: true };
        let message = u64::from(number).to_le_bytes();
        let mut sink = [0; 8];
        let receiving = receive(contexts, case, &mut sink)?;
        let sending = send(contexts, case, &message)?;
        finish(contexts, case, sending, receiving)?;
        if core::hint::black_box(sink) != message {
            return Err(Failed::Bytes);
        }
    }
    Ok(())
}
