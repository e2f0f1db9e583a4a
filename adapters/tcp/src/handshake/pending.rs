//! One connection from its first byte to the verdict on it: connect, hello, proof. It knows nothing of other
//! connections; who may have which is decided in `connect`.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;
use towline_core::time::{Duration, Instant};
use towline_crypt::{Cipher, Encrypt, Handshake, MESSAGE};

use crate::config::Config;
use crate::handshake::replay_limit::Answered;
use crate::hello::{BadHello, HELLO, Hello, MAGIC, PROOF, Role, Transcript, VERDICT, Verdict};
use crate::system::socket::{Epoll, Interest};

/// A caller that says nothing may keep others waiting so long.
const IN_THE_WAY: Duration = Duration::from_millis(500);

/// Longest message of a hello.
const LONGEST: usize = HELLO + PROOF;

/// Who we are, for the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Me<'c> {
    pub(crate) config: &'c Config,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    pub(crate) answered: &'c Answered,
    pub(crate) now: Instant,
}

/// Whom an outbound connection is meant for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: u32,
    pub(crate) rank: u32,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    /// For all attempts together.
    pub(crate) deadline: Instant,
}

/// A connection that does not carry frames yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) socket: Socket,
    pub(crate) remote: SocketAddr,
    pub(crate) word: u64,
    pub(crate) deadline: Instant,
    /// When a listener took it; for outbound ones nothing.
    since: Instant,
    /// Whom it goes to; `None` for inbound ones.
    pub(crate) target: Option<Target>,
    stage: Stage,
    interest: Interest,
    transcript: Transcript,
    keys: Keys,
    out: Buffer,
    inn: Buffer,
}

/// What the connection is to be encrypted with.
#[derive(Debug)]
enum Keys {
    /// Nothing.
    None,
    /// The answer is to come.
    Begun(Handshake),
    /// All is there.
    Agreed(Cipher),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    AwaitAnswer,
    AwaitVerdict,
    AwaitHello,
    AwaitProof,
    Parked { rank: u32, instance: u64 },
}

/// A message that is partly there or partly gone.
#[derive(Debug)]
struct Buffer {
    bytes: [u8; LONGEST],
    at: usize,
    len: usize,
}

/// How far a connection came.
#[derive(Debug)]
pub(crate) enum Step {
    /// Something is still to come.
    Wait,
    /// The other side is there, as far as can be told without proof: it may take longer now.
    Reached,
    /// Inbound: this rank is there and knows the key. A verdict is asked for.
    Authenticated { rank: u32, instance: u64 },
    /// Outbound: what the other side decided.
    Verdict(Verdict),
    /// It came to nothing.
    Failed(Failure),
}

/// Why a connection came to nothing.
#[derive(Debug)]
pub(crate) enum Failure {
    System(io::Error),
    Ended,
    Hello(BadHello),
    /// Another job, link, rank or instance.
    Stray(&'static str),
    Key,
    Role,
    /// A recorded hello is said again and again.
    Again,
    /// One end encrypts, the other does not: the rank there, its setting, and the one here.
    Encryption {
        rank: u32,
        there: (bool, Encrypt),
        here: (bool, Encrypt),
    },
    TimedOut(&'static str),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System(error) => write!(f, "{error}"),
            Self::Ended => f.write_str("it closed during the hello"),
            Self::Hello(bad) => write!(f, "{bad}"),
            Self::Stray(what) => write!(f, "another {what} is there"),
            Self::Key => f.write_str("it does not know the job's key"),
            Self::Role => f.write_str("it says hello in the wrong role"),
            Self::Again => f.write_str("it says an old hello, as others did just now"),
            Self::Encryption { rank, there, here } => {
                let does = |encrypted: bool| if encrypted { "encrypts" } else { "does not encrypt" };
                write!(
                    f,
                    "rank {rank} {} this connection (its setting is `{}`), this rank {} it (its setting is `{}`): set \
                     TOWLINE_ENCRYPT to the same for all ranks",
                    does(there.0),
                    there.1,
                    does(here.0),
                    here.1
                )
            }
            Self::TimedOut(what) => write!(f, "no {what} in time"),
        }
    }
}

impl Pending {
    /// An outbound connection, begun.
    pub(crate) fn outbound(socket: Socket, remote: SocketAddr, target: Target, word: u64, deadline: Instant) -> Self {
        let mut pending = Self::new(socket, remote, Stage::Connecting, word, deadline);
        pending.target = Some(target);
        pending.inn.len = HELLO + PROOF;
        pending.interest = Interest::ReadWrite;
        pending
    }

