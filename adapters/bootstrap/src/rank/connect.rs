//! How a rank connects to its server and authenticates.

use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::protocol::channel::{Channel, Kind, Side};
use crate::protocol::handshake::{self, ANSWER, Exchange, OPENING, Opening, PROBE, PROOF, Refusal};
use crate::protocol::stream::Stream;
use crate::{Address, Environment, JobKey};

/// Pause between two attempts to connect to a server that does not listen yet.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Attempts to join a server that closes the connection before it has accepted this rank. It may have too many
/// connections at that moment.
const CLOSED_TRIES: u32 = 100;

/// A connection to the server after both sides have authenticated.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) channel: Channel,
    /// The buffer for reads.
    pub(crate) buffer: Box<[u8]>,
}

/// The result of joining: the connection, and the server's data about earlier incarnations of this rank.
pub(crate) struct Joined {
    pub(crate) connection: Connection,
    pub(crate) incarnation: u32,
    pub(crate) fence: u32,
}

/// Connects, authenticates, and waits for the welcome. Tries again until `deadline` while the server is not ready.
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
    let (mut server, address) = loop {
        match connect(environment, environment.rank, deadline) {
            Ok(server) => break server,
            Err(Error::Connect { .. }) if Instant::now() + RETRY_PAUSE < deadline => thread::sleep(RETRY_PAUSE),
            Err(why) => return Err(why),
        }
    };
    server.send_proof(deadline)?;
    let ServerConnection { stream, session, .. } = server;
    let mut connection =
        Connection { stream, channel: Channel::new(session, Side::Rank), buffer: vec![0; 1 << 16].into_boxed_slice() };
    loop {
        if let Some((kind, payload)) = connection.channel.next().map_err(Error::protocol)? {
            return match kind {
                Kind::Welcome => Ok(Joined { connection, incarnation: word(&payload, 0)?, fence: word(&payload, 4)? }),
                Kind::Refuse => Err(Error::Refused {
                    address: address.to_string(),
                    why: String::from_utf8_lossy(&payload).into_owned(),
                }),
                _ => Err(Error::protocol(format!("a frame of kind {kind:?} instead of the welcome"))),
            };
        }
        let count = read_some(&mut connection.stream, &mut connection.buffer, deadline, &address, started)?;
        connection.channel.feed(&connection.buffer[..count]);
    }
}

/// The first address of this environment at which a server answers that holds the key.
pub(crate) fn probe(environment: &Environment, deadline: Instant) -> Result<Address, Error> {
    connect(environment, PROBE, deadline).map(|(_, address)| address)
}

/// A connection on which the server has authenticated, and this side has not yet.
struct ServerConnection {
    stream: Stream,
    address: Address,
    proof: [u8; 32],
    session: JobKey,
}

impl ServerConnection {
    fn send_proof(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut proof = &self.proof[..];
        write_all(&mut self.stream, &mut proof, deadline, &self.address)
    }
}

/// Tries the server's addresses in turn, each with its share of the time. If all fail, returns the error that tells most:
/// a failed connection only if all attempts failed to connect.
fn connect(environment: &Environment, rank: u32, deadline: Instant) -> Result<(ServerConnection, Address), Error> {
    let mut worst = None;
    for (index, address) in environment.root.iter().enumerate() {
        let now = Instant::now();
        let share = deadline.saturating_duration_since(now) / (environment.root.len() - index) as u32;
        match open(environment, rank, address, now + share) {
            Ok(server) => return Ok((server, address.clone())),
            Err(why) if worst.is_none() || !matches!(why, Error::Connect { .. }) => worst = Some(why),
            Err(_) => {}
        }
    }
    Err(worst.unwrap_or_else(|| Error::protocol("there is no server address")))
}

fn open(environment: &Environment, rank: u32, address: &Address, deadline: Instant) -> Result<ServerConnection, Error> {
    let started = Instant::now();
    let limit = deadline.saturating_duration_since(started);
    let connected = Stream::connect(address, limit);
    let mut stream = connected.map_err(|source| Error::Connect { address: address.to_string(), source })?;
    let mut nonce = [0; 32];
    towline_net::random::fill(&mut nonce).map_err(Error::System)?;
    let opening = Opening { rank, size: environment.size, job: environment.job, nonce }.encode();
    write_all(&mut stream, &mut &opening[..], deadline, address)?;
    let mut answer = [0; ANSWER];
    let mut filled = 0;
    while filled < ANSWER {
        filled += read_some(&mut stream, &mut answer[filled..], deadline, address, started)?;
    }
    let (proof, session) = verify_answer(&environment.key, &opening, &answer)
        .map_err(|why| Error::Refused { address: address.to_string(), why: why.into() })?;
    Ok(ServerConnection { stream, address: address.clone(), proof, session })
}

/// Checks the server's answer to an opening. Returns this rank's proof and the session key if the server accepts the
/// opening and proves that it holds the key.
pub(crate) fn verify_answer(
    key: &JobKey,
    opening: &[u8; OPENING],
    answer: &[u8; ANSWER],
) -> Result<([u8; PROOF], JobKey), &'static str> {
    let (status, nonce, proof) = handshake::parse_answer(answer);
    if status != 0 {
        return Err(Refusal::why(status));
    }
    let exchange = Exchange { key, opening, nonce: &nonce };
    if !exchange.server_proves(&proof) {
        return Err("the server holds another job key: TOWLINE_KEY does not belong to this job");
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
                    return Err(no_answer(address, started));
                }
            }
            Err(source) => return Err(Error::Lost { step: "handshake with the server", source }),
        }
    }
    Ok(())
}

/// Reads at least one byte, or fails at the deadline.
fn read_some(
    stream: &mut Stream,
    into: &mut [u8],
    deadline: Instant,
    address: &Address,
    started: Instant,
) -> Result<usize, Error> {
    loop {
        match stream.read(into) {
            Ok(0) => {
                return Err(Error::Lost {
                    step: "handshake with the server",
                    source: io::ErrorKind::UnexpectedEof.into(),
                });
            }
            Ok(count) => return Ok(count),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                if Instant::now() >= deadline || !stream.wait(false, deadline).map_err(Error::System)? {
                    return Err(no_answer(address, started));
                }
            }
            Err(source) => return Err(Error::Lost { step: "handshake with the server", source }),
        }
    }
}

fn no_answer(address: &Address, started: Instant) -> Error {
    Error::Timeout { step: format!("the server at {address} does not answer"), waited: started.elapsed() }
}

/// The 4-byte number at offset `at` of a payload.
pub(crate) fn word(payload: &[u8], at: usize) -> Result<u32, Error> {
    let word = payload.get(at..).and_then(|rest| rest.first_chunk());
    word.map(|word| u32::from_le_bytes(*word)).ok_or_else(|| Error::protocol("a frame is too short"))
}
