//! How a rank finds its server and proves itself.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{self, ANSWER, Exchange, OPENING, Opening, PROBE, PROOF, Refusal};
use crate::protocol::stream::Stream;
use crate::{Address, Environment, Key, key};

/// Between two attempts to connect to a server that is not there yet.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Attempts at a server that closes before it has let this rank in: it may have too many callers just then.
const CLOSED_TRIES: u32 = 100;

/// A connection to the server on which both sides have proved themselves.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    pub(crate) channel: Channel,
    /// Where bytes are read to.
    pub(crate) buffer: Box<[u8]>,
}

/// A link, and what the server says of this rank's earlier lives.
pub(crate) struct Joined {
    pub(crate) link: Link,
    pub(crate) incarnation: u32,
    pub(crate) fence: u32,
}

/// Connects, proves, and is let in.
pub(crate) fn join(environment: &Environment, deadline: Instant) -> Result<Joined, Error> {
    let mut closed = 0;
    loop {
        match join_once(environment, deadline) {
            Err(Error::Lost { .. }) if closed < CLOSED_TRIES && Instant::now() + RETRY_PAUSE < deadline => {
                closed += 1;
                thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}

fn join_once(environment: &Environment, deadline: Instant) -> Result<Joined, Error> {
    let started = Instant::now();
    let (mut greeter, address) = loop {
        match reach(environment, environment.rank, deadline) {
            Ok(greeter) => break greeter,
            Err(Error::Connect { .. }) if Instant::now() + RETRY_PAUSE < deadline => thread::sleep(RETRY_PAUSE),
            Err(why) => return Err(why),
        }
    };
    greeter.prove(deadline)?;
    let Greeter { stream, session, .. } = greeter;
    let mut link =
        Link { stream, channel: Channel::new(session, Side::Rank), buffer: vec![0; 1 << 16].into_boxed_slice() };
    loop {
        if let Some((kind, payload)) = link.channel.next().map_err(Error::protocol)? {
            return match kind {
                Kind::Welcome => Ok(Joined { link, incarnation: word(&payload, 0)?, fence: word(&payload, 4)? }),
                Kind::Refuse => Err(Error::Refused {
                    address: address.to_string(),
                    why: String::from_utf8_lossy(&payload).into_owned(),
                }),
                _ => Err(Error::protocol(format!("{kind:?} instead of a welcome"))),
            };
        }
        let count = read_some(&mut link.stream, &mut link.buffer, deadline, &address, started)?;
        link.channel.feed(&link.buffer[..count]);
    }
}

/// Whether the server of this environment answers at one of its addresses, and holds the key: the first that does.
pub(crate) fn probe(environment: &Environment, deadline: Instant) -> Result<Address, Error> {
    reach(environment, PROBE, deadline).map(|(_, address)| address)
}

/// A connection on which the server has proved itself, and this side not yet.
struct Greeter {
    stream: Stream,
    address: Address,
    proof: [u8; 32],
    session: Key,
}

impl Greeter {
    fn prove(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut proof = &self.proof[..];
        write_all(&mut self.stream, &mut proof, deadline, &self.address)
    }
}

/// Tries the server's addresses in turn, each with its share of the time. The error is the one that tells most.
fn reach(environment: &Environment, rank: u32, deadline: Instant) -> Result<(Greeter, Address), Error> {
    let mut worst = None;
    for (index, address) in environment.root.iter().enumerate() {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / (environment.root.len() - index) as u32;
        match greet(environment, rank, address, now + share) {
            Ok(greeter) => return Ok((greeter, address.clone())),
            Err(why) if worst.is_none() || !matches!(why, Error::Connect { .. }) => worst = Some(why),
            Err(_) => {}
        }
    }
    Err(worst.unwrap_or_else(|| Error::protocol("no address")))
}

fn greet(environment: &Environment, rank: u32, address: &Address, deadline: Instant) -> Result<Greeter, Error> {
    let started = Instant::now();
    let limit = deadline.saturating_duration_since(started);
    let connected = Stream::connect(address, limit);
    let mut stream = connected.map_err(|source| Error::Connect { address: address.to_string(), source })?;
    let mut nonce = [0; 32];
    key::random(&mut nonce).map_err(Error::System)?;
    let opening = Opening { rank, size: environment.size, job: environment.job, nonce }.encode();
    write_all(&mut stream, &mut &opening[..], deadline, address)?;
    let mut answer = [0; ANSWER];
    let mut filled = 0;
    while filled < ANSWER {
        filled += read_some(&mut stream, &mut answer[filled..], deadline, address, started)?;
    }
    let (proof, session) = believe(&environment.key, &opening, &answer)
        .map_err(|why| Error::Refused { address: address.to_string(), why: why.into() })?;
    Ok(Greeter { stream, address: address.clone(), proof, session })
}

/// The proof and the session's key, where the server's answer to an opening goes on and proves that it holds the key.
pub(crate) fn believe(
    key: &Key,
    opening: &[u8; OPENING],
    answer: &[u8; ANSWER],
) -> Result<([u8; PROOF], Key), &'static str> {
    let (status, nonce, proof) = handshake::parse_answer(answer);
    if status != 0 {
        return Err(Refusal::why(status));
    }
    let exchange = Exchange { key, opening, nonce: &nonce };
    if !exchange.server_proves(&proof) {
        return Err("the two hold different job keys: TOWLINE_KEY does not belong to this job");
    }
    Ok((exchange.rank_proof(), exchange.session()))
}

fn write_all(stream: &mut Stream, bytes: &mut &[u8], deadline: Instant, address: &Address) -> Result<(), Error> {
    let started = Instant::now();
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => *bytes = &bytes[count..],
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline || !stream.wait(true, deadline).map_err(Error::System)? {
                    return Err(silent(address, started));
                }
            }
            Err(source) => return Err(Error::Lost { step: "greeting", source }),
        }
    }
    Ok(())
}

/// Reads at least one byte.
fn read_some(
    stream: &mut Stream,
    into: &mut [u8],
    deadline: Instant,
    address: &Address,
    started: Instant,
) -> Result<usize, Error> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(Error::Lost { step: "greeting", source: io::ErrorKind::UnexpectedEof.into() }),
            Ok(count) => return Ok(count),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline || !stream.wait(false, deadline).map_err(Error::System)? {
                    return Err(silent(address, started));
                }
            }
            Err(source) => return Err(Error::Lost { step: "greeting", source }),
        }
    }
}

fn silent(address: &Address, started: Instant) -> Error {
    Error::Timeout { step: format!("the server at {address} does not answer"), waited: started.elapsed() }
}

/// The number at some place of a payload.
pub(crate) fn word(payload: &[u8], at: usize) -> Result<u32, Error> {
    let word = payload.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| u32::from_le_bytes(*word)).ok_or_else(|| Error::protocol("a frame that is too short"))
}
