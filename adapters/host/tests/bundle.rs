//! Modules of the BTL face over a bundle of two links, of which one is cut: they go on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use towline::btl::{
    Access, Btl, Completed, Completion, Consumer, DescriptorFlags, Directory, EndpointId, ErrorFlags, ErrorHandler,
    Module, NO_ORDER, Outcome, Received, RmaCompleted, RmaCompletion, RmaParams, Span, tags,
};
use towline::{AnyRail, Builder, Encrypt, JobKey, Place};
use towline_core::rail::{Lost, Rail as _};
use towline_host_tests::pattern::patterned;
use towline_host_tests::relay::{DatagramFaults, Datagrams, Ports, Streams};

/// Frames, and puts, in each direction before a cut, and after it.
const FRAMES: u64 = 400;
const PUT_BYTES: usize = 300_000;
/// Each frame whose number is a multiple of this arrives after all that were sent before.
const ORDERED: u64 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// What has happened at one process.
#[derive(Debug, Default)]
struct Seen {
    frames: Mutex<Vec<u64>>,
    /// The order value of the last completion.
    order: Mutex<Option<u8>>,
    puts: Mutex<u64>,
    lost: Mutex<Vec<(ErrorFlags, Option<u32>, Lost)>>,
}

impl Consumer<AnyRail> for Seen {
    fn receive(&self, _: &mut Btl<'_>, received: &Received<'_>) {
        let data = received.data();
        let name = u64::from_le_bytes(data[..8].try_into().unwrap());
        assert!(data[8..] == patterned(name, data.len() - 8), "frame {name} has other bytes");
        let mut frames = self.frames.lock().unwrap();
        if name.is_multiple_of(ORDERED) {
            let earlier = frames.iter().filter(|other| **other < name).count() as u64;
            assert_eq!(earlier, name, "frame {name} has overtaken others");
        }
        frames.push(name);
    }
}

impl Completed<AnyRail> for Seen {
    fn completed(&self, _: &mut Btl<'_>, completion: Completion) {
        assert_eq!(completion.status, Ok(()));
        *self.order.lock().unwrap() = Some(completion.order);
    }
}

impl RmaCompleted<AnyRail> for Seen {
    fn rma_completed(&self, _: &mut Btl<'_>, completion: &RmaCompletion) {
        assert_eq!(completion.status, Ok(0));
        *self.puts.lock().unwrap() += 1;
    }
}

impl ErrorHandler<AnyRail> for Seen {
    fn failed(&self, _: &mut Btl<'_>, flags: ErrorFlags, process: Option<u32>, reason: Lost) {
        self.lost.lock().unwrap().push((flags, process, reason));
    }
}

/// A process with its module.
struct Process {
    module: Module,
    directory: Directory,
    peer: Option<EndpointId>,
    seen: &'static Seen,
    sent: u64,
}

impl Process {
    fn open(number: u32, transport: &str, real: Ports, advertised: Ports) -> Self {
        let builder = Builder::new().transports(transport).configure(|config| {
            (config.links, config.bundle, config.peer_timeout_ms) = (real.links.into(), true, 2000);
            config.encrypt = Encrypt::Off;
            (config.tcp.ports, config.udp.ports) = (real.range(number), real.range(number));
            let advertised = advertised.address(number).to_string();
            (config.tcp.advertise, config.udp.advertise) = (advertised.clone(), advertised);
            (config.tcp.include, config.udp.include) = ("127.0.0.0/8".into(), "127.0.0.0/8".into());
        });
        let mut modules = builder.open_btl(Place::new(0x5678, JobKey::new([9; 32]), number)).unwrap();
        assert_eq!(modules.len(), 1, "one module for both links");
        let (mut module, directory) = modules.remove(0);
        let seen: &'static Seen = Box::leak(Box::default());
        module.with(|btl| {
            btl.register(tags::USR, seen).unwrap();
            btl.register_error(seen);
        });
        Self { module, directory, peer: None, seen, sent: 0 }
    }

    fn add(&mut self, card: &[u8]) {
        self.peer = Some(self.module.with(|btl| self.directory.add(btl, card)).unwrap().0);
    }

    /// Sends the next frame, if there is room for it.
    fn try_send(&mut self) {
        let (name, peer, seen) = (self.sent, self.peer.unwrap(), self.seen);
        let order = match *seen.order.lock().unwrap() {
            Some(order) if name.is_multiple_of(ORDERED) => order,
            None if name.is_multiple_of(ORDERED) && name != 0 => return,
            _ => NO_ORDER,
        };
        let sent = self.module.with(|btl| {
            let most = btl.rail().attributes().max_send_size as usize;
            let len = ([20, 500, 9000, 60_000][name as usize % 4] + name as usize).min(most);
            let flags = DescriptorFlags::BTL_OWNERSHIP | DescriptorFlags::SEND_ALWAYS_CALLBACK;
            let descriptor = btl.alloc(peer, order, len, flags).ok()?;
            let memory = btl.memory(descriptor).unwrap();
            assert_eq!(memory.len(), len);
            memory[..8].copy_from_slice(&name.to_le_bytes());
            memory[8..].copy_from_slice(&patterned(name, len - 8));
            btl.properties_mut(descriptor).unwrap().callback = Some(seen);
            btl.send(peer, descriptor, tags::USR).ok()
        });
        self.sent += u64::from(sent.is_some());
    }

    fn got(&self) -> u64 {
        self.seen.frames.lock().unwrap().len() as u64
    }
}

/// Two processes, here in one thread.
struct Pair([Process; 2]);

