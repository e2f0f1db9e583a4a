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

/// A transfer of one message.
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

/// What a message is, beside its bytes.
#[derive(Clone, Copy)]
struct Message {
    receives: bool,
    other: u32,
    tag: u32,
    mode: Mode,
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
        self.out.iter_mut().zip(0..).for_each(|(to, at)| *to = byte(round, self.me, at));
        self.into.fill(0);
        // The messages are accessed by these pointers alone until all transfers are done.
        let memory = [self.into.as_mut_ptr(), self.out.as_mut_ptr()];
        let begin = end.progress();
        let receives_from = if round.is_multiple_of(2) { begin } else { begin.saturating_add(LATE) };
        let mut steps = [[Step::Begin; MESSAGES]; 2];
        loop {
            let now = end.progress();
            if now.saturating_sub(begin) > LIMIT {
                return Err(Failed::Stuck);
            }
            let mut left = false;
            for ((steps, memory), receives) in steps.iter_mut().zip(memory).zip([true, false]) {
                if receives && now < receives_from {
                    left = true;
                    continue;
                }
                let (mut start, mut tag) = (0, round * MESSAGES as u32);
                for (step, len) in steps.iter_mut().zip(&LENGTHS) {
                    let message = Message { receives, other, tag, mode: Mode::Standard };
                    // SAFETY: the messages of a round are disjoint parts of the memory: their sum is its length. Nothing else accesses
                    // them until all transfers of the round are done, or the program ends.
                    unsafe { transfer(end, step, message, Span::contiguous(memory.wrapping_add(start), *len)) }?;
                    left |= *step != Step::Done;
                    if !receives && *step == Step::Begin {
                        break; // the receiver expects them in this order
                    }
                    (start, tag) = (start.wrapping_add(*len), tag.wrapping_add(1));
                }
            }
            if !left {
                break;
            }
        }
        // Only the engine could write to the memory until here. `black_box` makes the compiler read it again.
        let right =
            core::hint::black_box(&*self.into).iter().zip(0..).all(|(found, at)| *found == byte(round, other, at));
        if right { Ok(()) } else { Err(Failed::Bytes) }
    }
}

/// A byte of the messages of an end in a round.
#[inline(never)]
fn byte(round: u32, end: u32, at: u32) -> u8 {
    let mixed = at.wrapping_mul(0x9e37_79b1).wrapping_add((round * 2 + end).wrapping_mul(0x85eb_ca6b));
    (mixed >> 24) as u8
}

/// Tells the other end that all is done here, and waits until it has said the same.
fn finish<P: Port>(end: &mut End<'_, P>, other: u32) -> Result<(), Failed> {
    let mut steps = [Step::Begin; 2];
    let begin = end.progress();
    loop {
        let now = end.progress();
        let mut left = false;
        for (step, receives) in steps.iter_mut().zip([true, false]) {
            let message = Message { receives, other, tag: DONE, mode: Mode::Synchronous };
            // SAFETY: the message is empty.
            unsafe { transfer(end, step, message, Span::EMPTY) }?;
            left |= *step != Step::Done;
        }
        if !left {
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

/// The next step of a transfer.
///
/// # Safety
/// The memory is valid, and nothing else accesses it until the transfer is done, or the program ends.
#[inline(never)]
unsafe fn transfer<P: Port>(
    end: &mut End<'_, P>,
    step: &mut Step,
    message: Message,
    memory: Span,
) -> Result<(), Failed> {
    let Message { receives, other, tag, mode } = message;
    match *step {
        Step::Begin => {
            let world = end.world.ok_or(Failed::SetUp)?;
            let begun = if receives {
                // A receive of an odd number takes any source.
                let source = if tag.is_multiple_of(2) { Source::Rank(other) } else { Source::Any };
                // SAFETY: passed on from the caller.
                unsafe { end.mtl.irecv(world, source, Tag::Is(tag), memory) }.map(Sending::Pending)
            } else {
                // SAFETY: passed on from the caller.
                unsafe { end.mtl.isend(world, other, tag, mode, memory) }
            };
            match begun {
                Ok(Sending::Complete) => *step = Step::Done,
                Ok(Sending::Pending(request)) => *step = Step::Pending(request),
                Err(Refusal::Busy) => {}
                Err(_) => return Err(Failed::Refused),
            }
        }
        Step::Pending(request) => match end.mtl.test(request) {
            None => {}
            Some(Ok(status)) => {
                if (status.peer, status.tag, status.received) != (Peer(other), tag, memory.len()) {
                    return Err(Failed::Status);
                }
                *step = Step::Done;
            }
            Some(Err(_)) => return Err(Failed::Request),
        },
        Step::Done => {}
    }
    Ok(())
}
