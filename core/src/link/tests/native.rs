//! One-sided operations of the rail below a link.

use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec;

use crate::arena::Arena;
use crate::convertor::Span;
use crate::link::{Config, Crc32c, Link};
use crate::rail::access::Access;
use crate::rail::atomics::{Atomic, AtomicFlags, AtomicOp, AtomicSupport};
use crate::rail::native::{Native, NativeError, OneSided, Reach, Region, Work};
use crate::rail::testing::{Device, Script, Scripted, rails};
use crate::rail::*;
use crate::time::Instant;

type End = Link<'static, Scripted, Crc32c>;

const CAN: OneSided = OneSided { put: Reach::ANY, atomics: AtomicSupport::ADD, ..OneSided::NONE };

/// Two links over rails with devices, and the script of the first rail.
fn ends() -> ([End; 2], Rc<RefCell<Script>>) {
    let mut raws = rails(2);
    raws.iter_mut().for_each(|raw| {
        raw.attributes.one_sided = CAN;
        raw.attributes.eager_limit = 128;
        raw.attributes.capabilities |= Capabilities::PUT | Capabilities::ATOMIC_FOPS;
    });
    let script = raws[0].script.clone();
    let link = |(end, raw): (u64, Scripted)| {
        let config = Config { peers: 1, slots: 8, ..Config::new(0, 1000 + end, raw.attributes()) };
        let block = vec![0; config.bytes(&raw)].leak();
        Link::new(raw, Crc32c, config, &mut Arena::new(block)).unwrap()
    };
    let [one, other] = <[Scripted; 2]>::try_from(raws).unwrap();
    ([(0, one), (1, other)].map(link), script)
}

fn add_each_other(links: &mut [End; 2]) -> [Endpoint; 2] {
    let cards = links.each_ref().map(|link| link.card().to_vec());
    [0, 1].map(|at| links[at].add_peer(Peer(1 - at as u32), &cards[1 - at]).unwrap())
}

/// A word of one end, with the value 40; and an operation that adds 2 to it.
fn word_of(link: &mut End) -> (&'static AtomicU64, Region, Native) {
    let word: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(40)));
    // SAFETY: leaked memory, which is accessed by atomics only.
    let registered = unsafe { link.register(word.as_ptr().cast(), 8, Access::REMOTE_ATOMIC) };
    let (region, key) = registered.unwrap();
    let work = Work::Atomic(Atomic::Op(AtomicOp::Add, 2), AtomicFlags::empty());
    (word, region, Native { work, key, offset: 0 })
}

fn perform(link: &mut End, to: Endpoint, native: &Native) -> Result<Option<u64>, NativeError> {
    // SAFETY: no local memory is involved.
    unsafe { link.perform(to, native, Cookie(7)) }
}

/// The first operation is answered `Busy`, and begins the handshake of the two ends.
fn connect(links: &mut [End; 2], to: Endpoint, native: &Native) {
    assert_eq!(perform(&mut links[0], to, native), Err(NativeError::Busy));
    for nanos in 0..3 {
        for link in links.iter_mut().rev() {
            assert!(matches!(link.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(..))));
        }
    }
}

/// Operations begin after the handshake. The link passes on the rail's reports of their ends. Operations end with the link.
#[test]
fn b18_operations_of_a_device_go_through_a_link() {
    let (mut links, script) = ends();
    assert_eq!(links[0].attributes().one_sided, CAN);
    assert!(links[0].attributes().capabilities.contains(Capabilities::PUT | Capabilities::ATOMIC_FOPS));
    let [to, _] = add_each_other(&mut links);
    let (word, region, add) = word_of(&mut links[1]);
    connect(&mut links, to, &add);
    script.borrow_mut().device.extend([Device::Now, Device::Late, Device::Late]);
    assert_eq!(perform(&mut links[0], to, &add), Ok(Some(40)));
    assert_eq!(perform(&mut links[0], to, &add), Ok(None));
    let told = links[0].poll(Instant::from_nanos(9));
    assert!(matches!(told, Some(Event::Performed(Cookie(7), Ok(42)))), "{told:?}");
    // This operation is in progress when the peer is deleted. Its end is not reported, and it is not done.
    assert_eq!(perform(&mut links[0], to, &add), Ok(None));
    links[0].del_peer(to);
    assert_eq!(perform(&mut links[0], to, &add), Err(NativeError::Unreachable));
    assert!((0..9).all(|nanos| links[0].poll(Instant::from_nanos(10 + nanos)).is_none()));
    links[1].deregister(region);
    assert_eq!(word.load(Relaxed), 44);
}

/// A frame that another link has brought is claimed while the rail below writes the body of its first arrival. That rail has
/// to delete the peer, and with it the operations of its device. Then the link goes down; otherwise a user would wait for the
/// operation forever.
#[test]
fn b18_p14_a_claim_that_ends_operations_of_a_device_ends_the_link() {
    let (mut links, script) = ends();
    let number = Config::new(0, 1001, links[1].raw().attributes()).first_number as u32;
    let [to, back] = add_each_other(&mut links);
    let (word, _, add) = word_of(&mut links[1]);
    connect(&mut links, to, &add);
    (script.borrow_mut().device_is_late, script.borrow_mut().slow_delivery) = (true, true);
    assert_eq!(perform(&mut links[0], to, &add), Ok(None));
    let (body, mut sink) = ([7; 90], [0; 90]);
    let shape = Shape { tag: 0x41, lane: Lane::Bulk, header: 10, len: 100 };
    // SAFETY: the body outlives the links.
    unsafe { links[1].send(back, shape, &[1; 10], Span::of(&body), Cookie(3)) }.unwrap();
    let frame = (4..30).find_map(|nanos| {
        links[1].poll(Instant::from_nanos(nanos));
        links[0]
            .poll(Instant::from_nanos(nanos))
            .and_then(|event| if let Event::Frame(frame) = event { Some(frame.id) } else { None })
    });
    // SAFETY: the sink outlives the links.
    let delivery = unsafe { links[0].deliver(frame.unwrap(), 10, Span::contiguous(sink.as_mut_ptr(), 90), Cookie(9)) };
    assert_eq!(delivery, Delivery::Pending);
    let claim = links[0].claim(to, Origin { link: 0, number });
    assert!(matches!(claim, Some(Claim::Awaited { skip: 10, cookie: Cookie(9), .. })), "{claim:?}");
    let told = (40..60).find_map(|nanos| links[0].poll(Instant::from_nanos(nanos)));
    assert!(matches!(told, Some(Event::Down(Peer(1), _))), "{told:?}");
    assert_eq!((word.load(Relaxed), sink), (40, [0; 90]), "neither is touched any more");
}
