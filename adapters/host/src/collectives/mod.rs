//! Collective operations: those that all ranks of a communicator call together.

pub(crate) mod allgather;
pub(crate) mod allreduce;
pub(crate) mod alltoall;
pub(crate) mod barrier;
pub(crate) mod blocks;
pub(crate) mod broadcast;
pub(crate) mod communicators;
pub(crate) mod finish;
pub(crate) mod gather;
pub(crate) mod lengths;
pub(crate) mod reduce;
pub(crate) mod reduce_op;
pub(crate) mod scatter;
pub(crate) mod steps;
