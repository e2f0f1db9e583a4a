//! Ranks as threads of one process, with a real server over real sockets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use towline_bootstrap::server::{Config, Event, Server};
use towline_bootstrap::{Address, End, Environment, Error, Job, JobKey};
use towline_core::modex::{
    Change, Component, Exchange, ExchangeError, Modex, RecvError, SendError, Version, WatchError,
};
use towline_core::time;

const V: Version = Version::new(1, 0, 0);
const TCP: Component = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };
const SM: Component = Component { name: "sm", ..TCP };

/// Long enough for a busy machine. No test waits this long unless it fails.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// A server and the environment of its ranks.
struct World {
    server: Server,
    events: Receiver<Event>,
    environment: Environment,
}

impl World {
    fn new(size: u32, tcp: bool) -> Self {
        let mut environment = base();
        environment.size = size;
        let (tell, events) = mpsc::channel();
        let config = Config {
            size,
            job: environment.job,
            key: environment.key.clone(),
            name: (!tcp).then(|| format!("towline-test-{:016x}", environment.job)),
            listen: tcp.then(|| "127.0.0.1:0".parse().unwrap()),
            disconnect_ends_rank: false,
        };
        let server = Server::start(config, move |event| drop(tell.send(event))).unwrap();
        environment.root = server.addresses().to_vec();
        Self { server, events, environment }
    }

    fn rank(&self, rank: u32) -> Environment {
        environment_of(&self.environment, rank)
    }

    fn join(&self, rank: u32) -> Job {
        Job::join(self.rank(rank), soon()).unwrap()
    }

    fn tcp(&self) -> TcpStream {
        let Address::Tcp(address) = &self.environment.root[0] else { panic!("no TCP") };
        TcpStream::connect(address).unwrap()
    }

    fn refused(&self) -> String {
        loop {
            if let Event::Refused { why, .. } = self.events.recv_timeout(Duration::from_secs(300)).unwrap() {
                return why;
            }
        }
    }
}

fn base() -> Environment {
    Environment::singleton()
}

/// An address for a server that starts later, and at which nobody listens before. The socket keeps it: the system gives its port
/// to no other process, and a server can bind it nevertheless, since both sockets permit that.
fn reserved() -> (OwnedFd, SocketAddr) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

fn environment_of(of: &Environment, rank: u32) -> Environment {
    let mut environment = of.clone();
    environment.rank = rank;
    environment
}

fn allgather(size: u32, tcp: bool) {
    let world = World::new(size, tcp);
    let ranks = (0..size).map(|rank| {
        let environment = world.rank(rank);
        thread::spawn(move || {
            let mut job = Job::join(environment, soon()).unwrap();
            job.publish(&TCP, format!("card {rank}").as_bytes()).unwrap();
            job.exchange(soon()).unwrap();
            for peer in 0..size {
                assert_eq!(job.card(&TCP, peer).unwrap(), format!("card {peer}").as_bytes());
                assert_eq!(job.card(&SM, peer), Err(RecvError::NotFound));
            }
            for _ in 0..3 {
                job.fence(soon()).unwrap();
            }
            job.exchange(soon()).unwrap();
            job.finish().unwrap();
        })
    });
    for rank in ranks.collect::<Vec<_>>() {
        rank.join().unwrap();
    }
}

#[test]
fn x3_allgather_over_unix_sockets() {
    for size in [1, 2, 16] {
        allgather(size, false);
    }
}

#[test]
fn x3_allgather_over_tcp() {
    for size in [1, 2, 16] {
        allgather(size, true);
    }
}

#[test]
fn a_job_of_size_1_needs_no_server() {
    let mut job = Job::join(base(), soon()).unwrap();
    job.publish(&TCP, b"card").unwrap();
    job.exchange(soon()).unwrap();
    job.fence(soon()).unwrap();
    assert_eq!((job.rank(), job.size(), job.local_ranks()), (0, 1, Some(&[0][..])));
    assert_eq!(job.card(&TCP, 0).unwrap(), b"card");
    job.abort(3, "nobody hears it").unwrap();
    job.finish().unwrap();
}

