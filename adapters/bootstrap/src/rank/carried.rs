//! Publications that the caller carries between processes, where no server does.

use towline_core::modex::{Set, SetError};

use super::job::Job;
use crate::Environment;
use crate::error::Error;

impl Job {
    /// A job without a server, whose caller carries the publications of the processes: a runtime that has an exchange of its own.
    /// The processes need not all exist from the start, and the rank is any number that no other process of the job has at the
    /// same time. Nothing waits for other processes, and nobody learns of the end of this one.
    ///
    /// ```
    /// use towline_bootstrap::{Environment, Job};
    /// use towline_core::modex::{Component, Version};
    ///
    /// let v = Version::new(1, 0, 0);
    /// let tcp = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
    /// let mut base = Environment::singleton();
    /// base.size = 2;
    /// let [mut zero, mut one] = [0, 1].map(|rank| {
    ///     let mut environment = base.clone();
    ///     environment.rank = rank;
    ///     Job::carried(environment)
    /// });
    /// zero.publish(&tcp, b"10.0.0.1:4000")?;
    /// let bytes = zero.own_publications(); // the caller brings them to the other process
    /// assert_eq!(one.accept_publications(&bytes)?, 0);
    /// assert_eq!(one.card(&tcp, 0).unwrap(), b"10.0.0.1:4000");
    /// one.forget_publications(0);
    /// assert!(one.card(&tcp, 0).is_err());
    /// # Ok::<(), towline_bootstrap::Error>(())
    /// ```
    pub fn carried(mut environment: Environment) -> Self {
        environment.root.clear();
        environment.listen = None;
        Self::new(environment)
    }

    /// All that this rank has published so far, for [`accept_publications`](Self::accept_publications) of other processes.
    pub fn own_publications(&self) -> Vec<u8> {
        self.encode_own_set()
    }

    /// Accepts what another process has published, and returns its rank. Its [cards](Self::card) can be read then. The same
    /// publications may be accepted again.
    ///
    /// # Errors
    /// [`Error::Carried`] if the bytes are malformed, cut short, of a rank that the job does not have, or of another process that
    /// has the same rank.
    pub fn accept_publications(&mut self, bytes: &[u8]) -> Result<u32, Error> {
        let malformed = |why: SetError| Error::Carried(why.to_string());
        let set = Set::parse(bytes).map_err(malformed)?;
        let rank = set.rank();
        let Some(known) = self.sets.get(rank as usize) else {
            return Err(Error::Carried(format!("they are of process {rank}, and there are {} numbers", self.size())));
        };
        match known {
            Some(known) if known[..] == bytes[..] => Ok(rank),
            None if rank != self.rank() => {
                self.store_set(rank, bytes.to_vec());
                Ok(rank)
            }
            _ => Err(Error::Carried(format!("they are of another process with the number {rank}"))),
        }
    }

    /// The rank of the process that has published these bytes; `None` if they are malformed. It may be that of a process whose
    /// publications are not accepted.
    pub fn rank_in(bytes: &[u8]) -> Option<u32> {
        Set::parse(bytes).ok().map(|set| set.rank())
    }

    /// Forgets what another process has published, so that a new process may have its rank.
    pub fn forget_publications(&mut self, rank: u32) {
        let known = self.sets.get_mut(rank as usize).filter(|_| rank != self.environment.rank);
        if known.is_some_and(|known| known.take().is_some()) {
            self.known -= 1;
        }
    }
}
