//! Alltoall: each rank sends a block to each rank.

use zerocopy::IntoBytes;

use crate::collectives::blocks::check_length;
use crate::collectives::lengths::Length;
use crate::collectives::reduce_op::Plain;
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::ALLTOALL;

/// Blocks of up to this many bytes are exchanged by Bruck's algorithm, longer ones in pairs: as MPICH,
/// `MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE` (Thakur, Rabenseifner and Gropp, 2005).
const SHORT: usize = 256;

impl<L: Threads> Communicator<L> {
    /// Sends block r of `data` to rank r, and receives block r of `into` from rank r: `MPI_Alltoall`. Both have `size` blocks of
    /// the same length, which is the same on all ranks.
    ///
    /// # Errors
    /// [`Error::WrongLength`] if `data` cannot be divided into equal blocks, or if `into` has another length;
    /// [`Error::UnequalLengths`] if lengths differ among the ranks; [`Error::PeerFailed`] if a rank was lost;
    /// [`Error::NoPart`] if another rank has an error; [`Error::NoMemory`]. After an error the contents of `into` are
    /// unspecified. No rank waits forever.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mine: Vec<u32> = (0..world.size()).map(|to| 100 * world.rank() + to).collect();
    /// let mut theirs = vec![0; mine.len()];
    /// world.alltoall(&mine, &mut theirs)?;
    /// assert!(theirs.into_iter().eq((0..world.size()).map(|from| 100 * from + world.rank())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alltoall<T: Plain>(&self, data: &[T], into: &mut [T]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLTOALL);
        match check_length(data.len(), into.len()) {
            Ok(()) => into.copy_from_slice(data),
            Err(error) => steps.fail(error),
        }
        alltoall(&mut steps, into, data.len());
        steps.end()
    }

    /// As [`alltoall`](Self::alltoall), in place: each block of `data` is sent, and replaced by the one that is received.
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut data = vec![world.rank(); world.size() as usize];
    /// world.alltoall_in_place(&mut data)?;
    /// assert!(data.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alltoall_in_place<T: Plain>(&self, data: &mut [T]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLTOALL);
        let items = data.len();
        alltoall(&mut steps, data, items);
        steps.end()
    }

    /// As [`alltoall`](Self::alltoall), for blocks of different lengths: `MPI_Alltoallv`. Block r of `into` is as long as the
    /// block for this rank at rank r. See [`blocks`](crate::blocks) and [`blocks_mut`](crate::blocks_mut).
    ///
    /// # Errors
    /// As [`alltoall`](Self::alltoall); [`Error::WrongLength`] if there is not one block for each rank.
    ///
    /// ```
    /// use towline::{blocks, blocks_mut};
    ///
    /// let world = towline::init()?;
    /// let (rank, size) = (world.rank() as usize, world.size() as usize);
    /// let to: Vec<usize> = (0..size).map(|other| rank + other).collect(); // rank + other items to each other rank
    /// let (mine, mut theirs) = (vec![rank; to.iter().sum()], vec![0; to.iter().sum()]);
    /// world.alltoallv(&blocks(&mine, &to)?, &mut blocks_mut(&mut theirs, &to)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alltoallv<T: Plain>(&self, data: &[&[T]], into: &mut [&mut [T]]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLTOALL);
        let (rank, size) = steps.place();
        steps.check(check_length(size, data.len()).and(check_length(size, into.len())));
        if let (Some(data), Some(into)) = (data.get(rank), into.get_mut(rank)) {
            match check_length(data.len(), into.len()) {
                Ok(()) => into.copy_from_slice(data),
                Err(error) => steps.fail(error),
            }
        }
        for other in partners(rank, size) {
            let data = data.get(other).map_or(&[][..], |data| data.as_bytes());
            let into = into.get_mut(other).map_or(&mut [][..], |into| into.as_mut_bytes());
            steps.exchange(data, other, into, other);
        }
        steps.end()
    }

    /// As [`alltoallv`](Self::alltoallv), in place: each block of `data` is sent, and replaced by the one that is received. Two
    /// ranks have blocks of the same length for each other.
    ///
    /// # Errors
    /// As [`alltoallv`](Self::alltoallv).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (mut data, counts) = (vec![world.rank(); world.size() as usize], vec![1; world.size() as usize]);
    /// world.alltoallv_in_place(&mut towline::blocks_mut(&mut data, &counts)?)?;
    /// assert!(data.into_iter().eq(0..world.size()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alltoallv_in_place<T: Plain>(&self, data: &mut [&mut [T]]) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLTOALL);
        let (_, size) = steps.place();
        steps.check(check_length(size, data.len()));
        let mut blocks: Vec<_> = data.iter_mut().map(|block| block.as_mut_bytes()).collect();
        blocks.resize_with(size, Default::default);
        in_pairs(&mut steps, blocks);
        steps.end()
    }
}

