//! Judges a history: MPI order, exact bytes, exactly-once completion, and nothing left over.
//!
//! The rule of MPI order: of the messages of one sender that match a receive, it gets the one that was sent first of
//! those that no receive posted before it took. So with receives in posting order, each takes the first message left
//! from the sender that it names in the end; which sender that is, a receive from anyone may choose.

use std::collections::HashMap;
use std::fmt;

use super::history::{History, MODES, Message, Mode, Outcome, RESERVED, Receive, Record, digest_of};

/// What a job did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A send or receive ended twice.
    EndedTwice(&'static str, u32),
    /// A send or receive never ended, or was never posted.
    NotEnded(&'static str, u32),
    /// A send failed.
    SendFailed(u32, String),
    /// A receive ended with a message that its pattern does not match.
    WrongMatch(u32, Receive, Outcome),
    /// A receive ended with a message that was not sent, or not any more.
    NoSuchMessage(u32, Receive, Outcome),
    /// A receive ended with a message although another goes first.
    Overtaken {
        /// The receive.
        receive: u32,
        /// What it got.
        outcome: Outcome,
        /// The message that goes first.
        first: u32,
    },
    /// A receive ended before its message was sent.
    BeforeItsCause(u32),
    /// Lengths do not add up, or a truncation was reported wrongly.
    WrongLength(u32, Message, Outcome),
    /// The bytes are not those of the message; the number is of the message they belong to, if any.
    WrongBytes(u32, u32, Option<u32>),
    /// The room of a receive was written to after its end.
    WrittenLate(u32),
    /// Bytes outside of the room of a receive were written to.
    Overrun(u32),
    /// A synchronous send ended before its receive was posted.
    NotSynchronous(u32, u32),
    /// A message that nobody received.
    Lost(u32, Message),
    /// Something was not given back.
    Leaked(u32, &'static str, u64, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndedTwice(what, number) => write!(f, "{what} {number} ended twice"),
            Self::NotEnded(what, number) => write!(f, "{what} {number} was not posted or did not end"),
            Self::SendFailed(send, why) => write!(f, "send {send} failed: {why}"),
            Self::WrongMatch(receive, posted, got) => write!(f, "receive {receive}, {posted:?}, matched {got:?}"),
            Self::NoSuchMessage(receive, posted, got) => {
                write!(f, "receive {receive}, {posted:?}, got a message that nobody sent or somebody else got: {got:?}")
            }
            Self::Overtaken { receive, outcome, first } => {
                write!(f, "receive {receive} got {outcome:?} although message {first} goes first")
            }
            Self::BeforeItsCause(receive) => write!(f, "receive {receive} ended before its message was sent"),
            Self::WrongLength(receive, message, got) => {
                write!(f, "receive {receive} of {message:?} ended with {got:?}")
            }
            Self::WrongBytes(receive, message, other) => {
                write!(f, "receive {receive} got other bytes than those of message {message}")?;
                other.map_or(Ok(()), |other| write!(f, ": those of message {other}"))
            }
            Self::WrittenLate(receive) => write!(f, "the room of receive {receive} was written to after its end"),
            Self::Overrun(receive) => write!(f, "receive {receive} wrote outside of its room"),
            Self::NotSynchronous(send, receive) => {
                write!(f, "synchronous send {send} ended before receive {receive} was posted")
            }
            Self::Lost(message, what) => write!(f, "message {message}, {what:?}, was never received"),
            Self::Leaked(node, what, before, after) => write!(f, "node {node}: {what} were {before} and are {after}"),
        }
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Messages sent and received.
    pub messages: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Receives that were cancelled.
    pub cancelled: u64,
    /// Receives that were truncated.
    pub truncated: u64,
    /// Receives from anyone or of any tag.
    pub wildcards: u64,
    /// Messages by mode, in the order of [`MODES`].
    pub modes: [u64; MODES.len()],
    /// Messages by size, in the classes of [`SIZES`] and beyond.
    pub sizes: [u64; SIZES.len() + 1],
}

/// Bytes up to which the messages of each class go: none, what fits a frame's head, what is always copied, more.
pub const SIZES: [u64; 4] = [0, 56, 4096, 65_536];

impl Summary {
    /// Adds what was checked elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.cancelled += other.cancelled;
        self.truncated += other.truncated;
        self.wildcards += other.wildcards;
        self.modes.iter_mut().zip(other.modes).for_each(|(sum, count)| *sum += count);
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, count)| *sum += count);
    }
}

