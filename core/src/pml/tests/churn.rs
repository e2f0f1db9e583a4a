//! Random operations on messages at any stage, including exposed ones: no resource is leaked, no memory is overwritten, and no
//! operation waits forever.

use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::basic::{bytes, memory};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::*;
use crate::rail::testing::{Answer, Scripted, rails};
use crate::rail::{Lost, Peer, Rail};
use crate::time::Instant;

type Engine = Pml<'static, [Scripted; 1]>;

/// Credit for two messages each way.
const CONFIG: Config = Config { peers: 2, requests: 12, unexpected: 4, units: 4, unit_bytes: 4400, ..Config::SMALLEST };
/// A short message; one that is exposed and fits a payload unit; a longer one that is exposed.
const LENS: [usize; 3] = [8, 4200, 4800];

struct Churn {
    engines: [Engine; 2],
    datas: [Vec<u8>; 3],
    pending: Vec<(usize, Request, Option<usize>)>,
    sinks: Vec<Vec<u8>>,
    taken: Vec<(usize, Message)>,
}

impl Churn {
    fn new() -> Self {
        let mut ends = rails(2).into_iter();
        let engines = [0, 1].map(|_| {
            let rail = ends.next().unwrap();
            rail.script.borrow_mut().exposes = true;
            Pml::new(CONFIG, &mut Arena::new(memory(CONFIG.bytes(&[rail.attributes()]))), [rail]).unwrap()
        });
        let datas = LENS.map(|len| bytes(len, 5));
        let mut churn = Self { engines, datas, pending: Vec::new(), sinks: Vec::new(), taken: Vec::new() };
        churn.meet();
        churn
    }

    fn meet(&mut self) {
        for at in 0..2 {
            let (peer, params) = (Peer(1 - at as u32), self.engines[1 - at].params());
            let reach = |_: usize, rail: &mut Scripted| rail.add_peer(peer, &peer.0.to_le_bytes());
            self.engines[at].add_peer(peer, &params, reach).unwrap();
        }
    }

    fn step(&mut self, at: usize, op: u8, tag: u32, pick: usize) {
        let pattern = Pattern {
            context: 1,
            source: if pick & 8 != 0 { ANY } else { 1 - at as u32 },
            tag: [tag, ANY][pick >> 4 & 1],
        };
        let other = Peer(1 - at as u32);
        match op {
            // Requests belong to the program: a program that wants to receive leaves some for that.
            0..=3 if self.engines[at].used()[0] + 4 <= CONFIG.requests => {
                let modes = [Mode::Standard, Mode::Synchronous, Mode::Ready, Mode::Buffered, Mode::Complete];
                let (mode, data) = (modes[(pick >> 2) % 5], Span::of(&self.datas[pick % 3]));
                // SAFETY: the data outlives the engines' use of it: `finish` ends all requests.
                if let Ok(Sending::Pending(request)) = unsafe { self.engines[at].isend(other, 1, tag, mode, data) } {
                    self.pending.push((at, request, None));
                }
            }
            4..=6 => {
                let (sink, at_sink) = self.sink(pick);
                // SAFETY: sinks are kept until all has ended.
                if let Ok(request) = unsafe { self.engines[at].irecv(pattern, sink) } {
                    self.pending.push((at, request, Some(at_sink)));
                }
            }
            7 => {
                if let Ok(Some((message, _))) = self.engines[at].improbe(pattern) {
                    self.taken.push((at, message));
                }
            }
            8 => self.receive_taken(pick),
            9 if !self.pending.is_empty() => {
                let (at, request, _) = self.pending[pick % self.pending.len()];
                self.engines[at].cancel(request);
            }
            10 if !self.pending.is_empty() => {
                let (at, request, _) = self.pending.swap_remove(pick % self.pending.len());
                self.engines[at].detach(request);
            }
            11 if !self.pending.is_empty() => {
                let (at, request, _) = self.pending[pick % self.pending.len()];
                self.engines[at].notify(request);
            }
            12 if pick.is_multiple_of(4) => self.engines[at].purge(1),
            13 if pick.is_multiple_of(4) => {
                for (at, engine) in self.engines.iter_mut().enumerate() {
                    match pick & 16 {
                        0 => engine.del_peer(Peer(1 - at as u32)),
                        _ => engine.lose_peer(Peer(1 - at as u32), Lost::Broken),
                    }
                }
                self.meet();
            }
            14 => {
                let mut script = self.engines[at].rails()[0].script.borrow_mut();
                match pick & 3 {
                    0 => script.fetches.push_back(false),
                    1 => script.slow_delivery = !script.slow_delivery,
                    2 => script.always = Some(Answer::Busy),
                    _ => script.always = None,
                }
            }
            _ => self.progress(pick % 20),
        }
    }

