//! Judges a history: MPI order, exact bytes, exactly-once completion, and nothing left over.
//!
//! The rule of MPI order: of the messages of one sender that match a receive, it gets the one that was sent first of
//! those that no receive posted before it took. So with receives in posting order, each takes the first message left
//! from the sender that it names in the end; which sender that is, a receive from anyone may choose.
//!
//! Nodes may die and come back. A request may end with the failure of a node that died, or was cut off for too long, and
//! of no other. What such a node had sent, or was to get, may be lost, but a receive never gets a message in the place of one
//! that was lost before it: of what went from one life to another, that which arrives is the beginning, but for messages
//! that receives which failed may have taken. Between all others nothing is lost, doubled or failed.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::history::{Failed, History, MODES, Message, Mode, Outcome, RESERVED, Receive, Record, digest_of};
use super::onesided::{Ended, Ledger, Wrong};

/// What a job did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A send or receive ended twice.
    EndedTwice(&'static str, u32),
    /// A send or receive never ended, or was never posted.
    NotEnded(&'static str, u32),
    /// A send failed.
    SendFailed(u32, Failed),
    /// A receive ended with the failure of a node that had not failed, or that it does not name.
    FailedInVain(u32, Receive, u32),
    /// A send was refused because of a node that had not failed.
    RefusedInVain(u32, u32),
    /// A synchronous send ended well, and no receive can have matched it.
    Unmatched(u32, Message),
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
    /// Something is wrong with one-sided operations.
    OneSided(Wrong),
    /// Something was not given back.
    Leaked(u32, &'static str, u64, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndedTwice(what, number) => write!(f, "{what} {number} ended twice"),
            Self::NotEnded(what, number) => write!(f, "{what} {number} was not posted or did not end"),
            Self::SendFailed(send, why) => write!(f, "send {send} failed: {why:?}"),
            Self::FailedInVain(receive, posted, node) => {
                write!(f, "receive {receive}, {posted:?}, ended with the failure of node {node}, which was there")
            }
            Self::RefusedInVain(node, peer) => write!(f, "node {node} may not send to node {peer}, which is there"),
            Self::Unmatched(send, message) => {
                write!(f, "synchronous send {send}, {message:?}, ended well, and nobody received it")
            }
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
            Self::OneSided(wrong) => write!(f, "{wrong}"),
            Self::Leaked(node, what, before, after) => write!(f, "node {node}: {what} were {before} and are {after}"),
        }
    }
}

impl From<Wrong> for Violation {
    fn from(wrong: Wrong) -> Self {
        Self::OneSided(wrong)
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
    /// Sends and receives that ended with the failure of a node.
    pub failed: u64,
    /// Messages of nodes that failed, or to them, that nobody received.
    pub lost: u64,
    /// Receives that were truncated.
    pub truncated: u64,
    /// Receives from anyone or of any tag.
    pub wildcards: u64,
    /// One-sided operations that were done.
    pub one_sided: u64,
    /// Those that were denied.
    pub denied: u64,
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
        self.failed += other.failed;
        self.lost += other.lost;
        self.truncated += other.truncated;
        self.wildcards += other.wildcards;
        self.one_sided += other.one_sided;
        self.denied += other.denied;
        self.modes.iter_mut().zip(other.modes).for_each(|(sum, count)| *sum += count);
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, count)| *sum += count);
    }
}

/// A record of a posting, and where in the history it and its end are.
struct Posted<T> {
    what: T,
    at: usize,
    end: Option<usize>,
    /// Its node died before it ended.
    void: bool,
    /// It ended with a failure.
    failed: bool,
    /// The lives between which it goes, or for a receive that ended well, from which it came.
    stream: Stream,
}

/// A node in one of its lives.
type Life = (u32, u32);

/// What goes from one life to another on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Stream {
    comm: u32,
    from: Life,
    to: Life,
}

/// Who lives how often, and who knows whom, as the history goes on.
#[derive(Default)]
struct Lives {
    now: HashMap<u32, u32>,
    known: HashMap<(u32, u32), u32>,
    died: HashSet<Life>,
    severed: HashSet<(u32, u32)>,
}

