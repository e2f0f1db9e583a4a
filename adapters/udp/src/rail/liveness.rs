//! What hosts say of their processes: that a port is closed, and that the host itself is there.
//!
//! A report that a port is closed (ICMP) is a hint and no more: whoever can send raw datagrams can make one up, and a firewall
//! may refuse for a moment what it lets pass later. So it brings the peer into doubt, and is looked into: the link asks the peer
//! ([`Event::Silent`]), and the port is sent a random word again and again. Only a report that has that word counts, as then the
//! word was on its way to that host; and only if so many have come one after the other, for some time, and nothing meanwhile that
//! the peer has proved, is the peer gone.
//!
//! Whether a host is there, though a peer's process is stopped, is asked by a connection to a port where nobody listens: its
//! kernel refuses it, with the number that was asked, which nobody can make up who has not seen it; and other than reports of
//! closed ports, of which a kernel sends one a second to each address, refusals are not rationed. One socket for such a connection
//! is kept from the beginning: a process that has no descriptor left can ask still, one host after the other.

use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use towline_core::rail::{Event, Lost};
use towline_core::time::{Duration, Instant};

use crate::rail::peer::{Known, Way};
use crate::rail::receive::PATIENCE;
use crate::rail::{Rail, draw};
use crate::system::socket as sys;

/// Reports of failure that are taken at a time.
const REPORTS: usize = 32;
/// Between two words to a port that may be closed.
const GAP: Duration = Duration::from_millis(100);
/// So many words have to be refused, while nothing comes that is proved,
const REFUSALS: u8 = 3;
/// and for so long.
const PERSISTS: Duration = Duration::from_millis(400);
/// After so long without another refusal there is no doubt any more. Some hosts report one a second.
const DOUBT: Duration = Duration::from_millis(3000);
/// A port at which no host listens: that of a service which nobody offers any more.
const NOBODYS_PORT: u16 = 1;
/// Between two questions to a host.
const QUESTIONS: Duration = Duration::from_millis(250);
/// After so long a question is given up, as it may have been lost.
const ANSWERS: Duration = Duration::from_millis(1000);
/// The same for one that keeps others waiting.
const ANSWERS_IN_TURN: Duration = Duration::from_millis(250);

/// A word that tells reports of what was sent from others.
type Word = [u8; 16];

/// A port that is reported closed, of a peer that there is a session with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    word: Word,
    /// The next word goes at this time.
    next: Instant,
    until: Instant,
    /// One was sent of which no report has come.
    asked: bool,
    /// Reports since something proved came, and when the first was.
    refused: u8,
    since: Instant,
}

impl Doubt {
    fn new(word: Word, now: Instant) -> Self {
        Self { word, next: now, until: now + DOUBT, asked: false, refused: 0, since: now }
    }

    /// Something proved has come.
    pub(crate) const fn refuted(&mut self) {
        self.refused = 0;
    }

    /// A report of a datagram that began so. Whether the peer is gone.
    fn reported(&mut self, quoted: &[u8], now: Instant) -> bool {
        if !self.asked || !quoted.starts_with(&self.word) {
            return false;
        }
        if self.refused == 0 {
            self.since = now;
        }
        (self.asked, self.until) = (false, now + DOUBT);
        self.refused = self.refused.saturating_add(1);
        self.refused >= REFUSALS && self.since + PERSISTS <= now
    }
}

/// A host that is asked whether it is there.
#[derive(Debug)]
pub(crate) struct Host {
    at: SocketAddr,
    /// The question that is under way.
    question: Option<Question>,
    /// When the latest was asked.
    asked: Option<Instant>,
    /// When the latest that was answered was asked: at that time, or later, the host was there.
    there: Option<Instant>,
}

/// How a host is asked.
#[derive(Debug)]
enum Question {
    /// By a socket of its own.
    Own(Socket),
    /// By the one that is kept for who finds no other.
    Kept,
}

/// The socket that is kept for questions.
#[derive(Debug)]
pub(crate) struct Kept {
    socket: Socket,
    taken: bool,
}

