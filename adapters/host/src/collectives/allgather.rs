//! Allgather: each rank gets the blocks of all ranks.

use zerocopy::IntoBytes;

use crate::collectives::blocks::{check_length, pair};
use crate::collectives::lengths::Length;
use crate::collectives::reduce_op::Plain;
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::{AGREEMENT, ALLGATHER};

/// Blocks of all ranks of up to this many bytes together are gathered by Bruck's algorithm, longer ones around a ring: as MPICH,
/// `MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE` (Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
/// MPICH", 2005).
const SHORT: usize = 80 << 10;

impl<L: Threads> Communicator<L> {
    /// Collects the items of all ranks at all ranks, in the order of the ranks: `MPI_Allgather`. `mine` has the same length on
    /// all ranks, and `into` has room for all of them.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if `into` is not `size` times as long as `mine`; [`Error::UnequalLengths`] if lengths differ among
    /// the ranks; [`Error::PeerFailed`] if a rank was lost; [`Error::NoPart`] if another rank has an error; [`Error::NoMemory`].
    /// After an error the contents of `into` are unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut all = vec![0; world.size() as usize];
    /// world.allgather(&[world.rank()], &mut all)?;
    /// assert!(all.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allgather<T: Plain>(&self, mine: &[T], into: &mut [T]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLGATHER);
        let (rank, size) = steps.place();
        match check_length(mine.len().saturating_mul(size), into.len()) {
            Ok(()) => into[rank * mine.len()..][..mine.len()].copy_from_slice(mine),
            Err(error) => steps.fail(error),
        }
        allgather(&mut steps, into.as_mut_bytes(), size_of_val(mine));
        steps.end()
    }

    /// As [`allgather`](Self::allgather), in place: the items of this rank are in its block of `all` already.
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather); [`Error::WrongLength`] if `all` cannot be divided into equal blocks.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut all = vec![0; world.size() as usize];
    /// all[world.rank() as usize] = world.rank();
    /// world.allgather_in_place(&mut all)?;
    /// assert!(all.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allgather_in_place<T: Plain>(&self, all: &mut [T]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLGATHER);
        let (_, size) = steps.place();
        steps.check(check_length(all.len() / size * size, all.len()));
        let block = all.len() / size * size_of::<T>();
        allgather(&mut steps, all.as_mut_bytes(), block);
        steps.end()
    }

    /// As [`allgather`](Self::allgather), for blocks of different lengths: `MPI_Allgatherv`. Block r of `into` receives the items
    /// of rank r, so it is as long as `mine` there; see [`blocks_mut`](crate::blocks_mut).
    ///
    /// # Errors
    /// As [`allgather`](Self::allgather); [`Error::WrongLength`] if there is not one block for each rank, or if the block of this
    /// rank is not as long as `mine`.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let counts: Vec<usize> = (1..=world.size() as usize).collect(); // rank r sends r + 1 items
    /// let mine = vec![world.rank(); counts[world.rank() as usize]];
    /// let mut all = vec![0; counts.iter().sum()];
    /// world.allgatherv(&mine, &mut towline::blocks_mut(&mut all, &counts)?)?;
    /// assert_eq!(all.last(), Some(&(world.size() - 1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allgatherv<T: Plain>(&self, mine: &[T], into: &mut [&mut [T]]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLGATHER);
        let (rank, _) = steps.place();
        match into.get_mut(rank).map(|block| (check_length(block.len(), mine.len()), block)) {
            Some((Ok(()), block)) => block.copy_from_slice(mine),
            Some((Err(error), _)) => steps.fail(error),
            None => {} // the number of blocks is checked below
        }
        ring_of_blocks(&mut steps, into);
        steps.end()
    }

    /// As [`allgatherv`](Self::allgatherv), in place: the items of this rank are in its block of `all` already.
    ///
    /// # Errors
    /// As [`allgatherv`](Self::allgatherv).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut all = vec![world.rank(); world.size() as usize];
    /// let counts = vec![1; world.size() as usize];
    /// world.allgatherv_in_place(&mut towline::blocks_mut(&mut all, &counts)?)?;
    /// assert!(all.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allgatherv_in_place<T: Plain>(&self, all: &mut [&mut [T]]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLGATHER);
        ring_of_blocks(&mut steps, all);
        steps.end()
    }

    /// Collects the same number of bytes from each rank, and returns all of them in the order of the ranks. `error`: why this rank
    /// cannot take part. It still does its steps, and returns the error. An error at one rank reaches all ranks, as far as ranks
    /// that are lost do not prevent that.
    pub(crate) fn agree(&self, mine: &[u8], error: Option<Error>) -> Result<Vec<u8>, Error> {
        let mut steps = Steps::new(self, AGREEMENT);
        let (rank, size) = steps.place();
        if let Some(error) = error {
            steps.fail(error);
        }
        let mut all = vec![0; mine.len() * size];
        all[rank * mine.len()..][..mine.len()].copy_from_slice(mine);
        bruck(&mut steps, &mut all, mine.len());
        steps.end()?;
        Ok(all)
    }
}