impl Lives {
    fn of(&self, node: u32) -> Life {
        (node, self.now.get(&node).copied().unwrap_or(0))
    }

    /// A node as another knows it.
    fn known(&self, by: u32, node: u32) -> Life {
        if by == node { self.of(node) } else { (node, self.known.get(&(by, node)).copied().unwrap_or(0)) }
    }

    /// Whether a node may have failed for another.
    fn failed(&self, by: u32, node: u32) -> bool {
        self.died.contains(&self.known(by, node)) || self.are_severed(by, node)
    }

    fn are_severed(&self, one: u32, other: u32) -> bool {
        self.severed.contains(&(one.min(other), one.max(other)))
    }

    /// Whether what went between these lives may have been lost.
    fn may_lose(&self, stream: &Stream) -> bool {
        let Stream { from, to, .. } = stream;
        self.died.contains(from) || self.died.contains(to) || self.are_severed(from.0, to.0)
    }
}

/// Judges the whole history of a job that is over.
///
/// # Errors
/// The first violation that was found.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let (mut sends, mut receives) = (Vec::<Posted<Message>>::new(), Vec::<Posted<Receive>>::new());
    let mut outcomes: Vec<Option<Outcome>> = vec![];
    let mut rooms: HashMap<u32, (u64, bool)> = HashMap::new();
    let (mut lives, mut failed, mut ledger) = (Lives::default(), 0, Ledger::default());
    for (at, record) in history.records.iter().enumerate() {
        match record {
            Record::Send(message) => {
                let Message { comm, from, to, .. } = *message;
                let stream = Stream { comm, from: lives.of(from), to: lives.known(from, to) };
                sends.push(Posted { what: *message, at, end: None, void: false, failed: false, stream });
            }
            Record::Recv(receive) => {
                receives.push(Posted {
                    what: *receive,
                    at,
                    end: None,
                    void: false,
                    failed: false,
                    stream: Stream::default(),
                });
                outcomes.push(None);
            }
            Record::Sent(send, error) => {
                let posted = end(&mut sends, "send", *send, at)?;
                posted.failed = error.is_some();
                let message = posted.what;
                match error {
                    None => {}
                    Some(Failed::Peer(node)) if *node == message.to && lives.failed(message.from, *node) => failed += 1,
                    Some(error) => return Err(Violation::SendFailed(*send, error.clone())),
                }
            }
            Record::Received(receive, outcome) => {
                let posted = end(&mut receives, "receive", *receive, at)?;
                let Receive { at, comm, source, .. } = posted.what;
                match outcome {
                    Outcome::Received { source, .. } => {
                        posted.stream = Stream { comm, from: lives.known(at, *source), to: lives.of(at) };
                    }
                    Outcome::PeerFailed(node) if source.is_some_and(|one| one != *node) || !lives.failed(at, *node) => {
                        return Err(Violation::FailedInVain(*receive, posted.what, *node));
                    }
                    Outcome::PeerFailed(_) => failed += 1,
                    Outcome::Cancelled => {}
                }
                outcomes[*receive as usize] = Some(*outcome);
            }
            Record::Died(node) => {
                ledger.forget(*node);
                let life = lives.of(*node);
                lives.died.insert(life);
                lives.now.insert(*node, life.1 + 1);
                lives.known.retain(|(by, _), _| by != node);
                let mine = sends.iter_mut().filter(|send| send.what.from == *node && send.end.is_none());
                mine.for_each(|send| (send.end, send.void) = (Some(at), true));
                let mine = receives.iter_mut().filter(|receive| receive.what.at == *node && receive.end.is_none());
                mine.for_each(|receive| (receive.end, receive.void) = (Some(at), true));
            }
            Record::Severed(one, other) => {
                lives.severed.insert((*one.min(other), *one.max(other)));
            }
            Record::Refused { node, peer } if !lives.failed(*node, *peer) => {
                return Err(Violation::RefusedInVain(*node, *peer));
            }
            Record::Refused { .. } => {}
            Record::Met { node, peer } => {
                lives.known.insert((*node, *peer), lives.of(*peer).1);
            }
            Record::Window(window) => ledger.open(*window),
            Record::Closed(window) => ledger.close(*window),
            Record::Memory(window, memory) => ledger.look(*window, memory)?,
            Record::Asked(ask) => ledger.ask(*ask),
            Record::Done(number, ended) => {
                let Some([from, to]) = ledger.target(*number) else {
                    return Err(Violation::NotEnded("operation", *number));
                };
                if *ended == Ended::Lost {
                    if !lives.failed(from, to) {
                        return Err(Violation::OneSided(ledger.in_vain(*number)));
                    }
                    failed += 1;
                }
                ledger.end(*number, *ended)?;
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
    let mut summary = Matching::new(&sends, &lives).judge(&receives, &outcomes, &rooms)?;
    ledger.judge()?;
    [summary.one_sided, summary.denied] = ledger.counts;
    summary.failed = failed;
    Ok(summary)
}

fn end<'p, T>(
    posted: &'p mut [Posted<T>],
    what: &'static str,
    number: u32,
    at: usize,
) -> Result<&'p mut Posted<T>, Violation> {
    let entry = posted.get_mut(number as usize).ok_or(Violation::NotEnded(what, number))?;
    match entry.end.replace(at) {
        None => Ok(entry),
        Some(_) => Err(Violation::EndedTwice(what, number)),
    }
}

