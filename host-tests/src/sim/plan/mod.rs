//! The programs of a job.

mod generator;
mod program;

pub use program::{Cancel, Comm, NEVER, Plan, Shape, Step, Style};
