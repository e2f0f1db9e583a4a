//! One connection of a server: its handshake, or the rank that it belongs to.

use std::io::{self, Write};
use std::time::Instant;

use crate::protocol::channel::Channel;
use crate::protocol::handshake::{OPENING, Opening, PROBE};
use crate::protocol::stream::Stream;

/// Bytes that may wait for a rank to read them; before it has, nothing more is heard from it. What others say to it comes on top.
pub(super) const BACKLOG_BYTES: usize = 1 << 20;

pub(super) struct Connection {
    pub(super) stream: Stream,
    pub(super) from: String,
    pub(super) state: State,
    /// Bytes of the handshake that are to be written.
    pub(super) greeting: Vec<u8>,
}

pub(super) enum State {
    /// Waits for the opening.
    Opening { read: Vec<u8>, until: Instant },
    /// Waits for the rank's proof.
    Proof { read: Vec<u8>, until: Instant, opening: [u8; OPENING], nonce: [u8; 32] },
    /// Has been refused; closes when that is written.
    Refused { until: Instant },
    /// Belongs to the job.
    Open { rank: u32, channel: Channel },
}

impl Connection {
    pub(super) fn until(&self) -> Option<Instant> {
        match &self.state {
            State::Opening { until, .. } | State::Proof { until, .. } | State::Refused { until } => Some(*until),
            State::Open { .. } => None,
        }
    }

    /// Whether anything that it says would be heard: not what comes after a refusal, nor more questions of a rank that does not
    /// read the answers.
    pub(super) fn is_heard(&self) -> bool {
        match &self.state {
            State::Opening { .. } | State::Proof { .. } => true,
            State::Refused { .. } => false,
            State::Open { channel, .. } => channel.output().len() < BACKLOG_BYTES,
        }
    }

    /// Whether frames that are here already could be heard now.
    pub(super) fn has_frames(&self) -> bool {
        self.is_heard() && matches!(&self.state, State::Open { channel, .. } if channel.has_frame())
    }

    pub(super) fn has_output(&self) -> bool {
        !self.greeting.is_empty() || matches!(&self.state, State::Open { channel, .. } if !channel.output().is_empty())
    }

    /// Writes what it can without waiting.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        loop {
            let bytes = match &self.state {
                _ if !self.greeting.is_empty() => &self.greeting[..],
                State::Open { channel, .. } => channel.output(),
                _ => &[],
            };
            if bytes.is_empty() {
                return Ok(());
            }
            match self.stream.write(bytes) {
                Ok(count) if !self.greeting.is_empty() => drop(self.greeting.drain(..count)),
                Ok(count) => {
                    if let State::Open { channel, .. } = &mut self.state {
                        channel.wrote(count);
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }
}

/// Why a connection is closed, and whether that is worth a word.
pub(super) enum Close {
    Quietly,
    Because(String),
}

impl From<io::Error> for Close {
    fn from(why: io::Error) -> Self {
        Self::Because(why.to_string())
    }
}

pub(super) fn is_probe(opening: &[u8; OPENING]) -> bool {
    Opening::parse(opening).is_ok_and(|opening| opening.rank == PROBE)
}

/// Moves bytes to `read` until there are `N` of them, which it then gives.
pub(super) fn collect<const N: usize>(read: &mut Vec<u8>, bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_at(bytes.len().min(N - read.len()));
    read.extend_from_slice(front);
    *bytes = rest;
    read.as_slice().try_into().ok()
}
