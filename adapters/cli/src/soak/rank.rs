//! A rank of `towline soak`: sends its part of the traffic, and checks everything that it receives.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use towline::{
    Any, Builder, Communicator, MayOwn, Multiple, OwnedCommunicator, RecvRequest, SendRequest, Status, Threads, World,
};
use towline_host_tests::pattern::patterned;

use super::resources::Resources;
use super::shared_window::{SharedWindow, WindowError};
use super::traffic::{MessageId, NEVER, STREAMS, SendMode, Stream, Traffic, WILDCARD_MOST};

/// One rank of `towline soak`
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    rounds: u32,
    /// Longest message, in bytes
    #[arg(long)]
    most: u64,
    /// The rank that is killed
    #[arg(long)]
    victim: Option<u32>,
    /// Rounds after the killed rank was restarted; 0: it is not restarted
    #[arg(long, default_value_t = 0)]
    rounds_after_restart: u32,
    /// Run a progress thread in each rank
    #[arg(long)]
    thread: bool,
    /// The first port of the first rank, and the first port that it advertises
    #[arg(long, num_args = 2)]
    ports: Vec<u16>,
    /// Links to each peer
    #[arg(long, default_value_t = 1)]
    links: u16,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// Tag of the last messages between ranks.
const LAST: u32 = 98;
/// Tag of the messages after the surviving ranks have checked for leaked resources.
const LEAKS_CHECKED: u32 = 97;
/// Time within which the resources of a dead rank must be released.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);
/// Time within which a killed rank must be restarted and rejoin.
const REJOIN_LIMIT: Duration = Duration::from_secs(50);
/// Time after which a rank that is to be killed gives up if nothing has killed it.
const KILL_LIMIT: Duration = Duration::from_secs(60);