#[test]
fn x1_x4_x5_a_second_send_replaces_and_recv_copies() {
    let world = World::new(1, false);
    let mut job = world.join(0);
    let mut buffer = *b"first";
    job.send(&TCP, &buffer).unwrap();
    buffer.fill(0);
    let mut copy = [0; 8];
    assert_eq!(job.recv(&TCP, 0, &mut copy), Ok(5));
    assert_eq!(copy, *b"first\0\0\0");
    job.send(&TCP, b"second").unwrap();
    assert_eq!(job.recv(&TCP, 0, &mut copy[..5]), Err(RecvError::TooShort { needed: 6 }));
    assert_eq!(job.card(&Component { version: Version::new(1, 0, 9), ..TCP }, 0).unwrap(), b"second");
    assert_eq!(job.card(&Component { version: Version::new(1, 1, 0), ..TCP }, 0), Err(RecvError::NotFound));
    assert_eq!(job.card(&TCP, 1), Err(RecvError::NoSuchPeer));
    let too_long = vec![0; 1 << 20];
    assert!(matches!(job.send(&TCP, &too_long), Err(SendError::TooLong { .. })));
    assert_eq!(job.send(&Component { name: "", ..TCP }, b""), Err(SendError::BadComponent));
    assert_eq!(job.card(&TCP, 0).unwrap(), b"second");
}

/// Polls until there is a change.
fn change(job: &mut Job) -> Change {
    let until = soon();
    loop {
        job.poll().unwrap();
        if let Some(change) = job.next_change() {
            return change;
        }
        assert!(Instant::now() < until, "no change came");
        thread::yield_now();
    }
}

#[test]
fn x7_late_joiner_republication_and_restart_each_make_a_change() {
    let world = World::new(2, true);
    let mut zero = world.join(0);
    let watch = zero.recv_nb(&TCP, 1).unwrap();
    assert_eq!(zero.recv_nb(&TCP, 1), Ok(watch));
    assert_eq!(zero.recv_nb(&TCP, 2), Err(WatchError::NoSuchPeer));
    assert_eq!(zero.next_change(), None);
    let (now, later) = (time::Instant::ZERO, time::Instant::from_nanos(1));
    assert_eq!(Modex::exchange(&mut zero, now, later), Ok(Exchange::Pending));

    let mut one = world.join(1);
    one.publish(&TCP, b"first").unwrap();
    one.exchange(soon()).unwrap();
    assert_eq!(change(&mut zero), Change { watch, peer: 1 });
    assert_eq!(zero.card(&TCP, 1).unwrap(), b"first");

    one.publish(&TCP, b"first").unwrap();
    assert_eq!(change(&mut zero), Change { watch, peer: 1 });
    one.publish(&TCP, b"second").unwrap();
    assert_eq!(change(&mut zero), Change { watch, peer: 1 });
    assert_eq!(zero.card(&TCP, 1).unwrap(), b"second");

    drop(one);
    while !matches!(world.events.recv_timeout(Duration::from_secs(300)).unwrap(), Event::Disconnected { rank: 1, .. }) {
    }
    let mut one = world.join(1);
    one.publish(&TCP, b"third").unwrap();
    one.exchange(soon()).unwrap();
    assert_eq!(change(&mut zero), Change { watch, peer: 1 });
    assert_eq!(zero.card(&TCP, 1).unwrap(), b"third");
    assert_eq!(zero.next_change(), None);
}

/// Asks until an answer contains an end.
fn end(job: &mut Job) -> End {
    let until = soon();
    loop {
        job.ask_for_ends().unwrap();
        if let Some(end) = job.next_end() {
            return end;
        }
        assert!(Instant::now() < until, "no end came");
        thread::yield_now();
    }
}

#[test]
fn a_rank_that_asks_learns_of_each_end_once() {
    let world = World::new(3, true);
    let [mut zero, mut one, two] = [0, 1, 2].map(|rank| world.join(rank));
    one.part_ended(4, true).unwrap();
    assert_eq!(end(&mut zero), End { rank: 1, part: Some(4), incarnation: 0, died: true, left: false });
    one.finish().unwrap();
    assert_eq!(end(&mut zero), End { rank: 1, part: None, incarnation: 0, died: false, left: false });
    assert!(matches!(one.part_ended(5, false), Err(Error::Finished)));
    drop(two);
    while !matches!(world.events.recv_timeout(Duration::from_secs(300)).unwrap(), Event::Disconnected { rank: 2, .. }) {
    }
    world.server.rank_ended(2);
    assert_eq!(end(&mut zero), End { rank: 2, part: None, incarnation: 0, died: true, left: false });
    // A job of size 1 has no server to ask.
    let mut alone = Job::join(base(), soon()).unwrap();
    alone.part_ended(1, false).unwrap();
    alone.ask_for_ends().unwrap();
    assert_eq!(alone.next_end(), None);
}