/// A record of a posting, and where in the history it and its end are.
struct Posted<T> {
    what: T,
    at: usize,
    end: Option<usize>,
}

/// Judges the whole history of a job that is over.
///
/// # Errors
/// The first violation that was found.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let (mut sends, mut receives) = (Vec::<Posted<Message>>::new(), Vec::<Posted<Receive>>::new());
    let mut outcomes: Vec<Option<Outcome>> = vec![];
    let mut rooms: HashMap<u32, (u64, bool)> = HashMap::new();
    for (at, record) in history.records.iter().enumerate() {
        match record {
            Record::Send(message) => sends.push(Posted { what: *message, at, end: None }),
            Record::Recv(receive) => {
                receives.push(Posted { what: *receive, at, end: None });
                outcomes.push(None);
            }
            Record::Sent(send, error) => {
                end(&mut sends, "send", *send, at)?;
                if let Some(error) = error {
                    return Err(Violation::SendFailed(*send, error.clone()));
                }
            }
            Record::Received(receive, outcome) => {
                end(&mut receives, "receive", *receive, at)?;
                outcomes[*receive as usize] = Some(*outcome);
            }
            Record::Room(receive, digest, intact) => {
                rooms.insert(*receive, (*digest, *intact));
            }
            Record::Level { node, what, before, after } if before != after => {
                return Err(Violation::Leaked(*node, what, *before, *after));
            }
            Record::Level { .. } => {}
        }
    }
    all_ended(&sends, "send")?;
    all_ended(&receives, "receive")?;
    Matching::new(&sends).judge(&receives, &outcomes, &rooms)
}

fn end<T>(posted: &mut [Posted<T>], what: &'static str, number: u32, at: usize) -> Result<(), Violation> {
    let entry = posted.get_mut(number as usize).ok_or(Violation::NotEnded(what, number))?;
    match entry.end.replace(at) {
        None => Ok(()),
        Some(_) => Err(Violation::EndedTwice(what, number)),
    }
}

fn all_ended<T>(posted: &[Posted<T>], what: &'static str) -> Result<(), Violation> {
    match posted.iter().position(|entry| entry.end.is_none()) {
        None => Ok(()),
        Some(number) => Err(Violation::NotEnded(what, number as u32)),
    }
}

/// The messages, in streams of one communicator, sender and receiver each.
struct Matching<'h> {
    sends: &'h [Posted<Message>],
    streams: HashMap<(u32, u32, u32), Vec<u32>>,
    taken: Vec<bool>,
    summary: Summary,
    scratch: Vec<u8>,
}

impl<'h> Matching<'h> {
    fn new(sends: &'h [Posted<Message>]) -> Self {
        let mut streams: HashMap<_, Vec<u32>> = HashMap::new();
        for (number, send) in sends.iter().enumerate() {
            let message = &send.what;
            streams.entry((message.comm, message.from, message.to)).or_default().push(number as u32);
        }
        Self { sends, streams, taken: vec![false; sends.len()], summary: Summary::default(), scratch: vec![] }
    }

