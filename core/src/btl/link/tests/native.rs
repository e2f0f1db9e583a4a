//! One-sided operations of the rail below a link.

use std::{vec, vec::Vec};

use crate::arena::Arena;
use crate::btl::access::Access;
use crate::btl::atomics::{Atomic, AtomicFlags, AtomicOp, AtomicSupport};
use crate::btl::link::{Config, Crc32c, Link};
use crate::btl::native::{Native, NativeError, OneSided, Reach, Work};
use crate::btl::testing::{Device, Scripted, rails};
use crate::btl::*;
use crate::time::Instant;

/// They begin when the two ends have met, are told as the rail tells them, and end with the link.
#[test]
fn b18_what_the_rail_does_itself_goes_through_a_link() {
    let can = OneSided { put: Reach::ANY, get: Reach::NONE, atomics: AtomicSupport::ADD, ..OneSided::NONE };
    let mut raws = rails(2);
    raws.iter_mut().for_each(|raw| {
        raw.attributes.one_sided = can;
        raw.attributes.capabilities |= Capabilities::PUT | Capabilities::ATOMIC_FOPS;
    });
    let script = raws[0].script.clone();
    let mut links: Vec<Link<'_, Scripted, Crc32c>> = (0u64..)
        .zip(raws)
        .map(|(end, raw)| {
            let config = Config { peers: 1, slots: 8, ..Config::new(0, 1000 + end, raw.attributes()) };
            let block = vec![0; config.bytes(&raw)].leak();
            Link::new(raw, Crc32c, config, &mut Arena::new(block)).unwrap()
        })
        .collect();
    assert_eq!(links[0].attributes().one_sided, can);
    assert!(links[0].attributes().capabilities.contains(Capabilities::PUT | Capabilities::ATOMIC_FOPS));
    let cards: Vec<Vec<u8>> = links.iter().map(|link| link.card().to_vec()).collect();
    let to = links[0].add_peer(Peer(1), &cards[1]).unwrap();
    links[1].add_peer(Peer(0), &cards[0]).unwrap();

    let word: &'static mut u64 = vec![40u64].leak().first_mut().unwrap();
    // SAFETY: leaked memory, at which nobody looks before it is deregistered.
    let registered = unsafe { links[1].register((&raw mut *word).cast(), 8, Access::REMOTE_ATOMIC) };
    let (region, key) = registered.unwrap();
    let work = Work::Atomic(Atomic::Op(AtomicOp::Add, 2), AtomicFlags::empty());
    let native = Native { work, key, offset: 0 };
    // SAFETY: no local memory is involved.
    let perform = |link: &mut Link<'_, Scripted, Crc32c>| unsafe { link.perform(to, &native, Cookie(7)) };
    assert_eq!(perform(&mut links[0]), Err(NativeError::Busy), "they have to meet first, and now they do");
    for nanos in 0..3 {
        for link in links.iter_mut().rev() {
            assert!(matches!(link.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(..))));
        }
    }
    script.borrow_mut().device.extend([Device::Now, Device::Late, Device::Late]);
    assert_eq!(perform(&mut links[0]), Ok(Some(40)));
    assert_eq!(perform(&mut links[0]), Ok(None));
    let told = links[0].poll(Instant::from_nanos(9));
    assert!(matches!(told, Some(Event::Performed(Cookie(7), Ok(42)))), "{told:?}");
    // Under way when the peer is forgotten: nobody hears of it any more, and it is not done.
    assert_eq!(perform(&mut links[0]), Ok(None));
    links[0].del_peer(to);
    assert_eq!(perform(&mut links[0]), Err(NativeError::Unreachable));
    assert!((0..9).all(|nanos| links[0].poll(Instant::from_nanos(10 + nanos)).is_none()));
    links[1].deregister(region);
    assert_eq!(*word, 44);
}
