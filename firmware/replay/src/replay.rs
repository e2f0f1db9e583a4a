//! The steps one by one, and their results.

use core::fmt::{self, Arguments};

use towline_core::arena::{Arena, OutOfMemory};
use towline_window::command::{ANY, Mode};
use towline_window::completion::{Done, Failure};

use crate::contexts::{Contexts, Place};
use crate::step::Step;

/// Names of operations are below this number.
pub const NAMES: u32 = 1024;
/// The names of the two operations of a fence.
const FENCE: [u32; 2] = [NAMES - 2, NAMES - 1];
/// The communicator of fences, which the trace makes.
const FENCE_CONTEXT: u32 = 15;
/// Most messages whose memory is in use at a time.
pub const PLACES: usize = 32;
/// Bytes of a place, which is longer than each message.
pub const PLACE: usize = 3072;
/// Bytes of the memory for messages.
pub const MEMORY: usize = PLACES * PLACE;
/// What a place has where no message was written.
const BLANK: u8 = 0xa5;
/// Bytes that are written or read at a time.
const CHUNK: usize = 64;

/// A send or receive.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// The memory may be used again when the send has ended. Its bytes may be received later.
    Send {
        context: u32,
        tag: u32,
        bytes: u32,
        /// A receive has got it.
        received: bool,
    },
    Receive {
        at: u32,
        context: u32,
    },
    /// A message that was taken out.
    Taken {
        at: u32,
        context: u32,
    },
}

/// Why a replay stopped, with the number of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The line is not a step, or names an operation that does not exist, or the trace needs more memory than there is.
    BadLine(u32),
    /// The step does not come to its end.
    Stuck(u32),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLine(line) => write!(f, "line {line} of the trace is wrong"),
            Self::Stuck(line) => write!(f, "line {line} of the trace does not come to its end"),
        }
    }
}

impl core::error::Error for Stopped {}

/// What is replayed.
#[derive(Debug)]
pub struct Replay<'s> {
    operations: &'s mut [Option<Operation>],
    /// The name of the operation that uses each place, or [`ANY`].
    places: [u32; PLACES],
    fences: u32,
}

/// The byte at an index of a message. It depends on the send.
const fn byte_of(name: u32, at: usize) -> u8 {
    let mixed = (at as u32).wrapping_mul(0x9e37_79b1).wrapping_add(name.wrapping_mul(0x85eb_ca6b));
    (mixed >> 24) as u8
}

/// What a step did not do.
enum Fault {
    BadLine,
    Stuck,
}

/// Gives a result to the caller.
fn say<P: FnMut(Arguments<'_>)>(print: &mut P, line: u32, what: Arguments<'_>) {
    print(format_args!("{line} {what}\n"));
}

/// A number, or `any`.
struct OrAny(u32);

impl fmt::Display for OrAny {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == ANY { f.write_str("any") } else { self.0.fmt(f) }
    }
}

/// The name of a failure.
const fn failure(why: Failure) -> &'static str {
    match why {
        Failure::NotFound => "nothing",
        Failure::Cancelled => "cancelled",
        Failure::Full => "full",
        Failure::NoSuchThing => "no such thing",
        Failure::Malformed => "not allowed",
        Failure::PeerFailed => "peer lost",
        Failure::PeerFinished => "peer ended",
        Failure::Refused => "refused by the peer",
        Failure::Unreachable => "unreachable",
        Failure::NotReady => "not ready",
        _ => "another failure",
    }
}

impl<'s> Replay<'s> {
    /// The memory of the tables, in bytes.
    pub const BYTES: usize = Arena::cost::<Option<Operation>>(NAMES as usize);

