//! The job as its launcher knows it: the cards that ranks publish, and the contexts that have ended.

pub(crate) mod cards;
pub(crate) mod ended_contexts;
pub(crate) mod joined;
pub(crate) mod launcher;
pub(crate) mod warnings;
