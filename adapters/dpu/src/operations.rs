//! The commands in progress.

use std::collections::VecDeque;

use towline_core::convertor::Span;
use towline_window::command::ANY;
use towline_window::completion::{Completion, Done};

use crate::errors::{Failure, Lost};
use crate::heap::{Part, taken};
use crate::pages::Pages;

/// What a command is for.
#[derive(Debug)]
pub enum Kind {
    /// A send, and the copy of its message.
    Send(Option<Copied>),
    /// A receive.
    Receive(Sink),
    /// A put, get or atomic.
    Access(Accessed),
    /// A command that is waited for.
    Call,
}

impl Kind {
    /// Whether it is a send or receive.
    const fn is_message(&self) -> bool {
        matches!(self, Self::Send(_) | Self::Receive(_))
    }
}

/// The copy of a message.
#[derive(Debug)]
pub enum Copied {
    /// In the buffers of the device.
    Buffer(Part),
    /// In memory of this process, which the device reaches. The buffers have no room for it.
    Process(Pages),
}

/// What a put, get or atomic uses.
#[derive(Debug)]
pub struct Accessed {
    /// The peer.
    pub peer: u32,
    /// The place of the key of the peer's memory.
    pub remote: usize,
    /// The copy of the bytes in the buffers.
    pub part: Option<Part>,
    /// Where the copy goes after a get.
    pub into: Option<Span>,
}

impl Accessed {
    /// An operation without a copy of its bytes.
    pub const fn new(peer: u32, remote: usize) -> Self {
        Self { peer, remote, part: None, into: None }
    }
}

/// Where a receive puts its message.
#[derive(Debug)]
pub struct Sink {
    /// Bytes of the memory that the device writes.
    pub bytes: u64,
    /// Where it goes from there, unless it stays in the buffers.
    pub copy: Option<(Copied, Span)>,
}

impl Sink {
    /// Whether a device may say this of the message. Otherwise it violates the protocol.
    #[inline]
    pub const fn may_have(&self, done: &Done) -> bool {
        done.delivered <= self.bytes && done.delivered <= done.received
    }
}

/// A command in progress, or its outcome.
#[derive(Debug)]
pub struct Operation {
    /// What it is for.
    pub kind: Kind,
    /// Its outcome, if it is over. A free place has one, too.
    pub outcome: Option<Result<Done, Failure>>,
    /// If it has failed: the rank of the peer that is the reason, or any.
    pub failed: u32,
    /// Bytes of the buffers that a send's message was copied to.
    pub copied: u64,
    /// How often its place was freed: tells it from others that had the same place. It wraps.
    number: u32,
}

impl Operation {
    /// A free place.
    const fn free(number: u32) -> Self {
        Self { kind: Kind::Call, outcome: Some(Err(Failure::NoRequest)), failed: ANY, copied: 0, number }
    }
}

/// The commands in progress. A cookie has the place in its lower half, and the number of the operation in its upper half.
#[derive(Debug, Default)]
pub struct Operations {
    places: Vec<Operation>,
    /// The places that are free.
    free: Vec<u32>,
    /// Sends and receives whose outcome the device has not reported.
    pending: u32,
    /// Puts, gets and atomics whose outcome the device has not reported.
    accesses: u32,
    /// The sends and receives that have ended, if their user wants the list.
    ended: Option<VecDeque<u64>>,
    /// The same for puts, gets and atomics.
    ended_accesses: Option<VecDeque<u64>>,
}

/// The place of a cookie's operation.
#[inline]
pub fn place(cookie: u64) -> usize {
    (cookie & u64::from(u32::MAX)) as usize
}