    /// A replay with tables from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(arena: &mut Arena<'s>) -> Result<Self, OutOfMemory> {
        Ok(Self { operations: arena.filled(NAMES as usize, None)?, places: [ANY; PLACES], fences: 0 })
    }

    /// Replays a trace. Gives each result to `print`: the number of the line, and what happened.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn run<C: Contexts>(
        &mut self,
        trace: &[u8],
        contexts: &mut C,
        mut print: impl FnMut(Arguments<'_>),
    ) -> Result<(), Stopped> {
        let lines = trace.split(|byte| *byte == b'\n');
        for (number, line) in (1_u32..).zip(lines) {
            let step = Step::parse(line).map_err(|_| Stopped::BadLine(number))?;
            let Some(step) = step else { continue };
            self.step(step, contexts, number, &mut print).map_err(|fault| match fault {
                Fault::BadLine => Stopped::BadLine(number),
                Fault::Stuck => Stopped::Stuck(number),
            })?;
        }
        Ok(())
    }

    fn step<C: Contexts, P: FnMut(Arguments<'_>)>(
        &mut self,
        step: Step,
        contexts: &mut C,
        line: u32,
        print: &mut P,
    ) -> Result<(), Fault> {
        match step {
            Step::Join { at, context, peers } => {
                let done = contexts.join(at, context, peers.as_slice()).err().map_or("ok", failure);
                say(print, line, format_args!("join {at} {context}: {done}"));
            }
            Step::Leave { at, context } => {
                let done = contexts.leave(at, context).err().map_or("ok", failure);
                say(print, line, format_args!("leave {at} {context}: {done}"));
            }
            Step::Send { name, at, context, dest, tag, mode, bytes } => {
                self.send(contexts, name, at, (context, dest, tag, mode), bytes)?;
            }
            Step::Receive { name, at, context, source, tag, bytes } => {
                let place = self.receive_place(contexts, name, at, bytes)?;
                self.note(name, Operation::Receive { at, context })?;
                contexts.receive(name, at, context, source, tag, place);
            }
            Step::Probe { at, context, source, tag } => {
                let found = contexts.probe(at, context, source, tag);
                Self::say_found(print, line, format_args!("probe {at} {context}"), (source, tag), found);
            }
            Step::Await { at, context, source, tag } => {
                let found = Self::until(contexts, |contexts| match contexts.probe(at, context, source, tag) {
                    Err(Failure::NotFound) => None,
                    found => Some(found),
                });
                Self::say_found(print, line, format_args!("await {at} {context}"), (source, tag), found?);
            }
            Step::Take { name, at, context, source, tag } => {
                let found = contexts.take(name, at, context, source, tag);
                if found.is_ok() {
                    self.note(name, Operation::Taken { at, context })?;
                }
                Self::say_found(print, line, format_args!("take {name} {at} {context}"), (source, tag), found);
            }
            Step::ReceiveTaken { name, taken, bytes } => {
                let Some(Operation::Taken { at, context }) = self.operation(taken) else { return Err(Fault::BadLine) };
                let place = self.receive_place(contexts, name, at, bytes)?;
                self.note(name, Operation::Receive { at, context })?;
                contexts.receive_taken(name, taken, place);
            }
            Step::Cancel { name } => {
                let done = if contexts.cancel(name) { "ok" } else { "too late" };
                say(print, line, format_args!("cancel {name}: {done}"));
            }
            Step::Pending { name } => match contexts.outcome(name) {
                None => say(print, line, format_args!("pending {name}: yes")),
                // The outcome was taken, so the trace cannot go on.
                Some(_) => {
                    say(print, line, format_args!("pending {name}: it is over"));
                    return Err(Fault::BadLine);
                }
            },
            Step::Wait { name } => self.wait(contexts, name, line, print)?,
            Step::Fence { from, to } => self.fence(contexts, from, to)?,
            Step::Poll { at, count } => (0..count).for_each(|_| contexts.poll(at)),
        }
        Ok(())
    }

    /// Makes progress until `done` returns something.
    fn until<C: Contexts, T>(contexts: &mut C, mut done: impl FnMut(&mut C) -> Option<T>) -> Result<T, Fault> {
        for _ in 0..C::PATIENCE {
            if let Some(it) = done(contexts) {
                return Ok(it);
            }
            contexts.progress();
        }
        Err(Fault::Stuck)
    }

    fn operation(&self, name: u32) -> Option<Operation> {
        *self.operations.get(name as usize)?
    }

    /// Notes a new operation. Its name was not used before, except by another fence.
    fn note(&mut self, name: u32, operation: Operation) -> Result<(), Fault> {
        let entry = self.operations.get_mut(name as usize).ok_or(Fault::BadLine)?;
        if entry.is_some() && !FENCE.contains(&name) {
            return Err(Fault::BadLine);
        }
        *entry = Some(operation);
        Ok(())
    }

    /// A free place for a message.
    fn place(&mut self, name: u32, bytes: u32) -> Result<Place, Fault> {
        let (index, user) = (0..).zip(&mut self.places).find(|(_, user)| **user == ANY).ok_or(Fault::BadLine)?;
        let (bytes, at): (usize, usize) = (bytes as usize, index);
        if bytes >= PLACE {
            return Err(Fault::BadLine);
        }
        *user = name;
        Ok(Place { at: at.saturating_mul(PLACE), bytes })
    }

    /// A blank place for the message of a receive.
    fn receive_place<C: Contexts>(&mut self, contexts: &mut C, name: u32, at: u32, bytes: u32) -> Result<Place, Fault> {
        let place = self.place(name, bytes)?;
        for chunk in 0..PLACE / CHUNK {
            contexts.write(at, place.at.saturating_add(chunk.saturating_mul(CHUNK)), &[BLANK; CHUNK]);
        }
        Ok(place)
    }

    fn send<C: Contexts>(
        &mut self,
        contexts: &mut C,
        name: u32,
        at: u32,
        (context, dest, tag, mode): (u32, u32, u32, Mode),
        bytes: u32,
    ) -> Result<(), Fault> {
        let place = self.place(name, bytes)?;
        for begin in (0..place.bytes).step_by(CHUNK) {
            let mut chunk = [0; CHUNK];
            chunk.iter_mut().zip(begin..).for_each(|(byte, at)| *byte = byte_of(name, at));
            let used = chunk.get(..place.bytes.saturating_sub(begin).min(CHUNK)).unwrap_or_default();
            contexts.write(at, place.at.saturating_add(begin), used);
        }
        self.note(name, Operation::Send { context, tag, bytes, received: false })?;
        contexts.send(name, at, context, dest, tag, mode, place);
        Ok(())
    }

    /// A message without bytes in each order: when it has arrived, all before it have arrived.
    fn fence<C: Contexts>(&mut self, contexts: &mut C, from: u32, to: u32) -> Result<(), Fault> {
        let [send, receive] = FENCE;
        self.fences = self.fences.wrapping_add(1);
        let place = self.place(receive, 0)?;
        self.note(receive, Operation::Receive { at: to, context: FENCE_CONTEXT })?;
        contexts.receive(receive, to, FENCE_CONTEXT, from, self.fences, place);
        self.send(contexts, send, from, (FENCE_CONTEXT, to, self.fences, Mode::Standard), 0)?;
        for name in FENCE {
            let outcome = Self::until(contexts, |contexts| contexts.outcome(name))?;
            self.free(name);
            outcome.map_err(|_| Fault::BadLine)?;
        }
        Ok(())
    }

    /// Frees the place of an operation. Returns where it is.
    fn free(&mut self, name: u32) -> Option<usize> {
        let (index, user) = (0_usize..).zip(&mut self.places).find(|(_, user)| **user == name)?;
        *user = ANY;
        Some(index.saturating_mul(PLACE))
    }

    fn wait<C: Contexts, P: FnMut(Arguments<'_>)>(
        &mut self,
        contexts: &mut C,
        name: u32,
        line: u32,
        print: &mut P,
    ) -> Result<(), Fault> {
        let operation = self.operation(name).ok_or(Fault::BadLine)?;
        let outcome = Self::until(contexts, |contexts| contexts.outcome(name))?;
        let begin = self.free(name).ok_or(Fault::BadLine)?;
        match (operation, outcome) {
            (_, Err(why)) => say(print, line, format_args!("wait {name}: {}", failure(why))),
            (Operation::Receive { at, context }, Ok(done)) => {
                let Done { rank, tag, received, delivered, .. } = done;
                let (sum, is_blank) = Self::sum(contexts, at, begin, delivered as usize);
                let rest = if is_blank { "" } else { ", more was written" };
                let what = format_args!("rank {rank} tag {tag}, {delivered} of {received} bytes, sum {sum}");
                match self.sender(contexts, (at, context), begin, &done) {
                    Some(sender) => say(print, line, format_args!("wait {name}: {what}, send {sender}{rest}")),
                    None => say(print, line, format_args!("wait {name}: {what}, no send{rest}")),
                }
            }
            (_, Ok(_)) => say(print, line, format_args!("wait {name}: sent")),
        }
        Ok(())
    }

    /// The sum of the bytes of a message (FNV-1a), and whether the place is blank after the message.
    fn sum<C: Contexts>(contexts: &mut C, at: u32, place: usize, bytes: usize) -> (u32, bool) {
        let (mut sum, mut is_blank) = (0x811c_9dc5_u32, true);
        for begin in (0..PLACE).step_by(CHUNK) {
            let mut chunk = [0; CHUNK];
            contexts.read(at, place.saturating_add(begin), &mut chunk);
            for (index, byte) in (begin..).zip(chunk) {
                if index < bytes {
                    sum = (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
                } else {
                    is_blank &= byte == BLANK;
                }
            }
        }
        (sum, is_blank)
    }

    /// The send of a received message: the first one with this communicator, tag, length and these bytes that no other receive has
    /// got.
    fn sender<C: Contexts>(
        &mut self,
        contexts: &mut C,
        (at, within): (u32, u32),
        place: usize,
        done: &Done,
    ) -> Option<u32> {
        for (name, entry) in (0_u32..).zip(self.operations.iter_mut()) {
            let Some(Operation::Send { context, tag, bytes, received, .. }) = entry else { continue };
            let fits = *context == within && *tag == done.tag && u64::from(*bytes) == done.received && !*received;
            if fits && Self::is_message(contexts, at, place, name, done.delivered as usize) {
                *received = true;
                return Some(name);
            }
        }
        None
    }

    /// Whether a place has the first bytes of a message.
    fn is_message<C: Contexts>(contexts: &mut C, at: u32, place: usize, name: u32, bytes: usize) -> bool {
        (0..bytes).step_by(CHUNK).all(|begin| {
            let mut chunk = [0; CHUNK];
            contexts.read(at, place.saturating_add(begin), &mut chunk);
            (begin..bytes).zip(chunk).all(|(index, byte)| byte == byte_of(name, index))
        })
    }

    fn say_found<P: FnMut(Arguments<'_>)>(
        print: &mut P,
        line: u32,
        what: Arguments<'_>,
        (source, tag): (u32, u32),
        found: Result<Done, Failure>,
    ) {
        let (source, tag) = (OrAny(source), OrAny(tag));
        match found {
            Ok(Done { rank, tag: its, received, .. }) => {
                say(print, line, format_args!("{what} {source} {tag}: rank {rank} tag {its}, {received} bytes"))
            }
            Err(why) => say(print, line, format_args!("{what} {source} {tag}: {}", failure(why))),
        }
    }
}
