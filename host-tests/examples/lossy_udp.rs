//! Measures a link over UDP sockets: one thread sends bulk frames to another. If two network namespaces are named, each
//! thread runs in one of them. `host-tests/scripts/loss` creates two connected namespaces, and drops a part of the
//! datagrams between them.
//!
//! ```sh
//! lossy_udp [SECONDS [NAMESPACE NAMESPACE]]
//! ```

use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::{Cookie, Delivery, Endpoint, Event, Lane, Peer, Rail as _, SendError, Shape};
use towline_core::time;
use towline_net::JobKey;
use towline_udp::{Config, Rail};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 =
        arguments.first().map_or(5, |seconds| seconds.parse().expect("the first argument is a number of seconds"));
    let namespaces = [arguments.get(1).cloned(), arguments.get(2).cloned()];
    let [(to_one, from_other), (to_other, from_one)] = [channel(), channel()];
    let [one, other] = namespaces;
    let end = Instant::now() + Duration::from_secs(seconds);
    let receiver = std::thread::spawn(move || receive(&mut Side::new(1, other, &to_one, &from_one), end));
    send(&mut Side::new(0, one, &to_other, &from_other), end);
    receiver.join().expect("the receiver succeeds");
}

/// One end of the link.
struct Side {
    link: Link<'static, Rail, Crc32c>,
    to: Endpoint,
    begun: Instant,
}

impl Side {
    fn new(rank: u32, namespace: Option<String>, to_peer: &Sender<Vec<u8>>, from_peer: &Receiver<Vec<u8>>) -> Self {
        if let Some(name) = &namespace {
            let file = std::fs::File::open(format!("/var/run/netns/{name}"))
                .expect("the network namespace exists, and this user may enter it");
            // SAFETY: the descriptor is open, and only this thread changes its namespace.
            let entered = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "the network namespace cannot be entered: this needs root");
        }
        let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
        config.within_host = namespace.is_none();
        let raw = Rail::new(config).expect("there is a network interface for udp");
        let mut config = link::Config::new(0, u64::from(rank) + 1, raw.attributes());
        config.peers = 1;
        let memory = vec![0; config.bytes(&raw)].leak();
        let mut link = Link::new(raw, Crc32c, config, &mut Arena::new(memory)).expect("the memory is large enough");
        to_peer.send(link.card().to_vec()).expect("the other thread is running");
        let card = from_peer.recv().expect("the other thread has sent its card");
        let to = link.add_peer(Peer(1 - rank), &card).expect("the other end is reachable");
        Self { link, to, begun: Instant::now() }
    }

    fn poll(&mut self) -> Option<Event> {
        self.link.poll(time::Instant::from_nanos(self.begun.elapsed().as_nanos() as u64 + 1))
    }
}

fn send(side: &mut Side, end: Instant) {
    let len = side.link.attributes().max_send_size;
    let body = vec![7; len as usize - 8].leak();
    let shape = Shape { tag: 0x80, lane: Lane::Bulk, header: 8, len };
    let (mut number, mut in_place) = (0u64, 0u64);
    while Instant::now() < end {
        // SAFETY: the body is never freed or written.
        match unsafe { side.link.send(side.to, shape, &number.to_le_bytes(), Span::of(body), Cookie(0)) } {
            Ok(_) => number += 1,
            Err(SendError::Busy) => {}
            Err(error) => panic!("{error}"),
        }
        while let Some(event) = side.poll() {
            assert!(matches!(event, Event::Sent(_)), "{event:?}");
            in_place += 1;
        }
    }
    let linger = Instant::now() + Duration::from_millis(500);
    while Instant::now() < linger {
        in_place += u64::from(side.poll().is_some());
    }
    let counters = side.link.counters();
    println!(
        "sent {number} frames of {len} bytes ({in_place} in place), {} resent ({} without need), {} timeouts",
        counters.resent, counters.spurious, counters.timeouts
    );
}

fn receive(side: &mut Side, end: Instant) {
    let mut sink = vec![0; side.link.attributes().max_send_size as usize].into_boxed_slice();
    let span = Span::contiguous(sink.as_mut_ptr(), sink.len());
    let (mut bytes, mut pending, mut begun) = (0u64, 0u64, None);
    while Instant::now() < end {
        match side.poll() {
            Some(Event::Frame(frame)) => {
                begun.get_or_insert_with(Instant::now);
                // SAFETY: the sink outlives the link, and nothing reads it.
                match unsafe { side.link.deliver(frame.id, 8, span, Cookie(u64::from(frame.len))) } {
                    Delivery::Done => bytes += u64::from(frame.len),
                    Delivery::Pending => pending += 1,
                }
            }
            Some(Event::Delivered(len)) => bytes += len.0,
            Some(Event::Silent(..)) | None => {}
            Some(event) => panic!("{event:?}"),
        }
    }
    let took = begun.map_or(1.0, |begun: Instant| begun.elapsed().as_secs_f64());
    let counters = *side.link.counters();
    let linger = Instant::now() + Duration::from_millis(500);
    while Instant::now() < linger {
        if let Some(Event::Frame(frame)) = side.poll() {
            side.link.release(frame.id);
        }
    }
    println!(
        "received {:.0} MB/s, {pending} pending deliveries, {} duplicates, {} corrupt, {} acks, {} refused",
        bytes as f64 / took / 1e6,
        counters.duplicates,
        counters.bad_headers + counters.bad_bodies,
        counters.acks_sent,
        counters.no_room + counters.beyond_window
    );
    std::mem::forget(sink); // the link may still write to it
}
