//! One connection from its first byte to the verdict: connect, hello, proof. It knows nothing of other connections;
//! `rail::arbitrate` decides which of several connections is used.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use socket2::Socket;
use towline_core::time::{Duration, Instant};
use towline_crypt::{Cipher, Handshake, MESSAGE};
use towline_net::{EncryptionMismatch, Identity, random};

use crate::config::Config;
use crate::handshake::failure::Failure;
use crate::handshake::replay_limit::ReplayLimit;
use crate::system::epoll::{Epoll, Interest};
use crate::wire::hello::{BadHello, HELLO, Hello, MAGIC, PROOF, Role, Transcript, VERDICT, Verdict};

/// How long a caller that sends nothing may keep its place while other callers wait.
const SILENT_CALLER: Duration = Duration::from_millis(500);

/// Longest message of a handshake, in bytes.
const LONGEST: usize = HELLO + PROOF;

/// This end of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalEnd<'c> {
    pub(crate) config: &'c Config,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    pub(crate) replay_limit: &'c ReplayLimit,
    pub(crate) now: Instant,
}

/// The peer for which an outbound connection is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) endpoint: u32,
    pub(crate) rank: u32,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    /// The deadline of all attempts together.
    pub(crate) deadline: Instant,
}

/// A connection that does not carry frames yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) socket: Socket,
    pub(crate) remote: SocketAddr,
    /// Its token in epoll.
    pub(crate) token: u64,
    pub(crate) deadline: Instant,
    /// When an inbound connection was accepted; not used for outbound ones.
    since: Instant,
    /// The peer of an outbound connection; `None` for inbound ones.
    pub(crate) target: Option<Target>,
    stage: Stage,
    interest: Interest,
    transcript: Transcript,
    keys: Keys,
    outgoing: Message,
    incoming: Message,
}

/// The key exchange of a connection.
#[derive(Debug)]
enum Keys {
    /// There is none: the connection is not encrypted, or not yet.
    None,
    /// This end has sent its message and waits for the answer.
    Begun(Handshake),
    /// The keys are agreed on.
    Agreed(Cipher),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Outbound: the TCP connection is being made.
    Connecting,
    /// Outbound: the acceptor's hello and proof are awaited.
    AwaitHelloOfAcceptor,
    /// Outbound: the acceptor's verdict is awaited.
    AwaitVerdict,
    /// Inbound: the initiator's hello is awaited.
    AwaitHelloOfInitiator,
    /// Inbound: the initiator's proof is awaited.
    AwaitProof,
    /// Inbound: the initiator is authenticated and waits for the verdict of this end.
    Authenticated { rank: u32, instance: u64 },
}

/// A message that was sent or received in part.
#[derive(Debug)]
struct Message {
    bytes: [u8; LONGEST],
    at: usize,
    len: usize,
}

/// The progress of a handshake.
#[derive(Debug)]
pub(crate) enum Step {
    /// More bytes are awaited.
    Wait,
    /// The remote end responds, but has not proved who it is. It may take longer from now on.
    Responding,
    /// Inbound: this rank is authenticated, and a verdict is needed.
    Authenticated { rank: u32, instance: u64 },
    /// Outbound: the verdict of the acceptor.
    Verdict(Verdict),
    /// The handshake failed.
    Failed(Failure),
}

impl Pending {
    /// An outbound connection that was begun.
    pub(crate) fn outbound(socket: Socket, remote: SocketAddr, target: Target, token: u64, deadline: Instant) -> Self {
        let mut pending = Self::new(socket, remote, Stage::Connecting, token, deadline);
        pending.target = Some(target);
        pending.incoming.len = HELLO + PROOF;
        pending.interest = Interest::ReadWrite;
        pending
    }

    /// A connection that was accepted from a listener. `timeout` is the time for its hello.
    pub(crate) fn inbound(socket: Socket, remote: SocketAddr, token: u64, now: Instant, timeout: Duration) -> Self {
        let mut pending = Self::new(socket, remote, Stage::AwaitHelloOfInitiator, token, now + timeout);
        pending.since = now;
        pending.incoming.len = HELLO;
        pending
    }

    fn new(socket: Socket, remote: SocketAddr, stage: Stage, token: u64, deadline: Instant) -> Self {
        Self {
            socket,
            remote,
            token,
            deadline,
            since: Instant::ZERO,
            target: None,
            stage,
            interest: Interest::Read,
            keys: Keys::None,
            transcript: Transcript { initiator: [0; HELLO], acceptor: [0; HELLO] },
            outgoing: Message { bytes: [0; LONGEST], at: 0, len: 0 },
            incoming: Message { bytes: [0; LONGEST], at: 0, len: 0 },
        }
    }

