//! Gather: one rank gets the blocks of all ranks.

use zerocopy::IntoBytes;

use crate::collectives::blocks::check_length;
use crate::collectives::reduce_op::Plain;
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::GATHER;

impl<L: Threads> Communicator<L> {
    /// Collects the items of all ranks at rank `root`, in the order of the ranks, along a binomial tree: `MPI_Gather`. The root,
    /// and the length of `mine`, must be the same on all ranks. `into` is used at the root only; other ranks may pass an empty
    /// slice.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`] if there is no such root; [`Error::WrongLength`] at the root if `into` is not `size` times as long
    /// as `mine`; [`Error::UnequalLengths`] if lengths differ among the ranks; [`Error::PeerFailed`] if a rank was lost;
    /// [`Error::NoPart`] if another rank has an error; [`Error::NoMemory`]. An error is seen at the root, and at ranks on the way
    /// there. After an error the contents of `into` are unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut all = vec![0; if world.rank() == 0 { world.size() as usize } else { 0 }];
    /// world.gather(0, &[world.rank()], &mut all)?;
    /// if world.rank() == 0 {
    ///     assert!(all.into_iter().eq(0..world.size()));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather<T: Plain>(&self, root: u32, mine: &[T], into: &mut [T]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, GATHER);
        let (rank, size) = steps.place();
        if rank != root {
            gather_from(&mut steps, root, mine.as_bytes());
            return steps.end();
        }
        match check_length(mine.len().saturating_mul(size), into.len()) {
            Ok(()) => into[rank * mine.len()..][..mine.len()].copy_from_slice(mine),
            Err(error) => steps.fail(error),
        }
        gather_to(&mut steps, into.as_mut_bytes(), size_of_val(mine));
        steps.end()
    }

    /// As [`gather`](Self::gather), in place. `data` has the items of all ranks at the root, where those of the root are in their
    /// place already. At another rank it has the items of that rank, and is not changed.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); [`Error::WrongLength`] at the root if `data` cannot be divided into equal blocks.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut data = if world.rank() == 0 { vec![0; world.size() as usize] } else { vec![world.rank()] };
    /// world.gather_in_place(0, &mut data)?;
    /// assert!(world.rank() != 0 || data.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather_in_place<T: Plain>(&self, root: u32, data: &mut [T]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, GATHER);
        let (rank, size) = steps.place();
        if rank == root {
            let count = data.len() / size;
            steps.check(check_length(count * size, data.len()));
            gather_to(&mut steps, data.as_mut_bytes(), count * size_of::<T>());
        } else {
            gather_from(&mut steps, root, data.as_bytes());
        }
        steps.end()
    }

    /// As [`gather`](Self::gather), for blocks of different lengths: `MPI_Gatherv`. At the root, block r of `into` receives the
    /// items of rank r, so it is as long as `mine` there; see [`blocks_mut`](crate::blocks_mut). Other ranks may pass no blocks.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), at the root only; [`Error::WrongLength`] if there is not one block for each rank, or if the
    /// block of the root is not as long as `mine`.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let counts: Vec<usize> = (1..=world.size() as usize).collect(); // rank r sends r + 1 items
    /// let mine = vec![world.rank(); counts[world.rank() as usize]];
    /// let mut all = vec![0; counts.iter().sum()];
    /// world.gatherv(0, &mine, &mut towline::blocks_mut(&mut all, &counts)?)?;
    /// assert!(world.rank() != 0 || all.last() == Some(&(world.size() - 1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gatherv<T: Plain>(&self, root: u32, mine: &[T], into: &mut [&mut [T]]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, GATHER);
        let (rank, _) = steps.place();
        if rank != root {
            steps.send(mine.as_bytes(), root);
            return steps.end();
        }
        match into.get_mut(rank).map(|block| (check_length(block.len(), mine.len()), block)) {
            Some((Ok(()), block)) => block.copy_from_slice(mine),
            Some((Err(error), _)) => steps.fail(error),
            None => {} // the number of blocks is checked below
        }
        receive_blocks(&mut steps, into);
        steps.end()
    }

    /// As [`gatherv`](Self::gatherv), in place: at the root, its own items are in its block of `blocks` already. Another rank
    /// passes one block, which is sent.
    ///
    /// # Errors
    /// As [`gatherv`](Self::gatherv).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (mut data, count) = (vec![world.rank(); world.size() as usize], world.size() as usize);
    /// let mut blocks = if world.rank() == 0 { towline::blocks_mut(&mut data, &vec![1; count])? } else { vec![&mut data[..1]] };
    /// world.gatherv_in_place(0, &mut blocks)?;
    /// assert!(world.rank() != 0 || data.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gatherv_in_place<T: Plain>(&self, root: u32, blocks: &mut [&mut [T]]) -> Result<(), Error> {
        let root = self.check_root(root)?;
        let mut steps = Steps::new(self, GATHER);
        let (rank, _) = steps.place();
        if rank == root {
            receive_blocks(&mut steps, blocks);
        } else {
            steps.check(check_length(1, blocks.len()));
            steps.send(blocks.first().map_or(&[], |block| block.as_bytes()), root);
        }
        steps.end()
    }
}

