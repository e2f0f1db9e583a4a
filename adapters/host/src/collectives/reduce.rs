//! Reduce: combines the items of all ranks at one rank.

use zerocopy::IntoBytes;

use crate::collectives::blocks::check_length;
use crate::collectives::reduce_op::{Plain, ReduceOp, combine_with_later};
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::REDUCE;

impl<L: Threads> Communicator<L> {
    /// Combines the items of all ranks by `op`, item by item, along a binomial tree, and replaces `data` of rank `root` by the
    /// result: `MPI_Reduce` in place. At other ranks `data` is not changed. Items are combined in the order of the ranks, unless
    /// `op` is [commutative](ReduceOp::is_commutative). The root, and the length of `data`, must be the same on all ranks.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] if there is no such root; [`Error::UnequalLengths`] if lengths differ among the ranks;
    /// [`Error::PeerFailed`] if a rank was lost; [`Error::NoPart`] if another rank has an error; [`Error::NoMemory`]. An error is
    /// seen at the root, and at ranks on the way there. After an error the contents of the root's `data` are unspecified. No rank
    /// waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut data = [world.rank() + 1, 1];
    /// world.reduce(0, &mut data, towline::Sum)?;
    /// if world.rank() == 0 {
    ///     assert_eq!(data, [world.size() * (world.size() + 1) / 2, world.size()]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce<T: Plain>(&self, root: u32, data: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, REDUCE);
        let result = reduce(&mut steps, root, data, &op);
        if steps.place().0 == root && !steps.has_failed() {
            data.copy_from_slice(&result);
        }
        steps.end()
    }

    /// As [`reduce`](Self::reduce), with the result in `into` at the root. Other ranks may pass an empty slice.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce); [`Error::WrongLength`] at the root if `into` is not as long as `data`.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut largest = [0];
    /// world.reduce_into(0, &[world.rank()], &mut largest, towline::Max)?;
    /// assert!(world.rank() != 0 || largest == [world.size() - 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reduce_into<T: Plain>(
        &self,
        root: u32,
        data: &[T],
        into: &mut [T],
        op: impl ReduceOp<T>,
    ) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, REDUCE);
        let (rank, _) = steps.place();
        if rank == root {
            steps.check(check_length(data.len(), into.len()));
        }
        let result = reduce(&mut steps, root, data, &op);
        if rank == root && !steps.has_failed() {
            into.copy_from_slice(&result);
        }
        steps.end()
    }
}

/// Combines the items of all ranks. Returns the result at the root. In a binomial tree as for [`gather`](Communicator::gather),
/// each rank combines its items with those of the ranks after it. The tree begins at rank 0 if the order of the ranks matters.
fn reduce<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, root: usize, data: &[T], op: &impl ReduceOp<T>) -> Vec<T> {
    let (rank, size) = steps.place();
    let top = if op.is_commutative() { root } else { 0 };
    let number = (rank + size - top) % size;
    let bit = if number == 0 { size.next_power_of_two() } else { 1 << number.trailing_zeros() };
    let members = bit.min(size - number);
    let mut combined: Vec<T> = steps.scratch(if members > 1 || rank == root { data.len() } else { 0 });
    let mut other: Vec<T> = steps.scratch(if members > 1 { data.len() } else { 0 });
    if combined.len() == data.len() {
        combined.copy_from_slice(data);
    }
    let mut bit = 1;
    while bit < members {
        steps.receive(other.as_mut_bytes(), (number + bit + top) % size);
        if !steps.has_failed() {
            combine_with_later(op, &mut combined, &other);
        }
        bit *= 2;
    }
    let result = if combined.len() == data.len() { &combined[..] } else { data };
    if number != 0 {
        steps.send(result.as_bytes(), (number - (1 << number.trailing_zeros()) + top) % size);
    } else if top != root {
        steps.send(result.as_bytes(), root);
    }
    if rank == root && top != root {
        steps.receive(combined.as_mut_bytes(), top);
    }
    combined
}
