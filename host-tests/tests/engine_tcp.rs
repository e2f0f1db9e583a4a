//! The engine over TCP, with one link and with three: messages of all sizes in both directions at once, compared byte
//! by byte.

use std::time::Instant as Clock;

use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mode, Mtl, Request, Sending, Source, Tag};
use towline_core::pml::{Config, Rails};
use towline_core::rail::{Peer, Rail as _};
use towline_core::time::Instant;
use towline_host_tests::pattern::patterned;
use towline_tcp::{JobKey, Rail};

const SIZES: [usize; 10] = [0, 1, 8, 57, 4000, 17_000, 65_000, 66_000, 1 << 20, (4 << 20) + 3];

fn links<const N: usize>(rank: u32) -> [Rail; N] {
    std::array::from_fn(|link| {
        let mut config = towline_tcp::Config::new(5, rank, JobKey::new([1; 32]));
        config.link = link as u8;
        Rail::new(config).expect("this host has a loopback")
    })
}

fn engines<const N: usize>() -> Vec<(Mtl<'static, [Rail; N]>, Comm)> {
    let config = Config { peers: 2, requests: 64, unexpected: 64, units: 64, unit_bytes: 512, ..Config::SMALLEST };
    let rails = [links::<N>(0), links::<N>(1)];
    let cards = rails.each_ref().map(|rails| rails.each_ref().map(|rail| rail.card().to_vec()));
    let mut engines: Vec<_> = rails
        .into_iter()
        .map(|rails| {
            let room =
                vec![0; Mtl::<[Rail; N]>::bytes(&config, 2, &rails.each_ref().map(|rail| rail.attributes()))].leak();
            Mtl::new(config, 2, &mut Arena::new(room), rails).expect("room for all tables")
        })
        .collect();
    let params = [engines[0].params(), engines[1].params()];
    for (own, engine) in engines.iter_mut().enumerate() {
        let peer = 1 - own;
        let reach = |link: usize, rail: &mut Rail| rail.add_peer(Peer(peer as u32), &cards[peer][link]);
        engine.add_peer(Peer(peer as u32), &params[peer], reach).expect("both ranks are on this host");
    }
    let world = |(rank, mut engine): (usize, Mtl<'static, [Rail; N]>)| {
        let comm = engine.add_comm(1, Group::World { size: 2 }, rank as u32).expect("room for it");
        (engine, comm)
    };
    engines.into_iter().enumerate().map(world).collect()
}

fn exchange<const N: usize>() {
    let mut engines = engines::<N>();
    let start = Clock::now();
    for turn in 0..3 {
        let out: Vec<Vec<u8>> = (0..2).map(|own| patterned(turn * 2 + own, SIZES[9])).collect();
        let mut into = vec![vec![vec![0_u8; SIZES[9]]; SIZES.len()]; 2];
        let mut open: Vec<(usize, usize, Option<usize>, Request)> = vec![];
        for (own, (engine, comm)) in engines.iter_mut().enumerate() {
            let peer = 1 - own as u32;
            for (tag, len) in SIZES.into_iter().enumerate() {
                let sink = &mut into[own][tag];
                let sink = Span::contiguous(sink.as_mut_ptr(), sink.len());
                // SAFETY: the memory outlives the requests, which complete within the turn, and is read only after
                // that.
                unsafe {
                    let tag = tag as u32;
                    let receive = engine.irecv(*comm, Source::Rank(peer), Tag::Is(tag), sink).expect("room");
                    open.push((own, len, Some(tag as usize), receive));
                    let body = Span::of(&out[own][..len]);
                    match engine.isend(*comm, peer, tag, Mode::Standard, body).expect("room") {
                        Sending::Complete => {}
                        Sending::Pending(send) => open.push((own, len, None, send)),
                    }
                }
            }
        }
        let mut rounds = 0;
        while !open.is_empty() {
            let now = Instant::from_nanos(start.elapsed().as_nanos() as u64);
            for (engine, _) in &mut engines {
                engine.progress(now);
            }
            open.retain(|(own, len, tag, request)| {
                let Some(outcome) = engines[*own].0.test(*request) else { return true };
                let status = outcome.expect("no failure");
                if let Some(tag) = tag {
                    assert_eq!(status.delivered as usize, *len);
                    assert!(into[*own][*tag][..*len] == out[1 - *own][..*len], "{len} bytes differ");
                }
                false
            });
            rounds += 1;
            assert!(rounds < 10_000_000, "{} requests did not complete", open.len());
        }
    }
    for (engine, _) in &engines {
        for link in 0..N {
            let counters = engine.rails().rail(link).expect("there is a rail for each link").counters();
            assert_eq!((counters.established, counters.lost), (1, 0), "link {link}: {counters:?}");
        }
    }
}

#[test]
fn messages_of_all_sizes_over_one_link() {
    exchange::<1>();
}

#[test]
fn p13_messages_of_all_sizes_over_three_links() {
    exchange::<3>();
}