    fn judge(
        mut self,
        receives: &[Posted<Receive>],
        outcomes: &[Option<Outcome>],
        rooms: &HashMap<u32, (u64, bool)>,
    ) -> Result<Summary, Violation> {
        for (number, (posted, outcome)) in receives.iter().zip(outcomes).enumerate() {
            let number = number as u32;
            let receive = posted.what;
            self.summary.wildcards += u64::from(receive.source.is_none() || receive.tag.is_none());
            let Some(outcome @ Outcome::Received { digest, .. }) = *outcome else {
                self.summary.cancelled += 1;
                continue;
            };
            let message = self.take(number, receive, outcome)?;
            let send = &self.sends[message as usize];
            if posted.end < Some(send.at) {
                return Err(Violation::BeforeItsCause(number));
            }
            if send.what.mode == Mode::Synchronous && send.end < Some(posted.at) {
                return Err(Violation::NotSynchronous(message, number));
            }
            self.compare(number, receive, outcome, message)?;
            match rooms.get(&number) {
                Some((late, _)) if *late != digest => return Err(Violation::WrittenLate(number)),
                Some((_, false)) => return Err(Violation::Overrun(number)),
                _ => {}
            }
        }
        match self.taken.iter().position(|taken| !taken) {
            Some(lost) => Err(Violation::Lost(lost as u32, self.sends[lost].what)),
            None => Ok(self.summary),
        }
    }

    /// The message that a receive must have got, if it is the one that it did get.
    fn take(&mut self, number: u32, receive: Receive, outcome: Outcome) -> Result<u32, Violation> {
        let Outcome::Received { source, tag, .. } = outcome else { return Err(Violation::NotEnded("receive", number)) };
        let tag_matches = |tag: u32| receive.tag.map_or(tag < RESERVED, |wanted| wanted == tag);
        if receive.source.is_some_and(|wanted| wanted != source) || !tag_matches(tag) {
            return Err(Violation::WrongMatch(number, receive, outcome));
        }
        let stream = self.streams.get(&(receive.comm, source, receive.at)).map_or(&[][..], Vec::as_slice);
        let left = |message: &&u32| !self.taken[**message as usize];
        let matching = |message: &&u32| tag_matches(self.sends[**message as usize].what.tag);
        match stream.iter().filter(left).find(matching) {
            None => Err(Violation::NoSuchMessage(number, receive, outcome)),
            Some(&first) if self.sends[first as usize].what.tag != tag => {
                Err(Violation::Overtaken { receive: number, outcome, first })
            }
            Some(&first) => {
                self.taken[first as usize] = true;
                Ok(first)
            }
        }
    }

    /// Compares lengths and bytes.
    fn compare(&mut self, number: u32, receive: Receive, outcome: Outcome, message: u32) -> Result<(), Violation> {
        let Outcome::Received { source, received, delivered, truncated, digest, .. } = outcome else { return Ok(()) };
        let sent = self.sends[message as usize].what;
        let lengths_fit = delivered == sent.len.min(receive.room) && truncated == (sent.len > receive.room);
        if received == sent.len && lengths_fit && digest_of(message, delivered, &mut self.scratch) == digest {
            self.summary.messages += 1;
            let mode = MODES.iter().position(|mode| *mode == sent.mode).unwrap_or_default();
            self.summary.modes[mode] += 1;
            self.summary.sizes[SIZES.iter().take_while(|most| sent.len > **most).count()] += 1;
            self.summary.bytes += delivered;
            self.summary.truncated += u64::from(truncated);
            return Ok(());
        }
        // Wrong: say whether it is another message of the same sender, which is a matter of order.
        let stream = &self.streams[&(receive.comm, source, receive.at)];
        let mut scratch = std::mem::take(&mut self.scratch);
        let other = stream.iter().copied().find(|other| {
            *other != message
                && self.sends[*other as usize].what.len == received
                && delivered > 0
                && digest_of(*other, delivered, &mut scratch) == digest
        });
        Err(match other {
            Some(_) if received != sent.len => Violation::Overtaken { receive: number, outcome, first: message },
            None if received != sent.len || !lengths_fit => Violation::WrongLength(number, sent, outcome),
            other => Violation::WrongBytes(number, message, other),
        })
    }
}
