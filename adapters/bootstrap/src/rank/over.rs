//! Jobs over the exchange of another launcher or runtime.

use std::time::{Duration, Instant};

use towline_core::modex::{self, ExchangeError, Set};

use super::carrier::Carrier;
use super::job::{End, Job};
use crate::error::Error;
use crate::exchange::{CleanUpFn, Exchange, ExchangeFailure, RankEnd};
use crate::{Environment, JobKey};

impl Job {
    /// A job whose publications `exchange` carries, instead of a server of the bootstrap. The rank, the size and the ranks of this
    /// host come from `environment`; [`Environment::of_rank`] makes one. Rank 0's number and key of the job, which are random
    /// there, become those of all ranks. This is a common call of all ranks, as [`exchange`](Self::exchange) and
    /// [`fence`](Self::fence) are.
    ///
    /// What only the bootstrap's own server does is missing:
    ///
    /// - No rank is restarted. [`next_restart`](Self::next_restart) returns none.
    /// - No launcher asks for reports. [`has_launcher`](Self::has_launcher) is `false`, [`warn`](Self::warn) prints on standard
    ///   error, and the launcher learns of a failure by the exit status only.
    /// - A rank publishes before the exchange: [`Error::TooLate`] afterwards.
    /// - This rank hears of the ends of others only as far as the exchange [knows them](Exchange::next_end). A rank that has
    ///   finished, or a part that has ended, is no news, except by a connection to it.
    ///
    /// ```
    /// use std::sync::{Arc, Barrier, Mutex};
    /// use std::time::{Duration, Instant};
    /// use towline_bootstrap::{Environment, Exchange, ExchangeFailure, Job};
    /// use towline_core::modex::{Component, Version};
    ///
    /// /// Two threads, which exchange through memory.
    /// struct Threads(usize, Arc<(Barrier, Mutex<[Vec<u8>; 2]>)>);
    ///
    /// impl Exchange for Threads {
    ///     fn gather(&mut self, own: &[u8], _: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure> {
    ///         let (barrier, given) = &*self.1;
    ///         given.lock().unwrap()[self.0] = own.to_vec();
    ///         barrier.wait();
    ///         let all = given.lock().unwrap().to_vec();
    ///         barrier.wait(); // before the next call overwrites them
    ///         Ok(all)
    ///     }
    ///     fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure> {
    ///         eprintln!("{message}");
    ///         std::process::exit(code)
    ///     }
    /// }
    ///
    /// let v = Version::new(1, 0, 0);
    /// let tcp = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
    /// let shared = Arc::new((Barrier::new(2), Mutex::default()));
    /// let deadline = Instant::now() + Duration::from_secs(60);
    /// let job = |rank: u32| {
    ///     let exchange = Box::new(Threads(rank as usize, Arc::clone(&shared)));
    ///     let mut job = Job::over(Environment::of_rank(rank, 2, Some(vec![0, 1]))?, exchange, deadline)?;
    ///     job.publish(&tcp, &[rank as u8])?;
    ///     job.exchange(deadline)?;
    ///     assert_eq!(job.card(&tcp, 1 - rank).unwrap(), [1 - rank as u8]);
    ///     job.finish()
    /// };
    /// std::thread::scope(|threads| {
    ///     let other = threads.spawn(|| job(1));
    ///     job(0).and(other.join().unwrap())
    /// })?;
    /// # Ok::<(), towline_bootstrap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exchange`] if the exchange fails, or returns what it should not; [`Error::Timeout`] if other ranks do not come.
    pub fn over(mut environment: Environment, exchange: Box<dyn Exchange>, deadline: Instant) -> Result<Self, Error> {
        environment.root.clear();
        environment.listen = None;
        let mut job = Self::new(environment);
        job.carrier = Carrier::Exchange { exchange, failed: false };
        job.agree_on_secret(deadline)?;
        Ok(job)
    }

    /// How to ask the launcher to remove files of this rank when the job is gone, if its exchange [can do
    /// that](Exchange::clean_up).
    pub fn clean_up(&self) -> Option<CleanUpFn> {
        match &self.carrier {
            Carrier::Exchange { exchange, .. } => exchange.clean_up(),
            _ => None,
        }
    }

    /// Takes over the job's number and key from rank 0.
    fn agree_on_secret(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "start";
        let own = [&self.environment.job.to_le_bytes()[..], self.environment.key.bytes()].concat();
        let all = self.gather(step, if self.rank() == 0 { &own } else { &[] }, deadline)?;
        let Some((job, key)) =
            all.first().and_then(|first| Some((first.first_chunk()?, first.get(8..)?.try_into().ok()?)))
        else {
            return Err(Error::exchange(
                step,
                "rank 0 gave no number and key of the job: run the same version on all ranks",
            ));
        };
        self.environment.job = u64::from_le_bytes(*job);
        self.environment.key = JobKey::new(key);
        Ok(())
    }