    /// A connection that a listener took.
    pub(crate) fn inbound(socket: Socket, remote: SocketAddr, word: u64, now: Instant, hello: Duration) -> Self {
        let mut pending = Self::new(socket, remote, Stage::AwaitHello, word, now + hello);
        pending.since = now;
        pending.inn.len = HELLO;
        pending
    }

    fn new(socket: Socket, remote: SocketAddr, stage: Stage, word: u64, deadline: Instant) -> Self {
        Self {
            socket,
            remote,
            word,
            deadline,
            since: Instant::ZERO,
            target: None,
            stage,
            interest: Interest::Read,
            keys: Keys::None,
            transcript: Transcript { initiator: [0; HELLO], acceptor: [0; HELLO] },
            out: Buffer { bytes: [0; LONGEST], at: 0, len: 0 },
            inn: Buffer { bytes: [0; LONGEST], at: 0, len: 0 },
        }
    }

    /// What the connection is encrypted with from its verdict on.
    pub(crate) fn take_cipher(&mut self) -> Option<Cipher> {
        match std::mem::replace(&mut self.keys, Keys::None) {
            Keys::Agreed(cipher) => Some(cipher),
            Keys::None | Keys::Begun(_) => None,
        }
    }

    pub(crate) fn register(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.add(self.socket.as_raw_fd(), self.interest, self.word)
    }

    /// The authenticated rank and instance of an inbound connection that waits for a verdict.
    pub(crate) fn parked(&self) -> Option<(u32, u64)> {
        match self.stage {
            Stage::Parked { rank, instance } => Some((rank, instance)),
            _ => None,
        }
    }

    /// Whether the other side may have taken this outbound connection for good already.
    pub(crate) fn has_proved(&self) -> bool {
        self.stage == Stage::AwaitVerdict
    }

    /// Since when it takes the place of others, and how long it may where they wait for it: a caller that has said nothing
    /// not as long as one that awaits its proof, whose engine may be busy. `None` for one that has proved itself, and for
    /// our own.
    pub(crate) fn in_the_way(&self, hello: Duration) -> Option<(Instant, Duration)> {
        match self.stage {
            Stage::AwaitHello => Some((self.since, IN_THE_WAY.min(hello))),
            Stage::AwaitProof => Some((self.since, hello)),
            _ => None,
        }
    }