    /// The cipher of the connection from its verdict on; `None` where it is not encrypted.
    pub(crate) fn take_cipher(&mut self) -> Option<Cipher> {
        match std::mem::replace(&mut self.keys, Keys::None) {
            Keys::Agreed(cipher) => Some(cipher),
            Keys::None | Keys::Begun(_) => None,
        }
    }

    pub(crate) fn register(&self, epoll: &Epoll) -> io::Result<()> {
        epoll.add(self.socket.as_raw_fd(), self.interest, self.token)
    }

    /// Rank and instance of an inbound connection that is authenticated and waits for a verdict.
    pub(crate) fn authenticated(&self) -> Option<(u32, u64)> {
        match self.stage {
            Stage::Authenticated { rank, instance } => Some((rank, instance)),
            _ => None,
        }
    }

    /// Whether the acceptor may have decided for this outbound connection already.
    pub(crate) fn awaits_verdict(&self) -> bool {
        self.stage == Stage::AwaitVerdict
    }

    /// When this connection was accepted, and how long it may keep its place while other callers wait. A caller that has sent
    /// nothing has less time than one whose proof is awaited, whose engine may be busy. `None` for authenticated callers and for
    /// outbound connections.
    pub(crate) fn may_keep_place(&self, hello_timeout: Duration) -> Option<(Instant, Duration)> {
        match self.stage {
            Stage::AwaitHelloOfInitiator => Some((self.since, SILENT_CALLER.min(hello_timeout))),
            Stage::AwaitProof => Some((self.since, hello_timeout)),
            _ => None,
        }
    }

