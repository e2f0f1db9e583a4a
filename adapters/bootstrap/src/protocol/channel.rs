//! Sealed frames over a byte stream, without I/O. The crate's documentation gives the bytes.

use crate::JobKey;

/// Largest payload of a frame in bytes. It limits the publications of a rank.
pub(crate) const PAYLOAD_MAX: usize = 1 << 20;
const HEADER: usize = 8;
const TAG: usize = 16;

/// The kind of a frame, and its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub(crate) enum Kind {
    /// Server: the rank is accepted. Payload: its incarnation (4 bytes) and the number of its last fence (4 bytes).
    Welcome = 1,
    /// Server: the rank is refused. Payload: the reason in UTF-8.
    Refuse = 2,
    /// Rank: its publications. Server: the publications of several ranks, one set after another.
    Set = 3,
    /// Rank: it has reached fence number n (4 bytes). Server: all ranks have reached it.
    Fence = 4,
    /// Server: a rank has ended. Payload: the rank (4 bytes) and the last fence that it reached (4 bytes).
    Ended = 5,
    /// Rank: it takes no further part in the job. Server: acknowledged.
    Finish = 6,
    /// Rank: asks for the end of the job, with a code (4 bytes) and a message in UTF-8. Server: acknowledged.
    Abort = 7,
    /// Rank: a part of it has ended, though the rank goes on. Payload: the part's number (4 bytes), with [`DIED`] set
    /// if the part failed.
    PartEnded = 8,
    /// Rank: asks for the ends of ranks and parts from number n on (4 bytes). Server: the number to ask from next (4
    /// bytes), then for each end the rank (4 bytes) and the part (4 bytes). The part is [`WHOLE_RANK`] if the whole
    /// rank has ended, and has [`DIED`] set if it failed.
    Ends = 9,
    /// Server: asks the rank for its report, with the number of the question (4 bytes). Rank: the report of one of its
    /// contexts, with the number of the question (4 bytes) and the report in the format of `postcard`. The number 0
    /// stands for no question: then the rank waits in `finish` for long.
    Report = 10,
    /// Rank, before [`Finish`](Self::Finish): the messages that it has not received, in the format of `postcard`.
    Unmatched = 11,
    /// Rank: a warning for people, in UTF-8. The server passes the first one of a job on.
    Warning = 12,
    /// Rank: it, or a part of it (4 bytes), leaves the job early, and waits for no other rank. The part has [`DIED`] set
    /// if its program has failed. Server, to all other ranks at once: the rank (4 bytes) and the part (4 bytes).
    Left = 13,
    /// As `Left`, but some of its messages have yet to be sent.
    Leaving = 16,
    /// Rank: an operation of it has failed because this rank was lost, or had finished (4 bytes).
    LostPeer = 14,
    /// Rank: its program fails. Payload: 1 for a panic or 0 for an error (4 bytes), and the text in UTF-8.
    Failing = 15,
}

/// The part number that stands for the whole rank.
pub(crate) const WHOLE_RANK: u32 = DIED - 1;
/// A flag in a part number: the part or rank failed instead of ending normally.
pub(crate) const DIED: u32 = 1 << 31;

impl Kind {
    fn from_wire(kind: u16) -> Option<Self> {
        use Kind::{
            Abort, Ended, Ends, Failing, Fence, Finish, Leaving, Left, LostPeer, PartEnded, Refuse, Report, Set,
            Unmatched, Warning, Welcome,
        };
        let known = [
            Welcome, Refuse, Set, Fence, Ended, Finish, Abort, PartEnded, Ends, Report, Unmatched, Left, LostPeer,
            Failing, Warning, Leaving,
        ];
        known.into_iter().find(|known| *known as u16 == kind)
    }
}

/// Whether a rank whose last fence is `come` has reached fence `wanted`. The comparison holds when the numbers wrap.
pub(crate) fn reached(come: u32, wanted: u32) -> bool {
    come.wrapping_sub(wanted) <= u32::MAX / 2
}

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Rank,
    Server,
}

/// One end of a connection after the handshake.
#[derive(Debug)]
pub(crate) struct Channel {
    session: JobKey,
    side: Side,
    sent: u64,
    received: u64,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Bytes of `output` that have been written to the stream.
    written: usize,
}

impl Channel {
    pub(crate) fn new(session: JobKey, side: Side) -> Self {
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

    /// The bytes to write next.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Removes the first `count` bytes of the output, which the caller has written.
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

    /// Bytes that have arrived and that [`next`](Self::next) has not taken yet.
    #[cfg(test)]
    pub(crate) fn unread(&self) -> usize {
        self.input.len()
    }

    /// Adds bytes that have arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Whether [`next`](Self::next) would give a frame or an error.
    pub(crate) fn has_frame(&self) -> bool {
        let length = |header: &[u8; HEADER]| u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        self.input
            .first_chunk::<HEADER>()
            .is_some_and(|header| length(header) > PAYLOAD_MAX || self.input.len() >= HEADER + length(header) + TAG)
    }

    /// Takes the next whole frame. An error says how the frame breaks the protocol.
    pub(crate) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, String> {
        let Some(header) = self.input.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_le_bytes([header[4], header[5]]);
        if length > PAYLOAD_MAX || header[6..] != [0; 2] {
            return Err("the header of a frame is malformed".into());
        }
        let Some(frame) = self.input.get(..HEADER + length + TAG) else { return Ok(None) };
        let (body, tag) = frame.split_at(HEADER + length);
        let from = if self.side == Side::Rank { Side::Server } else { Side::Rank };
        if !self.session.verify(&[&[from as u8], &self.received.to_le_bytes(), body], tag) {
            return Err("the tag of a frame is wrong: a frame was changed, repeated or dropped on the way".into());
        }
        let kind = Kind::from_wire(kind).ok_or_else(|| format!("the kind of a frame is unknown: {kind}"))?;
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
        let key = JobKey::new([7; 32]);
        (Channel::new(key.clone(), Side::Rank), Channel::new(key, Side::Server))
    }

    #[test]
    fn frames_are_reassembled_from_single_bytes() {
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
            // A changed length can also make the frame incomplete, which is no error yet.
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
    fn a_length_above_the_limit_is_refused_before_the_payload_arrives() {
        let (_, mut server) = pair();
        server.feed(&(PAYLOAD_MAX as u32 + 1).to_le_bytes());
        server.feed(&[3, 0, 0, 0]);
        assert!(server.next().is_err());
    }
}
