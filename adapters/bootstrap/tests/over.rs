//! Jobs over the exchange of another runtime: here, threads that exchange through memory.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use towline_bootstrap::{End, Environment, Error, Exchange, ExchangeFailure, Job, RankEnd};
use towline_core::modex::{Component, ExchangeError, Modex, Version};
use towline_core::time;

const V: Version = Version::new(1, 0, 0);
const TCP: Component = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

/// What the threads share.
#[derive(Default)]
struct Memory {
    calls: Mutex<Calls>,
    changed: Condvar,
}

#[derive(Default)]
struct Calls {
    /// What each rank gave in each common call.
    given: Vec<Vec<Option<Vec<u8>>>>,
    /// What was called besides, with the rank.
    log: Vec<(u32, String)>,
}

/// A rank's part of it.
struct Threads {
    rank: u32,
    size: u32,
    next: usize,
    memory: Arc<Memory>,
    /// What `next_end` returns.
    ends: Vec<RankEnd>,
    /// Changes what `gather` returns.
    spoil: fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
}

impl Threads {
    fn log(&self, what: impl Into<String>) {
        self.memory.calls.lock().unwrap().log.push((self.rank, what.into()));
    }
}

impl Exchange for Threads {
    fn gather(&mut self, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure> {
        let at = self.next;
        self.next += 1;
        let mut calls = self.memory.calls.lock().unwrap();
        while calls.given.len() <= at {
            calls.given.push(vec![None; self.size as usize]);
        }
        calls.given[at][self.rank as usize] = Some(own.to_vec());
        self.memory.changed.notify_all();
        let left = deadline.saturating_duration_since(Instant::now());
        let waiting = |calls: &mut Calls| calls.given[at].iter().any(Option::is_none);
        let (calls, waited) = self.memory.changed.wait_timeout_while(calls, left, waiting).unwrap();
        if waited.timed_out() {
            return Err(ExchangeFailure::Timeout);
        }
        Ok((self.spoil)(calls.given[at].iter().flatten().cloned().collect()))
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure> {
        self.log(format!("abort {code}: {message}"));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), ExchangeFailure> {
        self.log("finish");
        Ok(())
    }

    fn leave(&mut self) -> Result<(), ExchangeFailure> {
        self.log("leave");
        Ok(())
    }

    fn next_end(&mut self) -> Option<RankEnd> {
        self.ends.pop()
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

fn threads(rank: u32, size: u32, memory: &Arc<Memory>) -> Threads {
    Threads { rank, size, next: 0, memory: Arc::clone(memory), ends: Vec::new(), spoil: |all| all }
}

fn join(exchange: Threads, deadline: Instant) -> Result<Job, Error> {
    Job::over(Environment::of_rank(exchange.rank, exchange.size, None)?, Box::new(exchange), deadline)
}

/// Runs a rank in each of `size` threads.
fn ranks<T: Send>(size: u32, run: impl Fn(Threads) -> T + Sync) -> Vec<T> {
    let (memory, run) = (Arc::new(Memory::default()), &run);
    thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..size).map(|rank| threads(rank, size, &memory)).map(|rank| scope.spawn(|| run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_have_the_number_and_the_key_of_rank_0_and_the_cards_of_all() {
    let jobs = ranks(3, |exchange| {
        let memory = Arc::clone(&exchange.memory);
        let mut job = join(exchange, soon()).unwrap();
        job.publish(&TCP, &[job.rank() as u8]).unwrap();
        job.exchange(soon()).unwrap();
        for peer in 0..3 {
            assert_eq!((job.card(&TCP, peer).unwrap(), job.incarnation_of(peer)), (&[peer as u8][..], Some(1)));
        }
        assert_eq!((job.exchange(soon()).is_ok(), job.has_launcher(), job.fences()), (true, false, 0));
        assert!(matches!(job.publish(&TCP, b"late"), Err(Error::TooLate)), "publications are carried once");
        assert_eq!(job.card(&TCP, job.rank()).unwrap(), [job.rank() as u8]);
        job.fence(soon()).unwrap();
        assert_eq!((job.fences(), job.next_end(), job.next_restart()), (1, None, None));
        let secret = (job.job_id(), job.key().clone());
        match job.rank() {
            0 => job.finish().unwrap(),
            1 => job.leave().unwrap(),
            _ => job.abort(7, "no sense").unwrap(),
        }
        let log = memory.calls.lock().unwrap().log.clone();
        let own = log.into_iter().filter(|(rank, _)| *rank == job.rank()).map(|(_, what)| what).collect::<Vec<_>>();
        (secret, own)
    });
    assert!(jobs.iter().all(|(secret, _)| *secret == jobs[0].0));
    let said: Vec<_> = jobs.into_iter().map(|(_, said)| said).collect();
    assert_eq!(said, [["finish"], ["leave"], ["abort 7: no sense"]]);
}

#[test]
fn ends_are_reported_once_as_what_they_were() {
    let ends = ranks(3, |mut exchange| {
        exchange.ends = match exchange.rank {
            0 => {
                vec![RankEnd { rank: 9, died: true }, RankEnd { rank: 2, died: true }, RankEnd { rank: 1, died: false }]
            }
            _ => Vec::new(),
        };
        let mut job = join(exchange, soon()).unwrap();
        job.exchange(soon()).unwrap();
        job.ask_for_ends().unwrap();
        let ends: Vec<_> = std::iter::from_fn(|| job.next_end()).collect();
        (ends, job.has_ended(1), job.has_ended(2))
    });
    let end = |rank, died| End { rank, part: None, incarnation: 1, died, left: !died };
    assert_eq!(ends[0], (vec![end(1, false), end(2, true)], true, true));
    assert_eq!(ends[1], (vec![], false, false));
}

#[test]
fn after_a_failure_no_common_call_is_made() {
    let memory = Arc::new(Memory::default());
    let why = join(threads(0, 2, &memory), Instant::now()).unwrap_err();
    assert!(matches!(&why, Error::Timeout { step, .. } if step.contains("not all ranks")), "{why}");

    // The other rank takes part in the start only.
    let outcomes = ranks(2, |mut exchange| {
        exchange.ends = vec![RankEnd { rank: 1, died: true }];
        let first = exchange.rank == 0;
        let mut job = join(exchange, soon()).unwrap();
        if !first {
            return None;
        }
        let now = time::Instant::from_nanos(7);
        assert_eq!(Modex::exchange(&mut job, now, now), Err(ExchangeError::PeerEnded { rank: 1 }));
        let again = job.fence(soon()).unwrap_err().to_string();
        assert!(job.finish().is_ok() && matches!(job.fence(soon()), Err(Error::Finished)));
        Some(again)
    });
    assert!(outcomes[0].as_ref().is_some_and(|why| why.contains("it has failed before")), "{outcomes:?}");
}

#[test]
fn what_an_exchange_returns_is_checked() {
    type Spoil = fn(Vec<Vec<u8>>) -> Vec<Vec<u8>>;
    // The number and key of the job come first. They are 40 bytes, and only rank 0 gives them.
    let cases: [(Spoil, &str); 5] = [
        (|all| all[..1].to_vec(), "returned the bytes of 1 ranks instead of 2"),
        (|all| vec![vec![1; 39]; all.len()], "rank 0 gave no number and key"),
        (
            |all| if all[1].is_empty() { all } else { all.into_iter().rev().collect() },
            "gave the bytes of rank 1 as those of rank 0",
        ),
        (|all| if all[1].is_empty() { all } else { vec![all[0][1..].to_vec(); 2] }, "were changed or cut"),
        (|all| if all[1].is_empty() { all } else { vec![Vec::new(); 2] }, "were changed or cut"),
    ];
    for (spoil, expected) in cases {
        let whys = ranks(2, |mut exchange| {
            // Only rank 1 gets something else.
            let first = exchange.rank == 0;
            exchange.spoil = if first { |all| all } else { spoil };
            let mut job = join(exchange, soon()).map_err(|why| why.to_string())?;
            // Rank 0 does not wait, since rank 1 may have stopped before.
            job.exchange(if first { Instant::now() } else { soon() }).map_err(|why| why.to_string())
        });
        let why = whys[1].as_ref().unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn impossible_ranks_are_refused() {
    for (rank, size, local) in
        [(2, 2, None), (0, 0, None), (0, 1 << 21, None), (0, 2, Some(vec![1])), (0, 2, Some(vec![0, 2]))]
    {
        let refused = Environment::of_rank(rank, size, local);
        assert!(matches!(refused, Err(Error::Exchange { .. })), "{refused:?}");
    }
    assert_eq!(Environment::of_rank(1, 3, Some(vec![2, 1, 1])).unwrap().local, Some(vec![1, 2]));
}