#[test]
fn x7_a_restarted_rank_replaces_itself_and_waiting_ranks_go_on_waiting() {
    let world = World::new(3, false);
    let [mut zero, mut one, mut two] = [0, 1, 2].map(|rank| world.join(rank));
    for (rank, job) in (0u8..).zip([&mut zero, &mut one, &mut two]) {
        job.publish(&TCP, &[rank]).unwrap();
    }
    // A rank dies before all have published, so its publications are useless.
    let published = Modex::exchange(&mut two, time::Instant::ZERO, time::Instant::from_nanos(1));
    assert_eq!(published, Ok(Exchange::Pending));
    world.server.rank_restarts(2);
    drop(two);
    let mut two = world.join(2);
    assert_eq!((two.incarnation(), two.fences()), (2, 0));
    two.publish(&TCP, b"second").unwrap();
    let others = [zero, one].map(|mut job| {
        thread::spawn(move || {
            job.exchange(soon()).unwrap();
            job
        })
    });
    two.exchange(soon()).unwrap();
    let [mut zero, one] = others.map(|job| job.join().unwrap());
    assert_eq!((zero.card(&TCP, 2).unwrap(), zero.incarnation_of(2)), (&b"second"[..], Some(2)));
    // A rank dies later, also while other ranks wait at a fence. They learn of its end, and then of its next
    // incarnation.
    world.server.rank_restarts(2);
    assert_eq!(end(&mut zero), End { rank: 2, part: None, incarnation: 2, died: true, left: false });
    let waits = thread::spawn(move || {
        let mut one = one;
        one.fence(soon()).unwrap();
        assert!(!one.has_ended(2));
        one
    });
    // The server has not noticed yet that its connection is closed.
    let mut again = world.join(2);
    assert_eq!(again.incarnation(), 3);
    assert!(matches!(two.poll(), Err(Error::Lost { .. })));
    again.publish(&TCP, b"third").unwrap();
    again.exchange(soon()).unwrap();
    assert_eq!(again.card(&TCP, 0).unwrap(), [0], "of ranks that were there all the time");
    zero.recv_nb(&TCP, 2).unwrap();
    let until = soon();
    let back = loop {
        if let Some(back) = zero.next_restart() {
            break back;
        }
        assert!(Instant::now() < until, "not told");
        thread::yield_now();
    };
    assert_eq!((back, zero.next_restart()), ((2, 3), None));
    assert_eq!(zero.card(&TCP, 2).unwrap(), b"third");
    assert!(zero.next_change().is_some());
    thread::scope(|scope| {
        scope.spawn(|| again.fence(soon()).unwrap());
        zero.fence(soon()).unwrap();
    });
    waits.join().unwrap().finish().unwrap();
    // A restarted rank learns of every end.
    while !again.has_ended(1) {
        again.poll().unwrap();
        assert!(Instant::now() < until, "not told");
        thread::yield_now();
    }
}

#[test]
fn x8_an_exchange_that_times_out_names_the_missing_ranks_and_can_be_repeated() {
    let world = World::new(3, false);
    let mut zero = world.join(0);
    let _joined_only = world.join(1);
    let why = zero.exchange(Instant::now() + Duration::from_millis(1)).unwrap_err();
    assert!(matches!(&why, Error::Timeout { step, .. } if step.contains("ranks 1, 2")), "{why}");
    let at_once = Modex::exchange(&mut zero, time::Instant::ZERO, time::Instant::ZERO);
    assert_eq!(at_once, Err(ExchangeError::Timeout { missing: 2, first: 1 }));
    let why = zero.fence(Instant::now() + Duration::from_millis(1)).unwrap_err();
    assert!(matches!(why, Error::Timeout { .. }), "{why}");

    let world = World::new(1, false);
    let mut alone = world.join(0);
    for _ in 0..3 {
        alone.exchange(Instant::now()).unwrap();
    }
}