impl Operations {
    /// Adds a command, and returns its cookie.
    #[inline(always)]
    pub fn add(&mut self, kind: Kind) -> u64 {
        match kind {
            Kind::Send(_) | Kind::Receive(_) => self.pending += 1,
            Kind::Access(_) => self.accesses += 1,
            Kind::Call => {}
        }
        let copied = match &kind {
            Kind::Send(Some(Copied::Buffer(part))) => taken(part.body.bytes),
            _ => 0,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Operation::free(0));
            self.places.len() as u32 - 1
        });
        let number = self.places.get_mut(at as usize).map_or(0, |operation| {
            (operation.kind, operation.outcome, operation.failed, operation.copied) = (kind, None, ANY, copied);
            operation.number
        });
        u64::from(number) << 32 | u64::from(at)
    }

    /// Frees the place of an operation.
    #[inline]
    fn free(&mut self, cookie: u64) {
        if let Some(operation) = self.places.get_mut(place(cookie)) {
            (operation.kind, operation.outcome) = (Kind::Call, Some(Err(Failure::NoRequest)));
            operation.number = operation.number.wrapping_add(1);
            self.free.push(place(cookie) as u32);
        }
    }

    /// How many sends and receives are in progress.
    pub const fn pending(&self) -> u32 {
        self.pending
    }

    /// How many puts, gets and atomics are in progress.
    pub const fn accesses(&self) -> u32 {
        self.accesses
    }

    /// Whether a put, get or atomic is in progress on memory of a peer, or of any peer.
    pub fn accesses_peer(&self, peer: Option<u32>) -> bool {
        let is_it = |operation: &Operation| match &operation.kind {
            Kind::Access(accessed) => operation.outcome.is_none() && peer.is_none_or(|peer| peer == accessed.peer),
            _ => false,
        };
        self.accesses != 0 && self.places.iter().any(is_it)
    }

    /// The operation of a cookie.
    #[inline]
    pub fn get(&self, cookie: u64) -> Option<&Operation> {
        self.places.get(place(cookie)).filter(|operation| u64::from(operation.number) == cookie >> 32)
    }

    /// The operation of a completion, which is over from now on.
    pub fn complete(&mut self, completion: &Completion) -> Option<&mut Operation> {
        let operation = self.places.get_mut(place(completion.cookie))?;
        if u64::from(operation.number) != completion.cookie >> 32 || operation.outcome.is_some() {
            return None;
        }
        operation.outcome = Some(completion.result.map_err(Failure::Operation));
        operation.failed = completion.failed;
        if matches!(operation.kind, Kind::Access(_)) {
            self.accesses -= 1;
            if let Some(ended) = &mut self.ended_accesses {
                ended.push_back(completion.cookie);
            }
        }
        if operation.kind.is_message() {
            self.pending -= 1;
            if let Some(ended) = &mut self.ended {
                ended.push_back(completion.cookie);
            }
        }
        Some(operation)
    }

    /// The receive of a cookie, if it is in progress.
    #[inline]
    pub fn receive_of(&self, cookie: u64) -> Option<&Sink> {
        match self.get(cookie) {
            Some(Operation { kind: Kind::Receive(sink), outcome: None, .. }) => Some(sink),
            _ => None,
        }
    }

    /// Removes a send or receive in progress.
    #[inline]
    pub fn end_message(&mut self, cookie: u64) {
        self.free(cookie);
        self.pending -= 1;
    }

    /// Takes an operation that is over.
    pub fn take(&mut self, cookie: u64) -> Option<Result<Done, Failure>> {
        let outcome = self.get(cookie)?.outcome?;
        self.free(cookie);
        Some(outcome)
    }

    /// Removes a command that was not written.
    pub fn undo(&mut self, cookie: u64) -> Option<Operation> {
        let number = self.get(cookie)?.number.wrapping_add(1);
        let operation = std::mem::replace(self.places.get_mut(place(cookie))?, Operation::free(number));
        self.free.push(place(cookie) as u32);
        let is_open = operation.outcome.is_none();
        self.pending -= u32::from(is_open && operation.kind.is_message());
        self.accesses -= u32::from(is_open && matches!(operation.kind, Kind::Access(_)));
        Some(operation)
    }

    /// Ends all commands in progress, since the device has failed.
    pub fn fail(&mut self, why: Lost) {
        for (place, operation) in self.places.iter_mut().enumerate() {
            if operation.outcome.is_some() {
                continue;
            }
            operation.outcome = Some(Err(Failure::Device(why)));
            if let Kind::Receive(Sink { copy, .. }) = &mut operation.kind
                && let Some((Copied::Process(memory), _)) = copy.take()
            {
                // A firmware that hangs may have begun to write there, so this memory is never used for anything else.
                std::mem::forget(memory);
            }
            let list = match &operation.kind {
                Kind::Send(_) | Kind::Receive(_) => &mut self.ended,
                Kind::Access(_) => &mut self.ended_accesses,
                Kind::Call => continue,
            };
            if let Some(ended) = list {
                ended.push_back(u64::from(operation.number) << 32 | place as u64);
            }
        }
        (self.pending, self.accesses) = (0, 0);
    }

    /// From now on operations that end are listed.
    pub fn list_ended(&mut self) {
        (self.ended, self.ended_accesses) = (Some(VecDeque::new()), Some(VecDeque::new()));
    }

    /// Whether the lists have an operation.
    pub fn has_ended(&self) -> bool {
        [&self.ended, &self.ended_accesses].into_iter().flatten().any(|list| !list.is_empty())
    }

    /// The next put, get or atomic that has ended.
    pub fn next_ended_access(&mut self) -> Option<u64> {
        self.ended_accesses.as_mut()?.pop_front()
    }

    /// The next send or receive that has ended. One that was [forgotten](Self::forget) is left out.
    pub fn next_ended(&mut self) -> Option<u64> {
        loop {
            let cookie = self.ended.as_mut()?.pop_front()?;
            if self.get(cookie).is_some() {
                return Some(cookie);
            }
        }
    }

    /// The memory of receives and gets is not written any more.
    pub fn abandon_receives(&mut self) {
        for operation in &mut self.places {
            if let Kind::Receive(Sink { copy: Some((_, memory)), .. })
            | Kind::Access(Accessed { into: Some(memory), .. }) = &mut operation.kind
            {
                *memory = Span::EMPTY;
            }
        }
    }

    /// Drops the outcome of an operation.
    pub fn forget(&mut self, cookie: u64) {
        let _ = self.take(cookie);
    }
}