impl Kept {
    /// # Errors
    /// There is no descriptor for it.
    pub(crate) fn new(from: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { socket: open(from)?, taken: false })
    }

    /// As if it had never been used.
    fn give_back(&mut self) {
        self.taken = false;
        if let Err(why) = sys::disconnect(&self.socket) {
            log::debug!("udp: the kept socket is still connected: {why}");
        }
    }
}

impl Host {
    /// Looks for an answer, and asks anew.
    fn ask(&mut self, from: SocketAddr, kept: &mut Kept, now: Instant) {
        self.look(kept);
        let asked = self.asked.map(|asked| now.since(asked));
        let least = match self.question {
            None => QUESTIONS,
            Some(Question::Own(_)) => ANSWERS,
            Some(Question::Kept) => ANSWERS_IN_TURN,
        };
        if asked.is_some_and(|since| since < least) {
            return;
        }
        let in_turn = matches!(self.question, Some(Question::Kept));
        self.stop(kept);
        if in_turn {
            return; // first the others
        }
        self.question = match open(from) {
            Ok(socket) => Some(Question::Own(socket)),
            Err(_) if !kept.taken => {
                kept.taken = true;
                Some(Question::Kept)
            }
            Err(why) => return log::debug!("udp: {} is asked later: {why}", self.at),
        };
        self.asked = Some(now);
        self.look(kept); // begins the connection
        self.look(kept); // on the same host it is refused at once
    }

    fn look(&mut self, kept: &mut Kept) {
        let socket = match &self.question {
            None => return,
            Some(Question::Own(socket)) => socket,
            Some(Question::Kept) => &kept.socket,
        };
        let there = match socket.connect(&self.at.into()).map_err(|why| why.raw_os_error()) {
            Err(Some(libc::EINPROGRESS | libc::EALREADY | libc::EAGAIN | libc::EINTR)) => return,
            Ok(()) | Err(Some(libc::EISCONN | libc::ECONNREFUSED | libc::ECONNRESET)) => true,
            Err(_) => false,
        };
        self.stop(kept);
        if there {
            self.there = self.asked;
        }
    }

    fn stop(&mut self, kept: &mut Kept) {
        if let Some(Question::Kept) = self.question.take() {
            kept.give_back();
        }
    }
}

/// For a connection that is to be refused.
fn open(from: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(from), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.bind(&SocketAddr::new(from.ip(), 0).into())?;
    Ok(socket)
}

impl Known {
    /// Where its host is asked.
    fn host(&self) -> Option<SocketAddr> {
        let mut at = self.remote.as_ref()?.as_socket()?;
        at.set_port(NOBODYS_PORT);
        Some(at)
    }
}

impl Rail {
    /// Takes what the kernel has heard of datagrams that failed; whether there was anything.
    #[cold]
    pub(crate) fn hear_reports(&mut self) -> bool {
        for taken in 0..REPORTS {
            let Some(report) = sys::report(&self.socket) else { return taken != 0 };
            if report.told && report.number == libc::ECONNREFUSED as u32 {
                report.to.into_iter().for_each(|to| self.reported_closed(to, report.quoted()));
            } else {
                log::debug!("udp: {:?}: {}", report.to, std::io::Error::from_raw_os_error(report.number as i32));
            }
        }
        true
    }

