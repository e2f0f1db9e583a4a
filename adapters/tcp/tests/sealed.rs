//! Encrypted connections, with somebody on the way who reads along, changes, leaves out and repeats.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use common::*;
use towline_core::btl::{Endpoint, Event, Lost, Peer, Rail as _};
use towline_net::card::Card;
use towline_tcp::hello::{HELLO, PROOF, VERDICT};
use towline_tcp::{Encrypt, Rail};

/// What is said before the first record: by the initiator, and by the acceptor.
const BEFORE: [usize; 2] = [HELLO + PROOF, HELLO + PROOF + VERDICT];

fn sealing(rank: u32, encrypt: Encrypt) -> Rail {
    let mut config = config(rank);
    config.encrypt = encrypt;
    Rail::new(config).expect("this host has a loopback")
}

/// Rail 0 reaches rail 1 by a relay, which a test plays.
struct Tapped {
    world: World,
    to: Endpoint,
    listener: TcpListener,
    ways: Option<[TcpStream; 2]>,
    /// All that came from rail 0, and from rail 1.
    heard: [Vec<u8>; 2],
}

impl Tapped {
    fn new(settings: [Encrypt; 2]) -> Self {
        Self::between([sealing(0, settings[0]), sealing(1, settings[1])])
    }

    fn between(rails: [Rail; 2]) -> Self {
        let mut rails = Vec::from(rails);
        // Beside rail 1, as a forwarder on its host is: it is called from its own address.
        let listener = TcpListener::bind((address(&rails[1]).ip(), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut there = Card::decode(rails[1].card()).unwrap();
        there.addresses.truncate(1);
        there.addresses[0].port = listener.local_addr().unwrap().port();
        let own = rails[0].card().to_vec();
        rails[1].add_peer(Peer(0), &own).unwrap();
        let to = rails[0].add_peer(Peer(1), &there.encode()).unwrap();
        Self { world: World::new(rails), to, listener, ways: None, heard: [vec![], vec![]] }
    }

    /// Takes what came from rail `from`, without passing it on.
    fn hear(&mut self, from: usize) -> Vec<u8> {
        if self.ways.is_none()
            && let Ok((one, _)) = self.listener.accept()
        {
            let ways = [one, TcpStream::connect(address(&self.world.rails[1])).unwrap()];
            ways.iter().for_each(|way| way.set_nonblocking(true).unwrap());
            self.ways = Some(ways);
        }
        let Some(ways) = &mut self.ways else { return vec![] };
        let mut bytes = vec![0; 1 << 20];
        let count = ways[from].read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        self.heard[from].extend_from_slice(&bytes);
        bytes
    }

    fn pass(&mut self, from: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.ways.as_mut().unwrap()[1 - from].write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.world.round(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn relay(&mut self) {
        for from in 0..2 {
            let bytes = self.hear(from);
            self.pass(from, &bytes);
        }
        self.world.round();
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if done(self) {
                return;
            }
            self.relay();
        }
        panic!("waited in vain: {what}; seen {:?}, {:?}", self.world.seen, self.world.rails[1].counters());
    }

    /// Sends a frame from rail 0, while all is relayed.
    fn send(&mut self, bytes: &[u8]) {
        for _ in 0..20_000 {
            if try_send(&mut self.world.rails[0], self.to, bytes).expect("reachable") {
                return;
            }
            self.relay();
        }
        panic!("no room");
    }

    /// Both ends have met, and one message has come.
    fn met(settings: [Encrypt; 2]) -> Self {
        let mut tapped = Self::new(settings);
        tapped.meet();
        tapped
    }

    fn meet(&mut self) {
        self.send(b"first");
        self.until("the first", |it| !it.world.seen[1].is_empty());
    }

    /// The records of one message, which the relay keeps.
    fn caught(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        let mut caught = vec![];
        for _ in 0..20 {
            caught.extend(self.hear(0));
            self.world.poll(0);
        }
        assert!(caught.len() > message.len());
        caught
    }

    /// Rail 1 gives the connection up, and counts why; nothing of what was sent after the change is told.
    fn refuses(&mut self, why: Lost, counts: impl Fn(&towline_tcp::Counters) -> u64) {
        self.until("the end", |it| it.world.seen[1].contains(&Seen::Lost(Peer(0), why)));
        assert_eq!(counts(self.world.rails[1].counters()), 1, "{:?}", self.world.rails[1].counters());
        assert_eq!(self.world.seen[1].len(), 2, "{:?}", self.world.seen[1]);
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn who_reads_along_sees_nothing_of_what_is_said() {
    let message: Vec<u8> = (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (encrypt, seen) in [(Encrypt::Always, false), (Encrypt::Off, true), (Encrypt::BetweenHosts, true)] {
        let mut tapped = Tapped::met([encrypt; 2]);
        tapped.send(&message);
        tapped.until("the message", |it| it.world.seen[1].len() == 2);
        assert_eq!(tapped.world.seen[1][1], Seen::Frame(Peer(0), message.clone()), "{encrypt}");
        let said = &tapped.heard[0][BEFORE[0]..];
        assert!(said.len() >= message.len());
        let parts = message.chunks(16).filter(|part| contains(said, part)).count();
        assert_eq!(parts > 3000, seen, "{encrypt}: {parts} parts of the message are to be seen");
        assert_eq!(contains(said, b"first"), seen, "{encrypt}");
    }
}

/// Two connections under one key, and the same message twice on one, look different each time.
#[test]
fn the_same_message_never_looks_the_same() {
    let mut seen: Vec<Vec<u8>> = vec![];
    for _ in 0..2 {
        let mut tapped = Tapped::met([Encrypt::Always; 2]);
        for _ in 0..2 {
            let caught = tapped.caught(&[7; 300]);
            tapped.pass(0, &caught);
            assert!(!seen.contains(&caught));
            seen.push(caught);
        }
    }
}

#[test]
fn a_changed_bit_ends_the_connection_wherever_it_is() {
    for bit in (0..26 * 8).step_by(5).chain([300 * 8, 320 * 8]) {
        let mut tapped = Tapped::met([Encrypt::Always; 2]);
        let mut caught = tapped.caught(&[7; 300]);
        caught[bit / 8] ^= 1 << (bit % 8);
        // Of a record that is said to be longer more is awaited, which then does not fit.
        caught.extend_from_slice(&[0xEE; 40_000]);
        tapped.pass(0, &caught);
        tapped.refuses(Lost::Misbehaved, |counters| counters.records_refused);
    }
}

#[test]
fn what_is_sent_again_or_left_out_or_in_another_order_ends_the_connection() {
    for what in ["again", "left out", "other order"] {
        let mut tapped = Tapped::met([Encrypt::Always; 2]);
        let [one, two] = [tapped.caught(&[1; 40]), tapped.caught(&[2; 40])];
        let said = match what {
            "again" => tapped.heard[0][BEFORE[0]..tapped.heard[0].len() - one.len() - two.len()].to_vec(),
            "left out" => two,
            _ => [two, one].concat(),
        };
        tapped.pass(0, &said);
        tapped.refuses(Lost::Misbehaved, |counters| counters.records_refused);
    }
}

#[test]
fn a_stream_that_is_cut_is_an_accident() {
    for cut in [1, 2, 3, 100] {
        let mut tapped = Tapped::met([Encrypt::Always; 2]);
        let caught = tapped.caught(&[7; 300]);
        tapped.pass(0, &caught[..cut]);
        tapped.ways.as_ref().unwrap()[1].shutdown(std::net::Shutdown::Write).unwrap();
        tapped.refuses(Lost::Broken, |counters| counters.records_cut);
    }
    // Also between two records, where nothing shows it but the missing goodbye.
    let mut tapped = Tapped::met([Encrypt::Always; 2]);
    tapped.ways.as_ref().unwrap()[1].shutdown(std::net::Shutdown::Write).unwrap();
    tapped.refuses(Lost::Broken, |counters| counters.lost);
}

#[test]
fn who_encrypts_and_who_does_not_refuse_each_other_and_say_why() {
    for settings in [[Encrypt::Always, Encrypt::Off], [Encrypt::Off, Encrypt::Always]] {
        let mut tapped = Tapped::new(settings);
        assert!(!try_send(&mut tapped.world.rails[0], tapped.to, b"not yet").unwrap());
        tapped.until("the refusal", |it| it.world.seen[0] == [Seen::Lost(Peer(1), Lost::Broken)]);
        tapped.until("its count", |it| it.world.rails[1].counters().refused_encryption >= 1);
        assert!(tapped.world.rails[0].counters().refused_encryption >= 1);
        assert_eq!(tapped.world.rails[1].counters().established, 0);
        assert!(tapped.world.seen[1].is_empty(), "who was called goes on");
    }
}

/// On one host `between-hosts` is the same as `off`, and these two get on.
#[test]
fn settings_that_come_to_the_same_here_get_on() {
    let tapped = Tapped::met([Encrypt::BetweenHosts, Encrypt::Off]);
    assert_eq!(tapped.world.rails[1].counters().established, 1);
}

/// Behind a frame that is held as much came as the staging buffer takes, and more: that lies in the rail, and the kernel tells
/// nothing of it.
#[test]
fn what_came_behind_a_held_frame_is_not_forgotten() {
    let rails = (0..2).map(|rank| {
        let mut config = config(rank);
        config.encrypt = Encrypt::Always;
        config.direct_connections = 0;
        config.epoll_interval_many_polls = 1;
        config.receive_staging_bytes = 4096;
        (config.eager_limit_bytes, config.max_send_size_bytes) = (4096, 4096);
        Rail::new(config).expect("this host has a loopback")
    });
    let (mut world, to) = World::acquainted(rails.collect());
    world.send(0, to[0][1], b"first");
    world.until("the first", |world| !world.seen[1].is_empty());
    world.seen[1].clear();
    let now = world.now;
    for number in 0..40u8 {
        assert!(try_send(&mut world.rails[0], to[0][1], &[number; 300]).unwrap());
    }
    while !world.rails[0].drained(to[0][1]) {
        world.rails[0].poll(now);
    }
    // All of it is in the rail before the first frame is given back.
    let mut held = None;
    for _ in 0..1000 {
        if let Some(event) = world.rails[1].poll(now) {
            let Event::Frame(frame) = event else { panic!("{event:?}") };
            assert!(held.replace(frame).is_none(), "one at a time");
        }
    }
    let frame = held.expect("the first frame");
    world.rails[1].release(frame.id);
    world.until("the others", |world| world.seen[1].len() == 39);
}

/// The configuration as it is when nobody has set anything, on hosts that are two as far as the rails know. Who is forwarded
/// looks to the second one as if it were on the same.
#[test]
fn by_default_nothing_is_to_be_seen_between_hosts_and_a_forwarder_does_not_matter() {
    let rail = |host: u64, rank: u32| {
        let mut config = config(rank);
        config.filter.include = vec!["0.0.0.0/0".into()];
        config.filter.exclude = Some(vec!["lo".into()]);
        config.host = Some(host);
        Rail::new(config)
    };
    let (Ok(one), Ok(other)) = (rail(1, 0), rail(2, 1)) else {
        eprintln!("skipped: only the loopback is here");
        return;
    };
    for (rails, seen) in [([one, other], false), ([rail(1, 0).unwrap(), rail(1, 1).unwrap()], true)] {
        let mut tapped = Tapped::between(rails);
        tapped.meet();
        assert_eq!(contains(&tapped.heard[0], b"first"), seen);
        assert_eq!(tapped.world.rails[1].counters().refused_encryption, 0);
    }
}
