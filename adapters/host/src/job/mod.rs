//! The job as its launcher knows it: the cards that ranks publish, the processors of this host, and the contexts that have ended.

pub(crate) mod bootstrap;
pub(crate) mod cards;
pub(crate) mod ended_contexts;
pub(crate) mod joined;
pub(crate) mod launcher;
pub(crate) mod processors;
pub(crate) mod warnings;
