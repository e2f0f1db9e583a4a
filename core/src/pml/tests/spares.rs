//! Spare rails: a rail that has no room for more frames to a peer is followed by the spare, without loss.

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::basic::{bytes, from, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::*;
use crate::rail::testing::{Answer, Scripted, rails};
use crate::rail::{Endpoint, Event, Lost, Peer, Rail, Unreachable};
use crate::time::Instant;

/// Two rails, of which the second is polled once it is used.
struct WithSpare {
    rails: [Scripted; 2],
    polled: usize,
}

impl Rails for WithSpare {
    type Rail = Scripted;

    fn count(&self) -> usize {
        self.rails.len()
    }

    fn polled(&self) -> usize {
        self.polled
    }

    fn poll_spares(&mut self) {
        self.polled = self.rails.len();
    }

    fn rail(&self, index: usize) -> Option<&Scripted> {
        self.rails.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut Scripted> {
        self.rails.get_mut(index)
    }
}

type Engine = Pml<'static, WithSpare>;

const CONFIG: Config =
    Config { peers: 2, requests: 64, unexpected: 64, units: 64, unit_bytes: 512, ..Config::SMALLEST };

/// Two engines with a rail between them, and a spare if `spare`.
fn pair(spare: bool) -> [Engine; 2] {
    let mut ends = [rails(2), rails(2)].map(Vec::into_iter);
    let mut engines = [0, 1].map(|_| {
        let rails = [0, 1].map(|index: usize| ends[index].next().unwrap());
        let bytes = CONFIG.bytes(&rails.each_ref().map(Rail::attributes));
        Pml::new(CONFIG, &mut Arena::new(memory(bytes)), WithSpare { rails, polled: 1 }).unwrap()
    });
    let params = [engines[0].params(), engines[1].params()];
    for (at, other) in [(0, 1), (1, 0)] {
        let (engine, peer) = (&mut engines[at], Peer(other));
        let add = |rail: &mut Scripted| rail.add_peer(peer, &other.to_le_bytes());
        let reach = |index: usize, rail: &mut Scripted| -> Result<Endpoint, Unreachable> {
            if index == 0 { add(rail) } else { Err(Unreachable::NoCard) }
        };
        engine.add_peer(peer, &params[other as usize], reach).unwrap();
        if spare {
            let endpoint = engine.rails_mut().rails[1].add_peer(peer, &other.to_le_bytes()).unwrap();
            engine.add_spare(peer, 1, endpoint).unwrap();
            assert_eq!(engine.add_spare(peer, 1, endpoint), Err(Unreachable::Full), "it is the spare already");
        }
    }
    engines
}

fn script(engine: &Engine, rail: usize) -> std::cell::RefMut<'_, crate::rail::testing::Script> {
    engine.rails().rails[rail].script.borrow_mut()
}

/// How many frames were sent by each rail.
fn sent(engine: &Engine) -> [usize; 2] {
    [0, 1].map(|rail| script(engine, rail).log.len())
}

fn turn(engines: &mut [Engine; 2]) {
    engines.iter_mut().for_each(|engine| {
        engine.progress(Instant::ZERO);
    });
}

/// Sends a message. Nobody takes the outcome.
fn send(engine: &mut Engine, to: u32, tag: u32, len: usize) {
    let data: &[u8] = Box::leak(bytes(len, tag as u8).into_boxed_slice());
    // SAFETY: the memory is there forever.
    let _ = unsafe { engine.isend(Peer(to), 1, tag, Mode::Standard, Span::of(data)) }.unwrap();
}

/// Receives a message and checks it.
fn receive(engines: &mut [Engine; 2], at: usize, tag: u32, len: usize) {
    let mut into = vec![0; len];
    let pattern = from(1 - at as u32, tag);
    // SAFETY: the buffer lives until the request is over, at the end of this function.
    let request = unsafe { engines[at].irecv(pattern, Span::contiguous(into.as_mut_ptr(), len)) }.unwrap();
    for _ in 0..10_000 {
        turn(engines);
        if let Some(outcome) = engines[at].test(request) {
            outcome.unwrap();
            assert!(into == bytes(len, tag as u8), "tag {tag}");
            return;
        }
    }
    panic!("tag {tag} did not come");
}

/// The rail takes no more frames to the other engine, and reports that.
fn leave(engine: &Engine, peer: u32) {
    script(engine, 0).always = Some(Answer::Unreachable);
    script(engine, 0).events.push_back(Event::Down(Peer(peer), Lost::NoRoom));
}

#[test]
fn a_peer_whose_rail_has_no_room_is_reached_by_the_spare_without_loss() {
    let mut engines = pair(true);
    for (tag, len) in [(1, 30), (2, 5000)] {
        send(&mut engines[0], 1, tag, len);
        receive(&mut engines, 1, tag, len);
    }
    assert_eq!((sent(&engines[0])[1], engines[0].rails().polled), (0, 1), "the spare is not used");

    // Frames that the rail has accepted are delivered, and new ones of all kinds go by the spare, in the order of the sends. The other
    // side still sends by the rail, since it does not know yet.
    let waiting = [(3, 30), (4, 5000)];
    waiting.iter().for_each(|(tag, len)| send(&mut engines[0], 1, *tag, *len));
    leave(&engines[0], 1);
    [(5, 30), (6, 5000)].iter().for_each(|(tag, len)| send(&mut engines[0], 1, *tag, *len));
    send(&mut engines[1], 0, 7, 5000);
    for _ in 0..20 {
        turn(&mut engines);
    }
    assert!(engines[0].rails().polled == 2 && engines[1].rails().polled == 1);
    leave(&engines[1], 0);
    for (tag, len) in [(3, 30), (4, 5000), (5, 30), (6, 5000)] {
        receive(&mut engines, 1, tag, len);
    }
    receive(&mut engines, 0, 7, 5000);
    let before = sent(&engines[0])[0];
    for (tag, len) in [(8, 30), (9, 5000)] {
        send(&mut engines[0], 1, tag, len);
        receive(&mut engines, 1, tag, len);
        send(&mut engines[1], 0, tag, len);
        receive(&mut engines, 0, tag, len);
    }
    assert_eq!(sent(&engines[0])[0], before, "the rail takes no more");
    assert!([0, 1].iter().all(|at| engines[*at].why_lost(Peer(1 - *at as u32)).is_none()));
}

#[test]
fn a_peer_whose_only_rail_has_no_room_is_lost_for_that_reason() {
    let mut engines = pair(false);
    leave(&engines[0], 1);
    turn(&mut engines);
    assert_eq!(engines[0].why_lost(Peer(1)), Some(Lost::NoRoom));
}

/// The peer has sent a message by the rail, left it, and ended: the spare reports the end, and the message is still in the rail.
#[test]
fn the_end_of_a_peer_that_the_spare_reports_waits_for_frames_of_the_rail_before() {
    let mut engines = pair(true);
    send(&mut engines[0], 1, 1, 30);
    leave(&engines[1], 0);
    engines[1].progress(Instant::ZERO);
    assert_eq!(engines[1].rails().polled, 2);
    script(&engines[1], 0).ends_after_frames = true;
    engines[1].rail_lost(1, Peer(0), Lost::Closed);
    assert_eq!((&script(&engines[1], 0).ends[..], engines[1].why_lost(Peer(0))), (&[Lost::Closed][..], None));
    receive(&mut engines, 1, 1, 30);
    script(&engines[1], 0).events.push_back(Event::Lost(Peer(0), Lost::Closed));
    turn(&mut engines);
    assert_eq!(engines[1].why_lost(Peer(0)), Some(Lost::Closed));
}