fn all_ended<T>(posted: &[Posted<T>], what: &'static str) -> Result<(), Violation> {
    match posted.iter().position(|entry| entry.end.is_none()) {
        None => Ok(()),
        Some(number) => Err(Violation::NotEnded(what, number as u32)),
    }
}

/// A receive that ended without a message, and may have matched one that was lost then.
struct Absorber {
    what: Receive,
    at: usize,
    /// The message that it is said to have matched.
    holds: Option<u32>,
}

/// The messages, in streams of one communicator, sender and receiver each.
struct Matching<'h> {
    sends: &'h [Posted<Message>],
    lives: &'h Lives,
    streams: HashMap<Stream, Vec<u32>>,
    taken: Vec<bool>,
    absorbers: Vec<Absorber>,
    summary: Summary,
    scratch: Vec<u8>,
}

fn accepts(receive: &Receive, message: &Message) -> bool {
    (receive.at, receive.comm) == (message.to, message.comm)
        && receive.source.is_none_or(|wanted| wanted == message.from)
        && receive.tag.map_or(message.tag < RESERVED, |wanted| wanted == message.tag)
}

impl<'h> Matching<'h> {
    fn new(sends: &'h [Posted<Message>], lives: &'h Lives) -> Self {
        let mut streams: HashMap<_, Vec<u32>> = HashMap::new();
        for (number, send) in sends.iter().enumerate() {
            streams.entry(send.stream).or_default().push(number as u32);
        }
        let taken = vec![false; sends.len()];
        Self { sends, lives, streams, taken, absorbers: vec![], summary: Summary::default(), scratch: vec![] }
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
            let (outcome, digest) = match *outcome {
                Some(outcome @ Outcome::Received { digest, .. }) => (outcome, digest),
                None | Some(Outcome::PeerFailed(_)) => {
                    self.absorbers.push(Absorber { what: receive, at: posted.at, holds: None });
                    continue;
                }
                Some(Outcome::Cancelled) => {
                    self.summary.cancelled += 1;
                    continue;
                }
            };
            let message = self.take(number, posted, outcome)?;
            let send = &self.sends[message as usize];
            if posted.end < Some(send.at) {
                return Err(Violation::BeforeItsCause(number));
            }
            if send.what.mode == Mode::Synchronous && !send.void && !send.failed && send.end < Some(posted.at) {
                return Err(Violation::NotSynchronous(message, number));
            }
            self.compare(number, posted, outcome, message)?;
            match rooms.get(&number) {
                Some((late, _)) if *late != digest => return Err(Violation::WrittenLate(number)),
                Some((_, false)) => return Err(Violation::Overrun(number)),
                _ => {}
            }
        }
        for lost in (0..self.sends.len()).filter(|lost| !self.taken[*lost]).collect::<Vec<_>>() {
            self.may_be_lost(lost as u32)?;
        }
        Ok(self.summary)
    }

    /// Whether nobody need have received a message.
    fn may_be_lost(&mut self, message: u32) -> Result<(), Violation> {
        let send = &self.sends[message as usize];
        if !self.lives.may_lose(&send.stream) {
            return Err(Violation::Lost(message, send.what));
        }
        self.summary.lost += 1;
        let went_well = send.end.is_some() && !send.void && !send.failed;
        let matched = |by: &Absorber| accepts(&by.what, &send.what) && Some(by.at) < send.end;
        if send.what.mode == Mode::Synchronous && went_well && !self.absorbers.iter().any(matched) {
            return Err(Violation::Unmatched(message, send.what));
        }
        Ok(())
    }

    /// The message that a receive must have got, if it is the one that it did get.
    fn take(&mut self, number: u32, posted: &Posted<Receive>, outcome: Outcome) -> Result<u32, Violation> {
        let receive = posted.what;
        let Outcome::Received { source, tag, .. } = outcome else { return Err(Violation::NotEnded("receive", number)) };
        let tag_matches = |tag: u32| receive.tag.map_or(tag < RESERVED, |wanted| wanted == tag);
        if receive.source.is_some_and(|wanted| wanted != source) || !tag_matches(tag) {
            return Err(Violation::WrongMatch(number, receive, outcome));
        }
        let stream = self.streams.get(&posted.stream).map_or(&[][..], Vec::as_slice);
        let left = |message: &&u32| !self.taken[**message as usize];
        let matching = |message: &&u32| tag_matches(self.sends[**message as usize].what.tag);
        let candidates: Vec<u32> = stream.iter().filter(left).filter(matching).copied().collect();
        let Some(&first) = candidates.first() else {
            return Err(Violation::NoSuchMessage(number, receive, outcome));
        };
        if !self.lives.may_lose(&posted.stream) || self.is(first, outcome) {
            if self.sends[first as usize].what.tag != tag {
                return Err(Violation::Overtaken { receive: number, outcome, first });
            }
            self.taken[first as usize] = true;
            return Ok(first);
        }
        // Those before it must have been taken by receives that failed.
        for candidate in candidates {
            if self.is(candidate, outcome) {
                self.taken[candidate as usize] = true;
                return Ok(candidate);
            }
            if !self.absorb(candidate, &mut vec![false; self.absorbers.len()]) {
                break;
            }
            self.taken[candidate as usize] = true;
            self.summary.lost += 1;
        }
        Err(Violation::Overtaken { receive: number, outcome, first })
    }

    /// Finds a receive that may have matched a message, if need be by having others hold other messages. Whether there is one.
    fn absorb(&mut self, message: u32, asked: &mut [bool]) -> bool {
        for by in 0..self.absorbers.len() {
            if asked[by] || !accepts(&self.absorbers[by].what, &self.sends[message as usize].what) {
                continue;
            }
            asked[by] = true;
            if self.absorbers[by].holds.is_none_or(|other| self.absorb(other, asked)) {
                self.absorbers[by].holds = Some(message);
                return true;
            }
        }
        false
    }

    /// Whether an outcome is what comes of a message.
    fn is(&mut self, message: u32, outcome: Outcome) -> bool {
        let Outcome::Received { tag, received, delivered, digest, .. } = outcome else { return false };
        let sent = self.sends[message as usize].what;
        (sent.tag, sent.len) == (tag, received) && digest_of(message, delivered, &mut self.scratch) == digest
    }

    /// Compares lengths and bytes.
    fn compare(
        &mut self,
        number: u32,
        posted: &Posted<Receive>,
        outcome: Outcome,
        message: u32,
    ) -> Result<(), Violation> {
        let receive = posted.what;
        let Outcome::Received { received, delivered, truncated, digest, .. } = outcome else { return Ok(()) };
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
        let stream = &self.streams[&posted.stream];
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
