//! Random traces, whose results are those of the model.

use std::fmt::{Arguments, Write};

use replay::loopback::CONTEXTS;
use replay::replay::MEMORY;
use replay::step::Step;
use replay::{Contexts, Replay, loopback};
use towline_core::arena::Arena;
use towline_host_tests::random::Random;

use crate::answers::looped_devices;
use crate::model::Model;

/// Communicators of random traces: of all contexts in order, and in another order.
const COMMUNICATORS: [(u32, [u32; 3]); 2] = [(1, [0, 1, 2]), (2, [2, 0, 1])];
/// Most messages of a context that wait at another one. So none is held back, though credit comes back late.
const WAITING: usize = 2;
/// Most operations of a context in progress.
const OPERATIONS: usize = 8;
/// Steps of a trace before its end.
const STEPS: usize = 150;

/// Makes a trace. The model says which steps are allowed.
struct Author<'m> {
    random: Random,
    text: String,
    model: Model,
    replay: Replay<'m>,
    names: u32,
    /// Operations whose outcome was not taken.
    open: Vec<u32>,
    taken: Vec<u32>,
}

/// The trace of a seed, with names from `names` on.
pub fn trace(seed: u64, names: u32) -> String {
    let mut memory = vec![0; Replay::BYTES];
    let mut author = Author {
        random: Random::new(seed),
        text: String::new(),
        model: Model::new(),
        replay: Replay::new(&mut Arena::new(&mut memory)).expect("enough memory"),
        names,
        open: vec![],
        taken: vec![],
    };
    for at in 0..CONTEXTS {
        author.line(format_args!("join {at} 15"));
        for (context, [a, b, c]) in COMMUNICATORS {
            author.line(format_args!("join {at} {context} {a} {b} {c}"));
        }
    }
    for _ in 0..STEPS {
        author.step();
    }
    author.end();
    for at in 0..CONTEXTS {
        author.line(format_args!("leave {at} 15"));
        for (context, _) in COMMUNICATORS {
            author.line(format_args!("leave {at} {context}"));
        }
    }
    author.text
}

