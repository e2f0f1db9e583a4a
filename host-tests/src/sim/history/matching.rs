//! Determines which message each receive must have got.

use std::collections::HashMap;

use super::digest::digest_of;
use super::lives::{Incarnations, Posted, Stream};
use super::messages::{MODES, Message, Mode, Outcome, RESERVED, Receive};
use super::violation::{SIZES, Summary, Violation};

/// A receive that failed, and may have matched a message that was then lost.
pub(super) struct FailedReceive {
    what: Receive,
    at: usize,
    /// The message that is assigned to it.
    holds: Option<u32>,
}

/// The messages, grouped by communicator, sender and receiver.
pub(super) struct Matching<'h> {
    sends: &'h [Posted<Message>],
    incarnations: &'h Incarnations,
    streams: HashMap<Stream, Vec<u32>>,
    taken: Vec<bool>,
    failed_receives: Vec<FailedReceive>,
    summary: Summary,
    scratch: Vec<u8>,
}

pub(super) fn accepts(receive: &Receive, message: &Message) -> bool {
    (receive.at, receive.comm) == (message.to, message.comm)
        && receive.source.is_none_or(|wanted| wanted == message.from)
        && receive.tag.map_or(message.tag < RESERVED, |wanted| wanted == message.tag)
}

impl<'h> Matching<'h> {
    pub fn new(sends: &'h [Posted<Message>], incarnations: &'h Incarnations) -> Self {
        let mut streams: HashMap<_, Vec<u32>> = HashMap::new();
        for (number, send) in sends.iter().enumerate() {
            streams.entry(send.stream).or_default().push(number as u32);
        }
        let taken = vec![false; sends.len()];
        Self {
            sends,
            incarnations,
            streams,
            taken,
            failed_receives: vec![],
            summary: Summary::default(),
            scratch: vec![],
        }
    }

    pub fn check(
        mut self,
        receives: &[Posted<Receive>],
        outcomes: &[Option<Outcome>],
        buffers: &HashMap<u32, (u64, bool)>,
    ) -> Result<Summary, Violation> {
        for (number, (posted, outcome)) in receives.iter().zip(outcomes).enumerate() {
            let number = number as u32;
            let receive = posted.what;
            self.summary.wildcards += u64::from(receive.source.is_none() || receive.tag.is_none());
            let (outcome, digest) = match *outcome {
                Some(outcome @ Outcome::Received { digest, .. }) => (outcome, digest),
                None | Some(Outcome::PeerFailed(_)) => {
                    self.failed_receives.push(FailedReceive { what: receive, at: posted.at, holds: None });
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
                return Err(Violation::ReceivedBeforeSent(number));
            }
            if send.what.mode == Mode::Synchronous && !send.void && !send.failed && send.end < Some(posted.at) {
                return Err(Violation::NotSynchronous(message, number));
            }
            self.compare(number, posted, outcome, message)?;
            match buffers.get(&number) {
                Some((late, _)) if *late != digest => return Err(Violation::WrittenAfterEnd(number)),
                Some((_, false)) => return Err(Violation::Overrun(number)),
                _ => {}
            }
        }
        for lost in (0..self.sends.len()).filter(|lost| !self.taken[*lost]).collect::<Vec<_>>() {
            self.check_unreceived(lost as u32)?;
        }
        Ok(self.summary)
    }

    /// Checks that a message may be lost.
    fn check_unreceived(&mut self, message: u32) -> Result<(), Violation> {
        let send = &self.sends[message as usize];
        if !self.incarnations.may_lose(&send.stream) {
            return Err(Violation::Lost(message, send.what));
        }
        self.summary.lost += 1;
        let went_well = send.end.is_some() && !send.void && !send.failed;
        let matched = |by: &FailedReceive| accepts(&by.what, &send.what) && Some(by.at) < send.end;
        if send.what.mode == Mode::Synchronous && went_well && !self.failed_receives.iter().any(matched) {
            return Err(Violation::Unmatched(message, send.what));
        }
        Ok(())
    }

    /// The message that a receive must have got. An error if it did not get that one.
    fn take(&mut self, number: u32, posted: &Posted<Receive>, outcome: Outcome) -> Result<u32, Violation> {
        let receive = posted.what;
        let Outcome::Received { source, tag, .. } = outcome else {
            return Err(Violation::NotCompleted("receive", number));
        };
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
        if !self.incarnations.may_lose(&posted.stream) || self.is(first, outcome) {
            if self.sends[first as usize].what.tag != tag {
                return Err(Violation::WrongOrder { receive: number, outcome, first });
            }
            self.taken[first as usize] = true;
            return Ok(first);
        }
        // Failed receives must have taken all messages before the received one.
        for candidate in candidates {
            if self.is(candidate, outcome) {
                self.taken[candidate as usize] = true;
                return Ok(candidate);
            }
            if !self.assign_to_failed(candidate, &mut vec![false; self.failed_receives.len()]) {
                break;
            }
            self.taken[candidate as usize] = true;
            self.summary.lost += 1;
        }
        Err(Violation::WrongOrder { receive: number, outcome, first })
    }

    /// Assigns a message to a failed receive that may have matched it, moving other messages to other receives if
    /// necessary. Returns whether this is possible.
    fn assign_to_failed(&mut self, message: u32, asked: &mut [bool]) -> bool {
        for by in 0..self.failed_receives.len() {
            if asked[by] || !accepts(&self.failed_receives[by].what, &self.sends[message as usize].what) {
                continue;
            }
            asked[by] = true;
            if self.failed_receives[by].holds.is_none_or(|other| self.assign_to_failed(other, asked)) {
                self.failed_receives[by].holds = Some(message);
                return true;
            }
        }
        false
    }

    /// Whether an outcome is that of a message.
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
        let lengths_fit = delivered == sent.len.min(receive.buffer) && truncated == (sent.len > receive.buffer);
        if received == sent.len && lengths_fit && digest_of(message, delivered, &mut self.scratch) == digest {
            self.summary.messages += 1;
            let mode = MODES.iter().position(|mode| *mode == sent.mode).unwrap_or_default();
            self.summary.modes[mode] += 1;
            self.summary.sizes[SIZES.iter().take_while(|most| sent.len > **most).count()] += 1;
            self.summary.bytes += delivered;
            self.summary.truncated += u64::from(truncated);
            return Ok(());
        }
        // The outcome is wrong. If it is that of another message of the same sender, the order is violated.
        let stream = &self.streams[&posted.stream];
        let mut scratch = std::mem::take(&mut self.scratch);
        let other = stream.iter().copied().find(|other| {
            *other != message
                && self.sends[*other as usize].what.len == received
                && delivered > 0
                && digest_of(*other, delivered, &mut scratch) == digest
        });
        Err(match other {
            Some(_) if received != sent.len => Violation::WrongOrder { receive: number, outcome, first: message },
            None if received != sent.len || !lengths_fit => Violation::WrongLength(number, sent, outcome),
            other => Violation::WrongBytes(number, message, other),
        })
    }
}