/// Receives the blocks of all other ranks.
fn receive_blocks<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, into: &mut [&mut [T]]) {
    let (rank, size) = steps.place();
    steps.check(check_length(size, into.len()));
    let mut blocks: Vec<_> = into.iter_mut().map(|block| block.as_mut_bytes()).collect();
    blocks.resize_with(size, Default::default);
    steps.receive_all(blocks.into_iter().enumerate().filter(|(source, _)| *source != rank));
}

/// The root's part of a gather of blocks of `block` bytes. Its own block is in its place.
///
/// In a binomial tree, ranks are counted from the root. A rank whose number has the lowest set bit b gathers the blocks of the b
/// ranks from itself on, as far as they exist, and sends them to the rank whose number lacks that bit.
fn gather_to<L: Threads>(steps: &mut Steps<'_, L>, all: &mut [u8], block: usize) {
    let (root, size) = steps.place();
    if root == 0 {
        return receive_subtrees(steps, all, block, 0, size);
    }
    let mut gathered: Vec<u8> = steps.scratch(block.saturating_mul(size));
    receive_subtrees(steps, &mut gathered, block, root, size);
    if !steps.has_failed() && block != 0 {
        // In the order of the numbers, from the root on. The own block is not there.
        let (after, before) = gathered.split_at((size - root) * block);
        all[(root + 1) * block..].copy_from_slice(&after[block..]);
        all[..root * block].copy_from_slice(before);
    }
}

/// The part of another rank in a gather.
fn gather_from<L: Threads>(steps: &mut Steps<'_, L>, root: usize, mine: &[u8]) {
    let (rank, size) = steps.place();
    let number = (rank + size - root) % size;
    let bit = 1 << number.trailing_zeros();
    let (parent, members) = ((number - bit + root) % size, bit.min(size - number));
    if members == 1 {
        return steps.send(mine, parent);
    }
    let mut gathered: Vec<u8> = steps.scratch(mine.len().saturating_mul(members));
    if let Some(own) = gathered.get_mut(..mine.len()) {
        own.copy_from_slice(mine);
    }
    receive_subtrees(steps, &mut gathered, mine.len(), root, members);
    steps.send(if gathered.is_empty() { mine } else { &gathered }, parent);
}

/// Receives the blocks of the ranks that send to this one: those of `members` ranks, this one included.
fn receive_subtrees<L: Threads>(steps: &mut Steps<'_, L>, into: &mut [u8], block: usize, root: usize, members: usize) {
    let (rank, size) = steps.place();
    let number = (rank + size - root) % size;
    let mut bit = 1;
    while bit < members {
        let bytes = block * bit.min(members - bit);
        let source = (number + bit + root) % size;
        match into.get_mut(block * bit..).and_then(|into| into.get_mut(..bytes)) {
            Some(into) => steps.receive(into, source),
            None => steps.receive(&mut [], source), // no memory for it: the error is noted already
        }
        bit *= 2;
    }
}