impl Author<'_> {
    /// Writes a line, and executes it in the model.
    fn line(&mut self, line: Arguments<'_>) {
        let line = line.to_string();
        assert!(matches!(Step::parse(line.as_bytes()), Ok(Some(_))), "{line}");
        self.replay.run(line.as_bytes(), &mut self.model, |_| ()).unwrap_or_else(|why| panic!("{line}: {why}"));
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn context(&mut self) -> u32 {
        self.random.below(CONTEXTS.into()) as u32
    }

    fn or_any(&mut self, below: u64) -> String {
        if self.random.chance(300) { "any".into() } else { self.random.below(below).to_string() }
    }

    fn pattern(&mut self) -> (u32, String, String) {
        let (context, _) = self.random.pick(&COMMUNICATORS);
        (context, self.or_any(CONTEXTS.into()), self.or_any(3))
    }

    fn bytes(&mut self) -> u64 {
        self.random.length(2000)
    }

    fn step(&mut self) {
        let at = self.context();
        match self.random.below(12) {
            0..4 => self.send(at),
            4..7 => self.receive(at),
            7 => {
                let (context, source, tag) = self.pattern();
                self.line(format_args!("probe {at} {context} {source} {tag}"));
            }
            8 => self.take(at),
            9 => self.receive_taken(),
            10 => self.cancel(),
            _ => self.wait(),
        }
    }

    /// Sends some messages, and waits until they have arrived.
    fn send(&mut self, at: u32) {
        let (context, ranks) = self.random.pick(&COMMUNICATORS);
        let dest = self.context();
        let to = ranks[dest as usize];
        for _ in 0..self.random.between(1, 3) {
            if self.model.waiting(at, to) >= WAITING || self.model.in_progress(at) >= OPERATIONS {
                break;
            }
            let (name, tag, bytes) = (self.name(), self.random.below(3), self.bytes());
            let mode = self.random.pick(&["standard", "synchronous", "complete", "ready"]);
            self.line(format_args!("send {name} {at} {context} {dest} {tag} {mode} {bytes}"));
            self.open.push(name);
        }
        self.line(format_args!("fence {at} {to}"));
        // What the receiver sends back has arrived, too.
        self.line(format_args!("fence {to} {at}"));
    }

    fn receive(&mut self, at: u32) {
        if self.model.in_progress(at) < OPERATIONS {
            let (name, (context, source, tag), bytes) = (self.name(), self.pattern(), self.bytes());
            self.line(format_args!("recv {name} {at} {context} {source} {tag} {bytes}"));
            self.open.push(name);
        }
    }

    fn take(&mut self, at: u32) {
        let (context, source, tag) = self.pattern();
        if self.taken.len() < 3 {
            let name = self.name();
            let before = self.text.len();
            self.line(format_args!("take {name} {at} {context} {source} {tag}"));
            if self.model.has_taken(name) {
                self.taken.push(name);
            }
            assert!(self.text.len() > before);
        }
    }

    fn receive_taken(&mut self) {
        if let Some(taken) = self.taken.pop() {
            let (name, bytes) = (self.name(), self.bytes());
            self.line(format_args!("mrecv {name} {taken} {bytes}"));
            self.open.push(name);
        }
    }

    fn cancel(&mut self) {
        if !self.open.is_empty() {
            let name = self.random.pick(&self.open);
            self.line(format_args!("cancel {name}"));
        }
    }

    /// Waits for an operation that ends, or requires that one is in progress that does not.
    fn wait(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let index = self.random.below(self.open.len() as u64) as usize;
        let name = self.open[index];
        if self.model.has_matched(name) {
            self.open.swap_remove(index);
            self.line(format_args!("wait {name}"));
        } else if !self.model.is_over(name) {
            self.line(format_args!("pending {name}"));
        }
    }

    /// Receives all messages, cancels the other receives, and waits for all operations.
    fn end(&mut self) {
        while !self.taken.is_empty() {
            self.receive_taken();
        }
        for name in std::mem::take(&mut self.open) {
            if !self.model.has_matched(name) && self.model.is_posted(name) {
                self.line(format_args!("cancel {name}"));
            }
            self.open.push(name);
        }
        for at in 0..CONTEXTS {
            while let Some((context, rank, tag)) = self.model.oldest(at) {
                while self.model.in_progress(at) >= OPERATIONS {
                    let ended = self.open.iter().position(|name| self.model.has_matched(*name)).expect("one has ended");
                    let name = self.open.swap_remove(ended);
                    self.line(format_args!("wait {name}"));
                }
                let (name, bytes) = (self.name(), self.bytes());
                self.line(format_args!("recv {name} {at} {context} {rank} {tag} {bytes}"));
                self.open.push(name);
            }
        }
        for name in std::mem::take(&mut self.open) {
            self.line(format_args!("wait {name}"));
        }
    }
}

/// The results of a trace at these contexts.
fn results(trace: &str, contexts: &mut impl Contexts) -> Result<String, String> {
    let mut results = String::new();
    let mut memory = vec![0; Replay::BYTES];
    let mut replay = Replay::new(&mut Arena::new(&mut memory)).expect("enough memory");
    let replayed = replay.run(trace.as_bytes(), contexts, |line: Arguments<'_>| {
        results.write_fmt(line).expect("a string takes all");
    });
    replayed.map_err(|why| format!("{why}, after {:?}", results.lines().last()))?;
    Ok(results)
}

#[test]
fn random_traces_have_the_results_of_the_model() {
    for seed in 0..60 {
        let trace = trace(seed, 0);
        let expected = results(&trace, &mut Model::new()).unwrap_or_else(|why| panic!("seed {seed}, the model: {why}"));
        let mut found = String::new();
        let (mut tables, mut memory) = (vec![0; loopback::BYTES], vec![0; MEMORY]);
        let replayed = loopback::replay(
            trace.as_bytes(),
            &mut tables,
            &mut memory,
            || 0,
            |line| {
                found.write_fmt(line).expect("a string takes all");
            },
        );
        let lines = || trace.lines().zip(1..).map(|(line, number)| format!("{number} {line}\n")).collect::<String>();
        let difference = expected.lines().zip(found.lines()).find(|(one, other)| one != other);
        assert_eq!(difference, None, "seed {seed}: the model, and the core, of the trace\n{}", lines());
        replayed.unwrap_or_else(|why| panic!("seed {seed}: {why}, after {:?}\n{}", found.lines().last(), lines()));
        assert_eq!(expected, found, "seed {seed}");
        if seed < 10 {
            let found =
                results(&trace, &mut looped_devices()).unwrap_or_else(|why| panic!("seed {seed}, devices: {why}"));
            assert_eq!(expected, found, "seed {seed}, devices");
        }
    }
}