/// Runs one rank.
pub fn run(arguments: &Arguments) -> ExitCode {
    match take_part(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the world for the arguments, and runs the rank.
fn take_part(arguments: &Arguments) -> Result<()> {
    let mut builder = Builder::new();
    if let [real, told] = arguments.ports[..] {
        let own: u16 = std::env::var("TOWLINE_RANK")?.parse()?;
        let (real, told) = (real + own * arguments.links, told + own * arguments.links);
        builder = builder.configure(|config| {
            let (ports, told) = (format!("{real}-{}", real + arguments.links - 1), format!("127.0.0.1:{told}"));
            (config.tcp.ports, config.udp.ports) = (ports.clone(), ports);
            (config.tcp.advertise, config.udp.advertise) = (told.clone(), told);
            (config.tcp.include, config.udp.include) = ("127.0.0.0/8".into(), "127.0.0.0/8".into());
        });
    }
    if arguments.thread {
        Rank::new(arguments, builder.threads(Multiple).progress_thread(true).build()?)?.run()
    } else {
        Rank::new(arguments, builder.build()?)?.run()
    }
}

/// Reports a line to the process that started the job.
fn report_line(line: impl std::fmt::Display) {
    println!("@ {line}");
}

/// Nanoseconds of the monotonic clock, which all processes of a host share.
pub fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Messages between this rank and another, in one direction.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Messages of each stream.
    of: [u64; STREAMS.len()],
    messages: u64,
    bytes: u64,
    /// A hash of the names and lengths of all messages, in any order.
    hash: u64,
}

impl Tally {
    fn count(&mut self, name: u64, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
        self.hash = self.hash.wrapping_add((name ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

struct Rank<L: Threads> {
    mix: Traffic,
    /// Must be dropped before the world.
    side: OwnedCommunicator<L>,
    shared: SharedWindow<L>,
    world: World<L>,
    victim: Option<u32>,
    /// Number of rounds after the killed rank has rejoined.
    rounds_after_restart: u32,
    /// The incarnation of the victim: 1, or 2 after it was restarted.
    life: u32,
    /// Number of rounds before its death.
    first: u32,
    dead: bool,
    sent: Vec<Tally>,
    received: Vec<Tally>,
    /// Messages of each rank and stream that must have arrived by the end of this round.
    wanted: Vec<[u64; STREAMS.len()]>,
    /// Links to each peer.
    links: u16,
    /// Descriptors that belong to no peer, before any rank died.
    other_descriptors: [usize; 2],
    /// Sends that may be received in a later round, since messages of other ranks can arrive before them.
    late: Sends<L>,
}

type Receives<L> = Vec<(MessageId, RecvRequest<Vec<u8>, L>)>;
type Sends<L> = Vec<(u32, SendRequest<Vec<u8>, L>)>;

impl<L: Threads + MayOwn<Vec<u8>>> Rank<L> {
    fn new(arguments: &Arguments, world: World<L>) -> Result<Self> {
        let Arguments { seed, rounds, most, victim, rounds_after_restart, links, .. } = *arguments;
        let (rank, size) = (world.rank(), world.size());
        let life = world.incarnation();
        let mix = if life == 1 {
            Traffic::new(seed, size, rounds, most)
        } else {
            Traffic::restarted(seed, size, rounds_after_restart, most)
        };
        let side = world.dup()?;
        let shared = SharedWindow::new(&world)?;
        world.barrier()?;
        let order = if cfg!(target_endian = "big") { "big" } else { "little" };
        report_line(format!("ready {rank} {} {order}", std::process::id()));
        let none = vec![Tally::default(); size as usize];
        let wanted = vec![[0; STREAMS.len()]; size as usize];
        Ok(Self {
            mix,
            side,
            shared,
            world,
            victim: victim.filter(|_| life == 1),
            rounds_after_restart,
            life,
            first: rounds,
            dead: false,
            sent: none.clone(),
            received: none,
            wanted,
            links,
            other_descriptors: [0; 2],
            late: Sends::new(),
        })
    }

    fn run(mut self) -> Result<()> {
        let first = if self.life == 1 { 0 } else { self.first };
        self.do_rounds(first);
        if self.victim == Some(self.world.rank()) {
            return self.wait_to_be_killed();
        }
        if self.rounds_after_restart != 0 && self.victim.is_some() {
            let first = self.mix.rounds;
            self.or_exit(Self::rejoin, "when a rank rejoins");
            self.do_rounds(first);
        }
        self.end()
    }

    /// Runs all rounds. They are numbered from `first`.
    fn do_rounds(&mut self, first: u32) {
        for round in 0..self.mix.rounds {
            // The resources from before the death are the ones to expect after it.
            if !self.dead && (self.life == 1 || self.world.incarnation() > 1) {
                self.other_descriptors = Resources::now().baseline();
            }
            self.or_exit(|rank| rank.round(round), format_args!("round {}", first + round));
            report_line(format!("at {} {}", self.world.rank(), first + round));
        }
    }

    /// Runs `work`. If it fails, ends the process at once, since the end of a world would wait for the other ranks.
    fn or_exit(&mut self, work: impl FnOnce(&mut Self) -> Result<()>, what: impl std::fmt::Display) {
        if let Err(why) = work(self) {
            eprintln!("towline: rank {}, {what}: {why}", self.world.rank());
            std::process::exit(1);
        }
    }

    /// Accepts the killed rank again, and continues with other messages.
    fn rejoin(&mut self) -> Result<()> {
        self.check_messages()?;
        let Some(dead) = self.victim.take() else { return Ok(()) };
        self.life = self.world.rejoin(dead, REJOIN_LIMIT)?;
        let Traffic { seed, ranks, most, .. } = self.mix;
        self.mix = Traffic::restarted(seed, ranks, self.rounds_after_restart, most);
        self.dead = false;
        for tallies in [&mut self.sent, &mut self.received] {
            tallies.fill(Tally::default());
        }
        self.wanted.fill([0; STREAMS.len()]);
        // The restarted rank is not in the old communicator.
        self.side = self.world.dup()?;
        self.shared = SharedWindow::new(&self.world)?;
        self.world.barrier()?;
        Ok(())
    }

    /// Waits to be killed, however late the signal is: the other ranks wait for this rank's last message.
    fn wait_to_be_killed(self) -> Result<()> {
        report_line(format!("waits {}", self.world.rank()));
        let since = Instant::now();
        while since.elapsed() < KILL_LIMIT {
            // Other ranks may need its progress meanwhile.
            self.world.iprobe(self.world.rank(), NEVER)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("this rank was to be killed, but it was not".into())
    }

    /// The other ranks, without the dead one.
    fn others(&self) -> impl Iterator<Item = u32> + use<L> {
        let (own, gone) = (self.world.rank(), self.victim.filter(|_| self.dead));
        (0..self.mix.ranks).filter(move |rank| *rank != own && Some(*rank) != gone)
    }

    /// The outcome of an operation with `peer`, or with any rank. `None` if it failed because the victim died.
    fn check_result<T>(
        &mut self,
        peer: Option<u32>,
        outcome: std::result::Result<T, towline::Error>,
    ) -> Result<Option<T>> {
        match outcome {
            Ok(it) => Ok(Some(it)),
            Err(towline::Error::PeerFailed { rank })
                if Some(rank) == self.victim && peer.is_none_or(|peer| peer == rank) =>
            {
                if !std::mem::replace(&mut self.dead, true) {
                    report_line(format!("noticed {} {}", self.world.rank(), clock()));
                }
                // This is done for later failures, too: receives from any source wait for the other ranks again.
                self.world.acknowledge_failures();
                self.side.acknowledge_failures();
                Ok(None)
            }
            Err(why) => Err(format!("with {}: {why}", peer.map_or("any".into(), |peer| format!("rank {peer}"))).into()),
        }
    }

    fn round(&mut self, round: u32) -> Result<()> {
        let own = self.world.rank();
        for from in self.others() {
            for (wanted, stream) in self.wanted[from as usize].iter_mut().zip(STREAMS) {
                *wanted += self.mix.count(from, own, stream, round);
            }
        }
        let posted = self.post_receives(round)?;
        let mut any = self.post_any_source()?;
        let never = self.world.irecv(Any, NEVER, vec![0u8; 64]);
        let (mut sends, mut blocking) = (Sends::new(), Vec::new());
        for to in self.others().collect::<Vec<_>>() {
            for (place, stream) in STREAMS.into_iter().enumerate() {
                for _ in 0..self.mix.count(own, to, stream, round) {
                    let of = MessageId { from: own, to, stream, index: self.sent[to as usize].of[place] };
                    self.sent[to as usize].of[place] += 1;
                    match self.mix.way(of) {
                        // These are sent after the sends that may not wait, and in order within their stream.
                        _ if stream == Stream::Posted => blocking.push(of),
                        way if stream == Stream::Probed || stream == Stream::Blocking => {
                            self.begin(of, way, &mut sends)?;
                        }
                        way => {
                            let mut late = std::mem::take(&mut self.late);
                            self.begin(of, way, &mut late)?;
                            self.late.append(&mut late);
                        }
                    }
                }
            }
        }
        blocking.into_iter().try_for_each(|of| self.send(of, &mut sends))?;
        self.use_window(round)?;
        for from in self.others().collect::<Vec<_>>() {
            self.receive_from(from, round)?;
        }
        self.receive_anything()?;
        for (of, receiving) in posted {
            let outcome = receiving.wait().map_err(|failed| failed.error);
            if let Some((bytes, status)) = self.check_result(Some(of.from), outcome)? {
                self.check(of, &bytes, status.into())?;
            }
        }
        self.complete_any_source(&mut any)?;
        self.complete_sends(sends)?;
        let mut over = Sends::new();
        for (to, mut sending) in std::mem::take(&mut self.late) {
            let sends = if sending.is_done() { &mut over } else { &mut self.late };
            sends.push((to, sending));
        }
        self.complete_sends(over)?;
        if let Some(mut never) = self.check_result(None, never.map_err(|failed| failed.error))? {
            let cancelled = never.cancel();
            match never.wait().map_err(|failed| failed.error) {
                Err(towline::Error::Cancelled) if cancelled => {}
                // Once a rank has died, every receive from any source ends like this.
                Err(why @ towline::Error::PeerFailed { .. }) if !cancelled => {
                    self.check_result::<()>(None, Err(why))?;
                }
                other => return Err(format!("a receive that was cancelled ({cancelled}) ended with {other:?}").into()),
            }
        }
        if self.victim.is_none() && self.mix.random([7, round, 0, 0, 0]).chance(100) {
            self.collective(round)?;
        }
        Ok(())
    }

    /// Works on the windows of all ranks, including this one's.
    fn use_window(&mut self, round: u32) -> Result<()> {
        let own = self.world.rank();
        for to in self.others().chain([own]).collect::<Vec<_>>() {
            let mut random = self.mix.random([9, own, to, round, 0]);
            for _ in 0..random.between(0, 6) {
                let outcome = self.shared.step(to, &mut random);
                if self.check_window_result(to, outcome)?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// As [`check_result`](Self::check_result), for an operation on a window.
    fn check_window_result(&mut self, of: u32, outcome: std::result::Result<(), WindowError>) -> Result<Option<()>> {
        match outcome {
            Ok(()) => Ok(Some(())),
            Err(WindowError::Failed(why)) => self.check_result(Some(of), Err(why)),
            Err(WindowError::Mismatch(what)) => Err(format!("in the memory of rank {of}: {what}").into()),
        }
    }

    fn complete_sends(&mut self, sends: Sends<L>) -> Result<()> {
        for (to, sending) in sends {
            let outcome = sending.wait().map_err(|failed| failed.error);
            self.check_result(Some(to), outcome)?;
        }
        Ok(())
    }

    /// Posts the receives that must be posted before anything is sent.
    fn post_receives(&mut self, round: u32) -> Result<Receives<L>> {
        let mut posted = Vec::new();
        for from in self.others().collect::<Vec<_>>() {
            for _ in 0..self.mix.count(from, self.world.rank(), Stream::Posted, round) {
                let of = self.next(from, Stream::Posted);
                let receiving = self.world.irecv(from, Stream::Posted as u32, vec![0u8; self.mix.len(of)]);
                self.received[from as usize].of[Stream::Posted as usize] += 1;
                if let Some(receiving) = self.check_result(Some(from), receiving.map_err(|failed| failed.error))? {
                    posted.push((of, receiving));
                }
            }
        }
        Ok(posted)
    }

    /// The next message of a stream.
    fn next(&self, from: u32, stream: Stream) -> MessageId {
        MessageId { from, to: self.world.rank(), stream, index: self.received[from as usize].of[stream as usize] }
    }

    /// How many messages of a stream from the surviving ranks have not arrived, of those that are sent by the end of
    /// this round.
    fn missing(&self, stream: Stream) -> u64 {
        let wanted: u64 = self.others().map(|from| self.wanted[from as usize][stream as usize]).sum();
        let received: u64 = self.others().map(|from| self.received[from as usize].of[stream as usize]).sum();
        wanted.saturating_sub(received)
    }

    fn post_any_source(&mut self) -> Result<Vec<RecvRequest<Vec<u8>, L>>> {
        let mut any = Vec::new();
        for _ in 0..self.missing(Stream::AnySource) {
            let receiving = self.world.irecv(Any, Stream::AnySource as u32, vec![0u8; WILDCARD_MOST as usize]);
            any.extend(self.check_result(None, receiving.map_err(|failed| failed.error))?);
        }
        Ok(any)
    }

    /// Completes receives from any source. If a death has ended some of them, posts others, until all messages of the
    /// surviving ranks have arrived.
    fn complete_any_source(&mut self, any: &mut Vec<RecvRequest<Vec<u8>, L>>) -> Result<()> {
        loop {
            for receiving in any.drain(..) {
                let outcome = receiving.wait().map_err(|failed| failed.error);
                if let Some((bytes, status)) = self.check_result(None, outcome)? {
                    self.accept_from_any(Stream::AnySource, &bytes, status.into())?;
                }
            }
            if self.missing(Stream::AnySource) == 0 {
                return Ok(());
            }
            let receiving = self.world.irecv(Any, Stream::AnySource as u32, vec![0u8; WILDCARD_MOST as usize]);
            any.extend(self.check_result(None, receiving.map_err(|failed| failed.error))?);
        }
    }

    fn message(&mut self, of: MessageId) -> Vec<u8> {
        let (name, len) = (self.mix.name(of), self.mix.len(of));
        self.sent[of.to as usize].count(name, len);
        patterned(name, len)
    }

    fn communicator_of(&self, of: MessageId) -> &Communicator<L> {
        if of.stream == Stream::Anything { &self.side } else { &self.world }
    }

    /// Begins a nonblocking send.
    fn begin(&mut self, of: MessageId, way: SendMode, sends: &mut Sends<L>) -> Result<()> {
        let (bytes, tag) = (self.message(of), self.mix.tag(of));
        let begun = match way {
            SendMode::OwnedSynchronous => self.communicator_of(of).issend(of.to, tag, bytes),
            _ => self.communicator_of(of).isend(of.to, tag, bytes),
        };
        let begun = self.check_result(Some(of.to), begun.map_err(|failed| failed.error))?;
        sends.extend(begun.map(|sending| (of.to, sending)));
        Ok(())
    }

    /// Sends a message in its mode.
    fn send(&mut self, of: MessageId, sends: &mut Sends<L>) -> Result<()> {
        let way = self.mix.way(of);
        if matches!(way, SendMode::Owned | SendMode::OwnedSynchronous) {
            return self.begin(of, way, sends);
        }
        let (bytes, tag) = (self.message(of), self.mix.tag(of));
        let sent = match way {
            SendMode::Scoped => self.world.scope(|scope| scope.isend(of.to, tag, &bytes[..])?.wait()),
            SendMode::BlockingSynchronous => self.world.ssend(of.to, tag, &bytes[..]),
            _ => self.world.send(of.to, tag, &bytes[..]),
        };
        self.check_result(Some(of.to), sent).map(drop)
    }

    /// Receives from one rank, first by blocking receives, then by probes.
    fn receive_from(&mut self, from: u32, round: u32) -> Result<()> {
        let own = self.world.rank();
        for stream in [Stream::Blocking, Stream::Probed] {
            for _ in 0..self.mix.count(from, own, stream, round) {
                let of = self.next(from, stream);
                self.received[from as usize].of[stream as usize] += 1;
                let outcome = match stream {
                    Stream::Blocking => self.receive(of),
                    _ => self.probe_and_receive(of),
                };
                let Some((bytes, status)) = self.check_result(Some(from), outcome)? else { return Ok(()) };
                self.check(of, &bytes, status)?;
            }
        }
        Ok(())
    }

    /// Receives by a blocking receive, at times into a buffer that is too short.
    fn receive(&self, of: MessageId) -> std::result::Result<(Vec<u8>, Envelope), towline::Error> {
        let len = self.mix.len(of);
        let short = if self.mix.choice(of, 8) == 0 { len / 2 } else { len };
        let mut into = vec![0u8; short];
        match self.world.recv(of.from, of.stream as u32, &mut into[..]) {
            Err(towline::Error::Truncated { source, tag, sent, delivered }) if short < len => {
                // The truncation was expected. Bytes that did not fit are not compared.
                let whole = patterned(self.mix.name(of), len);
                let fits = delivered as usize <= short && into[..delivered as usize] == whole[..delivered as usize];
                Ok((if fits { whole } else { into }, Envelope { source, tag, bytes: sent }))
            }
            other => other.map(|status| (into, status.into())),
        }
    }

    fn probe_and_receive(&self, of: MessageId) -> std::result::Result<(Vec<u8>, Envelope), towline::Error> {
        let (from, tag, world) = (of.from, of.stream as u32, &self.world);
        let taken = match self.mix.choice(of, 5) {
            0 => {
                let found = world.probe(from, tag)?;
                let mut into = vec![0u8; found.bytes as usize];
                return world.recv(from, tag, &mut into[..]).map(|status| (into, status.into()));
            }
            1 => return world.recv_vec::<u8>(from, tag).map(|(bytes, status)| (bytes, status.into())),
            2 => loop {
                if world.iprobe(from, tag)?.is_some() {
                    let mut into = vec![0u8; self.mix.len(of)];
                    return world.recv(from, tag, &mut into[..]).map(|status| (into, status.into()));
                }
                self.check_alive(from)?;
            },
            3 => loop {
                if let Some(message) = world.improbe(from, tag)? {
                    break message;
                }
                self.check_alive(from)?;
            },
            _ => world.mprobe(from, tag)?,
        };
        let mut into = vec![0u8; taken.envelope().bytes as usize];
        taken.recv(&mut into[..]).map(|status| (into, status.into()))
    }

    /// An error if a rank is dead. Operations that do not wait do not report a death themselves.
    fn check_alive(&self, rank: u32) -> std::result::Result<(), towline::Error> {
        std::thread::yield_now();
        if self.world.lost().contains(&rank) { Err(towline::Error::PeerFailed { rank }) } else { Ok(()) }
    }

    /// Receives everything in the separate communicator, with any tag from any source.
    fn receive_anything(&mut self) -> Result<()> {
        while self.missing(Stream::Anything) != 0 {
            let outcome = self.side.recv_vec::<u8>(Any, Any);
            if let Some((bytes, status)) = self.check_result(None, outcome)? {
                self.accept_from_any(Stream::Anything, &bytes, status.into())?;
            }
        }
        Ok(())
    }

    fn accept_from_any(&mut self, stream: Stream, bytes: &[u8], envelope: Envelope) -> Result<()> {
        if envelope.source >= self.mix.ranks || envelope.source == self.world.rank() {
            return Err(format!("a message from rank {}, which cannot be its source", envelope.source).into());
        }
        let mut of = self.next(envelope.source, stream);
        // A message of a dead rank may be lost although a later one has arrived.
        while self.dead
            && Some(of.from) == self.victim
            && !self.matches(of, bytes, envelope)
            && of.index < self.sent_by(of)
        {
            of.index += 1;
        }
        self.received[envelope.source as usize].of[stream as usize] = of.index + 1;
        self.check(of, bytes, envelope)
    }

    /// How many messages of a stream are sent in total.
    fn sent_by(&self, of: MessageId) -> u64 {
        (0..self.mix.rounds).map(|round| self.mix.count(of.from, of.to, of.stream, round)).sum()
    }

    fn matches(&self, of: MessageId, bytes: &[u8], envelope: Envelope) -> bool {
        let len = self.mix.len(of);
        envelope == Envelope { source: of.from, tag: self.mix.tag(of), bytes: len as u64 }
            && bytes.get(..len) == Some(&patterned(self.mix.name(of), len)[..])
    }

    /// Checks that this is the next message of its stream, and complete.
    fn check(&mut self, of: MessageId, bytes: &[u8], envelope: Envelope) -> Result<()> {
        let (name, len, tag) = (self.mix.name(of), self.mix.len(of), self.mix.tag(of));
        if envelope != (Envelope { source: of.from, tag, bytes: len as u64 }) {
            return Err(format!("{of:?} with tag {tag} and {len} bytes was expected, and {envelope:?} arrived").into());
        }
        // The buffer may be longer than the message.
        let whole = patterned(name, len);
        if bytes.get(..len) != Some(&whole[..]) {
            let wrong = whole.iter().zip(bytes).position(|(one, other)| one != other);
            return Err(format!("{of:?}, {len} bytes: byte {wrong:?} is wrong").into());
        }
        self.received[of.from as usize].count(name, len);
        Ok(())
    }

    /// A collective operation of all ranks.
    fn collective(&mut self, round: u32) -> Result<()> {
        self.world.barrier()?;
        let mut random = self.mix.random([8, round, 0, 0, 0]);
        let (root, name, len) =
            (random.below(self.mix.ranks.into()) as u32, random.word(), random.length(WILDCARD_MOST));
        let whole = patterned(name, len as usize);
        let mut bytes = if self.world.rank() == root { whole.clone() } else { vec![0; len as usize] };
        self.world.broadcast(root, &mut bytes[..])?;
        if bytes != whole {
            return Err(format!("a broadcast of {len} bytes by rank {root} is wrong").into());
        }
        Ok(())
    }

    /// Checks the end: no further message may arrive, and no resource may be leaked.
    fn end(mut self) -> Result<()> {
        self.or_exit(Self::check_end, "at the end");
        let own = self.world.rank();
        let Self { side, shared, world, dead, .. } = self;
        drop((side, shared));
        match world.finish() {
            Ok(()) => {}
            // If a rank is dead, the collective `finish` fails.
            Err(towline::SetupError::LostRanks { .. } | towline::SetupError::Finish { .. }) if dead => {}
            Err(why) => return Err(why.into()),
        }
        report_line(format!("over {own}"));
        Ok(())
    }

    fn check_end(&mut self) -> Result<()> {
        self.check_messages()?;
        match self.victim {
            Some(dead) if self.dead => self.check_for_leaks(dead)?,
            // Checks for resources of the earlier incarnation.
            _ if self.life > 1 => self.check_for_leaks(u32::MAX)?,
            _ => {}
        }
        let (own, counters) = (self.world.rank(), self.world.counters());
        report_line(format!(
            "links {own} {} {} {} {}",
            counters.links_down, counters.links_up, counters.frames_migrated, counters.duplicates
        ));
        Ok(())
    }

    /// Checks that all messages have arrived, and no more.
    fn check_messages(&mut self) -> Result<()> {
        let own = self.world.rank();
        let late = std::mem::take(&mut self.late);
        self.complete_sends(late)?;
        for of in self.others().chain([own]).collect::<Vec<_>>() {
            let outcome = self.shared.end(of);
            self.check_window_result(of, outcome)?;
        }
        self.exchange_with_all(LAST)?;
        let outcome = self.shared.check(&self.others().chain([own]).collect::<Vec<_>>());
        self.check_window_result(own, outcome)?;
        report_line(format!("shared {own} {}", self.shared.operations));
        for other in self.others().collect::<Vec<_>>() {
            for (over, name) in [(&*self.world, "world"), (&self.side, "side")] {
                // A rank that learned of the death earlier may have sent its next message.
                if let Some(more) = over.iprobe(other, Any)?.filter(|more| more.tag != LEAKS_CHECKED) {
                    return Err(format!("an unexpected message in {name}: {more:?}").into());
                }
            }
        }
        let lost = self.world.lost();
        if lost != self.victim.filter(|_| self.dead).into_iter().collect::<Vec<_>>() {
            return Err(format!("ranks {lost:?} are reported as lost").into());
        }
        for other in self.others() {
            for (word, tally) in [("sent", self.sent[other as usize]), ("received", self.received[other as usize])] {
                let Tally { messages, bytes, hash, .. } = tally;
                report_line(format!("{word} {own} {other} {messages} {bytes} {hash:x} {}", self.life));
            }
        }
        Ok(())
    }

    /// Exchanges a message with each surviving rank.
    fn exchange_with_all(&mut self, tag: u32) -> Result<()> {
        let own = self.world.rank().to_le_bytes();
        for other in self.others().collect::<Vec<_>>() {
            let mut word = [0; size_of::<u32>()];
            let met = self.world.sendrecv(&own, other, tag, &mut word, other, tag);
            if self.check_result(Some(other), met.map(|_| ()))?.is_some() && word != other.to_le_bytes() {
                return Err(format!("rank {other} sent {word:?} as its last message").into());
            }
        }
        Ok(())
    }

    /// Checks that no resource of the dead rank is held. No rank goes on before all have checked, since the check
    /// includes the resources that ranks hold for each other.
    fn check_for_leaks(&mut self, dead: u32) -> Result<()> {
        let (since, others) = (Instant::now(), self.others().count());
        while let Some(left) = Resources::now().find_leak(dead, others, self.links.into(), self.other_descriptors) {
            if since.elapsed() >= RELEASE_LIMIT {
                return Err(format!("not released after the death: {left}").into());
            }
            self.world.iprobe(self.world.rank(), NEVER)?;
            std::thread::yield_now();
        }
        self.exchange_with_all(LEAKS_CHECKED)
    }
}

/// The envelope of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Envelope {
    source: u32,
    tag: u32,
    bytes: u64,
}

impl From<Status> for Envelope {
    fn from(status: Status) -> Self {
        Self { source: status.source, tag: status.tag, bytes: status.bytes }
    }
}