#[test]
fn x9_use_after_finish_is_refused() {
    let world = World::new(1, false);
    let mut job = world.join(0);
    job.publish(&TCP, b"card").unwrap();
    job.finish().unwrap();
    job.finish().unwrap();
    job.finalize();
    assert!(matches!(job.publish(&TCP, b""), Err(Error::Finished)));
    assert!(matches!(job.exchange(soon()), Err(Error::Finished)));
    assert!(matches!(job.fence(soon()), Err(Error::Finished)));
    assert_eq!(job.send(&TCP, b""), Err(SendError::Closed));
    assert_eq!(job.card(&TCP, 0), Err(RecvError::Closed));
    assert_eq!(job.recv_nb(&TCP, 0), Err(WatchError::Closed));
    assert_eq!(Modex::exchange(&mut job, time::Instant::ZERO, time::Instant::ZERO), Err(ExchangeError::Closed));
    assert_eq!(job.next_change(), None);
    assert_eq!(world.events.recv().unwrap(), Event::Joined { rank: 0 });
    assert_eq!(world.events.recv().unwrap(), Event::Finished { rank: 0 });
}

#[test]
fn a_rank_that_waits_for_an_ended_rank_learns_of_it_at_once() {
    let world = World::new(3, false);
    let mut zero = world.join(0);
    let mut one = world.join(1);
    world.server.rank_ended(2);
    assert!(matches!(zero.exchange(soon()), Err(Error::PeerGone { rank: 2, .. })));
    assert!(matches!(one.fence(soon()), Err(Error::PeerGone { rank: 2, .. })));
    one.finish().unwrap();
    assert!(matches!(zero.fence(soon()), Err(Error::PeerGone { .. })));
}

