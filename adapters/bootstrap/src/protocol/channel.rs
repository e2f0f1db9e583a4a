//! Sealed frames over a stream of bytes, without I/O. The crate's page gives the bytes.

use crate::Key;

/// The largest payload: a rank's publications, or a message.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
const HEADER: usize = 8;
const TAG: usize = 16;

/// What a frame says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Kind {
    /// Server: the rank is in; its incarnation (4 bytes).
    Welcome = 1,
    /// Server: the rank is not let in; why, in UTF-8.
    Refuse = 2,
    /// Rank: what it publishes. Server: what ranks publish, several sets one after another.
    Set = 3,
    /// Rank: it has come to fence number n (4 bytes). Server: all have.
    Fence = 4,
    /// Server: a rank ended (4 bytes), having come to fence number n (4 bytes).
    Gone = 5,
    /// Rank: it will take part in nothing further. Server: understood.
    Finish = 6,
    /// Rank: end the job; a code (4 bytes) and a message in UTF-8. Server: understood.
    Abort = 7,
    /// Rank: a part of it will take part in nothing further, though the rank goes on; its number (4 bytes), with
    /// [`DIED`] where it did not come to its end in good order.
    Part = 8,
    /// Rank: it wants to hear of the ends of ranks and parts from number n on (4 bytes). Server: the number to go on from
    /// (4 bytes), and of each end its rank (4 bytes) and part (4 bytes), [`WHOLE`] for all of the rank, with [`DIED`] where
    /// that was not in good order.
    Ends = 9,
}

/// In the place of a part: the whole rank.
pub(crate) const WHOLE: u32 = DIED - 1;
/// Added to a part that did not come to its end in good order.
pub(crate) const DIED: u32 = 1 << 31;

impl Kind {
    fn from_wire(kind: u16) -> Option<Self> {
        use Kind::{Abort, Ends, Fence, Finish, Gone, Part, Refuse, Set, Welcome};
        [Welcome, Refuse, Set, Fence, Gone, Finish, Abort, Part, Ends].into_iter().find(|known| *known as u16 == kind)
    }
}

/// Whether a rank that has come to fence `come` has come to `wanted`, also where the numbers wrap.
pub(crate) fn reached(come: u32, wanted: u32) -> bool {
    come.wrapping_sub(wanted) <= u32::MAX / 2
}

/// Which end of a connection this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Rank,
    Server,
}

/// One end of a connection after the handshake.
#[derive(Debug)]
pub(crate) struct Channel {
    session: Key,
    side: Side,
    sent: u64,
    received: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that are on their way already.
    written: usize,
}

impl Channel {
    pub(crate) fn new(session: Key, side: Side) -> Self {
        Self { session, side, sent: 0, received: 0, input: Vec::new(), output: Vec::new(), written: 0 }
    }

    /// Queues a frame. The payload is at most [`PAYLOAD_MAX`] long.
    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..6].copy_from_slice(&(kind as u16).to_le_bytes());
        let tag = self.session.mac(&[&[self.side as u8], &self.sent.to_le_bytes(), &header, payload]);
        self.sent += 1;
        self.output.extend_from_slice(&header);
        self.output.extend_from_slice(payload);
        self.output.extend_from_slice(&tag[..TAG]);
    }

    /// Bytes to be written next.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Notes that the first `count` bytes of the output are written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else if self.written > PAYLOAD_MAX {
            self.output.drain(..self.written);
            self.written = 0;
        }
    }

    /// Bytes that arrived, and are of no whole frame yet, or wait to be asked for.
    #[cfg(test)]
    pub(crate) fn unread(&self) -> usize {
        self.input.len()
    }

    /// Takes in bytes that arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Whether [`next`](Self::next) would give a frame, or say what is wrong with it.
    pub(crate) fn has_frame(&self) -> bool {
        let length = |header: &[u8; HEADER]| u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        self.input
            .first_chunk::<HEADER>()
            .is_some_and(|header| length(header) > PAYLOAD_MAX || self.input.len() >= HEADER + length(header) + TAG)
    }

    /// The next whole frame.
    pub(crate) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, String> {
        let Some(header) = self.input.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_le_bytes([header[4], header[5]]);
        if length > PAYLOAD_MAX || header[6..] != [0; 2] {
            return Err("a frame's header is malformed".into());
        }
        let Some(frame) = self.input.get(..HEADER + length + TAG) else { return Ok(None) };
        let (body, tag) = frame.split_at(HEADER + length);
        let from = if self.side == Side::Rank { Side::Server } else { Side::Rank };
        if !self.session.verify(&[&[from as u8], &self.received.to_le_bytes(), body], tag) {
            return Err("a frame's tag is wrong: it was changed, repeated or left out on the way".into());
        }
        let kind = Kind::from_wire(kind).ok_or_else(|| format!("a frame of unknown kind {kind}"))?;
        let payload = body[HEADER..].to_vec();
        self.received += 1;
        self.input.drain(..HEADER + length + TAG);
        Ok(Some((kind, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let key = Key::from_bytes([7; 32]);
        (Channel::new(key.clone(), Side::Rank), Channel::new(key, Side::Server))
    }

    #[test]
    fn frames_arrive_whole_from_any_pieces() {
        let (mut rank, mut server) = pair();
        rank.send(Kind::Set, b"first");
        rank.send(Kind::Finish, b"");
        let bytes = rank.output().to_vec();
        assert_eq!(bytes.len(), 8 + 5 + 16 + 8 + 16);
        rank.wrote(20);
        assert_eq!(rank.output(), &bytes[20..]);
        let mut got = Vec::new();
        for byte in bytes {
            server.feed(&[byte]);
            got.extend(server.next().unwrap());
        }
        assert_eq!(got, [(Kind::Set, b"first".to_vec()), (Kind::Finish, vec![])]);
    }

    #[test]
    fn changed_repeated_and_reflected_frames_are_refused() {
        let (mut rank, _) = pair();
        rank.send(Kind::Fence, &[1, 0, 0, 0]);
        let frame = rank.output().to_vec();
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 1;
            let (_, mut server) = pair();
            server.feed(&changed);
            // A changed length may also make the frame incomplete.
            assert!(!matches!(server.next(), Ok(Some(_))), "byte {at}");
        }
        let (_, mut server) = pair();
        server.feed(&frame);
        server.feed(&frame);
        assert!(server.next().unwrap().is_some());
        assert!(server.next().is_err());
        rank.feed(&frame);
        assert!(rank.next().is_err());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_the_payload_comes() {
        let (_, mut server) = pair();
        server.feed(&(PAYLOAD_MAX as u32 + 1).to_le_bytes());
        server.feed(&[3, 0, 0, 0]);
        assert!(server.next().is_err());
    }
}
