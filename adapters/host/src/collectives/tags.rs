//! The tags of collective operations. They are above those of programs, so a message of a program never matches them.

use crate::values::message::TAG_MAX;

/// The first of the tags of a barrier's rounds.
pub(crate) const BARRIER: u32 = TAG_MAX + 0x100;
pub(crate) const BROADCAST: u32 = TAG_MAX + 0x200;
pub(crate) const AGREEMENT: u32 = TAG_MAX + 0x300;
/// The tags of the rounds of the barrier at the end.
pub(crate) const FINISH_TAGS: std::ops::Range<u32> = TAG_MAX + 0x400..TAG_MAX + 0x440;
pub(crate) const REDUCE: u32 = TAG_MAX + 0x500;
pub(crate) const ALLREDUCE: u32 = TAG_MAX + 0x600;
pub(crate) const GATHER: u32 = TAG_MAX + 0x700;
pub(crate) const SCATTER: u32 = TAG_MAX + 0x800;
pub(crate) const ALLGATHER: u32 = TAG_MAX + 0x900;
pub(crate) const ALLTOALL: u32 = TAG_MAX + 0xa00;
