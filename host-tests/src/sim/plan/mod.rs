//! Plans: the programs of all nodes of a job.

mod generator;
mod program;

pub use program::{Cancel, Comm, NEVER, Plan, Shape, Step, Style};
