//! Collective operations: barrier, broadcast, reductions, and the exchange of blocks among all ranks.
//!
//! All ranks of a communicator call a collective operation, in the same order, and each from one thread at a time. The messages of
//! these operations never match those of the program.
//!
//! | to do | use | as in MPI |
//! |---|---|---|
//! | wait for all ranks | [`barrier`](crate::Communicator::barrier) | `MPI_Barrier` |
//! | copy from one rank to all | [`broadcast`](crate::Communicator::broadcast) | `MPI_Bcast` |
//! | combine the items of all ranks, for all | [`allreduce`](crate::Communicator::allreduce) | `MPI_Allreduce` |
//! | the same, for one rank | [`reduce`](crate::Communicator::reduce) | `MPI_Reduce` |
//! | collect a block of each rank, at all | [`allgather`](crate::Communicator::allgather) | `MPI_Allgather` |
//! | the same, at one rank | [`gather`](crate::Communicator::gather) | `MPI_Gather` |
//! | give a block to each rank | [`scatter`](crate::Communicator::scatter) | `MPI_Scatter` |
//! | give a block to each rank, from each rank | [`alltoall`](crate::Communicator::alltoall) | `MPI_Alltoall` |
//! | make communicators | [`dup`](crate::Communicator::dup), [`split`](crate::Communicator::split) | `MPI_Comm_dup`, `MPI_Comm_split` |
//!
//! Methods that end in `v` are for blocks of different lengths; [`blocks`](crate::blocks) and [`blocks_mut`](crate::blocks_mut)
//! divide a slice into such blocks. Methods that end in `_in_place` find this rank's data where the result will be, as with
//! `MPI_IN_PLACE`. Reductions work in place, and have a form that ends in `_into` for a separate result.
//!
//! ```
//! use towline::{Max, Sum};
//!
//! let world = towline::init()?;
//! let (rank, size) = (world.rank(), world.size());
//!
//! let mut totals = [1.0, f64::from(rank)];
//! world.allreduce(&mut totals, Sum)?; // totals of all ranks, at all ranks
//! assert_eq!(totals[0], f64::from(size));
//!
//! let mut all = vec![0; size as usize];
//! world.allgather(&[rank], &mut all)?;
//! assert!(all.iter().copied().eq(0..size));
//!
//! let mut largest = [rank];
//! world.reduce(0, &mut largest, Max)?; // at rank 0
//! assert!(rank != 0 || largest == [size - 1]);
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Operations of reductions
//!
//! [`Sum`](crate::Sum), [`Product`](crate::Product), [`Min`](crate::Min) and [`Max`](crate::Max) are for numbers. Any closure of
//! two items is an operation, too: its operands keep the order of the ranks. [`Commutative`](crate::Commutative) says that their
//! order does not matter. An operation with a state, or with a name, implements [`ReduceOp`](crate::ReduceOp). The result of
//! `allreduce` is the same, bit for bit, at all ranks. Another number of ranks may give a sum of floating-point numbers another
//! last bit.
//!
//! # Algorithms
//!
//! | operation | algorithm |
//! |---|---|
//! | barrier | dissemination |
//! | broadcast, reduce, gather, scatter | binomial tree |
//! | gatherv, scatterv | the root exchanges messages with all ranks |
//! | allreduce | recursive doubling; a ring for a commutative operation on more than 10,000 bytes |
//! | allgather | Bruck's algorithm; a ring for more than 80 KiB in all |
//! | allgatherv | a ring |
//! | alltoall | Bruck's algorithm; in pairs for blocks of more than 256 bytes |
//! | alltoallv | in pairs |
//!
//! All of them work for any number of ranks. The sources name the publications. Operations with trees, with Bruck's algorithm
//! and in pairs need memory of their own, at most for as many bytes as the rank sends or receives.
//!
//! # Errors
//!
//! A rank that cannot take part, because of a slice of the wrong length or for lack of memory, gets the error that says so. It
//! still sends a notice to the ranks that expect its data. They get [`Error::NoPart`](crate::Error::NoPart), and no rank waits.
//! If ranks pass different lengths, ranks that see it get [`Error::UnequalLengths`](crate::Error::UnequalLengths). If a rank is
//! lost, the ranks that miss its data get [`Error::PeerFailed`](crate::Error::PeerFailed) or `NoPart`. An error at one rank does not
//! mean an error at all: a leaf of a tree is done as soon as it has sent its block. The root of an operation must be the same at
//! all ranks, which is not checked.
//!
//! Making a communicator or a [window](super::one_sided) is stricter: all ranks make it, or all get an error. If one rank has no
//! room, the others get [`Error::NoRoom`](crate::Error::NoRoom) or [`Error::NoWindow`](crate::Error::NoWindow), which name that
//! rank and what it lacks. The exception is a rank that is lost during the call: the call may then succeed at some ranks.
