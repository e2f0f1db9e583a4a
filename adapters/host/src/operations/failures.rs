//! Lost ranks of a communicator.

use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::EngineLock;

impl<L: Threads> Communicator<L> {
    /// The ranks that were lost so far, as far as this rank knows: those that failed, and those that finished. A restarted rank
    /// that was [accepted](crate::World::rejoin) is still lost to communicators that were made before.
    ///
    /// ```
    /// assert!(towline::init()?.lost().is_empty());
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn lost(&self) -> Vec<u32> {
        let engine = self.handle.context.engine.lock();
        let lost = |rank: &u32| engine.mtl.failed(self.handle.comm, towline_core::mtl::Source::Rank(*rank)).is_some();
        (0..self.handle.size).filter(lost).collect()
    }

    /// The ranks that the launcher has restarted, and that this context has not [accepted](crate::World::rejoin) yet, whether it
    /// has noticed their failure or not. Does not wait.
    ///
    /// ```
    /// assert!(towline::init()?.restarted().is_empty());
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn restarted(&self) -> Vec<u32> {
        let restarted = self.handle.context.restarted();
        let is_restarted =
            |rank: &u32| self.handle.address(*rank).is_some_and(|address| restarted.contains(&address.rank));
        if restarted.is_empty() { Vec::new() } else { (0..self.handle.size).filter(is_restarted).collect() }
    }

    /// Why a rank was lost. `None` if it was not lost, if it was [accepted](crate::World::rejoin) again, or if there is no such
    /// rank.
    ///
    /// ```
    /// assert_eq!(towline::init()?.why_lost(0), None);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn why_lost(&self, rank: u32) -> Option<crate::Lost> {
        let mut engine = self.handle.context.engine.lock();
        let peer = engine.mtl.failed(self.handle.comm, towline_core::mtl::Source::Rank(rank))?;
        engine.mtl.pml().why_lost(peer)
    }

    /// Acknowledges that ranks of this communicator have failed: `MPIX_Comm_failure_ack` of fault-tolerant MPI (ULFM). Receives
    /// and probes from [`Any`](crate::Any) source wait again for the remaining ranks.
    ///
    /// Without this call they end with [`Error::PeerFailed`](crate::Error::PeerFailed), which names a rank that failed: their
    /// message might have been due from that rank. If a message has arrived already, they take it instead. No message is lost
    /// when they end with an error. A further failure must be acknowledged again. A rank that finished normally does not count as
    /// failed.
    ///
    /// **Gaps.** A message that was in transit from the failed rank may be lost, while a later message of that rank has arrived:
    /// a long message needs its sender until it is complete, and a short one does not. So a receive or a probe from any source
    /// that matches both may take the later, shorter message, while the earlier, longer one never arrives. The messages that
    /// arrive are complete, in order, and delivered once, but there may be gaps between them.
    ///
    /// ```
    /// towline::init()?.acknowledge_failures();
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn acknowledge_failures(&self) {
        self.handle.context.engine.lock().mtl.acknowledge(self.handle.comm);
    }
}