    /// [`exchange`](Self::exchange), where another exchange carries the publications.
    pub(super) fn gather_sets(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "module exchange";
        if self.finished {
            return Err(Error::Finished);
        }
        if self.sent != 0 {
            return Ok(());
        }
        let sets = self.gather(step, &self.encode_own_set(), deadline)?;
        for (rank, set) in (0..).zip(sets) {
            if rank == self.rank() {
                continue;
            }
            match Set::parse(&set) {
                Ok(parsed) if parsed.rank() == rank => self.store_set(rank, set),
                Ok(parsed) => {
                    let why = format!(
                        "it gave the bytes of rank {} as those of rank {rank}: return them in the order of the ranks",
                        parsed.rank()
                    );
                    return Err(Error::exchange(step, why));
                }
                Err(why) => {
                    return Err(Error::exchange(step, format!("the bytes of rank {rank} were changed or cut: {why}")));
                }
            }
        }
        self.sent = self.revision;
        Ok(())
    }

    /// [`fence`](Self::fence), where another exchange opens it.
    pub(super) fn fence_by_exchange(&mut self, deadline: Instant) -> Result<(), Error> {
        self.common("fence", |exchange| exchange.fence(deadline))?;
        self.fence_entered = self.fence_entered.wrapping_add(1);
        self.fence_open = self.fence_entered;
        Ok(())
    }

    /// The exchange as the core's components see it, for which time is no point in time.
    pub(super) fn exchange_within(&mut self, time: Duration) -> Result<modex::Exchange, ExchangeError> {
        match self.exchange(Instant::now() + time) {
            Ok(()) => Ok(modex::Exchange::Done),
            Err(Error::Finished) => Err(ExchangeError::Closed),
            Err(Error::PeerGone { rank, .. }) => Err(ExchangeError::PeerEnded { rank }),
            Err(Error::Timeout { .. }) => {
                let missing = self.missing_sets();
                Err(ExchangeError::Timeout {
                    missing: missing.len() as u32,
                    first: missing.first().copied().unwrap_or(0),
                })
            }
            Err(_) => Err(ExchangeError::Lost),
        }
    }

    /// Reads which ranks have ended.
    pub(super) fn hear_of_ends(&mut self) {
        let Carrier::Exchange { exchange, .. } = &mut self.carrier else { return };
        let ends: Vec<RankEnd> = std::iter::from_fn(|| exchange.next_end()).collect();
        for RankEnd { rank, died } in ends.into_iter().filter(|end| end.rank < self.environment.size) {
            self.ended.insert(rank, self.fence_entered);
            let incarnation = self.incarnation_of(rank).unwrap_or(0);
            self.ends.heard.push_back(End { rank, part: None, incarnation, died, left: !died });
        }
    }

    fn gather(&mut self, step: &'static str, own: &[u8], deadline: Instant) -> Result<Vec<Vec<u8>>, Error> {
        let all = self.common(step, |exchange| exchange.gather(own, deadline))?;
        if all.len() != self.size() as usize {
            let why = format!(
                "it returned the bytes of {} ranks instead of {}: return those of all ranks",
                all.len(),
                self.size()
            );
            return Err(Error::exchange(step, why));
        }
        Ok(all)
    }

    /// Makes a call that all ranks make. None follows after one has failed.
    fn common<T>(
        &mut self,
        step: &'static str,
        call: impl FnOnce(&mut dyn Exchange) -> Result<T, ExchangeFailure>,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let Carrier::Exchange { exchange, failed } = &mut self.carrier else { return Err(Error::Finished) };
        if *failed {
            return Err(Error::exchange(step, "it has failed before: end this process"));
        }
        let why = match call(&mut **exchange) {
            Ok(done) => return Ok(done),
            Err(why) => why,
        };
        *failed = true;
        self.hear_of_ends();
        Err(match (self.ended.first_key_value(), why) {
            (Some((rank, _)), _) => Error::PeerGone { rank: *rank, step },
            (None, ExchangeFailure::Timeout) => {
                let step = format!("{step}: not all ranks have taken part in the exchange");
                Error::Timeout { step, waited: started.elapsed() }
            }
            (None, ExchangeFailure::Failed(why)) => Error::exchange(step, why),
        })
    }
}