    fn sink(&mut self, pick: usize) -> (Span, usize) {
        self.sinks.push(vec![0xee; LENS[pick % 3]]);
        let at = self.sinks.len() - 1;
        (Span::contiguous(self.sinks[at].as_mut_ptr(), self.sinks[at].len()), at)
    }

    fn receive_taken(&mut self, pick: usize) {
        let Some((at, message)) = self.taken.pop() else { return };
        let (sink, at_sink) = self.sink(pick);
        // SAFETY: sinks are kept until all has ended.
        match unsafe { self.engines[at].imrecv(message, sink) } {
            Ok(request) => self.pending.push((at, request, Some(at_sink))),
            Err((Refusal::Busy, message)) => self.taken.push((at, message)),
            Err(_) => {} // its sender was deleted
        }
    }

    fn progress(&mut self, times: usize) {
        for _ in 0..times {
            for engine in &mut self.engines {
                engine.progress(Instant::ZERO);
                while engine.next_completed().is_some() {}
            }
        }
        let Self { engines, datas, pending, sinks, .. } = self;
        pending.retain(|(at, request, sink)| {
            let Some(outcome) = engines[*at].test(*request) else { return true };
            let (Ok(status) | Err(Failure::Truncated(status)), Some(sink)) = (outcome, sink) else { return false };
            let (sink, delivered) = (&sinks[*sink], status.delivered as usize);
            let sent = datas.iter().find(|data| data.len() as u64 == status.received).unwrap();
            assert_eq!(delivered, sink.len().min(sent.len()));
            assert!(sink[..delivered] == sent[..delivered] && sink[delivered..].iter().all(|byte| *byte == 0xee));
            false
        });
    }

    fn finish(&mut self) {
        for engine in &self.engines {
            let mut script = engine.rails()[0].script.borrow_mut();
            (script.always, script.slow_delivery) = (None, false);
        }
        for (at, request, _) in &self.pending {
            self.engines[*at].cancel(*request);
        }
        // Every sent message finds a receive that accepts any message.
        for _ in 0..200 {
            self.progress(50);
            self.receive_taken(2);
            for at in 0..2 {
                let mine = |(of, _, sink): &&(usize, Request, Option<usize>)| *of == at && sink.is_some();
                if self.pending.iter().filter(mine).count() < 3 {
                    self.step(at, 4, 0, 8 + 16 + 2);
                }
            }
            // Detached sends are not among the pending ones.
            let used: u32 = self.engines.iter().map(|engine| engine.used()[0]).sum();
            let receives = self.pending.iter().filter(|(.., sink)| sink.is_some()).count();
            if self.taken.is_empty() && (receives, receives) == (self.pending.len(), used as usize) {
                break;
            }
        }
        assert!(
            self.pending.iter().all(|(.., sink)| sink.is_some()),
            "a send waits forever: {:?}",
            self.engines.each_ref().map(|engine| *engine.counters())
        );
        self.progress(200); // the last messages arrive
        for engine in &mut self.engines {
            engine.purge(1);
        }
        self.progress(100);
        assert!(self.taken.is_empty() && self.pending.is_empty());
        assert_eq!(self.engines.each_ref().map(Engine::used), [[0; 3]; 2]);
    }
}

proptest! {
    #[test]
    fn m14_p7_every_operation_on_messages_ends_and_leaves_nothing(
        ops in prop::collection::vec((0..2usize, 0..18u8, 0..3u32, 0..32usize), 0..120),
    ) {
        let mut churn = Churn::new();
        for (at, op, tag, pick) in ops {
            churn.step(at, op, tag, pick);
        }
        churn.finish();
    }
}
