//! Messages between two hosts.

use towline_core::convertor::Span;
use towline_dpu::{Comm, Failure, Mode, Source, Status, Tag, Transport};

/// Two hosts that know each other, and a communicator of both.
pub fn acquaint(mut hosts: [Transport; 2]) -> ([Transport; 2], [Comm; 2]) {
    let cards = hosts.each_mut().map(|host| host.card().unwrap());
    let mut rank = 0;
    let comms = hosts.each_mut().map(|host| {
        host.add_peer(1 - rank, &cards[1 - rank as usize]).unwrap();
        rank += 1;
        host.add_comm(1, &[0, 1], rank - 1).unwrap()
    });
    (hosts, comms)
}

/// Bytes that are not 0.
pub fn pattern(length: usize, seed: u32) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(seed) as u8 | 1).collect()
}

pub fn sink(into: &mut [u8]) -> Span {
    Span::contiguous(into.as_mut_ptr(), into.len())
}

/// Sends messages of these lengths from the first to the second host in each mode, before and after their receives.
pub fn pass_in_every_mode([mut a, mut b]: [Transport; 2], comms: [Comm; 2], lengths: &[usize]) {
    for (tag, &length) in (0..).zip(lengths) {
        let (bytes, mut into) = (pattern(length, tag), vec![0; length]);
        for (mode, posted) in
            [(Mode::Standard, false), (Mode::Synchronous, true), (Mode::Complete, false), (Mode::Ready, true)]
        {
            into.fill(0);
            let sink = sink(&mut into);
            // SAFETY: the vectors outlive the operations.
            let (early, sent, received) = unsafe {
                let mut post = || b.irecv(comms[1], Source::Rank(0), Tag::Any, sink).unwrap();
                let early = posted.then(&mut post);
                if posted {
                    // The receive is in the device when a later command is over.
                    assert!(b.iprobe(comms[1], Source::Rank(0), Tag::Is(9999)).unwrap().is_none());
                }
                let sent = a.isend(comms[0], 1, tag, mode, Span::of(&bytes)).unwrap();
                (early, sent, early.unwrap_or_else(|| b.irecv(comms[1], Source::Any, Tag::Is(tag), sink).unwrap()))
            };
            assert_eq!(early.is_some(), posted);
            let length = length as u64;
            assert_eq!(b.wait(received), Ok(Status { rank: 0, tag, received: length, delivered: length }));
            assert!(a.wait(sent).is_ok());
            assert!(into == bytes, "{length} bytes were changed");
            assert_eq!(b.test(received), Some(Err(Failure::NoRequest)));
        }
    }
}
