//! Sends messages to the other end, receives as many, and checks them.

use serial::Port;
use towline_core::convertor::Span;
use towline_core::mtl::{Source, Tag};
use towline_core::pml::{Mode, Refusal, Request, Sending};
use towline_core::rail::Peer;

use crate::end::End;
use crate::error::Failed;

/// Lengths around every limit: an empty message, a payload unit, a frame of the rail, and several fragments.
const LENGTHS: [usize; MESSAGES] = [0, 1, 8, 63, 64, 65, 150, 300];
const MESSAGES: usize = 8;
/// Bytes of all messages of a round in one direction.
const SUM: usize = {
    let (mut sum, mut at) = (0, 0);
    while at < MESSAGES {
        sum += LENGTHS[at];
        at += 1;
    }
    sum
};
/// Memory for the messages of a round in both directions.
pub const BYTES: usize = 2 * SUM;
const ROUNDS: u32 = 8;
/// In every second round, receives are posted this time after the sends, in microseconds: messages come before their receives.
const LATE: u64 = 5_000;
/// Microseconds after which the exchange has failed.
const LIMIT: u64 = 40_000_000;
/// The tag of the last message.
const DONE: u32 = u16::MAX as u32;
/// For so long this end answers the other one after its own work is done, in microseconds.
const LINGER: u64 = 300_000;

/// A send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Pending(Request),
    Done,
}

/// The messages.
pub struct Exchange<'m> {
    me: u32,
    out: &'m mut [u8],
    into: &'m mut [u8],
}

impl<'m> Exchange<'m> {
    /// The messages of the end with the number `me`.
    pub fn new(memory: &'m mut [u8], me: u8) -> Result<Self, Failed> {
        let (out, rest) = memory.split_at_mut_checked(SUM).ok_or(Failed::SetUp)?;
        Ok(Self { me: me.into(), out, into: rest.get_mut(..SUM).ok_or(Failed::SetUp)? })
    }

    /// Exchanges all messages. Both ends do the same. Never inlined, as [`End::new`].
    #[inline(never)]
    pub fn run<P: Port>(mut self, end: &mut End<'_, P>) -> Result<(), Failed> {
        for round in 0..ROUNDS {
            self.round(end, round)?;
        }
        finish(end, 1 - self.me)?;
        if end.mtl.pml().used() == [0; 3] { Ok(()) } else { Err(Failed::Leak) }
    }

    fn round<P: Port>(&mut self, end: &mut End<'_, P>, round: u32) -> Result<(), Failed> {
        let other = 1 - self.me;
        let own = byte(round, self.me);
        self.out.iter_mut().enumerate().for_each(|(at, to)| *to = own(at));
        self.into.fill(0);
        // The receives' memory is accessed by this pointer alone until all of them are done.
        let sinks = self.into.as_mut_ptr();
        let begin = end.progress();
        let receives_from = if round.is_multiple_of(2) { begin } else { begin.saturating_add(LATE) };
        let (mut sends, mut receives) = ([Step::Begin; MESSAGES], [Step::Begin; MESSAGES]);
        while (sends, receives) != ([Step::Done; MESSAGES], [Step::Done; MESSAGES]) {
            let now = end.progress();
            if now.saturating_sub(begin) > LIMIT {
                return Err(Failed::Stuck);
            }
            if now >= receives_from {
                let mut start = 0;
                for ((step, len), number) in receives.iter_mut().zip(LENGTHS).zip(0..) {
                    let sink = Span::contiguous(sinks.wrapping_add(start), len);
                    // SAFETY: the parts are disjoint, and lie within the memory: their sum is its length.
                    *step = unsafe { receive(end, *step, other, round * 8 + number, sink) }?;
                    start = start.wrapping_add(len);
                }
            }
            let mut messages = &*self.out;
            for ((step, len), number) in sends.iter_mut().zip(LENGTHS).zip(0..) {
                let (message, rest) = messages.split_at_checked(len).ok_or(Failed::SetUp)?;
                messages = rest;
                *step = send(end, *step, other, (round * 8 + number, Mode::Standard), message)?;
                if *step == Step::Begin {
                    break; // the receiver expects them in this order
                }
            }
        }
        // Only the engine could write to the memory until here. `black_box` makes the compiler read it again.
        let expected = byte(round, other);
        let right = core::hint::black_box(&*self.into).iter().enumerate().all(|(at, found)| *found == expected(at));
        if right { Ok(()) } else { Err(Failed::Bytes) }
    }
}

