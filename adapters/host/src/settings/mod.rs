//! The settings of a job.

pub(crate) mod config;
