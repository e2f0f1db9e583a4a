//! The recorded trace has the same results everywhere. `TOWLINE_RECORD=1` writes the results of the host's core.

use std::cell::Cell;
use std::fmt::{Arguments, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use replay::loopback::{COMMUNICATORS, CONFIG, CONTEXTS, TABLES};
use replay::replay::MEMORY;
use replay::{Contexts, Direct, Replay, Stopped, TRACE, loopback};
use towline_core::arena::Arena;
use towline_core::mtl::Mtl;
use towline_core::pml::Rails;
use towline_core::rail::loopback::{Hub, Rail as Loopback};
use towline_core::rail::{Peer, Rail};
use towline_core::time::Instant;
use towline_host_tests::random::Random;
use towline_host_tests::sim::job::LinkParams;
use towline_host_tests::sim::job::rails::NodeRails;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::faults::{Faults, RailParams};

use crate::model::Model;
use crate::network::{self, Network};
use crate::node::{Dpu, Window};
use crate::offloaded::{LIMITS, Offloaded};
use crate::random_traces;

/// Nanoseconds between two polls.
const STEP: u64 = 1000;

/// The line before the part of the trace that is random.
const RANDOM_PART: &str = "# A random trace, of host-tests/tests/devices/random_traces.rs.\n";
/// The seed of the random part.
const SEED: u64 = 12;
/// Names of operations in the random part follow this one.
const FIRST_NAME: u32 = 500;

fn recorded_at(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware/replay").join(file)
}

fn recorded() -> PathBuf {
    recorded_at("results.txt")
}

/// Requires these results to be the recorded ones, and names the first line that differs.
fn check(place: &str, results: &str) {
    let recorded = std::fs::read_to_string(recorded()).expect("the results are recorded");
    let lines: Vec<&str> = std::str::from_utf8(TRACE).expect("text").lines().collect();
    let mut both = results.lines().map(Some).chain([None]).zip(recorded.lines().map(Some).chain([None]));
    if let Some((is, was)) = both.find(|(is, was)| is != was) {
        let number = is.or(was).and_then(|line| line.split(' ').next()?.parse::<usize>().ok());
        let step = number.and_then(|number| lines.get(number - 1)).unwrap_or(&"the end");
        panic!("{place}, {step}: the result is {is:?}, and {was:?} is recorded");
    }
}

/// Replays the trace at these contexts, and requires the recorded results.
fn replay(place: &str, contexts: &mut impl Contexts) {
    let mut results = String::new();
    let mut memory = vec![0; Replay::BYTES];
    let mut replay = Replay::new(&mut Arena::new(&mut memory)).expect("enough memory");
    let replayed: Result<(), Stopped> = replay.run(TRACE, contexts, |line: Arguments<'_>| {
        results.write_fmt(line).expect("a string takes all");
    });
    replayed.unwrap_or_else(|why| panic!("{place}: {why}, after {:?}", results.lines().last()));
    check(place, &results);
}

#[test]
fn the_core_of_this_host_gives_the_recorded_answers() {
    let mut results = String::new();
    let (mut tables, mut memory) = (vec![0; loopback::BYTES], vec![0; MEMORY]);
    let replayed = loopback::replay(
        TRACE,
        &mut tables,
        &mut memory,
        || 0,
        |line| {
            results.write_fmt(line).expect("a string takes all");
        },
    );
    if std::env::var_os("TOWLINE_RECORD").is_some() {
        std::fs::write(recorded(), &results).expect("the file can be written");
    }
    replayed.unwrap_or_else(|why| panic!("{why}, after {:?}", results.lines().last()));
    check("the core of this host", &results);
}

/// The last part of the trace is that of a seed. `TOWLINE_RECORD=1` writes it.
#[test]
fn the_trace_ends_with_a_random_trace() {
    let recorded = std::str::from_utf8(TRACE).expect("text");
    let (by_hand, random) = recorded.split_once(RANDOM_PART).expect("the line before the random part");
    let expected = random_traces::trace(SEED, FIRST_NAME);
    if std::env::var_os("TOWLINE_RECORD").is_some() {
        let path = recorded_at("trace.txt");
        std::fs::write(path, format!("{by_hand}{RANDOM_PART}{expected}")).expect("the file can be written");
    } else {
        assert_eq!(random, expected);
    }
}

/// The recorded results are those of MPI, and not merely what the core did once.
#[test]
fn the_recorded_answers_are_those_of_the_model() {
    replay("the model", &mut Model::new());
}

