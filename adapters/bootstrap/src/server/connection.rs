//! One connection of a server, during the handshake and after it.

use std::io::{self, Write};
use std::time::Instant;

use crate::protocol::channel::Channel;
use crate::protocol::handshake::{OPENING, Opening, PROBE};
use crate::protocol::stream::Stream;

/// Maximum number of bytes of output that may be queued for a rank. While more are queued, the server reads nothing
/// from that rank. Messages that other ranks cause come on top.
pub(crate) const OUTPUT_MAX: usize = 1 << 20;

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) from: String,
    pub(crate) state: ConnState,
    /// Bytes of the handshake that are still to be written.
    pub(crate) handshake_output: Vec<u8>,
}

pub(crate) enum ConnState {
    /// Waiting for the opening.
    Opening { read: Vec<u8>, until: Instant },
    /// Waiting for the rank's proof.
    Proof { read: Vec<u8>, until: Instant, opening: [u8; OPENING], nonce: [u8; 32] },
    /// Refused. The connection closes when the refusal is written.
    Refused { until: Instant },
    /// Authenticated and accepted.
    Joined { rank: u32, channel: Channel },
}

impl Connection {
    pub(crate) fn until(&self) -> Option<Instant> {
        match &self.state {
            ConnState::Opening { until, .. } | ConnState::Proof { until, .. } | ConnState::Refused { until } => {
                Some(*until)
            }
            ConnState::Joined { .. } => None,
        }
    }

    /// Whether the server reads from this connection. It reads nothing after a refusal, and no more requests from a
    /// rank that does not read the answers.
    pub(crate) fn may_read(&self) -> bool {
        match &self.state {
            ConnState::Opening { .. } | ConnState::Proof { .. } => true,
            ConnState::Refused { .. } => false,
            ConnState::Joined { channel, .. } => channel.output().len() < OUTPUT_MAX,
        }
    }

    /// Whether a whole frame has been received that can be handled now.
    pub(crate) fn has_frames(&self) -> bool {
        self.may_read() && matches!(&self.state, ConnState::Joined { channel, .. } if channel.has_frame())
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.handshake_output.is_empty()
            || matches!(&self.state, ConnState::Joined { channel, .. } if !channel.output().is_empty())
    }

    /// Writes as much output as possible without waiting.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        loop {
            let bytes = match &self.state {
                _ if !self.handshake_output.is_empty() => &self.handshake_output[..],
                ConnState::Joined { channel, .. } => channel.output(),
                _ => &[],
            };
            if bytes.is_empty() {
                return Ok(());
            }
            match self.stream.write(bytes) {
                Ok(count) if !self.handshake_output.is_empty() => drop(self.handshake_output.drain(..count)),
                Ok(count) => {
                    if let ConnState::Joined { channel, .. } = &mut self.state {
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

/// Why a connection is closed: without an event, or with a reason to report.
pub(crate) enum Close {
    Quietly,
    Because(String),
}

impl From<io::Error> for Close {
    fn from(why: io::Error) -> Self {
        Self::Because(why.to_string())
    }
}

pub(crate) fn is_probe(opening: &[u8; OPENING]) -> bool {
    Opening::parse(opening).is_ok_and(|opening| opening.rank == PROBE)
}

/// Moves bytes from `bytes` to `read` until it holds `N` of them, which are then returned.
pub(crate) fn take_exactly<const N: usize>(read: &mut Vec<u8>, bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_at(bytes.len().min(N - read.len()));
    read.extend_from_slice(front);
    *bytes = rest;
    read.as_slice().try_into().ok()
}
