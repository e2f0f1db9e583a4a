//! Barriers.

use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::BARRIER;

impl<L: Threads> Communicator<L> {
    /// Waits until all ranks have called this: `MPI_Barrier`. It is a dissemination barrier, which takes `log2(size)` rounds,
    /// rounded up (Hensgen, Finkel and Manber, 1988).
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a rank was lost that this rank exchanges messages with in some round. The barrier may succeed at
    /// other ranks nevertheless, but no rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.barrier()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn barrier(&self) -> Result<(), Error> {
        let mut outcome = self.handle.context.check_process();
        for (round, dest, source) in self.rounds() {
            // Even after an error in this round, the next round must run, since other ranks wait for this rank in it. Each round
            // reports its own errors only: a barrier of ranks that are alive succeeds.
            let mut step = Steps::new(self, BARRIER + round);
            step.exchange(&[], dest as usize, &mut [], source as usize);
            outcome = outcome.and(step.end());
        }
        outcome
    }

    /// The rounds of a dissemination: number, the rank to send to, the rank to receive from.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = (u32, u32, u32)> + use<L> {
        let (rank, size) = (u64::from(self.rank), u64::from(self.handle.size));
        (0..u32::BITS).map_while(move |round| {
            let step = 1u64 << round;
            let dest = ((rank + step) % size) as u32;
            let source = ((rank + size - step % size) % size) as u32;
            (step < size).then_some((round, dest, source))
        })
    }
}
