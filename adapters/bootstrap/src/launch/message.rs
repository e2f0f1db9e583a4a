//! Messages between a launcher and its agent on another host, over the remote shell's standard streams.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::children::End;
use super::cores::{Binding, Mapping};
use super::lines::Source;

/// The first output of an agent. Everything before it comes from the start-up of the remote shell.
pub(crate) const MARK: &[u8] = b"\nTOWLINE-AGENT 2\n";
const MESSAGE_MAX: usize = 1 << 24;

/// An order from the launcher.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Order {
    Start(Box<Start>),
    Signal(i32),
    /// Restart a rank that has ended.
    Restart(u32),
    /// No rank will be restarted any more.
    NoMoreRestarts,
    /// Standard input for the ranks that read it; empty at its end.
    Input(Vec<u8>),
}

/// The ranks that an agent starts, and how. Paths, arguments and variables are arbitrary bytes.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Start {
    pub(crate) job: u64,
    pub(crate) key: [u8; 32],
    pub(crate) size: u32,
    pub(crate) ranks: Vec<u32>,
    /// Ranks that have ended may be restarted, so the agent stays until [`Order::NoMoreRestarts`].
    pub(crate) restarts: bool,
    pub(crate) host: String,
    /// Addresses of the launcher, in the order in which to try them, and its port.
    pub(crate) roots: Vec<String>,
    pub(crate) port: u16,
    pub(crate) transports: Vec<String>,
    pub(crate) links: Option<u32>,
    /// The ranks that read the launcher's standard input.
    pub(crate) input: Vec<u32>,
    pub(crate) mapping: Mapping,
    pub(crate) binding: Binding,
    pub(crate) program: Vec<u8>,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) directory: Vec<u8>,
    pub(crate) variables: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A report from the agent.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) enum Report {
    /// The agent waits for the order to start.
    Ready,
    Started {
        rank: u32,
        pid: u32,
    },
    NotStarted {
        rank: u32,
        why: String,
        code: u8,
    },
    /// The agent cannot start any rank.
    Failed {
        why: String,
    },
    Output {
        rank: u32,
        source: Source,
        bytes: Vec<u8>,
    },
    OutputEnd {
        rank: u32,
        source: Source,
    },
    /// All ranks here that read the input have got this many further bytes of it.
    InputTaken(usize),
    Ended {
        rank: u32,
        end: End,
    },
    /// All ranks have ended, and all output has been sent.
    Done,
}

/// Writes one message.
pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length as usize <= MESSAGE_MAX);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    to.write_all(&[&length.to_le_bytes(), &body[..]].concat())?;
    to.flush()
}

/// Reads one message; `None` at the end of the stream.
pub(crate) fn read<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    if from.read(&mut length[..1])? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_MAX {
        return Err(io::Error::other("a message is too long"));
    }
    // Memory is allocated for bytes that arrive, not for the length that is announced.
    let mut body = Vec::new();
    from.by_ref().take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (message, rest) = postcard::take_from_bytes(&body).map_err(io::Error::other)?;
    if rest.is_empty() { Ok(Some(message)) } else { Err(io::Error::other("a message has bytes after its end")) }
}

/// Reads up to the end of the agent's mark. Returns the text before the mark, and whether the mark was found before the
/// stream ended.
pub(crate) fn skip_to_mark(from: &mut impl Read) -> io::Result<(Vec<u8>, bool)> {
    const TEXT_MAX: usize = 1 << 16;
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(MARK) {
        if text.len() > TEXT_MAX || from.read(&mut byte)? == 0 {
            return Ok((text, false));
        }
        text.push(byte[0]);
    }
    text.truncate(text.len() - MARK.len());
    Ok((text, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_and_malformed_ones_are_refused() {
        let mut bytes = b"Welcome to node1!\n".to_vec();
        bytes.extend_from_slice(MARK);
        write(&mut bytes, &Report::Started { rank: 3, pid: 77 }).unwrap();
        let mut from = &bytes[..];
        assert_eq!(skip_to_mark(&mut from).unwrap(), (b"Welcome to node1!\n".to_vec(), true));
        let message = from.to_vec();
        assert!(matches!(read(&mut from).unwrap(), Some(Report::Started { rank: 3, pid: 77 })));
        assert!(read::<Report>(&mut from).unwrap().is_none());

        for length in 1..message.len() {
            assert!(read::<Report>(&mut &message[..length]).is_err(), "{length}");
        }
        assert!(read::<Report>(&mut &b"\xff\xff\xff\xff"[..]).is_err());
        assert!(read::<Report>(&mut &b"\x01\0\0\0\xff"[..]).is_err());
        assert!(read::<Report>(&mut &b"\x02\0\0\0\0\0"[..]).is_err());
        assert_eq!(skip_to_mark(&mut &b"no such command\n"[..]).unwrap(), (b"no such command\n".to_vec(), false));
    }
}
