//! The job as its launcher knows it: cards, and contexts that have ended.

pub(crate) mod cards;
pub(crate) mod ended_contexts;
pub(crate) mod launcher;