impl Pair {
    fn open(transport: &str, real: Ports, advertised: Ports) -> Self {
        let mut both = [0, 1].map(|number| Process::open(number, transport, real, advertised));
        let cards = [0, 1].map(|number: usize| both[number].directory.card());
        both[0].add(&cards[1]);
        both[1].add(&cards[0]);
        Self(both)
    }

    fn progress(&mut self) {
        for process in &mut self.0 {
            process.module.progress();
        }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.progress();
            assert!(begun.elapsed() < PATIENCE, "this did not happen in time: {what}");
        }
    }

    /// Sends frames both ways, up to this number in each direction, until all have arrived. Calls `at` after each turn.
    fn exchange(&mut self, up_to: u64, mut at: impl FnMut(u64)) {
        self.until("all frames arrive", |pair| {
            for process in &mut pair.0 {
                if process.sent < up_to {
                    process.try_send();
                }
            }
            at(pair.0[0].got());
            pair.0.iter().all(|process| process.got() == up_to)
        });
        for process in &self.0 {
            let mut names = process.seen.frames.lock().unwrap().clone();
            names.sort_unstable();
            assert!(names.into_iter().eq(0..up_to), "each frame arrives once");
        }
    }

    /// Puts bytes to the memory of the second process. Calls `begun` when the operation has begun.
    fn put(&mut self, name: u64, begun: impl FnOnce()) {
        let (data, mut target) = (patterned(name, PUT_BYTES), vec![0u8; PUT_BYTES]);
        let [one, other] = &mut self.0;
        let (seen, before) = (one.seen, *one.seen.puts.lock().unwrap());
        let base = target.as_mut_ptr();
        let (registration, remote) = other.module.with(|btl| {
            // SAFETY: the target lives until it is deregistered, and is read only when the operation is over.
            let registration = unsafe { btl.register_mem(None, base, PUT_BYTES, Access::REMOTE_WRITE) }.unwrap();
            (registration, btl.remote_memory(registration).unwrap())
        });
        let peer = one.peer.unwrap();
        let params = RmaParams { callback: Some(seen as _), ..RmaParams::NONE };
        // SAFETY: the data live until the operation is over.
        let outcome = one.module.with(|btl| unsafe { btl.put(peer, Span::of(&data), &remote, 0, params) });
        assert_eq!(outcome.unwrap(), Outcome::Queued);
        begun();
        self.until("the put is done", |_| *seen.puts.lock().unwrap() > before);
        self.0[1].module.with(|btl| btl.deregister_mem(registration)).unwrap();
        assert!(target == data);
    }

    fn assert_nobody_is_lost(&self) {
        assert!(self.0.iter().all(|process| process.seen.lost.lock().unwrap().is_empty()));
    }
}

/// Both directions go on while a link is cut, and when it is back.
#[test]
fn p14_b37_a_module_goes_on_when_one_of_two_tcp_links_is_cut() {
    for link in [0, 1] {
        let relay = Streams::start(2, 2, 1).unwrap();
        let mut pair = Pair::open("tcp", relay.real(), relay.advertised());
        pair.exchange(FRAMES, |_| {});
        pair.put(7, || {});
        assert!([0, 1].iter().all(|link| relay.link_counts(*link).chunks != 0), "both links carry frames");
        let mut cut = false;
        pair.exchange(2 * FRAMES, |got| {
            if got > FRAMES + FRAMES / 4 && !cut {
                relay.refuse(link, true);
                cut = true;
            }
        });
        pair.put(8, || {});
        relay.refuse(link, false);
        pair.exchange(3 * FRAMES, |_| {});
        pair.put(9, || relay.cut(link));
        pair.assert_nobody_is_lost();
        assert!(relay.cuts() >= 1);
    }
}

/// The datagrams of one link are lost, and a few of the other.
#[test]
fn p14_b37_a_module_goes_on_when_one_of_two_udp_links_is_cut() {
    let relay = Datagrams::start(2, 2, 1).unwrap();
    relay.set(DatagramFaults { lose: 10, ..DatagramFaults::default() });
    let mut pair = Pair::open("udp", relay.real(), relay.advertised());
    pair.exchange(FRAMES, |_| {});
    let mut cut = false;
    pair.exchange(2 * FRAMES, |got| {
        if got > FRAMES + FRAMES / 4 && !cut {
            relay.cut(0, true);
            cut = true;
        }
    });
    relay.cut(0, false);
    pair.put(7, || {});
    pair.assert_nobody_is_lost();
    assert!(relay.counts().cut_off > 0);
}

/// The loss is reported when the last link is cut. No other rail can take over, so it is fatal.
#[test]
fn p7_b14_a_module_reports_a_peer_once_when_both_links_are_cut() {
    let relay = Streams::start(2, 2, 1).unwrap();
    let mut pair = Pair::open("tcp", relay.real(), relay.advertised());
    pair.exchange(FRAMES, |_| {});
    pair.until("all sends are complete", |pair| {
        pair.0.iter_mut().all(|process| process.module.with(|btl| btl.is_drained()))
    });
    relay.refuse(0, true);
    relay.refuse(1, true);
    let lost = |process: &Process| process.seen.lost.lock().unwrap().clone();
    pair.until("both report the loss", |pair| pair.0.iter().all(|process| !lost(process).is_empty()));
    (0..100).for_each(|_| pair.progress());
    for (number, process) in pair.0.iter().enumerate() {
        let lost = lost(process);
        assert!(
            matches!(lost[..], [(ErrorFlags::FATAL, Some(peer), _)] if peer as usize == 1 - number),
            "one report: {lost:?}"
        );
    }
}