/// Gathers blocks of `block` bytes each. That of this rank is in its place already.
fn allgather<L: Threads>(steps: &mut Steps<'_, L>, all: &mut [u8], block: usize) {
    let (_, size) = steps.place();
    let total = block.saturating_mul(size);
    if total <= SHORT || size == 1 {
        return bruck(steps, all, block);
    }
    let goes_on = steps.compare_lengths(block, |steps, own| {
        let mut lengths = vec![own; size];
        bruck(steps, lengths.as_mut_bytes(), size_of::<Length>());
        lengths.into_iter().enumerate().collect()
    });
    if goes_on {
        let mut blocks: Vec<_> = all.chunks_exact_mut(block).collect();
        ring(steps, &mut blocks);
    }
}

/// Bruck's algorithm: `log2(size)` rounds, rounded up. Before round k, a rank has the blocks of 2^k ranks: its own, and those of
/// the ranks before it. In the round it sends them to the rank that is 2^k after it.
fn bruck<L: Threads>(steps: &mut Steps<'_, L>, all: &mut [u8], block: usize) {
    let (rank, size) = steps.place();
    // The block of this rank first, then those of the ranks before it, backwards.
    let mut known: Vec<u8> = steps.scratch(block.saturating_mul(size));
    if !steps.has_failed() {
        known[..block].copy_from_slice(&all[rank * block..][..block]);
    }
    let mut have = 1;
    while have < size {
        let some = have.min(size - have) * block;
        let (dest, source) = ((rank + have) % size, (rank + size - have) % size);
        if known.is_empty() {
            steps.exchange(&all[..some.min(all.len())], dest, &mut [], source); // no memory, or nothing to gather
        } else {
            let (mine, new) = known.split_at_mut(have * block);
            steps.exchange(&mine[..some], dest, &mut new[..some], source);
        }
        steps.spread_errors(); // a later round may reach ranks that miss the block of a lost rank
        have *= 2;
    }
    if !steps.has_failed() && block != 0 {
        for (distance, data) in known.chunks_exact(block).enumerate() {
            all[(rank + size - distance) % size * block..][..block].copy_from_slice(data);
        }
    }
}

/// As [`ring`], for one block for each rank.
fn ring_of_blocks<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, all: &mut [&mut [T]]) {
    let (_, size) = steps.place();
    steps.check(check_length(size, all.len()));
    let mut blocks: Vec<_> = all.iter_mut().map(|block| block.as_mut_bytes()).collect();
    blocks.resize_with(size, Default::default);
    ring(steps, &mut blocks);
}

/// Passes each block around a ring of all ranks, in `size - 1` rounds.
pub(crate) fn ring<L: Threads>(steps: &mut Steps<'_, L>, blocks: &mut [&mut [u8]]) {
    let (rank, size) = steps.place();
    for round in 0..size - 1 {
        let (out, new) = ((rank + size - round) % size, (rank + size - round - 1) % size);
        let (data, into) = pair(blocks, out, new);
        steps.exchange(data, (rank + 1) % size, into, (rank + size - 1) % size);
    }
}
