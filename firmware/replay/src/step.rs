//! One line of a trace.
//!
//! A line is a verb and numbers. AT, FROM and TO are contexts, N is the name of an operation, CONTEXT names a communicator. SOURCE
//! and TAG may be `any`. MODE is `standard`, `synchronous`, `complete` or `ready`. Text after `#` is a comment.
//!
//! | line | meaning |
//! |---|---|
//! | `join AT CONTEXT PEER...` | makes a communicator; without peers, rank r is context r |
//! | `leave AT CONTEXT` | deletes it |
//! | `send N AT CONTEXT DEST TAG MODE BYTES` | begins to send |
//! | `recv N AT CONTEXT SOURCE TAG BYTES` | begins to receive |
//! | `probe AT CONTEXT SOURCE TAG` | looks for a message once |
//! | `await AT CONTEXT SOURCE TAG` | looks for a message until there is one |
//! | `take N AT CONTEXT SOURCE TAG` | takes a message out |
//! | `mrecv N TAKEN BYTES` | begins to receive a message that was taken out |
//! | `cancel N` | cancels an operation |
//! | `pending N` | requires that an operation is in progress |
//! | `wait N` | waits for the end of an operation |
//! | `fence FROM TO` | waits until all messages between two contexts so far have arrived and were matched |
//! | `poll AT COUNT` | only this context makes progress |

use towline_window::command::{ANY, Mode};

/// Most ranks of a communicator.
pub const RANKS: usize = 4;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the table above has the fields")]
pub enum Step {
    Join { at: u32, context: u32, peers: Peers },
    Leave { at: u32, context: u32 },
    Send { name: u32, at: u32, context: u32, dest: u32, tag: u32, mode: Mode, bytes: u32 },
    Receive { name: u32, at: u32, context: u32, source: u32, tag: u32, bytes: u32 },
    Probe { at: u32, context: u32, source: u32, tag: u32 },
    Await { at: u32, context: u32, source: u32, tag: u32 },
    Take { name: u32, at: u32, context: u32, source: u32, tag: u32 },
    ReceiveTaken { name: u32, taken: u32, bytes: u32 },
    Cancel { name: u32 },
    Pending { name: u32 },
    Wait { name: u32 },
    Fence { from: u32, to: u32 },
    Poll { at: u32, count: u32 },
}

/// The peers of a communicator's ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peers {
    all: [u32; RANKS],
    count: usize,
}

impl Peers {
    /// The peers, in the order of their ranks. Empty if rank r is peer r.
    pub fn as_slice(&self) -> &[u32] {
        self.all.get(..self.count).unwrap_or_default()
    }
}

/// The words of a line.
struct Words<'t>(&'t [u8]);

impl<'t> Iterator for Words<'t> {
    type Item = &'t [u8];

    fn next(&mut self) -> Option<&'t [u8]> {
        let begin = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = self.0.get(begin..)?;
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at_checked(end)?;
        self.0 = rest;
        Some(word)
    }
}

fn number(word: &[u8]) -> Option<u32> {
    if word.is_empty() {
        return None;
    }
    word.iter().try_fold(0_u32, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}

impl Words<'_> {
    fn number(&mut self) -> Option<u32> {
        number(self.next()?)
    }

    fn number_or_any(&mut self) -> Option<u32> {
        match self.next()? {
            b"any" => Some(ANY),
            word => number(word),
        }
    }

    fn mode(&mut self) -> Option<Mode> {
        match self.next()? {
            b"standard" => Some(Mode::Standard),
            b"synchronous" => Some(Mode::Synchronous),
            b"complete" => Some(Mode::Complete),
            b"ready" => Some(Mode::Ready),
            _ => None,
        }
    }

    fn peers(&mut self) -> Option<Peers> {
        let mut peers = Peers { all: [0; RANKS], count: 0 };
        for word in self {
            *peers.all.get_mut(peers.count)? = number(word)?;
            peers.count = peers.count.saturating_add(1);
        }
        Some(peers)
    }
}

impl Step {
    /// The step of a line. Returns `Ok(None)` for a line without a step.
    ///
    /// # Errors
    /// [`BadStep`].
    pub fn parse(line: &[u8]) -> Result<Option<Self>, BadStep> {
        let end = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
        let mut words = Words(line.get(..end).unwrap_or_default());
        let Some(verb) = words.next() else { return Ok(None) };
        let step = Self::read(verb, &mut words).ok_or(BadStep)?;
        if words.next().is_some() { Err(BadStep) } else { Ok(Some(step)) }
    }

    fn read(verb: &[u8], words: &mut Words<'_>) -> Option<Self> {
        Some(match verb {
            b"join" => Self::Join { at: words.number()?, context: words.number()?, peers: words.peers()? },
            b"leave" => Self::Leave { at: words.number()?, context: words.number()? },
            b"send" => Self::Send {
                name: words.number()?,
                at: words.number()?,
                context: words.number()?,
                dest: words.number()?,
                tag: words.number()?,
                mode: words.mode()?,
                bytes: words.number()?,
            },
            b"recv" => Self::Receive {
                name: words.number()?,
                at: words.number()?,
                context: words.number()?,
                source: words.number_or_any()?,
                tag: words.number_or_any()?,
                bytes: words.number()?,
            },
            b"probe" => Self::Probe {
                at: words.number()?,
                context: words.number()?,
                source: words.number_or_any()?,
                tag: words.number_or_any()?,
            },
            b"await" => Self::Await {
                at: words.number()?,
                context: words.number()?,
                source: words.number_or_any()?,
                tag: words.number_or_any()?,
            },
            b"take" => Self::Take {
                name: words.number()?,
                at: words.number()?,
                context: words.number()?,
                source: words.number_or_any()?,
                tag: words.number_or_any()?,
            },
            b"mrecv" => Self::ReceiveTaken { name: words.number()?, taken: words.number()?, bytes: words.number()? },
            b"cancel" => Self::Cancel { name: words.number()? },
            b"pending" => Self::Pending { name: words.number()? },
            b"wait" => Self::Wait { name: words.number()? },
            b"fence" => Self::Fence { from: words.number()?, to: words.number()? },
            b"poll" => Self::Poll { at: words.number()?, count: words.number()? },
            _ => return None,
        })
    }
}

/// The line is not a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadStep;