/// Exchanges `items` items with blocks in place: those of `data`, unless this rank has failed already.
fn alltoall<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, data: &mut [T], items: usize) {
    let (_, size) = steps.place();
    steps.check(check_length(items / size * size, items));
    let block = items / size * size_of::<T>();
    if block <= SHORT || size == 1 {
        return bruck(steps, data.as_mut_bytes(), block);
    }
    let goes_on = steps.compare_lengths(block, |steps, own| {
        let mut lengths = vec![own; size];
        bruck(steps, lengths.as_mut_bytes(), size_of::<Length>());
        lengths.into_iter().enumerate().collect()
    });
    if goes_on {
        in_pairs(steps, data.as_mut_bytes().chunks_exact_mut(block).collect());
    }
}

/// Bruck's algorithm (Bruck, Ho, Kipnis, Upfal and Weathersby, 1997): `log2(size)` rounds, rounded up. In round k, all blocks
/// whose way is a number with bit k go to the rank that is 2^k after this one.
fn bruck<L: Threads>(steps: &mut Steps<'_, L>, data: &mut [u8], block: usize) {
    let (rank, size) = steps.place();
    // By the distance of their way: first to the rank that a block is for, at the end from the rank that it is from.
    let mut moving: Vec<u8> = steps.scratch(block * size);
    let mut out: Vec<u8> = steps.scratch(block * size.div_ceil(2));
    let mut new: Vec<u8> = steps.scratch(block * size.div_ceil(2));
    let valid = |steps: &Steps<'_, L>| block != 0 && !steps.has_failed();
    if valid(steps) {
        for (distance, moving) in moving.chunks_exact_mut(block).enumerate() {
            moving.copy_from_slice(&data[(rank + distance) % size * block..][..block]);
        }
    }
    let mut step = 1;
    while step < size {
        let on_its_way = || (step..size).filter(|distance| distance & step != 0);
        let bytes = block * on_its_way().count();
        if valid(steps) {
            for (distance, out) in on_its_way().zip(out.chunks_exact_mut(block)) {
                out.copy_from_slice(&moving[distance * block..][..block]);
            }
        }
        let (dest, source) = ((rank + step) % size, (rank + size - step) % size);
        if out.len() < bytes || new.len() < bytes {
            steps.exchange(&data[..bytes.min(data.len())], dest, &mut [], source); // no memory
        } else {
            steps.exchange(&out[..bytes], dest, &mut new[..bytes], source);
        }
        if valid(steps) {
            for (distance, new) in on_its_way().zip(new.chunks_exact(block)) {
                moving[distance * block..][..block].copy_from_slice(new);
            }
        }
        step *= 2;
    }
    if valid(steps) {
        for (distance, moving) in moving.chunks_exact(block).enumerate() {
            data[(rank + size - distance) % size * block..][..block].copy_from_slice(moving);
        }
    }
}

/// Exchanges blocks with one rank after the other, in place.
fn in_pairs<L: Threads>(steps: &mut Steps<'_, L>, mut blocks: Vec<&mut [u8]>) {
    let (rank, size) = steps.place();
    let longest = blocks.iter().map(|block| block.len()).max().unwrap_or(0);
    let mut copy: Vec<u8> = steps.scratch(longest);
    for other in partners(rank, size) {
        let into: &mut [u8] = blocks[other];
        if let Some(copy) = copy.get_mut(..into.len()) {
            copy.copy_from_slice(into);
            steps.exchange(copy, other, into, other);
        } else {
            steps.exchange(&[0][..into.len().min(1)], other, &mut [], other); // no memory
        }
    }
}

/// The other ranks, in an order in which two ranks have each other at the same time.
fn partners(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..size).map(move |round| (round + size - rank) % size).filter(move |other| *other != rank)
}
