//! Encrypted connections, with a man in the middle who reads, changes, drops and repeats what is sent.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use common::*;
use towline_core::rail::{Endpoint, Event, Lost, Peer, Rail as _};
use towline_net::card::Card;
use towline_tcp::hello::{HELLO, PROOF, VERDICT};
use towline_tcp::{Encrypt, Rail};

/// Bytes before the first record: of the initiator, and of the acceptor.
const HANDSHAKE: [usize; 2] = [HELLO + PROOF, HELLO + PROOF + VERDICT];

fn encrypting_rail(rank: u32, encrypt: Encrypt) -> Rail {
    let mut config = config(rank);
    config.encrypt = encrypt;
    Rail::new(config).expect("this host has a loopback")
}

/// Rail 0 reaches rail 1 through a relay that the test controls.
struct Relayed {
    world: World,
    to: Endpoint,
    listener: TcpListener,
    streams: Option<[TcpStream; 2]>,
    /// All bytes that came from rail 0, and from rail 1.
    recorded: [Vec<u8>; 2],
}

impl Relayed {
    fn new(settings: [Encrypt; 2]) -> Self {
        Self::between([encrypting_rail(0, settings[0]), encrypting_rail(1, settings[1])])
    }

    fn between(rails: [Rail; 2]) -> Self {
        let mut rails = Vec::from(rails);
        // The relay listens at the address of rail 1, as a forwarder on that host would.
        let listener = TcpListener::bind((address(&rails[1]).ip(), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut there = Card::decode(rails[1].card()).unwrap();
        there.addresses.truncate(1);
        there.addresses[0].port = listener.local_addr().unwrap().port();
        let own = rails[0].card().to_vec();
        rails[1].add_peer(Peer(0), &own).unwrap();
        let to = rails[0].add_peer(Peer(1), &there.encode()).unwrap();
        Self { world: World::new(rails), to, listener, streams: None, recorded: [vec![], vec![]] }
    }

    /// Takes the bytes that came from rail `from`, without passing them on.
    fn take(&mut self, from: usize) -> Vec<u8> {
        if self.streams.is_none()
            && let Ok((one, _)) = self.listener.accept()
        {
            let streams = [one, TcpStream::connect(address(&self.world.rails[1])).unwrap()];
            streams.iter().for_each(|it| it.set_nonblocking(true).unwrap());
            self.streams = Some(streams);
        }
        let Some(streams) = &mut self.streams else { return vec![] };
        let mut bytes = vec![0; 1 << 20];
        let count = streams[from].read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        self.recorded[from].extend_from_slice(&bytes);
        bytes
    }

    fn pass(&mut self, from: usize, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.streams.as_mut().unwrap()[1 - from].write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => self.world.round(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn relay(&mut self) {
        for from in 0..2 {
            let bytes = self.take(from);
            self.pass(from, &bytes);
        }
        self.world.round();
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = Limit::new();
        while !done(self) {
            self.relay();
            let counters = self.world.rails[1].counters();
            limit.check(format_args!("{what}; observed {:?}, {counters:?}", self.world.observed));
        }
    }

    /// Sends a frame from rail 0, while everything is relayed.
    fn send(&mut self, bytes: &[u8]) {
        let limit = Limit::new();
        while !try_send(&mut self.world.rails[0], self.to, bytes).expect("reachable") {
            self.relay();
            limit.check(format_args!("room for a frame"));
        }
    }

    /// A pair that is connected, where one frame has arrived.
    fn connected(settings: [Encrypt; 2]) -> Self {
        let mut relayed = Self::new(settings);
        relayed.connect();
        relayed
    }

    fn connect(&mut self) {
        self.send(b"first");
        self.until("the first frame", |it| !it.world.observed[1].is_empty());
    }

    /// The records of one message, which the relay does not pass on.
    fn intercept(&mut self, message: &[u8]) -> Vec<u8> {
        self.send(message);
        let mut records = vec![];
        let limit = Limit::new();
        while records.len() <= message.len() {
            self.world.poll(0);
            records.extend(self.take(0));
            limit.check(format_args!("the records arrive"));
        }
        records
    }

    /// Checks that rail 1 ends the connection and counts the reason, and that no frame arrives after the change.
    fn assert_ends(&mut self, why: Lost, counts: impl Fn(&towline_tcp::Counters) -> u64) {
        self.until("the end", |it| it.world.observed[1].contains(&Observed::Lost(Peer(0), why)));
        assert_eq!(counts(self.world.rails[1].counters()), 1, "{:?}", self.world.rails[1].counters());
        assert_eq!(self.world.observed[1].len(), 2, "{:?}", self.world.observed[1]);
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn an_observer_sees_no_plain_text() {
    let message: Vec<u8> = (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (encrypt, seen) in [(Encrypt::Always, false), (Encrypt::Off, true), (Encrypt::BetweenHosts, true)] {
        let mut relayed = Relayed::connected([encrypt; 2]);
        relayed.send(&message);
        relayed.until("the message", |it| it.world.observed[1].len() == 2);
        assert_eq!(relayed.world.observed[1][1], Observed::Frame(Peer(0), message.clone()), "{encrypt}");
        let sent = &relayed.recorded[0][HANDSHAKE[0]..];
        assert!(sent.len() >= message.len());
        let parts = message.chunks(16).filter(|part| contains(sent, part)).count();
        assert_eq!(parts > 3000, seen, "{encrypt}: {parts} parts of the message are visible");
        assert_eq!(contains(sent, b"first"), seen, "{encrypt}");
    }
}

/// The same message looks different on two connections under one key, and each time on one connection.
#[test]
fn the_same_message_never_looks_the_same() {
    let mut seen: Vec<Vec<u8>> = vec![];
    for _ in 0..2 {
        let mut relayed = Relayed::connected([Encrypt::Always; 2]);
        for _ in 0..2 {
            let records = relayed.intercept(&[7; 300]);
            relayed.pass(0, &records);
            assert!(!seen.contains(&records));
            seen.push(records);
        }
    }
}

#[test]
fn a_changed_bit_ends_the_connection_wherever_it_is() {
    for bit in (0..26 * 8).step_by(5).chain([300 * 8, 320 * 8]) {
        let mut relayed = Relayed::connected([Encrypt::Always; 2]);
        let mut records = relayed.intercept(&[7; 300]);
        records[bit / 8] ^= 1 << (bit % 8);
        // If the length of the record was changed, more bytes are awaited, and the record is wrong then.
        records.extend_from_slice(&[0xEE; 40_000]);
        relayed.pass(0, &records);
        relayed.assert_ends(Lost::Misbehaved, |counters| counters.records_forged);
    }
}

#[test]
fn repeated_dropped_and_reordered_records_end_the_connection() {
    for what in ["repeated", "dropped", "reordered"] {
        let mut relayed = Relayed::connected([Encrypt::Always; 2]);
        let [one, two] = [relayed.intercept(&[1; 40]), relayed.intercept(&[2; 40])];
        let records = match what {
            "repeated" => relayed.recorded[0][HANDSHAKE[0]..relayed.recorded[0].len() - one.len() - two.len()].to_vec(),
            "dropped" => two,
            _ => [two, one].concat(),
        };
        relayed.pass(0, &records);
        relayed.assert_ends(Lost::Misbehaved, |counters| counters.records_forged);
    }
}

#[test]
fn a_truncated_stream_is_a_failure() {
    for cut in [1, 2, 3, 100] {
        let mut relayed = Relayed::connected([Encrypt::Always; 2]);
        let records = relayed.intercept(&[7; 300]);
        relayed.pass(0, &records[..cut]);
        relayed.streams.as_ref().unwrap()[1].shutdown(std::net::Shutdown::Write).unwrap();
        relayed.assert_ends(Lost::Broken, |counters| counters.records_truncated);
    }
    // The end of the stream between two records: only the missing goodbye shows that it is no normal end.
    let mut relayed = Relayed::connected([Encrypt::Always; 2]);
    relayed.streams.as_ref().unwrap()[1].shutdown(std::net::Shutdown::Write).unwrap();
    relayed.assert_ends(Lost::Broken, |counters| counters.lost);
}

#[test]
fn ranks_of_which_one_encrypts_refuse_each_other_and_report_why() {
    for settings in [[Encrypt::Always, Encrypt::Off], [Encrypt::Off, Encrypt::Always]] {
        let mut relayed = Relayed::new(settings);
        assert!(!try_send(&mut relayed.world.rails[0], relayed.to, b"not yet").unwrap());
        relayed.until("the refusal", |it| it.world.observed[0] == [Observed::Lost(Peer(1), Lost::Broken)]);
        relayed.until("its count", |it| it.world.rails[1].counters().refused_encryption >= 1);
        assert!(relayed.world.rails[0].counters().refused_encryption >= 1);
        assert_eq!(relayed.world.rails[1].counters().established, 0);
        assert!(relayed.world.observed[1].is_empty(), "the acceptor still accepts connections");
    }
}

/// On one host `between-hosts` has the same result as `off`, so the two connect.
#[test]
fn settings_with_the_same_result_connect() {
    let relayed = Relayed::connected([Encrypt::BetweenHosts, Encrypt::Off]);
    assert_eq!(relayed.world.rails[1].counters().established, 1);
}

/// More bytes arrive behind a held frame than the staging buffer takes. The rest is in opened records, which epoll does not
/// report.
#[test]
fn bytes_behind_a_held_frame_are_delivered() {
    let rails = (0..2).map(|rank| {
        let mut config = config(rank);
        config.encrypt = Encrypt::Always;
        config.direct_connections = 0;
        config.epoll_interval_many_polls = 1;
        config.receive_staging_bytes = 4096;
        (config.eager_limit_bytes, config.max_send_size_bytes) = (4096, 4096);
        Rail::new(config).expect("this host has a loopback")
    });
    let (mut world, to) = World::with_peers(rails.collect());
    world.send(0, to[0][1], b"first");
    world.until("the first frame", |world| !world.observed[1].is_empty());
    world.observed[1].clear();
    let now = world.now;
    for number in 0..40u8 {
        assert!(try_send(&mut world.rails[0], to[0][1], &[number; 300]).unwrap());
    }
    while !world.rails[0].drained(to[0][1]) {
        world.rails[0].poll(now);
    }
    let limit = Limit::new();
    let frame = loop {
        match world.rails[1].poll(now) {
            Some(Event::Frame(frame)) => break frame,
            Some(event) => panic!("{event:?}"),
            None => limit.check(format_args!("the first frame")),
        }
    };
    // All bytes are read before the first frame is released.
    for _ in 0..1000 {
        assert!(world.rails[1].poll(now).is_none(), "one at a time");
    }
    world.rails[1].release(frame.id);
    world.until("the others", |world| world.observed[1].len() == 39);
}

/// The default configuration, on two hosts as far as the rails know. The address of a forwarded connection looks like that of the
/// acceptor's own host.
#[test]
fn by_default_connections_between_hosts_are_encrypted_also_through_a_forwarder() {
    let rail = |host: u64, rank: u32| {
        let mut config = config(rank);
        config.filter.include = vec!["0.0.0.0/0".into()];
        config.filter.exclude = Some(vec!["lo".into()]);
        config.host = Some(host);
        Rail::new(config)
    };
    let (Ok(one), Ok(other)) = (rail(1, 0), rail(2, 1)) else {
        eprintln!("skipped: this host has only a loopback interface");
        return;
    };
    for (rails, seen) in [([one, other], false), ([rail(1, 0).unwrap(), rail(1, 1).unwrap()], true)] {
        let mut relayed = Relayed::between(rails);
        relayed.connect();
        assert_eq!(contains(&relayed.recorded[0], b"first"), seen);
        assert_eq!(relayed.world.rails[1].counters().refused_encryption, 0);
    }
}