    /// The step that is awaited, for the log.
    pub(crate) fn awaited(&self) -> &'static str {
        match self.stage {
            Stage::Connecting => "TCP connection",
            Stage::AwaitHelloOfAcceptor => "answer to the hello",
            Stage::AwaitVerdict => "verdict",
            Stage::AwaitHelloOfInitiator => "hello",
            Stage::AwaitProof => "proof",
            Stage::Authenticated { .. } => "use for the connection here",
        }
    }

    /// Sends an authenticated inbound connection its verdict. The 40 bytes fit into a new socket's buffer.
    pub(crate) fn send_verdict(&mut self, local: LocalEnd<'_>, verdict: Verdict) -> io::Result<()> {
        let bytes = self.transcript.verdict(&local.config.key, verdict);
        match self.socket.send_with_flags(&bytes, libc::MSG_NOSIGNAL) {
            Ok(VERDICT) => Ok(()),
            Ok(_) => Err(io::Error::new(ErrorKind::WriteZero, "no room for the verdict")),
            Err(error) => Err(error),
        }
    }

    /// Continues as far as the socket allows.
    pub(crate) fn step(&mut self, local: LocalEnd<'_>, epoll: &Epoll) -> Step {
        let before = self.stage;
        let mut step = self.advance(local).unwrap_or_else(Step::Failed);
        if matches!(step, Step::Wait) && before == Stage::Connecting && self.stage != before {
            step = Step::Responding;
        }
        if matches!(step, Step::Wait | Step::Responding) {
            let writes = self.stage == Stage::Connecting || self.outgoing.at < self.outgoing.len;
            let interest = if writes { Interest::ReadWrite } else { Interest::Read };
            if interest != self.interest {
                if let Err(error) = epoll.change(self.socket.as_raw_fd(), interest, self.token) {
                    return Step::Failed(Failure::System(error));
                }
                self.interest = interest;
            }
        }
        step
    }

    fn advance(&mut self, local: LocalEnd<'_>) -> Result<Step, Failure> {
        if self.stage == Stage::Connecting && !self.begin_hello(local)? {
            return Ok(Step::Wait);
        }
        if !self.write()? || !self.read()? {
            return Ok(Step::Wait);
        }
        match self.stage {
            Stage::Connecting => Ok(Step::Wait),
            Stage::AwaitHelloOfAcceptor => self.on_acceptor_hello(local),
            Stage::AwaitVerdict => {
                let (bytes, _) = self.incoming.bytes.split_first_chunk::<VERDICT>().ok_or(Failure::Key)?;
                self.transcript.read_verdict(&local.config.key, bytes).map(Step::Verdict).ok_or(Failure::Key)
            }
            Stage::AwaitHelloOfInitiator => self.on_initiator_hello(local),
            Stage::AwaitProof => self.on_initiator_proof(local),
            // The initiator must send nothing before it has the verdict.
            Stage::Authenticated { .. } => Err(Failure::Role),
        }
    }

    /// Outbound: sends the hello once the TCP connection is made. `false`: it is not made yet.
    fn begin_hello(&mut self, local: LocalEnd<'_>) -> Result<bool, Failure> {
        if let Some(error) = self.socket.take_error().map_err(Failure::System)? {
            return Err(Failure::System(error));
        }
        match self.socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(Failure::System(error)),
        }
        let Some(target) = self.target else { return Err(Failure::Role) };
        let mut message = [0; MESSAGE];
        let encrypted = local.encrypts(target.host);
        if encrypted {
            let (handshake, first) =
                Handshake::begin(local.config.key.bytes()).map_err(|why| Failure::System(io::Error::other(why)))?;
            (self.keys, message) = (Keys::Begun(handshake), first);
        }
        let hello = local.hello(Role::Initiator, target.rank, target.instance, encrypted, message);
        self.transcript.initiator = hello.map_err(Failure::System)?.encode();
        let hello = self.transcript.initiator;
        self.send(&[&hello]);
        self.stage = Stage::AwaitHelloOfAcceptor;
        Ok(true)
    }

    /// Outbound: the acceptor's hello and proof have arrived.
    fn on_acceptor_hello(&mut self, local: LocalEnd<'_>) -> Result<Step, Failure> {
        let (bytes, rest) = self.incoming.bytes.split_first_chunk::<HELLO>().ok_or(Failure::Key)?;
        let (proof, _) = rest.split_first_chunk::<PROOF>().ok_or(Failure::Key)?;
        let hello = Hello::decode(bytes).map_err(Failure::Hello)?;
        let target = self.target.ok_or(Failure::Role)?;
        local.check(&hello, Role::Acceptor)?;
        hello.identity.check_sender(target.rank, target.instance).map_err(Failure::Identity)?;
        self.transcript.acceptor = *bytes;
        if !self.transcript.proves(&local.config.key, Role::Acceptor, proof) {
            return Err(Failure::Key);
        }
        let begun = std::mem::replace(&mut self.keys, Keys::None);
        if let Err(failure) = local.check_encryption(&hello, matches!(begun, Keys::Begun(_))) {
            // The proof is sent nevertheless: without it the acceptor does not know that the caller is this rank.
            let proof = self.transcript.proof(&local.config.key, Role::Initiator);
            self.send(&[&proof]);
            self.write()?;
            return Err(failure);
        }
        if let Keys::Begun(handshake) = begun {
            self.keys = Keys::Agreed(handshake.finish(&hello.keys).map_err(|_| Failure::Key)?);
        }
        let proof = self.transcript.proof(&local.config.key, Role::Initiator);
        self.send(&[&proof]);
        self.await_message(Stage::AwaitVerdict, VERDICT);
        self.write()?;
        Ok(Step::Wait)
    }

    /// Inbound: the initiator's hello has arrived.
    fn on_initiator_hello(&mut self, local: LocalEnd<'_>) -> Result<Step, Failure> {
        let (bytes, _) = self.incoming.bytes.split_first_chunk::<HELLO>().ok_or(Failure::Key)?;
        let hello = Hello::decode(bytes).map_err(Failure::Hello)?;
        local.check(&hello, Role::Initiator)?;
        let Identity { from, from_instance, .. } = hello.identity;
        if from == local.config.rank {
            return Err(Failure::Identity(towline_net::Mismatch::Rank));
        }
        self.transcript.initiator = *bytes;
        let (mut message, encrypted) = ([0; MESSAGE], local.encrypts(hello.host));
        if encrypted && hello.encrypted {
            if !local.replay_limit.allows(&hello.keys, local.now) {
                return Err(Failure::Replayed);
            }
            let (cipher, answer) =
                Handshake::answer(local.config.key.bytes(), &hello.keys).map_err(|_| Failure::Key)?;
            local.replay_limit.remember(&hello.keys);
            (self.keys, message) = (Keys::Agreed(cipher), answer);
        }
        let own = local.hello(Role::Acceptor, from, from_instance, encrypted, message).map_err(Failure::System)?;
        self.transcript.acceptor = own.encode();
        let proof = self.transcript.proof(&local.config.key, Role::Acceptor);
        let hello = self.transcript.acceptor;
        self.send(&[&hello, &proof]);
        self.await_message(Stage::AwaitProof, PROOF);
        self.write()?;
        Ok(Step::Responding)
    }

    /// Inbound: the initiator's proof has arrived.
    fn on_initiator_proof(&mut self, local: LocalEnd<'_>) -> Result<Step, Failure> {
        let (proof, _) = self.incoming.bytes.split_first_chunk::<PROOF>().ok_or(Failure::Key)?;
        if !self.transcript.proves(&local.config.key, Role::Initiator, proof) {
            return Err(Failure::Key);
        }
        let hello = Hello::decode(&self.transcript.initiator).map_err(Failure::Hello)?;
        // A mismatch is reported only now: the caller learns it from the answer, and a caller that is not authenticated may claim
        // to be any rank.
        local.check_encryption(&hello, local.encrypts(hello.host))?;
        let (rank, instance) = (hello.identity.from, hello.identity.from_instance);
        // One byte is awaited, so that the end of the connection is noticed. Any byte is against the protocol.
        self.await_message(Stage::Authenticated { rank, instance }, 1);
        Ok(Step::Authenticated { rank, instance })
    }

    /// Makes these parts the outgoing message.
    fn send(&mut self, parts: &[&[u8]]) {
        let mut len = 0;
        for part in parts {
            self.outgoing.bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        (self.outgoing.at, self.outgoing.len) = (0, len);
    }

    /// Awaits a message of `len` bytes in the next stage.
    fn await_message(&mut self, stage: Stage, len: usize) {
        self.stage = stage;
        (self.incoming.at, self.incoming.len) = (0, len);
    }

    /// Writes the outgoing message. `true`: all of it is written.
    fn write(&mut self) -> Result<bool, Failure> {
        let Message { bytes, at, len } = &mut self.outgoing;
        while *at < *len {
            match self.socket.send_with_flags(&bytes[*at..*len], libc::MSG_NOSIGNAL) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => *at += count,
                Err(error) if would_block(&error) => return Ok(false),
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(true)
    }

    /// Whether the first bytes of a hello are wrong. Such a caller is refused at once, without waiting for the rest.
    fn is_foreign(&self) -> bool {
        let seen = self.incoming.at.min(MAGIC.len());
        matches!(self.stage, Stage::AwaitHelloOfInitiator | Stage::AwaitHelloOfAcceptor)
            && self.incoming.bytes[..seen] != MAGIC[..seen]
    }

    /// Reads the awaited message. `true`: all of it is read. Never reads beyond it, as frames may follow.
    fn read(&mut self) -> Result<bool, Failure> {
        while self.incoming.at < self.incoming.len {
            match self.socket.read(&mut self.incoming.bytes[self.incoming.at..self.incoming.len]) {
                Ok(0) => return Err(Failure::Closed),
                Ok(count) => self.incoming.at += count,
                Err(error) if would_block(&error) => {
                    return if self.is_foreign() { Err(Failure::Hello(BadHello::Foreign)) } else { Ok(false) };
                }
                Err(error) => return Err(Failure::System(error)),
            }
        }
        Ok(true)
    }
}

impl LocalEnd<'_> {
    fn hello(&self, role: Role, to: u32, to_instance: u64, encrypted: bool, keys: [u8; MESSAGE]) -> io::Result<Hello> {
        let Config { job, rank, link, encrypt, .. } = *self.config;
        let identity = Identity { job, from: rank, to, from_instance: self.instance, to_instance };
        Ok(Hello { role, link, encrypted, encrypt, identity, host: self.host, nonce: random::bytes()?, keys })
    }

    /// Whether this end encrypts a connection to a rank on that host.
    fn encrypts(&self, host: u64) -> bool {
        self.config.encrypt.applies(host == self.host)
    }

    /// Checks that either both ends encrypt or neither does.
    fn check_encryption(&self, hello: &Hello, encrypted: bool) -> Result<(), Failure> {
        if hello.encrypted == encrypted {
            return Ok(());
        }
        let (theirs, ours) = ((hello.encrypted, hello.encrypt), (encrypted, self.config.encrypt));
        Err(Failure::Encryption(EncryptionMismatch { rank: hello.identity.from, theirs, ours }))
    }

    /// Checks that a hello has the expected role and is meant for this rail.
    fn check(&self, hello: &Hello, role: Role) -> Result<(), Failure> {
        if hello.role != role {
            return Err(Failure::Role);
        }
        hello.identity.check_receiver(self.config.job, self.config.rank, self.instance).map_err(Failure::Identity)?;
        if hello.link == self.config.link { Ok(()) } else { Err(Failure::Link) }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
