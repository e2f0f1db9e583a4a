//! The settings of a job.

pub(crate) mod config;
pub(crate) mod variables;
pub(crate) mod warn;
