//! The BTL face over a bundle: frames arrive once while links are cut, and in order where order is asked for.

use std::cell::RefCell;

use towline_core::arena::Arena;
use towline_core::btl::active::Received;
use towline_core::btl::descriptor::{DescriptorFlags, NO_ORDER};
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::btl::module::{Btl, Completed, Completion, Config, Consumer};
use towline_core::rail::{Rail, Unreachable, tags};
use towline_core::time::Instant;
use towline_host_tests::random::Random;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::faults::{Faults, RailParams};

use crate::cuts::{Seed, outages};
use crate::setup::{TestBundle, bundle};

const FRAMES: u64 = 300;
/// Each frame whose number is a multiple of this is ordered.
const ORDERED: u64 = 7;

/// The numbers of the frames that arrived.
#[derive(Debug, Default)]
struct Inbox(RefCell<Vec<u64>>);

impl Consumer<TestBundle> for Inbox {
    fn receive(&self, _: &mut Btl<'_, TestBundle>, received: &Received<'_>) {
        let (name, rest) = received.data().split_first_chunk().expect("each frame begins with its number");
        let name = u64::from_le_bytes(*name);
        assert!(rest.iter().all(|byte| *byte == name as u8), "frame {name} has other bytes");
        self.0.borrow_mut().push(name);
    }
}

/// The order values of the sends that are complete.
#[derive(Debug, Default)]
struct Orders(RefCell<Vec<u8>>);

impl Completed<TestBundle> for Orders {
    fn completed(&self, _: &mut Btl<'_, TestBundle>, completion: Completion) {
        assert_eq!(completion.status, Ok(()));
        self.0.borrow_mut().push(completion.order);
    }
}

fn leak<T: Default>() -> &'static T {
    Box::leak(Box::default())
}

struct Pair {
    modules: Vec<Btl<'static, TestBundle>>,
    to: Vec<EndpointId>,
    orders: &'static Orders,
}

impl Pair {
    fn new(net: &Net) -> Self {
        let bundles = [0, 1].map(|node| bundle(net, node));
        let cards = [0, 1].map(|node: usize| bundles[node].card().to_vec());
        let config = Config::default();
        let open = |rail: TestBundle| {
            let bytes = config.bytes::<TestBundle>(rail.attributes());
            Btl::new(config, &mut Arena::new(vec![0; bytes].leak()), rail).expect("the memory is large enough")
        };
        let mut modules: Vec<_> = bundles.into_iter().map(open).collect();
        let mut add = |node: usize| {
            let mut endpoint = [Err(Unreachable::NoCard)];
            modules[node].add_procs(&[Proc { id: 0, card: &cards[1 - node] }], &mut endpoint, None);
            endpoint[0].expect("they reach each other")
        };
        let to = vec![add(0), add(1)];
        Self { modules, to, orders: leak() }
    }

    /// Sends the frame of a number, if there is a descriptor and a slot for it.
    fn try_send(&mut self, name: u64, random: &mut Random) -> bool {
        let (btl, to) = (&mut self.modules[0], self.to[0]);
        let order = match self.orders.0.borrow().last() {
            Some(order) if name.is_multiple_of(ORDERED) => *order,
            None if name.is_multiple_of(ORDERED) && name != 0 => return false,
            _ => NO_ORDER,
        };
        let limits = btl.rail().attributes();
        let most = random.pick(&[60, limits.eager_limit, limits.max_send_size]);
        let len = random.between(8, u64::from(most)) as usize;
        let flags = DescriptorFlags::BTL_OWNERSHIP | DescriptorFlags::SEND_ALWAYS_CALLBACK;
        let Ok(descriptor) = btl.alloc(to, order, len, flags) else { return false };
        let memory = btl.memory(descriptor).expect("it is not in flight");
        memory[..8].copy_from_slice(&name.to_le_bytes());
        memory[8..len].fill(name as u8);
        btl.properties_mut(descriptor).expect("it is not free").callback = Some(self.orders);
        btl.send(to, descriptor, tags::USR).is_ok()
    }

    fn is_drained(&self) -> bool {
        self.modules.iter().all(Btl::is_drained)
    }
}

fn run(seed: u64, params: RailParams, faults: Faults) {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let net = Net::new(2, vec![params; 2], faults, random.fork());
    let mut pair = Pair::new(&net);
    let inbox: &Inbox = leak();
    pair.modules[1].register(tags::USR, inbox).expect("the tag is free");
    let (mut now, mut sent) = (0u64, 0u64);
    for _ in 0..10_000_000u64 {
        let got = inbox.0.borrow();
        if sent == FRAMES && got.len() as u64 >= FRAMES && pair.is_drained() {
            let mut sorted = got.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..FRAMES), "each frame arrives once");
            for (place, name) in got.iter().enumerate().filter(|(_, name)| name.is_multiple_of(ORDERED)) {
                let earlier = got[..place].iter().filter(|other| *other < name).count() as u64;
                assert_eq!(earlier, *name, "frame {name} has overtaken others");
            }
            assert!(pair.modules[0].rail().counters().links_down > 1);
            return;
        }
        drop(got);
        // The flow lasts for several outages.
        if sent < FRAMES && now / 800_000 >= sent && pair.try_send(sent, &mut random) {
            sent += 1;
        }
        for module in &mut pair.modules {
            module.progress(Instant::from_nanos(now));
        }
        let next = pair.modules.iter().filter_map(Btl::poll_at).map(Instant::as_nanos).chain(net.next_at()).min();
        now = next.unwrap_or(u64::MAX).clamp(now + 200, now + 50_000);
    }
    let counters: Vec<_> = pair.modules.iter().map(|module| (module.counters(), module.rail().counters())).collect();
    panic!("not all frames have arrived in time: {sent} sent, {counters:#?}");
}

#[test]
fn b47_a_module_over_a_bundle_keeps_order_while_connections_break() {
    for seed in 0..15 {
        let faults = Faults {
            outages: outages(3),
            jitter: 20_000,
            late_body: 500,
            in_place: 500,
            staged: 300,
            ..Faults::default()
        };
        run(seed, RailParams { frames_kept: 3, ..RailParams::default() }, faults);
    }
}

#[test]
fn b47_a_module_over_a_bundle_keeps_order_while_datagrams_are_lost() {
    for seed in 0..15 {
        let faults = Faults {
            outages: outages(3),
            drop: 50,
            duplicate: 30,
            corrupt: 30,
            jitter: 20_000,
            late_body: 500,
            in_place: 500,
            ..Faults::default()
        };
        run(seed, RailParams { frames_kept: 3, ..RailParams::default() }.datagrams(), faults);
    }
}
