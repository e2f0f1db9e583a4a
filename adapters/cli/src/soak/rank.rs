//! A rank of `towline soak`: sends its part of the mix, and checks all that it receives.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use towline::{
    Any, Builder, Communicator, Multiple, Owned, ReceivingOwned, SendingOwned, Status, Takes, Threads, World,
};
use towline_host_tests::dice::patterned;

use super::held::Held;
use super::mix::{Mix, NEVER, Named, STREAMS, Stream, UNKNOWN_MOST, Way};
use super::shared::{Shared, Wrong};

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
    /// The rank that dies
    #[arg(long)]
    victim: Option<u32>,
    /// Rounds after the rank that dies was started again; 0: it is not
    #[arg(long, default_value_t = 0)]
    again: u32,
    /// A progress thread in each rank
    #[arg(long)]
    thread: bool,
    /// The first port of the first rank, and the first that it advertises
    #[arg(long, num_args = 2)]
    ports: Vec<u16>,
    /// Links per peer
    #[arg(long, default_value_t = 1)]
    links: u16,
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;
/// What a job's ranks say to each other last.
const LAST: u32 = 98;
/// What those who are left say once they have looked for what a death left behind.
const LOOKED: u32 = 97;
/// Whatever was a dead rank's is given back in so long.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);
/// A rank that died is started again within this time.
const BACK_WITHIN: Duration = Duration::from_secs(50);
/// A rank that is to die, and does not, gives up after so long.
const DEAD_WITHIN: Duration = Duration::from_secs(60);

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

/// Builds the world that the arguments ask for.
fn take_part(arguments: &Arguments) -> Result<()> {
    let mut builder = Builder::new();
    if let [real, told] = arguments.ports[..] {
        let own: u16 = std::env::var("TOWLINE_RANK")?.parse()?;
        let (real, told) = (real + own * arguments.links, told + own * arguments.links);
        builder = builder.configure(|config| {
            let (ports, told) = (format!("{real}-{}", real + arguments.links - 1), format!("127.0.0.1:{told}"));
            (config.tcp_ports, config.udp_ports) = (ports.clone(), ports);
            (config.tcp_advertise, config.udp_advertise) = (told.clone(), told);
            (config.tcp_include, config.udp_include) = ("127.0.0.0/8".into(), "127.0.0.0/8".into());
        });
    }
    if arguments.thread {
        Player::new(arguments, builder.threads(Multiple).progress_thread(true).build()?)?.play()
    } else {
        Player::new(arguments, builder.build()?)?.play()
    }
}

/// Says a line to whoever started the job.
fn say(line: impl std::fmt::Display) {
    println!("@ {line}");
}

/// Nanoseconds of the clock that all processes of a host share.
pub fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What went between this rank and another, in one direction.
#[derive(Clone, Copy, Default)]
struct Tally {
    /// Messages of each stream.
    of: [u64; STREAMS.len()],
    messages: u64,
    bytes: u64,
    /// Of all names and lengths, in any order.
    hash: u64,
}