    /// What is waited for, for the log.
    pub(crate) fn awaited(&self) -> &'static str {
        match self.stage {
            Stage::Connecting => "TCP connection",
            Stage::AwaitAnswer => "answer to the hello",
            Stage::AwaitVerdict => "verdict",
            Stage::AwaitHello => "hello",
            Stage::AwaitProof => "proof",
            Stage::Parked { .. } => "use for it here",
        }
    }

    /// Gives an authenticated inbound connection its verdict. The 40 bytes find room in a socket that is new.
    pub(crate) fn give_verdict(&mut self, me: Me<'_>, verdict: Verdict) -> io::Result<()> {
        let bytes = self.transcript.verdict(&me.config.key, verdict);
        match self.socket.send_with_flags(&bytes, libc::MSG_NOSIGNAL) {
            Ok(VERDICT) => Ok(()),
            Ok(_) => Err(io::Error::new(ErrorKind::WriteZero, "no room for the verdict")),
            Err(error) => Err(error),
        }
    }

    /// Goes on as far as the socket allows.
    pub(crate) fn step(&mut self, me: Me<'_>, epoll: &Epoll) -> Step {
        let was = self.stage;
        let mut step = self.advance(me).unwrap_or_else(Step::Failed);
        if matches!(step, Step::Wait) && was == Stage::Connecting && self.stage != was {
            step = Step::Reached;
        }
        if matches!(step, Step::Wait | Step::Reached) {
            let writes = self.stage == Stage::Connecting || self.out.at < self.out.len;
            let interest = if writes { Interest::ReadWrite } else { Interest::Read };
            if interest != self.interest {
                if let Err(error) = epoll.change(self.socket.as_raw_fd(), interest, self.word) {
                    return Step::Failed(Failure::System(error));
                }
                self.interest = interest;
            }
        }
        step
    }

    fn advance(&mut self, me: Me<'_>) -> Result<Step, Failure> {
        if self.stage == Stage::Connecting {
            if let Some(error) = self.socket.take_error().map_err(Failure::System)? {
                return Err(Failure::System(error));
            }
            match self.socket.peer_addr() {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(Step::Wait),
                Err(error) => return Err(Failure::System(error)),
            }
            let Some(target) = self.target else { return Err(Failure::Role) };
            let mut keys = [0; MESSAGE];
            let encrypted = me.encrypts(target.host);
            if encrypted {
                let (handshake, question) =
                    Handshake::begin(me.config.key.bytes()).map_err(|why| Failure::System(io::Error::other(why)))?;
                (self.keys, keys) = (Keys::Begun(handshake), question);
            }
            let hello = me.hello(Role::Initiator, target.rank, target.instance, encrypted, keys);
            self.transcript.initiator = hello.map_err(Failure::System)?.encode();
            let hello = self.transcript.initiator;
            self.say(&[&hello]);
            self.stage = Stage::AwaitAnswer;
        }
        if !self.write_out()? || !self.read_in()? {
            return Ok(Step::Wait);
        }
        match self.stage {
            Stage::Connecting => Ok(Step::Wait),
            Stage::AwaitAnswer => self.answered(me),
            Stage::AwaitVerdict => {
                let (bytes, _) = self.inn.bytes.split_first_chunk::<VERDICT>().ok_or(Failure::Key)?;
                self.transcript.read_verdict(&me.config.key, bytes).map(Step::Verdict).ok_or(Failure::Key)
            }
            Stage::AwaitHello => self.greeted(me),
            Stage::AwaitProof => self.proved(me),
            // The initiator has nothing to say before it has the verdict.
            Stage::Parked { .. } => Err(Failure::Role),
        }
    }

    /// Outbound: the acceptor's hello and proof are in.
    fn answered(&mut self, me: Me<'_>) -> Result<Step, Failure> {
        let (hello, rest) = self.inn.bytes.split_first_chunk::<HELLO>().ok_or(Failure::Key)?;
        let (proof, _) = rest.split_first_chunk::<PROOF>().ok_or(Failure::Key)?;
        let said = Hello::decode(hello).map_err(Failure::Hello)?;
        let target = self.target.ok_or(Failure::Role)?;
        me.check(&said, Role::Acceptor)?;
        if said.from != target.rank {
            return Err(Failure::Stray("rank"));
        }
        if said.from_instance != target.instance {
            return Err(Failure::Stray("instance"));
        }
        self.transcript.acceptor = *hello;
        if !self.transcript.proves(&me.config.key, Role::Acceptor, proof) {
            return Err(Failure::Key);
        }
        let begun = std::mem::replace(&mut self.keys, Keys::None);
        if let Err(failure) = me.check_encryption(&said, matches!(begun, Keys::Begun(_))) {
            // The proof is given all the same: the other end believes only then that it is this rank that differs.
            let proof = self.transcript.proof(&me.config.key, Role::Initiator);
            self.say(&[&proof]);
            self.write_out()?;
            return Err(failure);
        }
        if let Keys::Begun(handshake) = begun {
            self.keys = Keys::Agreed(handshake.finish(&said.keys).map_err(|_| Failure::Key)?);
        }
        let proof = self.transcript.proof(&me.config.key, Role::Initiator);
        self.say(&[&proof]);
        self.hear(Stage::AwaitVerdict, VERDICT);
        self.write_out()?;
        Ok(Step::Wait)
    }

    /// Inbound: the initiator's hello is in.
    fn greeted(&mut self, me: Me<'_>) -> Result<Step, Failure> {
        let (hello, _) = self.inn.bytes.split_first_chunk::<HELLO>().ok_or(Failure::Key)?;
        let said = Hello::decode(hello).map_err(Failure::Hello)?;
        me.check(&said, Role::Initiator)?;
        if said.from == me.config.rank {
            return Err(Failure::Stray("rank"));
        }
        self.transcript.initiator = *hello;
        let (mut keys, encrypted) = ([0; MESSAGE], me.encrypts(said.host));
        if encrypted && said.encrypted {
            if !me.answered.allows(&said.keys, me.now) {
                return Err(Failure::Again);
            }
            let (cipher, answer) = Handshake::answer(me.config.key.bytes(), &said.keys).map_err(|_| Failure::Key)?;
            me.answered.note(&said.keys);
            (self.keys, keys) = (Keys::Agreed(cipher), answer);
        }
        let own = me.hello(Role::Acceptor, said.from, said.from_instance, encrypted, keys).map_err(Failure::System)?;
        self.transcript.acceptor = own.encode();
        let proof = self.transcript.proof(&me.config.key, Role::Acceptor);
        let hello = self.transcript.acceptor;
        self.say(&[&hello, &proof]);
        self.hear(Stage::AwaitProof, PROOF);
        self.write_out()?;
        Ok(Step::Reached)
    }

    /// Inbound: the initiator's proof is in.
    fn proved(&mut self, me: Me<'_>) -> Result<Step, Failure> {
        let (proof, _) = self.inn.bytes.split_first_chunk::<PROOF>().ok_or(Failure::Key)?;
        if !self.transcript.proves(&me.config.key, Role::Initiator, proof) {
            return Err(Failure::Key);
        }
        let said = Hello::decode(&self.transcript.initiator).map_err(Failure::Hello)?;
        // Not told before: the answer says it to the caller, and whoever has not proved itself may say anything of anybody.
        me.check_encryption(&said, me.encrypts(said.host))?;
        let (rank, instance) = (said.from, said.from_instance);
        // One byte is listened for: an end is noticed, and anything else is against the protocol.
        self.hear(Stage::Parked { rank, instance }, 1);
        Ok(Step::Authenticated { rank, instance })
    }

    fn say(&mut self, parts: &[&[u8]]) {
        let mut len = 0;
        for part in parts {
            self.out.bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        (self.out.at, self.out.len) = (0, len);
    }

    fn hear(&mut self, stage: Stage, len: usize) {
        self.stage = stage;
        (self.inn.at, self.inn.len) = (0, len);
    }

    /// `true`: nothing is left to write.
    fn write_out(&mut self) -> Result<bool, Failure> {
        while self.out.at < self.out.len {
            match self.socket.send_with_flags(&self.out.bytes[self.out.at..self.out.len], libc::MSG_NOSIGNAL) {
                Ok(0) => return Err(Failure::Ended),
                Ok(count) => self.out.at += count,
                Err(error) if is_later(&error) => return Ok(false),
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(true)
    }

    /// Garbage is refused as soon as it is seen, without waiting for the rest of it.
    fn hears_a_stranger(&self) -> bool {
        let seen = self.inn.at.min(MAGIC.len());
        matches!(self.stage, Stage::AwaitHello | Stage::AwaitAnswer) && self.inn.bytes[..seen] != MAGIC[..seen]
    }

    /// `true`: what is waited for is in. Never reads beyond it: frames may follow.
    fn read_in(&mut self) -> Result<bool, Failure> {
        while self.inn.at < self.inn.len {
            match self.socket.read(&mut self.inn.bytes[self.inn.at..self.inn.len]) {
                Ok(0) => return Err(Failure::Ended),
                Ok(count) => self.inn.at += count,
                Err(error) if is_later(&error) => {
                    return if self.hears_a_stranger() { Err(Failure::Hello(BadHello::Foreign)) } else { Ok(false) };
                }
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(true)
    }
}

impl Me<'_> {
    fn hello(&self, role: Role, to: u32, to_instance: u64, encrypted: bool, keys: [u8; MESSAGE]) -> io::Result<Hello> {
        let mut nonce = [0; 32];
        towline_net::random::fill(&mut nonce)?;
        Ok(Hello {
            role,
            link: self.config.link,
            encrypted,
            encrypt: self.config.encrypt,
            job: self.config.job,
            from: self.config.rank,
            to,
            from_instance: self.instance,
            to_instance,
            host: self.host,
            nonce,
            keys,
        })
    }

    /// Whether this end encrypts a connection to a rank on that host.
    fn encrypts(&self, host: u64) -> bool {
        self.config.encrypt.applies(host == self.host)
    }

    /// Whether both ends encrypt, or neither.
    fn check_encryption(&self, said: &Hello, encrypted: bool) -> Result<(), Failure> {
        if said.encrypted == encrypted {
            return Ok(());
        }
        let (there, here) = ((said.encrypted, said.encrypt), (encrypted, self.config.encrypt));
        Err(Failure::Encryption { rank: said.from, there, here })
    }

    /// Whether a hello is meant for us.
    fn check(&self, said: &Hello, role: Role) -> Result<(), Failure> {
        if said.role != role {
            Err(Failure::Role)
        } else if said.job != self.config.job {
            Err(Failure::Stray("job"))
        } else if said.link != self.config.link {
            Err(Failure::Stray("link"))
        } else if said.to != self.config.rank {
            Err(Failure::Stray("rank"))
        } else if said.to_instance != self.instance {
            Err(Failure::Stray("instance"))
        } else {
            Ok(())
        }
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
