//! Broadcasts.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::BROADCAST;

impl<L: Threads> Communicator<L> {
    /// Copies `data` of rank `root` to all ranks, along a binomial tree: `MPI_Bcast`. The root, and the length of `data`, must be
    /// the same on all ranks.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] if there is no such root, [`Error::UnequalLengths`] if lengths differ, [`Error::PeerFailed`] if a
    /// rank on the data's path was lost, [`Error::NoPart`] if a rank on this path has no data because of another error. After an
    /// error the contents of `data` are unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut numbers = if world.rank() == 0 { [1.5f64, 2.5] } else { [0.0; 2] };
    /// world.broadcast(0, &mut numbers)?;
    /// assert_eq!(numbers, [1.5, 2.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn broadcast<T>(&self, root: u32, data: &mut T) -> Result<(), Error>
    where
        T: FromBytes + IntoBytes + Immutable + ?Sized,
    {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, BROADCAST);
        let (rank, size) = steps.place();
        // Ranks are counted from the root. Each rank receives from the rank whose number lacks the lowest set bit of its own
        // number.
        let from_root = (rank + size - root) % size;
        let mut bit = 1;
        while bit < size && from_root & bit == 0 {
            bit <<= 1;
        }
        if from_root != 0 {
            steps.receive(data.as_mut_bytes(), (from_root - bit + root) % size);
        }
        while bit > 1 {
            bit >>= 1;
            if from_root + bit < size {
                steps.send(data.as_bytes(), (from_root + bit + root) % size);
            }
        }
        steps.end()
    }

    /// Checks that a root exists.
    pub(crate) fn check_root(&self, root: u32) -> Result<usize, Error> {
        let size = self.handle.size;
        if root < size { Ok(root as usize) } else { Err(Error::NoSuchRank { rank: root, size }) }
    }
}
