//! Jobs by seed: a random size, random limits, and a random set of faults.

mod disconnections;
mod families;
mod faults;
mod limits;

pub use families::{MESSAGES, POOLS, SingleFault, describe, faulty, only, reliable, smallest_pools};
