//! A message that is longer than the windows, between the hosts of DPUs.

use towline_core::convertor::Span;
use towline_core::pml::offload::{Delivered, Ended, Offload as _, Operation};
use towline_core::pml::{Mode, Request, Sending};
use towline_core::rail::Peer;
use towline_dpu::{Matching, Options, Transport};
use towline_host_tests::pattern::patterned;

use crate::processes::{Dpus, Protocol, wait};

/// Longer than a window.
const LONG: usize = (16 << 20) + 12345;

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_message_that_is_longer_than_the_windows_arrives() {
    let dpus = Dpus::start("pieces", 2, Protocol::Udp);
    let mut hosts = [0, 1].map(|number| {
        let (file, offset) = dpus.place(number);
        // The hosts say nothing of their memory, so even a process does not reach it.
        Matching::new(Transport::open_at(&file, offset, Options::default()).unwrap())
    });
    let cards = hosts.each_mut().map(|host| host.card().unwrap());
    let mut rank = 0;
    let comms = hosts.each_mut().map(|host| {
        for (peer, card) in (0..).zip(&cards) {
            host.add_peer(peer, card).unwrap();
        }
        rank += 1;
        host.add_comm(1, &mut [0, 1].map(Peer).into_iter(), rank - 1, false).unwrap().unwrap()
    });
    let (long, mut memory) = (patterned(1, LONG), vec![0; LONG]);
    let request = Request::from_bits(1 << 32);
    let operation = |comm, rank| Operation { request, comm, rank, peer: rank, tag: 3 };
    // SAFETY: the memory lives, and is not used, until both have ended.
    unsafe {
        hosts[1].irecv(&operation(comms[1], 0), Span::contiguous(memory.as_mut_ptr(), LONG)).unwrap();
        let sent = hosts[0].isend(&operation(comms[0], 1), Mode::Standard, Span::of(&long));
        assert_eq!(sent, Ok(Sending::Pending(request)));
    }
    let mut ends = [None; 2];
    wait("the message", || {
        for (host, end) in hosts.iter_mut().zip(&mut ends) {
            *end = end.or_else(|| host.next_ended());
        }
        ends.iter().all(Option::is_some).then_some(())
    });
    let got = Delivered { peer: 0, tag: 3, received: LONG as u64 };
    let expected = [Delivered::default(), got].map(|delivered| Some(Ended { request, outcome: Ok(delivered) }));
    assert_eq!(ends, expected);
    assert!(memory == long);
}