    /// A port is said to be closed, by the report of a datagram that began so: perhaps who was there is gone.
    fn reported_closed(&mut self, at: SocketAddr, quoted: &[u8]) {
        self.counters.refused += 1;
        let now = self.now;
        for endpoint in 0..self.peers.len() as u32 {
            let Some(known) = self.peers.get_mut(endpoint) else { continue };
            match known.way {
                Way::Up if known.remote.as_ref().and_then(SockAddr::as_socket) == Some(at) => match &mut known.doubt {
                    None => self.doubt(endpoint),
                    Some(doubt) => {
                        if doubt.reported(quoted, now) {
                            known.way = Way::Closing;
                            if !self.closing.contains(&endpoint) {
                                self.closing.push(endpoint);
                            }
                            self.closing_patience = PATIENCE;
                        }
                    }
                },
                Way::Calling(_) if known.meeting.has_said(quoted) => {
                    let mut closed = known.closed;
                    (0..32).zip(&known.candidates).filter(|(_, it)| **it == at).for_each(|(bit, _)| closed |= 1 << bit);
                    known.closed = closed;
                    if closed.count_ones() as usize >= known.candidates.len().min(32) {
                        self.lose(endpoint, Lost::Broken);
                    }
                }
                _ => {}
            }
        }
    }

    fn doubt(&mut self, endpoint: u32) {
        let mut word = Word::default();
        if draw(&mut word).is_ok()
            && let Some(known) = self.peers.get_mut(endpoint)
        {
            known.doubt = Some(Doubt::new(word, self.now));
            self.doubted.push(endpoint);
            self.next_question = Some(self.now);
        }
    }

    /// Asks those whose ports may be closed.
    #[cold]
    pub(crate) fn ask_doubted(&mut self) {
        let (now, mut at) = (self.now, 0);
        self.next_question = None;
        while let Some(endpoint) = self.doubted.get(at).copied() {
            let known = self.peers.get_mut(endpoint).filter(|known| matches!(known.way, Way::Up | Way::Closing));
            let doubt = known.and_then(|known| {
                known.doubt = known.doubt.filter(|doubt| now < doubt.until);
                Some((known.peer, known.remote.clone()?, known.doubt.as_mut()?))
            });
            let Some((peer, remote, doubt)) = doubt else {
                self.doubted.swap_remove(at);
                continue;
            };
            let word = doubt.word;
            let due = doubt.next <= now;
            if due {
                (doubt.next, doubt.asked) = (now + GAP, true);
            }
            let next = doubt.next;
            self.next_question = Some(self.next_question.map_or(next, |other| other.min(next)));
            at += 1;
            if due {
                if !self.events.iter().any(|(of, _)| *of == endpoint) {
                    self.events.push_back((endpoint, Event::Silent(peer, None))); // so that the peer itself is asked
                }
                self.send_alone(&word, &remote);
            }
        }
        self.hear_reports(); // within a host they are here already
    }

    /// A question about a peer that is forgotten leaves no descriptor. Who else is silent there asks anew.
    pub(crate) fn stop_asking(&mut self, endpoint: u32) {
        let at = self.peers.get(endpoint).and_then(Known::host);
        let kept = &mut self.kept;
        self.hosts.iter_mut().filter(|host| Some(host.at) == at).for_each(|host| host.stop(kept));
    }