/// Replays the trace on the core, over the rails of the simulator.
fn simulate(place: &str, rail_params: Vec<RailParams>, links: Option<LinkParams>, faults: Faults, seed: u64) {
    let net = Net::new(CONTEXTS, rail_params, faults, Random::new(seed));
    // Dropped after the transports, whose links use this memory.
    let mut memories = vec![];
    let mut sides: Vec<Mtl<'_, NodeRails<'_>>> = vec![];
    for at in 0..CONTEXTS {
        let (rails, links) = NodeRails::new(net.rails(at), links, u64::from(at) + 1, CONTEXTS);
        let attributes: Vec<_> = rails.0.iter().map(Rail::attributes).collect();
        let bytes = Mtl::<'_, NodeRails<'_>>::bytes(&CONFIG, COMMUNICATORS, &attributes);
        // Leaked, since the transports are in one vector.
        let block = vec![0; bytes].leak();
        sides.push(Mtl::new(CONFIG, COMMUNICATORS, &mut Arena::new(block), rails).expect("enough memory"));
        memories.push(links);
    }
    let card = |side: &Mtl<'_, NodeRails<'_>>| -> Vec<Vec<u8>> {
        side.rails().0.iter().map(|rail| rail.card().to_vec()).collect()
    };
    let cards: Vec<_> = sides.iter().map(card).collect();
    for side in &mut sides {
        for (peer, cards) in (0..).zip(&cards) {
            let params = side.params();
            let reach =
                |index: usize, rail: &mut <NodeRails<'_> as Rails>::Rail| rail.add_peer(Peer(peer), &cards[index]);
            side.add_peer(Peer(peer), &params, reach).expect("the peer is reached");
        }
    }
    let mut now = 0;
    let clock = || {
        now += STEP;
        net.advance(now);
        Instant::from_nanos(now)
    };
    let mut tables = vec![0; Direct::<'_, '_, NodeRails<'_>, fn() -> Instant>::bytes(TABLES)];
    let mut memory = vec![0; MEMORY];
    let mut contexts = Direct::new(&mut sides, &mut memory, Arena::new(&mut tables), clock).expect("enough memory");
    replay(&format!("the simulator, {place}, seed {seed}"), &mut contexts);
    let unused = |side: &mut Mtl<'_, NodeRails<'_>>| side.pml().used() == [0; 3];
    assert!(contexts.sides().iter_mut().all(unused), "{place}, seed {seed}: something is still in use");
}

/// Links that give a peer up after a second.
const LINKS: LinkParams = LinkParams {
    defaults: false,
    dead_after: 1_000_000_000,
    least_timeout: 100_000,
    ack_delay: 10_000,
    window: 16,
    slots: 24,
    deliveries: 4,
    first_number: u64::MAX - 100,
    ..LinkParams::DEFAULTS
};

#[test]
fn the_simulator_gives_the_recorded_answers() {
    let short = RailParams { eager_limit: 512, max_send_size: 512, min_fragment: 100, ..RailParams::default() };
    for seed in 0..10 {
        let reliable = Faults::reliable(&mut Random::new(seed));
        simulate("two reliable rails", vec![short, RailParams::default()], None, reliable, seed);
        let losses = Faults { drop: 50, duplicate: 30, corrupt: 30, jitter: 20_000, ..Faults::default() };
        simulate("two rails of datagrams", vec![short.datagrams(); 2], Some(LINKS), losses, seed);
    }
}

/// Devices over loopback rails, and their hosts.
pub fn looped_devices() -> Offloaded<[Loopback<'static>; 1]> {
    let block = vec![0; Hub::cost(CONTEXTS, 8, 512)].leak();
    let hub = Box::leak(Box::new(Hub::new(&mut Arena::new(block), CONTEXTS, 8, 512).expect("enough memory")));
    let device = |at| {
        let window = Window::new();
        (Dpu::looped(&window, &LIMITS, at, hub), window)
    };
    let mut now = 0;
    let clock = move || {
        now += STEP;
        now
    };
    Offloaded::new((0..CONTEXTS).map(device).collect(), Box::new(clock))
}

#[test]
fn devices_give_the_recorded_answers() {
    let mut contexts = looped_devices();
    replay("devices over loopback rails", &mut contexts);
    contexts.check_unused();
}

#[test]
fn devices_on_a_bad_network_give_the_recorded_answers() {
    let all = [
        network::Faults::default(),
        network::Faults { lose: 100, ..network::Faults::default() },
        network::Faults { lose: 30, repeat: 30, corrupt: 30, jitter: 20_000 },
    ];
    for (seed, faults) in (0..).zip(all.into_iter().cycle().take(9)) {
        // Every second seed has two links.
        let count = 1 + seed as usize % 2;
        let network = |link| {
            Network::new(CONTEXTS as usize, 300 + 100 * seed as usize, faults, Random::new(seed + 100 * link as u64))
        };
        let networks: Rc<[_]> = (0..count).map(network).collect();
        let device = |at| {
            let window = Window::new();
            let ports = [0, 1].map(|link| networks.get(link).map(|network| network.plug(at as usize)));
            (Dpu::plugged_twice(&window, &LIMITS, at + 1, ports), window)
        };
        let now = Rc::new(Cell::new(0));
        let shared = (networks.clone(), now.clone());
        let clock = move || {
            let (networks, now) = &shared;
            now.set(now.get() + STEP);
            networks.iter().for_each(|network| network.advance(now.get()));
            now.get()
        };
        let mut contexts = Offloaded::new((0..CONTEXTS).map(device).collect(), Box::new(clock));
        replay(&format!("devices with {count} links, {faults:?}, seed {seed}"), &mut contexts);
        contexts.check_unused();
        for counts in networks.iter().map(Network::counts) {
            let done =
                [(faults.lose, counts.lost), (faults.repeat, counts.repeated), (faults.corrupt, counts.corrupted)];
            assert!(done.iter().all(|(chance, count)| (*chance == 0) == (*count == 0)), "{counts:?}");
        }
    }
}
