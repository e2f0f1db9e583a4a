//! Allreduce: combines the items of all ranks, and gives the result to all.

use std::ops::Range;

use zerocopy::IntoBytes;

use crate::collectives::allgather::ring;
use crate::collectives::blocks::check_length;
use crate::collectives::lengths::Length;
use crate::collectives::reduce_op::{Plain, ReduceOp, combine_with_earlier, combine_with_later};
use crate::collectives::steps::Steps;
use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::values::tags::ALLREDUCE;

/// Longer data, in bytes, is reduced around a ring if the operation is commutative: as Open MPI,
/// `ompi_coll_tuned_allreduce_intra_dec_fixed` up to version 4.0 (Pjesivac-Grbovic and others, "Performance Analysis of MPI
/// Collective Operations", 2007).
const SHORT: usize = 10_000;

impl<L: Threads> Communicator<L> {
    /// Combines the items of all ranks by `op`, item by item, and replaces `data` by the result at all ranks: `MPI_Allreduce` in
    /// place. The result is the same, bit for bit, at all ranks. Items are combined in the order of the ranks, unless `op` is
    /// [commutative](ReduceOp::is_commutative).
    ///
    /// # Errors
    /// [`Error::UnequalLengths`] if the length of `data` differs among the ranks; [`Error::PeerFailed`] if a rank was lost;
    /// [`Error::NoPart`] if another rank has an error; [`Error::NoMemory`]. After an error the contents of `data` are
    /// unspecified. No rank waits forever.
    ///
    /// ```
    /// use towline::{Max, Sum};
    ///
    /// let world = towline::init()?;
    /// let mut sums = [1.5f64, f64::from(world.rank())];
    /// world.allreduce(&mut sums, Sum)?;
    /// assert_eq!(sums[0], 1.5 * f64::from(world.size()));
    /// let mut largest = [world.rank()];
    /// world.allreduce(&mut largest, Max)?;
    /// assert_eq!(largest, [world.size() - 1]);
    /// world.allreduce(&mut largest, |earlier: &u32, _: &u32| *earlier)?; // an operation of the program's own
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allreduce<T: Plain>(&self, data: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLREDUCE);
        allreduce(&mut steps, data, &op);
        steps.end()
    }

    /// As [`allreduce`](Self::allreduce), with the result in `into`.
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce); [`Error::WrongLength`] if `into` is not as long as `data`.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let (mine, mut product) = ([2u64], [0u64]);
    /// world.allreduce_into(&mine, &mut product, towline::Product)?;
    /// assert_eq!(product, [1 << world.size()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allreduce_into<T: Plain>(&self, data: &[T], into: &mut [T], op: impl ReduceOp<T>) -> Result<(), Error> {
        let mut steps = Steps::new(self, ALLREDUCE);
        match check_length(data.len(), into.len()) {
            Ok(()) => into.copy_from_slice(data),
            Err(error) => steps.fail(error),
        }
        allreduce(&mut steps, into, &op);
        steps.end()
    }
}

fn allreduce<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, data: &mut [T], op: &impl ReduceOp<T>) {
    let (rank, size) = steps.place();
    let bytes = size_of_val(data);
    if bytes <= SHORT || size == 1 {
        return recursive_doubling(steps, data, op);
    }
    let is_commutative = op.is_commutative() && data.len() >= size;
    let scratch = steps.scratch(if is_commutative { data.len().div_ceil(size) } else { 0 });
    let goes_on = steps.compare_lengths(bytes, |steps, own| {
        let mut length = [own];
        recursive_doubling(steps, &mut length, &Length::combine);
        vec![(rank, length[0])]
    });
    match (goes_on, is_commutative) {
        (false, _) => {}
        (true, true) => reduce_around_ring(steps, data, scratch, op),
        (true, false) => recursive_doubling(steps, data, op),
    }
}

/// Recursive doubling (Thakur, Rabenseifner and Gropp, 2005): in each round the number of ranks whose items are combined doubles,
/// and two neighbouring groups of ranks exchange their results. So the order of the ranks is kept. If the number of ranks is not a
/// power of two, some ranks are first combined with their neighbours, which give them the result at the end.
fn recursive_doubling<T: Plain, L: Threads>(steps: &mut Steps<'_, L>, data: &mut [T], op: &impl ReduceOp<T>) {
    let (rank, size) = steps.place();
    let mut other: Vec<T> = steps.scratch(if size == 1 { 0 } else { data.len() });
    if other.len() != data.len() {
        other.clear(); // no memory: only notices follow
    }
    let power = 1 << size.ilog2();
    let paired = 2 * (size - power); // below this rank, an even rank and the next one form a pair
    let number = if rank >= paired { rank - paired / 2 } else { rank / 2 };
    let rank_of = |number: usize| if number < paired / 2 { 2 * number + 1 } else { number + paired / 2 };
    if rank < paired && rank.is_multiple_of(2) {
        steps.send(data.as_bytes(), rank + 1);
        return steps.receive(data.as_mut_bytes(), rank + 1);
    }
    if rank < paired {
        steps.receive(other.as_mut_bytes(), rank - 1);
        combine(steps, || combine_with_earlier(op, &other, data));
    }
    let mut distance = 1;
    while distance < power {
        let partner = rank_of(number ^ distance);
        steps.exchange(data.as_bytes(), partner, other.as_mut_bytes(), partner);
        combine(steps, || match partner < rank {
            true => combine_with_earlier(op, &other, data),
            false => combine_with_later(op, data, &other),
        });
        distance *= 2;
    }
    if rank < paired {
        steps.send(data.as_bytes(), rank - 1);
    }
}

/// Combines, unless this rank has no valid data.
fn combine<L: Threads>(steps: &Steps<'_, L>, combine: impl FnOnce()) {
    if !steps.has_failed() {
        combine();
    }
}

/// Reduces the parts of the data around a ring of all ranks, and then passes the results around the ring (Patarasuk and Yuan,
/// "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009). Each rank sends less than twice the data.
fn reduce_around_ring<T: Plain, L: Threads>(
    steps: &mut Steps<'_, L>,
    data: &mut [T],
    mut other: Vec<T>,
    op: &impl ReduceOp<T>,
) {
    let (rank, size) = steps.place();
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let length = data.len();
    let part = |index: usize| -> Range<usize> {
        let index = index % size;
        let start = |index: usize| index * (length / size) + index.min(length % size);
        start(index)..start(index + 1)
    };
    for round in 0..size - 1 {
        let (out, new) = (part(rank + size - round), part(rank + 2 * size - round - 1));
        let other = &mut other[..new.len()];
        steps.exchange(data[out].as_bytes(), next, other.as_mut_bytes(), previous);
        combine(steps, || combine_with_earlier(op, other, &mut data[new]));
    }
    // This rank has the result for the part after its own. The ring of an allgather begins with the part of the own number.
    let mut rest = data;
    let mut parts: Vec<_> = (0..size).filter_map(|index| rest.split_off_mut(..part(index).len())).collect();
    parts.rotate_left(1);
    let mut parts: Vec<_> = parts.into_iter().map(|part| part.as_mut_bytes()).collect();
    ring(steps, &mut parts);
}