/// The bytes of the messages of an end in a round.
fn byte(round: u32, end: u32) -> impl Fn(usize) -> u8 {
    move |at| {
        let mixed = (at as u32).wrapping_mul(0x9e37_79b1).wrapping_add((round * 2 + end).wrapping_mul(0x85eb_ca6b));
        (mixed >> 24) as u8
    }
}

/// Tells the other end that all is done here, and waits until it has said the same.
fn finish<P: Port>(end: &mut End<'_, P>, other: u32) -> Result<(), Failed> {
    let (mut sending, mut receiving) = (Step::Begin, Step::Begin);
    let begin = end.progress();
    loop {
        let now = end.progress();
        sending = send(end, sending, other, (DONE, Mode::Synchronous), &[])?;
        // SAFETY: the message is empty.
        receiving = unsafe { receive(end, receiving, other, DONE, Span::EMPTY) }?;
        if (sending, receiving) == (Step::Done, Step::Done) {
            break;
        }
        if now.saturating_sub(begin) > LIMIT {
            return Err(Failed::Stuck);
        }
    }
    // The other end may lack an acknowledgement.
    let begin = end.progress();
    while end.progress().saturating_sub(begin) < LINGER {}
    Ok(())
}

/// The next step of a send.
fn send<P: Port>(
    end: &mut End<'_, P>,
    step: Step,
    to: u32,
    (tag, mode): (u32, Mode),
    message: &[u8],
) -> Result<Step, Failed> {
    match step {
        Step::Begin => {
            let world = end.world.ok_or(Failed::SetUp)?;
            // SAFETY: the message does not change until all sends of its round are done, or the program ends.
            match unsafe { end.mtl.isend(world, to, tag, mode, Span::of(message)) } {
                Ok(Sending::Complete) => Ok(Step::Done),
                Ok(Sending::Pending(request)) => Ok(Step::Pending(request)),
                Err(Refusal::Busy) => Ok(Step::Begin),
                Err(refusal) => Err(refusal.into()),
            }
        }
        Step::Pending(request) => match end.mtl.test(request) {
            None => Ok(step),
            Some(Ok(_)) => Ok(Step::Done),
            Some(Err(_)) => Err(Failed::Request),
        },
        Step::Done => Ok(step),
    }
}

/// The next step of a receive.
///
/// # Safety
/// The sink is writable, and nothing else accesses it until the receive is done.
unsafe fn receive<P: Port>(end: &mut End<'_, P>, step: Step, from: u32, tag: u32, sink: Span) -> Result<Step, Failed> {
    match step {
        Step::Begin => {
            let world = end.world.ok_or(Failed::SetUp)?;
            // A receive of an odd number takes any source.
            let source = if tag.is_multiple_of(2) { Source::Rank(from) } else { Source::Any };
            // SAFETY: passed on from the caller.
            match unsafe { end.mtl.irecv(world, source, Tag::Is(tag), sink) } {
                Ok(request) => Ok(Step::Pending(request)),
                Err(Refusal::Busy) => Ok(Step::Begin),
                Err(refusal) => Err(refusal.into()),
            }
        }
        Step::Pending(request) => match end.mtl.test(request) {
            None => Ok(step),
            Some(Ok(status)) => {
                let right = (status.peer, status.tag, status.received) == (Peer(from), tag, sink.len());
                if right { Ok(Step::Done) } else { Err(Failed::Status) }
            }
            Some(Err(_)) => Err(Failed::Request),
        },
        Step::Done => Ok(step),
    }
}
