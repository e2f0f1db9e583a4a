//! The place of a process in a runtime that carries cards itself.

use std::ops::RangeInclusive;

use towline_bootstrap::{Environment, JobKey};
use towline_sm::CleanUp;

use crate::errors::setup::{MAX_ADDRESSES, SetupError};

/// The place of a process in a runtime that exchanges cards by its own means: see [`Builder::open`](crate::Builder::open).
///
/// ```
/// use towline::{Builder, Place};
///
/// let place = Place::new(0x1234, towline::JobKey::new([7; 32]), 3);
/// let worker = Builder::new().transports("sm").open(place)?;
/// assert_eq!(worker.number(), 3);
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Place {
    /// The number of the job. All processes that may become peers have the same. Others on the host should have another one.
    pub job: u64,
    /// The secret of the job, the same in all its processes. Processes that do not know it cannot connect.
    pub key: JobKey,
    /// The number of this process. No other running process of the job has it.
    pub number: u32,
    /// How many numbers there are, which is the same in all processes: 1 to 1,048,576. Default 4096. Numbers cost shared memory: 16
    /// bytes for 32 of them in each process.
    pub numbers: u32,
    /// How many peers this process may have at a time, itself included. Default 64. Memory for unexpected messages is divided among
    /// them.
    pub peers: u32,
    /// How many processes of the job are on this host, this one included. Default 1. They share its memory and its processors.
    pub local: u32,
    /// How many of them come before this one in an order on which they agree. Default 0.
    pub local_rank: u32,
    /// Who removes files of this process if it is killed. Default: the next program of the same user that opens shared memory over
    /// Towline on this host.
    pub clean_up: Option<CleanUp>,
}

impl Place {
    /// The place with this number, with all other defaults.
    pub const fn new(job: u64, key: JobKey, number: u32) -> Self {
        Self { job, key, number, numbers: 4096, peers: 64, local: 1, local_rank: 0, clean_up: None }
    }

    /// The place in a job whose processes share a secret, such as a credential of their launcher: job number and key are derived
    /// from it, and do not reveal it (HMAC-SHA-256, RFC 2104). The secret should be random, of at least 16 bytes.
    ///
    /// ```
    /// use towline::Place;
    ///
    /// let (zero, one) = (Place::from_secret(b"a long secret", 0), Place::from_secret(b"a long secret", 1));
    /// assert!(zero.job == one.job && zero.key == one.key);
    /// assert_ne!(zero.job, Place::from_secret(b"another secret", 0).job);
    /// ```
    pub fn from_secret(secret: &[u8], number: u32) -> Self {
        let key = JobKey::new(JobKey::new([0; 32]).prove(b"towline place k1", &[secret]));
        let [a, b, c, d, e, f, g, h, ..] = key.prove(b"towline place j1", &[]);
        Self::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]), key, number)
    }

    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let check = |what: &'static str, number: u32, range: RangeInclusive<u32>| {
            if range.contains(&number) { Ok(()) } else { Err(SetupError::Place { what, number, range }) }
        };
        check("numbers of processes", self.numbers, 1..=MAX_ADDRESSES)?;
        check("the number of this process", self.number, 0..=self.numbers - 1)?;
        check("peers", self.peers, 1..=MAX_ADDRESSES)?;
        check("processes on this host", self.local, 1..=self.numbers)?;
        check("the local rank", self.local_rank, 0..=self.local - 1)
    }

    /// The environment of a job that the caller carries.
    pub(crate) fn environment(&self) -> Environment {
        let mut environment = Environment::singleton();
        (environment.rank, environment.size) = (self.number, self.numbers);
        (environment.job, environment.key) = (self.job, self.key.clone());
        // Their number matters, and the place of this process among them. Their own numbers are not known.
        let first = self.number.saturating_sub(self.local_rank).min(self.numbers - self.local);
        environment.local = Some((first..first + self.local).collect());
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_places_are_refused_and_say_what_is_possible() {
        let place = |change: fn(&mut Place)| {
            let mut place = Place::new(1, JobKey::new([7; 32]), 3);
            change(&mut place);
            place.check().map_err(|why| why.to_string())
        };
        assert_eq!(place(|_| {}), Ok(()));
        let refused = |change, text: &str| assert!(place(change).unwrap_err().contains(text), "{text}");
        refused(|place| place.numbers = 0, "numbers of processes: 0 is not within 1 to 1048576");
        refused(|place| place.number = 4096, "the number of this process: 4096 is not within 0 to 4095");
        refused(|place| place.peers = 0, "peers");
        refused(|place| place.local = 5000, "processes on this host");
        refused(|place| place.local_rank = 1, "the local rank: 1 is not within 0 to 0");
    }

    #[test]
    fn the_processes_of_the_host_include_this_one() {
        for (number, numbers, local, local_rank) in [(3, 4096, 1, 0), (0, 8, 4, 3), (7, 8, 4, 0), (5, 8, 8, 2)] {
            let place = Place { numbers, local, local_rank, ..Place::new(1, JobKey::new([7; 32]), number) };
            let ranks = place.environment().local.unwrap();
            assert!(ranks.len() == local as usize && ranks.contains(&number), "{place:?}: {ranks:?}");
        }
    }
}
