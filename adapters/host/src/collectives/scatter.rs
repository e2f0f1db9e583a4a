//! Scatter: one rank gives a block to each rank.

use zerocopy::IntoBytes;

use crate::collectives::blocks::check_length;
use crate::collectives::reduce_op::Plain;
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::SCATTER;

impl<L: Threads> Communicator<L> {
    /// Gives each rank its block of `data` of rank `root`, in the order of the ranks, along a binomial tree: `MPI_Scatter`. The
    /// root, and the length of `into`, must be the same on all ranks. `data` is used at the root only; other ranks may pass an
    /// empty slice.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] if there is no such root; [`Error::WrongLength`] at the root if `data` is not `size` times as long
    /// as `into`; [`Error::UnequalLengths`] if lengths differ among the ranks; [`Error::PeerFailed`] if a rank was lost on the
    /// way from the root; [`Error::NoPart`] if another rank there has an error; [`Error::NoMemory`]. After an error the contents
    /// of `into` are unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let all: Vec<u32> = if world.rank() == 0 { (0..world.size()).collect() } else { Vec::new() };
    /// let mut mine = [0];
    /// world.scatter(0, &all, &mut mine)?;
    /// assert_eq!(mine, [world.rank()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scatter<T: Plain>(&self, root: u32, data: &[T], into: &mut [T]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, SCATTER);
        let (rank, size) = steps.place();
        if rank != root {
            scatter_to(&mut steps, root, into.as_mut_bytes());
            return steps.end();
        }
        match check_length(into.len().saturating_mul(size), data.len()) {
            Ok(()) => into.copy_from_slice(&data[rank * into.len()..][..into.len()]),
            Err(error) => steps.fail(error),
        }
        scatter_from(&mut steps, data.as_bytes(), size_of_val(into));
        steps.end()
    }

    /// As [`scatter`](Self::scatter), in place. `data` has the items of all ranks at the root, where it is not changed. At
    /// another rank it receives the items of that rank.
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter); [`Error::WrongLength`] at the root if `data` cannot be divided into equal blocks.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut data = if world.rank() == 0 { (0..world.size()).collect() } else { vec![0] };
    /// world.scatter_in_place(0, &mut data)?;
    /// assert_eq!(data[0], world.rank());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scatter_in_place<T: Plain>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, SCATTER);
        let (rank, size) = steps.place();
        if rank == root {
            let count = data.len() / size;
            steps.check(check_length(count * size, data.len()));
            scatter_from(&mut steps, data.as_bytes(), count * size_of::<T>());
        } else {
            scatter_to(&mut steps, root, data.as_mut_bytes());
        }
        steps.end()
    }

    /// As [`scatter`](Self::scatter), for blocks of different lengths: `MPI_Scatterv`. At the root, block r of `data` goes to
    /// rank r, so it is as long as `into` there; see [`blocks`](crate::blocks). Other ranks may pass no blocks.
    ///
    /// # Errors
    /// As [`scatter`](Self::scatter); [`Error::WrongLength`] at the root if there is not one block for each rank, or if the block
    /// of the root is not as long as `into`.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let counts: Vec<usize> = (1..=world.size() as usize).collect(); // rank r gets r + 1 items
    /// let all = vec![7u8; counts.iter().sum()];
    /// let mut mine = vec![0; counts[world.rank() as usize]];
    /// world.scatterv(0, &towline::blocks(&all, &counts)?, &mut mine)?;
    /// assert!(mine.iter().all(|item| *item == 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scatterv<T: Plain>(&self, root: u32, data: &[&[T]], into: &mut [T]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, SCATTER);
        let (rank, size) = steps.place();
        if rank != root {
            steps.receive(into.as_mut_bytes(), root);
            return steps.end();
        }
        steps.check(check_length(size, data.len()));
        if let Some(block) = data.get(rank) {
            match check_length(block.len(), into.len()) {
                Ok(()) => into.copy_from_slice(block),
                Err(error) => steps.fail(error),
            }
        }
        let blocks = (0..size).map(|dest| (dest, data.get(dest).map_or(&[][..], |block| block.as_bytes())));
        steps.send_all(blocks.filter(|(dest, _)| *dest != rank));
        steps.end()
    }
}

/// The root's part of a scatter of blocks of `block` bytes: a binomial tree, as in [`gather`](Communicator::gather).
fn scatter_from<L: Threads>(steps: &mut Steps<'_, L>, all: &[u8], block: usize) {
    let (root, size) = steps.place();
    if root == 0 || steps.has_failed() {
        return send_subtrees(steps, all, block, root, size);
    }
    let mut rotated: Vec<u8> = steps.scratch(all.len());
    if rotated.len() == all.len() {
        let (before, after) = all.split_at(root * block);
        rotated[..after.len()].copy_from_slice(after);
        rotated[after.len()..].copy_from_slice(before);
    }
    send_subtrees(steps, if rotated.is_empty() { all } else { &rotated }, block, root, size);
}

/// The part of another rank in a scatter.
fn scatter_to<L: Threads>(steps: &mut Steps<'_, L>, root: usize, into: &mut [u8]) {
    let (rank, size) = steps.place();
    let number = (rank + size - root) % size;
    let bit = 1 << number.trailing_zeros();
    let (parent, members) = ((number - bit + root) % size, bit.min(size - number));
    if members == 1 {
        return steps.receive(into, parent);
    }
    let mut blocks: Vec<u8> = steps.scratch(into.len().saturating_mul(members));
    steps.receive(&mut blocks, parent);
    if !steps.has_failed() {
        into.copy_from_slice(&blocks[..into.len()]);
    }
    send_subtrees(steps, if blocks.is_empty() { into } else { &blocks }, into.len(), root, members);
}

/// Sends the blocks of the ranks that receive from this one: those of `members` ranks, this one included.
fn send_subtrees<L: Threads>(steps: &mut Steps<'_, L>, data: &[u8], block: usize, root: usize, members: usize) {
    let (rank, size) = steps.place();
    let number = (rank + size - root) % size;
    let mut bit = members.next_power_of_two() / 2;
    while bit != 0 {
        let bytes = block * bit.min(members - bit);
        let dest = (number + bit + root) % size;
        // Without the data, its length alone counts: the error is noted already.
        let data = data.get(block * bit..).and_then(|data| data.get(..bytes));
        steps.send(data.unwrap_or(&[0][..bytes.min(1)]), dest);
        bit /= 2;
    }
}