#[test]
fn without_a_launcher_rank_0_runs_the_server_until_the_others_have_left() {
    let mut environment = base();
    environment.size = 3;
    let (_reserved, address) = reserved();
    environment.root = vec![Address::Tcp(address.to_string())];
    environment.listen = Some(address);
    let (served, finished) = mpsc::channel();
    let ranks = (0..3).rev().map(|rank| {
        let (environment, finished) = (environment_of(&environment, rank), served.clone());
        thread::spawn(move || {
            let mut job = Job::join(environment, soon()).unwrap();
            job.publish(&TCP, &[rank as u8]).unwrap();
            job.exchange(soon()).unwrap();
            assert!((0..3).all(|peer| job.card(&TCP, peer).unwrap() == [peer as u8]));
            match rank {
                // This rank dies.
                1 => drop(job),
                2 => {
                    assert!(matches!(job.fence(soon()), Err(Error::PeerGone { .. })));
                    finished.send(rank).unwrap();
                    job.finish().unwrap();
                }
                _ => {
                    job.finish().unwrap();
                    finished.send(rank).unwrap();
                }
            }
        })
    });
    for rank in ranks.collect::<Vec<_>>() {
        rank.join().unwrap();
    }
    assert_eq!(finished.try_iter().collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn a_rank_with_another_key_notices_and_is_refused() {
    let world = World::new(1, true);
    let mut stranger = world.rank(0);
    stranger.key = JobKey::new([1; 32]);
    let why = Job::join(stranger, soon()).unwrap_err();
    assert!(matches!(&why, Error::Refused { why, .. } if why.contains("TOWLINE_KEY")), "{why}");
    assert!(world.refused().contains("closed"));
    world.join(0).finish().unwrap();
}

/// An opening as a rank writes it.
fn opening(environment: &Environment) -> Vec<u8> {
    let mut bytes = b"TOWLBOOT\x02\0\0\0".to_vec();
    bytes.extend(environment.rank.to_le_bytes());
    bytes.extend(environment.size.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(environment.job.to_le_bytes());
    bytes.extend([7; 32]);
    bytes
}

#[test]
fn a_stranger_who_guesses_the_proof_is_refused() {
    let world = World::new(1, true);
    let mut stream = world.tcp();
    stream.write_all(&opening(&world.rank(0))).unwrap();
    let mut answer = [0; 68];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [0; 4]);
    // The server's own proof, sent back, is not a valid proof of a rank.
    stream.write_all(&answer[36..]).unwrap();
    assert_eq!(stream.read(&mut answer).unwrap_or(0), 0);
    assert!(world.refused().contains("key"));
    world.join(0).finish().unwrap();
}

#[test]
fn malformed_bytes_are_refused_and_the_job_goes_on() {
    let world = World::new(2, true);
    let mut zero = world.join(0);
    let mut scan = world.tcp();
    scan.write_all(b"GET / HTTP/1.1\r\nHost: towline\r\nAccept: */*\r\nUser-Agent: a port scan\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    scan.read_to_end(&mut answer).unwrap_or(0);
    assert!(world.refused().contains("another protocol"));
    drop(world.tcp());
    assert!(world.refused().contains("closed"));

    type Change = fn(&mut Environment);
    let changes: [(Change, &str); 3] = [
        (|environment| environment.size = 3, "size"),
        (|environment| environment.rank = 2, "no such rank"),
        (|environment| environment.job ^= 1, "another job"),
    ];
    for (change, word) in changes {
        let mut other = world.rank(1);
        change(&mut other);
        let why = Job::join(other, soon()).unwrap_err();
        assert!(matches!(&why, Error::Refused { why, .. } if why.contains(word)), "{why}");
        let _ = world.refused();
    }

    let twice = Job::join(world.rank(0), soon()).unwrap_err();
    assert!(matches!(&twice, Error::Refused { why, .. } if why.contains("already")), "{twice}");
    let mut one = world.join(1);
    let other = thread::spawn(move || one.exchange(soon()).map(|()| one));
    zero.exchange(soon()).unwrap();
    other.join().unwrap().unwrap();
}

#[test]
fn frames_that_are_changed_on_the_way_end_the_connection() {
    let world = World::new(1, true);
    // A man in the middle flips a bit of what follows the handshake.
    let Address::Tcp(server) = world.environment.root[0].clone() else { panic!("no TCP") };
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut victim = world.rank(0);
    victim.root = vec![Address::Tcp(middle.local_addr().unwrap().to_string())];
    thread::spawn(move || {
        let (mut rank, _) = middle.accept().unwrap();
        let mut server = TcpStream::connect(server).unwrap();
        let (mut from_server, mut to_rank) = (server.try_clone().unwrap(), rank.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from_server, &mut to_rank));
        let mut handshake = [0; 64 + 32];
        rank.read_exact(&mut handshake[..64]).unwrap();
        server.write_all(&handshake[..64]).unwrap();
        rank.read_exact(&mut handshake[64..]).unwrap();
        server.write_all(&handshake[64..]).unwrap();
        let mut frame = [0; 24];
        rank.read_exact(&mut frame).unwrap();
        frame[20] ^= 1;
        server.write_all(&frame).unwrap();
    });
    let mut job = Job::join(victim, soon()).unwrap();
    let why = job.finish().unwrap_err();
    assert!(matches!(why, Error::Lost { .. }), "{why}");
    loop {
        if let Event::Disconnected { why, .. } = world.events.recv_timeout(Duration::from_secs(300)).unwrap() {
            assert!(why.contains("tag"), "{why}");
            break;
        }
    }
}

#[test]
fn a_silent_server_is_given_up_at_the_deadline() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut environment = base();
    environment.root = vec![Address::Tcp(silent.local_addr().unwrap().to_string())];
    let why = Job::join(environment.clone(), Instant::now() + Duration::from_millis(1)).unwrap_err();
    assert!(matches!(&why, Error::Timeout { step, .. } if step.contains("does not answer")), "{why}");
    let (_reserved, nobody) = reserved();
    environment.root = vec![Address::Tcp(nobody.to_string())];
    let why = Job::join(environment, Instant::now() + Duration::from_millis(1)).unwrap_err();
    assert!(matches!(&why, Error::Connect { .. }), "{why}");
}

#[test]
fn an_abort_is_reported_to_the_launcher_and_a_lost_launcher_to_a_rank() {
    let world = World::new(1, false);
    let mut job = world.join(0);
    job.abort(7, "disk full").unwrap();
    let aborted = Event::Aborted { rank: 0, code: 7, message: "disk full".into() };
    assert_eq!(world.events.iter().nth(1), Some(aborted));
    drop(world.server);
    assert!(matches!(job.exchange(soon()), Err(Error::Lost { .. })));
}