    /// Asks the host of a peer whether it is there; tells when it last said so, whatever the peer's process does. The host of an
    /// address that passes on what it gets is another one.
    #[cold]
    pub(crate) fn knock(&mut self, endpoint: u32) -> Option<Instant> {
        let from = self.address();
        let known = self.peers.get(endpoint).filter(|known| !known.forwarded)?;
        let at = known.host()?;
        let place = self.hosts.iter().position(|host| host.at == at).unwrap_or_else(|| {
            self.hosts.push(Host { at, question: None, asked: None, there: None });
            self.hosts.len() - 1
        });
        let host = self.hosts.get_mut(place)?;
        host.ask(from, &mut self.kept, self.now);
        host.there
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::{Endpoint, Lane, Peer, Rail as _, Shape};
    use towline_net::JobKey;

    use super::*;
    use crate::Config;

    /// Two rails in virtual time, which have met.
    struct Pair {
        rails: [Rail; 2],
        to: [Endpoint; 2],
        now: Instant,
        /// Frames that came, questions to the link, losses: of each.
        frames: [u32; 2],
        silent: [u32; 2],
        lost: [u32; 2],
    }

    impl Pair {
        fn met() -> Self {
            let mut rails = [0, 1].map(|rank| {
                let mut config = Config::new(1, rank, JobKey::new([9; 32]));
                (config.within_host, config.idle_interval_polls) = (true, 1);
                Rail::new(config).unwrap()
            });
            let cards = rails.each_ref().map(|rail| rail.card().to_vec());
            let to = [0, 1].map(|own: usize| rails[own].add_peer(Peer(7), &cards[1 - own]).unwrap());
            let [frames, silent, lost] = [[0; 2]; 3];
            let mut pair = Self { rails, to, now: Instant::from_nanos(1), frames, silent, lost };
            while pair.frames != [1, 1] {
                for own in 0..2 {
                    if pair.frames[1 - own] == 0 {
                        pair.send(own);
                    }
                }
                pair.pass(1);
            }
            pair
        }

        fn send(&mut self, from: usize) {
            let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 4, len: 4 };
            let Ok(mut grant) = self.rails[from].reserve(self.to[from], shape) else { return };
            grant.write(0, b"data");
            let ticket = grant.finish();
            self.rails[from].commit(ticket);
        }

        /// Lets so many milliseconds pass, in steps of 10.
        fn pass(&mut self, millis: u64) {
            for _ in 0..millis.div_ceil(10) {
                self.now = self.now + Duration::from_millis(millis.min(10));
                (0..2).for_each(|own| self.poll(own));
            }
        }

        fn poll(&mut self, own: usize) {
            for _ in 0..8 {
                match self.rails[own].poll(self.now) {
                    Some(Event::Frame(_)) => self.frames[own] += 1,
                    Some(Event::Silent(..)) => self.silent[own] += 1,
                    Some(Event::Lost(..)) => self.lost[own] += 1,
                    _ => {}
                }
            }
        }

        /// The process of rank 1 is gone, and its socket with it.
        fn kill(&mut self) {
            self.rails[1].socket = sys::open("127.0.0.1:0".parse().unwrap()).unwrap();
        }

        /// Somebody has rank 0's kernel report that rank 1's port is closed.
        fn forge(&mut self, quoted: &[u8]) {
            let at = self.rails[1].address();
            self.rails[0].reported_closed(at, quoted);
        }
    }

    #[test]
    fn p7_reports_that_anybody_can_make_up_lose_nobody() {
        let mut pair = Pair::met();
        for _ in 0..60 {
            pair.forge(&[0; 64]);
            pair.pass(100);
        }
        assert_eq!(pair.lost, [0, 0]);
        assert!(pair.silent[0] > 50, "the link was to ask");
        pair.send(0);
        pair.pass(10);
        assert_eq!(pair.frames[1], 2);
        // They end with the doubt.
        pair.pass(5000);
        let silent = pair.silent[0];
        pair.pass(5000);
        assert_eq!((pair.silent[0], pair.rails[0].doubted.len()), (silent, 0));
    }

    /// One who sees all that is sent cannot make a peer look dead that is heard.
    #[test]
    fn p7_a_peer_that_is_heard_is_not_lost_for_any_report() {
        let mut pair = Pair::met();
        pair.forge(&[]);
        for _ in 0..50 {
            pair.pass(100);
            let word = pair.rails[0].peers.get(0).unwrap().doubt.unwrap().word;
            pair.forge(&word);
            if pair.rails[0].closing.is_empty() {
                pair.send(1);
            }
        }
        pair.pass(10);
        assert_eq!((pair.lost, pair.frames[0]), ([0, 0], 51));
    }

    #[test]
    fn p7_a_killed_peer_is_lost_soon_after_what_it_had_sent() {
        let mut pair = Pair::met();
        pair.pass(2000);
        pair.send(1);
        pair.poll(1);
        pair.kill();
        pair.send(0);
        let killed = pair.now;
        while pair.lost[0] == 0 {
            pair.pass(1);
            assert!(pair.now.since(killed) < Duration::from_millis(1000), "soon");
        }
        assert_eq!(pair.frames[0], 2);
    }

