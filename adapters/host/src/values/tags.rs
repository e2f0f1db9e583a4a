//! The tags of collective operations. They are above those of programs, so a message of a program never matches them.

use crate::values::message::TAG_MAX;

/// The first of the tags of a barrier's rounds.
pub(crate) const BARRIER: u32 = TAG_MAX + 0x100;
pub(crate) const BROADCAST: u32 = TAG_MAX + 0x200;
/// The agreement on a further communicator.
pub(crate) const AGREEMENT: u32 = TAG_MAX + 0x300;
const FINISH: u32 = TAG_MAX + 0x400;
pub(crate) const REDUCE: u32 = TAG_MAX + 0x500;
pub(crate) const ALLREDUCE: u32 = TAG_MAX + 0x600;
pub(crate) const GATHER: u32 = TAG_MAX + 0x700;
pub(crate) const SCATTER: u32 = TAG_MAX + 0x800;
pub(crate) const ALLGATHER: u32 = TAG_MAX + 0x900;
pub(crate) const ALLTOALL: u32 = TAG_MAX + 0xa00;
/// The tags of messages at the end: first those of the rounds of the last barrier.
pub(crate) const FINISH_TAGS: std::ops::Range<u32> = FINISH..FINISH + 0x40;

/// The tag of the last message to a rank. A rank that finishes refuses it, and so tells that all earlier ones have arrived.
pub(crate) const LAST_MESSAGE: u32 = FINISH + 0x80;

/// The operations by their first tags, counted from [`TAG_MAX`]. Each has 256 tags.
const NAMES: [(u32, &str); 10] = [
    (0x100, "barrier"),
    (0x200, "broadcast"),
    (0x300, "dup or split"),
    (0x400, "finish"),
    (0x500, "reduce"),
    (0x600, "allreduce"),
    (0x700, "gather"),
    (0x800, "scatter"),
    (0x900, "allgather"),
    (0xa00, "alltoall"),
];

/// The name of the collective operation that a tag belongs to. `None` for tags of programs.
pub(crate) fn collective_name(tag: u32) -> Option<&'static str> {
    let first = (tag > TAG_MAX).then_some(tag.wrapping_sub(TAG_MAX) & !0xff)?;
    let found = NAMES.iter().find(|(known, _)| *known == first);
    Some(found.map_or("collective operation", |(_, name)| name))
}

/// Whether a tag belongs to the end of the world.
pub(crate) fn is_of_finish(tag: u32) -> bool {
    (FINISH..FINISH + 0x100).contains(&tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_collective_operation_is_known_by_its_tags() {
        assert_eq!(collective_name(TAG_MAX), None);
        assert_eq!(
            [BARRIER, BARRIER + 31, BROADCAST].map(collective_name),
            [Some("barrier"), Some("barrier"), Some("broadcast")]
        );
        assert_eq!(collective_name(TAG_MAX + 0xff00), Some("collective operation"));
        assert!(
            is_of_finish(FINISH + 3)
                && is_of_finish(LAST_MESSAGE)
                && !FINISH_TAGS.contains(&LAST_MESSAGE)
                && !is_of_finish(BARRIER)
                && !is_of_finish(7)
        );
    }
}