impl Tally {
    fn count(&mut self, name: u64, len: usize) {
        self.messages += 1;
        self.bytes += len as u64;
        self.hash = self.hash.wrapping_add((name ^ len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

struct Player<L: Threads> {
    mix: Mix,
    /// Goes before the world does.
    side: Owned<L>,
    shared: Shared<L>,
    world: World<L>,
    victim: Option<u32>,
    /// Rounds after its return.
    again: u32,
    /// The life of the victim that goes on: 1, or 2 once it was started again.
    life: u32,
    /// Rounds before its death.
    first: u32,
    dead: bool,
    sent: Vec<Tally>,
    received: Vec<Tally>,
    /// Messages of each rank and stream that come by the end of this round.
    wanted: Vec<[u64; STREAMS.len()]>,
    /// Links per peer.
    links: u16,
    /// Descriptors that are no peer's, before anybody died.
    rest: [usize; 2],
    /// Sends whose receives may be another round's: others' messages can come before theirs.
    late: Sends<L>,
}

type Receives<L> = Vec<(Named, ReceivingOwned<Vec<u8>, L>)>;
type Sends<L> = Vec<(u32, SendingOwned<Vec<u8>, L>)>;

impl<L: Threads + Takes<Vec<u8>>> Player<L> {
    fn new(arguments: &Arguments, world: World<L>) -> Result<Self> {
        let Arguments { seed, rounds, most, victim, again, links, .. } = *arguments;
        let (rank, size) = (world.rank(), world.size());
        let life = world.incarnation();
        let mix = if life == 1 { Mix::new(seed, size, rounds, most) } else { Mix::again(seed, size, again, most) };
        let side = world.dup()?;
        let shared = Shared::new(&world)?;
        world.barrier()?;
        let order = if cfg!(target_endian = "big") { "big" } else { "little" };
        say(format!("ready {rank} {} {order}", std::process::id()));
        let none = vec![Tally::default(); size as usize];
        let wanted = vec![[0; STREAMS.len()]; size as usize];
        Ok(Self {
            mix,
            side,
            shared,
            world,
            victim: victim.filter(|_| life == 1),
            again,
            life,
            first: rounds,
            dead: false,
            sent: none.clone(),
            received: none,
            wanted,
            links,
            rest: [0; 2],
            late: Sends::new(),
        })
    }

    fn play(mut self) -> Result<()> {
        let first = if self.life == 1 { 0 } else { self.first };
        self.do_rounds(first);
        if self.victim == Some(self.world.rank()) {
            return self.wait_for_death();
        }
        if self.again != 0 && self.victim.is_some() {
            let first = self.mix.rounds;
            self.or_end_all(Self::begin_again, "when a rank is taken back");
            self.do_rounds(first);
        }
        self.end()
    }

    /// Does all rounds, which are counted from `first`.
    fn do_rounds(&mut self, first: u32) {
        for round in 0..self.mix.rounds {
            // What was held before the death is what is to be held after it.
            if !self.dead && (self.life == 1 || self.world.incarnation() > 1) {
                self.rest = Held::now().own();
            }
            self.or_end_all(|player| player.round(round), format_args!("round {}", first + round));
            say(format!("at {} {}", self.world.rank(), first + round));
        }
    }

    /// Does something; where it fails, the process ends at once: the end of a world waits for the others.
    fn or_end_all(&mut self, work: impl FnOnce(&mut Self) -> Result<()>, what: impl std::fmt::Display) {
        if let Err(why) = work(self) {
            eprintln!("towline: rank {}, {what}: {why}", self.world.rank());
            std::process::exit(1);
        }
    }

    /// The rank that died is taken back, and all begins anew with other messages.
    fn begin_again(&mut self) -> Result<()> {
        self.check_messages()?;
        let Some(dead) = self.victim.take() else { return Ok(()) };
        self.life = self.world.readmit(dead, BACK_WITHIN)?;
        let Mix { seed, ranks, most, .. } = self.mix;
        self.mix = Mix::again(seed, ranks, self.again, most);
        self.dead = false;
        for tallies in [&mut self.sent, &mut self.received] {
            tallies.fill(Tally::default());
        }
        self.wanted.fill([0; STREAMS.len()]);
        // Who was started again is not in the one that there was.
        self.side = self.world.dup()?;
        self.shared = Shared::new(&self.world)?;
        self.world.barrier()?;
        Ok(())
    }

    /// The rank that dies does not come to its end before that, however late the signal is; the others wait for its last word.
    fn wait_for_death(self) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < DEAD_WITHIN {
            // Others may need something of it meanwhile.
            self.world.iprobe(self.world.rank(), NEVER)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Err("it was to be killed, and was not".into())
    }

    /// Ranks that this one still has to do with.
    fn others(&self) -> impl Iterator<Item = u32> + use<L> {
        let (own, gone) = (self.world.rank(), self.victim.filter(|_| self.dead));
        (0..self.mix.ranks).filter(move |rank| *rank != own && Some(*rank) != gone)
    }

    /// What came of an operation that has to do with `peer`, or with any; `None`: it failed since the rank that may die did.
    fn judge<T>(&mut self, peer: Option<u32>, outcome: std::result::Result<T, towline::Error>) -> Result<Option<T>> {
        match outcome {
            Ok(it) => Ok(Some(it)),
            Err(towline::Error::PeerFailed { rank })
                if Some(rank) == self.victim && peer.is_none_or(|peer| peer == rank) =>
            {
                if !std::mem::replace(&mut self.dead, true) {
                    say(format!("noticed {} {}", self.world.rank(), clock()));
                }
                // Also where it was told of another's death: receives from any source wait for the others again.
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
        let posted = self.post(round)?;
        let mut any = self.post_any()?;
        let never = self.world.irecv(Any, NEVER, vec![0u8; 64]);
        let (mut sends, mut blocking) = (Sends::new(), Vec::new());
        for to in self.others().collect::<Vec<_>>() {
            for (place, stream) in STREAMS.into_iter().enumerate() {
                for _ in 0..self.mix.count(own, to, stream, round) {
                    let of = Named { from: own, to, stream, index: self.sent[to as usize].of[place] };
                    self.sent[to as usize].of[place] += 1;
                    match self.mix.way(of) {
                        // Behind those that may not wait, and in order among those of their stream.
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
        self.reach(round)?;
        for from in self.others().collect::<Vec<_>>() {
            self.receive_directly(from, round)?;
        }
        self.receive_anything()?;
        for (of, receiving) in posted {
            let outcome = receiving.wait().map_err(|failed| failed.error);
            if let Some((bytes, status)) = self.judge(Some(of.from), outcome)? {
                self.check(of, &bytes, status.into())?;
            }
        }
        self.end_any(&mut any)?;
        self.end_sends(sends)?;
        let mut over = Sends::new();
        for (to, mut sending) in std::mem::take(&mut self.late) {
            let sends = if sending.is_done() { &mut over } else { &mut self.late };
            sends.push((to, sending));
        }
        self.end_sends(over)?;
        if let Some(mut never) = self.judge(None, never.map_err(|failed| failed.error))? {
            let cancelled = never.cancel();
            match never.wait().map_err(|failed| failed.error) {
                Err(towline::Error::Cancelled) if cancelled => {}
                // As every receive from any source, once a rank died.
                Err(why @ towline::Error::PeerFailed { .. }) if !cancelled => {
                    self.judge::<()>(None, Err(why))?;
                }
                other => return Err(format!("a receive that was cancelled ({cancelled}) ended so: {other:?}").into()),
            }
        }
        if self.victim.is_none() && self.mix.dice([7, round, 0, 0, 0]).chance(100) {
            self.together(round)?;
        }
        Ok(())
    }

    /// Works on the memory of all, the own too.
    fn reach(&mut self, round: u32) -> Result<()> {
        let own = self.world.rank();
        for to in self.others().chain([own]).collect::<Vec<_>>() {
            let mut dice = self.mix.dice([9, own, to, round, 0]);
            for _ in 0..dice.between(0, 6) {
                let outcome = self.shared.step(to, &mut dice);
                if self.judge_memory(to, outcome)?.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// As [`judge`](Self::judge).
    fn judge_memory(&mut self, of: u32, outcome: std::result::Result<(), Wrong>) -> Result<Option<()>> {
        match outcome {
            Ok(()) => Ok(Some(())),
            Err(Wrong::Failed(why)) => self.judge(Some(of), Err(why)),
            Err(Wrong::Found(what)) => Err(format!("in the memory of rank {of}: {what}").into()),
        }
    }

    fn end_sends(&mut self, sends: Sends<L>) -> Result<()> {
        for (to, sending) in sends {
            let outcome = sending.wait().map_err(|failed| failed.error);
            self.judge(Some(to), outcome)?;
        }
        Ok(())
    }

    /// Posts the receives that are there before anything is sent.
    fn post(&mut self, round: u32) -> Result<Receives<L>> {
        let mut posted = Vec::new();
        for from in self.others().collect::<Vec<_>>() {
            for _ in 0..self.mix.count(from, self.world.rank(), Stream::Posted, round) {
                let of = self.next(from, Stream::Posted);
                let receiving = self.world.irecv(from, Stream::Posted as u32, vec![0u8; self.mix.len(of)]);
                self.received[from as usize].of[Stream::Posted as usize] += 1;
                if let Some(receiving) = self.judge(Some(from), receiving.map_err(|failed| failed.error))? {
                    posted.push((of, receiving));
                }
            }
        }
        Ok(posted)
    }

    /// The message of a stream that comes next.
    fn next(&self, from: u32, stream: Stream) -> Named {
        Named { from, to: self.world.rank(), stream, index: self.received[from as usize].of[stream as usize] }
    }

    /// How many messages of a stream from those that are left have not come, of those that are sent by the end of this
    /// round.
    fn missing(&self, stream: Stream) -> u64 {
        let wanted: u64 = self.others().map(|from| self.wanted[from as usize][stream as usize]).sum();
        let came: u64 = self.others().map(|from| self.received[from as usize].of[stream as usize]).sum();
        wanted.saturating_sub(came)
    }

    fn post_any(&mut self) -> Result<Vec<ReceivingOwned<Vec<u8>, L>>> {
        let mut any = Vec::new();
        for _ in 0..self.missing(Stream::AnySource) {
            let receiving = self.world.irecv(Any, Stream::AnySource as u32, vec![0u8; UNKNOWN_MOST as usize]);
            any.extend(self.judge(None, receiving.map_err(|failed| failed.error))?);
        }
        Ok(any)
    }

    /// Ends receives from any source; where a death has ended some, others take their place, until all has come that those
    /// who are left have sent.
    fn end_any(&mut self, any: &mut Vec<ReceivingOwned<Vec<u8>, L>>) -> Result<()> {
        loop {
            for receiving in any.drain(..) {
                let outcome = receiving.wait().map_err(|failed| failed.error);
                if let Some((bytes, status)) = self.judge(None, outcome)? {
                    self.came_from_any(Stream::AnySource, &bytes, status.into())?;
                }
            }
            if self.missing(Stream::AnySource) == 0 {
                return Ok(());
            }
            let receiving = self.world.irecv(Any, Stream::AnySource as u32, vec![0u8; UNKNOWN_MOST as usize]);
            any.extend(self.judge(None, receiving.map_err(|failed| failed.error))?);
        }
    }

    fn message(&mut self, of: Named) -> Vec<u8> {
        let (name, len) = (self.mix.name(of), self.mix.len(of));
        self.sent[of.to as usize].count(name, len);
        patterned(name, len)
    }

    fn over(&self, of: Named) -> &Communicator<L> {
        if of.stream == Stream::Anything { &self.side } else { &self.world }
    }

    /// Begins a send that does not wait.
    fn begin(&mut self, of: Named, way: Way, sends: &mut Sends<L>) -> Result<()> {
        let (bytes, tag) = (self.message(of), self.mix.tag(of));
        let begun = match way {
            Way::OwnedSynchronous => self.over(of).issend(of.to, tag, bytes),
            _ => self.over(of).isend(of.to, tag, bytes),
        };
        let begun = self.judge(Some(of.to), begun.map_err(|failed| failed.error))?;
        sends.extend(begun.map(|sending| (of.to, sending)));
        Ok(())
    }

    /// Sends, in any way.
    fn send(&mut self, of: Named, sends: &mut Sends<L>) -> Result<()> {
        let way = self.mix.way(of);
        if matches!(way, Way::Owned | Way::OwnedSynchronous) {
            return self.begin(of, way, sends);
        }
        let (bytes, tag) = (self.message(of), self.mix.tag(of));
        let sent = match way {
            Way::Scoped => self.world.scope(|scope| scope.isend(of.to, tag, &bytes[..])?.wait()),
            Way::BlockingSynchronous => self.world.ssend(of.to, tag, &bytes[..]),
            _ => self.world.send(of.to, tag, &bytes[..]),
        };
        self.judge(Some(of.to), sent).map(drop)
    }

    /// Receives from one rank by blocking receives, then by probes.
    fn receive_directly(&mut self, from: u32, round: u32) -> Result<()> {
        let own = self.world.rank();
        for stream in [Stream::Blocking, Stream::Probed] {
            for _ in 0..self.mix.count(from, own, stream, round) {
                let of = self.next(from, stream);
                self.received[from as usize].of[stream as usize] += 1;
                let outcome = match stream {
                    Stream::Blocking => self.receive(of),
                    _ => self.look_and_receive(of),
                };
                let Some((bytes, status)) = self.judge(Some(from), outcome)? else { return Ok(()) };
                self.check(of, &bytes, status)?;
            }
        }
        Ok(())
    }

    /// At times into less memory than the message needs.
    fn receive(&self, of: Named) -> std::result::Result<(Vec<u8>, Came), towline::Error> {
        let len = self.mix.len(of);
        let short = if self.mix.choice(of, 8) == 0 { len / 2 } else { len };
        let mut into = vec![0u8; short];
        match self.world.recv(of.from, of.stream as u32, &mut into[..]) {
            Err(towline::Error::Truncated { source, tag, sent, delivered }) if short < len => {
                // As it was to be; what did not fit is not compared.
                let whole = patterned(self.mix.name(of), len);
                let fits = delivered as usize <= short && into[..delivered as usize] == whole[..delivered as usize];
                Ok((if fits { whole } else { into }, Came { source, tag, bytes: sent }))
            }
            other => other.map(|status| (into, status.into())),
        }
    }

    fn look_and_receive(&self, of: Named) -> std::result::Result<(Vec<u8>, Came), towline::Error> {
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
                self.alive(from)?;
            },
            3 => loop {
                if let Some(message) = world.improbe(from, tag)? {
                    break message;
                }
                self.alive(from)?;
            },
            _ => world.mprobe(from, tag)?,
        };
        let mut into = vec![0u8; taken.envelope().bytes as usize];
        taken.recv(&mut into[..]).map(|status| (into, status.into()))
    }

    /// What does not wait is not told of a death.
    fn alive(&self, rank: u32) -> std::result::Result<(), towline::Error> {
        std::thread::yield_now();
        if self.world.lost().contains(&rank) { Err(towline::Error::PeerFailed { rank }) } else { Ok(()) }
    }

    /// Receives what comes in the communicator of its own, whatever and from whomever.
    fn receive_anything(&mut self) -> Result<()> {
        while self.missing(Stream::Anything) != 0 {
            let outcome = self.side.recv_vec::<u8>(Any, Any);
            if let Some((bytes, status)) = self.judge(None, outcome)? {
                self.came_from_any(Stream::Anything, &bytes, status.into())?;
            }
        }
        Ok(())
    }

    fn came_from_any(&mut self, stream: Stream, bytes: &[u8], came: Came) -> Result<()> {
        if came.source >= self.mix.ranks || came.source == self.world.rank() {
            return Err(format!("a message from rank {}", came.source).into());
        }
        let mut of = self.next(came.source, stream);
        // Of a rank that died, a message that was on its way is lost, and one behind it may be here.
        while self.dead && Some(of.from) == self.victim && !self.is(of, bytes, came) && of.index < self.sent_by(of) {
            of.index += 1;
        }
        self.received[came.source as usize].of[stream as usize] = of.index + 1;
        self.check(of, bytes, came)
    }

    /// How many messages of a stream are sent in all.
    fn sent_by(&self, of: Named) -> u64 {
        (0..self.mix.rounds).map(|round| self.mix.count(of.from, of.to, of.stream, round)).sum()
    }

    fn is(&self, of: Named, bytes: &[u8], came: Came) -> bool {
        let len = self.mix.len(of);
        came == Came { source: of.from, tag: self.mix.tag(of), bytes: len as u64 }
            && bytes.get(..len) == Some(&patterned(self.mix.name(of), len)[..])
    }

    /// Whether this is the message that had to come next, whole.
    fn check(&mut self, of: Named, bytes: &[u8], came: Came) -> Result<()> {
        let (name, len, tag) = (self.mix.name(of), self.mix.len(of), self.mix.tag(of));
        if came != (Came { source: of.from, tag, bytes: len as u64 }) {
            return Err(format!("{of:?} with tag {tag} and {len} bytes was to come, and {came:?} came").into());
        }
        // A buffer may be longer than what it received.
        let whole = patterned(name, len);
        if bytes.get(..len) != Some(&whole[..]) {
            let wrong = whole.iter().zip(bytes).position(|(one, other)| one != other);
            return Err(format!("{of:?}, {len} bytes: byte {wrong:?} is wrong").into());
        }
        self.received[of.from as usize].count(name, len);
        Ok(())
    }

    /// What all do together.
    fn together(&mut self, round: u32) -> Result<()> {
        self.world.barrier()?;
        let mut dice = self.mix.dice([8, round, 0, 0, 0]);
        let (root, name, len) = (dice.below(self.mix.ranks.into()) as u32, dice.word(), dice.length(UNKNOWN_MOST));
        let whole = patterned(name, len as usize);
        let mut bytes = if self.world.rank() == root { whole.clone() } else { vec![0; len as usize] };
        self.world.broadcast(root, &mut bytes[..])?;
        if bytes != whole {
            return Err(format!("a broadcast of {len} bytes by rank {root} is wrong").into());
        }
        Ok(())
    }

    /// All has come: nothing more may, and nothing is left behind.
    fn end(mut self) -> Result<()> {
        self.or_end_all(Self::check_end, "at the end");
        let own = self.world.rank();
        let Self { side, shared, world, dead, .. } = self;
        drop((side, shared));
        match world.finish() {
            Ok(()) => {}
            // Not all can come to the end together.
            Err(towline::SetupError::Finish { .. }) if dead => {}
            Err(why) => return Err(why.into()),
        }
        say(format!("over {own}"));
        Ok(())
    }

    fn check_end(&mut self) -> Result<()> {
        self.check_messages()?;
        match self.victim {
            Some(dead) if self.dead => self.look_for_leaks(dead)?,
            // Of the life that is over.
            _ if self.life > 1 => self.look_for_leaks(u32::MAX)?,
            _ => {}
        }
        let (own, counters) = (self.world.rank(), self.world.counters());
        say(format!(
            "links {own} {} {} {} {}",
            counters.links_down, counters.links_up, counters.frames_migrated, counters.duplicates
        ));
        Ok(())
    }

    /// All has come that was sent, and no more.
    fn check_messages(&mut self) -> Result<()> {
        let own = self.world.rank();
        let late = std::mem::take(&mut self.late);
        self.end_sends(late)?;
        for of in self.others().chain([own]).collect::<Vec<_>>() {
            let outcome = self.shared.end(of);
            self.judge_memory(of, outcome)?;
        }
        self.say_to_all(LAST)?;
        let outcome = self.shared.check(&self.others().chain([own]).collect::<Vec<_>>());
        self.judge_memory(own, outcome)?;
        say(format!("shared {own} {}", self.shared.operations));
        for other in self.others().collect::<Vec<_>>() {
            for (over, name) in [(&*self.world, "world"), (&self.side, "side")] {
                // Who knows of a death earlier is further.
                if let Some(more) = over.iprobe(other, Any)?.filter(|more| more.tag != LOOKED) {
                    return Err(format!("one more in {name} than were sent: {more:?}").into());
                }
            }
        }
        let lost = self.world.lost();
        if lost != self.victim.filter(|_| self.dead).into_iter().collect::<Vec<_>>() {
            return Err(format!("ranks {lost:?} are said to be lost").into());
        }
        for other in self.others() {
            for (word, tally) in [("sent", self.sent[other as usize]), ("received", self.received[other as usize])] {
                let Tally { messages, bytes, hash, .. } = tally;
                say(format!("{word} {own} {other} {messages} {bytes} {hash:x} {}", self.life));
            }
        }
        Ok(())
    }

    /// Exchanges a word with each of those who are left.
    fn say_to_all(&mut self, tag: u32) -> Result<()> {
        let own = self.world.rank().to_le_bytes();
        for other in self.others().collect::<Vec<_>>() {
            let mut word = [0; size_of::<u32>()];
            let met = self.world.sendrecv(&own, other, tag, &mut word, other, tag);
            if self.judge(Some(other), met.map(|_| ()))?.is_some() && word != other.to_le_bytes() {
                return Err(format!("rank {other} said {word:?} last").into());
            }
        }
        Ok(())
    }

    /// Nothing that was the dead rank's is held any more. Nobody goes on before all have looked: what those hold for each
    /// other is known.
    fn look_for_leaks(&mut self, dead: u32) -> Result<()> {
        let (since, others) = (Instant::now(), self.others().count());
        while let Some(left) = Held::now().unreleased(dead, others, self.links.into(), self.rest) {
            if since.elapsed() >= RELEASED_WITHIN {
                return Err(format!("not released after a death: {left}").into());
            }
            self.world.iprobe(self.world.rank(), NEVER)?;
            std::thread::yield_now();
        }
        self.say_to_all(LOOKED)
    }
}

/// What is said of a message that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Came {
    source: u32,
    tag: u32,
    bytes: u64,
}

impl From<Status> for Came {
    fn from(status: Status) -> Self {
        Self { source: status.source, tag: status.tag, bytes: status.bytes }
    }
}