    /// Nobody has to answer for a host but its kernel; and for an address that passes on, that says nothing.
    #[test]
    fn p7_a_host_answers_for_a_rank_that_is_stopped() {
        let mut pair = Pair::met();
        let asked = pair.now;
        assert!(pair.rails[0].knock(0).is_some_and(|there| there == asked), "at once, within a host");
        pair.now = asked + QUESTIONS;
        pair.rails[0].now = pair.now;
        assert_eq!(pair.rails[0].knock(0), Some(pair.now), "asked again");
        pair.rails[0].peers.get_mut(0).unwrap().forwarded = true;
        assert_eq!(pair.rails[0].knock(0), None);
    }

    #[test]
    fn p7_what_is_forgotten_leaves_no_question() {
        let mut pair = Pair::met();
        assert!(pair.rails[0].knock(0).is_some());
        let nobodys = open("127.0.0.1:0".parse().unwrap()).unwrap();
        pair.rails[0].hosts[0].question = Some(Question::Own(nobodys));
        let to = pair.to[0];
        pair.rails[0].del_peer(to);
        assert!(pair.rails[0].hosts[0].question.is_none());
    }

    /// An address that no answer comes from: of a listener whose queue is full, so that the kernel drops what else arrives.
    struct Gone {
        listener: Socket,
        _queue: Vec<Socket>,
    }

    impl Gone {
        fn new() -> Self {
            let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let listener = open(loopback).unwrap();
            listener.listen(0).unwrap();
            let at = listener.local_addr().unwrap();
            let caller = |_| {
                let socket = open(loopback).unwrap();
                let under_way = socket.connect(&at).unwrap_err();
                assert_eq!(under_way.raw_os_error(), Some(libc::EINPROGRESS));
                socket
            };
            Self { listener, _queue: (0..4).map(caller).collect() }
        }

        fn at(&self) -> SocketAddr {
            self.listener.local_addr().unwrap().as_socket().unwrap()
        }
    }

    /// Where nothing comes, questions are given up and asked again.
    #[test]
    fn p7_a_host_that_is_gone_does_not_answer() {
        let gone = Gone::new();
        let at = gone.at();
        let mut host = Host { at, question: None, asked: None, there: None };
        let from = "0.0.0.0:0".parse().unwrap();
        let mut kept = Kept::new(from).unwrap();
        for second in 1..5 {
            host.ask(from, &mut kept, Instant::from_nanos(second * 1_000_000_000));
            assert_eq!(host.there, None);
        }
    }

    /// The kept socket goes round, whatever became of the question before: refused, answered, or neither.
    #[test]
    fn p1_p7_hosts_are_asked_one_after_the_other_by_the_socket_that_is_kept() {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let mut kept = Kept::new(loopback).unwrap();
        let somebody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = "127.0.0.1:1".parse().unwrap();
        let mut hosts = [closed, somebody.local_addr().unwrap(), closed].map(|at| Host {
            at,
            question: None,
            asked: None,
            there: None,
        });
        // No socket can be opened at an address that is not this host's.
        let nowhere = "203.0.113.1:0".parse().unwrap();
        for round in 1..5 {
            let now = Instant::from_nanos(round * 1_000_000_000);
            for host in &mut hosts {
                host.ask(nowhere, &mut kept, now);
                assert_eq!((host.there, kept.taken), (Some(now), false), "{}", host.at);
            }
        }
        // Who keeps it gives it back in time, and comes after the others then.
        let [first, second, _] = &mut hosts;
        let at = |millis: u64| Instant::from_nanos(10_000_000_000 + millis * 1_000_000);
        (kept.taken, first.question, first.asked) = (true, Some(Question::Kept), Some(at(0)));
        let gone = Gone::new();
        first.at = gone.at();
        second.ask(nowhere, &mut kept, at(100));
        assert!(second.there < Some(at(0)), "it is not its turn");
        first.ask(nowhere, &mut kept, at(250));
        second.ask(nowhere, &mut kept, at(250));
        assert_eq!((second.there, kept.taken), (Some(at(250)), false));
    }
}
